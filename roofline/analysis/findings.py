"""What could be changed of a model so that it takes less time, and what says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from roofline.analysis.rows import check_numbers, names_of_numbers

Basis = Literal["prediction", "estimate", "at most", "bound"]
"""What the seconds of a finding are. ``prediction``: before and after; ``estimate``: after is a
share of the prediction before that follows from a count (of padding); ``at most``: after is what
cannot be beaten; ``bound``: both are bounds, as nothing is predicted there."""

Verdict = Literal["confirmed", "not confirmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One change that would save time, in seconds of a pass.

    ``rule`` is the name of what found it (docs/advice.md lists them), ``operators`` are the indexes
    of those concerned, none where the whole model is. ``evidence`` says what was counted and
    predicted, with numbers; ``change`` what to do. ``predicted_before_s`` is what the operators
    concerned take (where there are none: the pass), ``predicted_after_s`` what takes their place,
    both on ``basis``; null where nobody can say. ``saving_low_s`` and ``saving_high_s`` are the
    interval of the saving from 10 to 90 %; null where it is not known.

    Where the change was tried on this machine, ``measured_before_s`` and ``measured_after_s`` are
    medians, and ``measured_low_s`` and ``measured_high_s`` the interval of the measured saving, in
    which what is lost is negative; null otherwise, and so is ``verdict``. ``note`` says how it was
    tried, or why it was not.

    Raises:
        ValueError: a negative time, half an interval, no rule, or a verdict without a measurement
            or against it.
    """

    rule: str
    operators: tuple[int, ...] = ()
    evidence: str
    change: str
    basis: Basis = "prediction"
    predicted_before_s: float | None = None
    predicted_after_s: float | None = None
    saving_low_s: float | None = None
    saving_high_s: float | None = None
    measured_before_s: float | None = None
    measured_after_s: float | None = None
    measured_low_s: float | None = None
    measured_high_s: float | None = None
    verdict: Verdict | None = None
    note: str = ""

    def __post_init__(self) -> None:
        check_numbers(self, _TIMES)
        _check_ends(self.saving_low_s, self.saving_high_s)
        _check_ends(self.measured_low_s, self.measured_high_s)
        measured = (
            *(self.measured_before_s, self.measured_after_s),
            *(self.measured_low_s, self.verdict),
        )
        if len({each is None for each in measured}) > 1:
            raise ValueError("measured times, their interval and the verdict belong together")
        # Else a file could call a loss confirmed.
        if self.verdict and (self.verdict == "confirmed") != ((self.measured_low_s or 0.0) > 0):
            raise ValueError(
                f"the verdict is '{self.verdict}', but the measured saving is from"
                f" {self.measured_low_s} s"
            )
        if not self.rule:
            raise ValueError("rule is empty")
        if list(self.operators) != sorted(set(self.operators)):
            raise ValueError(f"operators must rise, got {self.operators}")

    @property
    def saving_s(self) -> float | None:
        """The seconds of a pass that the change saves on its basis; None: nobody can say."""
        if self.predicted_before_s is None or self.predicted_after_s is None:
            return None
        return self.predicted_before_s - self.predicted_after_s

    @property
    def measured_saving_s(self) -> float | None:
        """The seconds that trying it saved, below 0 where it lost some; None: it was not tried."""
        if self.measured_before_s is None or self.measured_after_s is None:
            return None
        return self.measured_before_s - self.measured_after_s


def _check_ends(low: float | None, high: float | None) -> None:
    """Refuses half an interval, and one whose ends are no numbers in their order."""
    if low is None and high is None:
        return
    if low is None or high is None or not -math.inf < low <= high < math.inf:
        raise ValueError(f"an interval from {low} to {high} is none")


_TIMES = tuple(name for name in names_of_numbers(Finding) if name.endswith(("before_s", "after_s")))


def ranked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings, those that save most first: as predicted, else as measured.

    Predictions, bounds and what there is at most are not told apart.
    """

    def saved_s(finding: Finding) -> float:
        predicted_s = finding.saving_s
        return (finding.measured_saving_s or 0.0) if predicted_s is None else predicted_s

    return tuple(sorted(findings, key=lambda each: -saved_s(each)))
