"""Links from times that are known, and one measured for real."""

from __future__ import annotations

import pytest

from roofline.errors import MeasurementError
from roofline.machine.links import link_of, measure_links
from tests.builders import SOURCE


def test_a_latency_and_a_rate_come_back() -> None:
    # Two messages of 5 us each, and a byte each way for each byte of data at 2 GB/s.
    times = {byte: [10e-6 + byte / 2e9] * 9 for byte in (4, 25_000_000)}
    link = link_of(times, kernel="gloo all-reduce", messages=2, share=1.0, provenance=SOURCE)
    assert link.sustained_bytes_per_s == pytest.approx(2e9)
    assert link.peak_bytes_per_s == pytest.approx(2e9)
    assert link.latency is not None
    assert link.latency.median_s == pytest.approx(5e-6, rel=1e-3)
    assert link.spread == pytest.approx(0)


def test_the_best_bursts_are_the_peak_and_the_middle_is_sustained() -> None:
    times = {4: [1e-6] * 21, 10_000_000: [5e-3] * 2 + [1e-2] * 19}
    link = link_of(times, kernel="gloo send", messages=2, share=1.0, provenance=SOURCE)
    assert link.sustained_bytes_per_s == pytest.approx(1e9, rel=1e-3)
    assert link.peak_bytes_per_s == pytest.approx(2e9, rel=1e-3)


def test_times_that_tell_no_rate_are_refused() -> None:
    with pytest.raises(MeasurementError, match="as quick as 4"):
        link_of(
            {4: [1e-3], 1000: [1e-3]},
            kernel="gloo send",
            messages=2,
            share=1.0,
            provenance=SOURCE,
        )


def test_two_processes_of_this_host_have_a_link() -> None:
    summed, sent = measure_links(rounds=2)
    assert (summed.kernel, sent.kernel) == ("gloo all-reduce", "gloo send")
    for each in (summed, sent):
        assert each.source == each.target == "process"
        assert each.peak_bytes_per_s >= each.sustained_bytes_per_s > 0
        assert each.latency is not None and each.latency.median_s > 0
        assert each.provenance.source == "measured"
