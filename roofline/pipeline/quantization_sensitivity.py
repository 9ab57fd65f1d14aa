"""Ranking of layers by their sensitivity to quantization, and bits per layer under a budget."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.core.progress import Progress, silent
from roofline.core.text import printable
from roofline.core.units import format_shape, sum_known
from roofline.errors import InputError, ModelError, RooflineError, argument, error_text
from roofline.pipeline.runs import Workload, example_arguments, fixed_seed
from roofline.pipeline.timing import materialize_model
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import LayerSensitivity, Proposal, Sensitivity, WhatIf
from roofline.quantization.sensitivity import (
    Basis,
    Budget,
    EvaluatePolicy,
    PolicySearch,
    candidates_of,
    layer_time_s,
    layers_by_module,
    pass_time_s,
    rank_layers,
    unknown_time_error,
)

if TYPE_CHECKING:
    import torch

    from roofline.quantization.quantizers import PACT
    from roofline.workload.inputs import InputRequest, Inputs

_FLOATS = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)
_FLOAT_POLICY = Policy(weights=FLOAT_BITS, activations=FLOAT_BITS, first_last=FLOAT_BITS)

_REPEATED = 1e-4
"""Relative error up to which outputs count as equal: the order of sums may vary."""

_PART_OF_ERRORS = 0.95
"""Fraction of the progress for errors."""


def measure_sensitivity(
    asked: Workload,
    what_if: WhatIf,
    *,
    evaluate: EvaluatePolicy,
    samples: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Quantize one layer at a time, and return output errors and savings."""
    tell = progress or silent
    sides = [side for each in what_if.layers for side in (each.before, each.after)]
    is_timed = what_if.before is not None and what_if.after is not None
    is_timed = is_timed and all(side.time is not None for side in sides)
    basis: Basis = "prediction" if is_timed else "bound"
    if budget is not None and budget.time_s is not None and pass_time_s(what_if, basis) is None:
        # Fail before the errors are computed, which takes minutes.
        raise unknown_time_error("the whole pass")
    tell(0.0, f"running {asked.name}")
    errors = OutputErrors(asked, samples, per_channel=what_if.policy.per_channel)
    places = layers_by_module(what_if)
    # The most bits of a module's places, as in `quantize_model`.
    own = {
        name: LayerBits(
            weights=max(each.bits.weights for each in runs),
            activations=max(each.bits.activations for each in runs),
        )
        for name, runs in places.items()
    }
    own = {name: bits for name, bits in own.items() if not bits.is_float}
    candidates: dict[str, tuple[LayerBits, ...]] = {}
    for name, runs in places.items() if budget is not None else ():
        # Bits allowed in all runs of a layer; floats if it cannot be quantized in place.
        first, *others = (
            candidates_of(replace(each.layer, name=name), what_if.policy) for each in runs
        )
        everywhere = tuple(each for each in first if all(each in other for other in others))
        candidates[name] = everywhere if name in errors.layers else (_FLOATS,)
    tried = {
        name: [
            bits
            for bits in dict.fromkeys((own.get(name, _FLOATS), *candidates.get(name, ())))
            if not bits.is_float
        ]
        for name in places
        if name in errors.layers
    }
    found = errors.layer_errors(
        {name: each for name, each in tried.items() if each},
        lambda part, what: tell(_PART_OF_ERRORS * part, what),
    )
    layers: list[LayerSensitivity] = []
    for name, bits in own.items():
        if name not in errors.layers:
            continue
        runs = places[name]
        before = sum_known(layer_time_s(each.before, basis) for each in runs)
        after = sum_known(layer_time_s(each.after, basis) for each in runs)
        layers.append(
            LayerSensitivity(
                name=name,
                bits=bits,
                error=found[name, bits],
                saved_s=None if before is None or after is None else before - after,
                saved_bytes=sum(
                    each.before.traffic_bytes - each.after.traffic_bytes for each in runs
                ),
            )
        )
    result = Sensitivity(
        layers=rank_layers(layers),
        basis=basis,
        inputs=errors.inputs,
        weights="the model's own" if asked.source.rebuild is None else "as it is built",
        unranked=tuple(
            f"layer '{name}': unknown error, it does not run as a separate module"
            for name in own
            if name not in errors.layers
        ),
    )
    if budget is None:
        return result
    tell(_PART_OF_ERRORS, "choosing bits for each layer")
    search = PolicySearch(
        asked=what_if,
        evaluate=evaluate,
        budget=budget,
        basis=basis,
        errors=found,
        candidates=candidates,
    )
    policy, then, is_within = search.made()
    tell(_PART_OF_ERRORS, "running the proposed policy")
    proposal = Proposal(
        policy=policy,
        budget=search.words,
        is_within=is_within,
        model_bytes=then.model_bytes_after,
        time_s=pass_time_s(then, basis),
        error=errors.policy_error(policy),
    )
    return replace(result, proposal=proposal)


