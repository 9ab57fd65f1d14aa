"""The kernels that this host has compute what they say, in both forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from roofline.core.dtypes import dtype
from roofline.machine.kernels import assembly, compiler, compute, stream
from roofline.machine.kernels.register_loop import ComputeKernel, TileKernel
from roofline.machine.kernels.stream import StreamKernel, element_bits, random_state, stream_state
from roofline.machine.measuring.pinned_threads import aligned
from roofline.machine.system.host import describe_host
from tests.machine.kernel_results import (
    LENGTH,
    assert_result,
    combination,
    initial_state,
    stream_result,
)

pytest.importorskip("llvmlite.binding")

HOST = describe_host()
COMPUTE = [
    form
    for kernel in compute.compute_kernels(
        HOST.architecture, HOST.instruction_sets, sve_bits=assembly.sve_vector_bits()
    )
    if not isinstance(kernel, TileKernel)
    for form in (kernel, kernel.second_variant())
]
UNIT = assembly.stream_unit(HOST.architecture, HOST.instruction_sets)
STREAMS = [
    form
    for kernel in (stream.stream_kernels(UNIT) if UNIT else ())
    for form in (kernel, kernel.second_variant())
]


def label(kernel: ComputeKernel | StreamKernel) -> str:
    return kernel.label


@pytest.mark.parametrize("kernel", COMPUTE, ids=label)
def test_compute_kernels_compute_their_sums(kernel: ComputeKernel) -> None:
    state = initial_state(kernel)
    compiler.compile_kernel(kernel).call(state.ctypes.data, 0, LENGTH)
    assert_result(kernel, state)


@pytest.mark.parametrize("kernel", COMPUTE, ids=label)
def test_random_operands_stay_normal_numbers(kernel: ComputeKernel) -> None:
    state = random_state(kernel)
    compiler.compile_kernel(kernel).call(state.ctypes.data, 0, 20_000)
    sums = state.view(kernel.sums.name).reshape(2 + kernel.accumulators, -1)[2:]
    active = sums[:, : max(1, kernel.unit.bits // kernel.sums.bits)]
    if kernel.sums.kind == "float":
        least = np.finfo(kernel.sums.name).tiny
        assert np.all(np.isfinite(active)) and np.all(np.abs(active) >= least)
    else:
        assert np.count_nonzero(active) > 0.9 * active.size


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    found = element_bits(np.array([1.0, -2.5]), dtype("bfloat16")).view(np.uint16)
    assert [hex(bits) for bits in found] == ["0x3f80", "0xc020"]


GUARD = 64


@pytest.mark.parametrize("kernel", STREAMS, ids=label)
def test_stream_kernels_do_what_their_name_says(kernel: StreamKernel) -> None:
    compiled = compiler.compile_kernel(kernel)
    elements, skip, factor = 4096, 1024, 0.75
    data = aligned(3 * (elements + GUARD) * 4, 64).view(np.float32)
    random = np.random.default_rng(3)
    data[:] = random.standard_normal(data.size, dtype=np.float32)
    a, b, c = data.reshape(3, -1)
    # Few bits in few places, so that a combination of all shows whether any was left out.
    a.view(np.uint32)[::97] = 1 << random.integers(0, 30, a[::97].size, dtype=np.uint32)
    if kernel.name == "read":
        a.view(np.uint32)[np.arange(a.size) % 97 > 0] = 0
    before = data.copy().reshape(3, -1)
    state = stream_state((a.ctypes.data, b.ctypes.data, c.ctypes.data), factor)
    compiled.call(state.ctypes.data, skip * 4, (elements - skip) * 4)

    part = slice(skip, elements)
    expected = before.copy()
    old = before[:, part]
    expected[0, part] = stream_result(kernel, factor, *old)
    if kernel.name == "read":
        seen = state[stream.RESULT_BYTE :].view(np.uint32)[: kernel.vector_bytes // 4]
        np.testing.assert_array_equal(seen, combination(kernel, old[0]))
    # A fused multiply-add rounds once, numpy twice.
    np.testing.assert_allclose(np.stack([a, b, c]), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(a[elements:], before[0, elements:])


def test_each_kernel_keeps_code_of_its_own() -> None:
    if not COMPUTE:
        pytest.skip("no compute kernel for this host")
    first = next(kernel for kernel in COMPUTE if kernel.name == "fma")
    other = dataclasses.replace(first.second_variant(), unroll=2)
    compiled = [compiler.compile_kernel(kernel) for kernel in (first, other)]
    for code, kernel in zip(compiled, (first, other), strict=True):
        state = initial_state(kernel)
        code.call(state.ctypes.data, 0, LENGTH)
        assert_result(kernel, state)
