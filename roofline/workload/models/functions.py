"""Functions as models: code that is in no module can be analysed too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Function(torch.nn.Module):
    """A function as a model; a method of a module brings that module with it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            self.add_module(type(owner).__name__, owner)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called, ``"encode"``; of what has no name its class's."""
    name = getattr(function, "__name__", "")
    return name if name and name != "<lambda>" else type(function).__name__
