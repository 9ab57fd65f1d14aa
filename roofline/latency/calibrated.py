"""What a calibration has learned: the value that `roofline calibrate` gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutError:
    """How far off predictions are for models whose family was left out, in one setting.

    ``mape`` and ``median_error`` are of absolute errors, as fractions; ``interval_coverage`` is the
    share of runs inside their 10-90 % interval. Null where too few runs could be judged.

    Raises:
        ValueError: a number below 0.
    """

    threads: int
    dtype: str
    runs: int
    mape: float | None
    median_error: float | None
    within_10_percent: float | None
    interval_coverage: float | None

    def __post_init__(self) -> None:
        figures = (self.mape, self.median_error, self.within_10_percent, self.interval_coverage)
        if min(self.threads, self.runs, *(each or 0.0 for each in figures)) < 0:
            raise ValueError(f"an error of held-out runs takes numbers from 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What is known of a machine after a calibration, and how far off it is.

    ``runs`` of ``models`` different ones, of ``families``, with ``operators`` samples are in
    ``file``; ``new_runs`` of them were measured now, in ``seconds``. ``held_out`` are errors by
    setting, ``skipped`` the models that failed, each with the reason. ``interrupted`` says that
    not all was measured that was to be.

    Raises:
        ValueError: a negative number.
    """

    runs: int
    operators: int
    models: int
    families: int
    new_runs: int
    seconds: float
    held_out: tuple[HeldOutError, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    interrupted: bool = False
    file: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = (self.runs, self.operators, self.models, self.families, self.new_runs)
        if min(*counts, self.seconds) < 0:
            raise ValueError(f"a calibration takes numbers from 0, got {self}")

    @property
    def judged_runs(self) -> int:
        """How many held-out runs have an error."""
        return sum(each.runs for each in self.held_out if each.mape is not None)

    @property
    def mape(self) -> float | None:
        """The mean absolute error over all held-out runs, a fraction; None: none was judged."""
        judged = [(each.mape, each.runs) for each in self.held_out if each.mape is not None]
        count = sum(runs for _, runs in judged)
        return sum(mape * runs for mape, runs in judged) / count if count else None


def no_calibration(hardware: str) -> str:
    """The line for a machine of which nothing was learned."""
    return (
        f"no calibration for '{hardware}': bounds only; `roofline calibrate`, run on that machine,"
        " makes one"
    )
