"""Result of `check`: cost against a baseline, conditions and verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal

from roofline.analysis.words import run_text
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.conditions import Condition, Quantity, parse_conditions, share_of
from roofline.core.text import counted, printable
from roofline.core.units import MISSING, format_bytes, format_flop, format_shape
from roofline.design.gate.cost import QUANTITIES, Cost, Part
from roofline.errors import InputError, ThresholdError, argument
from roofline.result import Result

Outcome = Literal["fails", "not judged", "passes"]  # Worst first
_MOST_PARTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Outcome of a condition on a total; ``why`` is the reason, ``""`` if it passes.

    A condition that cannot be judged counts as failed.
    """

    condition: str
    quantity: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Total of the baseline and now; ``before`` is null if not compared."""

    quantity: Quantity
    before: float | None
    now: float | None
    judgements: tuple[Judgement, ...]

    @property
    def change(self) -> float | None:
        """Change as a fraction of the baseline; None if unknown or from 0."""
        if self.before is None or self.now is None:
            return None
        if self.before == self.now:
            return 0.0
        return share_of(self.before, self.now)

    @property
    def change_words(self) -> str:
        """Change as text: ``"+1.2 %"``, or in its unit if small."""
        if self.before is None or self.now is None:
            return MISSING
        if self.before == self.now:
            return "same"
        return self.quantity.change(self.before, self.now)

    @property
    def verdict(self) -> str:
        """Worst outcome of its conditions; ``""`` without conditions."""
        outcomes = [each.outcome for each in self.judgements]
        worst: tuple[Outcome, ...] = ("fails", "not judged", "passes")
        return next((each for each in worst if each in outcomes), "")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check(Result):
    """Cost of a model against a baseline.

    Attributes:
        baseline: None with absolute limits only, or for a first baseline.
        file: name of the baseline file.
        conditions: as for ``--fail-if``.
        is_new: true if the baseline was written.
        notes: of the run.

    Raises:
        PlacedError: invalid condition.
    """

    kind: ClassVar = "check"
    made_by: ClassVar = "roofline check MODEL --against BASELINE.json -o FILE.json"
    suffixes: ClassVar = (".json", ".md")
    columns: ClassVar = {
        "name": "string",
        **dict.fromkeys(("baseline", "now", "change"), "Float64"),
        "verdict": "string",
    }
    ALSO_WRITTEN: ClassVar = (
        *("model", "summary", "passes", "totals", "judgements", "differences"),
    )

    now: Cost
    baseline: Cost | None = None
    file: str = ""
    conditions: tuple[str, ...] = ()
    is_new: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_conditions(self.conditions, QUANTITIES)

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.now.model

    @property
    def lines(self) -> tuple[Line, ...]:
        """Totals known before or now, with their conditions."""
        judged = self.judgements
        found: list[Line] = []
        for each in QUANTITIES.values():
            of_it = tuple(one for one in judged if one.quantity == each.name)
            before, now = self._before(each), _value(self.now, each)
            is_idle = not of_it and each.name == "unknown_operators" and not (before or now)
            if not is_idle and (of_it or before is not None or now is not None):
                found.append(Line(quantity=each, before=before, now=now, judgements=of_it))
        return tuple(found)

    @property
    def totals(self) -> list[dict[str, Any]]:
        """Names, values and changes of the totals, as in JSON."""
        names = ("name", "baseline", "now", "change")
        return [dict(zip(names, row, strict=False)) for row in self.rows()]

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """Outcomes of the conditions, in order."""
        return tuple(map(self._judged, parse_conditions(self.conditions, QUANTITIES)))

    @property
    def failures(self) -> tuple[str, ...]:
        """Reasons of failed conditions; empty if all pass."""
        return tuple(each.why for each in self.judgements if each.outcome != "passes")

    @property
    def passes(self) -> bool:
        """True if every condition was judged and passed."""
        return not self.failures

    @property
    def changes(self) -> tuple[Line, ...]:
        """Changed totals."""
        return tuple(
            each for each in self.lines if each.before is not None and each.before != each.now
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """Other differences from the baseline, and notes."""
        found = differences(self.baseline, self.now) if self.baseline else ()
        return tuple(dict.fromkeys((*found, *self.notes)))

    @property
    def summary(self) -> str:
        """Verdict: failed conditions and changed totals."""
        model, conditions = self.now.model, len(self.conditions)
        if failed := len(self.failures):
            return f"{model} fails {failed} of {counted(conditions, 'condition')}"
        verdict = f"{model} passes {counted(conditions, 'condition')}"
        if self.is_new:
            verdict = f"{model}: new baseline written"
        elif not conditions:
            verdict = f"{model}: no conditions ({argument('fail_if')})"
        if self.baseline is None:
            return verdict
        changed = len(self.changes)
        return f"{verdict}; {counted(changed, 'total') if changed else 'no total'} changed"

    def raise_if_failed(self) -> None:
        """Raise an error if a condition fails.

        Raises:
            ThresholdError: with all failed conditions.
        """
        if self.failures:
            raise ThresholdError(f"{argument('fail_if')}: {'; '.join(self.failures)}")

    def rows(self) -> Iterable[list[Any]]:
        """Return a row per total."""
        for each in self.lines:
            yield [each.quantity.name, each.before, each.now, each.change, each.verdict]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, totals, failures, changed operator types and modules, notes."""
        yield KeyValueBlock(lines=tuple(self._facts()))
        yield self._totals_table()
        yield from notes("Failed", self.failures, urgent=True)
        if self.baseline is not None:
            for title, before, now in (
                ("Changed operator types by change in FLOP", self.baseline.types, self.now.types),
                ("Changed modules by change in FLOP", self.baseline.modules, self.now.modules),
            ):
                if changed := _changed(before, now):
                    yield _parts_table(title, changed)
        yield from notes("Notes", differences(self.baseline, self.now) if self.baseline else ())
        yield from warning_notes(self.notes, view)

    def _totals_table(self) -> Grid:
        columns: dict[str, str | Callable[[Line], str]] = {
            "total": lambda each: each.quantity.title,
            "baseline": lambda each: each.quantity.form(each.before),
            "now": lambda each: each.quantity.form(each.now),
            "change": "change_words",
            "fails if": lambda each: ", ".join(one.condition for one in each.judgements),
            "verdict": "verdict",
        }
        for name in ("baseline", "change") * (not self.baseline):
            del columns[name]
        for name in ("fails if", "verdict") * (not self.conditions):
            del columns[name]
        return table("Totals", self.lines, columns, left=("total", "fails if", "verdict"))

    def _facts(self) -> Iterable[tuple[str, str]]:
        now = self.now
        shapes = ", ".join(format_shape(each.shape) for each in now.inputs)
        yield "Model", f"{now.model}{f' · {shapes}' if shapes else ''}"
        yield "Run", run_text(now.run)
        if now.machine is not None:
            yield "Machine", now.machine.words
        if (cost := self.baseline) is not None:
            when = cost.date[:10]
            machine = cost.machine.words if cost.machine else "counts only"
            yield "Baseline", " · ".join(filter(None, (self.file, when, machine, _versions(cost))))
        if now.versions:
            yield "Versions", _versions(now)

    def _before(self, quantity: Quantity) -> float | None:
        """Return a total of the baseline; None if unknown, or a time of another machine."""
        if self.baseline is None:
            return None
        if quantity.is_time and time_mismatch(self.baseline, self.now):
            return None
        return _value(self.baseline, quantity)

    def _judged(self, condition: Condition) -> Judgement:
        quantity = condition.quantity
        now, before = _value(self.now, quantity), self._before(quantity)
        judged = partial(Judgement, condition=condition.text, quantity=quantity.name)
        missing = ""
        if now is None:
            missing = _unknown(quantity, self.now)
        elif condition.is_relative and before is None:
            if self.baseline is None:
                missing = f"no baseline; add {argument('against')} FILE.json"
            else:
                apart = time_mismatch(self.baseline, self.now) if quantity.is_time else ""
                missing = apart or f"in the baseline: {_unknown(quantity, self.baseline)}"
        if missing or now is None:
            why = f"{condition.text}: {quantity.name} cannot be judged: {missing}"
            return judged(outcome="not judged", why=why)
        if not condition.fails(now, before):
            return judged(outcome="passes")
        side = "above" if condition.sign == ">" else "below"
        value, limit = _apart(quantity, now, condition.limit_at(before))
        why = f"{condition.text}: {quantity.name} is {value}, {side} {limit}"
        if condition.is_relative and before is not None:
            apart = f"{quantity.change(before, now)} on the baseline's {quantity.form(before)}"
            why += f" ({'as the baseline has' if before == now else apart})"
        return judged(outcome="fails", why=why)


