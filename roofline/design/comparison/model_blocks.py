"""Report of a comparison of models: totals, aligned modules, times by machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, Run
from roofline.analysis.tables import prediction_cell
from roofline.analysis.words import MODEL_ITSELF, fit_cell, run_text
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
from roofline.core.sampling import interval_cell
from roofline.core.text import NOTE, counted, printable
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_percent,
    format_s,
    format_shape,
    sum_known,
)
from roofline.design.comparison.alignment import DEPTH, AlignedRow, Counterpart
from roofline.design.comparison.cells import TIMES, Cell, letter
from roofline.design.comparison.differences import whole_percent
from roofline.design.comparison.models import UNCERTAIN, Quantity, ceilings, provenance
from roofline.design.comparison.ratios import Ratio
from roofline.machine.hardware import describe_threads
from roofline.machine.roof import ceiling_text

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_MINIMUM_NOTE = (
    "note: minimum times are lower limits: designs differ in how close kernels come to them"
)

_OF_ANY_MACHINE = (
    *("flop", "macs", "parameters", "parameter_size_bytes", "traffic_bytes"),
    *("peak_memory_bytes", "intensity_flop_per_byte"),
)
"""Quantities that do not depend on the machine."""

_MOST_COLUMNS = 3  # More models get rows instead of columns


def model_blocks(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield facts, times by machine, totals, aligned modules, notes."""
    comparison, legend = with_letters(comparison)
    several = len(comparison.each_machine) > 1
    yield KeyValueBlock(lines=(*legend, *_facts(comparison)))
    if several:
        yield machines_grid(comparison)
    of_models = _models_grid if len(comparison.designs) > _MOST_COLUMNS else _quantities
    yield of_models(comparison.each_machine[0], _OF_ANY_MACHINE if several else ())
    if not several or view.by != "operator":
        for machine, each in zip(comparison.machine_names, comparison.each_machine, strict=True):
            table = _aligned_grid(each, view, where=f" on {machine}" if several else "")
            if table is not None:
                yield table
    # The headline has the rest.
    lines = comparison.sentences[len(comparison.verdict) if several else 0 :]
    yield from notes("Differences", lines if several or len(lines) > 1 else ())
    sources = list(provenance(comparison))
    yield from notes("Notes", (each for each in sources if each.startswith("measured")))
    minor = (f"{NOTE}{each}" for each in sources if not each.startswith("measured"))
    said = list(_warnings(comparison))
    warnings = map(printable, (*comparison.notes, *said, *minor, _MINIMUM_NOTE))
    yield from warning_notes(warnings, view)
    if view.by == "operator":
        yield from next_steps(view, "compare --by module MODEL")


def _warnings(comparison: Comparison) -> Iterator[str]:
    """Yield the warnings of all designs; those of some of them with their names."""
    names: dict[str, list[str]] = {}
    for each in comparison.each_machine:
        for name, analysis in zip(each.designs, each.analyses, strict=True):
            for line in analysis.warnings:
                names.setdefault(line, []).append(name)
    for line, of in names.items():
        some = list(dict.fromkeys(of))
        if len(some) == len(comparison.designs):
            yield line
            continue
        minor = NOTE * line.startswith(NOTE)
        yield f"{minor}{', '.join(some)}: {line.removeprefix(NOTE)}"


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    first = comparison.analyses[0]
    machines = [each.analyses[0] for each in comparison.each_machine]
    has_threads = len({each.threads for each in comparison.analyses}) == 1
    threads = [describe_threads(first.hardware, first.threads)] * has_threads
    names = ", ".join(printable(each.hardware.name) for each in machines)
    yield "Machine", " · ".join((names, *(threads if len(machines) == 1 else ())))
    if first.cache != "steady":
        yield "Caches", first.cache


_LONG = 28  # Maximum characters of a name before letters replace all names
_LONG_TOGETHER = 64  # The same for the sum of all names


