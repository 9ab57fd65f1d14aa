"""The report of `roofline compare`: quantities, modules side by side, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from string import ascii_uppercase

from roofline.analysis import Analysis, Run
from roofline.analysis.tables import prediction_cell
from roofline.analysis.words import MODEL_ITSELF, fit_cell, run_words
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.module_alignment import (
    DEPTH,
    AlignedRow,
    Alignment,
    Counterpart,
)
from roofline.design.model_comparison.quantities import Quantity
from roofline.design.model_comparison.ratios import Ratio
from roofline.design.model_comparison.result import TIMES, Ceilings, Comparison
from roofline.design.model_comparison.time_parts import whole_percent
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, View
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import counted, printable
from roofline.foundation.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_percent,
    format_s,
    format_shape,
)

_WHAT_A_BOUND_IS = (
    "A bound is the eager minimum, which no run operator by operator beats: real kernels come"
    " closer to it for one design than for another"
)

_OF_THE_MODEL = ("flop", "macs", "parameters", "parameter_size_bytes", "traffic_bytes")
_OF_ANY_MACHINE = (*_OF_THE_MODEL, "peak_memory_bytes", "intensity_flop_per_byte")
"""The quantities that are the same on every machine."""

_MOST_COLUMNS = 3
"""Of more models than these, each has a row instead of a column."""


def comparison_blocks(comparison: Comparison, view: View) -> Iterator[Block]:
    """Return quantities, what binds each, modules, and what follows."""
    comparison, legend = with_letters(comparison)
    if legend:
        yield Facts(lines=legend)
    many = len(comparison.names) > _MOST_COLUMNS
    yield models_grid(comparison) if many else _quantities(comparison)
    table = aligned_grid(comparison, view)
    if table is not None:
        yield table
    knows_bounds = any(each.totals.eager_min_time_s is not None for each in comparison.analyses)
    lines = (*comparison.sentences, *comparison.provenance, *(_WHAT_A_BOUND_IS,) * knows_bounds)
    yield Notes(title="In short", lines=lines, urgent=False)
    yield from _warnings(comparison.notes, [comparison])


def grid_blocks(grid: ComparisonGrid, view: View) -> Iterator[Block]:
    """Return who wins where, then each machine's numbers."""
    grid, legend = grid_with_letters(grid)
    first = grid.comparisons[0]
    if legend:
        yield Facts(lines=legend)
    yield machines_grid(grid)
    many = len(first.names) > _MOST_COLUMNS
    yield (models_grid if many else _quantities)(first, only=_OF_ANY_MACHINE)
    if view.by != "operator":
        for machine, each in zip(grid.machines, grid.comparisons, strict=True):
            table = aligned_grid(each, view, where=f" on {machine}")
            if table is not None:
                yield table
    lines = (*grid.sentences, *grid.provenance, _WHAT_A_BOUND_IS)
    yield Notes(title="In short", lines=lines, urgent=False)
    yield from _warnings(grid.notes, grid.comparisons)


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


_LONG = 28
"""How many characters a name may have before all names become letters."""

_LONG_TOGETHER = 64
"""The same of all of them, each of which is the heading of a column."""

Legend = tuple[tuple[str, str], ...]
"""Each letter and the name that it stands for; empty where names stand for themselves."""


def with_letters(comparison: Comparison) -> tuple[Comparison, Legend]:
    """The comparison with letters for names, if those are long; and what they stand for."""
    letters = _letters(comparison.names)
    if not letters:
        return comparison, ()
    legend = tuple(zip(letters, map(printable, comparison.names), strict=True))
    return replace(comparison, names=letters), legend


def grid_with_letters(grid: ComparisonGrid) -> tuple[ComparisonGrid, Legend]:
    """The same for models on several machines."""
    found = [with_letters(each) for each in grid.comparisons]
    return replace(grid, comparisons=tuple(each for each, _ in found)), found[0][1]


