"""The raw samples beside a profile: every rate can be computed anew from them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from roofline.machine.measuring.estimation import Burst, estimate
from roofline.machine.measuring.samples import Series, samples_file, samples_text
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
            Burst(wall_s=1.0, cpu_s=0.25, busy=0.25),
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
                "busy": [0.999, 0.25],
            }
        ],
    }


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
            assert rate.sustained <= found.peak_byte_per_s * 1.001
            assert rate.sustained == pytest.approx(found.sustained_byte_per_s, rel=0.11)
            checked += 1
    assert checked == len(profile.compute) + 48
