"""Modules that torch.compile wraps."""

from __future__ import annotations

import torch

_WRAPPED = "_orig_mod"
"""Under which torch.compile keeps the module that it was given."""


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether it is wrapped by torch.compile, or was compiled in place."""
    return _WRAPPED in module._modules or module._compiled_call_impl is not None


def path_of_own(path: str) -> str:
    """The path of a module as its user knows it, without what torch.compile put around it."""
    return ".".join(each for each in path.split(".") if each != _WRAPPED)
