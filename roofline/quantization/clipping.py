"""Trained values: α set by what layers really read, checkpoints, groups for an optimizer."""

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
    BITS_NOTED,
    HOW_NOTED,
    quantized_entrances,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT
from roofline.workload.inputs import InputRequest, Inputs

_ORIGINAL = ".parametrizations.weight.original"
_ALPHA = "input_quantizer.alpha"
_NESTED = ("state_dict", "model_state_dict", "model")


def load_quantized(model: nn.Module, state_dict: Mapping[str, Any]) -> None:
    """Loads what ``state_dict()`` of the same quantized model gave; what does not fit is refused.

    How it was quantized is compared, too, where the state dict has torch's metadata: as it was
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
            f"{type(model).__name__} is not quantized; call quantize_model with the policy of the"
            " checkpoint, then load it"
        )
    given: Any = state_dict
    if not isinstance(given, Mapping):
        raise InputError(
            f"checkpoint: expected a state dict, got {type(given).__name__}; torch.load gives one"
        )
    expected: Any = model.state_dict()
    nested = next((key for key in _NESTED if isinstance(given.get(key), Mapping)), None)
    if nested is not None and nested not in expected:
        raise InputError(f"checkpoint: the state dict is its entry '{nested}'; give that")
    missing = next((name for name in expected if name not in given), None)
    if missing is not None:
        raise InputError(f"checkpoint: '{missing}' is missing{_why(missing, given)}")
    extra = next((name for name in given if name not in expected), None)
    if extra is not None:
        raise InputError(f"checkpoint: {extra!r} is no part of the model; was another policy used?")
    _check_bits(expected._metadata, getattr(given, "_metadata", None) or {})
    for name, own in expected.items():
        if isinstance(own, torch.Tensor):
            _check_entry(name, own, given[name])
    model.load_state_dict(state_dict)


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


def _check_bits(expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Compares what metadata say of bits and scales: the tensors of all are alike."""

    def words(bits: Any) -> str:
        weights, activations = bits
        return LayerBits(weights=weights, activations=activations).words

    for name, of_own in expected.items():
        of_given = given.get(name, {})
        own, other = of_own.get(BITS_NOTED), of_given.get(BITS_NOTED)
        if own is not None and other is not None and list(own) != list(other):
            raise InputError(
                f"checkpoint: '{name}' is {words(other)} there and {words(own)} in the model;"
                " quantize with the same policy"
            )
        theirs = of_given.get(HOW_NOTED, {})
        for what, how in of_own.get(HOW_NOTED, {}).items():
            if theirs.get(what, how) != how:
                raise InputError(
                    f"checkpoint: '{name}': {what} {theirs[what]} there, {how} in the model;"
                    " quantize with the same policy"
                )


def _check_entry(name: str, own: torch.Tensor, given: Any) -> None:
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


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a model for an optimizer: none of α or of norms is decayed.

    α has a decay of its own (`quantize_model`); with that of the optimizer it would have two.

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
"""Of what is read, the part that ``percentile`` does not clip."""

_MOST_KEPT = 2**17

_PER_OCTAVE = 8
_OCTAVES = 16
_FINER = 3
_STEPS = 8
"""``mse`` tries values α eight to the factor of two, then three times as many between the best's
neighbors."""


