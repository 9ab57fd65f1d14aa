"""What happened on the host between two readings, from fake /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roofline.machine.system.activity import Activity, competition, disturbances, read_activity
from roofline.machine.system.system_files import control_group
from tests.machine.host_trees import V1_MOUNT, V2_MOUNT, Tree

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


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


def test_the_time_lost_to_the_quota_is_read_from_both_versions(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/cpu.stat", "nr_throttled 2\nthrottled_usec 1500000")
    assert read_activity(tree.root).throttled_s == 1.5
    tree.write("proc/self/cgroup", "8:cpu,cpuacct:/\n0::/")
    tree.write("proc/self/mountinfo", V1_MOUNT.format(root="/"))
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_throttled 2\nthrottled_time 2000000000")
    assert read_activity(tree.root).throttled_s == 2.0


def test_half_a_cpu_is_said_with_the_time_that_was_waited() -> None:
    before = Activity(steal_s=0, throttled=1, load=None, throttled_s=0.5)
    after = Activity(steal_s=0, throttled=41, load=None, throttled_s=2.5)
    (said,) = disturbances(before, after, elapsed_s=4, cpus=1)
    assert "40 scheduler periods" in said
    assert "2.00 s of waiting" in said


def test_others_on_the_watched_cpus_are_what_this_process_did_not_take(tree: Tree) -> None:
    idle, own_s = 0, 0.0

    def reading(user: int, system: int, elsewhere: int) -> Activity:
        tree.write(
            "proc/stat",
            "cpu  0 0 0 0 0 0 0 0 0 0\n"
            f"cpu0 {user} 0 0 {idle} 7 0 0 90 {user} 0\n"
            f"cpu1 0 0 {system} {idle} 7 0 0 90 0 0\n"
            f"cpu2 {elsewhere} 0 0 0 0 0 0 0 0 0",
        )
        return read_activity(tree.root, (0, 1), lambda: own_s)

    before = reading(100, 100, 0)
    own_s = 100 * TICK_S
    # 100 ticks are this process's own, 60 are not; CPU 2 is not watched, steal is told apart.
    after = reading(200, 160, 9999)
    elapsed_s = 150 * TICK_S
    assert competition(before, after, elapsed_s=elapsed_s) == pytest.approx(60 / 300)
    (said,) = disturbances(before, after, elapsed_s=elapsed_s, cpus=2)
    assert said.startswith("competitors: other processes took 20.0 % of the time of the 2 CPUs")


@pytest.mark.parametrize(
    ("before_s", "after_s", "fraction"), [(5.0, 1.0, 0.0), (0.0, 100.0, 1.0), (0.0, 2.0, 0.2)]
)
def test_competition_is_a_fraction(before_s: float, after_s: float, fraction: float) -> None:
    before = Activity(steal_s=0, throttled=0, load=None, busy_s=before_s, watched=1)
    after = Activity(steal_s=0, throttled=0, load=None, busy_s=after_s, watched=1)
    assert competition(before, after, elapsed_s=10) == pytest.approx(fraction)


def test_competition_is_unknown_where_it_cannot_be_read(tree: Tree) -> None:
    nothing = read_activity(tree.root, (0, 1))
    assert nothing.busy_s is None
    assert competition(nothing, nothing, elapsed_s=1) is None
    tree.write("proc/stat", "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 1 1")
    short = read_activity(tree.root, (0,))
    assert short.busy_s == 2 * TICK_S
    tree.write("proc/stat", "cpu\ncpu0 max -1 x\ncpu1")
    assert read_activity(tree.root, (0, 1)).busy_s == 0


@pytest.mark.parametrize("text", ["", "nan 1 1", "inf", "-1.0", "1", "x.y"])
def test_a_damaged_load_is_unknown(tree: Tree, text: str) -> None:
    tree.write("proc/loadavg", text)
    assert read_activity(tree.root).load is None
