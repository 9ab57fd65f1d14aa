"""Fake /proc and /sys trees, written file by file."""

from __future__ import annotations

from pathlib import Path

V2_MOUNT = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


class Tree:
    """A fake root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8", errors="surrogateescape")

    def cpus(self, count: int, *, siblings: int = 1) -> None:
        """`count` CPUs allowed, CPU i and i + count / siblings on the same core."""
        self.write("proc/self/status", f"Name:\tpython\nCpus_allowed_list:\t0-{count - 1}")
        cores = count // siblings
        for cpu in range(count):
            shared = ",".join(str(cpu % cores + k * cores) for k in range(siblings))
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", shared)

    def cache(self, cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> None:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        for name, value in [
            ("level", str(level)),
            ("type", kind),
            ("size", size),
            ("shared_cpu_list", shared),
        ]:
            self.write(f"{folder}/{name}", value)
