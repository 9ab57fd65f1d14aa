"""Makes a quantized model of any module: PACT on what layers read, SAWB on their weights."""

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
    put_input_quantizer,
    put_weight_quantizer,
    quantized_entrances,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT, check_weight, weight_quantizer
from roofline.quantization.tracing import Traced, traced
from roofline.workload.capture.module_stack import is_compiled

_TORCHS = ("torch.ao.nn.", "torch.ao.quantization.", "torch.nn.quantized", "torchao.")
_QUANTISED = ("quantized", "qat", "fake_quantize")

DECAY = 1e-2
"""Of each α: without it, an α above all that a layer reads would never come down."""

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
    """A model whose layers compute with quantized weights and activations, ready to be trained.

    Each layer stays the user's own module, in its place, with its float weights: they are quantized
    whenever it runs, and what it reads is clipped at a learned α and quantized. A layer that runs
    several times has the most bits of its places. What identity shortcuts carry is quantized where
    the policy says ``shortcut="low"``. What stays in floats although the policy says otherwise is
    named in a warning.

    Args:
        model: any module; it stays as it was unless `inplace`.
        policy: which layers get how many bits.
        inputs: what it is called with, as `roofline.analyze` takes it: then its layers and
            shortcuts are those of a recorded pass. None: those that torch.fx finds in its code.
        inplace: changes `model` itself, and returns it.
        decay: the L2 term on each α.

    Raises:
        ModelError: its layers cannot be found.
        InputError: it is quantized already, has no layers, or one that cannot be quantized, or the
            policy names layers that it has not.
    """
    check_model(model, policy)
    found = traced(model, inputs)
    for name in policy.layers:
        if name not in found.layers:
            raise InputError(
                f"policy: {name!r} is no layer that can be quantized"
                f"{did_you_mean(name, found.layers)}"
            )
    if not found.layers:
        raise InputError(
            f"{type(model).__name__} has no convolution or linear layer with weights of its own;"
            " there is nothing to quantize"
        )
    entrances = found.entrances if _takes_shortcuts(policy) else ()
    bits = {name: each.bits(name, policy) for name, each in found.layers.items()}
    for name, each in bits.items():
        if not each.is_float:
            _check_layer(model.get_submodule(name), _words(name))
    for each in entrances:
        _check_room(model.get_submodule(each.block), f"module '{each.block}'")
    target = model
    if not inplace:
        try:
            target = copy.deepcopy(model)
        # What a model holds may raise anything when it is copied.
        except Exception as error:
            raise ModelError(
                f"{type(model).__name__} cannot be copied ({error_text(error)}); give inplace=True"
            ) from error

    def pact(name: str, width: int, is_signed: bool) -> PACT:
        module = target.get_submodule(name)
        like = next(each for each in module.parameters() if each.is_floating_point())
        made = PACT(width, decay=decay, signed=is_signed)
        made.name = name
        return made.to(device=like.device, dtype=like.dtype).train(module.training)

    # All quantizers are made before anything is changed.
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
    # A layer that reads what its block does, in as many bits, shares the block's. What comes is on
    # the grid then, and the layer must not clip it again: the highest level would count as clipped,
    # and take its gradient to α.
    shared: dict[str, PACT] = {}
    for each in entrances:
        alike = [
            activations[name]
            for name in each.readers
            if bits[name].activations == policy.activations
            and found.layers[name].is_signed == each.is_signed
        ]
        shared[each.block] = (
            alike[0] if alike else pact(each.block, policy.activations, each.is_signed)
        )
    # A warning may be an error to its user, who then has the model as it was.
    _warn(target, found, policy)
    for name, quantizer in weights.items():
        put_weight_quantizer(target.get_submodule(name), quantizer)
    for name, quantizer in activations.items():
        is_shared = any(quantizer is each for each in shared.values())
        put_input_quantizer(target.get_submodule(name), quantizer, is_applied=not is_shared)
    for block, quantizer in shared.items():
        put_input_quantizer(target.get_submodule(block), quantizer)
    return target


def _warn(model: nn.Module, found: Traced, policy: Policy) -> None:
    """Warns of what keeps its floats although the policy does not say so."""
    left = [
        f"{name or 'the model'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if name not in found.layers and _has_matrices(module)
    ]
    if left:
        warnings.warn(
            f"left in floats: {_listed(left)}; only convolutions and linear layers that run as"
            " modules of their own are quantized",
            UserWarning,
            stacklevel=3,
        )
    if found.unreachable and _takes_shortcuts(policy):
        warnings.warn(
            f"shortcuts left in floats: in {_listed(found.unreachable)}; what they carry is not the"
            " one argument of the module that has all of the way around",
            UserWarning,
            stacklevel=3,
        )


def _takes_shortcuts(policy: Policy) -> bool:
    return policy.shortcut == "low" and policy.activations != FLOAT_BITS


def check_model(model: object, policy: object) -> None:
    """Refuses what is no float model, or no policy."""
    if not isinstance(model, nn.Module):
        raise InputError(f"quantize_model takes a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(policy, Policy):
        raise InputError(f"policy: expected a roofline.quantization.Policy, got {policy!r}")
    kind = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"{kind} is scripted; quantize the module that it was made of")
    known = [*quantized_layers(model), *quantized_entrances(model)]
    if known:
        raise InputError(
            f"{kind} is quantized already ('{known[0]}' is); quantize the float model of it"
        )
    for name, module in model.named_modules():
        if is_compiled(module):
            raise InputError(f"{kind} is compiled; quantize it first, then call torch.compile")
        where = type(module).__module__
        if where.startswith(_TORCHS) and any(each in where for each in _QUANTISED):
            raise InputError(
                f"{kind} is quantized already: '{name}' is torch's {type(module).__name__};"
                " quantize the float model it was made of"
            )
        if any(is_lazy(each) for each in module.parameters(recurse=False)):
            raise InputError(
                f"'{name}' of {kind} has no weights yet; run the model once, then quantize it"
            )


def _words(name: str) -> str:
    return f"layer '{name}'" if name else "the model, a layer itself,"


def _check_layer(layer: nn.Module, words: str) -> None:
    """Refuses a layer whose weights have no scale, or are not its own."""
    weight: Any = layer.weight
    if parametrize.is_parametrized(layer):
        raise InputError(
            f"{words} is parametrized already (as weight norm does); make that final with"
            " torch.nn.utils.parametrize.remove_parametrizations"
        )
    if not isinstance(weight, nn.Parameter):
        raise InputError(
            f"{words}: its weight is computed before each call; quantize a model whose weights are"
            " parameters"
        )
    if weight.is_meta:
        raise InputError(f"{words} has no values (it lies on the meta device); load its weights")
    if weight.is_inference():
        raise InputError(f"{words} was made in inference mode; make the model outside of it")
    try:
        check_weight(weight)
    except InputError as error:
        raise InputError(f"{words}: {error}") from None
    _check_room(layer, words)


def _check_room(module: nn.Module, words: str) -> None:
    if hasattr(module, "input_quantizer"):
        raise InputError(f"{words} has an attribute 'input_quantizer' of its own; rename that")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    return ", ".join(each or "the model itself" for each in names[:_NAMED_MOST]) + more


def _has_matrices(module: nn.Module) -> bool:
    """Whether it has weights of its own that products or look-ups take."""
    if "Norm" in type(module).__name__ or isinstance(module, parametrize.ParametrizationList):
        return False
    return isinstance(module, LAYERS) or any(
        sum(size > 1 for size in each.shape) > 1 for each in module.parameters(recurse=False)
    )
