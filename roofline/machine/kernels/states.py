"""What kernels run on: their factors, accumulators and addresses, as the bytes they read."""

from __future__ import annotations

import numpy as np

from roofline.foundation.dtypes import DType
from roofline.machine.kernels.memory_loop import FACTOR_BYTE, STATE_BYTE
from roofline.machine.kernels.register_loop import ComputeKernel
from roofline.machine.measuring.buffers import Array

_ALIGNMENT = 64


def _lines(byte: int) -> Array:
    """Zeroed bytes that start on a cache line."""
    whole = np.zeros(byte + _ALIGNMENT, dtype=np.uint8)
    skip = -whole.ctypes.data % _ALIGNMENT
    return whole[skip : skip + byte]


def element_bits(values: Array, element: DType) -> Array:
    """Numbers as the bytes of elements (of bfloat16 cut, not rounded)."""
    if element.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(element.name).view(np.uint8)


def compute_state(kernel: ComputeKernel, m: Array, a: Array, accumulators: Array) -> Array:
    """A kernel's state: the factors `m` and `a`, and a row per accumulator, as bytes."""
    state = _lines(kernel.state_bytes)
    slots = state.reshape(-1, kernel.slot_byte)
    for slot, values, element in [
        (slots[0], m, kernel.factors[0]),
        (slots[1], a, kernel.factors[1]),
        *((slot, row, kernel.sums) for slot, row in zip(slots[2:], accumulators, strict=True)),
    ]:
        data = element_bits(values, element)
        slot[: data.size] = data
    return state


def random_state(kernel: ComputeKernel) -> Array:
    """A kernel's state with operands that are all different from zero.

    Floating-point factors are between 1/64 and 1/32 and sums between 1/2 and 1, of either sign, so
    that nothing is a denormal and no number of repetitions makes an infinity.
    """
    random = np.random.default_rng(0)

    def values(element: DType, scale: float, *shape: int) -> Array:
        lanes = kernel.slot_byte * 8 // element.bits
        if element.kind == "float":
            signs = random.choice([-scale, scale], (*shape, lanes))
            return signs * random.uniform(0.5, 1, (*shape, lanes))
        if element.name == "int16":
            return np.ones((*shape, lanes))
        # Even, as a factor of x + x * m: an odd one would make zeros of it within 32 steps.
        return 2 * random.integers(1, 60, (*shape, lanes))

    return compute_state(
        kernel,
        values(kernel.factors[0], 2.0**-5),
        values(kernel.factors[1], 2.0**-5),
        values(kernel.sums, 1.0, kernel.accumulators),
    )


def stream_state(addresses: tuple[int, ...], factor: float) -> Array:
    """A stream kernel's state: the addresses of its streams and its factor."""
    state = _lines(STATE_BYTE)
    state.view(np.uint64)[: len(addresses)] = addresses
    state[FACTOR_BYTE:].view(np.float32)[0] = factor
    return state
