from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from roofline.analysis import Analysis, read_analysis
from roofline.core.blocks import By, Grid, View
from roofline.core.rows import csv_text
from roofline.errors import InputError
from roofline.result import FORMATS
from tests.analysis.examples import examples, hostile, resnet, small
from tests.analysis.predictions import with_predictions

EXAMPLES = examples()
UNMEASURED = {suffix: FORMATS[suffix] for suffix in Analysis.suffixes if FORMATS[suffix] != "trace"}
"""What can be written without measurements."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_csv_comes_back_as_it_was(name: str):
    analysis = EXAMPLES[name]
    rows = list(csv.DictReader(io.StringIO(analysis.to_csv())))
    assert len(rows) == len(analysis.operators)
    for text, row in zip(rows, analysis.operators, strict=True):
        assert text["module_path"] == row.module_path
        assert text["flop"] == ("" if row.flop is None else str(row.flop))
        assert text["eager_min_time_s"] == (
            "" if row.eager_min_time_s is None else repr(row.eager_min_time_s)
        )
        assert int(text["traffic_bytes"]) == row.traffic_bytes
        assert text["measured_s"] == ("" if row.measured_s is None else str(row.measured_s))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])  # noqa: RUF001
def test_no_name_is_a_formula_in_a_spreadsheet(start: str):
    name = f"{start}1+cmd|' /C calc'!A0"
    text = csv_text([name, "rate"], [[name, -1.5], [(name, 2), -3], ["-7", None]])
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == [f"'{name}", "rate"]
    assert rows == [[f"'{name}", "-1.5"], [f"'{name} 2", "-3"], ["-7", ""]]


def test_csv_has_the_columns_of_the_frame_and_the_promised_ones_first():
    header = small().to_csv().splitlines()[0].split(",")
    assert header == list(small().to_frame().columns)
    promised = (
        "index,op,module_path,phase,flop,macs,parameter_bytes,input_bytes,output_bytes,"
        "traffic_bytes,intensity_flop_per_byte,level,ceiling,bound,eager_min_time_s"
    )
    assert ",".join(header).startswith(promised)


@pytest.mark.parametrize("by", ["module", "type", "phase"])
def test_csv_of_sums_adds_up_to_the_totals(by: By):
    analysis = resnet()
    lines = list(csv.DictReader(io.StringIO(analysis.to_csv(by=by))))
    # Of the tree of modules, those count whose parts have no lines of their own.
    rows = [line for line in lines if line.get("is_open") != "true"]
    assert len(rows) < len(lines) or by != "module"
    assert sum(int(row["calls"]) for row in rows) == 176
    assert sum(int(row["fused_bytes"]) for row in rows) == analysis.totals.fused_bytes
    assert sum(int(row["traffic_bytes"]) for row in rows) == analysis.totals.traffic_bytes
    assert sum(float(row["eager_min_time_s"]) for row in rows) == pytest.approx(
        analysis.totals.eager_min_time_s
    )
    # A group with an operator of unknown FLOP has no FLOP, rather than too few.
    known = [row for row in rows if row["flop"]]
    assert sum(int(row["flop"]) for row in known) <= analysis.totals.flop


@pytest.mark.parametrize("by", ["module", "type"])
def test_csv_of_sums_has_the_times_that_all_operators_of_a_line_have(by: By):
    analysis = with_predictions(small(), {"act": 3.0})
    lines = csv.DictReader(io.StringIO(analysis.to_csv(by=by)))
    times = {line[by]: (line["predicted_s"], line["measured_s"]) for line in lines}
    sums = {"module": {"": "", "fc": "", "act": "3.0"}, "type": {"pointwise": "3.0"}}
    expected = sums[by] | ({} if by == "module" else {"matrix product": ""})
    assert times == {name: (time, "") for name, time in expected.items()}


def test_csv_takes_the_order_of_the_table():
    """The linear layer has the longer bound, and the ReLU the longer prediction."""
    for seconds, first in (
        ({"fc": 2.0, "act": 3.0}, "pointwise"),
        ({"act": 3.0}, "matrix product"),
    ):
        analysis = with_predictions(small(), seconds)
        assert analysis.to_csv(by="type").splitlines()[1].startswith(f"{first},")
        (grid,) = [
            each for each in analysis.report(View(by="type")).blocks if isinstance(each, Grid)
        ]
        assert grid.rows[0][0] == first
    longest = with_predictions(small(), {"fc": 2.0, "act": 3.0})
    kept = list(csv.DictReader(io.StringIO(longest.to_csv(by="module", top=1))))
    assert [(line["module"], line["part"]) for line in kept] == [
        ("", "whole"),
        ("act", "whole"),
        ("", "rest"),
    ]
    assert [line["predicted_s"] for line in kept] == ["5.0", "3.0", "2.0"]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("format", UNMEASURED.values())
def test_every_format_renders_every_example(name: str, format: str):
    content = EXAMPLES[name].render(format)
    assert isinstance(content, bytes) == (format in ("png", "tensorboard"))
    assert content


def test_files_are_written_in_the_format_of_their_suffix(tmp_path: Path):
    paths = [tmp_path / f"out{suffix}" for suffix in UNMEASURED]
    small().save(*paths)
    assert read_analysis(tmp_path / "out.json") == small()
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out.jsn", r"unknown suffix '\.jsn'.*\.json, \.csv.*did you mean '\.json'"),
        ("out", "no suffix; results of kind 'analysis' are written as"),
        ("out.xlsx", r"unknown suffix '\.xlsx'"),
    ],
)
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str, words: str):
    with pytest.raises(InputError, match=words):
        small().save(tmp_path / name)


def test_suffixes_may_be_written_in_capitals(tmp_path: Path):
    small().save(tmp_path / "A.PNG")
    assert (tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist"):
        hostile().save(tmp_path / "none" / "a.json")
