"""Library ceilings against a clock that moves by the same step whenever it is read."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from roofline.machine.library import measure_library  # noqa: E402

STEP_S = 0.05


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += STEP_S
        return self.now


def test_ceilings_follow_from_flop_and_clock() -> None:
    before = torch.get_num_threads()
    seen: list[float] = []
    found = measure_library(
        threads=2,
        budget_s=1.0,
        clock=Clock(),
        progress=lambda done, _: seen.append(done),
        cpu_clock=Clock(),
    )
    assert torch.get_num_threads() == before

    rates = {(c.kernel, c.dtype.name, c.threads): c.sustained_flop_per_s for c in found.compute}
    kinds = [
        ("gemm", "float32"),
        ("gemm", "float64"),
        ("gemm", "bfloat16"),
        ("conv", "float32"),
        ("conv-channels-last", "float32"),
    ]
    assert set(rates) == {(*kind, threads) for kind in kinds for threads in (1, 2)}
    # Every call takes one step, which is too long for more than the smallest size: 128 x 128 x 128,
    # and 6 x 6 places of 128 channels, each of 128 x 3 x 3 taps.
    assert rates["gemm", "bfloat16", 1] == pytest.approx(4_194_304 / STEP_S)
    assert rates["conv", "float32", 2] == pytest.approx(10_616_832 / STEP_S)
    for ceiling in found.compute:
        assert (ceiling.kind, ceiling.unit) == ("library", "torch")
        assert ceiling.peak_flop_per_s >= ceiling.sustained_flop_per_s
        assert ceiling.spread == pytest.approx(0, abs=1e-9)
        assert torch.__version__ in ceiling.provenance.reference

    assert set(found.overheads) == {"dispatch_add_s", "dispatch_linear_s", "dispatch_conv_s"}
    assert found.overheads["dispatch_add_s"] == pytest.approx(STEP_S / 100)
    assert all(0 <= done <= 1 for done in seen)


def test_one_thread_is_measured_once() -> None:
    found = measure_library(
        threads=1, budget_s=1.0, clock=Clock(), progress=lambda done, what: None
    )
    assert len(found.compute) == 5


def test_an_interrupt_restores_the_number_of_threads() -> None:
    before = torch.get_num_threads()

    def interrupt(done: float, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_library(threads=2, budget_s=1.0, clock=Clock(), progress=interrupt)
    assert torch.get_num_threads() == before


def test_calls_that_lost_the_cpu_are_left_out() -> None:
    # Every fourth reading of the wall clock comes late; the CPU clock knows nothing of it.
    steps = itertools.cycle([STEP_S, STEP_S, STEP_S, 4 * STEP_S])
    readings = itertools.accumulate(steps)
    found = measure_library(
        threads=1,
        budget_s=1.0,
        clock=lambda: next(readings),
        progress=lambda done, what: None,
        cpu_clock=Clock(),
    )
    rates = {(c.kernel, c.dtype.name): c.sustained_flop_per_s for c in found.compute}
    assert rates["gemm", "float64"] == pytest.approx(4_194_304 / STEP_S)
    assert any("disturbed" in c.provenance.note for c in found.compute)
