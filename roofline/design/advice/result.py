"""Result of `advise`: findings with savings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from roofline.analysis import (
    LIMITS,
    MINIMUMS,
    Analysis,
    Finding,
    OperatorRow,
    fit_warnings,
    working,
)
from roofline.analysis.report import measurement_warnings
from roofline.analysis.tables import TITLES, group_identical_calls
from roofline.analysis.words import (
    base_s,
    basis_text,
    headline_subject,
    is_of_pass,
    kind_of_time,
    location_text,
    machine_fact,
    model_fact,
    module_of,
    modules_of,
    pass_s,
    run_fact,
    saved_share,
    saved_share_text,
    saving_text,
    sum_s,
    whole_s,
    why_not_predicted,
)
from roofline.core import files
from roofline.core.blocks import (
    Block,
    Column,
    Grid,
    KeyValueBlock,
    View,
    next_steps,
    notes,
    number_column,
    warning_notes,
)
from roofline.core.rows import fields_of
from roofline.core.text import counted, printable
from roofline.core.units import MISSING, format_percent, format_s
from roofline.errors import argument
from roofline.machine.roof import ceiling_text
from roofline.result import Result, read_result

_NAMES = (
    *(each.name for each in fields(Finding)[:5]),
    *("predicted_before_s", "predicted_after_s", "saving_s", "saving_low_s", "saving_high_s"),
    *("measured_before_s", "measured_after_s", "measured_saving_s"),
    *("measured_low_s", "measured_high_s", "verdict", "note"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Result):
    """Findings on a model; ``tried`` are run options without a gain, as text.

    ``analysis`` is that of the unchanged model, with its ``findings``. ``judged`` is the number of
    operator rules that could judge it (0: unknown), ``unjudged`` the names of those that need
    predictions.
    """

    kind: ClassVar = "advice"
    made_by: ClassVar = "roofline advise MODEL -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        name: "Float64" if name.endswith("_s") else "object" if name == "operators" else "string"
        for name in _NAMES
    }

    analysis: Analysis
    tried: tuple[str, ...] = ()
    judged: int = 0
    unjudged: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings, largest predicted saving first."""
        return self.analysis.findings

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of the analysis."""
        return self.analysis.contradictions()

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per finding."""
        return fields_of(self.columns, self.findings)

    @property
    def summary(self) -> str:
        """Verdict: the best finding and its saving."""
        analysis = self.analysis
        model, whole = headline_subject(analysis), pass_s(analysis)
        if whole is None:
            return f"{model}: no times on {analysis.hardware.name} (no ceilings)"
        kind = "predicted" if analysis.prediction else "minimum"
        confirmed = [each for each in self.findings if each.verdict == "confirmed"]
        if confirmed:
            best = max(confirmed, key=lambda each: each.measured_saving_s or 0.0)
            saved = format_s(best.measured_saving_s)
            before = format_s(best.measured_before_s)
            if best.operators and best.note:
                # Its operators were timed alone, not the changed model.
                return (
                    f"{model}: {best.rule} saves {saved} of {before} (measured, operators timed"
                    " alone)"
                )
            return f"{model}: {best.rule} saves {saved} of {before} (measured)"
        hopeful = [
            each for each in self.findings if each.verdict is None and (each.saving_s or 0) > 0
        ]
        if not hopeful:
            nothing = "no finding" if not self.findings else "no finding confirmed"
            if self.unjudged:
                nothing += f" among {counted(self.judged, 'rule')}"
                nothing += f" ({len(self.unjudged)} need predictions)"
            return f"{model}: {nothing}, {kind} {format_s(whole)}"
        # Upper limits and minimum times may be far from actual savings.
        hedged = (*LIMITS, *MINIMUMS)
        best = next((each for each in hopeful if each.basis not in hedged), hopeful[0])
        texts = {best.rule: _saving(analysis, best)}
        largest = max(hopeful, key=lambda each: each.saving_s or 0.0)
        if largest.basis in LIMITS:
            texts.setdefault(largest.rule, _saving(analysis, largest))
        others = len(self.findings) - len(texts)
        more = f", and {counted(others, 'more finding')}" if others else ""
        return f"{model}: {'; '.join(f'{rule} {saving}' for rule, saving in texts.items())}{more}"

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, longest layers, findings with evidence and changes, and other options."""
        analysis = self.analysis
        shown = self.findings[: view.rows()]
        yield KeyValueBlock(lines=tuple(_facts(analysis, view)))
        if working(analysis.operators):
            yield _layers(analysis)
            yield from self._long_layer()
        if shown:
            yield _grid(analysis, shown)
            why = (
                f"{number} · {each.evidence} ⇒ {each.change}" + f" ({each.note})" * bool(each.note)
                for number, each in enumerate(shown, 1)
            )
            yield from notes("Evidence ⇒ change", why)
        if left_out := len(self.findings) - len(shown):
            fewer = f"{counted(left_out, 'more finding')} ({argument('top', len(self.findings))})"
            yield KeyValueBlock(lines=(("Not shown", fewer),))
        if self.tried:
            yield from notes("Without a finding", self.tried)
        yield from self._not_judged(view)
        disturbed = measurement_warnings(analysis)
        warnings = (*fit_warnings(analysis), *analysis.warnings, *disturbed)
        yield from warning_notes(warnings, view)
        if analysis.hardware.host and not any(each.verdict for each in self.findings):
            yield from next_steps(view, "advise --measure MODEL")

    def _long_layer(self) -> Iterable[Block]:
        """Yield the remedy for one layer with most of the time, if no rule found one."""
        analysis = self.analysis
        kind, every = kind_of_time(analysis), working(analysis.operators)
        of_s = max(sum_s(every, kind), whole_s(analysis, kind) or 0.0)
        rows = group_identical_calls(analysis, kind)[0]
        share = sum_s(rows, kind) / of_s if of_s else 0.0
        if share > _MOST and not any(each.operators for each in self.findings):
            line = (
                f"{module_of(rows[0])}: {format_percent(share)} of the time; compare other designs"
                " of it with `roofline compare` (docs/how-to/comparing.md)"
            )
            yield KeyValueBlock(lines=(("To try", line),))

    def _not_judged(self, view: View) -> Iterable[Block]:
        """Yield the rules that need predictions, and the commands that give them."""
        if not self.unjudged:
            return
        lines = [f"{', '.join(self.unjudged)}: need predictions"]
        if self.analysis.hardware.host:
            model = view.arguments or "MODEL"
            lines[0] += " (`roofline calibrate`)"
            profile = f"roofline profile {model} -o p.json; roofline advise p.json"
            lines.append(f"measured times suffice for most of them: {profile}")
        yield from notes("Rules not judged", lines)


def _facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield machine_fact(analysis, view)
    times = [f"minimum {format_s(analysis.totals.eager_min_time_s)} (eager)"]
    if measurement := analysis.measurement:
        times.insert(0, f"measured {format_s(measurement.measured_s)}")
    if prediction := analysis.prediction:
        low, high = format_s(prediction.low_s), format_s(prediction.high_s)
        middle = format_s(prediction.predicted_s)
        times.insert(0, f"predicted {middle} (80 % interval {low} to {high})")
    elif not measurement:
        reason = analysis.not_predicted or why_not_predicted(analysis)
        is_tried = any(each.verdict for each in analysis.findings)
        which = "no predicted times" if is_tried else "all times are minimum times"
        times.append(f"{which}: {printable(reason)}")
    yield "Time", " · ".join(times)


def _saving(analysis: Analysis, finding: Finding) -> str:
    """Return the saving of a finding as the end of a sentence, with its kind."""
    if not is_of_pass(analysis, finding):
        share = format_percent(saved_share(analysis, finding))
        return f"saves up to {share} ({basis_text(finding)})"
    of = f"of {format_s(base_s(analysis, finding))} ({basis_text(finding)})"
    if finding.basis in MINIMUMS and not finding.operators:
        return f"saves up to {format_percent(saved_share(analysis, finding))} {of}"
    hedge = {**dict.fromkeys(LIMITS, "at most "), "estimate": "about "}.get(finding.basis, "")
    return f"saves {hedge}{format_s(finding.saving_s)} {of}"


_LAYERS = 5

_MOST = 0.5
"""Share of the time of a layer above which it is the one to change."""


def _layers(analysis: Analysis) -> Grid:
    """Return the table of the layers with the longest times, equal calls together."""
    kind, every = kind_of_time(analysis), working(analysis.operators)
    operators_s = sum_s(every, kind)
    of_s = max(operators_s, whole_s(analysis, kind) or 0.0)

    def share(time_s: float) -> str:
        return format_percent(time_s / of_s if of_s else None)

    def times(rows: Sequence[OperatorRow]) -> tuple[str, str, str]:
        time_s = sum_s(rows, kind)
        reached = format_percent(sum_s(rows, "bound") / time_s if time_s else None)
        return format_s(time_s or None), share(time_s), reached

    def line(rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        first = rows[0]
        limiter = f"{first.bound}: {ceiling_text(first.ceiling)}" if first.ceiling else MISSING
        return modules_of(rows), f"{len(rows)}", *times(rows), limiter, printable(first.type)

    found = group_identical_calls(analysis, kind)
    lines = [line(rows) for rows in found[:_LAYERS]]
    sums: list[tuple[str, ...]] = []
    if others := [row for rows in found[_LAYERS:] for row in rows]:
        sums.append(("other layers", f"{len(others)}", *times(others), "", ""))
    if (overhead_s := of_s - operators_s) > 0 and kind != "bound":
        is_faulting = (
            kind == "predicted" and analysis.prediction and analysis.prediction.page_faults
        )
        name = "overhead and page faults" if is_faulting else "overhead"
        sums.append((name, "", format_s(overhead_s), share(overhead_s), "", "", ""))
    columns = (
        Column(heading="layer", least=24, cut="start"),
        number_column("calls"),
        *map(number_column, ("time", "share", "of ceiling")),
        Column(heading="limiter", least=16),
        Column(heading="type", drop_priority=1, least=8),
    )
    # A minimum time is that of the ceiling.
    kept = [place for place in range(len(columns)) if kind != "bound" or place != _OF_CEILING]
    return Grid(
        title=f"Longest layers by {TITLES[kind]} (totals over equal calls)",
        columns=tuple(columns[place] for place in kept),
        rows=tuple(tuple(each[place] for place in kept) for each in lines),
        sums=tuple(tuple(each[place] for place in kept) for each in sums),
    )


_OF_CEILING = 4  # Column


def _grid(analysis: Analysis, findings: Sequence[Finding]) -> Grid:
    is_tried = any(each.verdict or each.note for each in findings)
    columns = (
        number_column("#"),
        Column(heading="finding", least=12),
        Column(heading="layers", drop_priority=2, least=12),
        *(
            number_column("saving"),
            number_column("of pass", 3),
            Column(heading="kind", drop_priority=1, least=9),
        ),
        *((number_column("measured"), Column(heading="verdict")) * is_tried),
    )
    rows: list[tuple[str, ...]] = []
    for number, each in enumerate(findings, 1):
        share = saved_share_text(analysis, each)
        cells = [str(number), each.rule, location_text(analysis, each)]
        cells += [saving_text(analysis, each), share, basis_text(each)]
        if is_tried:
            cells += [_measured(each), each.verdict or "not tried"]
        rows.append(tuple(cells))
    # Savings of one operator overlap.
    title = "Findings by saving" + " (savings do not add up)" * (len(findings) > 1)
    return Grid(title=title, columns=columns, rows=tuple(rows))


def _measured(finding: Finding) -> str:
    saved, before = finding.measured_saving_s, finding.measured_before_s
    if saved is None or before is None:
        return MISSING
    low, high = _signed(finding.measured_low_s or 0.0), _signed(finding.measured_high_s or 0.0)
    return f"{_signed(saved)} of {format_s(before)} ({low} … {high})"


def _signed(seconds: float) -> str:
    return format_s(seconds) if seconds >= 0 else f"-{format_s(-seconds)}"


def read_advice(path: str | Path) -> Advice:
    """Return the advice saved in a JSON file, or the findings of an analysis saved there."""
    found = read_result(path)
    if isinstance(found, Analysis):
        return Advice(analysis=found)
    if not isinstance(found, Advice):
        fix = f"make it again with `{Advice.made_by}`"
        raise files.refused(str(path), f"is of kind '{found.kind}', not advice", fix)
    return found
