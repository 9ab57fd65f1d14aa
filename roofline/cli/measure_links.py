"""``roofline measure --links``."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from roofline.cli.results import result_console, say_written
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
    from roofline.presentation.hardware_output import check_targets, write

    check_targets(outputs, overwrite=force)
    from roofline.machine import catalog
    from roofline.pipeline.links import measure_links as measure
    from roofline.presentation.reports.hardware_report import hardware_report
    from roofline.render.console import print_report

    profile = measure(say=tell)
    for path in outputs:
        write(profile, path, overwrite=force)
    print_report(hardware_report(profile, today=date.today()), result_console())
    say_written((catalog.host_file(), *outputs))
