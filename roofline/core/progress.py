"""Progress callbacks, and suppression of logs and warnings."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Generator

Progress = Callable[[float, str], None]
"""Callback with progress (0 to 1) and the current step."""

Say = Callable[[str], None]
"""Callback with a message."""


def silent(*_: object) -> None:
    """Ignore progress and messages."""


def monotonic(progress: Progress | None) -> Progress:
    """Return progress that never decreases, for several sources."""
    most = 0.0

    def report(done: float, what: str) -> None:
        nonlocal most
        most = max(most, done)
        if progress is not None:
            progress(most, what)

    return report


@contextlib.contextmanager
def suppress_logging() -> Generator[None]:
    """Disable logging inside the context."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def suppress_output() -> Generator[None]:
    """Disable logging and warnings inside the context."""
    with suppress_logging(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