def with_letters(comparison: Comparison) -> tuple[Comparison, tuple[tuple[str, str], ...]]:
    """Return the comparison, with letters for long names, and their legend."""
    names = list(map(printable, comparison.designs))
    lengths = list(map(len, names))
    if max(lengths) <= _LONG and sum(lengths) <= _LONG_TOGETHER:
        return comparison, ()
    letters = tuple(map(letter, range(len(names))))
    return replace(comparison, designs=letters), tuple(zip(letters, names, strict=True))


# -- quantities ------------------------------------------------------------------------------------


def _quantities(comparison: Comparison, only: Sequence[str]) -> Grid:
    """Return quantities by model with ratios to the reference; `only` empty: all."""
    names = tuple(map(printable, comparison.designs))
    others = [i for i in range(len(names)) if i != comparison.reference]
    base = names[comparison.reference]
    analyses = comparison.analyses
    rows: list[tuple[str, ...]] = [("input", *map(_input_text, analyses))]
    if len({each.threads for each in analyses}) > 1 and not only:
        rows.append(("threads", *(str(each.threads) for each in analyses)))
    if any(each.run != Run() for each in analyses):
        rows.append(("run", *(run_text(each.run) for each in analyses)))
    for quantity in _shown(comparison, only):
        ratios = _ratio_cells(comparison, quantity)
        cells = _quantity_cells(comparison, quantity)
        rows.append((quantity.title, *cells, *(ratios[i] for i in others)))
    if not only:
        rows += _fit_and_ceiling_rows(comparison)
    ratios = ["ratio"] if len(others) == 1 else [f"{names[i]} / {base}" for i in others]
    columns = (
        Column(heading=""),
        *map(number_column, names),
        *(number_column(each, 1) for each in ratios),
    )
    blank = ("",) * len(columns)
    filled = tuple((*row, *blank[len(row) :]) for row in rows)
    return Grid(title="Totals", columns=columns, rows=filled)


def _fit_and_ceiling_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    cells = comparison.cells[0]
    if _knows_fit(comparison):
        yield ("fits in memory", *(fit_cell(each.fits) for each in cells))
    shares = [list(ceilings(each).items()) for each in comparison.analyses]
    for rank in range(min(max(map(len, shares)), 3)):
        texts = (_ceiling_text(each[rank : rank + 1]) for each in shares)
        yield ("limiter" if rank == 0 else "", *texts)


def _knows_fit(comparison: Comparison) -> bool:
    return comparison.cells[0][0].fits is not None


def _ceiling_text(shares: Sequence[tuple[str, float]]) -> str:
    return f"{ceiling_text(shares[0][0])} {format_percent(shares[0][1])}" if shares else MISSING


def _shown(comparison: Comparison, only: Sequence[str]) -> list[Quantity]:
    """Return the quantities of `only`, else all except unknown times."""
    may_be_missing = (*UNCERTAIN, "fused_min_time_s", "model_min_time_s")
    return [
        each
        for each in comparison.quantities
        if (
            each.of in only
            if only
            else each.of not in may_be_missing or any(value is not None for value in each.values)
        )
    ]


def _quantity_cells(comparison: Comparison, quantity: Quantity) -> tuple[str, ...]:
    """Return a quantity by model, times with their intervals."""
    if quantity.of == "predicted_s":
        return tuple(map(_prediction, comparison.cells[0]))
    if quantity.of == "measured_s":
        cells = zip(comparison.cells[0], quantity.text, strict=True)
        return tuple(
            interval_cell(each.measured_s, *ends) if (ends := each.measured_interval_s) else text
            for each, text in cells
        )
    return quantity.text


def _prediction(cell: Cell) -> str:
    return prediction_cell(cell.predicted_s, cell.interval_s, cell.eager_min_time_s)


def _ratio_cells(comparison: Comparison, quantity: Quantity) -> list[str]:
    """Return ratios: of counts in three digits, of times as their intervals allow."""

    def text(ratio: Ratio | None) -> str:
        if ratio is None:
            return MISSING
        # `g` alone would use exponents.
        return ratio.text if quantity.of in UNCERTAIN else f"{float(f'{ratio.value:.3g}'):g}"

    return list(map(text, comparison.uncertain_ratios(quantity)))


