"""Peak memory of one rank in a training step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

from roofline.workload.operators import Gradient, OperatorRecord
from roofline.workload.tensors import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Activations and gradients at their joint peak, in bytes.

    ``kept_bytes`` are gradients of earlier passes, which stay allocated.
    """

    activation_bytes: int
    gradient_bytes: int
    kept_bytes: int = 0

    @property
    def byte(self) -> int:
        """Sum of both, in bytes."""
        return self.activation_bytes + self.gradient_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of one rank, in bytes.

    ``bucket_bytes`` are the permanent buckets that gradients are copied into. ``optimizer_bytes``
    are the states of the rank with the largest share.
    """

    ALSO_WRITTEN: ClassVar = ("total_bytes",)

    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    gradient_bytes: int
    bucket_bytes: int

    @property
    def total_bytes(self) -> int:
        """Sum in bytes."""
        return sum(astuple(self))


def peak_while_accumulating(
    records: Sequence[OperatorRecord], gradients: Iterable[Gradient]
) -> Peak:
    """Return the peak of a pass that accumulates into the gradients of earlier passes.

    Accumulated gradients and their storages stay allocated. A new gradient lives until the hook of
    its parameter adds it.
    """
    sizes, is_gradient = _storages(records)
    # Gradients may share a storage, which is freed with the last of them.
    kept: dict[int, int] = {}
    done: dict[int, int] = {}
    for each in gradients:
        kept[each.storage] = kept.get(each.storage, 0) + each.byte
        done[each.storage] = max(done.get(each.storage, 0), each.after)
    kept_bytes = sum(max(byte, sizes.get(storage, 0)) for storage, byte in kept.items())
    ending: dict[int, list[int]] = {}
    for storage, after in done.items():
        ending.setdefault(after, []).append(storage)
    alive: set[int] = set()
    live = {False: 0, True: 0}

    def end(storages: Iterable[int]) -> None:
        for storage in alive.intersection(storages):
            alive.discard(storage)
            live[is_gradient[storage]] -= sizes[storage]

    best = Peak(activation_bytes=0, gradient_bytes=kept_bytes, kept_bytes=kept_bytes)
    for index, record in enumerate(records):
        end(ending.get(index, ()))
        for spec in (*record.inputs, *record.outputs):
            storage = spec.storage
            is_added = storage in done and index >= done[storage]
            if storage in sizes and storage not in alive and not is_added:
                alive.add(storage)
                live[is_gradient[storage]] += sizes[storage]
        if sum(live.values()) + kept_bytes > best.byte:
            best = Peak(
                activation_bytes=live[False],
                gradient_bytes=live[True] + kept_bytes,
                kept_bytes=kept_bytes,
            )
        end(record.freed)
    return best


def _storages(records: Sequence[OperatorRecord]) -> tuple[dict[int, int], dict[int, bool]]:
    """Return the bytes of each temporary storage, and which storages hold gradients."""
    sizes: dict[int, int] = {}
    is_gradient: dict[int, bool] = {}
    for record in records:
        for spec in (*record.inputs, *record.outputs):
            if not spec.role.persists:
                end = spec.offset_bytes + spec.byte
                sizes[spec.storage] = max(sizes.get(spec.storage, 0), end)
                is_gradient[spec.storage] = spec.role is Role.GRADIENT
    return sizes, is_gradient


def largest_shard(gradients: Sequence[Gradient], ranks: int) -> tuple[int, int]:
    """Return elements and state bytes of the largest optimizer shard.

    `torch.distributed.optim.ZeroRedundancyOptimizer` assigns whole parameters, the largest first,
    each to the rank with the fewest elements so far.
    """
    # Ranks beyond the number of parameters stay empty.
    elements = [(0, rank) for rank in range(min(ranks, max(1, len(gradients))))]
    byte = [0] * len(elements)
    for each in sorted(gradients, key=lambda one: -one.elements):
        held, rank = elements[0]
        heapq.heapreplace(elements, (held + each.elements, rank))
        byte[rank] += each.state_bytes
    return max(elements)[0], max(byte)
