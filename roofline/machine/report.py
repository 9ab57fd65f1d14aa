"""Report on a machine: ceilings, memory levels, curves, overheads, sources."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roofline.core.blocks import (
    Block,
    Grid,
    KeyValueBlock,
    Notes,
    Report,
    View,
    escape_report,
    notes,
    table,
)
from roofline.core.dtypes import dtype
from roofline.core.text import counted
from roofline.core.units import (
    MISSING,
    format_bytes_per_s,
    format_capacity,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
    format_si,
)
from roofline.errors import argument
from roofline.machine.catalog import Entry
from roofline.machine.hardware import (
    Duration,
    HardwareProfile,
    MemoryLevel,
    Provenance,
    describe_threads,
)
from roofline.machine.quantities import (
    Line,
    Quantity,
    age,
    figure_names,
    first_of,
    group_by_threads,
    origin,
    quantities_of,
    read_bytes_per_s,
)
from roofline.machine.roof import (
    MIX,
    ComputeRoof,
    LevelRoof,
    MachineRoof,
    ceiling_text,
    kernel_lines,
    ridge_flop_per_byte,
)
from roofline.machine.system.activity import lowering_conditions

_MOST_DETAILS = 3  # variants listed per method; the profile's file has all

_NUMBER = re.compile(r"\d+(\.\d+)*")
SOURCES = {"measured": "measured", "datasheet": "data sheet", "derived": "derived"}


class Sources:
    """Numbered references; measurements that differ only in details share a number.

    The method of a measurement is its reference up to the first semicolon, without numbers.
    """

    def __init__(self, provenances: Iterable[Provenance]) -> None:
        self._found: dict[_Document, tuple[dict[str, None], dict[str, None]]] = {}
        for each in provenances:
            document, method, detail = _split(each)
            methods, details = self._found.setdefault(document, ({}, {}))
            methods[method] = None
            if detail:
                details[detail] = None
        self._numbers = {each: i for i, each in enumerate(self._found, start=1)}
        self._one_source = len({source for source, *_ in self._found}) < 2

    def cited(self, provenances: Iterable[Provenance | None]) -> str:
        """Return references such as ``"[1]"``, with their kind if there are several kinds."""
        documents = {_split(each)[0] for each in provenances if each}
        numbers: dict[str, list[str]] = {}
        for each in sorted(documents, key=lambda each: self._numbers[each]):
            kind = "" if self._one_source else f"{SOURCES[each[0]]} "
            numbers.setdefault(kind, []).append(f"[{self._numbers[each]}]")
        return ", ".join(f"{kind}{' '.join(found)}" for kind, found in numbers.items())

    @property
    def lines(self) -> Iterable[str]:
        """References with number, date, version and measurement details."""
        for each, ((first, *alike), details) in self._found.items():
            _, _, date, tool_version = each
            others = f" (and {len(alike)} similar)" if alike else ""
            version = f"roofline {tool_version}" if tool_version else ""
            what = f"[{self._numbers[each]}] {first}{others}"
            line = "; ".join(filter(None, (what, age(date, None).removeprefix("on "), version)))
            shown, more = list(details)[:_MOST_DETAILS], len(details) - _MOST_DETAILS
            line += f" – {' | '.join(shown)}" if shown else ""
            line += f" | {more} more in the profile's file" if more > 0 else ""
            yield line


_Document = tuple[str, str, str, str]
"""Source, document (or method without numbers), date, version."""


def _split(each: Provenance) -> tuple[_Document, str, str]:
    """Return the part of a reference shared with others, its method, and its details."""
    common, method, detail = each.reference, each.reference, ""
    if each.source == "measured":
        method, _, detail = each.reference.partition(";")
        common = _NUMBER.sub("#", method)
    return (each.source, common, each.date, each.tool_version), method, detail.strip()


def _source_notes(
    profile: HardwareProfile, quantities: Sequence[Quantity], sources: Sources, view: View
) -> Iterable[Notes]:
    """Return doubts, conditions and references; derivations and notes if verbose."""

    def about(reasons: Mapping[str, list[Quantity]]) -> list[str]:
        return [
            f"{', '.join(figure_names(found, threaded=profile.has_threads))} – {reason}"
            for reason, found in reasons.items()
        ]

    doubts: dict[str, list[Quantity]] = {}
    remarks: dict[str, list[Quantity]] = {}
    for each in quantities:
        if each.doubt:
            doubts.setdefault(each.doubt, []).append(each)
        # The number of bursts of our own measurements stays in the file.
        if each.provenance and each.provenance.note and not each.provenance.tool_version:
            remarks.setdefault(each.provenance.note, []).append(each)
    yield from notes("Unreliable figures, marked ?", about(doubts), urgent=True)
    yield from notes("Measurement conditions", profile.conditions, urgent=True)
    theory, details = list(_theory(quantities)), about(remarks)
    yield from notes("Theoretical peaks", theory if view.verbose else ())
    yield from notes("References", sources.lines)
    yield from notes("Notes", details if view.verbose else ())
    kernels = kernel_lines(each.kernel for each in quantities)
    yield from notes("Kernels", kernels if view.verbose else ())
    count = len(theory) + len(details)
    if count and not view.verbose:
        title = f"{counted(count, 'note')} on figures: {argument('verbose', True)}"
        yield Notes(title=title, lines=(), urgent=False)


def _theory(quantities: Sequence[Quantity]) -> Iterable[str]:
    """Return the derivation of theoretical peaks, each with the arithmetic of its highest rate."""
    ways: dict[tuple[str, str], dict[str, list[Quantity]]] = {}
    for each in quantities:
        if each.theoretical:
            where = each.theoretical.provenance
            by_what = ways.setdefault((where.source, where.reference), {})
            by_what.setdefault(each.what, []).append(each)
    for (source, reference), by_what in ways.items():
        kind = "" if source == "derived" else f"{SOURCES[source]}: "
        highest = [
            max(found, key=lambda each: each.theoretical_per_s or 0.0) for found in by_what.values()
        ]
        arithmetic = [
            f"{each.label}: {each.theoretical.provenance.note}"
            for each in highest
            if each.theoretical and each.theoretical.provenance.note
        ]
        yield "; ".join((f"{kind}{reference}", *arithmetic))
    if any(each.loss is not None and each.loss < 0 for each in quantities):
        yield "negative loss: measured peak above the theoretical peak"


_FLOAT32 = dtype("float32")


def headline(profile: HardwareProfile) -> str:
    """Return the verdict: peak, memory bandwidth and ridge point on all threads."""
    roof = MachineRoof(profile, profile.threads)
    unit, memory = main_unit(roof), roof.memory
    parts = [f"{unit.dtype} peak {_rate(unit)}"] if unit else []
    parts += [memory_rate(memory)] if memory else []
    if unit and memory:
        parts.append(f"ridge point {format_intensity(ridge_flop_per_byte(unit, memory))} FLOP/B")
    known = ", ".join(parts) or "no hardware ceilings"
    return f"{profile.name} ({describe_threads(profile, profile.threads)}): {known}"


def profile_blocks(profile: HardwareProfile, view: View) -> Iterable[Block]:
    """Return facts, tables of ceilings, levels, curves and overheads, then sources and notes."""
    quantities = quantities_of(profile)
    sources = Sources(each.provenance for each in quantities if each.provenance)
    yield KeyValueBlock(lines=(*_performance(profile), *_identity(profile, view)))
    yield from _tables(profile, quantities, sources)
    yield from _source_notes(profile, quantities, sources, view)
    if view.today:
        of_host = ("analyze MODEL", "calibrate")
        yield next_commands(*(of_host if profile.host else ("analyze MODEL --hardware NAME",)))


def catalog_report(entries: Sequence[Entry]) -> Report:
    """Return the list of known machines."""
    if not entries:
        return Report(headline="no hardware profiles; run `roofline measure`", blocks=())
    known = [
        (entry, profile, MachineRoof(profile, profile.threads))
        for entry in entries
        if (profile := entry.profile) is not None
    ]
    grid = table(
        "Machines by name",
        known,
        {
            "name": lambda each: each[0].name,
            "description": lambda each: each[1].description or each[1].name,
            "device": lambda each: each[1].device,
            "threads": lambda each: str(each[1].threads) if each[1].has_threads else MISSING,
            "float32 peak": lambda each: format_flop_per_s(_float32(each[2])),
            "memory bandwidth": lambda each: memory_rate(each[2].memory),
            "read bandwidth": lambda each: format_bytes_per_s(read_bytes_per_s(each[1])),
            "date": lambda each: each[1].date[:10] or MISSING,
            "origin": lambda each: each[0].origin,
        },
        left=("name", "description", "device", "date", "origin"),
        narrow=("read bandwidth", "date", "description", "origin"),
    )
    steps = next_commands("hardware show NAME", "analyze MODEL --hardware NAME")
    headline = counted(len(known), "hardware profile")
    return escape_report(Report(headline=headline, blocks=(grid, steps)))


def next_commands(*commands: str) -> Notes:
    """Return a line of commands to run next."""
    title = f"Next: {' · '.join(f'roofline {each}' for each in commands)}"
    return Notes(title=title, lines=(), urgent=False)


def main_unit(roof: MachineRoof) -> ComputeRoof | None:
    """Return the float32 GEMM ceiling, or the highest ceiling without float32."""
    best = roof.mac_ceilings
    return best.get(_FLOAT32) or max(best.values(), key=lambda each: each.flop_per_s, default=None)


def memory_rate(memory: LevelRoof | None) -> str:
    """Return a level's fastest kernel and its rate: ``"DRAM update 65.0 GB/s"``."""
    return (
        f"{ceiling_text(memory.label)} {format_bytes_per_s(memory.bytes_per_s)}"
        if memory
        else MISSING
    )


