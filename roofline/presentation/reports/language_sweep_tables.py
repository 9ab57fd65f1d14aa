"""The tables of a language model's sweep: tokens/s over batch and context, and the crossovers."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.foundation.blocks import Column, Grid
from roofline.foundation.units import MISSING, format_byte, format_intensity
from roofline.language.parts import Stage
from roofline.language.sweep import MOST_BATCH, Crossover, StageSweep, SweepCell
from roofline.language.verdict import rate_number
from roofline.placement import Bound

_KEY = ("*: compute takes most of the bound, else memory does", "!: does not fit")


def sweep_grids(sweep: StageSweep) -> Iterable[Grid]:
    """For each stage the rates over batch and context, with what binds."""
    stages: dict[Stage, None] = dict.fromkeys(each.stage for each in sweep.cells)
    for stage in stages:
        yield _rates(sweep, stage)


def _rates(sweep: StageSweep, stage: Stage) -> Grid:
    columns = (
        Column(heading="context", align="right"),
        *(Column(heading=f"batch {each:,}", align="right") for each in sweep.batches),
    )
    rows = (
        (f"{context:,}", *(_cell(sweep.cell(stage, batch, context)) for batch in sweep.batches))
        for context in sweep.contexts
    )
    return Grid(
        title=f"{stage.capitalize()}: tokens/s of all sequences at most, as the architecture asks"
        f" for it ({', '.join(_KEY)})",
        columns=columns,
        rows=tuple(rows),
    )


def _cell(cell: SweepCell) -> str:
    if cell.tokens_per_s is None:
        return MISSING
    mark = {Bound.COMPUTE: " *", Bound.MEMORY: "  "}.get(cell.bound, " ?")
    return f"{rate_number(cell.tokens_per_s)}{'!' * (cell.fit == 'does not fit')}{mark}"


def crossover_grid(sweep: StageSweep) -> Grid:
    """From which batch on each stage is compute-bound, at each context."""
    columns = (
        Column(heading="stage"),
        Column(heading="context", align="right"),
        Column(heading="compute-bound from batch", align="right"),
        Column(heading="products with weights", align="right"),
        Column(heading="attention, FLOP per byte of cache", align="right", sacrifice=1),
        Column(heading="memory", align="right", sacrifice=2),
    )
    return Grid(
        title="Where memory stops being what binds",
        columns=columns,
        rows=tuple(_crossover_row(each, sweep) for each in sweep.crossovers),
    )


def _crossover_row(crossover: Crossover, sweep: StageSweep) -> tuple[str, ...]:
    ends = [
        sweep.cell(crossover.stage, batch, crossover.context).footprint_byte
        for batch in (sweep.batches[0], sweep.batches[-1])
    ]
    beyond = " (does not fit)" if crossover.fits is False else ""
    return (
        crossover.stage,
        f"{crossover.context:,}",
        f"{_batch(crossover.batch)}{beyond}",
        _batch(crossover.weights_batch),
        format_intensity(crossover.cache_flop_per_byte),
        " to ".join(dict.fromkeys(map(format_byte, ends))),
    )


def _batch(batch: int | None) -> str:
    return f"none up to {MOST_BATCH:,}" if batch is None else f"{batch:,}"
