"""Bits for each layer under a budget, held against what-ifs of the whole model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.errors import InputError
from roofline.foundation.rows import sum_known
from roofline.foundation.units import format_byte, format_s
from roofline.pipeline.quantization_requests import Budget
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import LayerWhatIf, Side, WhatIf
from roofline.quantization.sensitivity import Option, cheapest, chosen, proposed_policy

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
        return side.bound_s
    return None if side.time is None else side.time.s


def whole_s(what_if: WhatIf, basis: Basis) -> float | None:
    """Seconds of the whole pass in few bits; None where nobody knows them."""
    if basis == "bound":
        return what_if.bound_after_s
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
        if self.budget.size_byte is not None:
            return f"a model of {format_byte(self.budget.size_byte)}"
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
        given = (self.budget.size_byte, self.budget.time_s)
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
        if self.budget.size_byte is not None:
            # However often it runs, a model keeps a layer's weights once.
            return float(places[0].after.weight_byte)
        return sum_known([side_s(each.after, self.basis) for each in places])

    def _cost(self, what_if: WhatIf) -> float:
        if self.budget.size_byte is not None:
            return float(what_if.model_byte_after)
        whole = whole_s(what_if, self.basis)
        if whole is None:
            raise _no_time("the whole pass")
        return whole


def _no_time(what: str) -> InputError:
    return InputError(
        f"--time-budget: no time is known of {what} on this machine; give a --size-budget"
    )
