"""One machine measured twice: what changed by more than its own spread, what is new, what is gone.

A profile keeps the median, a high quantile and the spread of a figure's bursts. How far the medians
of two runs lie apart cannot be known from one run, so the spread of bursts stands in for it: the
median of a hundred bursts is steadier than a burst, and what is left is for the drift between runs.

A figure has changed if |ln(new / old)| exceeds both

* `FLOOR`, 4 %: on a calm host two runs repeat within 3 % in 95 of 100 figures, which makes it 4 %
  in 99 of 100, and
* `QUANTILE` standard deviations of the difference of two single bursts: sqrt(s1² + s2²) / 1.349,
  with s the interquartile range over the median (1.349 standard deviations of a normal one).

With spreads of 2 % that is 5.4 %. Where no spread is kept, that of a normal distribution whose 95th
percentile is the peak stands in: nothing where peak and median are one, as on data sheets. Sizes of
caches move by steps of their curve: `CAPACITY_FLOOR`.

The clock of a core goes up and down with the load of its host, and with it all that runs in the
core: arithmetic, L1 and L2. Where it was measured both times, what changed as much as the clock did
is no change of its own (`Change.follows_clock`).

A neighbour that stays for a whole run moves its median and leaves its spread small. That is
reported, because the machine did change for whoever uses it; the peak as before tells it apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from roofline.design.hardware_quantities import Quantity, quantities_of
from roofline.machine.hardware import HardwareProfile

FLOOR = 0.04
"""Relative change that is never notable, whatever the spreads."""

CAPACITY_FLOOR = 0.25
"""The same for sizes of caches, which a curve finds as exactly as its steps are fine."""

QUANTILE = 2.576
"""Standard deviations that 1 of 100 differences of one normal distribution exceeds."""

_IQR_PER_SD = 1.349
_PEAK_PER_SD = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure, known of both: ratios are the new one's over the old one's.

    ``clock_ratio`` is that of the clock for what runs at it, 1 for everything else.
    """

    old: Quantity
    new: Quantity
    clock_ratio: float = 1.0

    @property
    def typical_ratio(self) -> float:
        """Of the medians (sustained rates)."""
        return self.new.typical / self.old.typical

    @property
    def peak_ratio(self) -> float:
        """Of the best (of times: the fastest)."""
        return self.new.peak / self.old.peak

    @property
    def explained(self) -> float:
        """The |ln ratio| up to which spreads and floor explain a change."""
        if self.old.what == "capacity":
            return CAPACITY_FLOOR
        spread = math.hypot(_spread(self.old), _spread(self.new))
        return max(FLOOR, QUANTILE * spread / _IQR_PER_SD)

    @property
    def typical_changed(self) -> bool:
        """Whether the medians differ beyond the spread, and not as the clock does."""
        return self._beyond(self.typical_ratio)

    @property
    def peak_changed(self) -> bool:
        """Whether the best figures differ beyond the spread, and not as the clock does."""
        return self._beyond(self.peak_ratio)

    @property
    def follows_clock(self) -> bool:
        """Whether it changed beyond its spread, as far as the clock explains."""
        farthest = abs(math.log(self.leading_ratio))
        return self.clock_ratio != 1.0 and not self.notable and farthest > self.explained

    def _beyond(self, ratio: float) -> bool:
        by_clock = math.log(self.clock_ratio) * (-1 if self.old.measure == "s" else 1)
        change = math.log(ratio)
        # What stayed as it was has not changed, whatever the clock did.
        return min(abs(change), abs(change - by_clock)) > self.explained

    @property
    def notable(self) -> bool:
        """Whether it changed beyond its spread, at its best or at its median."""
        return self.typical_changed or self.peak_changed

    @property
    def better(self) -> bool:
        """Whether what changed most is for the better: a higher rate or size, a shorter time."""
        return self.leading_ratio > 1 if self.old.measure != "s" else self.leading_ratio < 1

    @property
    def leading_ratio(self) -> float:
        """The ratio that moved farther, of the medians or of the best."""
        return max(self.typical_ratio, self.peak_ratio, key=lambda each: abs(math.log(each)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChange:
    """Two measurements of a machine, ``old`` and ``new``, figure by figure."""

    old: HardwareProfile
    new: HardwareProfile
    changes: tuple[Change, ...]
    added: tuple[Quantity, ...]
    gone: tuple[Quantity, ...]

    @property
    def notable(self) -> tuple[Change, ...]:
        """What changed beyond its spread, the largest first."""
        found = [each for each in self.changes if each.notable]
        return tuple(sorted(found, key=lambda each: -abs(math.log(each.leading_ratio))))

    @property
    def following(self) -> tuple[Change, ...]:
        """What changed as the clock did."""
        return tuple(each for each in self.changes if each.follows_clock)

    @property
    def host_difference(self) -> str | None:
        """What differs in the hosts' fingerprints, ``""`` if nothing; None: not known of both."""
        old, new = self.old.host, self.new.host
        return old.difference(new) if old and new else None

    @property
    def versions(self) -> tuple[tuple[str, str | None, str | None], ...]:
        """Software whose version differs: name, old, new; None: not there."""
        old, new = (each.host.versions if each.host else {} for each in (self.old, self.new))
        return tuple(
            (name, old.get(name), new.get(name))
            for name in dict.fromkeys((*old, *new))
            if old.get(name) != new.get(name)
        )

    def to_data(self) -> dict[str, Any]:
        """The change as plain data: rates in flop/s and byte/s, sizes in byte, times in s."""
        return {
            "schema_version": 1,
            "kind": "hardware change",
            "old": {"name": self.old.name, "date": self.old.date, "effort": self.old.effort},
            "new": {"name": self.new.name, "date": self.new.date, "effort": self.new.effort},
            "compared": len(self.changes),
            "changed": len(self.notable),
            "following_the_clock": len(self.following),
            "changes": [
                {
                    **_identity(each.old),
                    "old_sustained": each.old.typical,
                    "new_sustained": each.new.typical,
                    "sustained_ratio": each.typical_ratio,
                    "old_peak": each.old.peak,
                    "new_peak": each.new.peak,
                    "peak_ratio": each.peak_ratio,
                    "old_spread": each.old.spread,
                    "new_spread": each.new.spread,
                    "explained_ratio": math.exp(each.explained),
                    "clock_ratio": each.clock_ratio,
                    "changed": each.notable,
                }
                for each in self.changes
            ],
            "added": [_identity(each) for each in self.added],
            "gone": [_identity(each) for each in self.gone],
            "host_difference": self.host_difference,
            "versions": [
                {"name": name, "old": old, "new": new} for name, old, new in self.versions
            ],
            "old_conditions": list(self.old.conditions),
            "new_conditions": list(self.new.conditions),
        }


def hardware_change(old: HardwareProfile, new: HardwareProfile) -> HardwareChange:
    """What changed between two measurements of a machine.

    Figures are the same if kind, data type or level, unit, kernel and number of threads are.
    """
    first, second = ({_key(each): each for each in quantities_of(one)} for one in (old, new))
    clock = new.clock.median_hz / old.clock.median_hz if old.clock and new.clock else 1.0
    return HardwareChange(
        old=old,
        new=new,
        changes=tuple(
            Change(old=each, new=second[key], clock_ratio=clock if _in_core(each) else 1.0)
            for key, each in first.items()
            if key in second and _has_ratio(each) and _has_ratio(second[key])
        ),
        added=tuple(each for key, each in second.items() if key not in first),
        gone=tuple(each for key, each in first.items() if key not in second),
    )


def _has_ratio(each: Quantity) -> bool:
    """Whether both values are above zero: files may hold times of nothing."""
    return each.peak > 0 and each.typical > 0


_CORE = ("L1", "L2")
"""Caches that run at the clock of their core."""


def _in_core(each: Quantity) -> bool:
    """Whether a figure is of what runs at the clock of a core."""
    if each.kind == "library":
        return False
    near = each.subject in _CORE and not each.kernel.endswith("-nt")
    return each.what == "compute" or (each.what in ("bandwidth", "latency") and near)


def _key(each: Quantity) -> tuple[tuple[str, ...], int | None]:
    return each.identity, each.threads


def _spread(each: Quantity) -> float:
    if each.spread is not None:
        return each.spread
    return abs(math.log(each.peak / each.typical)) * _IQR_PER_SD / _PEAK_PER_SD


def _identity(each: Quantity) -> dict[str, Any]:
    return {
        "what": each.what,
        "kind": each.kind,
        "subject": each.subject,
        "unit": each.unit,
        "kernel": each.kernel,
        "threads": each.threads,
        "measure": each.measure,
    }