def _input_text(analysis: Analysis) -> str:
    return ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs)


def _models_grid(comparison: Comparison, only: Sequence[str]) -> Grid:
    base = printable(comparison.designs[comparison.reference])
    runs = list(map(_run_text, comparison.analyses))
    columns = [Column(heading="model"), Column(heading="input", drop_priority=5)]
    cells = [list(map(printable, comparison.designs)), list(map(_input_text, comparison.analyses))]

    def add(column: Column, found: Sequence[str]) -> None:
        columns.append(column)
        cells.append(list(found))

    if len(set(runs)) > 1:
        add(Column(heading="run", drop_priority=9), runs)
    for place, each in enumerate(_shown(comparison, only)):
        least = 0 if each.of in ("flop", "eager_min_time_s", *UNCERTAIN) else 10 + place
        add(number_column(each.title, least), _quantity_cells(comparison, each))
    add(number_column(f"FLOP / {base}", 4), _ratio_cells(comparison, comparison.quantity("flop")))
    if not only:
        for kind, name in TIMES.items():
            ratios = comparison.uncertain_ratios(comparison.quantity(name))
            if all(ratios) and (kind != "measured" or comparison.rounds):
                texts = [each.text if each else MISSING for each in ratios]
                texts[comparison.reference] = "1"
                add(number_column(f"{_KINDS[kind]} / {base}"), texts)
                break
        if _knows_fit(comparison):
            fits = [fit_cell(each.fits) for each in comparison.cells[0]]
            add(Column(heading="fits in memory"), fits)
        shares = (list(ceilings(each).items()) for each in comparison.analyses)
        add(Column(heading="limiter", drop_priority=3), list(map(_ceiling_text, shares)))
    return Grid(title="Totals", columns=tuple(columns), rows=tuple(zip(*cells, strict=True)))


def _run_text(analysis: Analysis) -> str:
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


def machines_grid(comparison: Comparison) -> Grid:
    """Return a row per machine and model: times, ratio and limiter."""
    base = printable(comparison.designs[comparison.reference])
    every = [cell for cells in comparison.cells for cell in cells]
    is_measured = any(each.measured_s is not None for each in every)
    is_predicted = any(each.predicted_s is not None for each in every)
    any_fit = any(map(_knows_fit, comparison.each_machine))
    columns = (
        Column(heading="machine"),
        Column(heading="model"),
        *map(number_column, ("eager", "fused", "model")),
        *map(number_column, ["predicted"] * is_predicted + ["measured"] * is_measured),
        number_column(f"time / {base}"),
        Column(heading="basis", drop_priority=3),
        *([Column(heading="fits in memory", drop_priority=4)] if any_fit else []),
        Column(heading="limiter", drop_priority=2),
    )
    rows: list[tuple[str, ...]] = []
    for machine, one in zip(comparison.machine_names, comparison.each_machine, strict=True):
        ratios = {
            kind: one.uncertain_ratios(one.quantity(TIMES[kind]))
            for kind in ("predicted", "measured", "bound")
        }
        measured = one.quantity("measured_s").text
        for i, (name, cell) in enumerate(zip(one.designs, one.cells[0], strict=True)):
            kind = next((each for each, found in ratios.items() if found[i]), "")
            ratio = ratios[kind][i] if kind else None
            rows.append(
                (
                    printable(machine) if i == 0 else "",
                    printable(name),
                    format_s(cell.eager_min_time_s),
                    format_s(cell.fused_min_time_s),
                    format_s(cell.model_min_time_s),
                    *([_prediction(cell)] if is_predicted else []),
                    *([measured[i]] if is_measured else []),
                    "1" if i == one.reference else ratio.text if ratio else MISSING,
                    _KINDS.get(kind, ""),
                    *([fit_cell(cell.fits)] if any_fit else []),
                    _ceiling_text(list(ceilings(one.analyses[i]).items())),
                )
            )
    title = "Minimum times (eager, fused, model) by machine"
    return Grid(title=title, columns=columns, rows=tuple(rows))


# -- aligned modules -------------------------------------------------------------------------------

