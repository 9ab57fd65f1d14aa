"""Peak memory against capacity: what fits where, and that nothing is ranked that does not fit."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import torch

import roofline
from roofline.analysis import Analysis
from roofline.analysis.drawing import picture_warnings
from roofline.core.blocks import View
from roofline.design.comparison.result import Comparison
from roofline.machine.hardware import HardwareProfile
from roofline.render.console import plain_text
from tests.analysis.examples import ceiling, level

PEAK_BYTE = 4_008_000
"""Of `wide`: 1000 x 1000 weights of 4 bytes, 1000 inputs, 1000 outputs."""


def machine(
    name: str, capacity_bytes: int | None, *, bytes_per_s: float = 1e10, flop_per_s: float = 1e12
) -> HardwareProfile:
    """A machine of one compute ceiling and a memory of that capacity."""
    return HardwareProfile(
        name=name,
        device="cpu",
        threads=1,
        compute=(ceiling(flop_per_s, unit="core", kernel="unspecified", threads=1),),
        memory=(level("DRAM", capacity_bytes, {"unspecified": bytes_per_s}, threads=1),),
    )


def wide() -> torch.nn.Module:
    """A layer that takes `PEAK_BYTE` for one sample."""
    return torch.nn.Linear(1000, 1000, bias=False)


def narrow() -> torch.nn.Module:
    """Two layers of 1000 x 100 weights."""
    return torch.nn.Sequential(
        torch.nn.Linear(1000, 100, bias=False), torch.nn.Linear(100, 1000, bias=False)
    )


def analyzed(capacity_bytes: int | None, *, train: bool = False) -> Analysis:
    """The wide layer on a machine of that capacity."""
    return roofline.analyze(wide(), (1, 1000), hardware=machine("one", capacity_bytes), train=train)


SMALL = machine("small", 3_000_000, bytes_per_s=1e11)
LARGE = machine("large", 10_000_000)
OPEN = machine("open", None, bytes_per_s=2e10)


def machines() -> Comparison:
    """The wide layer: small is the fastest and has no room, open may have."""
    return roofline.compare_machines(wide(), inputs=(1, 1000), hardware=[SMALL, LARGE, OPEN])


def grid() -> Comparison:
    """The wide and the narrow layers: the wide one is faster where FLOP are, but may not fit."""
    found = roofline.compare(
        wide(), narrow(), inputs=(1, 1000), names=["wide", "narrow"], hardware=[SMALL, LARGE, OPEN]
    )
    assert isinstance(found, Comparison)
    return found


def memory_line(text: str) -> str:
    """The fact line on memory of a report."""
    return next(line for line in text.splitlines() if line.startswith("Memory "))


@pytest.mark.parametrize(
    ("capacity_bytes", "fits", "words"),
    [
        (PEAK_BYTE, True, "fits into 4.01 MB"),
        (PEAK_BYTE - 1, False, "does not fit: 4.01 MB of 4.01 MB"),
        (2_000_000, False, "does not fit: 4.01 MB of 2.00 MB"),
        (None, None, "memory capacity not known: one"),
    ],
)
def test_a_pass_fits_up_to_the_last_byte(
    capacity_bytes: int | None, fits: bool | None, words: str
) -> None:
    found = analyzed(capacity_bytes)
    assert found.totals.peak_memory_bytes == PEAK_BYTE
    assert found.fits is fits
    text = plain_text(found.report(View(verbose=True)))
    assert memory_line(text).endswith(f" · {words}")
    assert ("does not fit into the memory of one" in text) is (fits is False)
    assert text.count("memory capacity not known") == (fits is None)


def test_training_does_not_fit_where_inference_does() -> None:
    """The gradients are as large as the weights."""
    assert analyzed(6_000_000).fits is True
    step = analyzed(6_000_000, train=True)
    assert step.totals.peak_memory_bytes >= 8_000_000
    assert step.fits is False


def test_of_caches_and_memory_the_farthest_level_decides() -> None:
    inner = level("L2", 1000, {"unspecified": 1e12}, threads=1)
    outer = level("DRAM", 10_000_000, {"unspecified": 1e10}, threads=1)
    profile = HardwareProfile(name="two", device="cpu", threads=1, memory=(inner, outer))
    assert profile.memory_capacity_bytes == 10_000_000
    bare = HardwareProfile(name="bare", device="cpu", threads=1)
    assert bare.memory_capacity_bytes is None


def test_a_machine_without_room_is_listed_and_not_ranked(tmp_path: Path) -> None:
    """Small has ten times the bandwidth of large, and open twice."""
    found = machines()
    assert [each.fits for each in found.machines] == [False, True, None]
    bounds = [each.eager_min_time_s or 0.0 for each in found.machines]
    assert bounds[0] < bounds[2] < bounds[1]
    lowest = next(each for each in found.sentences if "(lowest)" in each)
    assert " on open (lowest)" in lowest
    assert "does not fit on small (4.01 MB of 3.00 MB)" in found.sentences
    text = plain_text(found.report(View(verbose=True)))
    rows = {line.split()[1]: line for line in text.splitlines() if line[:2] in ("A ", "B ", "C ")}
    assert [rows[name].split("  ")[-1].strip() for name in ("small", "large", "open")] == [
        "does not fit",
        "yes",
        "–",
    ]
    assert memory_line(text).endswith(" · memory capacity not known: open")
    assert text.count("capacity not known") == 1
    found.save(tmp_path / "machines.csv")
    with (tmp_path / "machines.csv").open() as file:
        cells = {(row["machine"], row["fits"]) for row in csv.DictReader(file)}
    assert cells == {("small", "false"), ("large", "true"), ("open", "")}


def test_pictures_say_what_does_not_fit() -> None:
    assert str(machines().render("svg")).count("does not fit") == 1
    assert str(grid().render("svg")).count(", does not fit") == 1


def test_a_single_machine_with_room_is_said() -> None:
    tiny = machine("tiny", 1_000_000)
    found = roofline.compare_machines(wide(), inputs=(1, 1000), hardware=[tiny, LARGE])
    assert any(
        each.startswith("minimum time")
        and each.endswith(" on large, the only machine where it fits")
        for each in found.sentences
    )
    assert not any("(lowest)" in each for each in found.sentences)


def test_what_does_not_fit_wins_nowhere() -> None:
    found = grid()
    small, large, there = found.verdicts
    assert small.winner is None
    assert large.winner == there.winner == 1
    assert "only narrow fits into memory on small" in found.verdict
    assert not any(re.search(r"on small \(\d", each) for each in found.sentences)
    assert "reference wide on small: does not fit: 4.01 MB of 3.00 MB" in found.sentences
    text = plain_text(found.report(View(verbose=True)))
    assert text.count("capacity not known") == 1
    assert text.count("does not fit") == 2
    rows = list(csv.DictReader(found.to_csv().splitlines()))
    assert [(row["hardware"], row["model"], row["fits"]) for row in rows] == [
        ("small", "wide", "false"),
        ("small", "narrow", "true"),
        ("large", "wide", "true"),
        ("large", "narrow", "true"),
        ("open", "wide", ""),
        ("open", "narrow", ""),
    ]
    assert {row["memory_capacity_bytes"] for row in rows} == {"3000000", "10000000", ""}


def test_nothing_fits_is_said() -> None:
    tiny = machine("tiny", 10_000)
    found = roofline.compare(wide(), narrow(), inputs=(1, 1000), hardware=[tiny, LARGE])
    assert isinstance(found, Comparison)
    assert "no model fits into memory on tiny" in found.verdict


def test_one_machine_says_which_of_the_models_do_not_fit() -> None:
    found = roofline.compare(
        narrow(), wide(), inputs=(1, 1000), names=["narrow", "wide"], hardware=SMALL
    )
    assert isinstance(found, Comparison)
    (sentence,) = found.sentences
    assert sentence.endswith("; wide does not fit: 4.01 MB of 3.00 MB")
    text = plain_text(found.report(View(verbose=True)))
    (row,) = (line for line in text.splitlines() if line.startswith("fits in memory"))
    assert row.split() == ["fits", "in", "memory", "yes", "does", "not", "fit"]
    of_open = roofline.compare(narrow(), wide(), inputs=(1, 1000), hardware=OPEN)
    text = plain_text(of_open.report(View(verbose=True)))
    assert "fits in memory" not in text
    assert text.count("memory capacity not known: open") == 1


def test_the_warning_is_in_the_picture_and_outlives_a_file(tmp_path: Path) -> None:
    step = analyzed(6_000_000, train=True)
    text = plain_text(step.report())
    assert "a training step of Linear does not fit into the memory of one: " in text
    assert [
        each for each in picture_warnings(step) if "does not fit into the memory of one" in each
    ]
    assert not picture_warnings(analyzed(6_000_000))
    step.save(tmp_path / "step.json")
    assert roofline.read_analysis(tmp_path / "step.json").fits is False
