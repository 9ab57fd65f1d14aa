"""Files that older versions wrote mean today what they meant then; what is written is the newest.

The files in ``tests/data`` were written by the version that their names say, and the tables beside
them, in CSV, by the same: what it said of each operator.
"""

from __future__ import annotations

import csv
import io
import json
import time
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import Analysis, analysis_from_data, read_analysis, to_json
from roofline.cli.main import run
from roofline.errors import FileFormatError
from roofline.machine import hardware
from roofline.machine.hardware import profile_to_toml, read_profile
from roofline.placement import Roof
from tests import file_rules

DATA = Path(__file__).parent / "data"
ANALYSES = sorted(DATA.glob("analysis-v[123]-*.json"))


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("path", ANALYSES, ids=lambda path: path.stem)
def test_an_old_analysis_says_what_it_said(path: Path, tmp_path: Path) -> None:
    then = rows(path.with_suffix(".csv").read_text(encoding="utf-8"))
    again = tmp_path / path.name
    again.write_text(to_json(read_analysis(path)), encoding="utf-8")
    written_by = int(path.stem.split("-")[1].removeprefix("v"))
    assert json.loads(path.read_text())["schema_version"] == written_by < 8
    assert json.loads(again.read_text())["schema_version"] == 8
    assert json.loads(again.read_text())["hardware"]["schema_version"] == 4
    for each in (path, again):
        analysis = read_analysis(each)
        now = rows(analysis.to_csv())
        assert [{key: row[key] for key in then[0]} for row in now] == then
        totals = analysis.totals
        assert (totals.flop, totals.multiply_add, totals.least_flop) == (7948, 3840, 6710)
        assert (totals.traffic_byte, totals.unknown_operators) == (4984, 1)
        assert (totals.parameters, totals.parameter_bytes, totals.buffer_bytes) == (307, 1228, 0)
        assert (totals.peak_memory_byte, totals.all_tensors_byte) == (3788, 3882)
        assert sum(float(row["bound_s"]) for row in then) == pytest.approx(totals.bound_s)
    assert read_analysis(again) == read_analysis(path)


@pytest.mark.parametrize("number", [1, 2])
def test_an_old_profile_says_what_it_said(number: int, tmp_path: Path) -> None:
    path, again = DATA / f"profile-v{number}.toml", tmp_path / "again.toml"
    again.write_text(profile_to_toml(read_profile(path)), encoding="utf-8")
    old, new = (tomllib.loads(each.read_text(encoding="utf-8")) for each in (path, again))
    assert (old.pop("schema_version"), new.pop("schema_version")) == (number, 4)
    assert old.pop("overheads") == {"dispatch_add_s": 1.5e-6, "dispatch_view_s": 5e-7}
    del new["overheads"]
    assert old == without_defaults(new)
    found = read_profile(path)
    assert read_profile(again) == found
    assert (found.name, found.device, found.threads) == ("imagined", "cpu", 2)
    # The fastest kernels' peaks on two threads.
    assert [each.byte_per_s for each in Roof(found, 2).levels] == [4e11, 1.25e11, 2.5e10]
    assert {(str(each.dtype), each.flop_per_s) for each in Roof(found, 2).units} == {
        ("float32", 2e11),
        ("float64", 1e11),
    }
    assert [(each.name, each.threads, each.time.median_s) for each in found.overheads] == [
        ("dispatch_add_s", 1, 1.5e-6),
        ("dispatch_view_s", 1, 5e-7),
    ]
    assert "without spread and date" in found.overheads[0].time.provenance.reference


def test_a_profile_of_version_3_has_no_names_clocks_or_processors(tmp_path: Path) -> None:
    path, again = DATA / "profile-v3.toml", tmp_path / "again.toml"
    found = read_profile(path)
    again.write_text(profile_to_toml(found), encoding="utf-8")
    old, new = (tomllib.loads(each.read_text(encoding="utf-8")) for each in (path, again))
    assert (old.pop("schema_version"), new.pop("schema_version")) == (3, 4)
    assert new.pop("aliases") == []
    assert new == old
    assert read_profile(again) == found
    assert (found.multiprocessors, found.memory_capacity_byte) == (None, None)
    assert {each.clock_hz for each in found.compute} == {None}


