"""Layer sensitivity to quantization, and bits per layer under a budget.

The errors of single layers are inputs. Independent errors add up in squares: a choice of bits is
rated by the sum of squared errors.
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
"""Bit widths available to a proposal."""

Basis = Literal["prediction", "bound"]

EvaluatePolicy = Callable[[Policy], WhatIf]
"""Return the what-if of a policy."""

LayersByModule = Mapping[str, Sequence[LayerWhatIf]]
"""All runs of a layer, by qualified module name."""

_MOST_PLANS = 2000

_TRIES = 8
"""Maximum number of budget corrections; costs of layers are not exactly additive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of a proposed policy: model size in bytes, or forward pass in seconds."""

    size_bytes: int | None = None
    time_s: float | None = None


def layers_by_module(what_if: WhatIf) -> LayersByModule:
    """Return the layers of a what-if by module, in order of their first runs."""
    found: dict[str, list[LayerWhatIf]] = {}
    for each in what_if.layers:
        found.setdefault(each.layer.name.partition("#")[0], []).append(each)
    return found


def layer_time_s(side: Side, basis: Basis) -> float | None:
    if basis == "bound":
        return side.eager_min_time_s
    return None if side.time is None else side.time.s


def pass_time_s(what_if: WhatIf, basis: Basis) -> float | None:
    if basis == "bound":
        return what_if.eager_min_time_after_s
    return None if what_if.after is None else what_if.after.s


def rank_layers(layers: Iterable[LayerSensitivity]) -> tuple[LayerSensitivity, ...]:
    """Return layers by error per saving, highest last.

    The saving is time, or bytes if no times are known. Layers without saving come last, by error.
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
    """Return the bit widths that a layer may have in a proposal.

    Layers named in the policy, and shortcuts in full precision, are fixed. First and last layers
    have at least the bits of the policy. If the policy keeps all weights or all activations in
    floats, so does the proposal.
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
    """Bit width of a layer, with its own output error and its cost.

    ``error`` is the relative L2 error of the model outputs. ``cost`` is in bytes of weights, or in
    seconds, depending on the budget.
    """

    bits: LayerBits
    error: float
    cost: float

    @property
    def squared_error(self) -> float:
        return self.error**2


class _Plan(NamedTuple):
    """Options of the layers so far."""

    cost: float
    squared_error: float
    taken: tuple[Option, ...]


def choose_options(
    options: Mapping[str, Sequence[Option]], most: float
) -> dict[str, Option] | None:
    """Return one option per layer with minimum summed squared error within a budget; None:
    impossible.

    Layer by layer, all Pareto-optimal choices of cost and error are kept. Beyond a few
    thousand, they are sampled evenly, and the result may be slightly above the minimum.
    """
    least = [min(option.cost for option in each) for each in options.values()]
    plans = [_Plan(0.0, 0.0, ())]
    for place, each in enumerate(options.values()):
        rest = math.fsum(least[place + 1 :])
        longer = (
            _Plan(
                plan.cost + option.cost,
                plan.squared_error + option.squared_error,
                (*plan.taken, option),
            )
            for plan in plans
            for option in each
        )
        # Pareto front, from the cheapest to the most accurate.
        plans = []
        for plan in sorted(
            (plan for plan in longer if plan.cost + rest <= most),
            key=itemgetter(0, 1),
        ):
            if not plans or plan.squared_error < plans[-1].squared_error:
                plans.append(plan)
        if len(plans) > _MOST_PLANS:
            last = len(plans) - 1
            plans = [plans[round(each * last / (_MOST_PLANS - 1))] for each in range(_MOST_PLANS)]
    if not plans:
        return None
    # On the Pareto front, the most expensive one has the smallest error.
    found = dict(zip(options, plans[-1].taken, strict=True))
    while True:
        # Use budget left over by sampling.
        cost = math.fsum(each.cost for each in found.values())
        better = [
            (found[name].squared_error - option.squared_error, name, option)
            for name, each in options.items()
            for option in each
            if option.squared_error < found[name].squared_error
            and cost - found[name].cost + option.cost <= most
        ]
        if not better:
            return found
        _, name, option = max(better, key=lambda each: each[0])
        found = {**found, name: option}


def cheapest_options(options: Mapping[str, Sequence[Option]]) -> dict[str, Option]:
    return {
        name: min(each, key=lambda option: (option.cost, option.squared_error))
        for name, each in options.items()
    }


def proposed_policy(
    asked: Policy, layers: Iterable[Layer], bits: Mapping[str, LayerBits]
) -> Policy:
    """Return a policy that assigns these bits: the most frequent as default, others by name."""
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
class PolicySearch:
    """Search of bits per layer.

    Attributes:
        asked: what-if of the given policy.
        errors: output error of each layer quantized alone.
        candidates: available bit widths of each layer.
    """

    asked: WhatIf
    evaluate: EvaluatePolicy
    budget: Budget
    basis: Basis
    errors: Mapping[tuple[str, LayerBits], float]
    candidates: Mapping[str, Sequence[LayerBits]]

    @property
    def words(self) -> str:
        """Budget as text: ``"a model of 1.00 MB"``, or a forward pass with the kind of its time."""
        if self.budget.size_bytes is not None:
            return f"a model of {format_bytes(self.budget.size_bytes)}"
        kind = "predicted" if self.basis == "prediction" else "minimum"
        return f"a forward pass of {format_s(self.budget.time_s)} ({kind} time)"

    def made(self) -> tuple[Policy, WhatIf, bool]:
        """Return the policy, its what-if, and whether it is within the budget."""
        options = self._options()
        given = (self.budget.size_bytes, self.budget.time_s)
        limit = next(float(each) for each in given if each is not None)
        # Subtract the cost of everything but the layers.
        of_layers = sum_known(
            self._layer_cost(each) for each in layers_by_module(self.asked).values()
        )
        if of_layers is None:
            raise unknown_time_error("one of the layers")
        most = limit - (self._cost(self.asked) - of_layers)
        least_error = math.inf
        best: tuple[Policy, WhatIf] | None = None
        for _ in range(_TRIES):
            found = choose_options(options, most)
            if found is None:
                break
            policy, then = self._of(found)
            over = self._cost(then) - limit
            squared_error = math.fsum(each.squared_error for each in found.values())
            if over <= 0 and squared_error < least_error:
                least_error, best = squared_error, (policy, then)
            if not least_error:
                break
            # Correct for non-additive costs.
            most -= over
        if best is not None:
            return *best, True
        policy, then = self._of(cheapest_options(options))
        return policy, then, self._cost(then) <= limit

    def _of(self, found: Mapping[str, Option]) -> tuple[Policy, WhatIf]:
        modules = [
            replace(each.layer, name=name)
            for name, places in layers_by_module(self.asked).items()
            for each in places
        ]
        bits = {name: option.bits for name, option in found.items()}
        policy = proposed_policy(self.asked.policy, modules, bits)
        return policy, self.evaluate(policy)

    def _options(self) -> Mapping[str, Sequence[Option]]:
        policy = self.asked.policy
        then: dict[LayerBits, LayersByModule] = {}
        for bits in dict.fromkeys(bits for each in self.candidates.values() for bits in each):
            # Assign these bits to all layers that allow them.
            named = {name: bits for name, each in self.candidates.items() if bits in each}
            then[bits] = layers_by_module(
                self.evaluate(replace(policy, layers={**policy.layers, **named}))
            )
        options: dict[str, list[Option]] = {}
        for name, every in self.candidates.items():
            options[name] = []
            for bits in every:
                cost = self._layer_cost(then[bits][name])
                if cost is not None:
                    error = 0.0 if bits.is_float else self.errors[name, bits]
                    options[name].append(Option(bits=bits, error=error, cost=cost))
            if not options[name]:
                raise unknown_time_error(f"layer '{name}'")
        return options

    def _layer_cost(self, places: Sequence[LayerWhatIf]) -> float | None:
        if self.budget.size_bytes is not None:
            # Weights are stored once, however often the layer runs.
            return float(places[0].after.weight_bytes)
        return sum_known(layer_time_s(each.after, self.basis) for each in places)

    def _cost(self, what_if: WhatIf) -> float:
        if self.budget.size_bytes is not None:
            return float(what_if.model_bytes_after)
        whole = pass_time_s(what_if, self.basis)
        if whole is None:
            raise unknown_time_error("the whole pass")
        return whole


def unknown_time_error(what: str) -> InputError:
    """Return the error for a time budget without known times."""
    return InputError(
        f"{argument('time_budget')}: unknown time of {what} on this machine; use"
        f" {argument('size_budget')}"
    )
