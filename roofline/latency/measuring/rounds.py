"""Rounds: everything that is compared runs once in each, and a disturbed round does not count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roofline.foundation.progress import Progress
from roofline.latency.measuring.gauges import Gauges, Passage
from roofline.machine.pace import Pace, usual_pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    ``warm_ups`` passes come first and do not count; at least ``least`` rounds and at most ``most``
    do, for about ``budget_s`` seconds. As many rounds more as ``patience`` times those that count
    may be thrown away.
    """

    warm_ups: int = 2
    least: int = 5
    most: int = 30
    budget_s: float = 3.0
    patience: float = 1.0

    def __post_init__(self) -> None:
        if not (self.warm_ups >= 0 and 1 <= self.least <= self.most and self.budget_s >= 0):
            raise ValueError(f"no such effort: {self}")


@dataclass(slots=True, kw_only=True)
class Rounds:
    """What rounds gave: for each one that counts, the passes of all subjects in their order.

    ``paces`` are those that the cores had when it began and when it ended.
    ``discarded`` is how many were thrown away because a pass did not get the cores. Where too few
    were left, the least disturbed of them count too, and ``are_disturbed`` says so.
    """

    passages: list[tuple[Passage, ...]] = field(default_factory=list[tuple[Passage, ...]])
    kept: list[int] = field(default_factory=list[int])
    paces: list[Pace] = field(default_factory=list[Pace])
    discarded: int = 0
    are_disturbed: bool = False

    def times_s(self, subject: int) -> tuple[float, ...]:
        """The seconds that the subject of this number took, in the rounds that count."""
        return tuple(each[subject].wall_s for each in self.passages)

    def page_faults(self, subject: int) -> tuple[int, ...]:
        """Its minor page faults."""
        return tuple(each[subject].page_faults for each in self.passages)

    @property
    def pace(self) -> Pace:
        """The median pace of the rounds that count."""
        return usual_pace(self.paces)


def run_rounds(
    subjects: Sequence[Callable[[], object]],
    gauges: Gauges,
    effort: Effort,
    *,
    progress: Progress | None = None,
    what: str = "",
) -> Rounds:
    """Runs all subjects in turn, round after round.

    Args:
        subjects: each runs one pass when it is called.
        gauges: what is read around each pass.
        effort: how many rounds.
        progress: told how far it is.
        what: what progress says is done.

    Returns:
        The rounds that count; ``kept`` are their numbers, from 0, among all that ran.
    """
    for _ in range(effort.warm_ups):
        for subject in subjects:
            subject()
    begin = gauges.wall()
    found, disturbed = Rounds(), Rounds()
    number = 0
    paces = _Paces(gauges)
    while True:
        started_at = paces.latest
        passages: list[Passage] = []
        for subject in subjects:
            before = gauges.read()
            subject()
            passages.append(gauges.since(before))
        into = disturbed if any(each.is_disturbed for each in passages) else found
        into.passages.append(tuple(passages))
        into.kept.append(number)
        into.paces.append(
            usual_pace((started_at, paces.after(math.fsum(each.wall_s for each in passages))))
        )
        number += 1
        done = len(found.passages)
        elapsed_s = gauges.wall() - begin
        if progress is not None:
            by_count = done / effort.least
            by_time = elapsed_s / effort.budget_s if effort.budget_s else 1.0
            progress(min(1.0, by_count, by_time), what)
        is_late = elapsed_s >= effort.budget_s
        if done >= effort.most or (done >= effort.least and is_late):
            break
        if len(disturbed.passages) >= effort.least * (1 + effort.patience) and is_late:
            break
    found.discarded = len(disturbed.passages)
    if len(found.passages) < effort.least:
        # Better than nothing, as long as it is said: those that are left are too few to go without.
        order = sorted(
            range(len(disturbed.passages)),
            key=lambda each: -min(passage.cpu_share for passage in disturbed.passages[each]),
        )[: effort.least - len(found.passages)]
        found.passages += [disturbed.passages[each] for each in order]
        found.kept += [disturbed.kept[each] for each in order]
        found.paces += [disturbed.paces[each] for each in order]
        found.discarded -= len(order)
        found.are_disturbed = bool(order)
    return found


_PACE_HOLDS_S = 0.02
"""The clock of a core changes over seconds; reading it takes longer than many operators do."""


class _Paces:
    """The pace of the cores, read anew once the last reading is no longer young."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges
        self._age_s = 0.0
        self.latest = gauges.pace()

    def after(self, worked_s: float) -> Pace:
        """The pace now that work took so many seconds."""
        self._age_s += worked_s
        if self._age_s > _PACE_HOLDS_S:
            self.latest = self._gauges.pace()
            self._age_s = 0.0
        return self.latest
