"""Compiled passes as values: sums over graphs and calls, and what cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.compiled_kernels import (
    CompiledGraph,
    CompiledKernel,
    CompiledPass,
    EagerCalls,
    KernelKind,
    peak_bytes,
)
from roofline.workload.operators import Phase


def kernel(
    read: int | None, written: int | None, kind: KernelKind = "generated", loops: int = 1
) -> CompiledKernel:
    return CompiledKernel(
        name="cpp_fused_0", kind=kind, loops=loops, read_bytes=read, written_bytes=written
    )


def graph(*kernels: CompiledKernel, calls: int = 1, phase: Phase = "forward") -> CompiledGraph:
    return CompiledGraph(
        phase=phase,
        calls=calls,
        kernels=kernels,
        buffers=2,
        reused=1,
        allocated_bytes=64,
        peak_bytes=64,
    )


def test_every_call_of_a_graph_launches_its_kernels() -> None:
    once = graph(kernel(10, 4), kernel(100, 40, "library"))
    thrice = graph(kernel(1, 2), kernel(None, None, "library"), calls=3)
    backward = graph(kernel(1000, 1000), phase="backward")
    compiled = CompiledPass(compiler="Inductor", graphs=(once, thrice, backward))
    assert (compiled.launches(), compiled.launches("forward")) == (9, 8)
    assert compiled.launches_of("library") == 4
    assert compiled.launches_of("library", "backward") == 0
    assert compiled.known_bytes("forward") == 14 + 140 + 3 * 3
    assert compiled.known_bytes() == 163 + 2000
    assert (compiled.unknown_launches(), compiled.unknown_launches("backward")) == (3, 0)


def test_what_runs_outside_is_counted_by_its_part() -> None:
    outside = (
        EagerCalls(op="aten.nonzero", part="forward", calls=2),
        EagerCalls(op="aten.mse_loss", part="loss", calls=1),
        EagerCalls(op="aten.add", part="forward", calls=1),
    )
    compiled = CompiledPass(compiler="Inductor", outside=outside)
    assert compiled.called_outside("forward") == 3
    assert compiled.called_outside("optimizer") == 0


def test_unknown_bytes_are_never_zero() -> None:
    assert kernel(None, None).traffic_bytes is None
    with pytest.raises(ValueError, match="known or null together"):
        kernel(3, None)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        kernel(-1, 3)
    with pytest.raises(ValueError, match="at least one loop"):
        kernel(1, 1, loops=0)
    with pytest.raises(ValueError, match="above allocated_bytes"):
        CompiledGraph(
            phase="forward",
            calls=1,
            kernels=(),
            buffers=1,
            reused=0,
            allocated_bytes=8,
            peak_bytes=9,
        )
    with pytest.raises(ValueError, match="has no graphs"):
        CompiledPass(compiler="Inductor", graphs=(graph(),), why_not="no schedule")


def test_the_peak_of_a_chain_is_two_neighbours() -> None:
    steps = [("a", 8), ("b", 4), ("a", -1), ("c", 6), ("b", -1), ("arg0", -1), ("c", -1)]
    assert peak_bytes(steps) == 12


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 50)), max_size=30))
def test_the_peak_is_the_most_that_is_alive_at_any_moment(steps: list[tuple[str, int]]) -> None:
    sums: list[int] = [0]
    for end in range(1, len(steps) + 1):
        # What is alive after a step, found anew from the beginning of them all.
        last = dict(steps[:end])
        sums.append(sum(byte for byte in last.values() if byte > 0))
    assert peak_bytes(steps) == max(sums)
