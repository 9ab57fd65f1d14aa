"""Hosts that refuse, lack or have little: what can be measured is, and the rest is said."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from roofline.cli.main import run
from roofline.errors import MeasurementError
from roofline.machine.catalog import host_file, save_measured_profile
from roofline.machine.hierarchy import exploration
from roofline.machine.kernels import compiler
from roofline.machine.measuring import benchmark, kernel_measurement, pinned_threads, selection
from roofline.machine.system import topology
from roofline.machine.system.host_state import read_host_state
from tests.builders import ceiling, level, profile
from tests.machine.fake_machine import FakeMachine, measure, with_topology
from tests.machine.host_trees import Tree
from tests.machine.simulated_caches import KIB, MIB, Simulated


@pytest.fixture
def tree(tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A root folder in which the measurement looks for /proc and /sys."""
    tree = Tree(tmp_path / "root")
    tree.root.mkdir()
    monkeypatch.setattr(topology.os, "cpu_count", lambda: 2)
    features = {"sse2": True, "avx": True, "avx2": True, "fma": True, "neon": True}

    def read(compiler_features: object) -> Any:
        host_state = read_host_state(tree.root, lambda: features)
        host = dataclasses.replace(host_state.host, architecture="x86_64")
        if not (tree.root / "proc/cpuinfo").exists():
            host = dataclasses.replace(host, instruction_sets=("avx", "avx2", "fma", "sse2"))
        return dataclasses.replace(host_state, host=host)

    monkeypatch.setattr(benchmark, "read_host_state", read)
    return tree


def starts(conditions: tuple[str, ...], *beginnings: str) -> None:
    """That there is a condition for each beginning, and no other."""
    left = list(conditions)
    for beginning in beginnings:
        found = [each for each in left if each.startswith(beginning)]
        assert found, f"{beginning!r} is not among {left}"
        left.remove(found[0])
    assert left == []


