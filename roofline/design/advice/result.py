"""Result of `advise`: findings with savings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from roofline.analysis import Analysis, Finding, fit_warnings
from roofline.analysis.words import (
    basis_text,
    headline_subject,
    location_text,
    machine_fact,
    model_fact,
    pass_s,
    run_fact,
    saving_text,
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
from roofline.core.text import counted
from roofline.core.units import MISSING, format_percent, format_s
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

    ``analysis`` is that of the unchanged model, with its ``findings``.
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
            return f"{model}: {nothing}, {kind} {format_s(whole)}"
        # Upper limits may be far from actual savings.
        best = next((each for each in hopeful if each.basis != "at most"), hopeful[0])
        hedge = {"at most": "at most ", "estimate": "about "}.get(best.basis, "")
        others = len(self.findings) - 1
        more = f", and {counted(others, 'more finding')}" if others else ""
        saved = f"saves {hedge}{format_s(best.saving_s)} of {format_s(whole)} ({kind})"
        return f"{model}: {best.rule} {saved}{more}"

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, findings with evidence and changes, and options without a gain."""
        analysis = self.analysis
        shown = self.findings[: view.rows()]
        yield KeyValueBlock(lines=tuple(_facts(analysis, view)))
        if shown:
            yield _grid(analysis, shown)
            why = (
                f"{number} · {each.evidence} ⇒ {each.change}" + f" ({each.note})" * bool(each.note)
                for number, each in enumerate(shown, 1)
            )
            yield from notes("Evidence ⇒ change", why)
        if left_out := len(self.findings) - len(shown):
            fewer = f"{counted(left_out, 'more finding')} (--top {len(self.findings)})"
            yield KeyValueBlock(lines=(("Not shown", fewer),))
        if self.tried:
            yield KeyValueBlock(lines=(("No gain", " · ".join(self.tried)),))
        warnings = (*fit_warnings(analysis), *analysis.warnings)
        yield from warning_notes(warnings, view)
        if analysis.hardware.host and not any(each.verdict for each in self.findings):
            yield from next_steps(view, "advise --measure MODEL")


def _facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield machine_fact(analysis, view)
    said = f"minimum {format_s(analysis.totals.eager_min_time_s)} (eager), no prediction"
    if prediction := analysis.prediction:
        low, high = format_s(prediction.low_s), format_s(prediction.high_s)
        middle = format_s(prediction.predicted_s)
        said = f"predicted {middle} (80 % interval {low} to {high})"
    yield "Time", said


def _grid(analysis: Analysis, findings: Sequence[Finding]) -> Grid:
    is_tried = any(each.verdict or each.note for each in findings)
    columns = (
        number_column("#"),
        Column(heading="finding", least=12),
        Column(heading="operators", drop_priority=2, least=12),
        *(
            number_column("saving"),
            number_column("share of pass", 3),
            Column(heading="basis", drop_priority=1, least=8),
        ),
        *((number_column("measured"), Column(heading="verdict")) * is_tried),
    )
    whole = pass_s(analysis)
    rows: list[tuple[str, ...]] = []
    for number, each in enumerate(findings, 1):
        saved = each.saving_s
        share = format_percent(saved / whole) if saved is not None and whole else MISSING
        cells = [str(number), each.rule, location_text(analysis, each), saving_text(each), share]
        cells.append(basis_text(each))
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
