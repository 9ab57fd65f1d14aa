"""Collectives against ranks that really pass messages to one another, in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.machine.catalog import load_hardware
from roofline.scaling.settings import (
    Algorithm,
    RankLink,
    all_reduce,
    broadcast,
    min_all_reduce_s,
    named_link,
    rank_link,
)

Message = tuple[int, int, list[int], bool]
"""From, to, which elements, and whether they are added (else they replace)."""


class Ranks:
    """Ranks with an element each a byte; rounds of messages that all go at the same time."""

    def __init__(self, count: int, elements: int) -> None:
        self.values = [
            [(rank + 1) * (place + 1) for place in range(elements)] for rank in range(count)
        ]
        self.wanted = [sum(column) for column in zip(*self.values, strict=True)]
        self.rounds = 0
        self.way_bytes = 0
        self.sent_bytes = [0] * count

    def exchange(self, messages: list[Message]) -> None:
        """One round: a rank sends at most one message, and gets at most one."""
        assert len({each[0] for each in messages}) == len(messages)
        assert len({each[1] for each in messages}) == len(messages)
        carried = [
            (to, places, [self.values[source][place] for place in places], adds)
            for source, to, places, adds in messages
        ]
        for source, _, places, _ in messages:
            self.sent_bytes[source] += len(places)
        for to, places, values, adds in carried:
            for place, value in zip(places, values, strict=True):
                self.values[to][place] = value + (self.values[to][place] if adds else 0)
        self.rounds += 1
        self.way_bytes += max(len(places) for _, _, places, _ in messages)

    def check(self) -> None:
        assert all(each == self.wanted for each in self.values)


def ring(ranks: Ranks, count: int, elements: int) -> None:
    size = elements // count
    chunks = [list(range(each * size, (each + 1) * size)) for each in range(count)]
    for step in range(count - 1):
        ranks.exchange(
            [
                (rank, (rank + 1) % count, chunks[(rank - step) % count], True)
                for rank in range(count)
            ]
        )
    for step in range(count - 1):
        ranks.exchange(
            [
                (rank, (rank + 1) % count, chunks[(rank + 1 - step) % count], False)
                for rank in range(count)
            ]
        )


def tree(ranks: Ranks, count: int, elements: int) -> None:
    everything = list(range(elements))
    distances = [2**power for power in range((count - 1).bit_length())]
    for distance in distances:
        ranks.exchange(
            [
                (rank + distance, rank, everything, True)
                for rank in range(0, count, 2 * distance)
                if rank + distance < count
            ]
        )
    for distance in reversed(distances):
        ranks.exchange(
            [
                (rank, rank + distance, everything, False)
                for rank in range(0, count, 2 * distance)
                if rank + distance < count
            ]
        )


def halving(ranks: Ranks, count: int, elements: int) -> None:
    everything = list(range(elements))
    core = 2 ** (count.bit_length() - 1)
    extra = count - core
    if extra:
        ranks.exchange([(core + each, each, everything, True) for each in range(extra)])
    owned = dict.fromkeys(range(core), everything)
    distance = core // 2
    while distance:
        messages: list[Message] = []
        for rank in range(core):
            half = len(owned[rank]) // 2
            low, high = owned[rank][:half], owned[rank][half:]
            keeps, sends = (low, high) if not rank & distance else (high, low)
            messages.append((rank, rank ^ distance, sends, True))
            owned[rank] = keeps
        ranks.exchange(messages)
        distance //= 2
    distance = 1
    while distance < core:
        ranks.exchange([(rank, rank ^ distance, owned[rank], False) for rank in range(core)])
        owned = {rank: sorted(owned[rank] + owned[rank ^ distance]) for rank in range(core)}
        distance *= 2
    if extra:
        ranks.exchange([(each, core + each, everything, False) for each in range(extra)])


SIMULATED: dict[Algorithm, Callable[[Ranks, int, int], None]] = {
    "ring": ring,
    "tree": tree,
    "halving": halving,
}


@pytest.mark.parametrize("algorithm", SIMULATED)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 16])
def test_an_all_reduce_costs_what_its_messages_cost(algorithm: Algorithm, count: int) -> None:
    elements = 16 * 3 * 5 * 7
    ranks = Ranks(count, elements)
    SIMULATED[algorithm](ranks, count, elements)
    ranks.check()
    told = all_reduce(elements, count, algorithm)
    assert told.messages == ranks.rounds
    assert told.way_bytes == pytest.approx(ranks.way_bytes)
    assert told.sent_bytes == pytest.approx(max(ranks.sent_bytes))


def test_two_ranks_by_hand() -> None:
    # Each sends half of its 100 MB and gets the other's, then sends the sum of its half: 2 messages
    # of 50 MB at 10 GB/s are 10 ms, and twice 5 us.
    link = RankLink(name="by hand", bytes_per_s=10e9, latency_s=5e-6)
    assert all_reduce(100_000_000, 2).time_s(link) == pytest.approx(0.01001)


@given(
    byte=st.integers(1, 10**9),
    ranks=st.integers(1, 300),
    algorithm=st.sampled_from(sorted(SIMULATED)),
    latency_s=st.floats(0, 1e-3),
)
def test_no_algorithm_beats_the_least(
    byte: int, ranks: int, algorithm: Algorithm, latency_s: float
) -> None:
    link = RankLink(name="any", bytes_per_s=1e9, latency_s=latency_s)
    least_s = min_all_reduce_s(byte, ranks, link)
    assert all_reduce(byte, ranks, algorithm).time_s(link) >= least_s * (1 - 1e-12)


def test_no_published_all_reduce_beats_in_network_reduction() -> None:
    # 8 H100: 273 GB/s of reduced data, which a ring at 450 GB/s could not reach.
    link = named_link("nvlink4")
    assert link is not None and link.reduces
    assert min_all_reduce_s(10**9, 8, link) == 1 / 450 < 1 / 273
    assert min_all_reduce_s(10**9, 8, replace(link, reduces=False)) > 1 / 273
    assert "in-network reduction" in link.description
    names = ("nvlink3", "nvlink4-bridge", "pcie5", "infiniband-ndr", "nvlink5")
    assert [bool((of := named_link(each)) and of.reduces) for each in names] == [
        *(False, False, False, True, True)
    ]
    profiles = [load_hardware(each) for each in ("a100", "h100", "b200")]
    assert [rank_link(each, at_best=True).reduces for each in profiles] == [False, True, True]


def test_one_rank_sends_nothing() -> None:
    told = all_reduce(1000, 1)
    assert (told.messages, told.way_bytes, told.sent_bytes) == (0, 0, 0)
    assert min_all_reduce_s(1000, 1, RankLink(name="any", bytes_per_s=1.0, latency_s=1.0)) == 0


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_broadcast_is_the_way_down_a_tree(count: int) -> None:
    ranks = Ranks(count, 10)
    heard = {0}
    while len(heard) < count:
        free = [each for each in range(count) if each not in heard]
        pairs = list(zip(sorted(heard), free, strict=False))
        ranks.exchange([(source, to, list(range(10)), False) for source, to in pairs])
        heard |= {to for _, to in pairs}
    told = broadcast(10, count)
    assert (told.messages, told.way_bytes) == (ranks.rounds, ranks.way_bytes)


@pytest.mark.parametrize(
    ("ranks", "algorithm", "expected_s"),
    [
        # 48 MB at 8 GB/s (6 ms), 50 us a message.
        (1, "ring", 0.0),
        (2, "ring", 2 * 50e-6 + 6e-3),
        (3, "ring", 4 * 50e-6 + 8e-3),
        (8, "ring", 14 * 50e-6 + 10.5e-3),
        (1000, "ring", 1998 * 50e-6 + 11.988e-3),
        (2, "tree", 2 * 50e-6 + 12e-3),
        (3, "tree", 4 * 50e-6 + 24e-3),
        (8, "tree", 6 * 50e-6 + 36e-3),
        (1000, "tree", 20 * 50e-6 + 120e-3),
        (8, "halving", 6 * 50e-6 + 10.5e-3),
        # 512 of them halve 1.998046875 times 6 ms; 488 hand theirs over and get it back.
        (1000, "halving", 20 * 50e-6 + 2 * 511 / 512 * 6e-3 + 12e-3),
    ],
)
def test_times_by_hand(ranks: int, algorithm: Algorithm, expected_s: float) -> None:
    link = RankLink(name="by hand", bytes_per_s=8e9, latency_s=50e-6)
    assert all_reduce(48_000_000, ranks, algorithm).time_s(link) == pytest.approx(expected_s)


@given(byte=st.integers(1, 10**9), ranks=st.integers(1, 300), latency_s=st.floats(0, 1e-3))
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_one_more_rank_never_takes_less(
    algorithm: Algorithm, byte: int, ranks: int, latency_s: float
) -> None:
    link = RankLink(name="any", bytes_per_s=1e9, latency_s=latency_s)
    fewer_s, more_s = (
        all_reduce(byte, each, algorithm).time_s(link) for each in (ranks, ranks + 1)
    )
    assert more_s >= fewer_s
