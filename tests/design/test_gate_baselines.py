"""Baselines as files: read back equal, and refused in one line where they are not ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import minimum_times_of, read_analysis
from roofline.design.gate.cost import baseline_json, read_baseline, write_baseline
from roofline.design.gate.result import Check
from roofline.errors import FileFormatError, InputError
from roofline.pipeline.checking import check as checked
from roofline.workload.operators import State
from tests.design.gate_examples import cost, counts_only

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    "kept", [cost(), counts_only(), cost(flop=None, macs=None, unknown_operators=1)]
)
def test_what_is_written_is_read_back_equal(tmp_path: Path, kept: Any) -> None:
    write_baseline(kept, tmp_path / "b.json")
    assert read_baseline(tmp_path / "b.json") == kept
    with pytest.raises(InputError, match="exists"):
        write_baseline(cost(flop=1), tmp_path / "b.json")


def test_other_suffixes_and_missing_files_say_the_fix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.json"):
        write_baseline(cost(), tmp_path / "b.toml")
    with pytest.raises(InputError, match="write it with update=True"):
        read_baseline(tmp_path / "none.json")


def damaged(**changes: Any) -> str:
    return json.dumps({**json.loads(baseline_json(cost())), **changes})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (baseline_json(cost())[:200], "not valid JSON"),
        ("[]", "not a baseline"),
        ("{}", "no 'kind'"),
        (damaged(schema_version=3), "an older version of roofline"),
        (damaged(kind="advice"), "kind 'advice' is neither"),
        (damaged(flop="many"), "flop: expected a whole number"),
        (damaged(flop=-1), "flop must be a finite number from 0"),
        (damaged(flop=None), "flop is None"),
        (damaged(surprise=1), "unknown key 'surprise'"),
        (damaged(machine={"name": "x"}), "machine: missing key 'device'"),
        (damaged(eager_min_time_s=1e400).replace("Infinity", "1e400"), "finite"),
    ],
)
def test_a_damaged_one_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        read_baseline(file)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_a_baseline_may_know_the_eager_minimum_alone(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    write_baseline(cost(eager_min_time_s=2e-6), file)
    found = read_baseline(file)
    assert (found.fused_min_time_s, found.model_min_time_s) == (None, None)
    now = cost(eager_min_time_s=2e-6, fused_min_time_s=1e-6, model_min_time_s=1e-6)
    judged = Check(
        now=now,
        baseline=found,
        conditions=("eager_min_time_s>+1%", "model_min_time_s>+1%", "model_min_time_s>2us"),
    )
    assert [each.outcome for each in judged.judgements] == ["passes", "not judged", "passes"]
    assert "in the baseline: no model_min_time_s; replace the baseline with update=True" in (
        judged.judgements[1].why
    )
    line = next(each for each in judged.lines if each.quantity.name == "model_min_time_s")
    assert (line.before, line.now, line.change) == (None, 1e-6, None)


EXAMPLES = sorted((DATA.parents[1] / ".ci" / "baselines").glob("*.json"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_baselines_of_the_examples_are_read(file: Path) -> None:
    assert read_baseline(file).eager_min_time_s


@pytest.mark.parametrize("name", ["analysis-lesson", "analysis-tiny", "analysis-10980xe"])
def test_a_saved_analysis_stands_for_a_baseline(name: str) -> None:
    analysis = read_analysis(DATA / f"{name}.json")
    found = read_baseline(DATA / f"{name}.json")
    at_work = [row for row in analysis.operators if row.state is not State.FREE]
    assert found.launches == len(at_work)
    assert found.traffic_bytes == analysis.totals.traffic_bytes
    assert found.parameters == analysis.totals.parameters
    assert found.peak_memory_bytes == analysis.totals.peak_memory_bytes
    assert minimum_times_of(found) == minimum_times_of(analysis.totals)
    assert found.unknown_operators == analysis.totals.unknown_operators
    known = analysis.totals.flop if not found.unknown_operators else None
    assert found.flop == known
    assert sum(each.calls for each in found.types) == found.launches
    assert sum(each.calls for each in found.modules) == found.launches
    assert sum(each.traffic_bytes for each in found.modules) == found.traffic_bytes


@pytest.mark.parametrize(
    "text", ['{"name": "package"}', "[]", "not JSON", '{"kind": "advice"}', '{"baseline": "kind"}']
)
def test_what_is_no_baseline_is_never_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a baseline, so update=True does not replace it"):
        write_baseline(cost(), file, overwrite=True)
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        baseline_json(cost()).encode()[:60],
        b"<<<<<<< HEAD\n" + baseline_json(cost()).encode(),
        b"\xef\xbb\xbf" + baseline_json(cost()).encode(),
        json.dumps(json.loads(baseline_json(cost())), separators=(",", ":")).encode(),
        baseline_json(cost()).replace("net", "\udcff").encode("utf-8", "surrogateescape"),
    ],
)
def test_a_damaged_one_stands_in_nobodys_way(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "b.json"
    file.write_bytes(content)
    write_baseline(cost(flop=7), file, overwrite=True)
    assert read_baseline(file).flop == 7


def test_an_analysis_of_a_first_pass_is_no_baseline(tmp_path: Path) -> None:
    analysis = replace(read_analysis(DATA / "analysis-tiny.json"), cache="cold", earlier=None)
    file = tmp_path / "cold.json"
    analysis.save(file)
    with pytest.raises(InputError, match=r"cold\.json: analyzed with cold caches"):
        read_baseline(file)
    with pytest.raises(InputError, match="analyzed with cold caches"):
        checked(analysis)


@pytest.mark.parametrize(
    "option",
    [
        {"inputs": (1, 8)},
        {"hardware": "epyc-9654"},
        {"batch": 2},
        {"train": True},
        {"channels_last": True},
        {"device": "cuda"},
        {"optimizer": "sgd"},
    ],
)
def test_options_of_what_was_counted_already_are_refused(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(InputError, match=f"{name} has no effect on a given analysis or cost"):
        checked(cost(), **option)
    assert checked(cost()).now == cost()
