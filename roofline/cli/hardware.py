"""``roofline hardware list``, ``roofline hardware show`` and ``roofline hardware diff``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roofline.cli import candidates
from roofline.cli.hardware_fit import command as fit
from roofline.cli.options import output_options
from roofline.cli.results import present_result, result_console
from roofline.cli.streams import tell

if TYPE_CHECKING:
    from roofline.machine.hardware import HardwareProfile
    from roofline.result import Result


@click.group("hardware")
def command() -> None:
    """List, show, compare and make the machines that are known."""


command.add_command(fit, "fit")


@command.command("list")
def list_() -> None:
    """The machines that --hardware takes by name."""
    from roofline.machine.catalog import entries
    from roofline.machine.report import catalog_report
    from roofline.render.console import print_report

    known = entries()
    print_report(catalog_report(known), result_console())
    for each in known:
        if each.profile is None:
            tell(f"roofline: warning: {each.error}")


@command.command("show")
@click.argument("name", default="host", shell_complete=candidates.machines)
@output_options(".toml .json .csv .md .html .png .svg")
def show(name: str, outputs: tuple[Path, ...], force: bool) -> None:
    """The ceilings of NAME (a name or a .toml file; default: this machine) and their sources."""
    from roofline.machine.hardware import HardwareProfile

    HardwareProfile.check_files(outputs, overwrite=force)
    _present(*_known(name), outputs, force=force)


@command.command("diff")
@click.argument("first", metavar="A", shell_complete=candidates.machines)
@click.argument("second", metavar="B", shell_complete=candidates.machines)
@output_options(".json .csv .md .html")
def diff(first: str, second: str, outputs: tuple[Path, ...], force: bool) -> None:
    """Compare machine B with machine A: ceilings, memory levels, latencies, ridge points.

    Each is a name (`roofline hardware list`), a .toml file, or host for this machine.
    """
    from roofline.machine.difference import HardwareDifference

    HardwareDifference.check_files(outputs, overwrite=force)
    (one, some), (other, more) = _known(first), _known(second)
    _present(HardwareDifference(first=one, second=other), (*some, *more), outputs, force=force)


def _present(
    result: Result, warnings: Iterable[str], outputs: tuple[Path, ...], *, force: bool
) -> None:
    """Print a result and its warnings, and write its files."""
    from roofline.foundation.blocks import View

    for each in dict.fromkeys(warnings):
        tell(f"roofline: warning: {each}")
    present_result(result, outputs, stdout_format=None, view=View(), force=force)


def _known(name: str) -> tuple[HardwareProfile, tuple[str, ...]]:
    """The profile of that name as far as it still holds, and what to know about it."""
    from roofline.machine.catalog import find_hardware, host_file, load_hardware, still_valid

    profile = load_hardware(name)
    if find_hardware(name) != host_file():
        return profile, ()
    from roofline.pipeline.measuring import this_host

    return still_valid(profile, this_host())
