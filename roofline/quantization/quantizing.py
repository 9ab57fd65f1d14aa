"""Quantized models from any module: PACT for activations, SAWB for weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from roofline.errors import InputError, ModelError, did_you_mean, error_text
from roofline.quantization.policy import FLOAT_BITS, Policy
from roofline.quantization.quantized_modules import (
    LAYERS,
    TRANSPOSED,
    attach_input_quantizer,
    attach_weight_quantizer,
    entry_quantizers,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT, check_weight, weight_quantizer
from roofline.quantization.tracing import LayerTrace, trace_layers
from roofline.workload.capture.module_stack import is_compiled

_TORCHS = ("torch.ao.nn.", "torch.ao.quantization.", "torch.nn.quantized", "torchao.")
_QUANTIZED = ("quantized", "qat", "fake_quantize")

DECAY = 1e-2
"""Default decay of α; without it, an α above all inputs would never decrease."""

_DEFAULT = Policy()

_NAMED_MOST = 5


def quantize_model(
    model: nn.Module,
    policy: Policy = _DEFAULT,
    inputs: Any = None,
    *,
    inplace: bool = False,
    decay: float = DECAY,
) -> nn.Module:
    """Return a model with quantized weights and activations, ready for training.

    Layers stay the user's modules with float weights, which are quantized in every forward pass;
    inputs are clipped at a learned α and quantized. A layer that runs several times gets the most
    bits of its places. Identity shortcuts are quantized with ``shortcut="low"``. A warning names
    layers that the policy quantizes but that stay in floats.

    Args:
        model: any module; unchanged unless `inplace`.
        policy: bits of the layers.
        inputs: inputs of the model, as in `roofline.analyze`: layers and shortcuts are found in a
            recorded pass. None: torch.fx traces the code.
        inplace: modify and return `model` itself.
        decay: L2 decay of each α.

    Raises:
        ModelError: the layers cannot be found.
        InputError: the model is already quantized, has no layers or unsupported ones, or the policy
            names unknown layers.
    """
    check_model(model, policy)
    found = trace_layers(model, inputs)
    for name in policy.layers:
        if name not in found.layers:
            raise InputError(
                f"policy: no layer {name!r} to quantize{did_you_mean(name, found.layers)}"
            )
    if not found.layers:
        raise InputError(f"{type(model).__name__} has no convolution or linear layer to quantize")
    entries = found.entries if _takes_shortcuts(policy) else ()
    bits = {name: each.bits(name, policy) for name, each in found.layers.items()}
    for name, each in bits.items():
        if not each.is_float:
            _check_layer(model.get_submodule(name), _layer_name(name))
    for each in entries:
        _check_room(model.get_submodule(each.block), f"module '{each.block}'")
    target = model
    if not inplace:
        try:
            target = copy.deepcopy(model)
        # Copying may raise anything.
        except Exception as error:
            raise ModelError(
                f"{type(model).__name__} cannot be copied ({error_text(error)}); use inplace=True"
            ) from error

    def pact(name: str, width: int, is_signed: bool) -> PACT:
        module = target.get_submodule(name)
        like = next(each for each in module.parameters() if each.is_floating_point())
        made = PACT(width, decay=decay, signed=is_signed)
        made.name = name
        return made.to(device=like.device, dtype=like.dtype).train(module.training)

    # Create all quantizers before changing anything.
    weights = {
        name: weight_quantizer(
            each.weights,
            per_channel=policy.per_channel,
            axis=int(isinstance(target.get_submodule(name), TRANSPOSED)),
        )
        for name, each in bits.items()
        if each.weights != FLOAT_BITS
    }
    activations = {
        name: pact(name, each.activations, found.layers[name].is_signed)
        for name, each in bits.items()
        if each.activations != FLOAT_BITS
    }
    # A layer with the same input and bits as its block shares the block's quantizer. It must not
    # clip again: the highest level would count as clipped, and pass its gradient to α.
    shared: dict[str, PACT] = {}
    for each in entries:
        alike = [
            activations[name]
            for name in each.readers
            if bits[name].activations == policy.activations
            and found.layers[name].is_signed == each.is_signed
        ]
        shared[each.block] = (
            alike[0] if alike else pact(each.block, policy.activations, each.is_signed)
        )
    # Warnings may be errors: warn before changing the model.
    _warn(target, found, policy)
    for name, quantizer in weights.items():
        attach_weight_quantizer(target.get_submodule(name), quantizer)
    for name, quantizer in activations.items():
        is_shared = any(quantizer is each for each in shared.values())
        attach_input_quantizer(target.get_submodule(name), quantizer, is_applied=not is_shared)
    for block, quantizer in shared.items():
        attach_input_quantizer(target.get_submodule(block), quantizer)
    return target


def _warn(model: nn.Module, found: LayerTrace, policy: Policy) -> None:
    left = [
        f"{name or 'the model'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if name not in found.layers and _has_matrices(module)
    ]
    if left:
        warnings.warn(
            f"not quantized: {_listed(left)}; only convolutions and linear layers that run as"
            " separate modules are quantized",
            UserWarning,
            stacklevel=3,
        )
    if found.unreachable and _takes_shortcuts(policy):
        warnings.warn(
            f"shortcuts not quantized: in {_listed(found.unreachable)}; they do not start at the"
            " only argument of their module",
            UserWarning,
            stacklevel=3,
        )


def _takes_shortcuts(policy: Policy) -> bool:
    return policy.shortcut == "low" and policy.activations != FLOAT_BITS


def check_model(model: object, policy: object) -> None:
    """Check that model and policy are valid, and the model not quantized."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(policy, Policy):
        raise InputError(f"policy: expected a roofline.quantization.Policy, got {policy!r}")
    kind = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"{kind} is scripted; quantize the original module")
    known = [*quantized_layers(model), *entry_quantizers(model)]
    if known:
        raise InputError(f"{kind} is already quantized ('{known[0]}'); use the float model")
    for name, module in model.named_modules():
        if is_compiled(module):
            raise InputError(f"{kind} is compiled; call torch.compile after quantization")
        where = type(module).__module__
        if where.startswith(_TORCHS) and any(each in where for each in _QUANTIZED):
            raise InputError(
                f"{kind} is already quantized: '{name}' is torch's {type(module).__name__};"
                " use the float model"
            )
        if any(is_lazy(each) for each in module.parameters(recurse=False)):
            raise InputError(f"'{name}' of {kind} has no weights yet; run the model once first")


