"""Layers whose weights are computed from others (parametrised), made to be copied and pickled.

torch gives such a layer a class of its own, which pickle cannot find by its name, and which a deep
copy shares with the original: to change the one would change the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils import parametrize


def made_copyable(module: torch.nn.Module) -> None:
    """Lets a parametrised module be pickled, and be copied with a class of the copy's own."""
    kind: Any = type(module)
    own: Mapping[str, Any] = vars(kind)
    # torch's own refuse to pickle, and share the class.
    for name in ("__getstate__", "__deepcopy__"):
        if name in own:
            delattr(kind, name)
    kind.__reduce_ex__ = _reduced


def _reduced(module: torch.nn.Module, protocol: object) -> tuple[Any, ...]:
    before = parametrize.type_before_parametrizations(module)
    parametrizations: Any = module.parametrizations
    return _bare, (before, tuple(parametrizations)), dict(module.__dict__)


def _bare(kind: type[torch.nn.Module], names: tuple[str, ...]) -> torch.nn.Module:
    """A module of that class, parametrised under these names, for its attributes to be put in."""
    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    for name in names:
        module.register_buffer(name, torch.empty(0))
        parametrize.register_parametrization(module, name, torch.nn.Identity())
    module.__dict__.clear()
    made_copyable(module)
    return module
