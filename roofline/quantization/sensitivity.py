"""Which layers suffer most from few bits, and bits for each of them under a budget.

Errors of single layers come from outside; what is here only weighs them. Independent errors add up
in squares, so that a choice of bits is held to do as much harm as the sum of its squared errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal, NamedTuple

from roofline.core.units import format_bytes, format_s, sum_known
from roofline.errors import InputError, argument
from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Place, Policy
from roofline.quantization.result import LayerSensitivity, LayerWhatIf, Side, WhatIf

CANDIDATES = (2, 3, 4, 8, FLOAT_BITS)
"""The widths that a proposal chooses from."""

Basis = Literal["prediction", "bound"]

Ask = Callable[[Policy], WhatIf]
"""Gives the what-if of a policy."""

Places = Mapping[str, Sequence[LayerWhatIf]]
"""By the qualified name of a module, each time that it runs."""

_MOST_WAYS = 2000

_TRIES = 8
"""Costs of layers add up but for what lies between them: so often the budget is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a proposed policy may need at most: bytes of a file, or seconds of a pass."""

    size_bytes: int | None = None
    time_s: float | None = None


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


def ranked(layers: Iterable[LayerSensitivity]) -> tuple[LayerSensitivity, ...]:
    """Layers by their error for what they save, the worst bargain last.

    What is saved is time; bytes where no time is known of any. Layers that save nothing come last,
    by their error.
    """
    every = tuple(layers)
    in_byte = all(each.saved_s is None for each in every)

    def place(each: LayerSensitivity) -> tuple[bool, float]:
        saved = each.saved_bytes if in_byte else each.saved_s
        if saved is None or saved <= 0:
            return True, each.error
        return False, each.error / saved

    return tuple(sorted(every, key=place))


def candidates_of(layer: Layer, asked: Policy) -> tuple[LayerBits, ...]:
    """The widths that a layer may have in a proposal.

    What a policy says of a layer by name is not up for choice, nor are shortcuts that it keeps in
    floats; first and last layers have at least the bits that it gives them, and may have just them.
    Where it leaves all weights or all activations in floats, so does a proposal.
    """
    if layer.name in asked.layers or (layer.place == "shortcut" and asked.shortcut == "full"):
        return (asked.bits_of(layer.name, layer.place),)
    least = CANDIDATES[0]
    if layer.place in ("first", "last"):
        least = max(least, asked.first_last)
    keeps_weights = asked.weights == FLOAT_BITS != asked.activations
    keeps_activations = asked.activations == FLOAT_BITS != asked.weights
    return tuple(
        LayerBits(
            weights=FLOAT_BITS if keeps_weights else bits,
            activations=FLOAT_BITS if keeps_activations else bits,
        )
        for bits in sorted({least, *CANDIDATES})
        if bits >= least
    )


# -- one option for each layer ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One layer in so many bits: its error on its own, and what it costs of the budget.

    ``error`` is the relative L2 error of the model's outputs; ``cost`` is in bytes of weights or in
    seconds, as the budget is.
    """

    bits: LayerBits
    error: float
    cost: float

    @property
    def harm(self) -> float:
        """The squared error."""
        return self.error**2


class _Way(NamedTuple):
    """Options of the layers so far."""

    cost: float
    harm: float
    taken: tuple[Option, ...]


