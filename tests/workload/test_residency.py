"""Reuse distances by hand, by a memory of single bytes, and by caches of what was used last.

The reference shares nothing with the model: bytes have addresses, released ones wait on a list, and
what a cache holds is found by looking through every byte's last touch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.tensors import Role, TensorSpec
from tests.builders import record, tensor

LASTING = (Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.OPTIMIZER_STATE)
PASSING = (Role.ACTIVATION, Role.GRADIENT)


def i8(storage: int, byte: int, role: Role = Role.ACTIVATION, offset: int = 0) -> TensorSpec:
    return tensor(storage, byte, role=role, of="int8", offset_bytes=offset)


@dataclass
class Access:
    """What one operator touches, by address."""

    read: list[int] = field(default_factory=list[int])
    written: list[int] = field(default_factory=list[int])

    @property
    def touched(self) -> list[int]:
        return list(dict.fromkeys((*self.read, *self.written)))


def addresses_of(where: Sequence[int], spec: TensorSpec, taken: Sequence[int]) -> list[int]:
    """The bytes of an operand; where another one lies already, the next that are not taken."""
    first, last = spec.offset_bytes, spec.offset_bytes + spec.byte
    own = [each for each in where[first:last] if each not in taken]
    others = [each for each in (*where[last:], *where[:first]) if each not in taken]
    return own + others[: spec.byte - len(own)]


def accesses(records: Sequence[OperatorRecord]) -> list[list[Access]]:
    """What every operator of two passes touches, in a memory that hands out the last released."""
    specs = [spec for each in records for spec in (*each.inputs, *each.outputs)]
    sizes = {
        spec.storage: max(s.offset_bytes + s.byte for s in specs if s.storage == spec.storage)
        for spec in specs
    }
    lasting = {spec.storage for spec in specs if spec.role in LASTING}
    where: dict[int, list[int]] = {}
    free: list[int] = []
    made = 0
    passes: list[list[Access]] = []
    for _ in range(2):
        rows: list[Access] = []
        for each in records:
            for spec in (*each.inputs, *each.outputs):
                if spec.storage in where:
                    continue
                where[spec.storage] = []
                for _ in range(sizes[spec.storage]):
                    made += 1
                    recycled = free.pop() if free and spec.storage not in lasting else made
                    where[spec.storage].append(recycled)
            access = Access()
            if each.state is not State.FREE:
                for spec in each.inputs:
                    access.read += addresses_of(where[spec.storage], spec, access.read)
                for spec in each.outputs:
                    access.written += addresses_of(where[spec.storage], spec, access.written)
            rows.append(access)
            for storage in each.freed:
                free += reversed(where.pop(storage))
        for storage in sorted(set(where) - lasting):
            free += reversed(where.pop(storage))
        passes.append(rows)
    return passes


@st.composite
def programs(draw: st.DrawFn) -> list[OperatorRecord]:
    """Operators over lasting and passing storages: views, in-place writes, allocations, drops."""
    roles: list[Role] = [*draw(st.lists(st.sampled_from(LASTING), min_size=1, max_size=3))]
    sizes = {n: draw(st.integers(1, 9)) for n in range(len(roles))}
    alive = set(sizes)

    def view(number: int) -> TensorSpec:
        size = sizes[number]
        offset = draw(st.one_of(st.just(0), st.integers(0, size - 1)))
        whole = size - offset
        byte = draw(st.one_of(st.just(whole), st.integers(1, whole)))
        return i8(number, byte, roles[number], offset)

    records: list[OperatorRecord] = []
    for index in range(draw(st.integers(1, 8))):
        known = st.sampled_from(sorted(alive))
        inputs = [view(n) for n in draw(st.lists(known, max_size=3))]
        outputs: list[TensorSpec] = []
        kind = draw(st.sampled_from(["new", "new", "in place", "both", "allocation"]))
        if kind in ("in place", "both"):
            changed = view(draw(known))
            inputs += [changed] * draw(st.integers(0, 1))
            outputs.append(changed)
        if kind in ("new", "both", "allocation"):
            number = len(sizes)
            sizes[number] = draw(st.integers(1, 9))
            roles.append(draw(st.sampled_from(PASSING)))
            alive.add(number)
            outputs.append(i8(number, sizes[number], roles[number]))
        state = State.FREE if kind == "allocation" else State.COUNTED
        droppable = sorted(n for n in alive if roles[n] in PASSING)
        freed = (
            draw(st.lists(st.sampled_from(droppable), max_size=2, unique=True)) if droppable else []
        )
        alive -= set(freed)
        records.append(record(inputs, outputs, freed=freed, index=index, state=state))
    return records


def replayed(records: Sequence[OperatorRecord]) -> Iterator[tuple[tuple[Reuse, ...], Access]]:
    """What the model says of every operator of both passes, and what it touches."""
    found = trace_residency(records)
    for rows, expected in zip((found.cold, found.steady), accesses(records), strict=True):
        yield from zip(rows, expected, strict=True)


def of_reads_and_writes(reuses: Sequence[Reuse], access: Access) -> tuple[list[Reuse], list[Reuse]]:
    """The reuses of first touches, and the one of bytes that are written after they are read."""
    rewritten = len(set(access.read) & set(access.written))
    cut = len(reuses) - bool(rewritten)
    assert list(reuses[cut:]) == [Reuse(rewritten, rewritten)] * bool(rewritten)
    return list(reuses[:cut]), list(reuses[cut:])


@given(programs())
def test_distances_are_those_of_a_memory_of_single_bytes(records: list[OperatorRecord]) -> None:
    toucher: dict[int, int] = {}  # address -> the operator that touched it last
    for now, (reuses, access) in enumerate(replayed(records)):
        expected = Counter[int | None]()
        for byte in access.touched:
            if byte not in toucher:
                expected[None] += 1
                continue
            later = [each for each, when in toucher.items() if when > toucher[byte]]
            together = [each for each in access.touched if toucher.get(each) == toucher[byte]]
            expected[len(later) + len(together)] += 1
        counted = Counter[int | None]()
        for reuse in of_reads_and_writes(reuses, access)[0]:
            counted[reuse.distance_bytes] += reuse.byte
        assert counted == expected
        toucher |= dict.fromkeys(access.touched, now)


@given(programs(), st.integers(1, 30), st.integers(0, 99))
@settings(max_examples=300)
def test_no_order_of_touching_lets_a_cache_of_what_was_used_last_fetch_less(
    records: list[OperatorRecord], capacity: int, seed: int
) -> None:
    """Operands interleaved at random; dirty bytes are written back when they leave the cache."""
    shuffled = random.Random(seed)
    cache: list[int] = []  # last touched last
    dirty: set[int] = set()
    for reuses, access in replayed(records):
        # What is read and written is written after it is read, at once or much later.
        steps = [(shuffled.random(), "read", each) for each in access.read]
        read_at = {each: moment for moment, _, each in steps}
        steps += [
            (shuffled.uniform(read_at.get(each, 0.0), 1.0), "write", each)
            for each in access.written
        ]
        misses = written_back = 0
        dirty.clear()
        for _, what, byte in sorted(steps):
            if byte in cache:
                cache.remove(byte)
            else:
                # A write that misses fetches nothing, but leaves: it is one crossing either way.
                misses += byte not in access.read or what == "read"
            cache.append(byte)
            if what == "write":
                dirty.add(byte)
            if len(cache) > capacity:
                written_back += cache.pop(0) in dirty
        first, again = of_reads_and_writes(reuses, access)
        assert sum(each.bytes_beyond(capacity) for each in first) <= misses
        assert sum(each.bytes_beyond(capacity) for each in again) <= written_back


@given(programs(), st.integers(1, 30))
def test_the_best_order_fetches_exactly_that(records: list[OperatorRecord], capacity: int) -> None:
    """Where the operators before touched last what this one needs, and this one begins with it."""
    toucher: dict[int, int] = {}
    for now, (reuses, access) in enumerate(replayed(records)):
        needed = set(access.touched)
        newest_first = sorted(toucher, key=lambda each: (-toucher[each], each not in needed))
        missing = needed - set(newest_first[:capacity])
        first, _ = of_reads_and_writes(reuses, access)
        assert sum(each.bytes_beyond(capacity) for each in first) == len(missing)
        toucher |= dict.fromkeys(access.touched, now)


def optimal_misses(steps: Sequence[int], capacity: int) -> list[bool]:
    """Which touches miss in a cache that drops what is needed again last (Belady's)."""
    cache: set[int] = set()
    missed: list[bool] = []
    for now, byte in enumerate(steps):
        missed.append(byte not in cache)
        cache.add(byte)
        if len(cache) > capacity:
            upcoming = steps[now + 1 :]
            cache.remove(
                max(cache, key=lambda b: upcoming.index(b) if b in upcoming else len(steps))
            )
    return missed


@given(programs(), st.integers(1, 30))
def test_no_policy_fetches_less_in_a_pass_than_all_but_its_capacity(
    records: list[OperatorRecord], capacity: int
) -> None:
    cold, steady = ([b for each in rows for b in each.touched] for rows in accesses(records))
    fetched = sum(optimal_misses(cold + steady, capacity)[len(cold) :])
    assert fetched >= len(set(steady)) - capacity
    model = sum(r.bytes_beyond(capacity) for row in trace_residency(records).steady for r in row)
    assert model >= len(set(steady)) - capacity


def test_a_policy_that_knows_the_future_may_fetch_less() -> None:
    """Two weights of 4 bytes in turn, 6 bytes of cache: 2 of each are gone, a pinned 6 lose 2."""
    weights = [i8(n, 4, Role.PARAMETER) for n in range(2)]
    records = [record([each], []) for each in weights]
    steady = trace_residency(records).steady
    assert [reuse.bytes_beyond(6) for row in steady for reuse in row] == [2, 2]
    steps = [byte for rows in accesses(records) for each in rows for byte in each.touched]
    assert sum(optimal_misses(steps, 6)[8:]) == 2


def test_overlapping_operands_are_fetched_once() -> None:
    """x[1:] against x[:-1]: 100 bytes cross, not 198."""
    halves = [i8(0, 99, Role.INPUT), i8(0, 99, Role.INPUT, offset=1)]
    assert trace_residency([record(halves, [])]).steady == ((Reuse(100, 100),),)


def test_columns_that_share_a_storage_are_fetched_each() -> None:
    """Query, key and value as columns of one product: they lie between each other's rows."""
    columns = [i8(0, 30, Role.INPUT, offset=3 * n) for n in range(3)]
    whole = i8(0, 90, Role.INPUT)
    found = trace_residency([record([whole], []), record(columns, [])])
    assert found.steady[1] == (Reuse(90, 90),)


def test_what_is_read_and_written_crosses_twice_but_for_what_the_cache_can_hold() -> None:
    """add_(x, y) on 10 bytes each: of a 4-byte cache, 16 must come and 6 must leave."""
    x, y = i8(0, 10, Role.INPUT), i8(1, 10, Role.INPUT)
    (reuses,) = trace_residency([record([x, y], [x])]).steady
    assert reuses == (Reuse(20, 20), Reuse(10, 10))
    assert [each.bytes_beyond(4) for each in reuses] == [16, 6]


@given(programs())
def test_the_peak_is_the_most_that_lives_at_once_and_its_parts_add_up(
    records: list[OperatorRecord],
) -> None:
    specs = [spec for each in records for spec in (*each.inputs, *each.outputs)]
    passing = {spec.storage: spec.role for spec in specs if spec.role in PASSING}
    sizes = {
        number: max(s.offset_bytes + s.byte for s in specs if s.storage == number)
        for number in passing
    }
    alive: set[int] = set()
    by_operator: list[dict[Role, int]] = []
    for each in records:
        alive |= {spec.storage for spec in (*each.inputs, *each.outputs)} & set(passing)
        by_operator.append(
            {role: sum(sizes[n] for n in alive if passing[n] is role) for role in PASSING}
        )
        alive -= set(each.freed)
    totals = [sum(each.values()) for each in by_operator]
    found = trace_residency(records)
    assert found.peak_index == (totals.index(max(totals)) if max(totals) else None)
    at_peak = by_operator[found.peak_index or 0]
    assert found.peak_activation_bytes == at_peak[Role.ACTIVATION]
    assert found.peak_gradient_bytes == at_peak[Role.GRADIENT]
    assert found.all_activation_bytes == sum(sizes.values())


@pytest.mark.parametrize("length", [1, 2, 300])
def test_long_programs_stay_quick_and_consistent(length: int) -> None:
    weights = [i8(n, 3, Role.PARAMETER) for n in range(length)]
    records = [
        record([weight], [i8(length + n, 2, Role.ACTIVATION)], freed=[length + n])
        for n, weight in enumerate(weights)
    ]
    found = trace_residency(records)
    # Between two reads of a weight lie all weights and the one recycled buffer.
    assert {reuses[0].distance_bytes for reuses in found.steady} == {3 * length + 2}


@given(programs(), st.integers(0, 40), st.integers(0, 40))
def test_more_capacity_never_fetches_more(records: list[OperatorRecord], a: int, b: int) -> None:
    small, large = sorted((a, b))
    found = trace_residency(records)
    for rows in (found.cold, found.steady):
        for reuses in rows:
            for reuse in reuses:
                assert 0 <= reuse.bytes_beyond(large) <= reuse.bytes_beyond(small) <= reuse.byte


def test_the_definition_on_one_operand() -> None:
    """100 bytes last touched 130 bytes ago: of a 64-byte memory, 66 come from beyond."""
    assert Reuse(100, 130).bytes_beyond(64) == 66
    assert Reuse(100, 130).bytes_beyond(16) == 100
    assert Reuse(100, 130).bytes_beyond(130) == 0
    assert Reuse(100, None).bytes_beyond(10**12) == 100


def test_first_pass_is_cold_and_second_finds_what_the_first_left() -> None:
    """Weights 10, input 20, output 5: in the second pass all 35 bytes lie in between."""
    weights, image = i8(0, 10, Role.PARAMETER), i8(1, 20, Role.INPUT)
    out = i8(2, 5)
    found = trace_residency([record([weights, image], [out], freed=[2])])
    assert found.cold == ((Reuse(35, None),),)
    assert found.steady == ((Reuse(35, 35),),)


def test_a_dropped_activation_gives_its_memory_to_the_next() -> None:
    """x -> a -> b -> c with everything dropped at once runs in two buffers, whatever its length."""
    image = i8(0, 8, Role.INPUT)
    chain = [record([image], [i8(1, 8)])]
    chain += [
        record([i8(number, 8)], [i8(number + 1, 8)], freed=[number]) for number in range(1, 50)
    ]
    found = trace_residency(chain)
    assert found.peak_activation_bytes == 16
    assert found.all_activation_bytes == 50 * 8
    # In the steady state nothing is further back than the input: 8 of its own and two buffers.
    distances = [reuse.distance_bytes or 0 for reuses in found.steady for reuse in reuses]
    assert max(distances) == 24


def test_halves_of_a_storage_are_touched_apart() -> None:
    """Two views of one storage: reading the second half finds it as far back as its writing."""
    whole = i8(1, 8)
    first, second = i8(1, 4), i8(1, 4, offset=4)
    records = [
        record([i8(0, 2, Role.INPUT)], [whole]),
        record([first], [i8(2, 1)], freed=[2]),
        record([second], [i8(3, 1)], freed=[1, 3]),
    ]
    reuses = trace_residency(records).cold
    assert reuses[1][0] == Reuse(4, 4)
    # Its own 4, the first half again, and the byte written in between.
    assert reuses[2][0] == Reuse(4, 9)
