"""What fits into which time."""

from __future__ import annotations

from typing import get_args

import pytest

from roofline.machine.hardware import Effort
from roofline.machine.measuring.estimation import PROGRAMS

EFFORTS: tuple[Effort, ...] = ("quick", "default", "thorough")


def test_every_effort_that_can_be_asked_for_has_a_program() -> None:
    assert {*EFFORTS, "unspecified"} == set(get_args(Effort))
    assert set(PROGRAMS) == set(EFFORTS)


@pytest.mark.parametrize(("effort", "promised_s"), [("quick", 3), ("default", 10)])
def test_a_program_keeps_what_the_command_promises(effort: Effort, promised_s: float) -> None:
    plan = PROGRAMS[effort]
    # The command starts and ends outside the budget.
    assert 0.7 * promised_s < plan.budget_s < promised_s
    assert plan.stretch_s == 0
    assert plan.curve_s + plan.library_s < 0.5 * plan.budget_s


def test_more_time_is_more_in_everything() -> None:
    plans = [PROGRAMS[effort] for effort in EFFORTS]
    for name in ("budget_s", "curve_s", "library_s", "second_forms", "stretch_s"):
        values = [getattr(plan, name) for plan in plans]
        assert values == sorted(values)


def test_quick_leaves_torch_and_second_forms_out_and_thorough_runs_a_second_on_end() -> None:
    quick, _, thorough = (PROGRAMS[effort] for effort in EFFORTS)
    assert (quick.library_s, quick.second_forms) == (0, False)
    assert thorough.second_forms
    assert thorough.stretch_s >= 1
