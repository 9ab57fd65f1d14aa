"""``roofline measure``."""

from __future__ import annotations

from pathlib import Path

import click

from roofline.cli.options import output_options, progress_bar, result_console, say_written
from roofline.errors import InputError
from roofline.foundation.files import check_writable, write_atomically


@click.command("measure")
@click.option(
    "--threads", type=int, metavar="N", help='How many threads "all" is; default: every core.'
)
@output_options(".toml")
def command(threads: int | None, outputs: tuple[Path, ...], force: bool) -> None:
    """Measure the ceilings of this machine, in about ten seconds.

    Kernels of our own run its vector units and memory levels; torch's matrix products and
    convolutions are timed beside them. The profile is kept in the user's folder, where analyze
    finds it, and written to FILE with -o. Stop what else runs on the machine first.
    """
    for path in outputs:
        if path.suffix != ".toml":
            raise InputError(f"{path}: a hardware profile is written as .toml")
        check_writable(path, overwrite=force)
    from roofline.machine import catalog
    from roofline.machine.hardware import profile_to_toml
    from roofline.pipeline import measure_hardware
    from roofline.presentation.table import print_hardware

    with progress_bar("Measuring this machine") as progress:
        profile = measure_hardware(threads=threads, progress=progress)
    print_hardware(profile, result_console())
    for path in outputs:
        write_atomically(path, profile_to_toml(profile), overwrite=force)
    say_written((catalog.host_file(), *outputs))
