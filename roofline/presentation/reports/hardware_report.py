"""What `roofline hardware show` and `list` say, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_flop_per_s,
    format_percent,
    format_s,
)
from roofline.machine.hardware import (
    HardwareProfile,
    Provenance,
    describe_level,
    describe_threads,
)
from roofline.placement import Roof
from roofline.presentation.reports.report import (
    Block,
    Column,
    Facts,
    Grid,
    Notes,
    Report,
    age,
    origin,
    printable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareEntry:
    """A profile as a list shows it: by which name, and ``where`` it was found."""

    name: str
    where: str
    profile: HardwareProfile


_THREADS = Column(heading="threads", align="right")
_RATES = (
    Column(heading="peak", align="right"),
    Column(heading="sustained", align="right"),
    Column(heading="IQR/median", align="right", sacrifice=1),
    Column(heading="source", sacrifice=2),
)


def hardware_report(profile: HardwareProfile, *, today: date | None = None) -> Report:
    """The report on a machine: ceilings, levels, overheads, host, conditions, references, notes."""
    references = list(dict.fromkeys(map(_document, profile.provenances())))
    # Other devices than CPUs compute as a whole: they have no threads to speak of.
    threaded = (_THREADS,) if profile.has_threads else ()

    def threads(count: int) -> tuple[str, ...]:
        return (str(count),) if profile.has_threads else ()

    def source(each: Provenance) -> str:
        words = "measured" if each.source == "measured" else "data sheet"
        return f"{words} [{references.index(_document(each)) + 1}]"

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
                    *threaded,
                    *_RATES,
                ),
                rows=tuple(
                    (
                        str(each.dtype),
                        printable(each.unit),
                        printable(each.kernel),
                        each.kind,
                        *threads(each.threads),
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
                columns=(Column(heading="level"), Column(heading="kernel"), *threaded, *_RATES),
                rows=tuple(
                    (
                        printable(describe_level(level)),
                        each.kernel,
                        *threads(each.threads),
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
    notes = _notes(profile)
    if notes:
        blocks.append(Notes(title="Notes", lines=notes, urgent=False))
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
            Column(heading="date", sacrifice=3),
            Column(heading="where", sacrifice=1),
        ),
        rows=tuple(map(_row, entries)),
    )
    count = len(entries)
    return Report(headline=f"{count} hardware profile{'s' * (count != 1)}", blocks=(grid,))


def _row(entry: HardwareEntry) -> tuple[str, ...]:
    profile = entry.profile
    roof = Roof(profile, profile.threads)
    peak = next((unit.flop_per_s for unit in roof.units if unit.dtype.name == "float32"), None)
    return (
        printable(entry.name),
        printable(profile.description or profile.name),
        profile.device,
        str(profile.threads) if profile.has_threads else MISSING,
        format_flop_per_s(peak),
        format_byte_per_s(roof.levels[-1].byte_per_s if roof.levels else None),
        printable(profile.date[:10]) or MISSING,
        printable(entry.where),
    )


def _spread(spread: float | None) -> str:
    return format_percent(spread)


def _facts(profile: HardwareProfile) -> tuple[tuple[str, str], ...]:
    lines = [("Name", profile.name)]
    if profile.description:
        lines.append(("What", profile.description))
    how = f", {describe_threads(profile, profile.threads)}" if profile.has_threads else ""
    lines.append(("Device", f"{profile.device}{how}"))
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


def _document(each: Provenance) -> Provenance:
    """What numbers have in common that come from one document, or one measurement."""
    return replace(each, note="")


def _reference(each: Provenance) -> str:
    version = f"roofline {each.tool_version}" if each.tool_version else ""
    day = age(each.date, None).removeprefix("on ")
    return printable("; ".join(filter(None, (each.reference, day, version))))


def _notes(profile: HardwareProfile) -> tuple[str, ...]:
    """What a reader must know of the numbers, each note once, with the ceilings it is about."""
    about: dict[str, list[str]] = {}
    several = profile.has_threads
    for what, threads, each in _numbers(profile):
        # How many bursts a number took that we measured ourselves stays in the file.
        if each.note and not each.tool_version:
            of = f" on {describe_threads(profile, threads)}" if several else ""
            about.setdefault(each.note, []).append(f"{what}{of}")
    return tuple(printable(f"{', '.join(whats)} – {note}") for note, whats in about.items())


def _numbers(profile: HardwareProfile) -> Iterator[tuple[str, int, Provenance]]:
    for each in profile.compute:
        yield each.label.removesuffix(" unspecified"), each.threads, each.provenance
    for level in profile.memory:
        for each in level.bandwidth:
            what = f"{level.name} {each.kernel}".removesuffix(" unspecified")
            yield what, each.threads, each.provenance
