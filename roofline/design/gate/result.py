"""A model's cost compared with a baseline: conditions, the verdict, and the report on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal

from roofline.analysis.words import run_text
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table
from roofline.core.conditions import Condition, Quantity, parse_conditions, share_of
from roofline.core.text import counted, printable
from roofline.core.units import MISSING, format_bytes, format_flop, format_shape
from roofline.design.gate.cost import QUANTITIES, Cost, Part
from roofline.errors import InputError, ThresholdError, argument
from roofline.result import Result

Outcome = Literal["fails", "not judged", "passes"]  # The worst first
_MOST_PARTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome of a condition on a total; ``why`` is its reason, ``""`` where it passes.

    A condition that cannot be judged counts as failed.
    """

    condition: str
    quantity: str
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
        """The change as a fraction of the baseline; None where that is not known, or was 0."""
        if self.before is None or self.now is None:
            return None
        if self.before == self.now:
            return 0.0
        return share_of(self.before, self.now)

    @property
    def change_words(self) -> str:
        """The change: ``"+1.2 %"``, in its unit where that is next to nothing."""
        if self.before is None or self.now is None:
            return MISSING
        if self.before == self.now:
            return "same"
        return self.quantity.change(self.before, self.now)

    @property
    def verdict(self) -> str:
        """The worst outcome of its conditions; ``""`` where it has none."""
        outcomes = [each.outcome for each in self.judgements]
        worst: tuple[Outcome, ...] = ("fails", "not judged", "passes")
        return next((each for each in worst if each in outcomes), "")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check(Result):
    """A model's cost compared with a baseline.

    Attributes:
        baseline: None where only absolute limits were given, or a first baseline is written.
        file: of the baseline.
        conditions: as ``--fail-if`` takes them.
        is_new: whether the baseline was written.
        notes: of the run.

    Raises:
        PlacedError: a condition that is none.
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
        """Every total that is known before or now, with its conditions."""
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
        """Names, values and changes of the totals, as JSON holds them."""
        names = ("name", "baseline", "now", "change")
        return [dict(zip(names, row, strict=False)) for row in self.rows()]

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """Outcomes of the conditions, in their order."""
        return tuple(map(self._judged, parse_conditions(self.conditions, QUANTITIES)))

    @property
    def failures(self) -> tuple[str, ...]:
        """Reasons of failure, a sentence for each condition; none where all pass."""
        return tuple(each.why for each in self.judgements if each.outcome != "passes")

    @property
    def passes(self) -> bool:
        """Whether no condition failed, and every one could be judged."""
        return not self.failures

    @property
    def changes(self) -> tuple[Line, ...]:
        """The totals that changed."""
        return tuple(
            each for each in self.lines if each.before is not None and each.before != each.now
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """Other differences from the baseline, then the notes."""
        found = differences(self.baseline, self.now) if self.baseline else ()
        return tuple(dict.fromkeys((*found, *self.notes)))

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        model, conditions = self.now.model, len(self.conditions)
        if failed := len(self.failures):
            return f"{model} fails {failed} of {counted(conditions, 'condition')}"
        verdict = f"{model} passes {counted(conditions, 'condition')}"
        if self.is_new:
            verdict = f"{model}: new baseline written"
        elif not conditions:
            verdict = f"{model}: no conditions (--fail-if)"
        if self.baseline is None:
            return verdict
        changed = len(self.changes)
        return f"{verdict}; {counted(changed, 'total') if changed else 'no total'} changed"

    def raise_if_failed(self) -> None:
        """Raise an error where a condition fails.

        Raises:
            ThresholdError: naming all that fail.
        """
        if self.failures:
            raise ThresholdError(f"{argument('fail_if')}: {'; '.join(self.failures)}")

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each total."""
        for each in self.lines:
            yield [each.quantity.name, each.before, each.now, each.change, each.verdict]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return totals, failures, changed operator types and modules, facts and notes."""
        del view
        yield self._totals_table()
        yield from notes("Failed", self.failures, urgent=True)
        if self.baseline is not None:
            for title, before, now in (
                ("Types of operators that changed", self.baseline.types, self.now.types),
                ("Modules that changed", self.baseline.modules, self.now.modules),
            ):
                if changed := _changed(before, now):
                    yield _parts_table(title, changed)
        yield KeyValueBlock(lines=tuple(self._facts()))
        yield from notes("Notes", self.differences)

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
        return table("", self.lines, columns, left=("total", "fails if", "verdict"))

    def _facts(self) -> Iterable[tuple[str, str]]:
        now = self.now
        shapes = ", ".join(format_shape(each.shape) for each in now.inputs)
        yield "Model", f"{now.model}{f' · {shapes}' if shapes else ''}"
        yield "Run", run_text(now.run)
        if now.machine is not None:
            yield "Hardware", now.machine.words
        if (cost := self.baseline) is not None:
            when = f"of {cost.date[:10]}" if cost.date else ""
            machine = cost.machine.words if cost.machine else "counts only"
            yield "Baseline", " · ".join(filter(None, (self.file, when, machine, _versions(cost))))
        if now.versions:
            yield "Counted by", _versions(now)

    def _before(self, quantity: Quantity) -> float | None:
        """Return a total of the baseline; None where unknown, or a time of another machine."""
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
                missing = f"there is no baseline to compare with; give one: {argument('against')}"
            else:
                apart = time_mismatch(self.baseline, self.now) if quantity.is_time else ""
                missing = apart or f"in the baseline {_unknown(quantity, self.baseline)}"
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
    """Refuse costs of another task: other inputs, or run in another way."""

    def inputs(cost: Cost) -> str:
        shown = (
            f"{f'{each.name}=' if each.name else ''}{format_shape(each.shape)}:{each.dtype.name}"
            for each in cost.inputs
        )
        return f"inputs {printable(', '.join(shown)) or 'none'}"

    for before, after, names in (
        (inputs(baseline), inputs(now), ("inputs", "batch", "seq")),
        # Another loss is said, and is no other task.
        (
            *(run_text(replace(each.run, loss="")) for each in (baseline, now)),
            ("train", "dtype", "autocast", "…"),
        ),
    ):
        if before != after:
            raise InputError(
                f"{printable(file)}: is of {before}, and this is of {after}; ask for the same"
                f" ({', '.join(each if each == '…' else argument(each) for each in names)}), or"
                f" write a new baseline with {argument('update', True)}"
            )


def time_mismatch(baseline: Cost, now: Cost) -> str:
    """Why their times cannot be compared, in words; ``""`` if they can."""
    before, after = baseline.machine, now.machine
    if after is None:
        return (
            f"no machine was asked for; add {argument('hardware')}, or measure this one:"
            " roofline measure"
        )
    if before is None:
        return f"the baseline has no times; write it again with {argument('update', True)}"
    if (before.name, before.device) != (after.name, after.device):
        return (
            f"the baseline is of machine '{printable(before.name)}', and this is"
            f" '{printable(after.name)}'"
        )
    if before.cpu_model != after.cpu_model:
        cpus = (printable(each.cpu_model or "CPU that is not named") for each in (before, after))
        return "the baseline is of a '{}', and this is a '{}'".format(*cpus)
    if before.threads != after.threads:
        return f"the baseline is of {before.threads} threads, and this is of {after.threads}"
    return ""


def differences(baseline: Cost, now: Cost) -> Iterable[str]:
    """What else is not the same, a line each: names, machine, its date, calibration, versions."""
    if baseline.model != now.model:
        yield f"the baseline is of '{baseline.model}', and this is '{now.model}'"
    if baseline.run.loss != now.run.loss:
        yield (
            f"the baseline's loss is {baseline.run.loss or 'not named'}, and this one's is"
            f" {now.run.loss or 'not named'}"
        )
    before, after = baseline.machine, now.machine
    # Where counts alone are asked for, whoever counts says why.
    if after is not None:
        if apart := time_mismatch(baseline, now):
            yield f"times are not compared: {apart}"
        elif before is not None and before.date != after.date:
            yield (
                f"machine '{after.name}' was measured on {after.date or 'no known day'},"
                f" for the baseline on {before.date or 'no known day'}: its bounds move"
                " with the ceilings"
            )
    if baseline.predicted_s is not None and now.predicted_s is not None:
        old, new = baseline.calibration, now.calibration
        if old != new:
            yield f"predictions were learned from {old}, and now from {new}"
    changed = [
        f"{name} {before} → {version}"
        for name, version in now.versions.items()
        if (before := baseline.versions.get(name, version)) != version
    ]
    if changed:
        yield (
            f"counted by other versions than the baseline: {', '.join(changed)}; what changed may"
            " be theirs"
        )


def _unknown(quantity: Quantity, cost: Cost) -> str:
    if not quantity.is_time:
        return f"{counted(cost.unknown_operators, 'call')} of operators have no formula"
    if cost.machine is None:
        return f"no machine was given ({argument('hardware')}, or `roofline measure` for this one)"
    name = cost.machine.name
    if quantity.name != "predicted_s" and cost.eager_min_time_s is not None:
        return f"there is no {quantity.name}; write it again with {argument('update', True)}"
    if quantity.name != "predicted_s":
        return f"machine '{name}' has no hardware ceilings"
    if cost.run.train or cost.run.autocast:
        return f"{'training' if cost.run.train else 'autocast'} is not predicted"
    return f"no calibration covers such a run on '{name}' (`roofline calibrate`, run there)"


def _apart(quantity: Quantity, value: float, limit: Fraction) -> tuple[str, str]:
    """Return value and limit in words; in full where rounded they would look the same."""
    short = quantity.form(value), quantity.form(float(limit))
    if short[0] != short[1]:
        return short
    # Of fractions, as many digits as floating-point numbers have.
    one, other = (
        f"{each.numerator:,}" if each.denominator == 1 else f"{float(each):,.17g}"
        for each in (Fraction(value), limit)
    )
    return one, other


_Changed = tuple[str, Part | None, Part | None]
"""A name, with its part of the baseline and of the cost now."""


def _changed(before: Sequence[Part], now: Sequence[Part]) -> list[_Changed]:
    """Return the parts that changed, those whose work changed most first."""
    first = {each.name: each for each in before}
    second = {each.name: each for each in now}
    found = [
        (name, first.get(name), second.get(name))
        for name in dict.fromkeys((*second, *first))
        if first.get(name) != second.get(name)
    ]

    def distance(change: _Changed) -> int:
        """The change of work in FLOP, or bytes where FLOP did not change."""
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
