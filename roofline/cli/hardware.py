"""``roofline hardware list`` and ``roofline hardware show``."""

from __future__ import annotations

import click

from roofline.cli.options import result_console
from roofline.cli.streams import tell


@click.group("hardware")
def command() -> None:
    """List and show the machines that are known."""


@command.command("list")
def list_() -> None:
    """The machines that --hardware takes by name."""
    from roofline.machine.catalog import entries
    from roofline.presentation.hardware_report import HardwareEntry
    from roofline.presentation.table import print_hardware_list

    known = entries()
    print_hardware_list(
        [
            HardwareEntry(
                name=each.name,
                description=each.profile.description or each.profile.name,
                threads=each.profile.threads,
                device=each.profile.device,
                where=each.origin,
                date=each.profile.date,
            )
            for each in known
            if each.profile is not None
        ],
        result_console(),
    )
    for each in known:
        if each.profile is None:
            tell(f"roofline: warning: {each.error}")


@command.command("show")
@click.argument("name", default="host")
def show(name: str) -> None:
    """The ceilings of NAME (a name or a .toml file; default: this machine) and their sources."""
    from roofline.machine.catalog import find_hardware, host_file, load_hardware, still_valid
    from roofline.presentation.table import print_hardware

    profile, notes = load_hardware(name), ()
    if find_hardware(name) == host_file():
        from roofline.machine.host import describe_host

        profile, notes = still_valid(profile, describe_host())
    print_hardware(profile, result_console())
    for note in notes:
        tell(f"roofline: warning: {note}")
