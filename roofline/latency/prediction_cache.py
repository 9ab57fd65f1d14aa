"""Cache of values that follow from a calibration, by digest of the request."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

MAX_PREDICTIONS = 5000
"""Predictions that a process caches: searches request more, and none of them twice."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PredictionCache:
    """Values by digest of the request; ``added`` counts new predictions.

    Predictions of one request are one value: the last digits of a matrix product depend on its
    number of rows.
    """

    def __init__(self, values: Mapping[bytes, Any] | None = None) -> None:
        is_full = sum(map(_size, (values or {}).values())) > MAX_PREDICTIONS
        self.values = {} if is_full else dict(values or {})
        self.added = 0

    @property
    def should_be_saved(self) -> bool:
        """Return True if there are new values, but not those of a search."""
        return 0 < self.added <= MAX_PREDICTIONS

    def get(self, request: object, compute: Callable[[], _T]) -> _T:
        """Return the cached value of a request, computed if it is not cached."""
        digest = hashlib.sha256(repr(request).encode("utf-8", "backslashreplace")).digest()
        if digest in self.values:
            return self.values[digest]
        value = compute()
        self.added += _size(value)
        if self.added <= MAX_PREDICTIONS:
            self.values[digest] = value
        return value


def _size(value: object) -> int:
    return len(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else 1


def cached(method: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """Decorate a method whose values follow from its arguments and are kept in ``self.cache``."""

    @functools.wraps(method)
    def call(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        request = method.__name__, args, kwargs
        return self.cache.get(request, lambda: method(self, *args, **kwargs))

    return call
