"""The tables of a machine: ceilings, memory levels, curves, overheads, links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofline.design.hardware_quantities import Quantity, quantities_of
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_capacity,
    format_flop_per_s,
    format_percent,
    format_s,
)
from roofline.machine.hardware import HardwareProfile, MemoryLevel, Provenance
from roofline.placement import MIX
from roofline.presentation.reports.hardware_columns import (
    Extra,
    Lead,
    Line,
    first_of,
    lines_of,
    side_by_side,
    top_of,
)
from roofline.presentation.reports.hardware_sources import Sources
from roofline.presentation.reports.working_set_table import working_set_table

_KINDS = {"hardware": "of the hardware", "library": "of the library (torch)"}


def hardware_tables(profile: HardwareProfile, sources: Sources) -> Iterator[Grid]:
    """The tables of `profile`, in the order they are read; none is empty."""
    quantities = quantities_of(profile)
    threaded = profile.has_threads
    compute = [each for each in quantities if each.what == "compute"]
    kinds = {each.kind for each in compute}
    for kind in ("hardware", "library"):
        found = [each for each in compute if each.kind == kind]
        if found:
            extra = _of_hardware(compute) if kind == "library" and len(kinds) > 1 else None
            title = _titled("Compute ceilings", kind, kinds)
            if extra:
                title += "; share of the hardware's"
            yield _compute(title, found, sources, threaded=threaded, extra=extra)
    if any(level.capacity_byte or level.latency for level in profile.memory):
        yield _levels(profile, sources)
    bandwidths = [each for each in quantities if each.what == "bandwidth"]
    kinds = {each.kind for each in bandwidths}
    for kind in ("hardware", "library"):
        found = [each for each in bandwidths if each.kind == kind]
        if found:
            title = _titled("Memory bandwidth", kind, kinds)
            yield _bandwidth(title, found, sources, threaded=threaded)
    curves = working_set_table(profile)
    if curves:
        yield curves
    overheads = [each for each in quantities if each.what == "overhead"]
    if overheads:
        yield side_by_side(
            "Overheads, median",
            [Lead(heading="what", words=lambda each: printable(each.subject))],
            lines_of([_by_median(each) for each in overheads]),
            format_s,
            sources,
            threaded=threaded,
            best="median",
            usual="fastest",
        )
    if profile.links:
        yield _links(profile, sources)


def _titled(what: str, kind: str, kinds: set[str]) -> str:
    of = "" if kinds == {"hardware"} else f" {_KINDS[kind]}"
    return f"{what}{of}, peak"


def _compute(
    title: str,
    found: Sequence[Quantity],
    sources: Sources,
    *,
    threaded: bool,
    extra: Extra | None,
) -> Grid:
    def order(line: Line) -> tuple[object, ...]:
        of = dtype(first_of(line).subject)
        # Floating point before integers, the widest first; of one type, the highest first.
        return (of.kind != "float", -of.bits, of.name, -top_of(line))

    leads = [
        Lead(heading="dtype", words=lambda each: each.subject),
        Lead(heading="unit", words=lambda each: printable(each.unit)),
        Lead(heading="kernel", words=lambda each: printable(each.kernel)),
    ]
    lines = sorted(lines_of(found), key=order)
    return side_by_side(
        title, leads, lines, format_flop_per_s, sources, threaded=threaded, extra=extra
    )


def _of_hardware(compute: Sequence[Quantity]) -> Extra:
    """What part of the highest ceiling of its data type's products the library reaches."""
    best: dict[tuple[str, int | None], float] = {}
    for each in compute:
        # Additions beside multiply-adds are of no use to products.
        if each.kind == "hardware" and each.kernel != MIX:
            key = (each.subject, each.threads)
            best[key] = max(best.get(key, 0.0), each.peak)

    def words(each: Quantity) -> str:
        top = best.get((each.subject, each.threads))
        return format_percent(each.peak / top) if top else MISSING

    return Extra(heading="share", words=words)


