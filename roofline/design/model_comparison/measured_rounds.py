"""Models measured in turn, round after round, so that what drifts meanwhile drifts for all."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.design.model_comparison.ratios import Ratio, ratio_of_rounds
from roofline.foundation.sampling import Sample
from roofline.machine.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """One model in one round: the passes that count, in seconds, and the clock meanwhile in Hz.

    ``clock_hz`` is null where it is not known.

    Raises:
        ValueError: no pass, or a time or clock that is not positive.
    """

    times_s: tuple[float, ...]
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        Sample(times_s=self.times_s)
        Pace(clock_hz=self.clock_hz)

    @property
    def measured_s(self) -> float:
        """The median of the passes in seconds."""
        return Sample(times_s=self.times_s).median_s

    def at_clock_of(self, other: RoundTime) -> float:
        """The median in seconds, as it would be at the clock of `other`, as far as clocks are
        known."""
        return self.measured_s / Pace(clock_hz=self.clock_hz).slowdown(
            Pace(clock_hz=other.clock_hz)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRounds:
    """What models took on this machine: ``rounds`` of all of them in turn, in one order.

    With ``own_processes`` each time is from a process of its own. ``allocator`` names the settings
    of malloc there (``""``: not known), ``conditions`` are what was noticed meanwhile.

    Raises:
        ValueError: no rounds, or not as many models in each.
    """

    rounds: tuple[tuple[RoundTime, ...], ...]
    date: str = ""
    own_processes: bool = True
    allocator: str = ""
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rounds or len({len(each) for each in self.rounds}) != 1 or not self.rounds[0]:
            raise ValueError("every round measures the same models, and there is at least one")

    @property
    def models(self) -> int:
        """How many models were measured."""
        return len(self.rounds[0])

    def sample(self, model: int) -> Sample:
        """The times of one model in seconds, a median for each round."""
        return Sample(times_s=tuple(each[model].measured_s for each in self.rounds))

    def ratio(self, model: int, base: int, *, per: float = 1.0) -> Ratio:
        """How many times as long as `base` a model took: the median over rounds, and the spread.

        Of each round both times are taken at one clock.

        Args:
            model, base: numbers of models.
            per: what every ratio is divided by: how many times as many samples the model had.
        """
        if model == base:
            return Ratio(value=1.0)
        return ratio_of_rounds(
            [
                each[model].at_clock_of(each[base]) / each[base].measured_s / per
                for each in self.rounds
            ]
        )
