"""What long work reports meanwhile: how far it is, and messages in words."""

from __future__ import annotations

from collections.abc import Callable

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