def _float32(roof: MachineRoof) -> float | None:
    unit = roof.mac_ceilings.get(_FLOAT32)
    return unit.flop_per_s if unit else None


def _rate(unit: ComputeRoof) -> str:
    """Return a rate in FLOP/s, of integer types in OP/s."""
    rate = format_flop_per_s(unit.flop_per_s)
    return rate.replace("FLOP", "OP") if unit.dtype.kind in ("int", "uint") else rate


def _performance(profile: HardwareProfile) -> Iterable[tuple[str, str]]:
    """Return compute, memory and ridge-point facts."""
    roof = MachineRoof(profile, profile.threads)
    memory, float32 = roof.memory, _float32(roof)
    best = sorted(roof.mac_ceilings.values(), key=lambda each: -each.flop_per_s)
    if best:
        yield "Compute", " · ".join(f"{each.dtype} {_rate(each)}" for each in best)
    key = ("library", _FLOAT32, profile.threads)
    shares = {
        each.kernel: each.peak_flop_per_s / float32
        for each in profile.compute
        if float32 and (each.kind, each.dtype, each.threads) == key
    }
    if shares:
        highest_first = sorted(shares.items(), key=lambda each: -each[1])
        reached = " · ".join(f"{name} {format_percent(share)}" for name, share in highest_first)
        yield "Library", f"{reached} of the float32 peak (torch)"
    if memory is not None:
        read = read_bytes_per_s(profile) if memory.kernel != "read" else None
        reads = f" · read {format_bytes_per_s(read)}" if read is not None else ""
        yield "Memory", memory_rate(memory) + reads
        if float32:
            ridge = format_intensity(float32 / memory.bytes_per_s)
            level = memory.level.name
            yield "Ridge point", f"{ridge} FLOP/B (float32, {level}); memory-bound below"
    figures = [*profile.compute, *(each for level in profile.memory for each in level.bandwidth)]
    doubtful = sum(bool(each.doubt) for each in figures)
    if doubtful:
        yield "Unreliable", f"{doubtful} of {len(figures)} figures, marked ? below"
    for each in lowering_conditions(profile.conditions):
        yield "Disturbed", each


