"""Checkpoints of quantised models: loaded whole, or refused with the first entry that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from roofline.errors import InputError
from roofline.quantization.modules.quantized_layers import (
    BITS_NOTED,
    HOW_NOTED,
    quantized_entrances,
    quantized_layers,
)
from roofline.quantization.policy import LayerBits

_ORIGINAL = ".parametrizations.weight.original"
_ALPHA = "input_quantizer.alpha"
_NESTED = ("state_dict", "model_state_dict", "model")


def load_quantized(model: nn.Module, state_dict: Mapping[str, Any]) -> None:
    """Loads what ``state_dict()`` of the same quantised model gave; what does not fit is refused.

    How it was quantised is compared, too, where the state dict has torch's metadata: as it was
    made, or as ``torch.load`` gives it back.

    Args:
        model: what `quantize_model` gave; it stays as it was where anything is refused.
        state_dict: every entry of it, and no other.

    Raises:
        InputError: naming the first entry that is missing, of another shape or not the model's;
            one with NaN, or α not above 0.
    """
    if not quantized_layers(model) and not quantized_entrances(model):
        raise InputError(
            f"{type(model).__name__} is not quantised; call quantize_model with the policy of the"
            " checkpoint, then load it"
        )
    given: Any = state_dict
    if not isinstance(given, Mapping):
        raise InputError(
            f"checkpoint: expected a state dict, got {type(given).__name__}; torch.load gives one"
        )
    expected = model.state_dict()
    _check_keys(expected, state_dict)
    _check_bits(expected, state_dict)
    for name, own in expected.items():
        _check_entry(name, own, state_dict[name])
    model.load_state_dict(state_dict)


def _check_keys(expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    nested = next((key for key in _NESTED if isinstance(given.get(key), Mapping)), None)
    if nested is not None and nested not in expected:
        raise InputError(f"checkpoint: the state dict is its entry '{nested}'; give that")
    missing = next((name for name in expected if name not in given), None)
    if missing is not None:
        raise InputError(f"checkpoint: '{missing}' is missing{_why(missing, given)}")
    extra = next((name for name in given if name not in expected), None)
    if extra is not None:
        raise InputError(f"checkpoint: {extra!r} is no part of the model; was another policy used?")


def _why(missing: str, given: Mapping[str, Any]) -> str:
    if f"module.{missing}" in given:
        return ": all names begin with 'module.' (of DataParallel); take that away"
    layer = missing.removesuffix(_ORIGINAL)
    if layer != missing and f"{layer}.weight" in given:
        return (
            f", and there is '{layer}.weight': it is of a model with float weights there; load it"
            " before quantize_model, or use its policy"
        )
    return "; was another policy or another model used?"


def _check_bits(expected: Any, given: Any) -> None:
    """Compares what metadata say of bits and scales: the tensors of all are alike."""
    of_given: Mapping[str, Any] = getattr(given, "_metadata", None) or {}
    for name, of_own in expected._metadata.items():
        own = of_own.get(BITS_NOTED)
        other = of_given.get(name, {}).get(BITS_NOTED)
        if own is not None and other is not None and list(own) != list(other):
            raise InputError(
                f"checkpoint: '{name}' is {_words(other)} there and {_words(own)} in the model;"
                " quantise with the same policy"
            )
        theirs = of_given.get(name, {}).get(HOW_NOTED, {})
        for what, how in of_own.get(HOW_NOTED, {}).items():
            if theirs.get(what, how) != how:
                raise InputError(
                    f"checkpoint: '{name}': {what} {theirs[what]} there, {how} in the model;"
                    " quantise with the same policy"
                )


def _words(bits: Any) -> str:
    weights, activations = bits
    return LayerBits(weights=weights, activations=activations).words


def _check_entry(name: str, own: Any, given: Any) -> None:
    if not isinstance(own, torch.Tensor):
        return
    if not isinstance(given, torch.Tensor):
        raise InputError(f"checkpoint: '{name}' is no tensor but {type(given).__name__}")
    if own.shape != given.shape:
        raise InputError(
            f"checkpoint: '{name}' has shape {tuple(given.shape)}, in the model {tuple(own.shape)}"
        )
    if own.is_floating_point() != given.is_floating_point():
        kinds = [str(each.dtype).removeprefix("torch.") for each in (given, own)]
        raise InputError(f"checkpoint: '{name}' is {kinds[0]}; the model's is {kinds[1]}")
    if not own.is_floating_point():
        return
    if not bool(torch.isfinite(given).all()):
        raise InputError(f"checkpoint: '{name}' has NaN or infinity; take an earlier checkpoint")
    if name.endswith(_ALPHA) and not bool((given > 0).all()):
        raise InputError(
            f"checkpoint: '{name}' is {float(given):g}; a clipping value must be above 0"
        )
