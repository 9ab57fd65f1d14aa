"""``roofline hardware fit``: a data-sheet profile from a few flags or questions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roofline.cli.options import FileName
from roofline.cli.results import result_console, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError
from roofline.foundation.text import counted

if TYPE_CHECKING:
    from roofline.foundation.blocks import Report
    from roofline.machine.hardware import HardwareProfile
    from roofline.machine.theory.datasheet import DataSheet

_MOST_CORES = 100_000
_MOST_CHANNELS = 1024

# Per flag that a profile needs: what is asked for, with an example, where it is missing.
_QUESTIONS = {
    "cores": "Cores, such as 16",
    "clock": "Clock that all cores hold, such as 3.0GHz",
    "units": "Vector units and their pipes, such as avx512:2 or avx2:2 or neon:4",
    "channels": "Memory channels, such as 4",
    "transfer_rate": "Transfers per second of a channel, such as 3200MT/s",
}
_OPTIONAL_QUESTIONS = {
    "bus_bytes": ("Bytes that a channel transfers at once", "8"),
    "reference": ("Document that the figures are from (title, publisher, address)", ""),
    "date": ("Its date, such as 2026-01", ""),
}


@click.command("fit")
@click.argument("file", type=FileName())
@click.option("--cores", metavar="N", help="How many cores it has.")
@click.option("--clock", metavar="HZ", help="The clock that the ceilings are for: 3.0GHz.")
@click.option(
    "--units",
    multiple=True,
    metavar="UNIT:PIPES",
    help="A vector unit and its pipes per core: avx512:2, neon:4; avx512:2x256 for pipes of 256"
    " bit; repeatable, or with commas between.",
)
@click.option(
    "--core", metavar="NAME", help='The microarchitecture, in place of --units: "AMD Zen 4".'
)
@click.option("--channels", metavar="N", help="How many memory channels it has.")
@click.option("--transfer-rate", metavar="RATE", help="Of each channel: 3200MT/s.")
@click.option("--bus-bytes", metavar="N", help="Bytes of one transfer; default: 8.")
@click.option(
    "--cache",
    "caches",
    multiple=True,
    metavar="NAME=SIZE",
    help="A cache: L1=32KiB/core:64, L3=22MiB:16; /core where each core has its own, after the"
    " colon the bytes that a core moves each cycle; repeatable.",
)
@click.option("--name", metavar="NAME", help="What it is called; default: as FILE.")
@click.option("--reference", metavar="TEXT", help="The document: title, publisher, address.")
@click.option("--date", metavar="DATE", help="Of the document: 2026-01-31, 2026-01 or 2026.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(file: Path, force: bool, **given: Any) -> None:
    """Write a profile of a CPU that you only have a data sheet of to FILE (.toml).

    Each rate is cores x clock x pipes x lanes, or channels x transfers x bytes, and is printed with
    its arithmetic. What the flags leave open is asked for, on a terminal.
    """
    from roofline.foundation.files import check_writable
    from roofline.machine.theory.datasheet import datasheet_profile, left_out
    from roofline.render.console import print_report

    if file.suffix != ".toml":
        raise InputError(f"{file}: a hardware profile is written as .toml")
    check_writable(file, overwrite=force)
    sheet = _sheet(file, _completed(given))
    profile = datasheet_profile(sheet)
    print_report(_report(profile), result_console())
    if sheet.caches:
        reason = left_out(sheet) or (
            "times are bounds only if every cache is given: what another holds is charged to the"
            " level behind it"
        )
        tell(f"roofline: warning: {reason}")
    profile.save(file, overwrite=force)
    say_written((file,))


def _completed(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, with what else the profile needs: asked for, or an error that names it."""
    missing = [
        name
        for name in _QUESTIONS
        if not given[name] and not (name == "units" and given["core"] is not None)
    ]
    if not missing:
        return given
    if not sys.stdin.isatty():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InputError(
            f"hardware fit needs {flags} as well"
            f"{' (or --core in place of --units)' if 'units' in missing else ''};"
            " on a terminal it asks for what is missing"
        )
    answers = {name: _ask(_QUESTIONS[name], None, _READERS[name]) for name in missing}
    more = {
        name: _ask(question, default, _READERS.get(name, str))
        for name, (question, default) in _OPTIONAL_QUESTIONS.items()
        if given[name] is None
    }
    return {**given, **answers, **more}