def _bandwidth(title: str, found: Sequence[Quantity], sources: Sources, *, threaded: bool) -> Grid:
    leads = [
        Lead(heading="level", words=lambda each: printable(each.subject)),
        Lead(heading="kernel", words=lambda each: each.kernel),
    ]
    if any(each.write_allocate != "unspecified" for each in found):
        leads.append(Lead(heading="write-allocate", words=_allocate))
    lines = lines_of(found)
    return side_by_side(title, leads, lines, format_byte_per_s, sources, threaded=threaded)


def _allocate(each: Quantity) -> str:
    return MISSING if each.write_allocate == "unspecified" else each.write_allocate


def _levels(profile: HardwareProfile, sources: Sources) -> Grid:
    hz = profile.clock.median_hz if profile.clock else None

    def row(level: MemoryLevel) -> tuple[str, ...]:
        latency = level.latency
        size = format_capacity(level.capacity_byte)
        shared = " per core" if level.scope == "private" and level.capacity_byte else ""
        found = [each for each in (level.capacity_provenance,) if each]
        return (
            printable(level.name),
            f"{size}{shared}",
            _capacity_from(level.capacity_provenance) if level.capacity_byte else MISSING,
            format_s(latency.median_s) if latency else MISSING,
            f"{latency.median_s * hz:.3g}" if latency and hz else MISSING,
            format_s(latency.fast_s) if latency else MISSING,
            format_percent(latency.spread) if latency else MISSING,
            sources.cited([*found, *([latency.provenance] if latency else [])]) or MISSING,
        )

    columns = (
        Column(heading="level"),
        Column(heading="capacity", align="right"),
        Column(heading="size is", sacrifice=1),
        Column(heading="latency", align="right"),
        Column(heading="cycles", align="right", sacrifice=2),
        Column(heading="fastest", align="right", sacrifice=3),
        Column(heading="IQR/median", align="right", sacrifice=4),
        Column(heading="source", sacrifice=5),
    )
    return _telling(
        Grid(title="Memory levels", columns=columns, rows=tuple(map(row, profile.memory)))
    )


def _capacity_from(provenance: Provenance | None) -> str:
    if provenance is None:
        return MISSING
    if provenance.source == "measured":
        # A reported size with which the curve agrees is better than either alone.
        return "confirmed" if "confirmed" in provenance.reference else "found"
    return "derived" if provenance.source == "derived" else "reported"


def _telling(grid: Grid) -> Grid:
    """The grid without the columns that are empty in every row."""
    kept = [i for i in range(len(grid.columns)) if any(row[i] != MISSING for row in grid.rows)]
    return Grid(
        title=grid.title,
        columns=tuple(grid.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in grid.rows),
    )


def _by_median(each: Quantity) -> Quantity:
    return replace(each, peak=each.typical, typical=each.peak)


def _links(profile: HardwareProfile, sources: Sources) -> Grid:
    columns = (
        Column(heading="from"),
        Column(heading="to"),
        Column(heading="kernel"),
        Column(heading="threads", align="right"),
        Column(heading="peak", align="right"),
        Column(heading="sustained", align="right", sacrifice=2),
        Column(heading="IQR/median", align="right", sacrifice=3),
        Column(heading="latency", align="right", sacrifice=1),
        Column(heading="source", sacrifice=4),
    )
    rows = tuple(
        (
            printable(each.source),
            printable(each.target),
            printable(each.kernel),
            str(each.threads) if profile.has_threads else MISSING,
            format_byte_per_s(each.peak_byte_per_s),
            format_byte_per_s(each.sustained_byte_per_s),
            format_percent(each.spread),
            format_s(each.latency.median_s) if each.latency else MISSING,
            sources.cited([each.provenance]),
        )
        for each in profile.links
    )
    return _telling(Grid(title="Links", columns=columns, rows=rows))
