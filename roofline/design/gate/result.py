"""A model's cost held against a baseline: every condition judged, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from roofline.design.gate.conditions import Condition
from roofline.design.gate.cost import Cost
from roofline.design.gate.quantities import QUANTITIES, Quantity, share_of
from roofline.design.gate.settings import differences, times_apart
from roofline.errors import ThresholdError
from roofline.foundation import schema
from roofline.foundation.rows import json_text
from roofline.foundation.text import counted

SCHEMA_VERSION = 1
"""Of checks in JSON files, which are read nowhere (docs/file-formats.md)."""

KIND = "check"
"""What such a file says it is."""

Outcome = Literal["fails", "passes", "not judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of a condition; ``why`` says it in words, ``""`` where it passes.

    What cannot be judged counts as failed: nobody shall take it for good.
    """

    condition: Condition
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One total, before and now; ``before`` is null where it is not compared."""

    quantity: Quantity
    before: float | None
    now: float | None
    judgements: tuple[Judgement, ...]

    @property
    def change(self) -> float | None:
        """The change as a fraction of what it was; None where that is not known, or was 0."""
        if self.before is None or self.now is None:
            return None
        if self.before == self.now:
            return 0.0
        return share_of(self.before, self.now)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check:
    """A model's cost held against a baseline.

    ``baseline`` is null where only absolute limits were asked for, or a first baseline is written;
    ``file`` is where it is; ``is_new`` says that it was written. ``notes`` are what was noticed
    on the way.
    """

    now: Cost
    baseline: Cost | None = None
    file: str = ""
    conditions: tuple[Condition, ...] = ()
    is_new: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Check: {self.summary}>"

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every total that is known before or now, with what was asked of it."""
        judged = self.judgements
        found: list[Line] = []
        for each in QUANTITIES:
            of_it = tuple(one for one in judged if one.condition.quantity == each)
            before, now = self._before(each), self.now.value(each.name)
            is_idle = not of_it and each.name == "unknown_operators" and not (before or now)
            if not is_idle and (of_it or before is not None or now is not None):
                found.append(Line(quantity=each, before=before, now=now, judgements=of_it))
        return tuple(found)

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """What became of every condition, in their order."""
        return tuple(map(self._judged, self.conditions))

    @property
    def failures(self) -> tuple[str, ...]:
        """Why it fails, a sentence for each condition; none where all pass."""
        return tuple(each.why for each in self.judgements if each.outcome != "passes")

    @property
    def passes(self) -> bool:
        """Whether no condition failed, and every one could be judged."""
        return not self.failures

    @property
    def changes(self) -> tuple[Line, ...]:
        """The totals that are not what they were."""
        return tuple(
            each for each in self.lines if each.before is not None and each.before != each.now
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """What else is not the same as for the baseline, in words, then what was noticed."""
        found = differences(self.baseline, self.now) if self.baseline else ()
        return tuple(dict.fromkeys((*found, *self.notes)))

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        model, conditions = self.now.model, len(self.conditions)
        failed = len(self.failures)
        if failed:
            return f"{model} fails {failed} of {counted(conditions, 'condition')}"
        verdict = f"{model} passes {counted(conditions, 'condition')}"
        if self.is_new:
            verdict = f"{model}: what it costs now is the baseline"
        elif not conditions:
            verdict = f"{model}: nothing was asked (--fail-if)"
        if self.baseline is None:
            return verdict
        changed = len(self.changes)
        what = counted(changed, "total") if changed else "no total"
        return f"{verdict}; {what} changed"

    def raise_if_failed(self) -> None:
        """Fails where a condition does.

        Raises:
            ThresholdError: naming all that fail.
        """
        if self.failures:
            raise ThresholdError(f"--fail-if: {'; '.join(self.failures)}")

    def to_data(self) -> dict[str, Any]:
        """All of it as plain data: totals, conditions, both costs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "model": self.now.model,
            "summary": self.summary,
            "passes": self.passes,
            "totals": [
                {
                    "name": each.quantity.name,
                    "baseline": each.before,
                    "now": each.now,
                    "change": each.change,
                }
                for each in self.lines
            ],
            "conditions": [
                {"condition": each.condition.text, "outcome": each.outcome, "why": each.why}
                for each in self.judgements
            ],
            "notes": list(self.differences),
            "baseline": schema.to_data(self.baseline),
            "now": schema.to_data(self.now),
        }

    def to_json(self) -> str:
        """`to_data` as JSON text."""
        return json_text(self.to_data())

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the check to a file whose suffix says how: .json or .md.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.check_output import write_check

        write_check(self, [Path(path)], overwrite=overwrite)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.check_report import check_report
        from roofline.render.pages import report_html

        return report_html(check_report(self))

    def _before(self, quantity: Quantity) -> float | None:
        """What a total was; None where it is not known, or is one of another machine."""
        if self.baseline is None:
            return None
        if quantity.is_time and times_apart(self.baseline, self.now):
            return None
        return self.baseline.value(quantity.name)

    def _judged(self, condition: Condition) -> Judgement:
        quantity = condition.quantity
        now, before = self.now.value(quantity.name), self._before(quantity)
        missing = self._why_not_known(condition, now=now, before=before)
        if missing or now is None:
            said = f"{condition.text}: {quantity.name} cannot be judged: {missing}"
            return Judgement(condition=condition, outcome="not judged", why=said)
        if not condition.fails(now, before):
            return Judgement(condition=condition, outcome="passes")
        side = "above" if condition.sign == ">" else "below"
        value, limit = _apart(quantity, now, condition.limit_at(before))
        return Judgement(
            condition=condition,
            outcome="fails",
            why=f"{condition.text}: {quantity.name} is {value}, {side} {limit}"
            f"{_from_baseline(quantity, before, now) if condition.is_relative else ''}",
        )

    def _why_not_known(
        self, condition: Condition, *, now: float | None, before: float | None
    ) -> str:
        """Why a condition cannot be judged; ``""`` if it can."""
        quantity = condition.quantity
        if now is None:
            return _unknown(quantity, self.now)
        if not condition.is_relative or before is not None:
            return ""
        if self.baseline is None:
            return "there is no baseline to compare with; give --against FILE"
        if quantity.is_time and (apart := times_apart(self.baseline, self.now)):
            return apart
        return f"in the baseline {_unknown(quantity, self.baseline)}"


def _unknown(quantity: Quantity, cost: Cost) -> str:
    """Why a total is not known."""
    if not quantity.is_time:
        return f"{counted(cost.unknown_operators, 'call')} of operators have no formula"
    if cost.machine is None:
        return "no machine was asked for (--hardware, or `roofline measure` for this one)"
    name = cost.machine.name
    if quantity.name != "predicted_s" and cost.eager_min_time_s is not None:
        return f"there is no {quantity.name}; write it anew with --update"
    if quantity.name != "predicted_s":
        return f"machine '{name}' has no hardware ceilings"
    if cost.run.train or cost.run.autocast:
        return f"{'training' if cost.run.train else 'autocast'} is not predicted"
    return f"nothing was learned of such a run on '{name}' (`roofline calibrate`, run there)"


def _from_baseline(quantity: Quantity, before: float | None, now: float) -> str:
    """How far a total is from that of the baseline, in brackets."""
    if before is None:
        return ""
    if before == now:
        return " (as the baseline has)"
    return f" ({quantity.change(before, now)} on the baseline's {quantity.form(before)})"


def _apart(quantity: Quantity, value: float, limit: Fraction) -> tuple[str, str]:
    """Value and limit in words; in full where rounded they would look the same."""
    short = quantity.form(value), quantity.form(float(limit))
    return short if short[0] != short[1] else (_in_full(Fraction(value)), _in_full(limit))


def _in_full(value: Fraction) -> str:
    """Every digit of a whole number; of others, as many as floating-point numbers have."""
    if value.denominator == 1:
        return f"{value.numerator:,}"
    return f"{float(value):,.17g}"
