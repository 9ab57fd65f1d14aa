"""Layers ranked by what they suffer from few bits, and bits for each of them under a budget."""

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
    Ask,
    Basis,
    Budget,
    Search,
    candidates_of,
    no_time,
    places_of,
    ranked,
    side_s,
    whole_s,
)

if TYPE_CHECKING:
    import torch

    from roofline.quantization.quantizers import PACT
    from roofline.workload.inputs import InputRequest, Inputs

_FLOATS = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)
_FLOAT_POLICY = Policy(weights=FLOAT_BITS, activations=FLOAT_BITS, first_last=FLOAT_BITS)

_REPEATED = 1e-4
"""The relative error up to which outputs are the same: sums need not be in the same order."""

_PART_OF_ERRORS = 0.95
"""Of all the time, for progress."""


def sensitivity_of(
    asked: Workload,
    what_if: WhatIf,
    *,
    ask: Ask,
    samples: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Quantizes one layer at a time: what that does to the outputs, and what it saves."""
    tell = progress or silent
    sides = [side for each in what_if.layers for side in (each.before, each.after)]
    is_timed = what_if.before is not None and what_if.after is not None
    is_timed = is_timed and all(side.time is not None for side in sides)
    basis: Basis = "prediction" if is_timed else "bound"
    if budget is not None and budget.time_s is not None and whole_s(what_if, basis) is None:
        # Before minutes go into errors of layers.
        raise no_time("the whole pass")
    tell(0.0, f"running {asked.name}")
    errors = OutputErrors(asked, samples, per_channel=what_if.policy.per_channel)
    places = places_of(what_if)
    # The most bits of its places, as `quantize_model` gives a module.
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
        # What a layer may have wherever it runs; floats for what cannot be quantized where it is.
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
    found = errors.of_each(
        {name: each for name, each in tried.items() if each},
        lambda part, what: tell(_PART_OF_ERRORS * part, what),
    )
    layers: list[LayerSensitivity] = []
    for name, bits in own.items():
        if name not in errors.layers:
            continue
        runs = places[name]
        before = sum_known(side_s(each.before, basis) for each in runs)
        after = sum_known(side_s(each.after, basis) for each in runs)
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
        layers=ranked(layers),
        basis=basis,
        inputs=errors.inputs,
        weights="the model's own" if asked.source.rebuild is None else "as it is built",
        unranked=tuple(
            f"layer '{name}' does not run as a module of its own, so its error is not known"
            for name in own
            if name not in errors.layers
        ),
    )
    if budget is None:
        return result
    tell(_PART_OF_ERRORS, "choosing bits for each layer")
    search = Search(
        asked=what_if, ask=ask, budget=budget, basis=basis, errors=found, candidates=candidates
    )
    policy, then, is_within = search.made()
    tell(_PART_OF_ERRORS, "running the proposed policy")
    proposal = Proposal(
        policy=policy,
        budget=search.words,
        is_within=is_within,
        model_bytes=then.model_bytes_after,
        time_s=whole_s(then, basis),
        error=errors.of_all(policy),
    )
    return replace(result, proposal=proposal)


class OutputErrors:
    """A copy of a model with its weights, in inference, and what it gives on some inputs.

    ``inputs`` says in words what these are, ``layers`` are the qualified names of what can be
    quantized where it is. Clipping values are calibrated on the same inputs, so that an error is
    that of layers that were not trained for their bits.
    """

    def __init__(self, asked: Workload, samples: Any, *, per_channel: bool) -> None:
        self._name = asked.name
        self._per_channel = per_channel
        with fixed_seed():
            # A model that is built here has random weights.
            built = materialize_model(asked)
        self._model = _copied(built, asked)
        given, self.inputs = _samples(asked, samples)
        self._batch = example_arguments(given, asked.run)
        self._reference = self._outputs(self._model)
        if not self._reference or not all(bool(each.isfinite().all()) for each in self._reference):
            raise ModelError(
                f"{self._name}: {argument('sensitivity', True)} compares floating-point outputs,"
                " and the model gives none, or NaN or infinite ones, for its inputs; give others"
                " with samples="
            )
        if self._error(self._outputs(self._model), "a second pass") > _REPEATED:
            raise ModelError(
                f"{self._name} gives other outputs when it is called again with the same inputs, so"
                f" {argument('sensitivity', True)} cannot tell what few bits do to them; have it"
                " repeat itself"
            )
        self.layers = frozenset(
            self._clippings(replace(_FLOAT_POLICY, activations=8, first_last=8, shortcut="low"))
        )

    def of_each(
        self, wanted: Mapping[str, Sequence[LayerBits]], progress: Progress
    ) -> dict[tuple[str, LayerBits], float]:
        """The relative L2 error of the outputs with one layer alone quantized."""
        found: dict[tuple[str, LayerBits], float] = {}
        calls = sum(map(len, wanted.values()))
        for place in range(max(map(len, wanted.values()), default=0)):
            here = {name: each[place] for name, each in wanted.items() if place < len(each)}
            activations = {name: replace(each, weights=FLOAT_BITS) for name, each in here.items()}
            clippings = self._clippings(replace(_FLOAT_POLICY, layers=activations))
            for name, bits in here.items():
                progress(len(found) / calls, f"quantizing {name or self._name} to {bits.words}")
                layer, clipping = self._model.get_submodule(name), clippings.get(name)
                with _in_few_bits(layer, bits.weights, clipping, per_channel=self._per_channel):
                    outputs = self._outputs(self._model)
                    found[name, bits] = self._error(outputs, f"layer '{name}' in {bits.words}")
        return found

    def of_all(self, policy: Policy) -> float:
        """The relative L2 error of the outputs with all of a policy."""
        known = {name: bits for name, bits in policy.layers.items() if name in self.layers}
        model = self._calibrated(replace(policy, layers=known))
        return self._error(self._outputs(model), "the proposed policy")

    def _clippings(self, policy: Policy) -> Mapping[str, PACT]:
        """What quantizes the activations of each layer, calibrated on what floats give it."""
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
            # What stays in floats is in the what-if; what reads only zeros makes no error.
            warnings.simplefilter("ignore")
            model = quantize_model(self._model, policy, given)
            if any(isinstance(each, PACT) for each in model.modules()):
                calibrate_clipping(model, [given])
        return model

    def _outputs(self, model: torch.nn.Module) -> list[torch.Tensor]:
        """The floating tensors that the model gives, in float64."""
        import torch
        from torch.utils import _pytree as pytree

        args, kwargs = self._batch
        with fixed_seed(), torch.no_grad():
            try:
                result = model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except RooflineError:
                raise
            # The user's own code may raise anything.
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
                f"{self._name}: {what} changes how many outputs there are, or their sizes, so that"
                f" {argument('sensitivity', True)} cannot compare them; give a part of the model"
                " where they stay"
            )
        pairs = list(zip(self._reference, outputs, strict=True))
        lost = math.fsum(float((one - two).square().sum()) for one, two in pairs)
        whole = math.fsum(float(one.square().sum()) for one, _ in pairs)
        if not math.isfinite(lost):
            raise ModelError(f"{self._name}: {what} makes outputs that are NaN or infinite")
        if not lost:
            return 0.0
        if not whole:
            raise ModelError(
                f"{self._name} gives only zeros for its inputs, so there are no relative errors;"
                " give others with samples="
            )
        return math.sqrt(lost / whole)


def _samples(asked: Workload, samples: Any) -> tuple[Inputs, str]:
    """What a model is run on, and that in words: ``"random numbers of 4x3x8x8"``."""
    from roofline.workload.inputs import to_inputs

    given = asked.given if samples is None else to_inputs(samples)
    if given is None:
        raise InputError("samples: there are none; give tensors, as the inputs of a model")
    requests = [request for _, request in given.requests()]
    if not requests:
        return given, "no tensors"
    tensors = "the given inputs" if samples is None else "given samples"
    kinds = dict.fromkeys(_kind_words(each, tensors) for each in requests)
    shapes = ", ".join(format_shape(each.shape) for each in requests)
    return given, f"{' and '.join(kinds)} of {shapes}"


def _kind_words(request: InputRequest, tensors: str) -> str:
    """What `example_arguments` gives: a given tensor, else noise, else one number."""
    import torch

    from roofline.workload.torch_dtypes import input_dtype

    if request.like is not None and tuple(request.like.shape) == request.shape:
        return tensors
    kind = input_dtype(request, None)
    if kind.is_floating_point or kind.is_complex:
        return "random numbers"
    return "ones" if kind == torch.bool else "zeros"


@contextmanager
def _in_few_bits(
    layer: torch.nn.Module, bits: int, clipping: PACT | None, *, per_channel: bool
) -> Iterator[None]:
    """A layer as `quantize_model` would leave it, while this is open."""
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
    # Locks, generators and tensors that were computed cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{asked.name} cannot be copied, which {argument('sensitivity', True)} takes:"
            f" {type(error).__name__}: {printable(error_text(error)[:200])}"
        ) from error
    return made.to(torch_dtype(asked.run.dtype)) if asked.run.dtype else made
