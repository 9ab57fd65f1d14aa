"""What is said of a host before anything is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline.machine.system.host_state import (
    Frequency,
    core_conditions,
    frequency_conditions,
    host_conditions,
    read_frequency,
)
from roofline.machine.system.topology import CoreKind
from tests.machine.fake_machine import FREQUENCY, HOST, SITUATION, TOPOLOGY
from tests.machine.host_trees import Tree


def test_a_plain_host_has_nothing_to_say() -> None:
    assert host_conditions(SITUATION) == []


def test_siblings_affinity_and_memory_are_said() -> None:
    narrow = replace(TOPOLOGY, hidden_siblings=1, online_cpus=8)
    limited = replace(SITUATION, topology=narrow, memory_limit_bytes=256 << 20)
    affinity, siblings, memory = host_conditions(limited)
    assert affinity == "affinity: this process may use 2 of 8 CPUs"
    assert siblings == "one thread per physical core: 1 SMT sibling is not used"
    assert memory == "memory limit of the container: 256 MiB"


@pytest.mark.parametrize(
    ("fast", "slow", "beginning"),
    [
        (
            (0, 1),
            (4, 5, 6, 7),
            "4 efficiency cores are not used: the slowest core",
        ),
        (
            (),
            (4, 5),
            "affinity: only efficiency cores may be used, not the faster performance cores",
        ),
    ],
)
def test_slower_cores_are_said(
    fast: tuple[int, ...], slow: tuple[int, ...], beginning: str
) -> None:
    kinds = (CoreKind(name="performance", cores=fast), CoreKind(name="efficiency", cores=slow))
    (said,) = core_conditions(replace(TOPOLOGY, cores=fast or slow, kinds=kinds))
    assert said.startswith(beginning)


@pytest.mark.parametrize(
    ("quota", "less"), [(0.5, True), (1.0, False), (2.5, False)], ids=["half", "one", "more"]
)
def test_a_quota_below_one_thread_is_said_to_stop_it(quota: float, less: bool) -> None:
    threads = max(1, int(quota))
    (said,) = core_conditions(replace(TOPOLOGY, quota_cpus=quota, available_cpus=threads))
    assert said.startswith(f"CPU quota of the container: {quota:g} CPUs")
    assert ("less than one thread uses" in said) == less


def test_a_host_without_instruction_sets_says_so() -> None:
    bare = replace(HOST, architecture="riscv64", instruction_sets=())
    (said,) = host_conditions(replace(SITUATION, host=bare))
    assert said.startswith("instruction sets unknown on riscv64")


# --- the clock -----------------------------------------------------------------------------------

CPUFREQ = "sys/devices/system/cpu/cpu0/cpufreq"


def test_the_clock_as_the_system_governs_it(tree: Tree) -> None:
    for name, value in [
        ("scaling_governor", "powersave"),
        ("scaling_driver", "acpi-cpufreq"),
        ("scaling_max_freq", "2000000"),
        ("cpuinfo_max_freq", "3500000"),
    ]:
        tree.write(f"{CPUFREQ}/{name}", value)
    tree.write("sys/devices/system/cpu/cpufreq/boost", 0)
    tree.write("proc/cpuinfo", "flags\t: fpu hypervisor")
    frequency = read_frequency(tree.root, (0, 1))
    assert frequency == Frequency(
        governors=("powersave",),
        driver="acpi-cpufreq",
        limit_hz=2e9,
        most_hz=3.5e9,
        boost=False,
        hypervisor=True,
    )
    governor, boost, limit = frequency_conditions(frequency)
    assert "'powersave' limits the clock" in governor
    assert boost.startswith("boost is off")
    assert "limited to 2.00 GHz" in limit
    assert "3.50 GHz" in limit


@pytest.mark.parametrize(
    ("no_turbo", "boost", "expected"),
    [
        ("1", None, False),
        ("0", None, True),
        (None, "1", True),
        (None, None, None),
        ("x", "y", None),
    ],
)
def test_boost_is_read_from_either_driver(
    tree: Tree, no_turbo: str | None, boost: str | None, expected: bool | None
) -> None:
    if no_turbo is not None:
        tree.write("sys/devices/system/cpu/intel_pstate/no_turbo", no_turbo)
    if boost is not None:
        tree.write("sys/devices/system/cpu/cpufreq/boost", boost)
    assert read_frequency(tree.root, (0,)).boost is expected


@pytest.mark.parametrize(
    ("governor", "driver", "said"),
    [
        ("performance", "acpi-cpufreq", 0),
        ("powersave", "intel_pstate", 0),
        ("powersave", "amd-pstate-epp", 0),
        ("powersave", "intel_cpufreq", 1),
        ("ondemand", "acpi-cpufreq", 1),
        ("schedutil", "cppc_cpufreq", 1),
    ],
)
def test_powersave_is_slow_only_where_the_driver_obeys_it(
    governor: str, driver: str, said: int
) -> None:
    found = frequency_conditions(replace(FREQUENCY, governors=(governor,), driver=driver))
    assert len(found) == said
