"""The clock kernel: a chain that nothing folds, and what is made of its rate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.machine.hardware import Clock, Provenance
from roofline.machine.kernels import compiler
from roofline.machine.kernels.assembly import Architecture, check
from roofline.machine.kernels.chase import CHAIN, PlainKernel, clock_kernel
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.estimation import Estimate, estimate
from roofline.machine.measuring.kernel_measurement import clock_conditions, measured_clock
from roofline.machine.measuring.pace_gauge import clock_trial
from roofline.machine.system.host import describe_host

pytest.importorskip("llvmlite.binding")

TARGETS: list[tuple[Architecture, str]] = [
    ("x86_64", "x86_64-unknown-linux-gnu"),
    ("x86_64", "x86_64-apple-darwin"),
    ("aarch64", "aarch64-unknown-linux-gnu"),
    ("aarch64", "aarch64-apple-darwin"),
]
HOST = describe_host()


def host_kernel() -> PlainKernel:
    if HOST.architecture == "x86_64":
        return clock_kernel("x86_64")
    if HOST.architecture == "aarch64":
        return clock_kernel("aarch64")
    pytest.skip("no clock kernel for this architecture")


@pytest.mark.parametrize(("architecture", "triple"), TARGETS)
def test_the_loop_is_a_chain_on_one_register_and_loop_control(
    architecture: Architecture, triple: str
) -> None:
    kernel = clock_kernel(architecture)
    loop = check(kernel, compiler.assembly(kernel, triple=triple))
    chain = [line for line in loop.instructions if line.startswith("sub")]
    assert len(chain) == CHAIN == 100
    # Each is the same instruction: it reads the register that it writes, and one other.
    assert len(set(chain)) == 1
    one, other = chain[0].split(None, 1)[1].replace(" ", "").split(",")[-2:]
    assert one != other
    assert len(loop.instructions) == CHAIN + 3
    assert loop.accesses() == (0, 0)
    assert kernel.work(7) == 700


def test_a_chain_that_was_regrouped_is_refused() -> None:
    """LLVM pairs up additions on Arm: half of a chain would then run beside the other."""
    kernel = clock_kernel("aarch64")
    text = kernel.ir().replace("= sub i64 %x", "= add i64 %x")

    added = dataclasses.replace(kernel, text=text)
    with pytest.raises(MeasurementError, match="'clock' was compiled to 0 of 100"):
        check(added, compiler.assembly(added, triple="aarch64-unknown-linux-gnu"))


def test_it_computes_the_whole_chain() -> None:
    """Start 5, minus 3 a hundred times per iteration: what would be folded would not be counted."""
    compiled = compiler.compile_kernel(host_kernel())
    state = np.array([3, 5], dtype=np.int64)
    compiled.call(state.ctypes.data, 0, 4)
    assert state.tolist() == [3, 5 - 3 * 100 * 4]


def test_a_trial_counts_cycles() -> None:
    kernel = host_kernel()
    trial = clock_trial(compiler.compile_kernel(kernel))
    assert trial.label == "clock, 1 thread"
    assert trial.compiled.kernel.work(50) == 5000
    with Crew(1) as crew:
        trial.repeats = 200
        assert trial.work_per_burst == 200 * 100
        assert len(trial.run(crew, 2)) <= 2


def rate(peak: float, sustained: float) -> Estimate:
    return Estimate(
        peak=peak, sustained=sustained, spread=0.01, bursts=40, disturbed=2, only_disturbed=False
    )


def test_the_rate_becomes_the_clock() -> None:
    clock = measured_clock(rate(4.2e9, 4.1e9))
    assert (clock.peak_hz, clock.median_hz) == (4.2e9, 4.1e9)
    assert clock.provenance.source == "measured"
    assert "chain of 100 dependent additions" in clock.provenance.reference
    assert "40 bursts, 2 disturbed" in clock.provenance.note


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (None, ""),
        (4.2e9, ""),
        (4.3e9, ""),
        (5.0e9, "measured 4.20 GHz is 16 % below the 5.00 GHz"),
        (3.5e9, "measured 4.20 GHz is 20 % above the 3.50 GHz"),
    ],
)
def test_a_clock_that_is_not_the_reported_one_is_said(reported: float, expected: str) -> None:
    where = Provenance(source="measured", reference="here", date="2026-01-31")
    clock = Clock(peak_hz=4.2e9, median_hz=4.1e9, provenance=where)
    found = clock_conditions(clock, reported)
    assert bool(found) == bool(expected)
    assert expected in "".join(found)


@pytest.mark.hardware
def test_this_host_has_a_plausible_clock() -> None:
    kernel = host_kernel()
    trial = clock_trial(compiler.compile_kernel(kernel))
    with Crew(1) as crew:
        trial.calibrate(crew)
        bursts = [each for _ in range(4) for each in trial.run(crew, 20)]
    clock = measured_clock(estimate(trial.work_per_burst, bursts))
    assert 5e8 < clock.median_hz <= clock.peak_hz < 1e10
