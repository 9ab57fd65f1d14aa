"""Costs of page faults: mapped, written and unmapped memory of the host itself."""

from __future__ import annotations

import itertools
import mmap
import sys
import time
from collections.abc import Iterator

import pytest

from roofline.machine.measuring import kernel_measurement
from roofline.machine.measuring.kernel_measurement import PAGE_FAULT, page_fault_overheads
from roofline.machine.measuring.pinned_threads import PinnedThreads

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts Linux's pages")


@pytest.fixture
def workers() -> Iterator[PinnedThreads]:
    with PinnedThreads(1) as found:
        yield found


def test_small_pages_are_counted_and_take_time(workers: PinnedThreads) -> None:
    found = {each.name: each for each in page_fault_overheads(workers, (1,), time.perf_counter)}
    small = found[PAGE_FAULT]
    assert small.threads == 1
    assert 0 < small.time.fast_s <= small.time.median_s
    assert small.time.provenance.source == "measured"


def test_the_cost_is_the_difference_by_page(
    workers: PinnedThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock by which mapping and writing takes 9 s, writing again 1 s, and unmapping 2 s."""
    monkeypatch.setattr(kernel_measurement, "_KINDS", kernel_measurement._KINDS[:1])  # pyright: ignore[reportPrivateUsage]
    ticks = itertools.accumulate(itertools.cycle([0.0, 9.0, 1.0, 2.0]))
    (found,) = page_fault_overheads(workers, (1,), lambda: next(ticks))
    pages = kernel_measurement._KINDS[0].region_bytes // mmap.PAGESIZE  # pyright: ignore[reportPrivateUsage]
    assert found.time.median_s == pytest.approx((9 + 2 - 1) / pages)


def test_a_system_that_counts_no_faults_has_no_costs(
    workers: PinnedThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_measurement, "minor_faults", lambda: 0)
    assert page_fault_overheads(workers, (1,), time.perf_counter) == ()