def _ask(question: str, default: str | None, read: Callable[[str], object]) -> str:
    """An answer that can be read; a wrong one is said to be, and asked for again."""

    def checked(answer: str) -> str:
        try:
            read(answer)
        except InputError as error:
            raise click.BadParameter(str(error)) from None
        return answer

    answer: str = click.prompt(
        question, default=default, value_proc=checked, err=True, show_default=bool(default)
    )
    return answer


def _count(what: str, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        digits = text.strip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
        if not 1 <= number <= most:
            raise InputError(f"{what} must be a whole number from 1 to {most}, got '{text}'")
        return number

    return read


def _clock(text: str) -> float:
    from roofline.foundation.units import parse_clock

    return parse_clock(text)


def _transfer_rate(text: str) -> float:
    from roofline.foundation.units import parse_transfer_rate

    return parse_transfer_rate(text)


def _units(text: str) -> object:
    from roofline.machine.theory.datasheet import parse_units

    return parse_units(text)


def _date(text: str) -> str:
    from roofline.machine.hardware.ceilings import check_date

    try:
        check_date("date", text)
    except ValueError as error:
        raise InputError(str(error)) from None
    return text


_READERS: dict[str, Callable[[str], Any]] = {
    "cores": _count("--cores", _MOST_CORES),
    "clock": _clock,
    "units": _units,
    "channels": _count("--channels", _MOST_CHANNELS),
    "transfer_rate": _transfer_rate,
    "bus_bytes": _count("--bus-bytes", 1024),
    "date": _date,
}


def _sheet(file: Path, given: dict[str, Any]) -> DataSheet:
    """The data sheet that the flags and answers make."""
    from roofline.machine.theory.datasheet import DataSheet, parse_cache, parse_units
    from roofline.machine.theory.microarchitectures import core_named

    if given["core"] is not None and given["units"]:
        raise InputError("--core says which units there are; leave --units out, or --core")
    units = given["units"]
    return DataSheet(
        name=file.stem if given["name"] is None else given["name"],
        cores=_READERS["cores"](given["cores"]),
        clock_hz=_READERS["clock"](given["clock"]),
        units=parse_units(units if isinstance(units, str) else ",".join(units)) if units else (),
        core=None if given["core"] is None else core_named(given["core"]),
        channels=_READERS["channels"](given["channels"]),
        transfer_per_s=_READERS["transfer_rate"](given["transfer_rate"]),
        bus_bytes=_READERS["bus_bytes"](given["bus_bytes"] or "8"),
        caches=tuple(map(parse_cache, given["caches"])),
        reference=(given["reference"] or "").strip(),
        date=_READERS["date"](given["date"] or ""),
    )


def _report(profile: HardwareProfile) -> Report:
    """Return each number with its arithmetic, and the ridge points."""
    from roofline.foundation.blocks import Report, notes, safe
    from roofline.foundation.units import format_intensity
    from roofline.machine.roof import MachineRoof, ridge_flop_per_byte
    from roofline.machine.theory.datasheet import arithmetic_lines

    roof = MachineRoof(profile, profile.threads)
    memory = roof.levels[-1]
    found = (roof.compute(each) for each in dict.fromkeys(each.dtype for each in profile.compute))
    ridges = [
        f"{unit.label}: {format_intensity(ridge_flop_per_byte(unit, memory))}"
        for unit in found
        if unit
    ]
    title = f"Ridge points of {counted(profile.threads, 'core')} (FLOP/B of {memory.label})"
    blocks = (*notes("Ceilings", arithmetic_lines(profile)), *notes(title, ridges))
    return safe(Report(headline=f"{profile.name}: {profile.description}", blocks=blocks))