_KINDS = {"measured": "measured", "predicted": "predicted", "bound": "minimum"}
_ROWS = 8
_MOST_WITH_WORK = 3


def _aligned_grid(comparison: Comparison, view: View, *, where: str) -> Grid | None:
    """Return aligned modules or types with times, shares, FLOP and bytes; None if empty."""
    by = None if view.by == "operator" else view.by
    alignment = comparison.modules(DEPTH if view.depth is None else view.depth)
    is_by_type = by == "type" or (by is None and not alignment.is_similar(comparison.reference))
    if is_by_type:
        alignment = comparison.types
    # One row would repeat the totals.
    if not alignment.rows or (by is None and len(alignment.rows) < 2):
        return None
    rows, left = list(alignment.rows), list[AlignedRow]()
    if by is None or view.top is not None:
        rows.sort(key=lambda row: -row.difference(comparison.reference))
        shown = view.rows(_ROWS)
        # A row for the rest needs as much room as the last row.
        shown += shown + 1 == len(rows)
        rows, left = rows[:shown], rows[shown:]
    order = " by largest difference" if left or by is None or view.top else ""
    time = f" ({_KINDS[alignment.kind]} time)" if alignment.kind else ""
    names = list(map(printable, comparison.designs))
    has_work = (view.verbose and len(names) <= _MOST_WITH_WORK) or alignment.kind is None
    per = "/sample" if comparison.per_sample else ""
    timed = list(map(number_column, names)) if alignment.kind else []
    if len(timed) == 2:
        timed.append(number_column("difference", 2))

    def name(row: AlignedRow) -> str:
        # Name in the first model, and other names if they differ.
        called = [printable(each.name) or MODEL_ITSELF for each in row.parts if each]
        return " | ".join(dict.fromkeys(called))

    def cells(row: AlignedRow) -> tuple[str, ...]:
        found: list[str] = []
        if alignment.kind:
            found += map(_time_cell, row.parts)
            if len(row.parts) == 2:
                found.append(_difference(row, comparison.reference))
        if has_work:
            found += [format_flop(each.flop) if each else MISSING for each in row.parts]
            found += [format_bytes(each.traffic_bytes) if each else MISSING for each in row.parts]
        return tuple(found)

    columns = (
        Column(heading="type" if is_by_type else "module", least=12, cut="start"),
        *timed,
        *(
            number_column(f"{what}{per} {name}", rank + place)
            for what, rank in (("FLOP", 4), ("bytes", 20))
            for place, name in enumerate(names)
            if has_work
        ),
    )
    return Grid(
        title=f"{'Operator types' if is_by_type else 'Modules'}{order}{printable(where)}{time}",
        columns=columns,
        rows=tuple((name(row), *cells(row)) for row in rows),
        sums=((f"{len(left)} more", *cells(_rest(left))),) if left else (),
    )


def _time_cell(part: Counterpart | None) -> str:
    if part is None or part.time_s is None:
        return MISSING
    share = f" {whole_percent(part.share)}" if part.share is not None else ""
    return f"{format_s(part.time_s, 2)}{share}"


def _difference(row: AlignedRow, reference: int) -> str:
    """Return the time difference to the reference; missing parts take no time."""
    times = [(each.time_s or 0.0) if each else 0.0 for each in row.parts]
    change_s = times[1 - reference] - times[reference]
    if not change_s:
        return "0 s"
    return f"{'+' if change_s > 0 else '-'}{format_s(abs(change_s), 2)}"


def _rest(rows: Sequence[AlignedRow]) -> AlignedRow:
    sums: list[Counterpart | None] = []
    for column in zip(*(row.parts for row in rows), strict=True):
        parts = [each for each in column if each]
        total = Counterpart(
            name="",
            kind="",
            flop=sum_known(each.flop for each in parts),
            traffic_bytes=sum(each.traffic_bytes for each in parts),
            time_s=sum_known(each.time_s for each in parts),
            share=sum_known(each.share for each in parts),
        )
        sums.append(total if parts else None)
    return AlignedRow(parts=tuple(sums))
