"""Calibration of clipping values, checkpoints, and optimizer parameter groups."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import nn

from roofline.core.files import cut
from roofline.core.text import printable
from roofline.errors import InputError, ModelError, RooflineError, error_text
from roofline.quantization.policy import LayerBits
from roofline.quantization.quantized_modules import (
    BITS_KEY,
    SETTINGS_KEY,
    entry_quantizers,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT
from roofline.workload.inputs import InputRequest, Inputs

_ORIGINAL = ".parametrizations.weight.original"
_ALPHA = "input_quantizer.alpha"
_NESTED = ("state_dict", "model_state_dict", "model")


def load_quantized(model: nn.Module, state_dict: Mapping[str, Any]) -> None:
    """Load the ``state_dict()`` of the same quantized model, with checks.

    Quantizer settings are also compared if the state dict has torch's metadata (original, or from
    ``torch.load``).

    Args:
        model: result of `quantize_model`; stays unchanged on errors.
        state_dict: all of its entries, and no others.

    Raises:
        InputError: a missing, unknown or mismatched entry, NaN, or α not above 0.
    """
    if not quantized_layers(model) and not entry_quantizers(model):
        raise InputError(
            f"{type(model).__name__} is not quantized; call quantize_model with the policy of the"
            " checkpoint first"
        )
    given: Any = state_dict
    if not isinstance(given, Mapping):
        raise InputError(
            f"checkpoint: expected a state dict, got {type(given).__name__}; use torch.load"
        )
    expected: Any = model.state_dict()
    nested = next((key for key in _NESTED if isinstance(given.get(key), Mapping)), None)
    if nested is not None and nested not in expected:
        raise InputError(f"checkpoint: the state dict is its entry '{nested}'; use that")
    missing = next((name for name in expected if name not in given), None)
    if missing is not None:
        raise InputError(f"checkpoint: '{missing}' is missing{_why(missing, given)}")
    extra = next((name for name in given if name not in expected), None)
    if extra is not None:
        raise InputError(f"checkpoint: {extra!r} is not in the model; check the policy")
    _check_bits(expected._metadata, getattr(given, "_metadata", None) or {})
    for name, own in expected.items():
        if isinstance(own, torch.Tensor):
            _check_entry(name, own, given[name])
    model.load_state_dict(state_dict)


def _why(missing: str, given: Mapping[str, Any]) -> str:
    if f"module.{missing}" in given:
        return ": all names begin with 'module.' (of DataParallel); remove it"
    layer = missing.removesuffix(_ORIGINAL)
    if layer != missing and f"{layer}.weight" in given:
        return (
            f", but '{layer}.weight' exists: the checkpoint has float weights there; load it"
            " before quantize_model, or use its policy"
        )
    return "; check policy and model"


def _check_bits(expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Compare bits and scales in the metadata; tensors do not depend on them."""

    def words(bits: Any) -> str:
        weights, activations = bits
        return LayerBits(weights=weights, activations=activations).words

    for name, of_own in expected.items():
        of_given = given.get(name, {})
        own, other = of_own.get(BITS_KEY), of_given.get(BITS_KEY)
        if own is not None and other is not None and list(own) != list(other):
            raise InputError(
                f"checkpoint: '{name}' is {words(other)}, but {words(own)} in the model;"
                " quantize with the same policy"
            )
        theirs = of_given.get(SETTINGS_KEY, {})
        for what, how in of_own.get(SETTINGS_KEY, {}).items():
            if theirs.get(what, how) != how:
                raise InputError(
                    f"checkpoint: '{name}': {what} {theirs[what]}, but {how} in the model;"
                    " quantize with the same policy"
                )