def _layer_name(name: str) -> str:
    return f"layer '{name}'" if name else "the model"


def _check_layer(layer: nn.Module, words: str) -> None:
    """Check that the weights of a layer have a scale, and are parameters."""
    weight: Any = layer.weight
    if parametrize.is_parametrized(layer):
        raise InputError(
            f"{words} is already parametrized (such as by weight norm); use"
            " torch.nn.utils.parametrize.remove_parametrizations first"
        )
    if not isinstance(weight, nn.Parameter):
        raise InputError(
            f"{words}: the weight is computed before each call; only parameters can be quantized"
        )
    if weight.is_meta:
        raise InputError(f"{words} has no values (meta device); load its weights")
    if weight.is_inference():
        raise InputError(f"{words} was created in inference mode; create the model outside of it")
    try:
        check_weight(weight)
    except InputError as error:
        raise InputError(f"{words}: {error}") from None
    _check_room(layer, words)


def _check_room(module: nn.Module, words: str) -> None:
    if hasattr(module, "input_quantizer"):
        raise InputError(f"{words} already has an attribute 'input_quantizer'; rename it")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    return ", ".join(each or "the model itself" for each in names[:_NAMED_MOST]) + more


def _has_matrices(module: nn.Module) -> bool:
    """Return whether a module has weights for matrix products or look-ups."""
    if "Norm" in type(module).__name__ or isinstance(module, parametrize.ParametrizationList):
        return False
    return isinstance(module, LAYERS) or any(
        sum(size > 1 for size in each.shape) > 1 for each in module.parameters(recurse=False)
    )
