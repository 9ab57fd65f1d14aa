"""torch's settings that change what an operator computes or how fast: the defaults, for a while.

Ceilings are of torch as it comes, whatever the caller has set before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_EXACT = "ieee"


@contextmanager
def default_settings() -> Generator[None]:
    """Within, torch's settings are the defaults; afterwards all is as it was.

    That is: float32 stays float32 in products and convolutions, oneDNN is used, algorithms need
    not be deterministic, and no type is cast automatically.
    """
    with ExitStack() as stack:
        for holder, name, value in _defaults():
            stack.enter_context(_attribute(holder, name, value))
        stack.enter_context(_not_deterministic())
        if not hasattr(torch.backends.mkldnn, "matmul"):
            stack.enter_context(_highest_precision())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        yield


def _defaults() -> Iterator[tuple[Any, str, object]]:
    onednn: Any = torch.backends.mkldnn
    yield onednn, "enabled", True
    # Since torch 2.4 and 2.9; the setting of precision before that is torch's global one.
    if hasattr(onednn, "deterministic"):
        yield onednn, "deterministic", False
    for operator in ("matmul", "conv"):
        if hasattr(onednn, operator):
            yield getattr(onednn, operator), "fp32_precision", _EXACT


@contextmanager
def _attribute(holder: Any, name: str, value: object) -> Generator[None]:
    before = getattr(holder, name)
    if before == value:
        yield
        return
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextmanager
def _not_deterministic() -> Generator[None]:
    if not torch.are_deterministic_algorithms_enabled():
        yield
        return
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=warn_only)


@contextmanager
def _highest_precision() -> Generator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
