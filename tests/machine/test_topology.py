"""CPUs, cores and caches described from fake /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.machine.system.host import describe_host
from roofline.machine.system.system_files import cpu_list
from roofline.machine.system.topology import Cache, CoreKind, describe_topology, macos_topology
from tests.machine.host_trees import V1_MOUNT, V2_MOUNT, Tree

# --- CPUs ----------------------------------------------------------------------------------------


def test_all_cpus_without_limits(tree: Tree) -> None:
    tree.cpus(4)
    topology = describe_topology(tree.root)
    assert topology.available_cpus == 4
    assert topology.cores == (0, 1, 2, 3)
    assert topology.quota_cpus is None


def test_one_thread_per_core_with_smt(tree: Tree) -> None:
    tree.cpus(8, siblings=2)
    topology = describe_topology(tree.root)
    assert topology.available_cpus == 4
    assert topology.cores == (0, 1, 2, 3)
    assert topology.hidden_siblings == 4


def version_1(quota: int, root: str = "/") -> dict[str, str | int]:
    folder = "sys/fs/cgroup/cpu,cpuacct"
    return {
        # In a container the group's path is the host's; the mount shows its own folder.
        "proc/self/cgroup": "8:cpu,cpuacct:/docker/abc\n0::/",
        "proc/self/mountinfo": V1_MOUNT.format(root=root),
        f"{folder}/cpu.cfs_quota_us": quota,
        f"{folder}/cpu.cfs_period_us": 50000,
    }


def version_2(cpu_max: str) -> dict[str, str | int]:
    return {
        "proc/self/cgroup": "0::/user/job",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        "sys/fs/cgroup/user/cpu.max": cpu_max,
    }


DAMAGED = ("", "max", "0 0", "100000 0", "-5 100", "x y", "1 2 3", "9" * 30 + " 1")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        # The tightest on the way up holds.
        (version_2("250000 100000"), 2.5),
        (version_2("50000 100000"), 0.5),
        (version_2("max 100000"), None),
        (version_1(100000), 2.0),
        (version_1(100000, root="/docker/abc"), 2.0),
        (version_1(-1), None),
        *((version_2(text), None) for text in DAMAGED),
    ],
)
def test_quotas_that_affinity_does_not_show(
    tree: Tree, files: dict[str, str | int], quota: float | None
) -> None:
    tree.cpus(4)
    (tree.root / "sys/fs/cgroup/user/job").mkdir(parents=True)
    for path, text in files.items():
        tree.write(path, text)
    topology = describe_topology(tree.root)
    assert topology.quota_cpus == quota
    assert topology.available_cpus == (4 if quota is None else max(1, int(quota)))
    assert describe_host(tree.root).available_cpus == topology.available_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("0,2-3,8", (0, 2, 3, 8)),
        ("5", (5,)),
        ("0,,2", (0, 2)),
        ("0, 2", (0, 2)),
        *((text, ()) for text in ("", "max", "-1", "3-1", "0-99999999999", "1-", "²", "9" * 5000)),
    ],
)
def test_cpu_lists_without_their_damaged_parts(
    tree: Tree, text: str, cpus: tuple[int, ...]
) -> None:
    assert cpu_list(text) == cpus
    if cpus:
        tree.cpus(9)
        tree.write("proc/self/status", f"Cpus_allowed_list:\t{text}")
        assert describe_topology(tree.root).cores == cpus


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
        Cache(level=1, size_bytes=49152, cpus=(0,)),
        Cache(level=1, size_bytes=49152, cpus=(1,)),
        Cache(level=2, size_bytes=1048576, cpus=(0,)),
        Cache(level=2, size_bytes=1048576, cpus=(1,)),
        Cache(level=3, size_bytes=33554432, cpus=(0, 1)),
    )
    assert topology.cache(2) == Cache(level=2, size_bytes=1048576, cpus=(0,))
    assert topology.cache(4) is None


def test_each_core_uses_its_own_instance_of_a_shared_cache(tree: Tree) -> None:
    tree.cpus(4)
    for cpu in range(4):
        tree.cache(cpu, 3, 3, "Unified", "16M", "0-1" if cpu < 2 else "2-3")
    topology = describe_topology(tree.root)
    assert [each.cpus for each in topology.caches] == [(0, 1), (2, 3)]
    assert topology.cache(3) == Cache(level=3, size_bytes=16 << 20, cpus=(0, 1))


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
    assert topology.cache(1) == Cache(level=1, size_bytes=128 << 10, cpus=(0,))
    assert topology.cache(2) == Cache(level=2, size_bytes=12 << 20, cpus=(0, 1, 2, 3))
    assert topology.cache(3) is None


def test_a_mac_has_kinds_of_core_and_siblings() -> None:
    answers = {
        "hw.perflevel0.physicalcpu": "2",
        "hw.perflevel1.physicalcpu": "4",
        "hw.logicalcpu": "6",
        "hw.perflevel0.logicalcpu": "2",
    }
    topology = macos_topology(lambda name: answers.get(name, ""))
    assert topology.cores == (0, 1)
    assert topology.kinds == (
        CoreKind(name="performance", cores=(0, 1)),
        CoreKind(name="efficiency", cores=(2, 3, 4, 5)),
    )
    assert topology.hidden_siblings == 0
    intel = {"hw.physicalcpu": "2", "hw.logicalcpu": "4"}
    assert macos_topology(lambda name: intel.get(name, "")).hidden_siblings == 2
    for nothing in ("", "99999999999999"):
        assert macos_topology(lambda name, answer=nothing: answer).cores == (0,)


@given(st.dictionaries(st.integers(0, 12), st.text("0123456789-max²", max_size=25)))
def test_no_answer_of_a_mac_raises(answers: dict[int, str]) -> None:
    # Which of its questions gets which answer is left to chance: the nth asked gets the nth.
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return answers.get(len(asked) - 1, "")

    topology = macos_topology(ask)
    assert topology.available_cpus == len(topology.cores) >= 1
    assert all(cache.size_bytes > 0 for cache in topology.caches)


# --- cores of different speed --------------------------------------------------------------------


def hybrid_x86(tree: Tree, allowed: str) -> None:
    """Two performance cores with siblings (0-3), four efficiency cores (4-7)."""
    tree.write("proc/self/status", f"Cpus_allowed_list:\t{allowed}")
    tree.write("sys/devices/system/cpu/online", "0-7")
    for cpu in range(8):
        shared = ("0-1", "2-3")[cpu // 2] if cpu < 4 else str(cpu)
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", shared)
    tree.write("sys/devices/cpu_core/cpus", "0-3")
    tree.write("sys/devices/cpu_atom/cpus", "4-7")


def test_threads_go_to_the_performance_cores_of_an_x86_host(tree: Tree) -> None:
    hybrid_x86(tree, "0-7")
    topology = describe_topology(tree.root)
    assert topology.cores == (0, 2)
    assert topology.available_cpus == 2
    assert topology.hidden_siblings == 2
    assert topology.kinds == (
        CoreKind(name="performance", cores=(0, 2)),
        CoreKind(name="efficiency", cores=(4, 5, 6, 7)),
    )
    assert topology.allowed_cpus == tuple(range(8))
    assert topology.online_cpus == 8


def test_slow_cores_are_used_where_no_others_may_be(tree: Tree) -> None:
    hybrid_x86(tree, "5-6")
    topology = describe_topology(tree.root)
    assert topology.cores == (5, 6)
    assert [(kind.name, kind.cores) for kind in topology.kinds] == [
        ("performance", ()),
        ("efficiency", (5, 6)),
    ]


def capacities(tree: Tree, values: list[str | int], allowed: str | None = None) -> None:
    tree.cpus(len(values))
    if allowed:
        tree.write("proc/self/status", f"Cpus_allowed_list:\t{allowed}")
    tree.write("sys/devices/system/cpu/online", f"0-{len(values) - 1}")
    for cpu, value in enumerate(values):
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", value)


@pytest.mark.parametrize(
    ("values", "allowed", "kinds"),
    [
        ([446] * 4 + [1024] * 2, None, {"performance": (4, 5), "efficiency": (0, 1, 2, 3)}),
        # A prime core comes first among the big ones.
        ([160, 160, 871, 871, 1024], None, {"performance": (4, 2, 3), "efficiency": (0, 1)}),
        (
            [160, 160, 500, 500, 1024],
            "0-3",
            {"performance": (), "middle": (2, 3), "efficiency": (0, 1)},
        ),
    ],
)
def test_cores_are_told_apart_by_capacity(
    tree: Tree, values: list[str | int], allowed: str | None, kinds: dict[str, tuple[int, ...]]
) -> None:
    capacities(tree, values, allowed)
    topology = describe_topology(tree.root)
    assert {kind.name: kind.cores for kind in topology.kinds} == kinds
    assert topology.cores == next(filter(None, kinds.values()))


@pytest.mark.parametrize("values", [[1024, 1024], [1024, 1000], ["", 1024], ["max", 200]])
def test_cores_that_are_alike_or_not_told_are_of_no_kind(
    tree: Tree, values: list[str | int]
) -> None:
    capacities(tree, values)
    topology = describe_topology(tree.root)
    assert topology.kinds == ()
    assert topology.cores in ((0, 1), (1, 0))


def test_a_quota_takes_the_fastest_cores(tree: Tree) -> None:
    capacities(tree, [400, 1024, 1024])
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/cpu.max", "100000 100000")
    topology = describe_topology(tree.root)
    assert topology.cores[: topology.available_cpus] == (1,)


# --- what is damaged -----------------------------------------------------------------------------


def test_lists_of_siblings_that_cannot_be_hide_no_core(tree: Tree) -> None:
    tree.cpus(4)
    tree.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-65535")
    tree.write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "2-3")
    assert describe_topology(tree.root).cores == (0, 1, 2, 3)


@pytest.mark.parametrize("size", ["", "K", "-1K", "32Q", "99999999999G", "0K", "1e3K"])
def test_a_cache_of_no_size_is_none(tree: Tree, size: str) -> None:
    tree.cpus(1)
    tree.cache(0, 0, 1, "Data", size, "0")
    assert describe_topology(tree.root).caches == ()


def test_a_host_without_proc_and_sys_has_at_least_one_core(tmp_path: Path) -> None:
    topology = describe_topology(tmp_path)
    assert len(topology.cores) == (os.cpu_count() or 1)
    assert topology.caches == ()
    assert topology.online_cpus is None