def _check_entry(name: str, own: torch.Tensor, given: Any) -> None:
    if not isinstance(given, torch.Tensor):
        raise InputError(f"checkpoint: '{name}': expected a tensor, got {type(given).__name__}")
    if own.shape != given.shape:
        raise InputError(
            f"checkpoint: '{name}': expected shape {tuple(own.shape)}, got {tuple(given.shape)}"
        )
    if own.is_floating_point() != given.is_floating_point():
        kinds = [str(each.dtype).removeprefix("torch.") for each in (given, own)]
        raise InputError(f"checkpoint: '{name}': expected {kinds[1]}, got {kinds[0]}")
    if not own.is_floating_point():
        return
    if not bool(torch.isfinite(given).all()):
        raise InputError(f"checkpoint: '{name}' has NaN or infinity; use an earlier checkpoint")
    if name.endswith(_ALPHA) and not bool((given > 0).all()):
        raise InputError(
            f"checkpoint: '{name}' is {float(given):g}; a clipping value must be above 0"
        )


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters of a model for an optimizer, without weight decay of α and norms.

    α has its own decay (`quantize_model`).

    ::

        torch.optim.SGD(parameter_groups(model, weight_decay=1e-4), lr=0.1, momentum=0.9)

    Args:
        model: any module.
        weight_decay: of all other parameters.
    """
    spared = {
        id(each)
        for module in model.modules()
        if isinstance(module, PACT) or "Norm" in type(module).__name__
        for each in module.parameters(recurse=False)
    }
    every = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {
            "params": [each for each in every if id(each) not in spared],
            "weight_decay": weight_decay,
        },
        {"params": [each for each in every if id(each) in spared], "weight_decay": 0.0},
    ]
    return [each for each in groups if each["params"]]


Method = Literal["mse", "percentile", "max"]

_SHARE = 0.999
"""Fraction of values that ``percentile`` does not clip."""

_MOST_KEPT = 2**17

_PER_OCTAVE = 8
_OCTAVES = 16
_FINER = 3
_STEPS = 8
"""Refinement of ``mse``: eight values of α per factor of two, then finer steps around the best
one, three times.
"""


def calibrate_clipping(
    model: nn.Module, batches: Iterable[Any], *, method: Method = "mse"
) -> Mapping[str, float]:
    """Set every α of a quantized model from the inputs of its layers, with quantized weights.

    The model runs in inference, with unquantized activations. ``mse`` selects the α of minimum mean
    squared error after clipping and rounding, ``percentile`` the one that clips one value in a
    thousand, ``max`` the largest magnitude. The first two sample at most 2^17 values per layer,
    evenly over all batches.

    Args:
        model: result of `quantize_model`; only α changes.
        batches: inputs of the model: tensors, `Inputs`, mappings of arguments, or sequences of
            them. Excess elements of a sequence, such as the labels of a data loader, are dropped. A
            single tensor is one batch.
        method: selection of α.

    Returns:
        Each α, by layer or block name. Without values above zero, α stays unchanged, with a
        warning.

    Raises:
        InputError: no batches, no quantized activations, or a layer that reads NaN or infinity.
        ModelError: the model rejects a batch.
    """
    if method not in get_args(Method):
        raise InputError(f"method={method!r}: choose {', '.join(get_args(Method))}")
    # Activation quantizers with the names of their layers; some are shared.
    names: dict[PACT, list[str]] = {}
    for name, layer in quantized_layers(model).items():
        if layer.input_quantizer is not None:
            names.setdefault(layer.input_quantizer, []).append(name)
    for name, quantizer in entry_quantizers(model).items():
        names.setdefault(quantizer, []).append(name)
    if not names:
        raise InputError(
            f"{type(model).__name__} has no quantized activations to calibrate; use"
            " quantize_model first"
        )
    seen = {pact: _ObservedValues(each[0]) for pact, each in names.items()}
    _run_batches(model, batches, seen)
    silent = [names[pact][0] or "the model" for pact, each in seen.items() if not each.largest]
    if silent:
        warnings.warn(
            f"no input above zero in {', '.join(silent)}: α unchanged",
            UserWarning,
            stacklevel=2,
        )
    for pact, each in seen.items():
        if each.largest:
            _set_alpha(pact, _choose_alpha(method, pact, each))
    return {name: float(pact.alpha.detach()) for pact, each in names.items() for name in each}


# -- observation -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _ObservedValues:
    """Inputs of a layer: largest magnitude, and evenly sampled values over all batches."""

    name: str
    largest: float = 0.0
    count: int = 0
    stride: int = 1
    kept: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    def add(self, values: torch.Tensor, *, is_signed: bool) -> None:
        """Add values; raise an InputError for NaN or infinity."""
        flat = values.detach().flatten().to(torch.float64)
        if not bool(torch.isfinite(flat).all()):
            where = f"layer '{self.name}'" if self.name else "the model"
            raise InputError(f"{where} reads NaN or infinity; check the batches and the weights")
        if not flat.numel():
            return
        largest = flat.abs().max() if is_signed else flat.max()
        self.largest = max(self.largest, float(largest))
        self.kept.append(flat[-self.count % self.stride :: self.stride].clone())
        self.count += flat.numel()
        while sum(each.numel() for each in self.kept) > _MOST_KEPT:
            # Double the stride by dropping every other value.
            self.kept = [torch.cat(self.kept)[::2].clone()]
            self.stride *= 2


def _run_batches(
    model: nn.Module, batches: Iterable[Any], seen: Mapping[PACT, _ObservedValues]
) -> None:
    if isinstance(batches, torch.Tensor):
        batches = [batches]
    if not isinstance(batches, Iterable):
        shown = cut(printable(repr(batches)))
        raise InputError(f"batches: expected a sequence of tensors, got {shown}")
    count = 0
    with _observe(model, seen), torch.no_grad():
        for batch in batches:
            args, kwargs = _arguments(model, batch)
            try:
                model(*args, **kwargs)
            except RooflineError:
                raise
            # A model may raise anything.
            except Exception as error:
                raise ModelError(
                    f"{type(model).__name__} rejects batch {count}: {error_text(error)}"
                ) from error
            count += 1
    if not count:
        raise InputError("batches: none given; give at least one")


@contextlib.contextmanager
def _observe(model: nn.Module, seen: Mapping[PACT, _ObservedValues]) -> Iterator[None]:
    """Observe activations of a model in inference, and pass them on unchanged.

    Quantizers do not run, so that an invalid α can be replaced.
    """
    modes = [(module, module.training) for module in model.modules()]

    def looking(pact: PACT, each: _ObservedValues) -> Callable[[torch.Tensor], torch.Tensor]:
        def look(x: torch.Tensor) -> torch.Tensor:
            each.add(x, is_signed=pact.signed)
            return x

        return look

    for pact, each in seen.items():
        vars(pact)["forward"] = looking(pact, each)
    try:
        model.eval()
        yield
    finally:
        for pact in seen:
            del vars(pact)["forward"]
        for module, is_training in modes:
            module.training = is_training


def _arguments(model: nn.Module, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match batch:
        case torch.Tensor():
            return (batch,), {}
        case Inputs():
            return batch.build(_tensor)
        case Mapping():
            return (), {str(name): value for name, value in batch.items()}
        case Sequence() if not isinstance(batch, str):
            # Drop arguments beyond the positional ones of forward.
            parameters = inspect.signature(model.forward).parameters.values()
            if any(each.kind is each.VAR_POSITIONAL for each in parameters):
                return tuple(batch), {}
            positional = [
                each
                for each in parameters
                if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
            ]
            return tuple(batch)[: len(positional)], {}
        case _:
            raise InputError(
                "batches: expected tensors, Inputs, mappings of arguments or sequences of them,"
                f" got {cut(printable(repr(batch)))}"
            )


def _tensor(request: InputRequest) -> torch.Tensor:
    if request.like is None:
        raise InputError("batches: shapes contain no values; give tensors")
    return request.like


# -- selection of α --------------------------------------------------------------------------------


def _choose_alpha(method: Method, pact: PACT, seen: _ObservedValues) -> float:
    if method == "max":
        return seen.largest
    values = torch.cat(seen.kept)
    if method == "percentile":
        magnitude = values.abs() if pact.signed else values.clamp(min=0)
        rank = max(1, round(_SHARE * magnitude.numel()))
        return float(magnitude.kthvalue(rank).values) or seen.largest
    # In float64: half precision has no α below 6e-8.
    trial = copy.deepcopy(pact).double().eval()

    def error(alpha: float) -> float:
        _set_alpha(trial, alpha)
        with torch.no_grad():
            return float((trial(values) - values).square().mean())

    tried = [seen.largest * 2 ** (-each / _PER_OCTAVE) for each in range(_OCTAVES * _PER_OCTAVE)]
    best = min(tried, key=error)
    ratio = 2 ** (1 / _PER_OCTAVE)
    for _ in range(_FINER):
        around = [best * ratio ** (each / _STEPS) for each in range(-_STEPS, _STEPS + 1)]
        best = min(around, key=error)
        ratio **= 1 / _STEPS
    return best


def _set_alpha(pact: PACT, alpha: float) -> None:
    """Set α of a quantizer to the nearest value of its data type, and clear its history."""
    limits = torch.finfo(pact.alpha.dtype)
    held = min(max(alpha, limits.tiny), limits.max)
    pact.load_state_dict({"alpha": torch.tensor(held, dtype=torch.float64)})