def _value(cost: Cost, quantity: Quantity) -> float | None:
    return getattr(cost, quantity.name)


def check_same_task(baseline: Cost, now: Cost, *, file: str) -> None:
    """Raise an error if inputs or run options differ."""

    def inputs(cost: Cost) -> str:
        shown = (
            f"{f'{each.name}=' if each.name else ''}{format_shape(each.shape)}:{each.dtype.name}"
            for each in cost.inputs
        )
        return f"inputs {printable(', '.join(shown)) or 'none'}"

    for before, after, names in (
        (inputs(baseline), inputs(now), ("inputs", "batch", "seq")),
        # Different losses are noted only.
        (
            *(run_text(replace(each.run, loss="")) for each in (baseline, now)),
            ("train", "dtype", "autocast", "…"),
        ),
    ):
        if before != after:
            raise InputError(
                f"{printable(file)}: baseline has {before}, this run {after}; use equal options"
                f" ({', '.join(each if each == '…' else argument(each) for each in names)}), or"
                f" replace the baseline with {argument('update', True)}"
            )


def time_mismatch(baseline: Cost, now: Cost) -> str:
    """Return the reason why times are not comparable; ``""`` if they are."""
    before, after = baseline.machine, now.machine
    if after is None:
        return f"no machine; add {argument('hardware')}, or run `roofline measure`"
    if before is None:
        return f"the baseline has no times; replace it with {argument('update', True)}"
    if (before.name, before.device) != (after.name, after.device):
        return f"machine '{printable(after.name)}', but '{printable(before.name)}' in the baseline"
    if before.cpu_model != after.cpu_model:
        cpus = (printable(each.cpu_model or "unknown CPU") for each in (after, before))
        return "CPU '{}', but '{}' in the baseline".format(*cpus)
    if before.threads != after.threads:
        return f"{counted(after.threads, 'thread')}, but {before.threads} in the baseline"
    return ""


