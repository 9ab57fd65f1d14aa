"""Layers ranked by what they suffer from few bits, and bits for each of them under a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from roofline.errors import InputError
from roofline.foundation.progress import Progress, silent
from roofline.foundation.rows import sum_known
from roofline.foundation.units import format_bytes, format_s
from roofline.pipeline.quantization_errors import OutputErrors
from roofline.pipeline.quantization_requests import Budget
from roofline.pipeline.workloads import Workload
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import (
    LayerSensitivity,
    LayerWhatIf,
    Proposal,
    Sensitivity,
    Side,
    WhatIf,
)
from roofline.quantization.sensitivity import (
    Option,
    candidates_of,
    cheapest,
    chosen,
    proposed_policy,
    ranked,
)
from roofline.workload.runs import Run

Ask = Callable[[Policy], WhatIf]
"""Gives the what-if of a policy."""

Basis = Literal["prediction", "bound"]

Places = Mapping[str, Sequence[LayerWhatIf]]
"""By the qualified name of a module, each time that it runs."""

_TRIES = 8
"""Costs of layers add up but for what lies between them: so often the budget is changed."""


def places_of(what_if: WhatIf) -> Places:
    """The layers of a what-if by their modules, in the order of their first runs."""
    found: dict[str, list[LayerWhatIf]] = {}
    for each in what_if.layers:
        found.setdefault(each.layer.name.partition("#")[0], []).append(each)
    return found


def side_s(side: Side, basis: Basis) -> float | None:
    """Seconds of a layer; None where nobody knows them."""
    if basis == "bound":
        return side.eager_min_time_s
    return None if side.time is None else side.time.s


def whole_s(what_if: WhatIf, basis: Basis) -> float | None:
    """Seconds of the whole pass in few bits; None where nobody knows them."""
    if basis == "bound":
        return what_if.eager_min_time_after_s
    return None if what_if.after is None else what_if.after.s


def check_budget(budget: Budget, what_if: WhatIf, basis: Basis) -> None:
    """Refuses a budget of time where none is known, before minutes go into errors of layers.

    Raises:
        InputError: says so.
    """
    if budget.time_s is not None and whole_s(what_if, basis) is None:
        raise _no_time("the whole pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What bits are chosen by, and from.

    ``asked`` is the what-if of the policy that was asked for, ``errors`` what each layer does to
    the outputs on its own, ``candidates`` the widths that each may have.
    """

    asked: WhatIf
    ask: Ask
    budget: Budget
    basis: Basis
    errors: Mapping[tuple[str, LayerBits], float]
    candidates: Mapping[str, Sequence[LayerBits]]

    @property
    def words(self) -> str:
        """``"a model of 1.00 MB"``, or a pass of so long, with what that is."""
        if self.budget.size_bytes is not None:
            return f"a model of {format_bytes(self.budget.size_bytes)}"
        what = "predicted" if self.basis == "prediction" else "by bounds"
        return f"a pass of {format_s(self.budget.time_s)}, {what}"

    def made(self) -> tuple[Policy, WhatIf, bool]:
        """The policy, what it comes to, and whether that keeps to the budget.

        Raises:
            InputError: the budget is a time, and none is known of a layer.
        """
        options = self._options()
        limit = self._limit
        most = limit - self._rest()
        least_harm = math.inf
        best: tuple[Policy, WhatIf] | None = None
        for _ in range(_TRIES):
            found = chosen(options, most)
            if found is None:
                break
            policy, then = self._of(found)
            over = self._cost(then) - limit
            harm = math.fsum(each.harm for each in found.values())
            if over <= 0 and harm < least_harm:
                least_harm, best = harm, (policy, then)
            if not least_harm:
                break
            # What the costs of layers do not tell: too much is taken back, what is left is given.
            most -= over
        if best is not None:
            return *best, True
        policy, then = self._of(cheapest(options))
        return policy, then, self._cost(then) <= limit

    @property
    def _limit(self) -> float:
        given = (self.budget.size_bytes, self.budget.time_s)
        return next(float(each) for each in given if each is not None)

    def _of(self, found: Mapping[str, Option]) -> tuple[Policy, WhatIf]:
        modules = [
            replace(each.layer, name=name)
            for name, places in places_of(self.asked).items()
            for each in places
        ]
        bits = {name: option.bits for name, option in found.items()}
        policy = proposed_policy(self.asked.policy, modules, bits)
        return policy, self.ask(policy)

    def _options(self) -> Mapping[str, Sequence[Option]]:
        """Each layer in all of its widths, with what it would need of the budget."""
        widths = dict.fromkeys(bits for each in self.candidates.values() for bits in each)
        then = {bits: places_of(self.ask(self._all_in(bits))) for bits in widths}
        options: dict[str, list[Option]] = {}
        for name, every in self.candidates.items():
            options[name] = []
            for bits in every:
                cost = self._layer_cost(then[bits][name])
                if cost is not None:
                    error = 0.0 if bits.is_float else self.errors[name, bits]
                    options[name].append(Option(bits=bits, error=error, cost=cost))
            if not options[name]:
                raise _no_time(f"layer '{name}'")
        return options

    def _all_in(self, bits: LayerBits) -> Policy:
        """The policy in which every layer that may have these bits has them."""
        named = {name: bits for name, each in self.candidates.items() if bits in each}
        return replace(self.asked.policy, layers={**self.asked.policy.layers, **named})

    def _rest(self) -> float:
        """What the model needs beside its layers: bytes, or seconds."""
        whole = self._cost(self.asked)
        of_layers = sum_known([self._layer_cost(each) for each in places_of(self.asked).values()])
        if of_layers is None:
            raise _no_time("one of the layers")
        return whole - of_layers

    def _layer_cost(self, places: Sequence[LayerWhatIf]) -> float | None:
        if self.budget.size_bytes is not None:
            # However often it runs, a model keeps a layer's weights once.
            return float(places[0].after.weight_bytes)
        return sum_known([side_s(each.after, self.basis) for each in places])

    def _cost(self, what_if: WhatIf) -> float:
        if self.budget.size_bytes is not None:
            return float(what_if.model_bytes_after)
        whole = whole_s(what_if, self.basis)
        if whole is None:
            raise _no_time("the whole pass")
        return whole


def _no_time(what: str) -> InputError:
    return InputError(
        f"--time-budget: no time is known of {what} on this machine; give a --size-budget"
    )


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
        unranked=_left(places, errors.layers),
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
            model_bytes=then.model_bytes_after,
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
        saved_bytes=sum(each.before.traffic_bytes - each.after.traffic_bytes for each in places),
    )


def _has_times(what_if: WhatIf) -> bool:
    whole = what_if.before is not None and what_if.after is not None
    sides = [side for each in what_if.layers for side in (each.before, each.after)]
    return whole and all(side.time is not None for side in sides)
