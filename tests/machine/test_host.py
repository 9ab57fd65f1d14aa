"""Hosts described from fake /proc and /sys trees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.machine.activity import Activity, disturbances, read_activity
from roofline.machine.cgroups import control_group
from roofline.machine.host import architecture, available_memory_byte, describe_host, macos_sets
from roofline.machine.topology import Cache, cpu_list, describe_topology, macos_topology

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
        file.write_text(f"{text}\n", encoding="utf-8")

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


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


# --- CPUs ----------------------------------------------------------------------------------------


def test_all_cpus_without_limits(tree: Tree) -> None:
    tree.cpus(4)
    topology = describe_topology(tree.root)
    assert topology.available_cpus == 4
    assert topology.cores == (0, 1, 2, 3)
    assert topology.quota_cpus is None


def test_affinity_limits(tree: Tree) -> None:
    tree.cpus(8)
    tree.write("proc/self/status", "Cpus_allowed_list:\t2,5-6")
    assert describe_topology(tree.root).cores == (2, 5, 6)


def test_one_thread_per_core_with_smt(tree: Tree) -> None:
    tree.cpus(8, siblings=2)
    topology = describe_topology(tree.root)
    assert topology.available_cpus == 4
    assert topology.cores == (0, 1, 2, 3)
    assert topology.hidden_siblings == 4


@pytest.mark.parametrize(
    ("cpu_max", "available", "quota"),
    [("250000 100000", 2, 2.5), ("50000 100000", 1, 0.5), ("max 100000", 4, None)],
)
def test_a_version_2_quota_that_affinity_does_not_show(
    tree: Tree, cpu_max: str, available: int, quota: float | None
) -> None:
    tree.cpus(4)
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/cpu.max", cpu_max)
    topology = describe_topology(tree.root)
    assert topology.available_cpus == available
    assert topology.quota_cpus == quota
    assert describe_host(tree.root).available_cpus == available


def test_the_tightest_quota_on_the_way_up_holds(tree: Tree) -> None:
    tree.cpus(8)
    tree.write("proc/self/cgroup", "0::/user/job")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/user/job/cpu.max", "max 100000")
    tree.write("sys/fs/cgroup/user/cpu.max", "300000 100000")
    assert describe_topology(tree.root).quota_cpus == 3.0


@pytest.mark.parametrize("mounted", ["/", "/docker/abc"])
def test_a_version_1_quota(tree: Tree, mounted: str) -> None:
    # In a container the group's path is the host's; the mount shows the container's own folder.
    tree.cpus(4)
    tree.write("proc/self/cgroup", "8:cpu,cpuacct:/docker/abc\n0::/")
    tree.write("proc/self/mountinfo", V1_MOUNT.format(root=mounted))
    group = tree.root / "sys/fs/cgroup/cpu,cpuacct"
    group.mkdir(parents=True)
    folder = "sys/fs/cgroup/cpu,cpuacct"
    tree.write(f"{folder}/cpu.cfs_quota_us", "100000")
    tree.write(f"{folder}/cpu.cfs_period_us", "50000")
    assert describe_topology(tree.root).available_cpus == 2


def test_a_version_1_group_without_a_quota(tree: Tree) -> None:
    tree.cpus(4)
    tree.write("proc/self/cgroup", "8:cpu,cpuacct:/\n0::/")
    tree.write("proc/self/mountinfo", V1_MOUNT.format(root="/"))
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert describe_topology(tree.root).quota_cpus is None


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3", (0, 1, 2, 3)), ("0,2-3,8", (0, 2, 3, 8)), ("5", (5,)), ("", ())]
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


# --- caches --------------------------------------------------------------------------------------


def test_caches_as_the_system_reports_them(tree: Tree) -> None:
    tree.cpus(2)
    for cpu in (0, 1):
        tree.cache(cpu, 0, 1, "Data", "48K", str(cpu))
        tree.cache(cpu, 1, 1, "Instruction", "32K", str(cpu))
        tree.cache(cpu, 2, 2, "Unified", "1024K", str(cpu))
        tree.cache(cpu, 3, 3, "Unified", "32M", "0-1")
    topology = describe_topology(tree.root)
    assert topology.caches == (
        Cache(level=1, size_byte=49152, cpus=(0,)),
        Cache(level=1, size_byte=49152, cpus=(1,)),
        Cache(level=2, size_byte=1048576, cpus=(0,)),
        Cache(level=2, size_byte=1048576, cpus=(1,)),
        Cache(level=3, size_byte=33554432, cpus=(0, 1)),
    )
    assert topology.cache(2) == Cache(level=2, size_byte=1048576, cpus=(0,))
    assert topology.cache(4) is None
    assert topology.last_cache_byte((0, 1)) == 32 << 20


def test_two_last_level_caches_count_where_they_are_used(tree: Tree) -> None:
    tree.cpus(4)
    for cpu in range(4):
        tree.cache(cpu, 3, 3, "Unified", "16M", "0-1" if cpu < 2 else "2-3")
    topology = describe_topology(tree.root)
    assert topology.last_cache_byte((0, 1)) == 16 << 20
    assert topology.last_cache_byte((0, 1, 2)) == 32 << 20


def test_a_mac_counts_its_performance_cores() -> None:
    answers = {
        "hw.perflevel0.physicalcpu": "4",
        "hw.physicalcpu": "8",
        "hw.perflevel0.l1dcachesize": "131072",
        "hw.perflevel0.l2cachesize": "12582912",
        "hw.perflevel0.cpusperl2": "4",
    }
    topology = macos_topology(lambda name: answers.get(name, ""))
    assert topology.available_cpus == 4
    assert topology.cache(1) == Cache(level=1, size_byte=128 << 10, cpus=(0,))
    assert topology.cache(2) == Cache(level=2, size_byte=12 << 20, cpus=(0, 1, 2, 3))
    assert topology.cache(3) is None


def test_the_instruction_sets_of_a_mac_have_linux_names() -> None:
    on = {"hw.optional.AdvSIMD", "hw.optional.arm.FEAT_BF16"}
    assert macos_sets(lambda name: "1" if name in on else "0") == ("asimd", "bf16")


# --- identity ------------------------------------------------------------------------------------

X86 = """processor\t: 0
model name\t: AMD EPYC 7763 64-Core Processor
flags\t\t: fpu sse sse2 avx fma avx2 smep hypervisor

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
Features\t: fp asimd aes crc32 asimdhp bf16 sve
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_an_x86_host(tree: Tree) -> None:
    tree.cpus(2)
    tree.write("proc/cpuinfo", X86)
    tree.write("etc/os-release", 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 12"')
    host = describe_host(tree.root)
    assert host.cpu_model == "AMD EPYC 7763 64-Core Processor"
    assert host.instruction_sets == ("avx", "avx2", "fma", "sse", "sse2")
    assert host.operating_system.startswith("Debian GNU/Linux 12, ")
    assert {"python", "kernel", "numpy"} <= set(host.versions)


def test_an_arm_host_without_a_model_name(tree: Tree) -> None:
    tree.cpus(1)
    tree.write("proc/cpuinfo", ARM)
    host = describe_host(tree.root)
    assert host.cpu_model == "Arm implementer 0x41 part 0xd40"
    assert host.instruction_sets == ("asimd", "asimdhp", "bf16", "sve")


def test_a_host_that_shows_nothing_is_still_described(tmp_path: Path) -> None:
    host = describe_host(tmp_path)
    assert host.cpu_model
    assert host.instruction_sets == ()
    assert host.available_cpus >= 1


@pytest.mark.parametrize(
    ("machine", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")]
)
def test_architectures_have_one_name(machine: str, name: str) -> None:
    assert architecture(machine) == name


def test_describing_a_host_imports_nothing_heavy() -> None:
    code = (
        "import sys, roofline.machine.host as h; h.describe_host();"
        "print([m for m in ('torch', 'llvmlite', 'pandas', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"


# --- memory and activity -------------------------------------------------------------------------


def test_available_memory_within_the_containers_limit(tree: Tree) -> None:
    tree.write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB")
    assert available_memory_byte(tree.root) == 1024000
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/memory.max", 500000)
    tree.write("sys/fs/cgroup/memory.current", 300000)
    tree.write("sys/fs/cgroup/memory.stat", "anon 250000\ninactive_file 40000\nactive_file 10000")
    assert available_memory_byte(tree.root) == 250000


def test_activity_counters(tree: Tree) -> None:
    tree.write("proc/stat", "cpu  10 0 20 3000 5 0 0 250 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0")
    tree.write("proc/loadavg", "1.50 0.50 0.10 1/100 1234")
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/cpu.stat", "nr_periods 93\nnr_throttled 57")
    activity = read_activity(tree.root)
    assert activity.steal_s == 250 / os.sysconf("SC_CLK_TCK")
    assert activity.throttled == 57
    assert activity.load == 1.5


def test_a_version_1_group_counts_its_throttling(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "8:cpu,cpuacct:/job\n0::/")
    tree.write("proc/self/mountinfo", V1_MOUNT.format(root="/"))
    tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.stat", "nr_throttled 4\nthrottled_time 9")
    assert control_group(tree.root).throttled_periods() == 4


def reading(steal_s: float = 0.0, throttled: int = 0, load: float | None = 0.1) -> Activity:
    return Activity(steal_s=steal_s, throttled=throttled, load=load)


def test_a_quiet_host_has_nothing_to_say() -> None:
    assert disturbances(reading(5.0, 3), reading(5.05, 3), elapsed_s=10, cpus=2) == []


def test_steal_throttling_and_load_are_said() -> None:
    found = disturbances(reading(1.0, 3, 4.0), reading(2.5, 10, 4.0), elapsed_s=10, cpus=2)
    steal, quota, load = found
    assert "1.50 s" in steal
    assert "7 scheduler periods" in quota
    assert "4.0 tasks" in load