class OutputErrors:
    """Copy of a model in inference, and its reference outputs.

    ``inputs`` describes the inputs, ``layers`` are the names of layers that can be quantized in
    place. Clipping values are calibrated on the same inputs: errors are those without training.
    """

    def __init__(self, asked: Workload, samples: Any, *, per_channel: bool) -> None:
        self._name = asked.name
        self._per_channel = per_channel
        with fixed_seed():
            # A model built here has random weights.
            built = materialize_model(asked)
        self._model = _copied(built, asked)
        given, self.inputs = _resolve_samples(asked, samples)
        self._batch = example_arguments(given, asked.run)
        self._reference = self._outputs(self._model)
        if not self._reference or not all(bool(each.isfinite().all()) for each in self._reference):
            raise ModelError(
                f"{self._name}: {argument('sensitivity', True)} requires"
                " floating-point outputs without NaN or infinity, but the model has none for its"
                " inputs; use others with samples="
            )
        if self._error(self._outputs(self._model), "a second pass") > _REPEATED:
            raise ModelError(
                f"{self._name}: {argument('sensitivity', True)} requires deterministic outputs, but"
                " a second run differs; make the model deterministic"
            )
        self.layers = frozenset(
            self._clippings(replace(_FLOAT_POLICY, activations=8, first_last=8, shortcut="low"))
        )

    def layer_errors(
        self, wanted: Mapping[str, Sequence[LayerBits]], progress: Progress
    ) -> dict[tuple[str, LayerBits], float]:
        """Return the relative L2 error of the outputs for each layer quantized alone."""
        found: dict[tuple[str, LayerBits], float] = {}
        calls = sum(map(len, wanted.values()))
        for place in range(max(map(len, wanted.values()), default=0)):
            here = {name: each[place] for name, each in wanted.items() if place < len(each)}
            activations = {name: replace(each, weights=FLOAT_BITS) for name, each in here.items()}
            clippings = self._clippings(replace(_FLOAT_POLICY, layers=activations))
            for name, bits in here.items():
                progress(len(found) / calls, f"quantizing {name or self._name} to {bits.words}")
                layer, clipping = self._model.get_submodule(name), clippings.get(name)
                with _quantized_layer(layer, bits.weights, clipping, per_channel=self._per_channel):
                    outputs = self._outputs(self._model)
                    found[name, bits] = self._error(outputs, f"layer '{name}' in {bits.words}")
        return found

    def policy_error(self, policy: Policy) -> float:
        """Return the relative L2 error of the outputs with a whole policy."""
        known = {name: bits for name, bits in policy.layers.items() if name in self.layers}
        model = self._calibrated(replace(policy, layers=known))
        return self._error(self._outputs(model), "the proposed policy")

    def _clippings(self, policy: Policy) -> Mapping[str, PACT]:
        """Return the activation quantizers of layers, calibrated on float inputs."""
        from roofline.quantization import quantized_layers

        layers = quantized_layers(self._calibrated(policy))
        return {
            name: each.input_quantizer
            for name, each in layers.items()
            if each.input_quantizer is not None
        }

    def _calibrated(self, policy: Policy) -> torch.nn.Module:
        from roofline.quantization import PACT, calibrate_clipping, quantize_model
        from roofline.workload.inputs import Inputs

        args, kwargs = self._batch
        given = Inputs(*args, **kwargs)
        with fixed_seed(), warnings.catch_warnings():
            # The what-if reports unquantized layers; layers that read zeros have no error.
            warnings.simplefilter("ignore")
            model = quantize_model(self._model, policy, given)
            if any(isinstance(each, PACT) for each in model.modules()):
                calibrate_clipping(model, [given])
        return model

    def _outputs(self, model: torch.nn.Module) -> list[torch.Tensor]:
        import torch
        from torch.utils import _pytree as pytree

        args, kwargs = self._batch
        with fixed_seed(), torch.no_grad():
            try:
                result = model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except RooflineError:
                raise
            # User code may raise anything.
            except Exception as error:
                raise ModelError(
                    f"{self._name} raised {type(error).__name__} in its forward pass:"
                    f" {printable(error_text(error)[:200])}"
                ) from error
        return [
            each.detach().to(torch.float64)
            for each in pytree.tree_leaves(result)
            if isinstance(each, torch.Tensor) and each.is_floating_point() and each.numel()
        ]

    def _error(self, outputs: Sequence[torch.Tensor], what: str) -> float:
        if [each.shape for each in outputs] != [each.shape for each in self._reference]:
            raise ModelError(
                f"{self._name}: {what} changes the number or sizes of outputs, which"
                f" {argument('sensitivity', True)} cannot compare; use a part of the model"
            )
        pairs = list(zip(self._reference, outputs, strict=True))
        lost = math.fsum(float((one - two).square().sum()) for one, two in pairs)
        whole = math.fsum(float(one.square().sum()) for one, _ in pairs)
        if not math.isfinite(lost):
            raise ModelError(f"{self._name}: {what} leads to NaN or infinite outputs")
        if not lost:
            return 0.0
        if not whole:
            raise ModelError(
                f"{self._name}: all outputs are zero, so relative errors are undefined; use other"
                " inputs with samples="
            )
        return math.sqrt(lost / whole)


