"""Layers ranked by what they suffer from few bits, and bits for each of them under a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline.foundation.progress import Progress, silent
from roofline.foundation.rows import sum_known
from roofline.pipeline.quantization_errors import OutputErrors
from roofline.pipeline.quantization_proposals import (
    Ask,
    Basis,
    Places,
    Search,
    check_budget,
    places_of,
    side_s,
    whole_s,
)
from roofline.pipeline.quantization_requests import Budget
from roofline.pipeline.workloads import Workload
from roofline.quantization.findings import LayerSensitivity, Proposal, Sensitivity
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import LayerWhatIf, WhatIf
from roofline.quantization.sensitivity import candidates_of, ranked
from roofline.workload.runs import Run

_FLOATS = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)

_PART_OF_ERRORS = 0.95
"""Of all the time, for progress."""


def sensitivity_of(
    asked: Workload,
    run: Run,
    what_if: WhatIf,
    *,
    ask: Ask,
    samples: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Quantises one layer at a time: what that does to the outputs, and what it saves.

    Args:
        asked: the model and its inputs.
        run: how it is run.
        what_if: of the policy that was asked for: its layers, and what each saves.
        ask: gives the what-if of another policy for the same pass and machine.
        samples: what outputs are compared on, as the inputs of `analyze`; None: the model's inputs.
        budget: within which bits for each layer are proposed; None: nothing is proposed.
        progress: told how far it is.

    Raises:
        ModelError: the model has no weights, cannot be copied, raises, or gives nothing that errors
            can be computed of.
        InputError: `samples` are none, a layer cannot be quantised, or no time is known that a
            budget could be held against.
    """
    tell = progress or silent
    basis: Basis = "prediction" if _has_times(what_if) else "bound"
    if budget is not None:
        check_budget(budget, what_if, basis)
    tell(0.0, f"running {asked.source.name}")
    errors = OutputErrors(asked, run, samples, per_channel=what_if.policy.per_channel)
    places = places_of(what_if)
    own = {name: _own_bits(each) for name, each in places.items() if name in errors.layers}
    own = {name: bits for name, bits in own.items() if not bits.is_float}
    candidates = {} if budget is None else _candidates(places, what_if.policy, errors.layers)
    tried = {
        name: _distinct(own.get(name), candidates.get(name, ()))
        for name in places
        if name in errors.layers
    }
    found = errors.of_each(
        {name: each for name, each in tried.items() if each},
        lambda part, what: tell(_PART_OF_ERRORS * part, what),
    )
    result = Sensitivity(
        layers=ranked(
            _row(name, bits, places[name], found[name, bits], basis) for name, bits in own.items()
        ),
        basis=basis,
        inputs=errors.inputs,
        weights="the model's own" if asked.source.rebuild is None else "as it is built",
        left=_left(places, errors.layers),
    )
    if budget is None:
        return result
    tell(_PART_OF_ERRORS, "choosing bits for each layer")
    search = Search(
        asked=what_if, ask=ask, budget=budget, basis=basis, errors=found, candidates=candidates
    )
    policy, then, is_within = search.made()
    tell(_PART_OF_ERRORS, "running the proposed policy")
    return replace(
        result,
        proposal=Proposal(
            policy=policy,
            budget=search.words,
            is_within=is_within,
            model_byte=then.model_byte_after,
            time_s=whole_s(then, basis),
            error=errors.of_all(policy),
        ),
    )


def _left(places: Places, tried: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        f"layer '{name}' does not run as a module of its own, so its error is not known"
        for name, each in places.items()
        if name not in tried and not _own_bits(each).is_float
    )


def _own_bits(places: Sequence[LayerWhatIf]) -> LayerBits:
    """The most bits of its places, as `quantize_model` gives a module."""
    return LayerBits(
        weights=max(each.bits.weights for each in places),
        activations=max(each.bits.activations for each in places),
    )


def _candidates(
    places: Places, policy: Policy, quantizable: frozenset[str]
) -> Mapping[str, tuple[LayerBits, ...]]:
    """What each layer may have; floats for what cannot be quantised where it is."""
    return {
        name: _of_all_places(name, each, policy) if name in quantizable else (_FLOATS,)
        for name, each in places.items()
    }


def _of_all_places(
    name: str, places: Sequence[LayerWhatIf], policy: Policy
) -> tuple[LayerBits, ...]:
    """What a layer may have wherever it runs."""
    first, *others = (candidates_of(replace(each.layer, name=name), policy) for each in places)
    return tuple(each for each in first if all(each in other for other in others))


def _distinct(own: LayerBits | None, others: Sequence[LayerBits]) -> tuple[LayerBits, ...]:
    """The bits that are tried, each once; floats need not be."""
    every = (*((own,) if own is not None else ()), *others)
    return tuple(dict.fromkeys(each for each in every if not each.is_float))


def _row(
    name: str, bits: LayerBits, places: Sequence[LayerWhatIf], error: float, basis: Basis
) -> LayerSensitivity:
    before, after = (
        sum_known([side_s(side, basis) for side in sides])
        for sides in ([each.before for each in places], [each.after for each in places])
    )
    return LayerSensitivity(
        name=name,
        bits=bits,
        error=error,
        saved_s=None if before is None or after is None else before - after,
        saved_byte=sum(each.before.traffic_byte - each.after.traffic_byte for each in places),
    )


def _has_times(what_if: WhatIf) -> bool:
    whole = what_if.before is not None and what_if.after is not None
    sides = [side for each in what_if.layers for side in (each.before, each.after)]
    return whole and all(side.time is not None for side in sides)
