"""Reuse distance of each operand, in bytes: it determines the memory level of its reads.

It does not depend on a machine. The operators of two consecutive passes are replayed over one
memory, in which every byte records the last operator that touched it. Bytes of an operator with the
same last operator have one *reuse distance*: the distinct bytes touched since that operator, their
own included. A memory of capacity C with LRU replacement must fetch ``min(size, max(0, distance -
C))`` of them from beyond: the minimum over all orders in which operators may touch their operands.
Other policies, or non-temporal stores, may fetch less over a pass, though in the steady state never
less than all distinct bytes minus C.

An operator touches each byte once, in whichever operands it occurs. Bytes that it reads and writes
are touched again when written, at a distance of their own size: at most C bytes of that can wait in
the memory. Operands of one operator in one storage are placed side by side as far as there is room,
as columns of a matrix are.

Memory is recycled as in caching allocators, last out first in. Otherwise a chain of small
operators, which runs within two warm buffers, would be charged to DRAM: no lower bound
(``benchmarks/recycled_memory.md``).

The stack-distance model: R. Mattson, J. Gecsei, D. Slutz, I. Traiger, "Evaluation techniques for
storage hierarchies", IBM Systems Journal 9(2), 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role, TensorSpec


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bytes of one operator with the same last touch; distance None: never touched before."""

    byte: int
    distance_bytes: int | None

    def bytes_beyond(self, capacity_bytes: int) -> int:
        """Return the bytes that a memory of `capacity_bytes` must fetch from beyond itself."""
        if self.distance_bytes is None:
            return self.byte
        return min(self.byte, max(0, self.distance_bytes - capacity_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """Reuse per operator, in both passes, and memory footprint.

    ``cold[i]`` and ``steady[i]`` are the reuses of all reads and writes of operator i, in the first
    and in the second pass. ``peak_index`` is the first operator at the peak of temporary memory
    (None: there is none), ``peak_activation_bytes`` and ``peak_gradient_bytes`` are the activations
    and gradients at that time. ``all_activation_bytes`` is the sum of both if none were released.
    """

    cold: tuple[tuple[Reuse, ...], ...]
    steady: tuple[tuple[Reuse, ...], ...]
    peak_index: int | None
    peak_activation_bytes: int
    peak_gradient_bytes: int
    all_activation_bytes: int


_NEVER = -1


@dataclass(slots=True)
class _TouchedBytes:
    """Bytes by time of their last touch, with sums over the newest (a Fenwick tree)."""

    length: int
    tree: list[int] = field(init=False)
    total: int = 0

    def __post_init__(self) -> None:
        self.tree = [0] * (self.length + 1)

    def add(self, time: int, byte: int) -> None:
        if time == _NEVER:
            return
        self.total += byte
        position = time + 1
        while position <= self.length:
            self.tree[position] += byte
            position += position & -position

    def since(self, time: int) -> int:
        """Return the bytes whose last touch is later than `time`."""
        older = 0
        position = time + 1
        while position > 0:
            older += self.tree[position]
            position -= position & -position
        return self.total - older


@dataclass(slots=True)
class _Memory:
    """Storages as pieces ``(byte, stamp)``, and released pieces waiting for reuse.

    A stamp is twice the number of the last operator that touched the piece, plus one if it was
    written.
    """

    touched: _TouchedBytes
    pieces: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict[int, list[tuple[int, int]]]
    )
    released: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    now: int = 0

    def allocate(self, storage: int, byte: int, *, recycle: bool) -> None:
        pieces: list[tuple[int, int]] = []
        while byte > 0 and recycle and self.released:
            size, stamp = self.released.pop()
            if size > byte:
                self.released.append((size - byte, stamp))
                size = byte
            pieces.append((size, stamp))
            byte -= size
        if byte > 0:
            pieces.append((byte, _NEVER))
        self.pieces[storage] = _joined(pieces)

    def release(self, storage: int) -> None:
        # Reversed: the next allocation takes the pieces in their order in memory.
        self.released.extend(reversed(self.pieces.pop(storage, [])))

    def touch(self, record: OperatorRecord) -> tuple[Reuse, ...]:
        by_time: dict[int, int] = {}
        rewritten = 0
        for specs, stamp in ((record.inputs, 2 * self.now), (record.outputs, 2 * self.now + 1)):
            for spec in specs:
                pieces = self.pieces[spec.storage]
                byte, before = pieces[0] if pieces else (0, _NEVER)
                if len(pieces) == 1 and spec.offset_bytes == 0 and spec.min_bytes >= byte:
                    # A whole storage, last touched as a whole: nearly every operand.
                    found = {before: byte}
                    pieces[0] = (byte, stamp)
                else:
                    found = self._touch_part(spec, stamp)
                for earlier, size in found.items():
                    if earlier >> 1 != self.now:
                        by_time[earlier >> 1] = by_time.get(earlier >> 1, 0) + size
                    elif earlier != stamp:
                        rewritten += size
        touched = self.touched
        reuses = [
            Reuse(size, None if time == _NEVER else touched.since(time) + size)
            for time, size in by_time.items()
            if size
        ]
        for time, size in by_time.items():
            touched.add(time, -size)
        touched.add(self.now, sum(by_time.values()))
        if rewritten:
            reuses.append(Reuse(rewritten, rewritten))
        self.now += 1
        return tuple(reuses)

    def _touch_part(self, spec: TensorSpec, stamp: int) -> dict[int, int]:
        """Stamp the bytes of an operand; return the bytes by earlier stamp."""
        first, last = spec.offset_bytes, spec.offset_bytes + spec.min_bytes
        found: dict[int, int] = {}
        self.pieces[spec.storage] = _stamped(
            self.pieces[spec.storage], first, last, stamp, found, last - first
        )
        # Another operand seems to have the same place: this one lies next to it, if there is room.
        for start, stop in ((last, None), (0, first)):
            twice = found.get(stamp, 0)
            if not twice:
                break
            adjacent: dict[int, int] = {}
            self.pieces[spec.storage] = _stamped(
                self.pieces[spec.storage], start, stop, stamp, adjacent, twice, only_others=True
            )
            for earlier, size in adjacent.items():
                found[earlier] = found.get(earlier, 0) + size
                found[stamp] -= size
        return found


def _stamped(
    pieces: list[tuple[int, int]],
    first: int,
    last: int | None,
    stamp: int,
    found: dict[int, int],
    most: int,
    *,
    only_others: bool = False,
) -> list[tuple[int, int]]:
    """Return the pieces with `most` bytes of a range stamped, earlier stamps in `found`.

    `only_others` skips bytes that this operator has already touched.
    """
    after: list[tuple[int, int]] = []
    position = 0
    for size, before in pieces:
        end = position + size if last is None else min(position + size, last)
        begin = max(position, first)
        inside = min(max(0, end - begin), most)
        if inside and not (only_others and before >> 1 == stamp >> 1):
            found[before] = found.get(before, 0) + inside
            most -= inside
            ahead = begin - position
            after += [(ahead, before), (inside, stamp), (size - ahead - inside, before)]
        else:
            after.append((size, before))
        position += size
    return _joined(after)


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces without empty ones, neighbors of equal stamp merged."""
    joined: list[tuple[int, int]] = []
    for size, stamp in pieces:
        if not size:
            continue
        if joined and joined[-1][1] == stamp:
            joined[-1] = (joined[-1][0] + size, stamp)
        else:
            joined.append((size, stamp))
    return joined


def storage_sizes(records: Sequence[OperatorRecord]) -> tuple[dict[int, int], set[int]]:
    """Return the bytes of every storage by number, and the storages that outlive a pass."""
    sizes: dict[int, int] = {}
    persists: set[int] = set()
    for record in records:
        for spec in (*record.inputs, *record.outputs):
            end = spec.offset_bytes + spec.byte
            if end > sizes.get(spec.storage, -1):
                sizes[spec.storage] = end
            if spec.role.persists:
                persists.add(spec.storage)
    return sizes, persists


def trace_residency(records: Sequence[OperatorRecord]) -> Residency:
    """Return the reuse distances of every operator's bytes over two consecutive passes.

    Parameters, buffers, optimizer states and inputs keep their place from pass to pass. Activations
    and gradients live from their first operator until the model drops them, at the latest until the
    end of the pass.
    """
    sizes, persists = storage_sizes(records)
    gradients = {
        spec.storage
        for record in records
        for spec in (*record.inputs, *record.outputs)
        if spec.role is Role.GRADIENT
    }
    memory = _Memory(_TouchedBytes(2 * len(records)))
    passes: list[tuple[tuple[Reuse, ...], ...]] = []
    peak, peak_index, peak_gradient = 0, None, 0
    for _ in range(2):
        live, live_gradient = 0, 0
        alive: set[int] = set()
        rows: list[tuple[Reuse, ...]] = []
        for index, record in enumerate(records):
            for spec in (*record.inputs, *record.outputs):
                storage = spec.storage
                if storage not in memory.pieces:
                    lasting = storage in persists
                    memory.allocate(storage, sizes[storage], recycle=not lasting)
                    if not lasting:
                        alive.add(storage)
                        live += sizes[storage]
                        live_gradient += sizes[storage] if storage in gradients else 0
            if live > peak:
                peak, peak_index, peak_gradient = live, index, live_gradient
            rows.append(() if record.state == "free" else memory.touch(record))
            for storage in record.freed:
                if storage in alive:
                    alive.remove(storage)
                    live -= sizes[storage]
                    live_gradient -= sizes[storage] if storage in gradients else 0
                    memory.release(storage)
        for storage in sorted(alive):
            memory.release(storage)
        passes.append(tuple(rows))
    return Residency(
        cold=passes[0],
        steady=passes[1],
        peak_index=peak_index,
        peak_activation_bytes=peak - peak_gradient,
        peak_gradient_bytes=peak_gradient,
        all_activation_bytes=sum(sizes[each] for each in sizes if each not in persists),
    )
