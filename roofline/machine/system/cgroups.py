"""Linux control groups: what a container may use; affinity and ``os.cpu_count`` do not show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roofline.machine.system.system_files import is_folder, read, whole_number

_UNLIMITED_BYTE = 1 << 60
"""Version 1 writes 'no limit' as the largest page-aligned number instead of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """The folders of this process's control group, from its own up to the visible root.

    ``cpu`` and ``memory`` are the folders to look for limits in; a limit of any of them holds.
    """

    cpu: tuple[Path, ...]
    memory: tuple[Path, ...]

    def cpu_quota(self) -> float | None:
        """CPUs' worth of time per second of time; None: no limit."""
        quotas = [quota for folder in self.cpu if (quota := _quota(folder)) is not None]
        return min(quotas, default=None)

    def throttled_periods(self) -> int:
        """Scheduler periods in which this group, or one above it, used up its quota."""
        return sum(_table(folder / "cpu.stat").get("nr_throttled", 0) for folder in self.cpu)

    def throttled_s(self) -> float:
        """Seconds that its tasks, or those of one above it, waited for new quota, all together."""
        return sum(_throttled_s(folder) for folder in self.cpu)

    def memory_limit_bytes(self) -> int | None:
        """Bytes that this group, or one above it, may use in all; None: no limit."""
        limits = [limit for folder in self.memory if (limit := _memory_limit(folder)) is not None]
        return min(limits, default=None)

    def available_memory_bytes(self) -> int | None:
        """Bytes that may still be allocated, reclaimable file cache included; None: no limit."""
        rooms = [room for folder in self.memory if (room := _memory_room(folder)) is not None]
        return min(rooms, default=None)


def control_group(root: Path) -> ControlGroup:
    """The control group of this process as ``/proc`` and ``/sys`` under `root` show it."""
    paths: dict[str, str] = {}
    for line in read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths[controller] = path
    folders: dict[str, tuple[Path, ...]] = {}
    for mount_point, mounted, options in _mounts(root):
        for controller in ("cpu", "memory"):
            if controller in options:
                folders[controller] = _chain(root, mount_point, mounted, paths.get(controller, "/"))
            elif not options and controller not in folders:
                folders[controller] = _chain(root, mount_point, mounted, paths.get("", "/"))
    return ControlGroup(cpu=folders.get("cpu", ()), memory=folders.get("memory", ()))


def _mounts(root: Path) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Mount point, mounted folder and controllers; version 2 has no controllers in its options."""
    for line in read(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        yield fields[4], fields[3], controllers


def _chain(root: Path, mount_point: str, mounted: str, path: str) -> tuple[Path, ...]:
    top = root / mount_point.lstrip("/")
    inside = path[len(mounted) :] if mounted != "/" and path.startswith(mounted) else path
    # In a container the path may be the host's and not exist here; then the mount is the group.
    folder = top / inside.strip("/")
    if ".." in folder.parts or not is_folder(folder):
        return (top,)
    chain = [folder]
    while chain[-1] != top:
        chain.append(chain[-1].parent)
    return tuple(chain)


def _quota(folder: Path) -> float | None:
    version_2 = read(folder / "cpu.max").split()
    if len(version_2) == 2:
        return _ratio(*version_2)
    return _ratio(read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    """Without a limit the quota is a word or negative; neither is a whole number."""
    time, per = whole_number(quota), whole_number(period)
    return time / per if time and per else None


def _throttled_s(folder: Path) -> float:
    table = _table(folder / "cpu.stat")
    if "throttled_usec" in table:
        return table["throttled_usec"] * 1e-6
    return table.get("throttled_time", 0) * 1e-9


def _memory_limit(folder: Path) -> int | None:
    limit = whole_number(read(folder / "memory.max") or read(folder / "memory.limit_in_bytes"))
    return None if limit is None or limit >= _UNLIMITED_BYTE else limit


def _memory_room(folder: Path) -> int | None:
    limit = _memory_limit(folder)
    used = whole_number(read(folder / "memory.current") or read(folder / "memory.usage_in_bytes"))
    if limit is None or used is None:
        return None
    table = _table(folder / "memory.stat")
    reclaimable = table.get("inactive_file", 0) + table.get("active_file", 0)
    return max(0, min(limit, limit - used + reclaimable))


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in read(path).splitlines())
    pairs = ((row[0], whole_number(row[1])) for row in rows if len(row) == 2)
    return {key: number for key, number in pairs if number is not None}
