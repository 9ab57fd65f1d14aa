"""Attention of sequences that lie packed, one behind another.

Their lengths are values: shapes give the sum of them, their number, and the longest. The rectangles
of pairs are counted as the most that these allow, which is what they are where all are of one
length, and the least is the fewest that they allow; no softmax is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofline.workload.formulas.attention import Heads
from roofline.workload.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Sequences one behind another: what shapes know of their lengths.

    ``is_self`` says that each has as many keys as queries.
    """

    sequences: int
    queries: int
    keys: int
    longest_queries: int
    longest_keys: int
    is_self: bool

    @property
    def most_pairs(self) -> int:
        """Pairs of a query and a key of one sequence, if all were as long as the longest."""
        return min(self.queries * self.longest_keys, self.keys * self.longest_queries)

    def least_pairs(self, *, is_causal: bool) -> int:
        """As few as there can be; none are known of a causal mask, but for self-attention.

        Where none is longer than the longest, at most ``longest_queries * missing keys`` pairs are
        missing from those that all queries had with the longest. Squares of lengths have the least
        sum where all are the same.
        """
        missing_keys = self.sequences * self.longest_keys - self.keys
        fewest = self.queries * self.longest_keys - self.longest_queries * missing_keys
        if self.is_self:
            fewest = max(fewest, -(-self.queries * self.keys // max(self.sequences, 1)))
            return (fewest + self.queries + 1) // 2 if is_causal else fewest
        return 0 if is_causal else max(fewest, 0)


def packed(
    queries: int,
    keys: int,
    starts: tuple[TensorSpec, TensorSpec | None],
    longest: tuple[int | None, int | None],
) -> Packed:
    """From the sums of the lengths, and where the sequences start (one more than there are)."""
    return Packed(
        sequences=max(starts[0].elements - 1, 0),
        queries=queries,
        keys=keys,
        longest_queries=queries if longest[0] is None else min(longest[0], queries),
        longest_keys=keys if longest[1] is None else min(longest[1], keys),
        is_self=starts[1] is not None and _are_one(starts[0], starts[1]),
    )


def _are_one(first: TensorSpec, second: TensorSpec) -> bool:
    return (first.storage, first.offset_byte) == (second.storage, second.offset_byte)


def heads_of_packed(
    query: TensorSpec, value: TensorSpec, lengths: Packed, least_pairs: int
) -> Heads:
    """Heads of packed (sequence, heads, features): a row is all sequences of a head."""
    return Heads(
        rows=query.shape[-2],
        queries=lengths.queries,
        pairs=lengths.most_pairs,
        least_pairs=least_pairs,
        band=None,
        features=query.shape[-1],
        values=value.shape[-1],
        dtype=query.dtype,
    )
