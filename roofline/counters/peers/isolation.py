"""A counter runs in silence, and leaves torch as it found it, whatever it or the model does."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import torch

from roofline.foundation.quiet import quiet

_PATCHED = (
    *(torch, torch.Tensor, torch.nn.functional, torch.nn.init, torch.nn.Module),
    *(torch.nn.modules.module, torch.linalg, torch.fft, torch.special),
)
"""Where counters put functions of their own in the place of torch's."""

_MISSING = object()


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Nothing is printed, logged or warned within, and what was patched within is put back."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        quiet(),
        _unpatched(),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def _unpatched() -> Iterator[None]:
    """Puts back the attributes of torch's name spaces, and the hooks that hold for all modules."""
    places: list[Any] = [
        *_PATCHED,
        *(sys.modules[name] for name in ("einops",) if name in sys.modules),
    ]
    before = [(place, dict(vars(place))) for place in places]
    hooks = [
        (each, dict(each))
        for name, each in vars(torch.nn.modules.module).items()
        if name.startswith("_global_") and isinstance(each, dict)
    ]
    try:
        yield
    finally:
        for place, attributes in before:
            _restore(place, attributes)
        for each, content in hooks:
            each.clear()
            each.update(content)


def _restore(place: Any, attributes: dict[str, Any]) -> None:
    for name, value in list(vars(place).items()):
        old = attributes.get(name, _MISSING)
        # Submodules that were imported meanwhile are no patches.
        if old is _MISSING:
            if callable(value) and not isinstance(value, type) and isinstance(place, type):
                delattr(place, name)
        elif old is not value:
            with contextlib.suppress(AttributeError, TypeError):
                setattr(place, name, old)