def calibrate_clipping(
    model: nn.Module, batches: Iterable[Any], *, method: Method = "mse"
) -> Mapping[str, float]:
    """Sets every α of a quantized model by what its layers read; weights are quantized meanwhile.

    The model runs in inference, with activations as they come. ``mse`` takes the α with the least
    mean squared error after clipping and rounding, ``percentile`` the one that clips one value of a
    thousand, ``max`` the largest magnitude. The first two look at no more than 2^17 values of a
    layer, evenly over all batches.

    Args:
        model: what `quantize_model` gave; but for α it stays as it was.
        batches: what the model is called with: tensors, `Inputs`, mappings of arguments, or
            sequences of them, of which it gets as many as its forward takes, so that the labels of
            a data loader may stay. A tensor alone is one batch.
        method: how α is chosen.

    Returns:
        Each α, by the name of its layer or block. Where nothing above zero came, α is what it was,
        with a warning.

    Raises:
        InputError: no batches, no quantized activations, or a layer that reads NaN or infinity.
        ModelError: the model does not take a batch.
    """
    if method not in get_args(Method):
        raise InputError(f"method={method!r}: choose {', '.join(get_args(Method))}")
    # Quantizers of activations with the names of those who have them; some are shared.
    names: dict[PACT, list[str]] = {}
    for name, layer in quantized_layers(model).items():
        if layer.input_quantizer is not None:
            names.setdefault(layer.input_quantizer, []).append(name)
    for name, quantizer in quantized_entrances(model).items():
        names.setdefault(quantizer, []).append(name)
    if not names:
        raise InputError(
            f"{type(model).__name__} has no quantized activations to calibrate; quantize_model"
            " makes some"
        )
    seen = {pact: _Seen(each[0]) for pact, each in names.items()}
    _run_all(model, batches, seen)
    silent = [names[pact][0] or "the model" for pact, each in seen.items() if not each.largest]
    if silent:
        warnings.warn(
            f"nothing above zero came to {', '.join(silent)}: α stays as it was",
            UserWarning,
            stacklevel=2,
        )
    for pact, each in seen.items():
        if each.largest:
            _put(pact, _chosen(method, pact, each))
    return {name: float(pact.alpha.detach()) for pact, each in names.items() for name in each}


# -- looking ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """What a layer read: its largest magnitude, and values at even distances over all batches."""

    name: str
    largest: float = 0.0
    count: int = 0
    stride: int = 1
    kept: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    def add(self, values: torch.Tensor, *, is_signed: bool) -> None:
        """Looks at what comes; NaN or infinity is an InputError."""
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
            # Those at multiples of the stride were kept; every other is at one of twice the stride.
            self.kept = [torch.cat(self.kept)[::2].clone()]
            self.stride *= 2


def _run_all(model: nn.Module, batches: Iterable[Any], seen: Mapping[PACT, _Seen]) -> None:
    if isinstance(batches, torch.Tensor):
        batches = [batches]
    if not isinstance(batches, Iterable):
        shown = cut(printable(repr(batches)))
        raise InputError(f"batches: expected tensors, one after another, got {shown}")
    count = 0
    with _watched(model, seen), torch.no_grad():
        for batch in batches:
            args, kwargs = _arguments(model, batch)
            try:
                model(*args, **kwargs)
            except RooflineError:
                raise
            # A model may raise anything.
            except Exception as error:
                raise ModelError(
                    f"{type(model).__name__} does not take batch {count}: {error_text(error)}"
                ) from error
            count += 1
    if not count:
        raise InputError("batches: there are none; give at least one")


@contextlib.contextmanager
def _watched(model: nn.Module, seen: Mapping[PACT, _Seen]) -> Iterator[None]:
    """The model in inference, its activations looked at and passed on as they come.

    Quantizers do not run: one whose α is none, as training can leave it, gets one here, too.
    """
    modes = [(module, module.training) for module in model.modules()]

    def looking(pact: PACT, each: _Seen) -> Callable[[torch.Tensor], torch.Tensor]:
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
            # As many as its forward takes by position.
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
        raise InputError("batches: a shape has no values to calibrate on; give tensors")
    return request.like


# -- choosing --------------------------------------------------------------------------------------


def _chosen(method: Method, pact: PACT, seen: _Seen) -> float:
    if method == "max":
        return seen.largest
    values = torch.cat(seen.kept)
    if method == "percentile":
        magnitude = values.abs() if pact.signed else values.clamp(min=0)
        rank = max(1, round(_SHARE * magnitude.numel()))
        return float(magnitude.kthvalue(rank).values) or seen.largest
    # In more than its own type may hold: half precision has no α below 6e-8.
    trial = copy.deepcopy(pact).double().eval()

    def error(alpha: float) -> float:
        _put(trial, alpha)
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


def _put(pact: PACT, alpha: float) -> None:
    """Gives a quantizer another α, or the nearest that its type has; what was is forgotten."""
    limits = torch.finfo(pact.alpha.dtype)
    held = min(max(alpha, limits.tiny), limits.max)
    pact.load_state_dict({"alpha": torch.tensor(held, dtype=torch.float64)})