# --- CPUs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "ignored", "absent"])
def test_no_permission_for_affinity(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Some sandboxes refuse the call, some take it and do nothing."""

    def refuse(who: int, cpus: set[int]) -> None:
        if how == "refused":
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    if how == "absent":
        monkeypatch.delattr(os, "sched_setaffinity")
    found, _ = measure(machine)
    where = "cores: not supported" if how == "absent" else "CPU 0, 1: not permitted"
    starts(found.conditions, f"threads not pinned to {where}")
    assert {c.threads for c in found.compute} == {1, 2}


def test_one_cpu_only(machine: FakeMachine) -> None:
    with_topology(
        machine,
        available_cpus=1,
        cores=(0,),
        allowed_cpus=(0,),
        caches=machine.host_state.topology.caches[:1],
    )
    found, _ = measure(machine)
    assert found.threads == 1
    assert {c.threads for c in found.compute} == {1}
    assert {b.threads for each in found.memory for b in each.bandwidth} == {1}
    assert found.overheads == ()
    assert "affinity: this process may use 1 of 2 CPUs" in found.conditions


# --- memory --------------------------------------------------------------------------------------


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every large array that was asked for."""
    sizes: list[int] = []
    allocate = pinned_threads.allocate

    def counting(byte: int) -> Any:
        if byte >= MIB:
            sizes.append(byte)
        return allocate(byte)

    for module in (exploration, kernel_measurement, selection):
        monkeypatch.setattr(module, "allocate", counting)
    return sizes


def large_cache(machine: FakeMachine) -> None:
    """A last cache of 32 MiB: memory is measured with 128 MiB and more, where there is enough."""
    last = dataclasses.replace(machine.host_state.topology.caches[-1], size_bytes=32 * MIB)
    with_topology(machine, caches=(*machine.host_state.topology.caches[:-1], last))
    machine.caches = Simulated(
        caches=((32 * KIB, 1e-9), (32 * MIB, 8e-9)), memory_s=80e-9, policy="partial"
    )


def test_256_mib_of_memory(machine: FakeMachine, allocated: list[int]) -> None:
    large_cache(machine)
    machine.host_state = dataclasses.replace(
        machine.host_state, available_bytes=256 * MIB, memory_limit_bytes=256 * MIB
    )
    found, _ = measure(machine)
    assert sum(allocated) < 256 * MIB
    starts(
        found.conditions,
        "memory limit of the container: 256 MiB",
        "DRAM on 1 thread: working sets of 64 MiB instead of 128 MiB, only 256 MiB",
        "DRAM on 2 threads: working sets of 64 MiB instead of 128 MiB, only 256 MiB",
    )
    assert [each.name for each in found.memory] == ["L1", "L2", "DRAM"]
    for bandwidth in found.memory[-1].bandwidth:
        assert "64 MiB instead of 128 MiB" in bandwidth.doubt
    assert not any(b.doubt for each in found.memory[:-1] for b in each.bandwidth)
    assert not any(c.doubt for c in found.compute)


@pytest.mark.parametrize("available_bytes", [100 * MIB, 8 * MIB])
def test_too_little_memory_for_memory(
    machine: FakeMachine, allocated: list[int], available_bytes: int
) -> None:
    machine.host_state = dataclasses.replace(machine.host_state, available_bytes=available_bytes)
    found, _ = measure(machine)
    assert sum(allocated) < available_bytes
    assert [each.name for each in found.memory] == ["L1", "L2"]
    left_out = [each for each in found.conditions if each.startswith("DRAM on ")]
    assert len(left_out) == 2
    assert all("not measured: only" in each for each in left_out)
    assert found.compute


# --- what is not told ----------------------------------------------------------------------------


def test_neither_proc_nor_sys(tree: Tree, machine: FakeMachine) -> None:
    """As on macOS, but that there the system is asked in other ways."""
    found, _ = measure(machine, threads=2)
    assert found.compute
    # The hierarchy is found all the same.
    assert [each.name for each in found.memory][:2] == ["L1", "L2"]
    for each in found.memory[:2]:
        assert each.capacity_provenance is not None
        assert "size not reported" in each.capacity_provenance.reference
    said = " ".join(found.conditions)
    assert "cache sizes not reported" in said
    assert "CPU topology not reported" in said


# --- software ------------------------------------------------------------------------------------


def test_without_llvmlite_nothing_of_the_hardware_is_measured(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler._llvm.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite", cast(Any, None))
    monkeypatch.setitem(sys.modules, "llvmlite.binding", cast(Any, None))
    assert not compiler.is_available()
    assert compiler.host_features() == {}
    with pytest.raises(MeasurementError, match=r"cannot load llvmlite .`pip install llvmlite`"):
        measure(machine)


QUICK = """
import sys, pytest
from tests.machine.fake_machine import install
from roofline.machine.measuring import benchmark
with pytest.MonkeyPatch.context() as patch:
    machine = install(patch)
    profile, _ = benchmark.measure_hardware(effort="quick", clock=machine.clock)
    print(bool(profile.compute), "torch" in sys.modules)
"""


def test_a_quick_measurement_imports_no_torch() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", QUICK], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "True False\n", done.stderr


# --- the whole command, interrupted --------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["pointer chase", "fma float32 avx2", "triad avx"])
def test_ctrl_c_while_kernels_run_changes_nothing(
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kernel: str,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    save_measured_profile(profile([ceiling(1e11)], [level("DRAM", None, {"read": {1: 1e10}})]), ())
    folder = host_file().parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    sent: list[bool] = []

    def slowness(running: Any, now_s: float) -> float:
        if running.label == kernel and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return 1.0

    machine.slowness = slowness
    timed = functools.partial(benchmark.measure_hardware, clock=machine.clock)
    monkeypatch.setattr(benchmark, "measure_hardware", timed)
    assert run(["measure", "--quick"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("roofline: interrupted\n")
    assert "Traceback" not in captured.err
    assert sent
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not [each for each in threading.enumerate() if each.name.startswith("roofline-")]
