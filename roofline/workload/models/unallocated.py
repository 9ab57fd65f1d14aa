"""Building models without weights: on the meta device, and without filling what is not there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext

_FILLS: frozenset[Callable[..., Any]] = frozenset(
    [
        *(getattr(torch.Tensor, name) for name in ("fill_", "zero_", "normal_", "uniform_")),
        *(getattr(torch.Tensor, name) for name in ("random_", "bernoulli_", "exponential_")),
        *(getattr(torch.Tensor, name) for name in ("log_normal_", "cauchy_", "geometric_")),
        *(
            function
            for name, function in inspect.getmembers(torch.nn.init, inspect.isfunction)
            if name.endswith("_") and not name.startswith("_")
        ),
    ]
)
"""What gives a tensor values and nothing else; on the meta device half of building a model."""


class Unallocated(DeviceContext):
    """A context like ``torch.device("meta")`` that leaves out the initialisation of values."""

    def __init__(self) -> None:
        super().__init__("meta")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls `func` with the meta device where it makes a tensor, unless it only fills one."""
        if func in _FILLS:
            tensor = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return super().__torch_function__(func, types, args, kwargs)
