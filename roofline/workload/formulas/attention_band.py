"""Which keys the queries of attention see: all of them, or a band along a diagonal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Query i sees key j where ``lowest <= j - i <= highest``; both are counted from 0."""

    queries: int
    keys: int
    lowest: int
    highest: int

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees."""
        return self.capped(self.keys)

    @property
    def seen_keys(self) -> int:
        """Keys that some query sees."""
        first = max(0, self.lowest)
        last = min(self.keys, self.queries + self.highest) - 1
        return max(0, last - first + 1) if self.pairs else 0

    @property
    def seeing_queries(self) -> int:
        """Queries that see some key."""
        return self.capped(1)

    @property
    def is_whole(self) -> bool:
        """Whether every query sees every key."""
        return self.pairs == self.queries * self.keys

    def capped(self, most: int) -> int:
        """The sum over all queries of the keys that each sees, or `most` where that is less."""
        most = max(0, min(most, self.keys, self.highest - self.lowest + 1))
        # Their number rises by 1 a query, stays, and falls by 1 a query; never both at once.
        rising = _ramp(self.queries, self.highest + 1, most)
        falling = _ramp(self.queries, self.keys - self.lowest - self.queries + 1, most)
        return rising + falling - most * self.queries


def whole(queries: int, keys: int) -> Band:
    """Every query sees every key."""
    return Band(queries=queries, keys=keys, lowest=-queries, highest=keys)


def causal(queries: int, keys: int, *, ends_together: bool = False) -> Band:
    """Each query sees the keys up to its own number.

    Queries and keys begin together; or they end together, as where the first keys are of the past.
    """
    offset = keys - queries if ends_together else 0
    return Band(queries=queries, keys=keys, lowest=min(-queries, -keys), highest=offset)


def window(queries: int, keys: int, left: int | None, right: int | None) -> Band:
    """Each query sees `left` keys before its own and `right` behind it; None or -1: all of them.

    Queries and keys end together.
    """
    offset = keys - queries
    is_open_left, is_open_right = left is None or left < 0, right is None or right < 0
    return Band(
        queries=queries,
        keys=keys,
        lowest=-queries if is_open_left else max(-queries, offset - (left or 0)),
        highest=keys if is_open_right else min(keys, offset + (right or 0)),
    )


def _ramp(count: int, first: int, most: int) -> int:
    """The sum of `count` numbers rising by 1 from `first`, each at least 0 and at most `most`."""

    def up_to(number: int) -> int:
        rising = min(max(number, 0), most)
        return rising * (rising + 1) // 2 + max(number - most, 0) * most

    return up_to(first + count - 1) - up_to(first - 1)
