"""Designs over the balance of machines: which wins where FLOP are cheap, and where bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import MINIMUM_TIMES, MinTimes, fits, minimum_times_of
from roofline.design.sweeps.verdicts import SAME_BOUND, factor_text, short_names, words
from roofline.foundation.blocks import Block, View
from roofline.foundation.units import format_intensity
from roofline.machine.hardware import HardwareProfile
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMachine:
    """A machine that there is: its ``balance`` in FLOP/byte, and the bound of each design there.

    ``eager_min_time_s`` are those of its own profile, with its caches, where the profile knows
    them. ``memory_capacity_bytes`` is what its memory holds; None: not known.
    """

    name: str
    balance: float
    eager_min_time_s: tuple[float, ...]
    has_caches: bool
    memory_capacity_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """At ``balance`` FLOP/byte the lead goes ``before`` → ``after``, which are indices."""

    balance: float
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RidgeSweep(Result):
    """Bounds of designs on hypothetical machines, which differ in their balance alone.

    The compute ceilings are those of ``base`` on ``threads`` threads; memory is one level, whose
    bandwidth makes the ridge point, for data of ``dtype``, the balance that is asked for. Every
    operand is charged to it: the classic roofline model. ``eager_min_time_s`` are by balance, then
    by design. ``machines`` are those that are known, ``left_out`` says of which one nothing is
    known. ``peak_memory_bytes`` is the most that a pass of each design keeps alive at once.
    """

    kind: ClassVar = "balance sweep"
    made_by: ClassVar = "roofline compare A B --sweep balance=1:256:x2 -o FILE.json"
    height_inch: ClassVar = 7.0
    columns: ClassVar = {
        "machine": "object",
        "balance_flop_per_byte": "Float64",
        "design": "object",
        **dict.fromkeys((*MINIMUM_TIMES, "over_reference"), "Float64"),
        **dict.fromkeys(("fits", "is_best"), "boolean"),
    }
    ALSO_WRITTEN: ClassVar = ("summary", "sentences")

    designs: tuple[str, ...]
    reference: int = 0
    base: HardwareProfile
    threads: int
    dtype: str
    balances: tuple[float, ...]
    eager_min_time_s: tuple[tuple[float, ...], ...]
    peak_memory_bytes: tuple[int, ...]
    crossings: tuple[Crossing, ...]
    machines: tuple[KnownMachine, ...]
    left_out: tuple[str, ...] = ()
    run: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The designs over the balance of machines."""
        return f"{' against '.join(self.names)} over the balance of machines"

    @property
    def names(self) -> tuple[str, ...]:
        """What sentences call the designs: by their names if all are short, else A, B, C."""
        return short_names(self.designs)

    @property
    def ratios(self) -> tuple[tuple[float, ...], ...]:
        """The bound of each design over the reference's, by balance, then by design."""
        return tuple(self.over_reference(each) for each in self.eager_min_time_s)

    def over_reference(self, times_s: tuple[float, ...]) -> tuple[float, ...]:
        """Times of the designs over that of the reference."""
        return tuple(each / times_s[self.reference] for each in times_s)

    def fits_on(self, machine: KnownMachine) -> tuple[bool | None, ...]:
        """Whether each design fits into the memory of a machine; None: capacity not known."""
        return tuple(fits(each, machine.memory_capacity_bytes) for each in self.peak_memory_bytes)

    def best_on(self, machine: KnownMachine) -> int | None:
        """The design with the lowest bound of those that fit on a machine; None: none does."""
        able = [i for i, each in enumerate(self.fits_on(machine)) if each is not False]
        return min(able, key=lambda i: (machine.eager_min_time_s[i], i), default=None)

    def winner_at(self, balance: float) -> int:
        """The design with the lowest bound at a balance."""
        found = _best(self.eager_min_time_s[0])
        for each in self.crossings:
            if each.balance <= balance:
                found = each.after
        return found

    @property
    def sentences(self) -> tuple[str, ...]:
        """Who wins where, and which machines are there."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        edges = [each.balance for each in self.crossings]
        for place, low in enumerate([None, *edges]):
            high = edges[place] if place < len(edges) else None
            winner = self.winner_at(self.balances[0] if low is None else low)
            inside = [
                ratios
                for balance, ratios in zip(self.balances, self.ratios, strict=True)
                if (low is None or balance >= low) and (high is None or balance <= high)
            ]
            there = [
                each.name
                for each in self.machines
                if (low is None or each.balance >= low) and (high is None or each.balance < high)
            ]
            machines = f" ({words(there)})" if there else " (no known machine)"
            yield (
                f"{_between(low, high)}, {self.names[winner]} has the lowest bound"
                f"{self._by(inside, winner)}{machines}"
            )
        other = [
            each.name
            for each in self.machines
            if (best := self.best_on(each)) is not None
            and each.eager_min_time_s[best] * SAME_BOUND
            < each.eager_min_time_s[self.winner_at(each.balance)]
        ]
        if other:
            yield f"with its own ceilings and caches, another design leads on {words(other)}"
        for index, name in enumerate(self.names):
            large = [each.name for each in self.machines if self.fits_on(each)[index] is False]
            if large:
                yield f"{name} does not fit into memory on {words(large)}, and leads nowhere there"

    def _by(self, inside: list[tuple[float, ...]], winner: int) -> str:
        """By how much, where it is not the only one: against the reference, or the best other."""
        factors: list[float] = []
        for ratios in inside:
            others = [each for index, each in enumerate(ratios) if index != winner]
            rival = min(others) if winner == self.reference else 1.0
            factors.append(rival / ratios[winner])
        if not factors:
            return ""
        low, high = map(factor_text, (min(factors), max(factors)))
        return f", {low} × lower" if low == high else f", {low} to {high} × lower"

    def records(self) -> Iterator[dict[str, Any]]:
        """One row a design and machine: hypothetical ones first, then those that are known.

        Hypothetical machines have memory without end: ``fits`` is None there. Bounds are those of
        operators one by one: of the minimum times, ``eager_min_time_s`` alone is known.
        """
        unknown = (None,) * len(self.designs)
        lines = zip(self.balances, self.eager_min_time_s, strict=True)
        for name, balance, times, best, fit in (
            *((None, balance, times, _best(times), unknown) for balance, times in lines),
            *(
                (
                    each.name,
                    each.balance,
                    each.eager_min_time_s,
                    self.best_on(each),
                    self.fits_on(each),
                )
                for each in self.machines
            ),
        ):
            for index, ratio in enumerate(self.over_reference(times)):
                yield {
                    "machine": name,
                    "balance_flop_per_byte": balance,
                    "design": self.designs[index],
                    **minimum_times_of(MinTimes(eager_min_time_s=times[index])),
                    "over_reference": ratio,
                    "fits": fit[index],
                    "is_best": index == best,
                }

    def rows(self) -> Iterator[list[Any]]:
        """Return `records` as cells; ``machine`` is None for hypothetical ones."""
        return ([each[name] for name in self.columns] for each in self.records())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return what follows, the hypothetical machines, and the known ones."""
        from roofline.design.sweeps.blocks import ridge_blocks

        del view
        return ridge_blocks(self)

    def draw(self, figure: Figure) -> None:
        """Draw the minimum time of each design over the reference's, with the known machines."""
        from roofline.design.sweeps.drawing import draw_ridge

        draw_ridge(figure, self)


def _best(times_s: tuple[float, ...]) -> int:
    return min(range(len(times_s)), key=lambda i: (times_s[i], i))


def _between(low: float | None, high: float | None) -> str:
    unit = "FLOP/byte"
    if low is None:
        return "at every balance" if high is None else f"below {format_intensity(high)} {unit}"
    if high is None:
        return f"above {format_intensity(low)} {unit}"
    return f"from {format_intensity(low)} to {format_intensity(high)} {unit}"
