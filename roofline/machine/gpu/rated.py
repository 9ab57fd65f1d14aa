"""A trial with the rate that it reached, and what is said of the two."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from roofline.machine.gpu.conditions import doubt_of
from roofline.machine.gpu.trials import Subject, Trial
from roofline.machine.hardware import Provenance, TheoreticalRate
from roofline.machine.measuring.estimation import PEAK_QUANTILE, Estimate
from roofline.machine.system.host import package_version

_FAR_BELOW = 0.75
_ABOVE = 1.05
"""Fractions of the figure on paper from which on a measured one needs a word."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A trial with the rate that it reached, in flop or byte per second."""

    trial: Trial
    rate: Estimate

    @property
    def subject(self) -> Subject:
        """What was timed."""
        return self.trial.subject


def measured(reference: str, note: str = "") -> Provenance:
    """Where a number measured now and here comes from."""
    return Provenance(
        source="measured",
        reference=reference,
        date=datetime.date.today().isoformat(),
        tool_version=package_version("roofline"),
        note=note,
    )


def method_of(rated: Rated) -> str:
    """How its rate was found."""
    return (
        f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of interleaved"
        f" {rated.trial.burst_s * 1e3:.1f} ms bursts by CUDA events"
    )


def reservations_of(each: Rated, theoretical: TheoreticalRate | None) -> str:
    """Why its figure may be wrong, by the sensors and by the one on paper; ``""``: nothing."""
    parts = [each.trial.doubt, doubt_of(each.trial)]
    fraction = each.rate.peak / theoretical.per_s if theoretical else 1.0
    percent = f"{fraction * 100:.0f} % of the figure on paper"
    if fraction < _FAR_BELOW:
        parts.append(f"only {percent}: other programs may be faster")
    elif fraction > _ABOVE:
        parts.append(f"{percent}: the device clocks higher than that, or is another variant")
    return "; ".join(filter(None, parts))


def bursts_of(each: Rated) -> str:
    """How many bursts its rate follows from."""
    return f"{each.rate.bursts} bursts"
