"""How long to measure, and what fits into that time: quick, default, thorough."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.machine.hardware import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a measurement does with its time, in seconds from its beginning.

    ``budget_s`` is for everything together; of that the curves over size take about ``curve_s`` and
    torch's ceilings ``library_s`` (0: they are left out). ``second_forms``: every kernel is
    measured in two forms that must agree. ``stretch_s`` is how long each kernel runs on end after
    the rounds, outside the budget, for what it keeps up once the machine is warm (0: it does not).
    """

    effort: Effort
    budget_s: float
    curve_s: float
    library_s: float
    second_forms: bool
    stretch_s: float

    @property
    def expected_s(self) -> float:
        """How long it takes about, for the progress."""
        return self.budget_s + _FIGURES * self.stretch_s


_FIGURES = 116
"""So many kernels, levels and teams there are on a CPU with AVX-512 and three caches."""

_PROGRAMS: dict[Effort, Program] = {
    # Importing torch alone would take half of the time.
    "quick": Program(
        effort="quick",
        budget_s=2.3,
        curve_s=0.25,
        library_s=0.0,
        second_forms=False,
        stretch_s=0.0,
    ),
    # The whole command shall take ten seconds; its start and its end are not in the budget.
    "default": Program(
        effort="default",
        budget_s=9.0,
        curve_s=0.7,
        library_s=2.0,
        second_forms=True,
        stretch_s=0.0,
    ),
    "thorough": Program(
        effort="thorough",
        budget_s=40.0,
        curve_s=5.0,
        library_s=15.0,
        second_forms=True,
        stretch_s=1.0,
    ),
}


def program(effort: Effort) -> Program:
    """What a measurement of that effort does."""
    return _PROGRAMS[effort]
