"""What a device of a compute capability is measured with: own kernels, and torch's products."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.foundation.dtypes import dtype
from roofline.machine.gpu.arithmetic import ArithmeticKernel, cuda_core_kernels
from roofline.machine.gpu.device import Product
from roofline.machine.gpu.matrices import matrix_kernels
from roofline.machine.gpu.ptx import Capability
from roofline.machine.gpu.warpgroups import warpgroup_kernels


def arithmetic_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """All compute kernels for a device; a tensor core's fastest instruction in place of others."""
    newer = warpgroup_kernels(capability)
    replaced = {kernel.label for kernel in newer}
    older = [each for each in matrix_kernels(capability) if each.label not in replaced]
    return [*cuda_core_kernels(capability), *older, *newer]


def products(capability: Capability) -> Sequence[Product]:
    """torch's products that a device can have in its own units."""
    found = [Product(dtype=dtype("float64")), Product(dtype=dtype("float32"))]
    if capability >= (8, 0):
        found += [Product(dtype=dtype("float32"), tf32=True), Product(dtype=dtype("bfloat16"))]
    found.append(Product(dtype=dtype("float16")))
    if capability >= (8, 9):
        found += [Product(dtype=dtype(name)) for name in ("float8_e4m3fn", "float8_e5m2")]
    if capability >= (7, 5):
        found.append(Product(dtype=dtype("int8")))
    return found
