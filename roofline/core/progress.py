"""Callbacks that tell how far work is, and silence."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Generator

Progress = Callable[[float, str], None]
"""Called with how far a work is (0 to 1) and what it is doing."""

Say = Callable[[str], None]
"""Called with a message in words."""


def silent(*_: object) -> None:
    """Report nothing: where no `Progress` or `Say` is given."""


def onwards(progress: Progress | None) -> Progress:
    """Return progress that never goes back: several things report theirs."""
    most = 0.0

    def told(done: float, what: str) -> None:
        nonlocal most
        most = max(most, done)
        if progress is not None:
            progress(most, what)

    return told


@contextlib.contextmanager
def unlogged() -> Generator[None]:
    """Nothing is logged; afterwards as much as before."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Nothing is logged or warned of."""
    with unlogged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
