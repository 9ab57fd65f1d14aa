"""Activity of the host: between two readings, and whether it is quiet enough to measure."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from roofline.errors import MeasurementError
from roofline.machine.system.activity import (
    Activity,
    check_quiet,
    competition,
    disturbances,
    memory_pressure,
    read_activity,
)
from tests.machine.fake_machine import TOPOLOGY
from tests.machine.host_trees import V1_MOUNT, V2_MOUNT, Tree

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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


def reading(steal_s: float = 0.0, throttled: int = 0, load: float | None = 0.1) -> Activity:
    return Activity(steal_s=steal_s, throttled=throttled, load=load)


def test_a_quiet_host_has_nothing_to_say() -> None:
    assert disturbances(reading(5.0, 3), reading(5.05, 3), elapsed_s=10, cpus=2) == []


def test_steal_throttling_and_load_are_said() -> None:
    after = replace(reading(2.5, 10, 4.0), throttled_s=2.0)
    steal, quota, load = disturbances(reading(1.0, 3, 4.0), after, elapsed_s=10, cpus=2)
    assert "1.50 s" in steal
    assert "7 scheduler periods" in quota
    assert "2.00 s waiting" in quota
    assert "4.0 tasks" in load


def test_throttling_is_read_from_both_versions(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "0::/")
    tree.write("proc/self/mountinfo", V2_MOUNT)
    tree.write("sys/fs/cgroup/cpu.stat", "nr_throttled 2\nthrottled_usec 1500000")
    assert read_activity(tree.root).throttled_s == 1.5
    tree.write("proc/self/cgroup", "8:cpu,cpuacct:/job\n0::/")
    tree.write("proc/self/mountinfo", V1_MOUNT.format(root="/"))
    folder = "sys/fs/cgroup/cpu,cpuacct/job"
    tree.write(f"{folder}/cpu.stat", "nr_throttled 4\nthrottled_time 2000000000")
    version_1 = read_activity(tree.root)
    assert (version_1.throttled, version_1.throttled_s) == (4, 2.0)


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
    assert said.startswith("contention: other processes used 20.0 % of 2 CPUs")


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


# --- quiet ---------------------------------------------------------------------------------------


def look(
    others_s: float | None, *, elapsed_s: float = 0.25, watched: int = 2, force: bool = False
) -> tuple[str, ...]:
    """Two readings `elapsed_s` apart, in which others computed for so long."""

    def at(busy_s: float | None, own_s: float) -> Activity:
        return Activity(
            steal_s=0.0, throttled=0, load=None, busy_s=busy_s, own_s=own_s, watched=watched
        )

    after = None if others_s is None else 50.0 + others_s + 0.01
    readings = iter([at(None if others_s is None else 50.0, 3.0), at(after, 3.01)])
    times = iter([10.0, 10.0 + elapsed_s])
    slept: list[float] = []
    found = check_quiet(
        TOPOLOGY,
        force=force,
        read_now=lambda: next(readings),
        clock=lambda: next(times),
        sleep=slept.append,
    )
    assert len(slept) == 1 and 0 < slept[0] <= 1
    return found


def test_quiet() -> None:
    assert look(0.0) == ()
    # A fifth of both CPUs is allowed, and no more.
    assert look(0.2 * 2 * 0.25 - 0.001) == ()


def test_busy_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(MeasurementError) as caught:
        look(0.25)
    text = str(caught.value)
    assert "busy" in text and "50" in text and "force=True" in text
    assert "\n" not in text
    with pytest.raises(MeasurementError):
        look(0.2 * 2 * 0.25 + 0.001)


def test_force_measures_and_says_so() -> None:
    (said,) = look(0.25, force=True)
    assert "busy" in said and "50" in said
    assert look(0.0, force=True) == ()


def test_what_cannot_be_read_is_quiet() -> None:
    assert look(None) == ()
    assert look(None, force=True) == ()
    # A clock that does not go on.
    assert look(0.5, elapsed_s=0.0) == ()


def pressure(tree: Tree, text: str) -> tuple[str, ...]:
    tree.write("proc/pressure/memory", text)
    return memory_pressure(tree.root)


FULL = "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"


def test_memory_pressure_of_some_tasks_counts(tree: Tree) -> None:
    assert memory_pressure(tree.root) == ()
    low = "some avg10=4.99 avg60=80.00 avg300=80.00 total=12345\n"
    assert pressure(tree, low + FULL) == ()
    (said,) = pressure(tree, low.replace("4.99", "17.20") + FULL)
    assert "17 %" in said and "memory" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "some\n",
        "some avg10\n",
        "some avg10=\n",
        "some avg10=many total=1\n",
        "some avg60=99.0\n",
        "some avg10=nan total=1\n",
        "x" * 1000,
        "\udcff\udcfe\x00some avg10=9",
        "full avg10=99.00\n",
    ],
)
def test_damaged_text_says_nothing(text: str, tree: Tree) -> None:
    assert pressure(tree, text) == ()