def test_version_4_has_sources_by_name(tmp_path: Path) -> None:
    path, again = DATA / "profile-v4.toml", tmp_path / "again.toml"
    found = read_profile(path)
    again.write_text(profile_to_toml(found), encoding="utf-8")
    written = tomllib.loads(again.read_text(encoding="utf-8"))
    assert "sources" not in written and "from" not in str(written)
    assert read_profile(again) == found
    assert (found.aliases, found.multiprocessors) == (("Imagined GPU-16GB", "imagined_16"), 20)
    assert found.memory_capacity_byte == 17179869184
    unit = found.compute[0]
    assert (unit.clock_hz, unit.provenance.reference) == (1.5e9, "Imagined 9000 data sheet")
    assert (unit.provenance.date, unit.provenance.note) == ("2026-01", "")
    cache, memory = found.memory
    assert cache.capacity_provenance == unit.provenance
    (read,) = cache.bandwidth
    assert (read.clock_hz, read.provenance.source) == (1.5e9, "derived")
    assert read.provenance.note == "20 slices x 64 byte x 1.5 GHz"
    assert memory.bandwidth[0].provenance.note == "an own table"


@pytest.mark.parametrize("named", ['"shet"', '{ from = "shet" }', "3", "{ from = [] }"])
def test_a_source_that_is_not_there_is_refused_in_one_line(named: str, tmp_path: Path) -> None:
    text = (DATA / "profile-v4.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('"sheet"', named, 1), encoding="utf-8")
    with pytest.raises(
        FileFormatError, match=r"mine.toml: no table \[sources\..* provenance"
    ) as no:
        read_profile(path)
    assert "\n" not in str(no.value)
    assert ("did you mean 'sheet'?" in str(no.value)) == ("shet" in named)


def without_defaults(data: Any) -> Any:
    """What the older version said, of what the newer one writes."""
    defaults = {"effort": "unspecified", "write_allocate": "unspecified", "doubt": ""}
    newer = ("aliases", "links", "bandwidth_curves", "latency_curve", "clock")
    if isinstance(data, list):
        return [without_defaults(each) for each in data]
    if not isinstance(data, dict):
        return data
    is_bandwidth = "peak_byte_per_s" in data
    return {
        key: without_defaults(value)
        for key, value in data.items()
        if not (key in defaults and value == defaults[key])
        and not (key in newer and not value)
        and not (is_bandwidth and (key, value) == ("kind", "hardware"))
    }


def test_the_hardware_in_an_analysis_has_a_version_of_its_own() -> None:
    data = json.loads(ANALYSES[0].read_text())
    data["schema_version"] = 6
    before = json.dumps(data)
    assert analysis_from_data(data, file="a.json") == read_analysis(ANALYSES[0])
    assert json.dumps(data) == before


@pytest.mark.parametrize("device", ["mps", "vulkan"])
def test_version_2_knows_more_devices(device: str, tmp_path: Path) -> None:
    data = tomllib.loads((DATA / "profile-v1.toml").read_text(encoding="utf-8"))
    data["memory"][0]["bandwidth"] = data["memory"][0]["bandwidth"][:1]
    found = hardware.profile_from_data(
        {
            **{key: data[key] for key in ("name", "overheads")},
            "schema_version": 2,
            "device": device,
            "threads": 1,
            "memory": data["memory"][:1],
        },
        file="f.toml",
    )
    path = tmp_path / "f.toml"
    path.write_text(profile_to_toml(found), encoding="utf-8")
    assert read_profile(path) == found
    assert found.device == device


Edit = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(schema_version=9), "a.json: schema_version 9 was written by a newer"),
        (
            lambda d: d["hardware"].update(schema_version=5),
            "a.json: hardware: schema_version 5 was written by a newer",
        ),
    ],
)
def test_a_newer_version_is_refused_with_the_fix(
    edit: Edit, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(ANALYSES[0].read_text())
    edit(data)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FileFormatError) as refused:
        read_analysis(path)
    assert message in str(refused.value)
    newest = 4 if "hardware" in message else 8
    assert f"this one reads up to {newest}" in str(refused.value)
    assert str(refused.value).endswith("upgrade with `pip install --upgrade roofline`")
    assert run(["show", str(path)]) == 2
    assert capsys.readouterr().err == f"roofline: error: {refused.value}\n"


