"""What a gate can be set on: the totals of a pass, with their units and their words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from roofline.foundation.units import format_bytes, format_flop, format_s, format_si

Kind = Literal["flop", "count", "byte", "s"]
"""What a total is counted in."""

_LEAST_SHARE = 5e-5
"""Changes that are smaller are told in units: rounded, they would look like none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One total: its name, which carries the unit, and its title in tables.

    ``is_time`` tells what depends on a machine from what depends on the model alone.
    """

    name: str
    title: str
    kind: Kind

    @property
    def is_time(self) -> bool:
        """Whether it is one of a machine, too."""
        return self.kind == "s"

    def form(self, value: float | None) -> str:
        """A value in words: ``"4.09 GFLOP"``; a dash where it is not known."""
        match self.kind:
            case "flop":
                return format_flop(value)
            case "byte":
                return format_bytes(value)
            case "s":
                return format_s(value)
            case "count":
                return format_si(value, "")

    def change(self, before: float, now: float) -> str:
        """The change in words: ``"+1.20 %"``, in the unit where that is next to nothing."""
        share = share_of(before, now)
        if share is None or abs(share) < _LEAST_SHARE:
            return f"{'+' if now >= before else '-'}{self.form(abs(now - before))}"
        percent = 100 * share
        decimals = 2 if abs(percent) < 10 else 1 if abs(percent) < 100 else 0
        return f"{percent:+.{decimals}f} %"


def share_of(before: float, now: float) -> float | None:
    """The change as a fraction of what was; None where that was nothing, or as good as nothing."""
    share = now / before - 1 if before else math.inf
    return share if math.isfinite(share) else None


QUANTITIES = (
    Quantity(name="flop", title="FLOP", kind="flop"),
    Quantity(name="macs", title="MACs", kind="count"),
    Quantity(name="traffic_bytes", title="traffic", kind="byte"),
    Quantity(name="parameters", title="parameters", kind="count"),
    Quantity(name="peak_memory_bytes", title="peak memory", kind="byte"),
    Quantity(name="launches", title="launches", kind="count"),
    Quantity(name="unknown_operators", title="calls without a formula", kind="count"),
    Quantity(name="eager_min_time_s", title="minimum, eager", kind="s"),
    Quantity(name="fused_min_time_s", title="minimum, fused", kind="s"),
    Quantity(name="model_min_time_s", title="minimum, model", kind="s"),
    Quantity(name="predicted_s", title="predicted", kind="s"),
)

BY_NAME = {each.name: each for each in QUANTITIES}
"""The quantities by the names that conditions give them."""
