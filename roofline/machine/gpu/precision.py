"""Whether torch rounds the factors of float32 products to TF32: set for a while, then put back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


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
