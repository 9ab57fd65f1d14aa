"""Reuse distances worked out by hand; `test_residency_reference` has the simulated memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Reuse, residency
from roofline.workload.tensors import Role
from tests.builders import record
from tests.workload.test_residency_reference import i8, programs


@given(programs(), st.integers(0, 40), st.integers(0, 40))
def test_more_capacity_never_fetches_more(records: list[OperatorRecord], a: int, b: int) -> None:
    small, large = sorted((a, b))
    found = residency(records)
    for rows in (found.cold, found.steady):
        for reuses in rows:
            for reuse in reuses:
                assert 0 <= reuse.beyond(large) <= reuse.beyond(small) <= reuse.byte


def test_the_definition_on_one_operand() -> None:
    """100 bytes last touched 130 bytes ago: of a 64-byte memory, 66 come from beyond."""
    assert Reuse(100, 130).beyond(64) == 66
    assert Reuse(100, 130).beyond(16) == 100
    assert Reuse(100, 130).beyond(130) == 0
    assert Reuse(100, None).beyond(10**12) == 100


def test_first_pass_is_cold_and_second_finds_what_the_first_left() -> None:
    """Weights 10, input 20, output 5: in the second pass all 35 bytes lie in between."""
    weights, image = i8(0, 10, Role.PARAMETER), i8(1, 20, Role.INPUT)
    out = i8(2, 5)
    found = residency([record([weights, image], [out], freed=[2])])
    assert found.cold == ((Reuse(35, None),),)
    assert found.steady == ((Reuse(35, 35),),)


def test_a_dropped_activation_gives_its_memory_to_the_next() -> None:
    """x -> a -> b -> c with everything dropped at once runs in two buffers, whatever its length."""
    image = i8(0, 8, Role.INPUT)
    chain = [record([image], [i8(1, 8)])]
    chain += [
        record([i8(number, 8)], [i8(number + 1, 8)], freed=[number]) for number in range(1, 50)
    ]
    found = residency(chain)
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
    reuses = residency(records).cold
    assert reuses[1][0] == Reuse(4, 4)
    # Its own 4, the first half again, and the byte written in between.
    assert reuses[2][0] == Reuse(4, 9)
