"""A machine in every file format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas
import pytest

from roofline.machine.hardware import HardwareProfile, read_profile
from roofline.result import read_result
from tests.analysis.examples import bare_profile, dram_profile, full_profile
from tests.machine.hardware_examples import device_profile, rich_profile

PROFILES = (rich_profile(), device_profile(), full_profile(), dram_profile(), bare_profile())


@pytest.mark.parametrize("format", HardwareProfile.formats())
@pytest.mark.parametrize("profile", PROFILES, ids=lambda each: each.name)
def test_every_format_renders_every_machine(profile: HardwareProfile, format: str) -> None:
    content = profile.render(format)
    assert isinstance(content, bytes) == (format == "png")
    assert content


@pytest.mark.parametrize("profile", PROFILES, ids=lambda each: each.name)
def test_toml_and_json_hold_all_of_it(profile: HardwareProfile, tmp_path: Path) -> None:
    profile.save(tmp_path / "m.toml", tmp_path / "m.json")
    assert read_profile(tmp_path / "m.toml") == profile
    data = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    assert HardwareProfile.from_data(data, file="m.json") == profile
    assert read_result(tmp_path / "m.json") == profile
    # Files of earlier versions do not name their kind.
    del data["kind"]
    assert HardwareProfile.from_data(data, file="m.json") == profile


def test_csv_has_a_line_for_every_figure() -> None:
    profile = rich_profile()
    rows = list(csv.DictReader(io.StringIO(profile.to_csv())))
    count = {what: sum(row["what"] == what for row in rows) for what in {r["what"] for r in rows}}
    assert count == {
        "clock": 1,
        "compute": len(profile.compute),
        "bandwidth": sum(len(level.bandwidth) for level in profile.memory),
        "capacity": 3,
        "latency": 5,
        "overhead": 3,
        "link": 1,
    }
    (fma,) = [
        row
        for row in rows
        if (row["subject"], row["unit"], row["kernel"], row["threads"])
        == ("float32", "avx512", "fma", "2")
    ]
    assert float(fma["theoretical"]) == 512e9
    assert float(fma["peak"]) == pytest.approx(0.985 * 512e9)
    assert float(fma["loss"]) == pytest.approx(0.015)
    (copy,) = [
        row
        for row in rows
        if (row["kind"], row["subject"], row["kernel"], row["threads"])
        == ("library", "DRAM", "copy", "1")
    ]
    assert (copy["write_allocate"], copy["theoretical"], copy["loss"]) == ("not counted", "", "")
    assert [row["doubt"] for row in rows if row["doubt"]] == ["a second kernel reached 8.2 % more"]
    assert all(row["source"] and row["reference"] for row in rows)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_frame_has_what_the_csv_has(profile: HardwareProfile) -> None:
    lines = list(csv.reader(io.StringIO(profile.to_csv())))
    frame = profile.to_frame()
    assert [list(frame.columns), len(frame)] == [lines[0], len(lines) - 1]
    for line, row in zip(lines[1:], frame.itertuples(index=False), strict=True):
        for text, value in zip(line, row, strict=True):
            assert pandas.isna(value) or str(value) in (text, f"{text}.0") or float(text) == value
            assert not pandas.isna(value) or text == ""


def test_csv_of_a_data_sheet_leaves_empty_what_it_does_not_say() -> None:
    (row, memory) = csv.DictReader(io.StringIO(dram_profile().to_csv()))
    assert tuple(row) == tuple(HardwareProfile.columns)
    assert (row["spread"], row["theoretical"], row["source"]) == ("", "", "datasheet")
    assert (memory["write_allocate"], float(memory["peak"])) == ("unspecified", 10e9)


class _Tags(HTMLParser):
    """Whether every element that is opened is closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_stands_alone_and_escapes_what_machines_are_named() -> None:
    hostile = replace(rich_profile(), description="<script>alert(1)</script> & co", host=None)
    page = hostile.render("html")
    assert isinstance(page, str)
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert tags.seen.count("svg") == 1
    assert "script" not in tags.seen
    assert "&lt;script&gt;alert(1)" in page
    # The picture's namespaces are names, not addresses to load from.
    assert "src=" not in page
    assert "prefers-color-scheme: dark" in page
    assert page.startswith("<!doctype html>")
