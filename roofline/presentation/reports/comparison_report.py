"""What `roofline compare` says, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis import Run
from roofline.analysis.words import fit_cell, run_words
from roofline.design.model_comparison.data import TIMES, csv_of, rows_of
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.quantities import Quantity
from roofline.design.model_comparison.result import Comparison
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_percent, format_shape
from roofline.machine.hardware import describe_threads
from roofline.presentation.reports.comparison_labels import grid_with_letters, with_letters
from roofline.presentation.reports.comparison_models import (
    cells_of,
    is_shown,
    machines_grid,
    models_grid,
    ratio_cell,
)
from roofline.presentation.reports.comparison_tables import CompareView, aligned_grid
from roofline.render.pages import report_html

_WHAT_A_BOUND_IS = (
    "A bound is the eager minimum, which no run operator by operator beats: real kernels come"
    " closer to it for one design than for another"
)

_OF_THE_MODEL = ("flop", "macs", "parameters", "parameter_size_bytes", "traffic_bytes")
_OF_ANY_MACHINE = (*_OF_THE_MODEL, "peak_memory_bytes", "intensity_flop_per_byte")
"""The quantities that are the same on every machine."""

_MOST_COLUMNS = 3
"""Of more models than these, each has a row instead of a column."""


def report_of_comparison(
    comparison: Comparison | ComparisonGrid, view: CompareView | None = None
) -> Report:
    """The report on models on one machine or on several."""
    if isinstance(comparison, ComparisonGrid):
        return grid_report(comparison, view)
    return comparison_report(comparison, view)


def comparison_report(comparison: Comparison, view: CompareView | None = None) -> Report:
    """The report on a comparison: quantities, what binds each, modules, and what follows."""
    view = view or CompareView()
    comparison, legend = with_letters(comparison)
    many = len(comparison.names) > _MOST_COLUMNS
    blocks: list[Block] = [Facts(lines=legend)] if legend else []
    blocks.append(models_grid(comparison) if many else _quantities(comparison))
    table = aligned_grid(comparison, view)
    if table is not None:
        blocks.append(table)
    knows_bounds = any(each.totals.eager_min_time_s is not None for each in comparison.analyses)
    blocks.append(
        Notes(
            title="In short",
            lines=(
                *map(printable, (*comparison.sentences, *comparison.provenance)),
                *((_WHAT_A_BOUND_IS,) if knows_bounds else ()),
            ),
            urgent=False,
        )
    )
    blocks += _warnings(comparison.notes, [comparison])
    first = comparison.analyses[0]
    threads = {each.threads for each in comparison.analyses}
    # A device computes as a whole: there is nothing to say.
    how = ""
    if first.hardware.has_threads and len(threads) == 1:
        how = f" with {describe_threads(first.hardware, first.threads)}"
    return Report(
        headline=f"{_against(comparison)} on {printable(first.hardware.name)}{how},"
        f" {first.cache} caches",
        blocks=tuple(blocks),
    )


def grid_report(grid: ComparisonGrid, view: CompareView | None = None) -> Report:
    """The report on models on several machines: who wins where, then each machine's numbers."""
    view = view or CompareView()
    grid, legend = grid_with_letters(grid)
    first = grid.comparisons[0]
    many = len(first.names) > _MOST_COLUMNS
    blocks: list[Block] = [Facts(lines=legend)] if legend else []
    blocks += [
        machines_grid(grid),
        models_grid(first, only=_OF_ANY_MACHINE)
        if many
        else _quantities(first, only=_OF_ANY_MACHINE),
    ]
    if view.by is not None:
        for machine, each in zip(grid.machines, grid.comparisons, strict=True):
            table = aligned_grid(each, view, where=f" on {machine}")
            if table is not None:
                blocks.append(table)
    lines = (*grid.sentences, *grid.provenance)
    blocks.append(
        Notes(title="In short", lines=(*map(printable, lines), _WHAT_A_BOUND_IS), urgent=False)
    )
    blocks += _warnings(grid.notes, grid.comparisons)
    return Report(
        headline=f"{_against(grid.comparisons[0])} on {', '.join(map(printable, grid.machines))}",
        blocks=tuple(blocks),
    )


def _against(comparison: Comparison) -> str:
    names = list(map(printable, comparison.names))
    base = names.pop(comparison.reference)
    return " against ".join((base, *names))


def _quantities(comparison: Comparison, *, only: Sequence[str] = ()) -> Grid:
    """Quantities side by side, with ratios to the reference."""
    names = tuple(printable(name) for name in comparison.names)
    others = [i for i in range(len(names)) if i != comparison.reference]
    base = names[comparison.reference]
    ratios = ["ratio"] if len(others) == 1 else [f"{names[i]} / {base}" for i in others]
    columns = (
        Column(heading=""),
        *(Column(heading=name, align="right") for name in names),
        *(Column(heading=each, align="right", sacrifice=1) for each in ratios),
    )
    rows = [
        (
            quantity.title,
            *cells_of(comparison, quantity),
            *_ratio_cells(comparison, quantity, others),
        )
        for quantity in comparison.quantities
        if is_shown(quantity, only)
    ]
    blank = ("",) * len(others)
    given = [
        ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs)
        for analysis in comparison.analyses
    ]
    rows.insert(0, ("input", *given, *blank))
    if any(each.run != Run() for each in comparison.analyses):
        runs = map(run_words, (each.run for each in comparison.analyses))
        rows.insert(1, ("run", *runs, *blank))
    threads = [each.threads for each in comparison.analyses]
    if len(set(threads)) > 1 and not only:
        rows.insert(1, ("threads", *map(str, threads), *blank))
    if not only:
        if comparison.knows_fit:
            rows.append(
                ("fits in memory", *(fit_cell(a.fits) for a in comparison.analyses), *blank)
            )
        rows += [(*cells, *blank) for cells in _ceiling_rows(comparison)]
    return Grid(title="", columns=columns, rows=tuple(rows))


def _ceiling_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    most = max(len(each.shares) for each in comparison.ceilings)
    for rank in range(min(most, 3)):
        cells = [
            f"{each.shares[rank][0]} {format_percent(each.shares[rank][1])}"
            if rank < len(each.shares)
            else MISSING
            for each in comparison.ceilings
        ]
        rows.append(("bound by" if rank == 0 else "", *cells))
    return rows


def _warnings(notes: Sequence[str], comparisons: Sequence[Comparison]) -> list[Block]:
    said = (line for one in comparisons for each in one.analyses for line in each.warnings)
    warnings = dict.fromkeys(map(printable, (*notes, *said)))
    return [Notes(title="Warnings", lines=tuple(warnings))] if warnings else []


def _ratio_cells(
    comparison: Comparison, quantity: Quantity, others: Sequence[int]
) -> tuple[str, ...]:
    ratios = comparison.uncertain_ratios(quantity)
    return tuple(ratio_cell(ratios[i], is_time=quantity.of in TIMES) for i in others)


def comparison_html(comparison: Comparison | ComparisonGrid) -> str:
    """The comparison as a self-contained HTML fragment for notebooks."""
    return report_html(report_of_comparison(comparison))


def comparison_csv(comparison: Comparison | ComparisonGrid) -> str:
    """One row a model and machine: every quantity with its unit in the name, and its ratio."""
    if isinstance(comparison, ComparisonGrid):
        return csv_of(comparison.rows)
    return csv_of(rows_of(comparison))