def _letters(names: tuple[str, ...]) -> tuple[str, ...]:
    lengths = [len(printable(name)) for name in names]
    if max(lengths) <= _LONG and sum(lengths) <= _LONG_TOGETHER:
        return ()
    count = len(ascii_uppercase)
    return tuple(
        ascii_uppercase[place % count] + (str(place // count + 1) if place >= count else "")
        for place in range(len(names))
    )


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


_ROWS = 8
_MOST_WITH_WORK = 3


def aligned_grid(comparison: Comparison, view: View, *, where: str = "") -> Grid | None:
    """Modules or types side by side, with times, shares, FLOP and bytes; None: nothing to align.

    Args:
        comparison: the models.
        view: which rows, and how many.
        where: what the title ends with: the machine, where there are several.
    """
    by = None if view.by == "operator" else view.by
    alignment = comparison.modules(DEPTH if view.depth is None else view.depth)
    is_by_type = by == "type" or (by is None and not alignment.is_of_kin(comparison.reference))
    if is_by_type:
        alignment = comparison.types
    rows, left = _chosen(comparison, alignment, view, is_default=by is None)
    # One row is the whole model, whose numbers stand above.
    if not alignment.rows or (by is None and len(alignment.rows) < 2):
        return None
    what = "Types of operators" if is_by_type else "Modules"
    order = ", the largest differences first" if left or by is None or view.top else ""
    time = f" ({alignment.kind})" if alignment.kind else ""
    return Grid(
        title=f"{what} side by side{printable(where)}{time}{order}",
        columns=_columns(comparison, alignment, is_by_type=is_by_type),
        rows=tuple(_cells(comparison, alignment, row) for row in rows),
        sums=(_rest(comparison, alignment, left),) if left else (),
    )


def _chosen(
    comparison: Comparison, alignment: Alignment, view: View, *, is_default: bool
) -> tuple[list[AlignedRow], list[AlignedRow]]:
    """The rows that are shown, and those that are left out."""
    rows = list(alignment.rows)
    if view.top is None and not is_default:
        return rows, []
    rows.sort(key=lambda row: -row.difference(comparison.reference))
    shown = _ROWS if view.top is None else view.top
    # A row for the rest takes as much room as the one that it would stand for.
    shown += shown + 1 == len(rows)
    return rows[:shown], rows[shown:]


def _columns(
    comparison: Comparison, alignment: Alignment, *, is_by_type: bool
) -> tuple[Column, ...]:
    names = [printable(name) for name in comparison.names]
    timed = [Column(heading=name, align="right") for name in names] if alignment.kind else []
    difference = len(names) == 2 and alignment.kind
    per = "/sample" if comparison.per_sample else ""
    return (
        Column(heading="type" if is_by_type else "module", least=12, cut="start"),
        *timed,
        *([Column(heading="difference", align="right", sacrifice=2)] if difference else []),
        *(
            Column(heading=f"{what}{per} {name}", align="right", sacrifice=rank + place)
            for what, rank in (("FLOP", 4), ("bytes", 20))
            for place, name in enumerate(names)
            if _shows_work(alignment, names)
        ),
    )


def _cells(comparison: Comparison, alignment: Alignment, row: AlignedRow) -> tuple[str, ...]:
    found: list[str] = []
    if alignment.kind:
        found += [_time_cell(each) for each in row.parts]
        if len(row.parts) == 2:
            found.append(_difference(comparison, row))
    if _shows_work(alignment, row.parts):
        found += [format_flop(each.flop) if each else MISSING for each in row.parts]
        found += [format_bytes(each.traffic_bytes) if each else MISSING for each in row.parts]
    return (_name(row), *found)


def _shows_work(alignment: Alignment, models: Sequence[object]) -> bool:
    """Whether there is room for FLOP and bytes beside times, which tell more."""
    return len(models) <= _MOST_WITH_WORK or alignment.kind is None


def _name(row: AlignedRow) -> str:
    """The path of the first that has it, and where they differ, how the others call it."""
    names = [printable(each.name) or MODEL_ITSELF for each in row.parts if each]
    return " | ".join(dict.fromkeys(names))


def _time_cell(part: Counterpart | None) -> str:
    if part is None or part.time_s is None:
        return MISSING
    share = f" {whole_percent(part.share)}" if part.share is not None else ""
    return f"{format_s(part.time_s, 2)}{share}"


def _difference(comparison: Comparison, row: AlignedRow) -> str:
    """By how many seconds the other is above the reference; what one lacks takes no time."""
    base = row.parts[comparison.reference]
    other = row.parts[1 - comparison.reference]
    change_s = ((other.time_s or 0.0) if other else 0.0) - ((base.time_s or 0.0) if base else 0.0)
    if not change_s:
        return "0 s"
    return f"{'+' if change_s > 0 else '-'}{format_s(abs(change_s), 2)}"


def _rest(comparison: Comparison, alignment: Alignment, rows: list[AlignedRow]) -> tuple[str, ...]:
    """The rows that are left out as one."""
    parts: list[Counterpart | None] = []
    for number in range(len(comparison.names)):
        found = [part for row in rows if (part := row.parts[number])]
        parts.append(_sum(found) if found else None)
    row = AlignedRow(parts=tuple(parts))
    return (f"{len(rows)} more", *_cells(comparison, alignment, row)[1:])


def _sum(parts: list[Counterpart]) -> Counterpart:
    flop = [each.flop for each in parts if each.flop is not None]
    times = [each.time_s for each in parts if each.time_s is not None]
    shares = [each.share for each in parts if each.share is not None]
    return Counterpart(
        name="",
        kind="",
        flop=sum(flop) if len(flop) == len(parts) else None,
        traffic_bytes=sum(each.traffic_bytes for each in parts),
        time_s=sum(times) if len(times) == len(parts) else None,
        share=sum(shares) if len(shares) == len(parts) else None,
    )