def _resolve_samples(asked: Workload, samples: Any) -> tuple[Inputs, str]:
    """Return the inputs of a model and their description: ``"random numbers of 4x3x8x8"``."""
    from roofline.workload.inputs import to_inputs

    given = asked.given if samples is None else to_inputs(samples)
    if given is None:
        raise InputError("samples: none given; give tensors, as inputs of the model")
    requests = [request for _, request in given.requests()]
    if not requests:
        return given, "no tensors"
    tensors = "the given inputs" if samples is None else "given samples"
    kinds = dict.fromkeys(_input_kind(each, tensors) for each in requests)
    shapes = ", ".join(format_shape(each.shape) for each in requests)
    return given, f"{' and '.join(kinds)} of {shapes}"


def _input_kind(request: InputRequest, tensors: str) -> str:
    """Return the kind of an input: given tensors, random numbers, or constants."""
    import torch

    from roofline.workload.torch_dtypes import input_dtype

    if request.like is not None and tuple(request.like.shape) == request.shape:
        return tensors
    kind = input_dtype(request, None)
    if kind.is_floating_point or kind.is_complex:
        return "random numbers"
    return "ones" if kind == torch.bool else "zeros"


@contextmanager
def _quantized_layer(
    layer: torch.nn.Module, bits: int, clipping: PACT | None, *, per_channel: bool
) -> Iterator[None]:
    """Quantize a layer temporarily, as `quantize_model` does."""
    from torch import nn

    from roofline.quantization.quantized_modules import TRANSPOSED, quantize_input
    from roofline.quantization.quantizers import weight_quantizer

    weight = layer._parameters["weight"]
    hook = None
    try:
        if bits != FLOAT_BITS and weight is not None:
            axis = 1 if isinstance(layer, TRANSPOSED) else 0
            quantizer = weight_quantizer(bits, per_channel=per_channel, axis=axis)
            layer._parameters["weight"] = nn.Parameter(quantizer(weight).detach())
        if clipping is not None:
            layer.add_module("input_quantizer", clipping)
            hook = layer.register_forward_pre_hook(quantize_input, with_kwargs=True)
        yield
    finally:
        layer._parameters["weight"] = weight
        if hook is not None:
            hook.remove()
            del layer._modules["input_quantizer"]


def _copied(model: torch.nn.Module, asked: Workload) -> torch.nn.Module:
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        made = copy.deepcopy(model).eval()
    # Locks, generators and non-leaf tensors cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{asked.name} cannot be copied for {argument('sensitivity', True)}:"
            f" {type(error).__name__}: {printable(error_text(error)[:200])}"
        ) from error
    return made.to(torch_dtype(asked.run.dtype)) if asked.run.dtype else made
