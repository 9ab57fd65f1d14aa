"""Readers for files under ``/proc`` and ``/sys``; unreadable or invalid contents are unknown.

Sandboxes show such files empty, truncated or with other contents; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_DIGITS = 20  # 64-bit numbers

_MOST_CPUS = 1 << 16
"""Exceeds the limit of any kernel; higher numbers indicate a damaged list."""


def read(path: Path) -> str:
    """Return the stripped text of a file; ``""`` if unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # a path from damaged text may contain a zero byte
        return ""


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def whole_number(text: str) -> int | None:
    """Return `text` as a number ≥ 0; None if it is something else."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)


def table(text: str, separator: str = ":") -> dict[str, str]:
    """Return key and value of each line; the first value of repeated keys."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(separator)
        if found:
            rows.setdefault(key.strip(), value.strip())
    return rows


def kilobytes(text: str) -> int | None:
    """Return the bytes of ``"1024 kB"``; None if `text` is something else."""
    words = text.split()
    number = whole_number(words[0]) if len(words) == 2 and words[1] == "kB" else None
    return None if number is None else number * 1024


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a kernel list, ``"0-2,5"`` as (0, 1, 2, 5); skips damaged parts."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, is_range, last = part.partition("-")
        low = whole_number(first)
        high = whole_number(last) if is_range else low
        if low is not None and high is not None and low <= high < _MOST_CPUS:
            cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


_UNLIMITED_BYTE = 1 << 60
"""Version 1 writes 'no limit' as the largest page-aligned number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Folders of this process's control group, up to the visible root; every limit applies."""

    cpu: tuple[Path, ...]
    memory: tuple[Path, ...]

    def cpu_quota(self) -> float | None:
        """Return the CPU quota in CPUs; None: no limit."""
        quotas = [quota for folder in self.cpu if (quota := _quota(folder)) is not None]
        return min(quotas, default=None)

    def throttled_periods(self) -> int:
        """Return the scheduler periods throttled by the quota."""
        return sum(_table(folder / "cpu.stat").get("nr_throttled", 0) for folder in self.cpu)

    def throttled_s(self) -> float:
        """Return the seconds that tasks waited for quota, summed."""
        tables = [_table(folder / "cpu.stat") for folder in self.cpu]
        return sum(
            each["throttled_usec"] * 1e-6
            if "throttled_usec" in each
            else each.get("throttled_time", 0) * 1e-9
            for each in tables
        )

    def memory_limit_bytes(self) -> int | None:
        """Return the memory limit in bytes; None: no limit."""
        limits = [limit for folder in self.memory if (limit := _memory_limit(folder)) is not None]
        return min(limits, default=None)

    def available_memory_bytes(self) -> int | None:
        """Return the bytes left, with reclaimable file cache; None: no limit."""
        rooms = [room for folder in self.memory if (room := _memory_room(folder)) is not None]
        return min(rooms, default=None)


def control_group(root: Path) -> ControlGroup:
    """Return the control group of this process under `root`."""
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
    """Yield mount point, mounted folder and controllers; none for version 2."""
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
    # In a container the path may be the host's; then the mount is the group.
    folder = top / inside.strip("/")
    if ".." in folder.parts or not is_folder(folder):
        return (top,)
    chain = [folder]
    while chain[-1] != top:
        chain.append(chain[-1].parent)
    return tuple(chain)


def _quota(folder: Path) -> float | None:
    version_2 = read(folder / "cpu.max").split()
    version_1 = (read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us"))
    # Without a limit the quota is a word or negative.
    time, per = map(whole_number, version_2 if len(version_2) == 2 else version_1)
    return time / per if time and per else None


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