def differences(baseline: Cost, now: Cost) -> Iterable[str]:
    """Yield differences of names, machine, calibration and versions."""
    if baseline.model != now.model:
        yield f"model '{now.model}', but '{baseline.model}' in the baseline"
    if baseline.run.loss != now.run.loss:
        yield (
            f"loss '{now.run.loss or 'unknown'}', but '{baseline.run.loss or 'unknown'}' in the"
            " baseline"
        )
    before, after = baseline.machine, now.machine
    # Without a machine, another note has the reason.
    if after is not None:
        if apart := time_mismatch(baseline, now):
            yield f"times are not compared: {apart}"
        elif before is not None and before.date != after.date:
            yield (
                f"ceilings of '{after.name}' measured on {after.date or 'an unknown date'}, those"
                f" of the baseline on {before.date or 'an unknown date'}: minimum times may differ"
            )
    if baseline.predicted_s is not None and now.predicted_s is not None:
        old, new = baseline.calibration, now.calibration
        if old != new:
            yield f"predictions from {new}, but from {old} in the baseline"
    changed = [
        f"{name} {before} → {version}"
        for name, version in now.versions.items()
        if (before := baseline.versions.get(name, version)) != version
    ]
    if changed:
        yield (f"versions differ from the baseline, and can explain changes: {', '.join(changed)}")


def _unknown(quantity: Quantity, cost: Cost) -> str:
    if not quantity.is_time:
        return f"{counted(cost.unknown_operators, 'call')} of operators without a formula"
    if cost.machine is None:
        return f"no machine; add {argument('hardware')}, or run `roofline measure`"
    name = cost.machine.name
    if quantity.name != "predicted_s" and cost.eager_min_time_s is not None:
        return f"no {quantity.name}; replace the baseline with {argument('update', True)}"
    if quantity.name != "predicted_s":
        return f"machine '{name}' has no hardware ceilings"
    if cost.unknown_operators:
        return f"{counted(cost.unknown_operators, 'call')} of operators without a formula"
    if cost.run.train or cost.run.autocast:
        return f"{'training' if cost.run.train else 'autocast'} is not predicted"
    return f"no calibration for such a run on '{name}'; run `roofline calibrate` there"


def _apart(quantity: Quantity, value: float, limit: Fraction) -> tuple[str, str]:
    """Return value and limit as text, in full if equal after rounding."""
    short = quantity.form(value), quantity.form(float(limit))
    if short[0] != short[1]:
        return short
    # All digits of floating-point numbers.
    one, other = (
        f"{each.numerator:,}" if each.denominator == 1 else f"{float(each):,.17g}"
        for each in (Fraction(value), limit)
    )
    return one, other


_Changed = tuple[str, Part | None, Part | None]
"""Name with its parts in the baseline and now."""


def _changed(before: Sequence[Part], now: Sequence[Part]) -> list[_Changed]:
    """Return the changed parts, largest change of work first."""
    first = {each.name: each for each in before}
    second = {each.name: each for each in now}
    found = [
        (name, first.get(name), second.get(name))
        for name in dict.fromkeys((*second, *first))
        if first.get(name) != second.get(name)
    ]

    def distance(change: _Changed) -> int:
        """Return the larger change of FLOP and bytes."""
        old, new = ((each.flop or 0, each.traffic_bytes) if each else (0, 0) for each in change[1:])
        return max(abs(new[0] - old[0]), abs(new[1] - old[1]))

    return sorted(found, key=distance, reverse=True)


def _parts_table(title: str, changed: Sequence[_Changed]) -> Grid:
    def pair(form: Callable[[Part], str]) -> Callable[[_Changed], str]:
        def cell(change: _Changed) -> str:
            before, now = (each and form(each) for each in change[1:])
            return (now or MISSING) if before == now else f"{before or 'none'} → {now or 'none'}"

        return cell

    left = len(changed) - _MOST_PARTS
    columns: dict[str, str | Callable[[_Changed], str]] = {
        "": lambda each: each[0],
        "calls": pair(lambda each: str(each.calls)),
        "FLOP": pair(lambda each: format_flop(each.flop)),
        "traffic": pair(lambda each: format_bytes(each.traffic_bytes)),
    }
    sums = [(f"{left} more", "", "", "")] if left > 0 else []
    return table(title, changed[:_MOST_PARTS], columns, left=("",), sums=sums)


def _versions(cost: Cost) -> str:
    return ", ".join(f"{name} {version}" for name, version in cost.versions.items())
