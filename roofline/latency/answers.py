"""Answers that follow from the runs of a calibration, remembered by question."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

MOST = 5000
"""Predictions that a process remembers: searches ask for more, and never for the same again."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Answers:
    """Answers by digest of the question; ``added`` is the number of new ones.

    Predictions that are asked for together are one answer: the last digits of a product of matrices
    depend on the number of its rows.
    """

    def __init__(self, known: Mapping[bytes, Any] | None = None) -> None:
        is_full = sum(map(_size, (known or {}).values())) > MOST
        self.known = {} if is_full else dict(known or {})
        self.added = 0

    @property
    def are_worth_keeping(self) -> bool:
        """Return whether some are new, and not of a search, which asks for more than `MOST`."""
        return 0 < self.added <= MOST

    def of(self, question: object, answer: Callable[[], _T]) -> _T:
        """Return the answer to a question, which is worked out where it is not known."""
        digest = hashlib.sha256(repr(question).encode("utf-8", "backslashreplace")).digest()
        if digest not in self.known:
            found = answer()
            self.added += _size(found)
            if self.added <= MOST:
                self.known[digest] = found
            return found
        return self.known[digest]


def _size(answer: object) -> int:
    return len(cast("tuple[object, ...]", answer)) if isinstance(answer, tuple) else 1


def remembered(method: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """Decorate a method of what has `Answers`, which follow from its arguments."""

    @functools.wraps(method)
    def asked(self: Any, *args: _P.args, **named: _P.kwargs) -> _T:
        question = method.__name__, args, named
        return self.answers.of(question, lambda: method(self, *args, **named))

    return asked