def _identity(profile: HardwareProfile, view: View) -> Iterable[tuple[str, str]]:
    size = describe_threads(profile, profile.threads) if profile.has_threads else ""
    if profile.multiprocessors is not None:
        size = f"{profile.multiprocessors} multiprocessors"
    if profile.power_limit_w is not None:
        size = " · ".join(filter(None, (size, f"{profile.power_limit_w:g} W")))
    yield "Machine", " · ".join(filter(None, (profile.description, profile.device, size)))
    if host := profile.host:
        cpus = f"{counted(host.available_cpus, 'CPU')} available"
        yield "Host", " · ".join((host.cpu_model, host.architecture, cpus, host.operating_system))
    if clock := profile.clock:
        median = f"median {format_si(clock.median_hz, 'Hz')}"
        median = median if clock.median_hz != clock.peak_hz else ""
        source = f"{SOURCES[clock.provenance.source]}: {clock.provenance.reference}"
        parts = (format_si(clock.peak_hz, "Hz"), median, source)
        yield "Clock", " · ".join(filter(None, parts))
    effort = f"effort {profile.effort}" if profile.effort != "unspecified" else ""
    yield "Source", " · ".join(filter(None, (origin(profile, view.today), effort)))
    if host := profile.host:
        yield "Instruction sets", ", ".join(host.instruction_sets) or MISSING
        if host.versions:
            yield "Versions", ", ".join(f"{k} {v}" for k, v in host.versions.items())
    if profile.aliases:
        yield "Aliases", ", ".join(profile.aliases)


