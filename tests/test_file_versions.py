"""What saved files say: values, versions, sources by name, and how long reading takes.

The tables in CSV beside the analyses in ``tests/data`` were written by the first version that made
such files: what it said of each operator.
"""

from __future__ import annotations

import csv
import io
import json
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

from roofline.analysis import Analysis, read_analysis
from roofline.cli.main import run
from roofline.errors import FileFormatError
from roofline.machine.hardware import profile_to_toml, read_profile
from roofline.placement import Roof

DATA = Path(__file__).parent / "data"
ANALYSES = sorted(path.with_suffix(".json") for path in DATA.glob("analysis-*.csv"))


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("path", ANALYSES, ids=lambda path: path.stem)
def test_an_analysis_says_what_it_said(path: Path, tmp_path: Path) -> None:
    then = rows(path.with_suffix(".csv").read_text(encoding="utf-8"))
    again = tmp_path / path.name
    again.write_text(read_analysis(path).to_json(), encoding="utf-8")
    assert json.loads(again.read_text()) == json.loads(path.read_text())
    analysis = read_analysis(path)
    now = rows(analysis.to_csv())
    assert [{key: row[key] for key in then[0]} for row in now] == then
    totals = analysis.totals
    assert (totals.flop, totals.macs, totals.min_flop) == (7948, 3840, 6710)
    assert (totals.traffic_bytes, totals.unknown_operators) == (4984, 1)
    assert (totals.parameters, totals.parameter_size_bytes, totals.buffer_size_bytes) == (
        307,
        1228,
        0,
    )
    assert (totals.peak_memory_bytes, totals.all_tensors_bytes) == (3788, 3882)
    assert sum(float(row["eager_min_time_s"]) for row in then) == pytest.approx(
        totals.eager_min_time_s
    )
    assert read_analysis(again) == analysis


def test_a_profile_says_what_it_said(tmp_path: Path) -> None:
    path, again = DATA / "profile-plain.toml", tmp_path / "again.toml"
    found = read_profile(path)
    again.write_text(profile_to_toml(found), encoding="utf-8")
    assert read_profile(again) == found
    assert again.read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
    assert (found.name, found.device, found.threads) == ("imagined", "cpu", 2)
    # The fastest kernels' peaks on two threads.
    assert [each.bytes_per_s for each in Roof(found, 2).levels] == [4e11, 1.25e11, 2.5e10]
    assert {(str(each.dtype), each.flop_per_s) for each in Roof(found, 2).units} == {
        ("float32", 2e11),
        ("float64", 1e11),
    }
    assert [(each.name, each.threads, each.time.median_s) for each in found.overheads] == [
        ("dispatch_add_s", 1, 1.5e-6),
        ("dispatch_view_s", 1, 5e-7),
    ]


def test_profiles_have_sources_by_name(tmp_path: Path) -> None:
    path, again = DATA / "profile-sources.toml", tmp_path / "again.toml"
    found = read_profile(path)
    again.write_text(profile_to_toml(found), encoding="utf-8")
    written = tomllib.loads(again.read_text(encoding="utf-8"))
    assert "sources" not in written and "from" not in str(written)
    assert read_profile(again) == found
    assert (found.aliases, found.multiprocessors) == (("Imagined GPU-16GB", "imagined_16"), 20)
    assert found.memory_capacity_bytes == 17179869184
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
    text = (DATA / "profile-sources.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('"sheet"', named, 1), encoding="utf-8")
    with pytest.raises(
        FileFormatError, match=r"mine.toml: no table \[sources\..* provenance"
    ) as no:
        read_profile(path)
    assert "\n" not in str(no.value)
    assert ("did you mean 'sheet'?" in str(no.value)) == ("shet" in named)


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize("name", ["analysis-imagined.json", "profile-plain.toml"])
def test_another_version_is_refused_in_one_line(
    name: str, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    text = (DATA / name).read_text(encoding="utf-8")
    for separator in (" = ", '": '):
        text = text.replace(f"schema_version{separator}1", f"schema_version{separator}{version}", 1)
    path.write_text(text, encoding="utf-8")
    read = read_analysis if path.suffix == ".json" else read_profile
    with pytest.raises(FileFormatError) as refused:
        read(path)
    message = str(refused.value)
    assert f"schema_version {version}: written by an older version of roofline" in message
    assert "\n" not in message
    command = ["show", str(path)] if path.suffix == ".json" else ["hardware", "show", str(path)]
    assert run(command) == 2
    assert capsys.readouterr().err == f"roofline: error: {message}\n"


def large() -> Analysis:
    """An analysis of 2000 operators: those of a small one, over and over."""
    small = read_analysis(DATA / "analysis-imagined.json")
    times = 2000 // len(small.operators)
    rows = [row for _ in range(times) for row in small.operators]
    totals = {each.name: getattr(small.totals, each.name) for each in fields(small.totals)}
    once = (
        "parameters",
        "parameter_size_bytes",
        "buffer_size_bytes",
        "peak_memory_bytes",
        "all_tensors_bytes",
    )
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
    path.write_text(analysis.to_json(), encoding="utf-8")
    written = time.thread_time()
    assert read_analysis(path) == analysis
    read = time.thread_time()
    assert written - start < 2
    assert read - written < 2
