"""What `roofline hardware show` and `list` say, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_flop_per_s,
    format_percent,
    format_s,
)
from roofline.machine.hardware import HardwareProfile, Provenance, describe_level
from roofline.presentation.report import (
    Block,
    Column,
    Facts,
    Grid,
    Notes,
    Report,
    age,
    origin,
    printable,
    threads_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareEntry:
    """A profile as a list shows it; ``where`` says where it was found, ``date`` is ISO 8601."""

    name: str
    description: str
    threads: int
    device: str
    where: str
    date: str


_RATES = (
    Column(heading="threads", align="right"),
    Column(heading="peak", align="right"),
    Column(heading="sustained", align="right"),
    Column(heading="IQR/median", align="right", sacrifice=1),
    Column(heading="source", sacrifice=2),
)


def hardware_report(profile: HardwareProfile, *, today: date | None = None) -> Report:
    """The report on a machine: ceilings, levels, overheads, host, conditions, references."""
    references = list(dict.fromkeys(map(_cited, profile.provenances())))

    def source(each: Provenance) -> str:
        words = "measured" if each.source == "measured" else "data sheet"
        return f"{words} [{references.index(_cited(each)) + 1}]"

    blocks: list[Block] = [Facts(lines=_facts(profile))]
    if profile.compute:
        blocks.append(
            Grid(
                title="Compute ceilings",
                columns=(
                    Column(heading="dtype"),
                    Column(heading="unit"),
                    Column(heading="kernel"),
                    Column(heading="kind", sacrifice=3),
                    *_RATES,
                ),
                rows=tuple(
                    (
                        str(each.dtype),
                        printable(each.unit),
                        printable(each.kernel),
                        each.kind,
                        str(each.threads),
                        format_flop_per_s(each.peak_flop_per_s),
                        format_flop_per_s(each.sustained_flop_per_s),
                        _spread(each.spread),
                        source(each.provenance),
                    )
                    for each in profile.compute
                ),
            )
        )
    if profile.memory:
        blocks.append(
            Grid(
                title="Memory levels",
                columns=(Column(heading="level"), Column(heading="kernel"), *_RATES),
                rows=tuple(
                    (
                        printable(describe_level(level)),
                        each.kernel,
                        str(each.threads),
                        format_byte_per_s(each.peak_byte_per_s),
                        format_byte_per_s(each.sustained_byte_per_s),
                        _spread(each.spread),
                        source(each.provenance),
                    )
                    for level in profile.memory
                    for each in level.bandwidth
                ),
            )
        )
    if profile.overheads:
        blocks.append(
            Grid(
                title="Overheads",
                columns=(Column(heading="what"), Column(heading="time", align="right")),
                rows=tuple((printable(k), format_s(v)) for k, v in profile.overheads.items()),
            )
        )
    if profile.conditions:
        lines = tuple(map(printable, profile.conditions))
        blocks.append(Notes(title="Noticed while measuring", lines=lines))
    if references:
        lines = tuple(f"[{i}] {_reference(each)}" for i, each in enumerate(references, start=1))
        blocks.append(Notes(title="References", lines=lines, urgent=False))
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
            Column(heading="threads", align="right"),
            Column(heading="device"),
            Column(heading="date", sacrifice=1),
            Column(heading="where", sacrifice=3),
        ),
        rows=tuple(
            (
                printable(each.name),
                printable(each.description) or MISSING,
                str(each.threads),
                printable(each.device),
                printable(each.date[:10]) or MISSING,
                printable(each.where),
            )
            for each in entries
        ),
    )
    count = len(entries)
    return Report(headline=f"{count} hardware profile{'s' * (count != 1)}", blocks=(grid,))


def _spread(spread: float | None) -> str:
    return format_percent(spread)


def _facts(profile: HardwareProfile) -> tuple[tuple[str, str], ...]:
    lines = [("Name", profile.name)]
    if profile.description:
        lines.append(("What", profile.description))
    lines.append(("Device", f"{profile.device}, {threads_of(profile.threads)}"))
    host = profile.host
    if host is not None:
        cpus = f"{host.available_cpus} CPU{'s' * (host.available_cpus != 1)} available"
        lines += [
            ("Host", f"{host.cpu_model} ({host.architecture}, {cpus})"),
            ("System", host.operating_system),
            ("Sets", ", ".join(host.instruction_sets) or MISSING),
        ]
        if host.versions:
            lines.append(("Versions", ", ".join(f"{k} {v}" for k, v in host.versions.items())))
    return tuple((name, printable(text)) for name, text in lines)


def _cited(each: Provenance) -> Provenance:
    """What a reference says of a number; how many bursts a measured one took stays in the file."""
    return replace(each, note="") if each.source == "measured" and each.tool_version else each


def _reference(each: Provenance) -> str:
    version = f"roofline {each.tool_version}" if each.tool_version else ""
    day = age(each.date, None).removeprefix("on ")
    return printable("; ".join(filter(None, (each.reference, day, version, each.note))))
