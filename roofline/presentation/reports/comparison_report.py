"""What `roofline compare` says, as plain data, and the formats it is written in."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from roofline.analysis import Run
from roofline.design.comparison import Comparison
from roofline.design.model_quantities import Quantity
from roofline.design.pass_times import DIGITS
from roofline.errors import InputError, nearest
from roofline.foundation.units import MISSING, format_percent, format_shape
from roofline.machine.hardware import describe_threads
from roofline.presentation.markdown import report_markdown
from roofline.presentation.page import report_html
from roofline.presentation.reports.report import Block, Column, Grid, Notes, Report, printable
from roofline.presentation.reports.time_columns import prediction_cell
from roofline.presentation.reports.work_facts import run_words

_WHAT_A_BOUND_IS = (
    "A bound is what no run can beat, not what a run takes: real kernels come closer to it for one"
    " design than for another"
)

_TIMES = ("predicted_s", "measured_s")
"""The quantities that not every analysis knows."""

COMPARISON_FORMATS = (".json", ".csv", ".md")


def comparison_report(comparison: Comparison) -> Report:
    """The report on a comparison: quantities side by side, what binds each, and what follows."""
    names = tuple(printable(name) for name in comparison.names)
    others = [i for i in range(len(names)) if i != comparison.reference]
    base = names[comparison.reference]
    columns = (
        Column(heading=""),
        *(Column(heading=name, align="right") for name in names),
        *(Column(heading=f"{names[i]} / {base}", align="right", sacrifice=1) for i in others),
    )
    rows = [
        (quantity.title, *_cells(comparison, quantity), *_ratio_cells(comparison, quantity, others))
        for quantity in comparison.quantities
        # Of times that nobody knows there is no row; what is not predicted is said below.
        if quantity.name not in _TIMES or any(each is not None for each in quantity.values)
    ]
    given = [
        ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs)
        for analysis in comparison.analyses
    ]
    rows.insert(0, ("input", *given, *("" for _ in others)))
    if any(each.run != Run() for each in comparison.analyses):
        runs = map(run_words, (each.run for each in comparison.analyses))
        rows.insert(1, ("run", *runs, *("" for _ in others)))
    most = max(len(each.shares) for each in comparison.ceilings)
    for rank in range(min(most, 3)):
        cells = [
            f"{each.shares[rank][0]} {format_percent(each.shares[rank][1])}"
            if rank < len(each.shares)
            else MISSING
            for each in comparison.ceilings
        ]
        rows.append(("bound by" if rank == 0 else "", *cells, *("" for _ in others)))
    blocks: list[Block] = [Grid(title="", columns=columns, rows=tuple(rows))]
    blocks.append(
        Notes(
            title="In short",
            lines=(
                *map(printable, (*comparison.sentences, *comparison.provenance)),
                _WHAT_A_BOUND_IS,
            ),
            urgent=False,
        )
    )
    said = (line for each in comparison.analyses for line in each.warnings)
    warnings = dict.fromkeys(map(printable, (*comparison.notes, *said)))
    if warnings:
        blocks.append(Notes(title="Warnings", lines=tuple(warnings)))
    first = comparison.analyses[0]
    threads = describe_threads(first.hardware, first.threads)
    # A device computes as a whole: there is nothing to say.
    how = f" with {threads}" if first.hardware.has_threads else ""
    return Report(
        headline=f"{' against '.join((base, *(names[i] for i in others)))} on"
        f" {printable(first.hardware.name)}{how}, {first.cache} caches",
        blocks=tuple(blocks),
    )


def _cells(comparison: Comparison, quantity: Quantity) -> tuple[str, ...]:
    """A quantity of every model; predictions with their intervals, or that there is none."""
    if quantity.name != "predicted_s":
        return quantity.text
    return tuple(
        prediction_cell(value, interval, each.totals.bound_s)
        for value, interval, each in zip(
            quantity.values, comparison.intervals_s, comparison.analyses, strict=True
        )
    )


def _ratio_cells(
    comparison: Comparison, quantity: Quantity, others: Sequence[int]
) -> tuple[str, ...]:
    digits = DIGITS if quantity.name in _TIMES else 3
    ratios = comparison.ratios(quantity)
    return tuple(
        # Without exponents, which `g` alone takes for what has more places than digits.
        MISSING if (ratio := ratios[i]) is None else f"{float(f'{ratio:.{digits}g}'):g}"
        for i in others
    )


def comparison_html(comparison: Comparison) -> str:
    """The comparison as a self-contained HTML fragment for notebooks."""
    return report_html(comparison_report(comparison))


def comparison_csv(comparison: Comparison) -> str:
    """One row a model: every quantity with its unit in the name, and its ratio to the reference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ["model"]
    for quantity in comparison.quantities:
        header += [quantity.name, f"{quantity.name}_ratio"]
    writer.writerow([*header, *comparison.interval_columns, "ceiling"])
    for i, name in enumerate(comparison.names):
        row: list[object] = [name]
        for quantity in comparison.quantities:
            row += [quantity.values[i], comparison.ratios(quantity)[i]]
        row += [values[i] for values in comparison.interval_columns.values()]
        shares = comparison.ceilings[i].shares
        writer.writerow([*row, shares[0][0] if shares else None])
    return text.getvalue()


def check_suffix(path: Path) -> None:
    """Refuses a file whose suffix is none of `COMPARISON_FORMATS`.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    suffix = path.suffix.lower()
    if suffix not in COMPARISON_FORMATS:
        raise InputError(
            f"{path}: a comparison is written as {', '.join(COMPARISON_FORMATS)}"
            f"{nearest(suffix, COMPARISON_FORMATS)}"
        )


def render_comparison(comparison: Comparison, path: Path) -> str:
    """The comparison in the format that the suffix of `path` chooses."""
    match path.suffix.lower():
        case ".json":
            return comparison.to_json()
        case ".csv":
            return comparison_csv(comparison)
        case _:
            return report_markdown(comparison_report(comparison))
