"""A machine measured twice: alarms are rare where nothing changed, and sure where something did."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from roofline.core.blocks import View
from roofline.machine.difference import FLOOR, HardwareDifference, hardware_change
from roofline.machine.hardware import ComputeCeiling, HardwareProfile
from roofline.render.console import plain_text
from roofline.result import read_result
from tests.builders import ceiling, profile
from tests.machine.hardware_examples import rich_profile

Bursts = Callable[[random.Random], float]

IQR_2_PERCENT = 0.02 / 1.349


def _normal(draw: random.Random) -> float:
    return 1e9 * draw.gauss(1.0, IQR_2_PERCENT)


def _slow_tail(draw: random.Random) -> float:
    """Mostly fast; a burst in five loses up to a tenth to a neighbour."""
    slow = draw.uniform(0.0, 0.1) if draw.random() < 0.2 else 0.0
    return 1e9 * draw.gauss(1.0, 0.005) * (1 - slow)


def _bimodal(draw: random.Random) -> float:
    """DRAM beside a neighbour: either all of it or two thirds, turn and turn about."""
    return draw.gauss(90e9, 1e9) if draw.random() < 0.5 else draw.gauss(60e9, 1e9)


def ceilings(
    bursts: Bursts, draw: random.Random, *, figures: int = 50, drift: float = 0.0, by: float = 1.0
) -> HardwareProfile:
    """As many ceilings, each from 60 bursts; a run moves each by `drift` (normal), and by `by`."""

    def one(number: int) -> ComputeCeiling:
        factor = by * draw.gauss(1.0, drift)
        times = sorted(factor * bursts(draw) for _ in range(60))
        median = statistics.median(times)
        low, _, high = statistics.quantiles(times, n=4)
        return replace(
            ceiling(1.0, unit=f"unit-{number}"),
            peak_flop_per_s=times[56],
            sustained_flop_per_s=median,
            spread=(high - low) / median,
        )

    return profile([one(number) for number in range(figures)], [])


@pytest.mark.parametrize("drift", [0.0, 0.01])
@pytest.mark.parametrize("bursts", [_normal, _slow_tail, _bimodal])
def test_false_alarms_are_rare(bursts: Bursts, drift: float) -> None:
    """Below 2 % of the figures, and the runs may drift by 1 % (one standard deviation) each."""
    draw = random.Random(4)
    alarms = figures = 0
    for _ in range(20):
        change = hardware_change(
            ceilings(bursts, draw, drift=drift), ceilings(bursts, draw, drift=drift)
        )
        alarms += len(change.notable)
        figures += len(change.changes)
    assert figures == 1000
    assert alarms < 0.02 * figures


@pytest.mark.parametrize("by", [0.9, 1.1])
def test_a_tenth_is_always_seen_where_the_spread_is_two_percent(by: float) -> None:
    draw = random.Random(4)
    for _ in range(10):
        change = hardware_change(ceilings(_normal, draw), ceilings(_normal, draw, by=by))
        assert len(change.notable) == len(change.changes) == 50


def pair(
    ratio: float, *, spreads: tuple[float | None, float | None] = (None, None), peak: float = 1.0
) -> HardwareDifference:
    """One ceiling of 10 GFLOP/s whose median changed by `ratio` and whose peak by `peak`."""
    old, new = (
        replace(ceiling(20e9), sustained_flop_per_s=10e9, spread=spread) for spread in spreads
    )
    new = replace(new, sustained_flop_per_s=ratio * 10e9, peak_flop_per_s=peak * 20e9)
    return hardware_change(profile([old], []), profile([new], []))


@pytest.mark.parametrize(
    ("spread", "allowed"),
    [(0.0, 0.04), (0.01, 0.04), (0.02, 0.0540), (0.04, 0.1080), (0.14, 0.378)],
)
def test_what_spreads_explain_by_hand(spread: float, allowed: float) -> None:
    """2.576 / 1.349 x sqrt(2) x spread, and at least 4 %."""
    change = pair(1.0, spreads=(spread, spread)).changes[0]
    assert change.noise == pytest.approx(allowed, rel=1e-3)
    for factor, notable in ((0.99, False), (1.01, True)):
        ratio = 2.718281828 ** (-allowed * factor)
        assert bool(pair(ratio, spreads=(spread, spread)).notable) == notable


def test_one_unknown_spread_leaves_it_to_how_far_the_peak_lies_above_the_median() -> None:
    """Median and peak are one on a data sheet, which thus counts as exact."""
    sheet = profile([ceiling(10e9)], [])
    noisy = profile([replace(ceiling(10.5e9), spread=0.02)], [])
    assert hardware_change(sheet, sheet).changes[0].noise == FLOOR
    assert hardware_change(sheet, noisy).changes[0].noise == pytest.approx(0.04)
    assert hardware_change(sheet, noisy).notable
    # ln 1.1 x 1.349 / 1.645 is a spread of 7.8 %, on one side alone.
    wide = profile([replace(ceiling(11e9), sustained_flop_per_s=10e9)], [])
    assert hardware_change(sheet, wide).changes[0].noise == pytest.approx(0.1493, rel=1e-3)


def test_a_lower_median_under_an_unchanged_peak_is_told_apart() -> None:
    (change,) = pair(0.6, spreads=(0.02, 0.02)).notable
    assert (change.sustained_changed, change.peak_changed, change.better) == (True, False, False)
    assert change.leading_ratio == pytest.approx(0.6)
    (change,) = pair(1.0, spreads=(0.02, 0.02), peak=1.2).notable
    assert (change.sustained_changed, change.peak_changed, change.better) == (False, True, True)


def changed() -> HardwareDifference:
    """DRAM read on two threads at 0.4 of its median, its latency 1.36 times, float16 gone."""
    old = rich_profile()
    assert old.host is not None
    *nearer, dram = old.memory
    slow = tuple(
        replace(each, sustained_bytes_per_s=0.4 * each.sustained_bytes_per_s)
        if (each.kind, each.kernel, each.threads) == ("hardware", "read", 2)
        else each
        for each in dram.bandwidth
    )
    assert dram.latency is not None
    late = replace(dram.latency, fast_s=150e-9, median_s=160e-9)
    new = replace(
        old,
        memory=(*nearer, replace(dram, bandwidth=slow, latency=late)),
        compute=tuple(each for each in old.compute if each.dtype.name != "float16"),
        host=replace(old.host, versions={"torch": "2.14.0", "numpy": "2"}, available_cpus=4),
        conditions=("steal: 3 %",),
        effort="quick",
    )
    return hardware_change(old, new)


def test_every_number_of_a_profile_is_compared() -> None:
    same = hardware_change(rich_profile(), rich_profile())
    assert not same.notable
    assert not (same.only(0) or same.only(1))
    whats = {each.one.what for each in same.changes}
    assert whats == {*("clock", "compute", "capacity", "latency", "bandwidth", "overhead", "link")}


def test_what_changed_is_said_first_and_the_largest_first() -> None:
    """Old: 86 GB/s x 0.55 = 47.3 GB/s, x 0.4 = 18.9."""
    text = plain_text(changed().report(View(today=date(2026, 3, 10))))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    count = len(changed().changes)
    assert lines[0] == (
        f"2 of {count} figures changed beyond the noise floor: DRAM read on 2 threads 47.3 GB/s →"
        " 18.9 GB/s (0.4×); DRAM latency on 1 thread 118 ns → 160 ns (1.36×)"
    )
    assert "DRAM read 2 47.3 GB/s 18.9 GB/s 0.4× 1× ± 38.3 % worse, peak unchanged" in lines
    for words in (
        "Old rich-2core · 6 days ago (2026-03-04) · effort default",
        "Versions torch 2.13.0 → 2.14.0 · llvmlite 0.50.0 → – · numpy – → 2",
        "available CPUs 2 → 4",
        "float16 torch gemm on 1 and 2 threads",
        "new: steal: 3 %",
    ):
        assert words in lines


def scaled(clock: float, *, compute: float, far: float) -> HardwareProfile:
    """The rich profile at another clock, with arithmetic and DRAM faster by these factors."""

    def times(figure: Any, unit: str, factor: float, **more: float) -> Any:
        names = (f"peak_{unit}", f"sustained_{unit}" if unit != "hz" else "median_hz")
        return replace(figure, **{name: factor * getattr(figure, name) for name in names}, **more)

    def at(figure: Any, unit: str, factor: float) -> Any:
        return times(figure, unit, factor, spread=0.01)

    rich = rich_profile()
    *nearer, dram = rich.memory
    faster = tuple(at(each, "bytes_per_s", far) for each in dram.bandwidth)
    return replace(
        rich,
        clock=times(rich.clock, "hz", clock),
        compute=tuple(
            at(each, "flop_per_s", compute if each.kind == "hardware" else 1.0)
            for each in rich.compute
        ),
        memory=(*nearer, replace(dram, bandwidth=faster)),
    )


def test_what_follows_the_clock_is_no_change_of_its_own() -> None:
    old, new = scaled(1.0, compute=1.0, far=1.0), scaled(1.1, compute=1.1, far=1.1)
    change = hardware_change(old, new)
    following = {each.one.what for each in change.following}
    assert following == {"compute"}
    assert len(change.following) == sum(each.kind == "hardware" for each in old.compute)
    # Memory does not run at the clock of a core.
    assert {each.one.subject for each in change.notable} == {"clock", "DRAM"}
    said = str(change)
    assert f"{len(change.following)} figures of arithmetic, L1 and L2 changed with it" in said


def test_what_stayed_while_the_clock_changed_has_not_changed() -> None:
    change = hardware_change(scaled(1.0, compute=1.0, far=1.0), scaled(1.1, compute=1.0, far=1.0))
    assert [each.one.what for each in change.notable] == ["clock"]


def test_what_moves_against_the_clock_has_changed() -> None:
    change = hardware_change(scaled(1.0, compute=1.0, far=1.0), scaled(1.1, compute=0.9, far=1.0))
    assert {each.one.what for each in change.notable} == {"clock", "compute"}
    assert change.following == ()


def test_nothing_is_said_to_have_changed_where_nothing_did() -> None:
    same = hardware_change(rich_profile(), rich_profile())
    assert same.summary == (
        f"no change beyond the noise floor ({len(same.changes)} figures compared)"
    )
    apart = hardware_change(profile([ceiling(1e9)], []), profile([ceiling(1e9, unit="sse")], []))
    assert apart.summary.startswith("nothing to compare")


def test_doubtful_figures_stay_marked() -> None:
    old = ceiling(10e9)
    new = replace(ceiling(20e9), doubt="unsteady")
    text = str(hardware_change(profile([old], []), profile([new], [])))
    assert "10.0 GFLOP/s  ? 20.0 GFLOP/s" in text
    assert "?: unreliable figure, by its own measurement" in text


def test_threads_are_compared_number_by_number() -> None:
    """Two threads of then are two threads of now, not all of now."""
    old = profile([ceiling(2e9, threads=2)], [], threads=2)
    new = profile([ceiling(2e9, threads=2), ceiling(4e9, threads=4)], [], threads=4)
    change = hardware_change(old, new)
    assert (len(change.changes), len(change.notable)) == (1, 0)
    assert [each.threads for each in change.only(1)] == ["4"]


def test_sizes_of_caches_change_by_steps() -> None:
    """Sizes found from a curve may lie a fifth apart; a quarter less and more is another cache."""
    old = rich_profile()
    for factor, notable in ((1.2, 0), (0.7, 1)):
        first, *rest = old.memory
        assert first.capacity_bytes is not None
        other = replace(first, capacity_bytes=int(factor * first.capacity_bytes))
        assert len(hardware_change(old, replace(old, memory=(other, *rest))).notable) == notable


def test_files_have_every_figure_and_whether_it_changed(tmp_path: Path) -> None:
    change = changed()
    change.save(tmp_path / "change.json")
    assert read_result(tmp_path / "change.json") == change
    data = json.loads((tmp_path / "change.json").read_text(encoding="utf-8"))
    assert sum(each["changed"] is True for each in data["figures"]) == len(change.notable) == 2
    assert data["host_difference"] == "available CPUs 2 → 4"
    assert data["versions"]["torch"] == ["2.13.0", "2.14.0"]
    frame = change.to_frame()
    assert int(frame["changed"].sum()) == 2
    (read,) = frame[(frame["name"] == "DRAM read hardware") & frame["changed"]].to_dict("records")
    assert (read["threads"], read["sustained_ratio"]) == ("2", pytest.approx(0.4))
    assert (read["noise_ratio"], read["clock_ratio"]) == (pytest.approx(1.383, rel=1e-3), 1.0)
