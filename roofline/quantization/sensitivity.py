"""Which layers suffer most from few bits, and bits for each of them under a budget.

Errors of single layers come from outside; what is here only weighs them. Independent errors add up
in squares, so that a choice of bits is held to do as much harm as the sum of its squared errors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Place, Policy
from roofline.quantization.result import LayerSensitivity

CANDIDATES = (2, 3, 4, 8, FLOAT_BITS)
"""The widths that a proposal chooses from."""

_MOST_WAYS = 2000


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
    widths = sorted({least, *CANDIDATES})
    return tuple(_in_width(bits, asked) for bits in widths if bits >= least)


def _in_width(bits: int, asked: Policy) -> LayerBits:
    """Weights and activations in so many bits; what a policy leaves in floats stays there."""
    is_one = (asked.weights == FLOAT_BITS) != (asked.activations == FLOAT_BITS)
    return LayerBits(
        weights=FLOAT_BITS if is_one and asked.weights == FLOAT_BITS else bits,
        activations=FLOAT_BITS if is_one and asked.activations == FLOAT_BITS else bits,
    )


def chosen(options: Mapping[str, Sequence[Option]], most: float) -> dict[str, Option] | None:
    """One option for each layer, with the least harm in sum, that keep to a budget together.

    Layer by layer, all combinations are followed that no other one beats in both, cost and harm.
    Where these are thousands, only so many go on, evenly from the cheapest to the most accurate,
    and the result may be a little above the least harm.

    Args:
        options: those of each layer by its name; at least one each.

    Returns:
        None where even the cheapest options cost more.
    """
    least = [min(option.cost for option in each) for each in options.values()]
    ways = [_Way(cost=0.0, harm=0.0)]
    for place, each in enumerate(options.values()):
        rest = math.fsum(least[place + 1 :])
        longer = (way.along(option) for way in ways for option in each)
        ways = _thinned(_unbeaten(way for way in longer if way.cost + rest <= most))
    if not ways:
        return None
    # Of those that nothing beats, the dearest does the least harm.
    found = dict(zip(options, reversed(tuple(ways[-1].taken())), strict=True))
    return _with_what_fits(found, options, most)


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
class _Way:
    """Options of the layers so far: the last one, and the way there."""

    cost: float
    harm: float
    last: Option | None = None
    before: _Way | None = None

    def along(self, option: Option) -> _Way:
        """One layer farther."""
        return _Way(
            cost=self.cost + option.cost, harm=self.harm + option.harm, last=option, before=self
        )

    def taken(self) -> Iterator[Option]:
        """Its options, from the last layer to the first."""
        way: _Way | None = self
        while way is not None and way.last is not None:
            yield way.last
            way = way.before


def _unbeaten(ways: Iterable[_Way]) -> list[_Way]:
    """Those that no other one beats in cost and harm, from the cheapest to the least harmful."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda each: (each.cost, each.harm)):
        if not found or way.harm < found[-1].harm:
            found.append(way)
    return found


def _thinned(ways: Sequence[_Way]) -> list[_Way]:
    """No more than so many, with the first and the last."""
    if len(ways) <= _MOST_WAYS:
        return list(ways)
    last = len(ways) - 1
    return [ways[round(place * last / (_MOST_WAYS - 1))] for place in range(_MOST_WAYS)]


def _with_what_fits(
    found: dict[str, Option], options: Mapping[str, Sequence[Option]], most: float
) -> dict[str, Option]:
    """The same with less harm, where thinning left something of the budget."""
    while True:
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
