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
    samples_file,
    samples_text,
)
from tests.machine.fake_machine import FakeMachine, measure


def test_the_file_lies_beside_the_profile() -> None:
    assert samples_file(Path("a/host.toml")) == Path("a/host.samples.json")
    assert samples_file(Path("my.machine.toml")) == Path("my.machine.samples.json")


def saved_of(label: str, bursts: list[Burst], **more: Any) -> dict[str, Any]:
    series = Series(label=label, quantity="flop", work=4e6, bursts=tuple(bursts), **more)
    text = json.loads(samples_text([series], name="fake"))
    (saved,) = text.pop("series")
    assert text == {
        "schema_version": 1,
        "kind": "samples of a hardware profile",
        "profile": "fake",
    }
    return saved


def test_what_stands_in_the_file() -> None:
    bursts = [
        Burst(wall_s=400.5e-6, cpu_s=400e-6, busy=0.99876),
        Burst(wall_s=1.0, cpu_s=0.25, busy=0.94999),
        # Times below a microsecond keep their digits; what was not kept is null.
        Burst(wall_s=1.23456e-9, cpu_s=812.3456e-9, busy=1.0),
        Burst(wall_s=2e-9, cpu_s=math.nan, busy=math.nan),
    ]
    known = {
        "label": "fma float32 avx2, 2 threads",
        "quantity": "flop",
        "work": 4e6,
        "wall_ns": [400500, 1000000000, 1.23456, 2],
        "cpu_ns": [400000, 250000000, 812.346, None],
        "busy": [0.998, 0.949, 1.0, None],
    }
    assert saved_of(known["label"], bursts) == known
    core_to_core_s = (45.0025e-9, math.nan, 205e-9, 205e-9)
    assert saved_of(
        known["label"], bursts, core_to_core_s=core_to_core_s, usual_range_s=(None, 45.0025e-9)
    ) == {
        **known,
        "core_to_core_latency_ns": [45.0025, None, 205, 205],
        "mostly_ns": [None, 45.0025],
    }


def figures(each: dict[str, Any]) -> tuple[float, float]:
    """Peak and sustained of a series, by docs/reference/file-formats.md and nothing else."""

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


def test_every_figure_follows_from_the_samples_where_the_host_moved_its_cpus(
    machine: FakeMachine,
) -> None:
    begin = machine.clock()

    def slowness(kernel: Any, now_s: float) -> float:
        apart = now_s > begin + 3.6
        if kernel.label == "core-to-core":
            return 3.0 if apart else 1.0
        return (2.0 if apart else 1.0) + 0.1 * (round(now_s * 1e6) % 2)

    machine.slowness = slowness
    profile, series = measure(machine, budget_s=6.0)
    assert any("the host moved its CPUs" in each for each in profile.conditions)
    text = samples_text(series, name=profile.name)
    saved = {each["label"]: each for each in json.loads(text)["series"]}
    assert any("core_to_core_latency_ns" in each for each in saved.values())
    assert len(saved) == len(series)
    rates = [
        (f"{c.kernel} {c.dtype} {c.unit}", c.threads, c.peak_flop_per_s, c.sustained_flop_per_s)
        for c in profile.compute
    ]
    rates += [
        (f"{level.name} {b.kernel} ", b.threads, b.peak_bytes_per_s, b.sustained_bytes_per_s)
        for level in profile.memory
        for b in level.bandwidth
    ]
    assert len(rates) == len(profile.compute) + 48
    for name, threads, peak, sustained in rates:
        team = f", {threads} thread{'s' * (threads != 1)}"
        forms = [
            figures(each)
            for label, each in saved.items()
            if label.startswith(name) and label.endswith(team)
        ]
        assert len(forms) == 2
        expected = (max(best for best, _ in forms), max(rate for _, rate in forms))
        assert (peak, sustained) == pytest.approx(expected, rel=1e-4)
