"""What compute kernels must leave in their state, worked out with numpy and nothing of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import StreamKernel, compute_state

Array = npt.NDArray[Any]

LENGTH = 3
"""Loop iterations of a trial run."""

SEGMENT_BYTE = 16
"""Matrix instructions of Arm multiply within every 128 bits."""


def operands(kernel: ComputeKernel) -> tuple[Array, Array, Array]:
    """m, a and the sums to begin with: whole numbers that stay exact in the kernel's types."""
    random = np.random.default_rng(7)
    small = {"float": (-4, 5), "int": (-128, 128), "uint": (0, 256)}

    def values(element: Any, *rows: int) -> Array:
        lanes = kernel.slot_byte * 8 // element.bits
        bounds = (-(2**31), 2**31) if element.name == "int32" else small[element.kind]
        return random.integers(*bounds, (*rows, lanes))

    m, a = (values(element) for element in kernel.factors)
    return m, a, values(kernel.sums, kernel.accumulators)


def initial_state(kernel: ComputeKernel) -> Array:
    """The bytes to run a kernel on."""
    return compute_state(kernel, *operands(kernel))


def assert_result(kernel: ComputeKernel, state: Array) -> None:
    """That `state`, the bytes after `LENGTH` iterations, holds what the kernel's name says."""
    m, a, start = operands(kernel)
    expected = start.copy()
    for _ in range(LENGTH * kernel.unroll):
        expected = _step(kernel, m, a, expected)
    if kernel.name == "fma-add" and kernel.shares:
        expected = start + LENGTH * _shared_sums(kernel, a)
    elif kernel.name == "fma-add":
        # Whole numbers: the order in which products and summands are added changes nothing.
        expected = start + LENGTH * kernel.unroll // 2 * (a * a + a)
    found = state.view(kernel.sums.name).reshape(2 + kernel.accumulators, -1)[2:]
    active = max(1, kernel.unit.bits // kernel.sums.bits)
    np.testing.assert_array_equal(found[:, :active], expected[:, :active])
    np.testing.assert_array_equal(found[:, active:], start[:, active:])


def _shared_sums(kernel: ComputeKernel, a: Array) -> Array:
    """What one iteration adds where squares and summands go to sums of their own, round robin."""
    times = kernel.accumulators * kernel.unroll // 2
    rows = [
        len(range(j, times, share)) * each
        for share, each in zip(kernel.shares, (a * a, a), strict=True)
        for j in range(share)
    ]
    return np.stack(rows)


def _step(kernel: ComputeKernel, m: Array, a: Array, x: Array) -> Array:
    """The sums after one more step."""
    match kernel.name:
        case "fma" | "fma-add":
            return x + m * a
        case "mul-add":
            return _int32(x * m + (x if kernel.unit.bits else a))
        case "mmla":
            return _int32(x + _matrix_products(kernel, m, a))
        case _ if kernel.factors[1].name == "int16":
            return _int32(x + _saturating_products(m, a, x))
        case _:
            lanes = 32 // kernel.dtype.bits
            return _int32(x + (m * a).reshape(-1, lanes).sum(axis=1))


def _int32(x: Array) -> Array:
    return (x + 2**31) % 2**32 - 2**31


def _matrix_products(kernel: ComputeKernel, m: Array, a: Array) -> Array:
    """Of each 128 bits: two rows of m times two rows of a, transposed; row by row."""
    rows = (-1, 2, SEGMENT_BYTE * 8 // kernel.dtype.bits // 2)
    return np.einsum("sik,sjk->sij", m.reshape(rows), a.reshape(rows)).reshape(-1)


def _saturating_products(m: Array, a: Array, x: Array) -> Array:
    """Bytes of x, unsigned, times those of m, signed; sums of two clipped to 16 bits; times a."""
    unsigned = x.astype(np.int32).view(np.uint8).astype(np.int64)
    pairs = np.clip((unsigned * m).reshape(*x.shape, 2, 2).sum(axis=-1), -(2**15), 2**15 - 1)
    return (pairs * a.reshape(-1, 2)).sum(axis=-1)


def stream_result(kernel: StreamKernel, factor: float, a: Array, b: Array, c: Array) -> Array:
    """What a pass of a stream kernel leaves in its first stream."""
    return {
        "read": a,
        "write": np.full_like(a, factor),
        "copy": b,
        "triad": b + np.float32(factor) * c,
        "update": np.float32(factor) - a,
    }[kernel.name.removesuffix("-nt")]


def combination(kernel: StreamKernel, a: Array) -> Array:
    """What `read` keeps of all that it loaded."""
    combine = {"xor": np.bitwise_xor, "or": np.bitwise_or}[kernel.form.combine]
    return combine.reduce(a.view(np.uint32).reshape(-1, kernel.vector_bytes // 4), axis=0)
