"""Activation checkpointing: chosen modules forget what they computed, and run again for it."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from roofline.errors import InputError, nearest

BLOCKS = "blocks"
"""Asks for the members of lists and sequences of modules that are made of modules themselves."""


def chosen_modules(model: torch.nn.Module, what: str) -> tuple[str, ...]:
    """The paths of the modules that are meant, none of them inside another one.

    Args:
        model: any module.
        what: `BLOCKS`, or a path with ``*`` and ``?`` in it as file names have them.

    Raises:
        InputError: it has no such modules.
    """
    found = _blocks(model) if what == BLOCKS else _matching(model, what)
    outermost: list[str] = []
    for path in found:
        if not any(path.startswith(f"{other}.") for other in outermost):
            outermost.append(path)
    if not outermost:
        raise InputError(_none_found(model, what))
    return tuple(outermost)


def _blocks(model: torch.nn.Module) -> list[str]:
    lists = (torch.nn.ModuleList, torch.nn.Sequential)
    found: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, lists) or len(module) < 2:
            continue
        found += [
            f"{path}.{name}".lstrip(".")
            for name, child in module.named_children()
            if any(True for _ in child.children()) and not isinstance(child, lists)
        ]
    return found


def _matching(model: torch.nn.Module, pattern: str) -> list[str]:
    """Those whose paths have as many steps as the pattern: in file names ``*`` ends at a slash."""
    wanted = pattern.split(".")
    found: list[str] = []
    for path, _ in model.named_modules():
        steps = path.split(".")
        if path and len(steps) == len(wanted) and all(map(fnmatch.fnmatchcase, steps, wanted)):
            found.append(path)
    return found


def _none_found(model: torch.nn.Module, what: str) -> str:
    if what == BLOCKS:
        return (
            f"--checkpoint {BLOCKS}: {type(model).__name__} has no lists of modules made of"
            " modules; name some, such as --checkpoint 'layer*.*'"
        )
    names = [path for path, _ in model.named_modules() if path]
    return f"--checkpoint {what}: no module is called that{nearest(what, names)}"


@contextlib.contextmanager
def checkpointed(model: torch.nn.Module, paths: tuple[str, ...]) -> Iterator[None]:
    """While this is open, these modules of `model` run again when the backward pass needs them.

    Args:
        model: any module.
        paths: of those that forget what they computed.
    """
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(_run_again(model.get_submodule(path)))
        yield


@contextlib.contextmanager
def _run_again(module: torch.nn.Module) -> Iterator[None]:
    own: Any = module.__dict__
    before = own.get("forward")

    def forward(*args: Any, **kwargs: Any) -> Any:
        # Looked up now: capture has put one of its own into the class.
        plain: Callable[..., Any] = before or type(module).forward.__get__(module)
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        # The numbers that dropout draws do not matter, only that it draws.
        return checkpoint(plain, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    own["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del own["forward"]
        else:
            own["forward"] = before
