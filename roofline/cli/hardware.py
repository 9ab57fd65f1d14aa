"""``roofline hardware list``, ``roofline hardware show`` and ``roofline hardware diff``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roofline.cli import candidates
from roofline.cli.hardware_fit import command as fit
from roofline.cli.options import output_options
from roofline.cli.results import result_console, say_written
from roofline.cli.streams import tell

if TYPE_CHECKING:
    from roofline.machine.hardware import HardwareProfile


@click.group("hardware")
def command() -> None:
    """List, show, compare and make the machines that are known."""


command.add_command(fit, "fit")


@command.command("list")
def list_() -> None:
    """The machines that --hardware takes by name."""
    from roofline.machine.catalog import entries
    from roofline.presentation.reports.hardware_report import HardwareEntry, hardware_list_report
    from roofline.render.console import print_report

    known = entries()
    found = [
        HardwareEntry(name=each.name, where=each.origin, profile=each.profile)
        for each in known
        if each.profile is not None
    ]
    print_report(hardware_list_report(found), result_console())
    for each in known:
        if each.profile is None:
            tell(f"roofline: warning: {each.error}")


@command.command("show")
@click.argument("name", default="host", shell_complete=candidates.machines)
@output_options(".toml .json .csv .md .html .png .svg")
def show(name: str, outputs: tuple[Path, ...], force: bool) -> None:
    """The ceilings of NAME (a name or a .toml file; default: this machine) and their sources."""
    from datetime import date

    from roofline.presentation.hardware_output import check_targets, write
    from roofline.presentation.reports.hardware_report import hardware_report
    from roofline.render.console import print_report

    check_targets(outputs, overwrite=force)
    profile, notes = _known(name)
    print_report(hardware_report(profile, today=date.today()), result_console())
    for note in notes:
        tell(f"roofline: warning: {note}")
    for path in outputs:
        write(profile, path, overwrite=force)
    say_written(outputs)


@command.command("diff")
@click.argument("first", metavar="A", shell_complete=candidates.machines)
@click.argument("second", metavar="B", shell_complete=candidates.machines)
@output_options(".json .csv .md")
def diff(first: str, second: str, outputs: tuple[Path, ...], force: bool) -> None:
    """Machine B against machine A: ceiling by ceiling, memory by memory, and their ridge points.

    Each is a name (`roofline hardware list`), a .toml file, or host for this machine.
    """
    from datetime import date

    from roofline.design.hardware_difference import HardwareDifference
    from roofline.foundation.files import write_atomically
    from roofline.presentation.formats import check_files, check_suffix_among
    from roofline.presentation.reports.hardware_difference_report import (
        DIFFERENCE_FORMATS,
        hardware_difference_report,
        render_hardware_difference,
    )
    from roofline.render.console import print_report

    check_format = partial(check_suffix_among, suffixes=DIFFERENCE_FORMATS, what="a comparison")
    check_files(outputs, check_format, overwrite=force)
    (one, some), (other, more) = _known(first), _known(second)
    difference = HardwareDifference(machines=(one, other))
    print_report(hardware_difference_report(difference, today=date.today()), result_console())
    for note in dict.fromkeys((*some, *more)):
        tell(f"roofline: warning: {note}")
    for path in outputs:
        write_atomically(path, render_hardware_difference(difference, path), overwrite=force)
    say_written(outputs)


def _known(name: str) -> tuple[HardwareProfile, tuple[str, ...]]:
    """The profile of that name as far as it still holds, and what to know about it."""
    from roofline.machine.catalog import find_hardware, host_file, load_hardware, still_valid

    profile = load_hardware(name)
    if find_hardware(name) != host_file():
        return profile, ()
    from roofline.pipeline.hosts import this_host

    return still_valid(profile, this_host())
