"""How a host will be measured, in words: everything said was read, and nothing else is."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.machine.hardware import HardwareProfile
from roofline.machine.kernels import register_loop
from roofline.machine.measuring import ceilings
from roofline.machine.measuring.explanation import KernelPlan, Section, explain
from roofline.machine.system.host_state import Frequency, HostState, read_host_state
from roofline.machine.system.topology import Cache, CoreKind, Node
from roofline.pipeline import measuring
from tests.builders import SOURCE, ceiling, profile
from tests.machine import fake_machine
from tests.machine.host_trees import Tree

HOST = replace(fake_machine.HOST, instruction_sets=("avx", "avx2", "f16c", "fma", "sse", "sse2"))
SITUATION = replace(
    fake_machine.SITUATION,
    host=HOST,
    topology=replace(
        fake_machine.TOPOLOGY,
        cores=(0, 2),
        hidden_siblings=2,
        quota_cpus=2.5,
        caches=(
            Cache(level=1, size_bytes=48 << 10, cpus=(0,)),
            Cache(level=3, size_bytes=32 << 20, cpus=(0, 1, 2, 3)),
        ),
        kinds=(
            CoreKind(name="performance", cores=(0, 2)),
            CoreKind(name="efficiency", cores=(4, 5, 6, 7)),
        ),
        allowed_cpus=(0, 1, 2, 3, 4, 5, 6, 7),
        online_cpus=16,
    ),
    frequency=Frequency(
        governors=("ondemand",),
        driver="acpi-cpufreq",
        limit_hz=2e9,
        most_hz=3.5e9,
        boost=False,
        hypervisor=True,
    ),
    nodes=(
        Node(number=0, cpus=(0, 1), memory_bytes=8 << 30, free_bytes=None),
        Node(number=1, cpus=(2, 3), memory_bytes=8 << 30, free_bytes=None),
    ),
    available_bytes=3 << 30,
    memory_limit_bytes=4 << 30,
    huge_pages="never",
)
KERNELS = KernelPlan(
    measured=("scalar", "avx2"),
    lacking={"amx": "amx_tile"},
    refused={"avx512": "it ends with an illegal instruction"},
    used_sets=frozenset({"avx", "avx2", "fma", "sse2"}),
)


def told(
    host_state: HostState = SITUATION,
    kernels: KernelPlan = KERNELS,
    *,
    threads: int = 2,
    array_bytes: int | None = 256 << 20,
    last: HardwareProfile | None = None,
) -> dict[str, str]:
    """The text under each title."""
    sections = explain(
        host_state,
        kernels,
        threads=threads,
        array_bytes=array_bytes,
        profile_file=Path("folder/host.toml"),
        last=last,
    )
    assert all(isinstance(section, Section) for section in sections)
    return {section.title: "\n".join(section.lines) for section in sections}


def test_all_of_this_host_is_said() -> None:
    said = told()
    assert "Fake(R) CPU 9000 @ 3.00GHz" in said["Cores"]
    assert "on 1 and on 2 threads, pinned to CPU 0, 2" in said["Cores"]
    assert "may use 8 of 16 CPUs" in said["Cores"]
    assert "2 SMT siblings are not used" in said["Cores"]
    assert "4 efficiency cores are not used" in said["Cores"]
    assert "CPU quota of the container: 2.5 CPUs" in said["Cores"]
    assert "Measured: scalar, avx2." in said["Instruction sets"]
    assert "No amx: amx_tile missing" in said["Instruction sets"]
    assert "Not measured: avx512: It ends with an illegal" in said["Instruction sets"]
    assert said["Instruction sets"].endswith("Instruction sets without a kernel: f16c, sse.")
    assert "Virtual machine" in said["Clock"]
    assert "Governor: ondemand (acpi-cpufreq)." in said["Clock"]
    assert "Reported maximum: 3.50 GHz" in said["Clock"]
    assert "Boost is off" in said["Clock"]
    assert "L1 48 KiB; L3 32 MiB, shared by 4 CPUs" in said["Caches"]
    assert "Available: 3 GiB of the container's limit of 4 GiB." in said["Memory"]
    assert "working set: 256 MiB" in said["Memory"]
    assert "Huge pages: never" in said["Memory"]
    assert "node 0 (8 GiB), node 1 (8 GiB)" in said["Memory"]
    assert "write-allocate" in said["Counting"]
    assert "counters" in said["Limits"]
    assert said["Profile"] == f"Stored in {Path('folder/host.toml')}; none yet."


def test_every_line_is_a_sentence_of_its_own() -> None:
    for text in told().values():
        for line in text.splitlines():
            assert line.endswith(".")
            assert not line.endswith("..")
            assert line[0].isupper() or line[0].isdigit()


BARE = replace(
    fake_machine.SITUATION,
    host=replace(HOST, instruction_sets=("sse", "sse2")),
    topology=replace(fake_machine.TOPOLOGY, cores=(0,), caches=(), allowed_cpus=()),
)


def test_what_is_unknown_is_said_and_no_number_is_made_up() -> None:
    said = told(BARE, KernelPlan(measured=()), threads=1, array_bytes=None)
    assert "No own kernel can run here" in said["Instruction sets"]
    assert "this system does not pin threads" in said["Cores"]
    assert "maximum: unknown" in said["Clock"]
    assert "None reported" in said["Caches"]
    assert "Too little memory to measure DRAM" in said["Memory"]
    assert "NUMA: unknown." in said["Memory"]
    assert "Virtual machine" not in said["Clock"]
    for title in ("Clock", "Caches"):
        assert re.findall(r"\d", said[title]) == []


def test_what_the_last_measurement_noticed_is_told() -> None:
    dated = replace(SOURCE, source="measured", date="2026-01-31")
    last = replace(
        profile([replace(ceiling(1e9), provenance=dated)], []),
        threads=2,
        conditions=("steal: the hypervisor took 1 s",),
    )
    said = told(last=last)["Profile"]
    assert "last: 2026-01-31, 2 threads." in said
    assert "Its conditions: Steal: the hypervisor took 1 s." in said
    assert "No disturbance" in told(last=replace(last, conditions=()))["Profile"]


def test_what_is_said_of_agreement_is_what_is_checked() -> None:
    assert f"more than {(1 - ceilings.AGREEMENT) * 100:.0f} %" in told()["Timing"]


@pytest.mark.parametrize(
    ("text", "mode"),
    [("always [madvise] never", "madvise"), ("[never]", "never"), ("[odd]", ""), ("]x[", "")],
)
def test_huge_pages_as_the_kernel_says(tmp_path: Path, text: str, mode: str) -> None:
    Tree(tmp_path).write("sys/kernel/mm/transparent_hugepage/enabled", text)
    there = read_host_state(tmp_path)
    assert there.huge_pages == mode
    assert told(there)["Memory"]


def test_explaining_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from roofline.machine.measuring.explanation import KernelPlan, explain;"
        "from roofline.machine.system.host_state import read_host_state;"
        "explain(read_host_state(), KernelPlan(measured=()), threads=1, array_bytes=None,"
        " profile_file=Path('x'));"
        "print([m for m in ('torch', 'llvmlite', 'pandas', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_unit_that_lacks_one_data_type_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(register_loop, "request_permission", lambda: None)
    sets = ("amx_tile", "amx_int8", "amx_bf16", "avx512f", "avx2", "fma", "sse2")
    host = replace(SITUATION.host, architecture="x86_64", instruction_sets=sets)
    plan = measuring._kernels(host)  # pyright: ignore[reportPrivateUsage]
    text = told(replace(SITUATION, host=host), plan)["Instruction sets"]
    assert "tile-dot on AMX" in text
    assert "No AMX" not in text and "No float16 on AMX: amx_fp16 missing" in text
    assert "update: one load per store, in place." in told(SITUATION, plan)["Kernels"]
