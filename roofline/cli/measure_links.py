"""``roofline measure --links``."""

from __future__ import annotations

from pathlib import Path

from roofline.cli.results import present_result, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError


def measure_links(others: dict[str, bool], outputs: tuple[Path, ...], *, force: bool) -> None:
    """Measures the links between processes of this machine, and shows its profile with them.

    Args:
        others: options that have no effect here, and whether they were given.
        outputs: files that the profile is written to as well.
        force: overwrites them.

    Raises:
        InputError: one of `others`, or a file that cannot be written.
    """
    for option, is_given in others.items():
        if is_given:
            raise InputError(
                f"{option} has no effect with --links, which measures links alone; leave it out"
            )
    from roofline.foundation.blocks import View
    from roofline.machine import catalog
    from roofline.machine.hardware import HardwareProfile

    HardwareProfile.check_files(outputs, overwrite=force)
    from roofline.pipeline.measuring import measure_links as measure

    profile = measure(say=tell)
    # Files first: what is printed may end early, in a pipe that closes.
    profile.save(*outputs, overwrite=force)
    present_result(profile, (), stdout_format=None, view=View(), force=force)
    say_written((catalog.host_file(), *outputs))