def _tables(
    profile: HardwareProfile, quantities: Sequence[Quantity], sources: Sources
) -> Iterable[Grid]:
    """Return the tables; empty ones are omitted."""

    def of(what: str, kind: str = "") -> list[Quantity]:
        return [each for each in quantities if each.what == what and kind in ("", each.kind)]

    titles = {"hardware": "", "library": ""}
    if any(each.kind == "library" for each in quantities):
        titles = {"hardware": ", hardware", "library": ", library (torch)"}
    threaded, compute = profile.has_threads, of("compute")
    names = {"dtype": "subject", "unit": "unit", "kernel": "kernel"}
    for kind, suffix in titles.items():
        shares = _shares(compute) if kind == "library" else None
        title = f"Compute ceilings{suffix}: peak by data type" + ", share of hardware" * bool(
            shares
        )
        found = sorted(group_by_threads(of("compute", kind)), key=by_type)
        yield from _figures(title, names, found, sources, threaded=threaded, shares=shares)
    yield from _levels(profile, sources)
    names = {"level": "subject", "kernel": "kernel", "write-allocate": "write_allocate"}
    for kind, suffix in titles.items():
        found = group_by_threads(of("bandwidth", kind))
        title = f"Memory bandwidth{suffix}: peak by level"
        yield from _figures(title, names, found, sources, threaded=threaded)
    yield from _curves(profile)
    medians = [replace(each, peak=each.sustained, sustained=each.peak) for each in of("overhead")]
    yield from _figures(
        "Overheads: median by call",
        {"call": "subject"},
        group_by_threads(medians),
        sources,
        threaded=threaded,
        words=("median", "fastest"),
    )
    ways = {f"{each.source} to {each.target}" for each in profile.links}
    links = [each for each in (*of("link"), *of("latency")) if each.subject in ways]
    names = {"link": "subject", "": "what", "kernel": "kernel"}
    yield from _figures(
        "Links: peak bandwidth", names, group_by_threads(links), sources, threaded=threaded
    )


def by_type(line: Line) -> tuple[object, ...]:
    """Return a sort key: floating point before integers, wide types first, highest rate first."""
    each, of = first_of(line), dtype(first_of(line).subject)
    return (each.kind, of.kind != "float", -of.bits, of.name, -line[max(line)].peak)


def _shares(compute: Sequence[Quantity]) -> Callable[[Quantity], str] | None:
    """Return a cell function for the library's share of the highest GEMM ceiling."""
    best: dict[tuple[str, int | None], float] = {}
    for each in compute:
        # GEMM cannot use the extra additions of the mix.
        if each.kind == "hardware" and each.kernel != MIX:
            key = (each.subject, each.threads)
            best[key] = max(best.get(key, 0.0), each.peak)

    def share(each: Quantity) -> str:
        top = best.get((each.subject, each.threads))
        return format_percent(each.peak / top) if top else MISSING

    return share if any(each.kind == "hardware" for each in compute) else None


def _figures(
    title: str,
    names: Mapping[str, str],
    lines: Sequence[Line],
    sources: Sources,
    *,
    threaded: bool,
    shares: Callable[[Quantity], str] | None = None,
    words: tuple[str, str] = ("peak", "sustained"),
) -> Iterable[Grid]:
    """Return a table with columns for each number of threads; nothing without lines.

    Narrow terminals drop, in this order: source, spread, median, theoretical peak, and the loss for
    fewer than all threads.
    """
    if not lines:
        return

    def figure_names(line: Line, name: str) -> str:
        value: str = getattr(first_of(line), name)
        if (name, value) == ("write_allocate", "unspecified"):
            return MISSING
        return ceiling_text(value) if name in ("unit", "kernel") else value

    columns: dict[str, Callable[[Line], str]] = {
        heading: partial(figure_names, name=name) for heading, name in names.items()
    }
    counts = sorted({threads for line in lines for threads in line})
    figures: dict[str, Callable[[Quantity], str]] = {
        words[1]: lambda each: each.text(each.sustained),
        "IQR/median": lambda each: format_percent(each.spread),
        "theoretical": lambda each: each.text(each.theoretical_per_s),
        "loss": lambda each: signed_percent(each.loss),
        "share": shares or (lambda _: MISSING),
    }
    if all(each.sustained == each.peak for line in lines for each in line.values()):
        del figures[words[1]]
    of = {threads: f" ({threads})" if len(counts) > 1 else "" for threads in counts}

    def add(heading: str, threads: int, cell: Callable[[Quantity], str]) -> None:
        columns[heading] = lambda line: cell(line[threads]) if threads in line else MISSING

    def peak(each: Quantity) -> str:
        return f"{'? ' if each.doubt else ''}{each.text(each.peak)}"

    for threads in counts:
        add(counted(threads, "thread") if threaded else words[0], threads, peak)
        for heading, cell in figures.items():
            add(f"{heading}{of[threads]}", threads, cell)
    columns["source"] = lambda line: sources.cited(each.provenance for each in line.values())
    order = ("IQR/median", words[1], "theoretical", "share", "loss")
    yield _without_empty_columns(
        table(
            title,
            lines,
            columns,
            left=(*names, "source"),
            narrow=("source", *(f"{heading}{of[each]}" for heading in order for each in counts)),
        )
    )


