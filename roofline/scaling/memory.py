"""What one rank keeps in memory in a step of training with others, when it is fullest."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

from roofline.workload.operators import Gradient, OperatorRecord
from roofline.workload.tensors import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Activations and gradients when both together are most, in bytes.

    ``kept_bytes`` are those gradients, of passes before, that are there all the time.
    """

    activation_bytes: int
    gradient_bytes: int
    kept_bytes: int = 0

    @property
    def byte(self) -> int:
        """Both together."""
        return self.activation_bytes + self.gradient_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What one rank holds when its memory is fullest, in bytes.

    ``bucket_bytes`` are the buckets that gradients are copied into, which last as long as the
    model; ``optimizer_bytes`` the states of the rank that keeps most of them.
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
        """All of it."""
        return sum(astuple(self))


def peak_while_accumulating(
    records: Sequence[OperatorRecord], gradients: Iterable[Gradient]
) -> Peak:
    """The fullest moment of a later pass, which adds its gradients to those of the passes before.

    Those are there all the time, with the storages that they are parts of. A new gradient of a
    parameter lives from its making until it is added, which is when the hook of the parameter
    tells.
    """
    sizes, is_gradient = _storages(records)
    # Gradients of several parameters may be parts of one storage, which goes with the last of them.
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
    """Bytes of each storage that does not outlive the pass, and whether it holds a gradient."""
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
    """Elements and bytes of state of the rank that gets most, where each keeps a part.

    As `torch.distributed.optim.ZeroRedundancyOptimizer` shares them out: whole parameters, the
    largest first, each to the rank that has the fewest elements so far.
    """
    # More ranks than parameters get nothing.
    elements = [(0, rank) for rank in range(min(ranks, max(1, len(gradients))))]
    byte = [0] * len(elements)
    for each in sorted(gradients, key=lambda one: -one.elements):
        held, rank = elements[0]
        heapq.heapreplace(elements, (held + each.elements, rank))
        byte[rank] += each.state_bytes
    return max(elements)[0], max(byte)
