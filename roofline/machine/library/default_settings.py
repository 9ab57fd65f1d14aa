"""torch's defaults for settings that change results or speed of operators.

Ceilings are measured with torch's defaults, whatever the caller has set.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def default_settings() -> Generator[None]:
    """Set torch's defaults within the context, and restore the settings after it.

    float32 precision in GEMM and convolutions, oneDNN enabled, no deterministic algorithms, no
    autocast.
    """
    onednn: Any = torch.backends.mkldnn
    defaults: list[tuple[Any, str, object]] = [
        (onednn, "enabled", True),
        (onednn, "deterministic", False),
    ]
    # Since torch 2.9; earlier versions have one global precision setting.
    operators = [getattr(onednn, name) for name in ("matmul", "conv") if hasattr(onednn, name)]
    defaults += [(operator, "fp32_precision", "ieee") for operator in operators]
    with ExitStack() as stack:
        for holder, name, value in defaults:
            before = getattr(holder, name)
            if before != value:
                stack.callback(setattr, holder, name, before)
                setattr(holder, name, value)
        if torch.are_deterministic_algorithms_enabled():
            warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
            stack.callback(torch.use_deterministic_algorithms, True, warn_only=warn_only)
            torch.use_deterministic_algorithms(False)
        if not operators:
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        stack.enter_context(torch.autocast("cpu", enabled=False))
        yield
