"""The raw samples beside a profile: every rate can be computed anew from them."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.machine.measuring.estimation import (
    Burst,
    Series,
    estimate,
    samples_file,
    samples_text,
)
from tests.machine.fake_machine import FakeMachine, install, measure


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return install(monkeypatch)


def test_the_file_lies_beside_the_profile() -> None:
    assert samples_file(Path("a/host.toml")) == Path("a/host.samples.json")
    assert samples_file(Path("my.machine.toml")) == Path("my.machine.samples.json")


def test_what_stands_in_the_file() -> None:
    series = Series(
        label="fma float32 avx2, 2 threads",
        quantity="flop",
        work=4e6,
        bursts=(
            Burst(wall_s=400.5e-6, cpu_s=400e-6, busy=0.99876),
            Burst(wall_s=1.0, cpu_s=0.25, busy=0.94999),
        ),
    )
    assert json.loads(samples_text([series], name="fake")) == {
        "schema_version": 1,
        "kind": "samples of a hardware profile",
        "profile": "fake",
        "series": [
            {
                "label": "fma float32 avx2, 2 threads",
                "quantity": "flop",
                "work": 4e6,
                "wall_ns": [400500, 1000000000],
                "cpu_ns": [400000, 250000000],
                "busy": [0.998, 0.949],
            }
        ],
    }


def test_times_below_a_microsecond_keep_their_digits() -> None:
    burst = Burst(wall_s=1.23456e-9, cpu_s=812.3456e-9, busy=1.0)
    series = Series(label="latency of 4096 byte", quantity="load", work=1, bursts=(burst,))
    (saved,) = json.loads(samples_text([series], name="fake"))["series"]
    assert (saved["wall_ns"], saved["cpu_ns"]) == ([1.23456], [812.346])


def test_what_was_not_kept_of_a_burst_is_null() -> None:
    burst = Burst(wall_s=2e-9, cpu_s=math.nan, busy=math.nan)
    series = Series(label="latency of 4096 byte", quantity="load", work=1, bursts=(burst,))
    (saved,) = json.loads(samples_text([series], name="fake"))["series"]
    assert (saved["wall_ns"], saved["cpu_ns"], saved["busy"]) == ([2], [None], [None])


def test_hops_stand_beside_their_bursts() -> None:
    series = Series(
        label="DRAM read avx, 2 threads",
        quantity="byte",
        work=1e6,
        bursts=(Burst(wall_s=1e-3, cpu_s=1e-3, busy=1.0),) * 3,
        hops_s=(45.0025e-9, math.nan, 205e-9),
        mostly_s=(None, 45.0025e-9),
    )
    (saved,) = json.loads(samples_text([series], name="fake"))["series"]
    assert saved["core_to_core_latency_ns"] == [45.0025, None, 205]
    assert saved["mostly_ns"] == [None, 45.0025]


def figures(each: dict[str, Any]) -> tuple[float, float]:
    """Peak and sustained of a series, by docs/file-formats.md and nothing else."""

    def clean(rows: list[tuple[float, float, float | None]]) -> list[float]:
        return [wall for wall, busy, _ in rows if busy >= 0.95] or [wall for wall, _, _ in rows]

    hops = each.get("core_to_core_latency_ns", [None] * len(each["wall_ns"]))
    rows = list(zip(each["wall_ns"], each["busy"], hops, strict=True))
    low, high = each.get("mostly_ns", (None, None))
    mostly = rows
    if low is not None or high is not None:
        mostly = [
            row
            for row in rows
            if row[2] is not None
            and (low is None or row[2] > low)
            and (high is None or row[2] <= high)
        ] or rows
    sustained = each["work"] / (statistics.median(clean(mostly)) * 1e-9)
    fast_ns = min(float(np.quantile(clean(part), 0.05)) for part in (rows, mostly))
    all_sustained = each["work"] / (statistics.median(clean(rows)) * 1e-9)
    return max(each["work"] / (fast_ns * 1e-9), sustained, all_sustained), sustained


def test_figures_follow_from_the_samples_where_the_host_moved_its_cpus(
    machine: FakeMachine,
) -> None:
    begin = machine.clock()

    def slowness(kernel: Any, now_s: float) -> float:
        apart = now_s > begin + 3.6
        if kernel.label == "hop":
            return 3.0 if apart else 1.0
        return (2.0 if apart else 1.0) + 0.1 * (round(now_s * 1e6) % 2)

    machine.slowness = slowness
    profile, series = measure(machine, budget_s=6.0)
    assert any("the host moved its CPUs" in each for each in profile.conditions)
    text = samples_text(series, name=profile.name)
    saved = {each["label"]: each for each in json.loads(text)["series"]}
    assert any("core_to_core_latency_ns" in each for each in saved.values())
    for level in profile.memory:
        for found in level.bandwidth:
            team = f"{found.threads} thread{'s' * (found.threads != 1)}"
            forms = [
                figures(each)
                for label, each in saved.items()
                if label.startswith(f"{level.name} {found.kernel} ") and label.endswith(f", {team}")
            ]
            assert forms
            expected = (max(peak for peak, _ in forms), max(rate for _, rate in forms))
            assert (found.peak_bytes_per_s, found.sustained_bytes_per_s) == pytest.approx(
                expected, rel=1e-4
            )


def test_every_rate_of_a_profile_follows_from_its_samples(machine: FakeMachine) -> None:
    # Every second call is slower, so that peak, median and spread differ.
    machine.slowness = lambda kernel, now_s: 1.0 + 0.1 * (round(now_s * 1e6) % 2)
    profile, series = measure(machine)
    text = samples_text(series, name=profile.name)
    saved = {each["label"]: each for each in json.loads(text)["series"]}
    assert len(saved) == len(series)
    checked = 0
    for ceiling in profile.compute:
        team = f"{ceiling.threads} thread{'s' * (ceiling.threads != 1)}"
        kernel = f"{ceiling.kernel} {ceiling.dtype} {ceiling.unit}"
        # The faster form counts.
        rates = [
            statistics.median(each["work"] / (ns * 1e-9) for ns in each["wall_ns"])
            for form in ("", ", second form")
            for each in [saved[f"{kernel}{form}, {team}"]]
        ]
        assert max(rates) == pytest.approx(ceiling.sustained_flop_per_s, rel=0.02)
        checked += 1
    for level in profile.memory:
        for found in level.bandwidth:
            team = f"{found.threads} thread{'s' * (found.threads != 1)}"
            (first,) = (
                each
                for label, each in saved.items()
                if label.startswith(f"{level.name} {found.kernel} ")
                and label.endswith(team)
                and "second form" not in label
            )
            bursts = [
                Burst(wall_s=wall * 1e-9, cpu_s=cpu * 1e-9, busy=busy)
                for wall, cpu, busy in zip(
                    first["wall_ns"], first["cpu_ns"], first["busy"], strict=True
                )
            ]
            rate = estimate(first["work"], bursts)
            assert rate.sustained <= found.peak_bytes_per_s * 1.001
            assert rate.sustained == pytest.approx(found.sustained_bytes_per_s, rel=0.11)
            checked += 1
    assert checked == len(profile.compute) + 48
