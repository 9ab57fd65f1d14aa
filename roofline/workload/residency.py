"""How far back each operand was last touched, in bytes: what decides which memory it comes from.

A machine plays no part here. The operators of two consecutive passes are replayed over one memory
in which every byte knows when it was last touched. The *reuse distance* of an operand is the number
of distinct bytes touched since then, its own included: a memory of capacity C that keeps what was
used last must fetch ``min(size, max(0, distance - C))`` bytes of it from beyond.

Memory is recycled as caching allocators do it: what the model released last is handed out first.
Without that, every activation would look like memory never seen before, and a chain of small
operators, which in truth runs within two warm buffers, would be charged to DRAM, where it never
goes: that would be no bound (``benchmarks/recycled_memory.md``).

The stack-distance model: R. Mattson, J. Gecsei, D. Slutz, I. Traiger, "Evaluation techniques for
storage hierarchies", IBM Systems Journal 9(2), 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bytes of one operand that were last touched together; distance None: never touched before."""

    byte: int
    distance_byte: int | None

    def beyond(self, capacity_byte: int) -> int:
        """Bytes that a memory of `capacity_byte` must fetch from beyond itself."""
        if self.distance_byte is None:
            return self.byte
        return min(self.byte, max(0, self.distance_byte - capacity_byte))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """Reuse per operator, in both passes, and what the tensors take in memory.

    ``cold[i]`` and ``steady[i]`` hold the reuse of everything operator i reads and writes, in the
    first and in the second pass. ``peak_activation_byte`` is the most that activations take at
    once, ``all_activation_byte`` what they would take if none were ever released.
    """

    cold: tuple[tuple[Reuse, ...], ...]
    steady: tuple[tuple[Reuse, ...], ...]
    peak_activation_byte: int
    all_activation_byte: int


_NEVER = -1


@dataclass(slots=True)
class _TouchedBytes:
    """Bytes by the time of their last touch, with sums over the newest (a Fenwick tree)."""

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
        """Bytes whose last touch is later than `time`."""
        older = 0
        position = time + 1
        while position > 0:
            older += self.tree[position]
            position -= position & -position
        return self.total - older


@dataclass(slots=True)
class _Memory:
    """Storages as pieces ``(byte, time of last touch)``, and released pieces waiting for reuse."""

    touched: _TouchedBytes
    pieces: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict[int, list[tuple[int, int]]]
    )
    released: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    now: int = 0

    def allocate(self, storage: int, byte: int, *, recycle: bool) -> None:
        pieces: list[tuple[int, int]] = []
        while byte > 0 and recycle and self.released:
            size, time = self.released.pop()
            if size > byte:
                self.released.append((size - byte, time))
                size = byte
            pieces.append((size, time))
            byte -= size
        if byte > 0:
            pieces.append((byte, _NEVER))
        self.pieces[storage] = _joined(pieces)

    def release(self, storage: int) -> None:
        # Reversed, so that the next allocation takes the pieces in the order they lay.
        self.released.extend(reversed(self.pieces.pop(storage, [])))

    def touch(self, spec: TensorSpec) -> list[Reuse]:
        first, last = spec.offset_byte, spec.offset_byte + spec.least_byte
        pieces = self.pieces[spec.storage]
        if len(pieces) == 1 and first == 0 and last >= pieces[0][0] > 0:
            # The whole of a storage that was touched as a whole before: nearly every operand.
            byte, time = pieces[0]
            distance = None if time == _NEVER else self.touched.since(time) + byte
            self.touched.add(time, -byte)
            self.touched.add(self.now, byte)
            pieces[0] = (byte, self.now)
            self.now += 1
            return [Reuse(byte, distance)]
        by_time: dict[int, int] = {}
        after: list[tuple[int, int]] = []
        position = 0
        for size, time in pieces:
            inside = max(0, min(position + size, last) - max(position, first))
            before = max(0, min(position + size, first) - position) if inside else size
            if inside:
                by_time[time] = by_time.get(time, 0) + inside
                after += [(before, time), (inside, self.now), (size - before - inside, time)]
            else:
                after.append((size, time))
            position += size
        reuses = [
            Reuse(byte, None if time == _NEVER else self.touched.since(time) + byte)
            for time, byte in by_time.items()
        ]
        for time, byte in by_time.items():
            self.touched.add(time, -byte)
        self.touched.add(self.now, sum(by_time.values()))
        self.pieces[spec.storage] = _joined(after)
        self.now += 1
        return reuses


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces without empty ones, neighbours of the same time made one."""
    joined: list[tuple[int, int]] = []
    for size, time in pieces:
        if not size:
            continue
        if joined and joined[-1][1] == time:
            joined[-1] = (joined[-1][0] + size, time)
        else:
            joined.append((size, time))
    return joined


def residency(records: Sequence[OperatorRecord]) -> Residency:
    """The reuse distances of every operator's operands over two consecutive passes.

    Operands are touched in the order an operator lists them, inputs before outputs. Parameters,
    buffers and inputs keep their place from pass to pass; activations live from the operator that
    makes them until the model drops them, at the latest until the pass ends.
    """
    sizes: dict[int, int] = {}
    persists: set[int] = set()
    accesses = 0
    for record in records:
        for spec in (*record.inputs, *record.outputs):
            accesses += 1
            end = spec.offset_byte + spec.byte
            sizes[spec.storage] = max(sizes.get(spec.storage, 0), end)
            if spec.role.persists:
                persists.add(spec.storage)
    memory = _Memory(_TouchedBytes(2 * accesses))
    passes: list[tuple[tuple[Reuse, ...], ...]] = []
    peak = 0
    for _ in range(2):
        live = 0
        alive: set[int] = set()
        rows: list[tuple[Reuse, ...]] = []
        for record in records:
            reuses: list[Reuse] = []
            for spec in (*record.inputs, *record.outputs):
                if spec.storage not in memory.pieces:
                    lasting = spec.storage in persists
                    memory.allocate(spec.storage, sizes[spec.storage], recycle=not lasting)
                    if not lasting:
                        alive.add(spec.storage)
                        live += sizes[spec.storage]
            peak = max(peak, live)
            if record.state != "free":
                for spec in (*record.inputs, *record.outputs):
                    reuses += memory.touch(spec)
            rows.append(tuple(reuses))
            for storage in record.freed:
                if storage in alive:
                    alive.remove(storage)
                    live -= sizes[storage]
                    memory.release(storage)
        for storage in sorted(alive):
            memory.release(storage)
        passes.append(tuple(rows))
    everything = sum(size for storage, size in sizes.items() if storage not in persists)
    return Residency(
        cold=passes[0],
        steady=passes[1],
        peak_activation_byte=peak,
        all_activation_byte=everything,
    )
