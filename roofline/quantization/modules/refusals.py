"""What cannot be quantised, refused before anything is changed, in a line that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from roofline.errors import InputError, nearest
from roofline.quantization.modules.quantized_layers import quantized_entrances, quantized_layers
from roofline.quantization.policy import Policy
from roofline.quantization.quantizers.grids import FLOATS
from roofline.workload.capture.compiled import is_compiled

_TORCHS = ("torch.ao.nn.", "torch.ao.quantization.", "torch.nn.quantized", "torchao.")
_QUANTISED = ("quantized", "qat", "fake_quantize")


def check_model(model: object, policy: object) -> None:
    """Refuses what is no float model, or no policy.

    Raises:
        InputError: it is quantised or compiled already, or has weights without a shape.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"quantize_model takes a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(policy, Policy):
        raise InputError(f"policy: expected a roofline.quantization.Policy, got {policy!r}")
    kind = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"{kind} is scripted; quantise the module that it was made of")
    known = [*quantized_layers(model), *quantized_entrances(model)]
    if known:
        raise InputError(
            f"{kind} is quantised already ('{known[0]}' is); quantise the float model of it"
        )
    for name, module in model.named_modules():
        if is_compiled(module):
            raise InputError(f"{kind} is compiled; quantise it first, then call torch.compile")
        if _is_torchs(module):
            raise InputError(
                f"{kind} is quantised already: '{name}' is torch's {type(module).__name__};"
                " quantise the float model it was made of"
            )
        if any(is_lazy(each) for each in module.parameters(recurse=False)):
            raise InputError(
                f"'{name}' of {kind} has no weights yet; run the model once, then quantise it"
            )


def check_names(layers: Mapping[str, Any], policy: Policy) -> None:
    """Refuses policies for layers that are none.

    Raises:
        InputError: naming the nearest that is one.
    """
    for name in policy.layers:
        if name not in layers:
            raise InputError(
                f"policy: {name!r} is no layer that can be quantised{nearest(name, layers)}"
            )


def check_layer(layer: nn.Module, words: str) -> None:
    """Refuses a layer whose weights have no scale, or are not its own.

    Args:
        layer: what is to be quantised.
        words: what messages call it.

    Raises:
        InputError: it cannot be quantised.
    """
    weight: Any = layer.weight
    if nn.utils.parametrize.is_parametrized(layer):
        raise InputError(
            f"{words} is parametrised already (as weight norm does); make that final with"
            " torch.nn.utils.parametrize.remove_parametrizations"
        )
    if not isinstance(weight, nn.Parameter):
        raise InputError(
            f"{words}: its weight is computed before each call; quantise a model whose weights are"
            " parameters"
        )
    if weight.dtype not in FLOATS:
        kind = str(weight.dtype).removeprefix("torch.")
        raise InputError(
            f"{words} has weights of {kind}; only floats of 16 to 64 bits can be quantised"
        )
    if weight.is_meta:
        raise InputError(f"{words} has no values (it lies on the meta device); load its weights")
    if weight.is_inference():
        raise InputError(f"{words} was made in inference mode; make the model outside of it")
    if not bool(torch.isfinite(weight).all()):
        raise InputError(f"{words} has NaN or infinite weights; load a sound checkpoint")
    check_room(layer, words)


def check_room(module: nn.Module, words: str) -> None:
    """Refuses a module that has something else where its quantiser is put.

    Raises:
        InputError: it has.
    """
    if hasattr(module, "input_quantizer"):
        raise InputError(f"{words} has an attribute 'input_quantizer' of its own; rename that")


def _is_torchs(module: nn.Module) -> bool:
    where = type(module).__module__
    return where.startswith(_TORCHS) and any(each in where for each in _QUANTISED)
