"""What the report on advice says: the verdict, the findings, and what was tried without gain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Literal

from roofline.analysis import Analysis, Finding, fit_warnings
from roofline.analysis.facts import model_fact, run_fact, what_runs
from roofline.analysis.words import hardware_fact
from roofline.design.advice import Advice
from roofline.design.advice.result import FRAME_COLUMNS
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.files import write_atomically
from roofline.foundation.rows import csv_text, fields_of
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_percent, format_s
from roofline.presentation.formats import check_files, check_suffix_among
from roofline.presentation.reports.advice_lines import (
    basis_words,
    names_of,
    pass_s,
    saving_text,
)
from roofline.render.markdown import report_markdown
from roofline.render.pages import report_html

Format = Literal["json", "csv", "md", "html"]

FORMATS: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "md", ".html": "html"}
"""What advice is written as, by suffix."""

DEFAULT_TOP = 10


def advice_report(advice: Advice, *, top: int | None = None, today: date | None = None) -> Report:
    """The report on advice, that which saves most first.

    Args:
        advice: what was found.
        top: how many findings; None: 10.
        today: for the hardware's age; None gives dates alone.
    """
    analysis = advice.analysis
    shown = advice.findings[: top or DEFAULT_TOP]
    blocks: list[Block] = [Facts(lines=tuple(_facts(analysis, today)))]
    if shown:
        blocks.append(_grid(analysis, shown))
        blocks.append(
            Notes(
                title="Why, and what to change",
                lines=tuple(_why(number, each) for number, each in enumerate(shown, 1)),
                urgent=False,
            )
        )
    left_out = len(advice.findings) - len(shown)
    if left_out:
        fewer = f"{counted(left_out, 'more finding')} (--top {len(advice.findings)})"
        blocks.append(Facts(lines=(("Not shown", fewer),)))
    if advice.tried:
        tried = "; ".join(map(printable, advice.tried))
        blocks.append(Facts(lines=(("Also looked at", tried),)))
    warnings = (*fit_warnings(analysis), *analysis.warnings)
    if warnings:
        blocks.append(Notes(title="Warnings", lines=tuple(map(printable, warnings))))
    return Report(headline=headline(advice), blocks=tuple(blocks))


def headline(advice: Advice) -> str:
    """The verdict: what the best finding saves of a pass, or that there is none."""
    analysis = advice.analysis
    model, whole = what_runs(analysis), pass_s(analysis)
    if whole is None:
        return f"{model}: nobody can say what a pass takes on {printable(analysis.hardware.name)}"
    of = format_s(whole) if analysis.prediction else f"its bound of {format_s(whole)}"
    confirmed = [each for each in advice.findings if each.verdict == "confirmed"]
    if confirmed:
        best = max(confirmed, key=lambda each: each.measured_saving_s or 0.0)
        saved = format_s(best.measured_saving_s)
        before = format_s(best.measured_before_s)
        if best.operators and best.note:
            # Its operators were timed on their own, and nobody ran the model so.
            return (
                f"{model}: {best.rule} would save {saved} of the {before} that its operators"
                " took when they were timed on their own"
            )
        return f"{model} saved {saved} of {before} when it was tried: {best.rule}"
    hopeful = [
        each for each in advice.findings if each.verdict is None and (each.saving_s or 0) > 0
    ]
    if not hopeful:
        nothing = "nothing was found" if not advice.findings else "no finding was confirmed"
        least = "" if analysis.prediction else "at least "
        return f"{model} takes {least}{format_s(whole)}: {nothing} that would save time"
    # What there is at most may be far from what there is to be had.
    best = next((each for each in hopeful if each.basis != "at most"), hopeful[0])
    hedge = {"at most": "at most ", "estimate": "about "}.get(best.basis, "")
    others = len(advice.findings) - 1
    more = f", and {counted(others, 'more finding')}" if others else ""
    return f"{model} could save {hedge}{format_s(best.saving_s)} of {of}: {best.rule}{more}"


def _facts(analysis: Analysis, today: date | None) -> list[tuple[str, str]]:
    facts = [model_fact(analysis), *run_fact(analysis), hardware_fact(analysis, today)]
    prediction = analysis.prediction
    if prediction:
        low, high = format_s(prediction.low_s), format_s(prediction.high_s)
        said = f"{format_s(prediction.predicted_s)} predicted ({low} to {high})"
    else:
        said = f"{format_s(analysis.totals.eager_min_time_s)} at least; nothing is predicted here"
    return [*facts, ("Pass", said)]


def _grid(analysis: Analysis, findings: Sequence[Finding]) -> Grid:
    is_tried = any(each.verdict or each.note for each in findings)
    columns = (
        Column(heading="#", align="right"),
        Column(heading="finding", least=12),
        Column(heading="where", sacrifice=2, least=12),
        Column(heading="saves", align="right"),
        Column(heading="of the pass", align="right", sacrifice=3),
        Column(heading="that is", sacrifice=1, least=8),
        *((Column(heading="measured", align="right"), Column(heading="verdict")) * is_tried),
    )
    whole = pass_s(analysis)
    rows: list[tuple[str, ...]] = []
    for number, each in enumerate(findings, 1):
        saved = each.saving_s
        share = format_percent(saved / whole) if saved is not None and whole else MISSING
        cells = [str(number), each.rule, names_of(analysis, each), saving_text(each), share]
        cells.append(basis_words(each))
        if is_tried:
            cells += [_measured(each), each.verdict or "not tried"]
        rows.append(tuple(cells))
    # A batch norm that is folded cannot be faster in another type as well.
    title = "Findings" + ", each on its own: savings do not add up" * (len(findings) > 1)
    return Grid(title=title, columns=columns, rows=tuple(rows))


def _measured(finding: Finding) -> str:
    """What trying it saved: ``"1.3 ms of 8.9 ms (0.9 … 1.6 ms)"``."""
    saved, before = finding.measured_saving_s, finding.measured_before_s
    if saved is None or before is None:
        return MISSING
    low, high = _signed(finding.measured_low_s or 0.0), _signed(finding.measured_high_s or 0.0)
    return f"{_signed(saved)} of {format_s(before)} ({low} … {high})"


def _signed(seconds: float) -> str:
    return format_s(seconds) if seconds >= 0 else f"-{format_s(-seconds)}"


def _why(number: int, finding: Finding) -> str:
    note = f" ({finding.note})" if finding.note else ""
    return printable(f"{number} · {finding.evidence} ⇒ {finding.change}{note}")


def advice_html(advice: Advice) -> str:
    """The advice as one HTML element for notebooks; everything is escaped."""
    return report_html(advice_report(advice))


def advice_csv(advice: Advice) -> str:
    """One line a finding, the columns of `Advice.to_frame`; what is unknown is empty, never 0."""
    return csv_text(FRAME_COLUMNS, fields_of(FRAME_COLUMNS, advice.findings))


def render_advice(advice: Advice, format: Format, *, top: int | None = None) -> str:
    """The advice as text in a format; ``json`` and ``csv`` have all findings."""
    match format:
        case "json":
            return advice.to_json()
        case "csv":
            return advice_csv(advice)
        case "md":
            return report_markdown(advice_report(advice, top=top))
        case "html":
            report = advice_report(advice, top=top)
            return _PAGE.format(body=report_html(report))


_PAGE = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="color-scheme" content="light dark">\n<title>Advice</title>\n</head>\n'
    '<body style="font-family: system-ui, sans-serif; margin: 2em auto; max-width: 75em">\n'
    "{body}\n</body>\n</html>\n"
)


def check_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, files that could not be written in the end.

    Raises:
        InputError: an unknown suffix, or as `check_files`.
    """
    check_format = partial(check_suffix_among, suffixes=FORMATS, what="advice")
    check_files(paths, check_format, overwrite=overwrite)


def write_advice(
    advice: Advice, paths: Sequence[Path], *, top: int | None = None, overwrite: bool = False
) -> None:
    """Writes the advice to each of `paths`, in the format of its suffix.

    Raises:
        InputError: as `check_targets`, or the disk refuses.
    """
    check_targets(paths, overwrite=overwrite)
    texts = [render_advice(advice, FORMATS[path.suffix.lower()], top=top) for path in paths]
    for path, text in zip(paths, texts, strict=True):
        write_atomically(path, text, overwrite=overwrite)