def test_an_old_file_is_brought_up_to_date_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new.json"
    assert run(["show", str(ANALYSES[0]), "-o", str(target)]) == 0
    assert json.loads(target.read_text())["schema_version"] == 8
    assert read_analysis(target) == read_analysis(ANALYSES[0])


def test_version_5_had_times_and_no_findings(tmp_path: Path) -> None:
    path, again = DATA / "analysis-v5-tiny.json", tmp_path / "again.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    found = read_analysis(path)
    again.write_text(to_json(found), encoding="utf-8")
    new = json.loads(again.read_text(encoding="utf-8"))
    assert (old.pop("schema_version"), new.pop("schema_version")) == (5, 8)
    assert new.pop("findings") == []
    assert "findings" not in old
    # The hardware has a version of its own.
    assert new.pop("hardware") == file_rules.hardware(old.pop("hardware"))
    run = new["prediction"]
    assert (run.pop("faults"), run.pop("allocator"), run.pop("tunables")) == (None, "", "")
    measured = new["measurement"]
    assert (measured.pop("allocator"), measured.pop("fault_s")) == ("", None)
    assert without_minimums(new) == old
    assert read_analysis(again) == found
    assert found.prediction is not None and found.measurement is not None
    assert found.prediction.predicted_s == old["prediction"]["predicted_s"]


def without_minimums(data: dict[str, Any]) -> dict[str, Any]:
    """What version 6 said of an analysis of which only the eager minimum time is known."""
    totals = dict(data["totals"])
    assert [totals.pop(f"{name}_min_time_s") for name in ("fused", "model")] == [None, None]
    assert [totals.pop(f"{name}_limiter") for name in ("fused", "model")] == ["", ""]
    assert totals.pop("eager_min_time_s") == totals["bound_s"]
    rows = [dict(row) for row in data["operators"]]
    for row in rows:
        assert row.pop("fused_min_time_s") is None
        assert row.pop("least_multiply_add") is None
        assert row.pop("eager_min_time_s") == row["bound_s"]
    return {**data, "totals": totals, "operators": rows}


def test_version_6_had_bounds_and_no_other_minimum_times(tmp_path: Path) -> None:
    path, again = DATA / "analysis-v6-tiny.json", tmp_path / "again.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    found = read_analysis(path)
    again.write_text(to_json(found), encoding="utf-8")
    new = json.loads(again.read_text(encoding="utf-8"))
    assert (old.pop("schema_version"), new.pop("schema_version")) == (6, 8)
    assert new.pop("hardware") == file_rules.hardware(old.pop("hardware"))
    assert without_minimums(new) == old
    assert read_analysis(again) == found
    assert found.totals.fused_byte is not None and found.totals.eager_min_time_s is not None


def large() -> Analysis:
    """An analysis of 2000 operators: those of a small one, over and over."""
    small = read_analysis(DATA / "analysis-v1-imagined.json")
    times = 2000 // len(small.operators)
    rows = [row for _ in range(times) for row in small.operators]
    totals = {each.name: getattr(small.totals, each.name) for each in fields(small.totals)}
    once = ("parameters", "parameter_bytes", "buffer_bytes", "peak_memory_byte", "all_tensors_byte")
    return replace(
        small,
        operators=tuple(replace(row, index=index) for index, row in enumerate(rows)),
        totals=replace(
            small.totals,
            **{
                name: value * times
                for name, value in totals.items()
                if value is not None and name not in once
            },
        ),
    )


def test_large_analyses_are_read_and_written_quickly(tmp_path: Path) -> None:
    """Two seconds of this thread's CPU time are promised for each; a tenth is usual."""
    analysis, path = large(), tmp_path / "large.json"
    assert len(analysis.operators) == 2000
    start = time.thread_time()
    path.write_text(to_json(analysis), encoding="utf-8")
    written = time.thread_time()
    assert read_analysis(path) == analysis
    read = time.thread_time()
    assert written - start < 2
    assert read - written < 2
