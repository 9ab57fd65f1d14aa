"""Models compared as tables of their quantities: a row a model, or a model and machine."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis import Analysis
from roofline.analysis.tables import prediction_cell
from roofline.analysis.words import fit_cell
from roofline.design.model_comparison.data import TIMES
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.quantities import Quantity
from roofline.design.model_comparison.ratios import Ratio
from roofline.design.model_comparison.result import Ceilings, Comparison
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_percent, format_s, format_shape


def cells_of(comparison: Comparison, quantity: Quantity) -> tuple[str, ...]:
    """A quantity of every model; times with their intervals, or that there is no prediction."""
    if quantity.of == "measured_s":
        return tuple(
            interval_cell(value, *ends) if ends else text
            for value, text, ends in zip(
                quantity.values, quantity.text, comparison.measured_intervals_s, strict=True
            )
        )
    if quantity.of != "predicted_s":
        return quantity.text
    return tuple(
        prediction_cell(value, interval, each.totals.eager_min_time_s)
        for value, interval, each in zip(
            quantity.values, comparison.intervals_s, comparison.analyses, strict=True
        )
    )


def ratio_cell(ratio: Ratio | None, *, is_time: bool) -> str:
    """A ratio in a table: of counts in three digits, of times as its interval allows."""
    if ratio is None:
        return MISSING
    # Without exponents, which `g` alone takes for what has more places than digits.
    return ratio.text if is_time else f"{float(f'{ratio.value:.3g}'):g}"


def is_shown(quantity: Quantity, only: Sequence[str]) -> bool:
    """Whether a quantity has its place: those of `only`; else all but times that nobody knows."""
    if only:
        return quantity.of in only
    # Of times that nobody knows there is no row; what is not predicted is said below.
    is_known = any(each is not None for each in quantity.values)
    return is_known or quantity.of not in (*TIMES, "fused_min_time_s", "model_min_time_s")


def models_grid(comparison: Comparison, *, only: Sequence[str] = ()) -> Grid:
    """A row for every model: what they are given, their quantities, and ratios to the reference.

    Args:
        comparison: the models.
        only: the quantities that are shown; none: all.
    """
    base = printable(comparison.names[comparison.reference])
    quantities = [each for each in comparison.quantities if is_shown(each, only)]
    kind, ratios = _leading_ratios(comparison)
    of_flop = comparison.uncertain_ratios(comparison.quantity("flop"))
    runs = [_run_text(each) for each in comparison.analyses]
    columns = [Column(heading="model"), Column(heading="input", sacrifice=5)]
    cells = [list(map(printable, comparison.names)), list(map(_input_text, comparison.analyses))]

    def add(column: Column, found: Sequence[str]) -> None:
        columns.append(column)
        cells.append(list(found))

    if len(set(runs)) > 1:
        add(Column(heading="run", sacrifice=9), runs)
    for place, each in enumerate(quantities):
        least = 0 if each.of in ("flop", "eager_min_time_s", *TIMES) else 10 + place
        column = Column(heading=each.title, align="right", sacrifice=least)
        add(column, cells_of(comparison, each))
    add(
        Column(heading=f"FLOP / {base}", align="right", sacrifice=4),
        [ratio_cell(each, is_time=False) for each in of_flop],
    )
    if not only and kind:
        add(
            Column(heading=f"{kind} / {base}", align="right"),
            [
                "1" if i == comparison.reference else ratio_cell(each, is_time=True)
                for i, each in enumerate(ratios)
            ],
        )
    if not only and comparison.knows_fit:
        fits = [fit_cell(each.fits) for each in comparison.analyses]
        add(Column(heading="fits in memory"), fits)
    if not only:
        add(
            Column(heading="bound by", sacrifice=3),
            [_ceiling_cell(each) for each in comparison.ceilings],
        )
    return Grid(title="", columns=tuple(columns), rows=tuple(zip(*cells, strict=True)))


def _leading_ratios(comparison: Comparison) -> tuple[str, tuple[Ratio | None, ...]]:
    """The ratios of the best kind of time that all models have, and what it is called."""
    for kind in ("measured", "predicted", "bound"):
        if kind == "measured" and comparison.rounds is None:
            continue
        name = "eager_min_time_s" if kind == "bound" else f"{kind}_s"
        found = comparison.uncertain_ratios(comparison.quantity(name))
        if all(found):
            return kind, found
    return "", (None,) * len(comparison.names)


def _input_text(analysis: Analysis) -> str:
    return ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs)


def _run_text(analysis: Analysis) -> str:
    """How it is run, as short as can be."""
    run = analysis.run
    words = [
        f"training {run.optimizer}".strip() if run.train else "",
        run.dtype,
        f"autocast {run.autocast}" if run.autocast else "",
        "channels last" if run.channels_last else "",
        run.device if run.device != "cpu" else "",
        counted(analysis.threads, "thread") if analysis.hardware.has_threads else "",
    ]
    return " · ".join(filter(None, words))


def _ceiling_cell(ceilings: Ceilings) -> str:
    if not ceilings.shares:
        return MISSING
    name, share = ceilings.shares[0]
    return f"{name} {format_percent(share)}"


def machines_grid(grid: ComparisonGrid) -> Grid:
    """A row for every model on every machine: bound, prediction, ratio, and what binds most."""
    base = printable(grid.names[grid.comparisons[0].reference])
    is_measured = any(
        value is not None
        for each in grid.comparisons
        for value in each.quantity("measured_s").values
    )
    any_fit = any(each.knows_fit for each in grid.comparisons)
    columns = (
        Column(heading="machine"),
        Column(heading="model"),
        Column(heading="eager", align="right"),
        Column(heading="fused", align="right"),
        Column(heading="model", align="right"),
        Column(heading="predicted", align="right"),
        *([Column(heading="measured", align="right")] if is_measured else []),
        Column(heading=f"time / {base}", align="right"),
        Column(heading="of", sacrifice=3),
        *([Column(heading="fits in memory")] if any_fit else []),
        Column(heading="bound by", sacrifice=2),
    )
    rows: list[tuple[str, ...]] = []
    for machine, comparison in zip(grid.machines, grid.comparisons, strict=True):
        rows += _machine_rows(
            printable(machine), comparison, is_measured=is_measured, any_fit=any_fit
        )
    return Grid(title="Minimum times: eager, fused, model", columns=columns, rows=tuple(rows))


def _machine_rows(
    machine: str, comparison: Comparison, *, is_measured: bool, any_fit: bool
) -> list[tuple[str, ...]]:
    bound, predicted, measured = (
        comparison.quantity(name) for name in ("eager_min_time_s", "predicted_s", "measured_s")
    )
    ratios = {
        each: comparison.uncertain_ratios(quantity)
        for each, quantity in (("predicted", predicted), ("measured", measured), ("bound", bound))
    }
    rows: list[tuple[str, ...]] = []
    for i, name in enumerate(comparison.names):
        kind = next((each for each, found in ratios.items() if found[i]), "")
        ratio = ratios[kind][i] if kind else None
        analysis = comparison.analyses[i]
        rows.append(
            (
                machine if i == 0 else "",
                printable(name),
                bound.text[i],
                format_s(analysis.totals.fused_min_time_s),
                format_s(analysis.totals.model_min_time_s),
                prediction_cell(
                    predicted.values[i], comparison.intervals_s[i], analysis.totals.eager_min_time_s
                ),
                *([measured.text[i]] if is_measured else []),
                "1" if i == comparison.reference else ratio.text if ratio else MISSING,
                kind,
                *([fit_cell(analysis.fits)] if any_fit else []),
                _ceiling_cell(comparison.ceilings[i]),
            )
        )
    return rows
