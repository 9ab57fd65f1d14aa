"""measure_links: what goes between processes of this machine, kept in its profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roofline.errors import HardwareError
from roofline.foundation.files import write_atomically
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Link, profile_to_toml


def measure_links(
    *, save: bool = True, say: Callable[[str], None] | None = None
) -> HardwareProfile:
    """This machine's profile with its links between processes, measured now over gloo.

    Links that were measured so before are replaced; all else in the profile stays.

    Args:
        save: keep the profile, in the place of the one without them.
        say: told, in words, what is waited for, and what is measured.

    Raises:
        HardwareError: this machine was never measured.
        MeasurementError: a process died, or it took too long.
        InputError: the profile cannot be kept.
    """
    from roofline.machine.links import measure_links as measure
    from roofline.machine.system.exclusive import alone_on_this_machine

    file = catalog.host_file()
    if not file.exists():
        raise HardwareError(
            "this machine was not measured yet, and links are kept in its profile; run"
            " `roofline measure` first"
        )
    profile = catalog.load_hardware(file)
    if save:
        catalog.check_user_folder()
    tell = say or _silent
    with alone_on_this_machine(tell):
        tell("measuring what goes between two processes over gloo")
        found = with_links(profile, measure())
    if save:
        write_atomically(file, profile_to_toml(found), overwrite=True)
    return found


def with_links(profile: HardwareProfile, links: tuple[Link, ...]) -> HardwareProfile:
    """The profile with these links, in the place of their like: same ends, same kernel."""
    new = {(each.source, each.target, each.kernel) for each in links}
    kept = [each for each in profile.links if (each.source, each.target, each.kernel) not in new]
    return replace(profile, links=(*kept, *links))


def _silent(_: str) -> None:
    pass
