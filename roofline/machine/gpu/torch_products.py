"""torch's products of square matrices, as calls; each type has a function of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from roofline.machine.gpu.device import Call, Product


@contextmanager
def float32_products(*, tf32: bool) -> Generator[None]:
    """Within, float32 products take TF32 or do not; afterwards all is as it was.

    torch has an old and a new setting, and refuses to read the old once the new was used; so the
    new one is taken wherever it exists.
    """
    products: Any = torch.backends.cuda.matmul
    name, values = (
        ("fp32_precision", ("ieee", "tf32"))
        if hasattr(products, "fp32_precision")
        else ("allow_tf32", (False, True))
    )
    before = getattr(products, name)
    setattr(products, name, values[tf32])
    try:
        yield
    finally:
        setattr(products, name, before)


_TORCH: Any = torch
"""For what torch holds to be private: products of int8 and float8 have no other name."""

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def square_product(product: Product, size: int, device: torch.device) -> Call:
    """A call that multiplies two matrices of `size` by `size`, of random numbers.

    Raises:
        RuntimeError, NotImplementedError: torch has no such product, or too little memory.
    """
    element: torch.dtype = getattr(torch, product.dtype.name)
    if element == torch.int8:
        left = torch.randint(-8, 8, (size, size), device=device, dtype=element)
        right = torch.randint(-8, 8, (size, size), device=device, dtype=element).t()
        return lambda: _TORCH._int_mm(left, right)
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    if element in _FLOAT8:
        # cuBLAS multiplies no e5m2 by e5m2; the column-major factor is what it asks for.
        low, other = left.to(element), right.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        return lambda: _TORCH._scaled_mm(
            low, other, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    left, right = left.to(element), right.to(element)
    out = torch.empty_like(left)
    if element != torch.float32:
        return lambda: torch.mm(left, right, out=out)

    def call() -> None:
        with float32_products(tf32=product.tf32):
            torch.mm(left, right, out=out)

    return call