def signed_percent(fraction: float | None) -> str:
    """Return a fraction in percent, with its sign if negative."""
    if fraction is None or fraction >= 0:
        return format_percent(fraction)
    # No sign on what rounds to zero.
    return f"{'-' * (fraction <= -0.0005)}{format_percent(-fraction)}"


def _without_empty_columns(grid: Grid) -> Grid:
    """Return the table without columns that are empty in every row."""
    kept = [i for i in range(len(grid.columns)) if any(row[i] != MISSING for row in grid.rows)]
    return Grid(
        title=grid.title,
        columns=tuple(grid.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in grid.rows),
    )


def _levels(profile: HardwareProfile, sources: Sources) -> Iterable[Grid]:
    if not any(level.capacity_bytes or level.latency for level in profile.memory):
        return
    hz = profile.clock.median_hz if profile.clock else None

    def capacity(level: MemoryLevel) -> str:
        shared = " per core" if level.scope == "private" and level.capacity_bytes else ""
        return f"{format_capacity(level.capacity_bytes)}{shared}"

    def size_source(level: MemoryLevel) -> str:
        provenance = level.capacity_provenance
        if provenance is None or not level.capacity_bytes:
            return MISSING
        confirmed = "confirmed" if "confirmed" in provenance.reference else "measured"
        words = {"measured": confirmed, "derived": "derived", "datasheet": "reported"}
        return words[provenance.source]

    def time(cell: Callable[[Duration], str]) -> Callable[[MemoryLevel], str]:
        return lambda level: cell(level.latency) if level.latency else MISSING

    def source(level: MemoryLevel) -> str:
        latency = level.latency.provenance if level.latency else None
        return sources.cited([level.capacity_provenance, latency]) or MISSING

    grid = table(
        "Memory levels, nearest first",
        profile.memory,
        {
            "level": "name",
            "capacity": capacity,
            "size source": size_source,
            "latency": time(lambda each: format_s(each.median_s)),
            "cycles": time(lambda each: f"{each.median_s * hz:.3g}" if hz else MISSING),
            "fastest": time(lambda each: format_s(each.fast_s)),
            "IQR/median": time(lambda each: format_percent(each.spread)),
            "source": source,
        },
        left=("level", "size source", "source"),
        narrow=("source", "IQR/median", "fastest", "cycles", "size source"),
    )
    yield _without_empty_columns(grid)


def _curves(profile: HardwareProfile) -> Iterable[Grid]:
    """Return a row for each curve: start, sparkline, end."""
    curves: list[tuple[str, Sequence[int], Sequence[float], Callable[[float], str]]] = [
        (
            f"{each.kernel}, {counted(each.threads, 'thread')}",
            *(each.size_bytes, each.bytes_per_s, format_bytes_per_s),
        )
        for each in profile.bandwidth_curves
    ]
    if latency := profile.latency_curve:
        curves.append(("latency, 1 thread", latency.size_bytes, latency.latency_s, format_s))

    def end(place: int) -> Callable[[Any], str]:
        return lambda each: f"{each[3](each[2][place])} at {format_capacity(each[1][place])}"

    columns: dict[str, Callable[[Any], str]] = {
        "kernel": lambda each: each[0],
        "from": end(0),
        "curve": lambda each: sparkline(each[2]),
        "to": end(-1),
    }
    if curves:
        title = "Curves over the working set per thread (log scale)"
        yield table(title, curves, columns, left=columns, narrow=("curve",))


_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_SPARKS = 24


def sparkline(values: Sequence[float]) -> str:
    """Return positive values as at most 24 block characters, on a logarithmic scale."""
    count = min(len(values), _MOST_SPARKS)
    chosen = [values[i * (len(values) - 1) // max(1, count - 1)] for i in range(count)]
    logs = [math.log(each) for each in chosen]
    low, span = min(logs), max(logs) - min(logs)
    # A range below a factor of 1.1 is drawn flat.
    if span < math.log(1.1):
        return _SPARKS[len(_SPARKS) // 2] * count
    return "".join(_SPARKS[round((each - low) / span * (len(_SPARKS) - 1))] for each in logs)
