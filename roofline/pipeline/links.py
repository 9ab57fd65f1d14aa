"""measure_links: what goes between processes of this machine, kept in its profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roofline.errors import FileFormatError, HardwareError
from roofline.foundation.files import write_atomically
from roofline.foundation.progress import silent
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Link, profile_to_toml, read_profile
from roofline.pipeline.hosts import this_host
from roofline.scaling.settings import BETWEEN_PROCESSES, is_between_ranks


def measure_links(
    *, save: bool = True, say: Callable[[str], None] | None = None
) -> HardwareProfile:
    """This machine's profile with its links between processes, measured now over gloo.

    Links that were measured so before are replaced; all else in the profile stays.

    Args:
        save: keep the profile, in the place of the one without them.
        say: told, in words, what is waited for, and what is measured.

    Raises:
        HardwareError: this machine was never measured, or the profile is of another one.
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
    _check_host(catalog.load_hardware(file))
    if save:
        catalog.check_user_folder()
    tell = say or silent
    with alone_on_this_machine(tell):
        tell("measuring what goes between two processes over gloo")
        links = measure()
    # Read now: whoever was waited for may have measured all the rest anew.
    found = with_links(catalog.load_hardware(file), links)
    if save:
        write_atomically(file, profile_to_toml(found), overwrite=True)
    return found


def with_links(profile: HardwareProfile, links: tuple[Link, ...]) -> HardwareProfile:
    """The profile with these links, in the place of their like: same ends, same kernel."""
    new = {(each.source, each.target, each.kernel) for each in links}
    kept = [each for each in profile.links if (each.source, each.target, each.kernel) not in new]
    return replace(profile, links=(*kept, *links))


def with_links_kept(profile: HardwareProfile) -> tuple[HardwareProfile, str]:
    """A new profile of this machine with the links between processes that the old one had.

    Returns:
        The profile, and in a line what became of the links; ``""``: there were none.
    """
    try:
        before = read_profile(catalog.host_file())
    except FileFormatError:
        return profile, ""
    links = tuple(
        each
        for each in before.links
        if is_between_ranks(each) and each.source == each.target == BETWEEN_PROCESSES
    )
    if not links or profile.device != "cpu":
        return profile, ""
    difference = "it does not say which"
    if profile.host is not None and before.host is not None:
        difference = before.host.difference(profile.host)
    again = "`roofline measure --links` measures them again"
    if difference:
        return profile, f"links between processes were of another host ({difference}); {again}"
    newest = max(each.provenance.date for each in links)
    before_torch, torch = (_torch_of(each) for each in (before, profile))
    with_torch = f" with torch {before_torch}" if before_torch != torch else ""
    return (
        with_links(profile, links),
        f"kept the links between processes as measured on {newest}{with_torch}; {again}",
    )


def _torch_of(profile: HardwareProfile) -> str:
    return profile.host.versions.get("torch", "") if profile.host else ""


def _check_host(profile: HardwareProfile) -> None:
    difference = profile.host.difference(this_host()) if profile.host else ""
    if difference:
        raise HardwareError(
            f"links are kept in this machine's profile, and that is of another host ({difference});"
            " run `roofline measure` first"
        )
