"""Designs over machine balance: lowest minimum time by ridge point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import MINIMUM_TIMES
from roofline.core.units import format_intensity
from roofline.design.comparison.axes import join_words
from roofline.design.comparison.cells import SAME_BOUND, Cell
from roofline.design.comparison.sweeps import check as check_cells
from roofline.design.comparison.sweeps import span_text

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

AXIS = "balance"
_SHOWN = 4  # Known machines named in a sentence; the table has all


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMachine:
    """Known machine; its minimum times are those of its own ceilings and caches."""

    name: str
    balance: float
    has_caches: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Crossover at ``balance`` FLOP/B from design ``before`` to ``after`` (indices)."""

    balance: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Crossovers and known machines of a sweep over machine balance.

    Hypothetical machines have the compute ceilings of one machine, and one memory level whose
    bandwidth gives the balance for ``dtype``; all operands cross it. Their cells precede those of
    known ``machines``; ``left_out`` machines have no ceilings.
    """

    dtype: str
    crossings: tuple[Crossing, ...]
    machines: tuple[KnownMachine, ...]
    left_out: tuple[str, ...] = ()


def check(comparison: Comparison) -> None:
    """Raise an error unless this is a sweep over balance with known minimum times."""
    check_cells(comparison)
    assert comparison.balance is not None
    values = comparison.axes.get(AXIS, ())
    are_balances = all(isinstance(each, float) and each > 0 for each in values)
    if tuple(comparison.axes) != (AXIS,) or not are_balances:
        raise ValueError(f"the axis is {AXIS}, of numbers above 0")
    if len(comparison.hardware) != 1:
        raise ValueError("hypothetical machines derive from one machine")
    if not all(cell.eager_min_time_s for cells in comparison.cells for cell in cells):
        raise ValueError("a minimum time is unknown")
    leads = [i for each in comparison.balance.crossings for i in (each.before, each.after)]
    if not set(leads) <= set(range(len(comparison.designs))):
        raise ValueError("a crossing names an unknown design")


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancePoint:
    """Machine of a sweep over balance; hypothetical if ``machine`` is None."""

    balance: float
    machine: KnownMachine | None
    cells: tuple[Cell, ...]

    @property
    def times_s(self) -> tuple[float, ...]:
        """Eager minimum time of each design in seconds."""
        return tuple(each.eager_min_time_s or 0.0 for each in self.cells)

    @property
    def best(self) -> int | None:
        """Design with the lowest minimum time that fits into memory; None if none does."""
        able = [i for i, each in enumerate(self.cells) if each.can_run]
        return min(able, key=lambda i: (self.times_s[i], i), default=None)

    def over(self, reference: int) -> tuple[float, ...]:
        """Return minimum times over that of the reference."""
        return tuple(each / self.times_s[reference] for each in self.times_s)


def balance_points(comparison: Comparison) -> tuple[BalancePoint, ...]:
    """Return hypothetical machines, then known machines, each by balance."""
    assert comparison.balance is not None
    machines = [(each.balance, each) for each in comparison.balance.machines]
    every = [*((each, None) for each in comparison.axes[AXIS]), *machines]
    return tuple(
        BalancePoint(balance=balance, machine=machine, cells=cells)
        for (balance, machine), cells in zip(every, comparison.cells, strict=True)
    )


def winner_at(comparison: Comparison, balance: float) -> int:
    """Return the design with the lowest minimum time at a balance."""
    assert comparison.balance is not None
    found = balance_points(comparison)[0].best or 0
    for each in comparison.balance.crossings:
        if each.balance <= balance:
            found = each.after
    return found


def summary(comparison: Comparison) -> str:
    """Return the verdict: the designs, and the lowest minimum time by balance."""
    return f"{' vs '.join(comparison.names)}: {next(sentences(comparison))}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the design with the lowest minimum time by balance, and exceptions."""
    assert comparison.balance is not None
    names, every = comparison.names, balance_points(comparison)
    known = [each for each in every if each.machine]
    edges = [each.balance for each in comparison.balance.crossings]
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        inside = [
            each
            for each in every
            if (low is None or each.balance >= low) and (high is None or each.balance <= high)
        ]
        winner = winner_at(comparison, every[0].balance if low is None else low)
        there = [_name(each) for each in inside if each.machine and each.balance != high]
        machines = f" ({_some(there)})" if there else " (no known machine)"
        lines = [each.over(comparison.reference) for each in inside if not each.machine]
        others = [min(e for i, e in enumerate(each) if i != winner) for each in lines]
        # Relative to the reference, or for the reference, to the best other design.
        best = others if winner == comparison.reference else [1.0] * len(lines)
        factors = [lead / each[winner] for lead, each in zip(best, lines, strict=True)]
        by = f"{span_text(factors)} shorter" if factors else ""
        yield f"{_range_text(low, high)}, {names[winner]} has the lowest minimum time{by}{machines}"
    other = [
        _name(each)
        for each in known
        if each.best is not None
        and each.times_s[each.best] * SAME_BOUND < each.times_s[winner_at(comparison, each.balance)]
    ]
    if other:
        yield f"with all ceilings and caches, another design is lowest on {_some(other)}"
    for index, name in enumerate(names):
        large = [_name(each) for each in known if each.cells[index].fits is False]
        if large:
            yield f"{name} does not fit into memory on {_some(large)} (excluded there)"


def _some(machines: Sequence[str]) -> str:
    shown = list(machines[:_SHOWN])
    more = len(machines) - len(shown)
    return join_words([*shown, f"{more} more"] if more else shown)


def _name(place: BalancePoint) -> str:
    return place.machine.name if place.machine else ""


def _range_text(low: float | None, high: float | None) -> str:
    unit = "FLOP/B"
    if low is None:
        return "at every balance" if high is None else f"below {format_intensity(high)} {unit}"
    if high is None:
        return f"above {format_intensity(low)} {unit}"
    return f"from {format_intensity(low)} to {format_intensity(high)} {unit}"


def columns(comparison: Comparison) -> dict[str, str]:
    """Return column names with pandas' types."""
    del comparison
    return {
        "machine": "object",
        "balance_flop_per_byte": "Float64",
        "design": "object",
        **dict.fromkeys((*MINIMUM_TIMES, "over_reference"), "Float64"),
        **dict.fromkeys(("fits", "is_best"), "boolean"),
    }


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per machine and design, hypothetical machines (named None) first."""
    return [
        {
            "machine": place.machine.name if place.machine else None,
            "balance_flop_per_byte": place.balance,
            "design": comparison.designs[index],
            **{name: getattr(cell, name) for name in MINIMUM_TIMES},
            "over_reference": ratio,
            "fits": cell.fits,
            "is_best": index == place.best,
        }
        for place in balance_points(comparison)
        for index, (cell, ratio) in enumerate(
            zip(place.cells, place.over(comparison.reference), strict=True)
        )
    ]
