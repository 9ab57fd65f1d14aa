"""What `roofline hardware show` and `list` say, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from roofline.design.hardware_quantities import quantities_of
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import counted, printable
from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_flop_per_s,
    format_si,
)
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.origin import origin
from roofline.placement import Roof
from roofline.presentation.reports.hardware_sources import (
    doubts_of,
    notes_of,
    paper_of,
    sources_of,
)
from roofline.presentation.reports.hardware_summary import memory_rate, read_byte_per_s, summary
from roofline.presentation.reports.hardware_tables import hardware_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareEntry:
    """A profile as a list shows it: by which name, and ``where`` it was found."""

    name: str
    where: str
    profile: HardwareProfile


def hardware_report(profile: HardwareProfile, *, today: date | None = None) -> Report:
    """The report on a machine: host, ceilings, levels, curves, overheads, then what to know."""
    quantities = quantities_of(profile)
    sources = sources_of(quantities)
    threaded = profile.has_threads
    blocks: list[Block] = [
        *([Facts(lines=first)] if (first := summary(profile)) else []),
        Facts(lines=_facts(profile)),
        *hardware_tables(profile, sources),
    ]
    doubts = doubts_of(quantities, threaded=threaded)
    if doubts:
        blocks.append(doubts)
    if profile.conditions:
        lines = tuple(map(printable, profile.conditions))
        blocks.append(Notes(title="Noticed while measuring", lines=lines))
    paper = paper_of(quantities)
    if paper:
        blocks.append(paper)
    if sources.lines:
        blocks.append(Notes(title="References", lines=sources.lines, urgent=False))
    notes = notes_of(quantities, threaded=threaded)
    if notes:
        blocks.append(notes)
    name = printable(profile.name)
    return Report(headline=f"{name}: {origin(profile, today)}", blocks=tuple(blocks))


def hardware_list_report(entries: Sequence[HardwareEntry]) -> Report:
    """The list of the machines that are known."""
    if not entries:
        return Report(
            headline="no hardware profiles; run `roofline measure` to make one of this machine",
            blocks=(),
        )
    grid = Grid(
        title="",
        columns=(
            Column(heading="name"),
            Column(heading="description", sacrifice=2),
            Column(heading="device"),
            Column(heading="threads", align="right"),
            Column(heading="float32", align="right"),
            Column(heading="memory", align="right"),
            Column(heading="read", align="right", sacrifice=4),
            Column(heading="date", sacrifice=3),
            Column(heading="where", sacrifice=1),
        ),
        rows=tuple(map(_row, entries)),
    )
    count = len(entries)
    return Report(headline=f"{counted(count, 'hardware profile')}", blocks=(grid,))


def _row(entry: HardwareEntry) -> tuple[str, ...]:
    profile = entry.profile
    roof = Roof(profile, profile.threads)
    best = roof.of_products.get(dtype("float32"))
    peak = best.flop_per_s if best else None
    return (
        printable(entry.name),
        printable(profile.description or profile.name),
        profile.device,
        str(profile.threads) if profile.has_threads else MISSING,
        format_flop_per_s(peak),
        memory_rate(roof.levels[-1] if roof.levels else None),
        format_byte_per_s(read_byte_per_s(profile)),
        printable(profile.date[:10]) or MISSING,
        printable(entry.where),
    )


def _facts(profile: HardwareProfile) -> tuple[tuple[str, str], ...]:
    lines = [("Name", profile.name)]
    if profile.description:
        lines.append(("What", profile.description))
    if profile.aliases:
        lines.append(("Aliases", ", ".join(profile.aliases)))
    how = f", {describe_threads(profile, profile.threads)}" if profile.has_threads else ""
    if profile.multiprocessors is not None:
        how = f", {profile.multiprocessors} multiprocessors"
    lines.append(("Device", f"{profile.device}{how}"))
    host = profile.host
    if host is not None:
        cpus = f"{counted(host.available_cpus, 'CPU')} available"
        lines += [
            ("Host", f"{host.cpu_model} ({host.architecture}, {cpus})"),
            ("System", host.operating_system),
            ("Sets", ", ".join(host.instruction_sets) or MISSING),
        ]
        if host.versions:
            lines.append(("Versions", ", ".join(f"{k} {v}" for k, v in host.versions.items())))
    if profile.clock is not None:
        clock = profile.clock
        usual = f", median {_hz(clock.median_hz)}" if clock.median_hz != clock.peak_hz else ""
        how = clock.provenance.reference
        lines.append(
            ("Clock", f"{_hz(clock.peak_hz)}{usual}, {_SAID[clock.provenance.source]}: {how}")
        )
    if profile.effort != "unspecified":
        lines.append(("Effort", f"{profile.effort}"))
    return tuple((name, printable(text)) for name, text in lines)


def _hz(rate: float) -> str:
    return format_si(rate, "Hz")


_SAID = {"measured": "measured", "datasheet": "from a data sheet", "derived": "derived"}
