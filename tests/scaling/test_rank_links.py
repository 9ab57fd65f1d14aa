"""Links between ranks, as profiles know them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline.core.units import parse_bytes_per_s
from roofline.errors import InputError
from roofline.machine.hardware import Duration, HardwareProfile, Link
from roofline.pipeline.measuring import with_links
from roofline.scaling.settings import RankLink, rank_link
from tests.builders import SOURCE, ceiling, level, profile


def link(kernel: str, rate: float, source: str = "process") -> Link:
    return Link(
        source=source,
        target=source,
        kernel=kernel,
        threads=1,
        peak_bytes_per_s=2 * rate,
        sustained_bytes_per_s=rate,
        latency=Duration(fast_s=1e-6, median_s=3e-6, provenance=SOURCE),
        provenance=SOURCE,
    )


def machine(*links: Link) -> HardwareProfile:
    known = profile([ceiling(1e9)], [level("DRAM", None, {"read": {1: 1e9}})])
    return replace(known, links=links)


def test_all_reduces_are_taken_before_messages_and_bounds_take_the_best() -> None:
    known = machine(link("gloo send", 5e9), link("gloo all-reduce", 1e9))
    usual, best = rank_link(known, at_best=False), rank_link(known, at_best=True)
    assert (usual.bytes_per_s, usual.latency_s) == (1e9, 3e-6)
    assert (best.bytes_per_s, best.latency_s) == (2e9, 1e-6)
    assert usual.is_in_host and "all-reduce" in usual.name


def test_a_way_to_other_memory_is_no_link_between_ranks() -> None:
    with pytest.raises(InputError, match="measure --links"):
        rank_link(machine(link("read", 5e9, "node 0")), at_best=True)


def test_new_links_replace_their_like_and_leave_the_others() -> None:
    before = machine(link("read", 1e9, "node 0"), link("gloo send", 1e9))
    after = with_links(before, (link("gloo send", 7e9), link("gloo all-reduce", 8e9)))
    kernels = [(each.kernel, each.sustained_bytes_per_s) for each in after.links]
    assert kernels == [("read", 1e9), ("gloo send", 7e9), ("gloo all-reduce", 8e9)]


def test_a_link_says_its_figures_and_where_they_are_from() -> None:
    by_hand = RankLink(name="by hand", bytes_per_s=25e9, latency_s=5e-6)
    assert by_hand.words == "25.0 GB/s per direction, 5.00 µs latency"
    assert by_hand.description == "by hand · 25.0 GB/s per direction, 5.00 µs latency"
    known = rank_link(machine(link("gloo send", 5e9)), at_best=True)
    assert known.description.endswith("measured 2026-01-01, peak")


@pytest.mark.parametrize(
    ("rate", "latency_s"),
    [
        *((rate, 0.0) for rate in (0.0, -1.0, float("nan"), float("inf"))),
        *((1.0, latency) for latency in (-1.0, float("nan"), float("inf"))),
    ],
)
def test_what_no_link_is_is_refused(rate: float, latency_s: float) -> None:
    with pytest.raises(ValueError, match="bandwidth must be above 0"):
        RankLink(name="wrong", bytes_per_s=rate, latency_s=latency_s)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25GB/s", 25e9),
        ("1.5 GiB/s", 1.5 * 2**30),
        ("100Gbit/s", 12.5e9),
        ("800 kB/s", 800e3),
        ("10B/s", 10.0),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, rate: float) -> None:
    assert parse_bytes_per_s(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("25GB", "25Gb/s", "25gb/s", "25Gbps", "25GBps", "25G", "0GB/s", "-1GB/s", "GB/s", ""),
        *("1e9B/s", "infGB/s", "nanGB/s", "25GB/s/s", "25 GB /s"),
    ],
)
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be a rate such as 25GB/s"):
        parse_bytes_per_s(text)