def chosen(options: Mapping[str, Sequence[Option]], most: float) -> dict[str, Option] | None:
    """One option for each layer, with the least harm in sum, that keep to a budget together; None
    where even the cheapest cost more.

    Layer by layer, all combinations are followed that no other one beats in both, cost and harm.
    Where these are thousands, only so many go on, evenly from the cheapest to the most accurate,
    and the result may be a little above the least harm.
    """
    least = [min(option.cost for option in each) for each in options.values()]
    ways = [_Way(0.0, 0.0, ())]
    for place, each in enumerate(options.values()):
        rest = math.fsum(least[place + 1 :])
        longer = (
            _Way(way.cost + option.cost, way.harm + option.harm, (*way.taken, option))
            for way in ways
            for option in each
        )
        # Those that no other one beats, from the cheapest to the least harmful.
        ways = []
        for way in sorted((way for way in longer if way.cost + rest <= most), key=itemgetter(0, 1)):
            if not ways or way.harm < ways[-1].harm:
                ways.append(way)
        if len(ways) > _MOST_WAYS:
            last = len(ways) - 1
            ways = [ways[round(each * last / (_MOST_WAYS - 1))] for each in range(_MOST_WAYS)]
    if not ways:
        return None
    # Of those that nothing beats, the dearest does the least harm.
    found = dict(zip(options, ways[-1].taken, strict=True))
    while True:
        # Thinning may have left something of the budget.
        cost = math.fsum(each.cost for each in found.values())
        better = [
            (found[name].harm - option.harm, name, option)
            for name, each in options.items()
            for option in each
            if option.harm < found[name].harm and cost - found[name].cost + option.cost <= most
        ]
        if not better:
            return found
        _, name, option = max(better, key=lambda each: each[0])
        found = {**found, name: option}


def cheapest(options: Mapping[str, Sequence[Option]]) -> dict[str, Option]:
    """The option of each layer that costs least; of several that with the least harm."""
    return {
        name: min(each, key=lambda option: (option.cost, option.harm))
        for name, each in options.items()
    }


def proposed_policy(
    asked: Policy, layers: Iterable[Layer], bits: Mapping[str, LayerBits]
) -> Policy:
    """A policy that gives each layer its bits: the most frequent as rule, the others by name."""
    places: dict[str, list[Place]] = {}
    for each in layers:
        places.setdefault(each.name, []).append(each.place)
    wanted = {name: bits.get(name, asked.bits_of(name, found[0])) for name, found in places.items()}
    inner = [wanted[name] for name, found in places.items() if "inner" in found]
    usual = Counter(inner or wanted.values()).most_common(1)[0][0]
    rule = replace(asked, weights=usual.weights, activations=usual.activations, layers={})
    exceptions = {
        name: each
        for name, each in wanted.items()
        if any(rule.bits_of(name, place) != each for place in places[name])
    }
    return replace(rule, layers=exceptions)


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
        """The policy, what it comes to, and whether that keeps to the budget."""
        options = self._options()
        given = (self.budget.size_bytes, self.budget.time_s)
        limit = next(float(each) for each in given if each is not None)
        # What the model needs beside its layers: bytes, or seconds.
        of_layers = sum_known(self._layer_cost(each) for each in places_of(self.asked).values())
        if of_layers is None:
            raise no_time("one of the layers")
        most = limit - (self._cost(self.asked) - of_layers)
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
        policy = self.asked.policy
        then: dict[LayerBits, Places] = {}
        for bits in dict.fromkeys(bits for each in self.candidates.values() for bits in each):
            # Every layer that may have these bits has them.
            named = {name: bits for name, each in self.candidates.items() if bits in each}
            then[bits] = places_of(self.ask(replace(policy, layers={**policy.layers, **named})))
        options: dict[str, list[Option]] = {}
        for name, every in self.candidates.items():
            options[name] = []
            for bits in every:
                cost = self._layer_cost(then[bits][name])
                if cost is not None:
                    error = 0.0 if bits.is_float else self.errors[name, bits]
                    options[name].append(Option(bits=bits, error=error, cost=cost))
            if not options[name]:
                raise no_time(f"layer '{name}'")
        return options

    def _layer_cost(self, places: Sequence[LayerWhatIf]) -> float | None:
        if self.budget.size_bytes is not None:
            # However often it runs, a model keeps a layer's weights once.
            return float(places[0].after.weight_bytes)
        return sum_known(side_s(each.after, self.basis) for each in places)

    def _cost(self, what_if: WhatIf) -> float:
        if self.budget.size_bytes is not None:
            return float(what_if.model_bytes_after)
        whole = whole_s(what_if, self.basis)
        if whole is None:
            raise no_time("the whole pass")
        return whole


def no_time(what: str) -> InputError:
    """The error for a budget of time where none is known."""
    return InputError(
        f"{argument('time_budget')}: no time is known of {what} on this machine; give"
        f" {argument('size_budget')}"
    )
