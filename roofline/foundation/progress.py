"""What long work reports meanwhile: how far it is, and messages in words."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Called with how far a work is (0 to 1) and what it is doing."""

Say = Callable[[str], None]
"""Called with a message in words."""


def silent(*_: object) -> None:
    """Report nothing: where no `Progress` or `Say` is given."""
