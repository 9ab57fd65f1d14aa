"""Every result with a bound has the three minimum times of its analyses, in values and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import roofline
from roofline.analysis import (
    MINIMUM_TIMES,
    Analysis,
    MinTimes,
    group_of,
    groups,
    minimum_times_of,
    working,
)
from roofline.analysis.chrome_trace import trace_json
from roofline.analysis.event_file import scalars
from roofline.analysis.grouping import Whole
from roofline.analysis.page import page_data
from roofline.core.units import format_s
from roofline.design.comparison.machines import combine_operators
from roofline.render.console import plain_text
from tests.analysis.examples import measured

IMAGE = (1, 8, 32, 32)
CPU = "epyc-9654"
SIDES = ("before", "after")
MIXTURE = (
    "hidden_size=16,intermediate_size=24,num_hidden_layers=1,num_attention_heads=2,"
    "num_key_value_heads=2,vocab_size=20,num_local_experts=8,num_experts_per_tok=2"
)


def model() -> nn.Module:
    """A convolution with its ReLU in one module, and another whose ReLU is not in it."""
    first = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(16, 16, 3))
    return nn.Sequential(first, second, nn.ReLU()).eval()


def wider() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU()).eval()


@cache
def analysis(hardware: str = CPU) -> Analysis:
    return roofline.analyze(model(), inputs=IMAGE, hardware=hardware)


def known(found: Any) -> dict[str, Any]:
    times = minimum_times_of(found)
    assert list(times) == ["eager_min_time_s", "fused_min_time_s", "model_min_time_s"]
    assert times["eager_min_time_s"] >= times["fused_min_time_s"] >= times["model_min_time_s"] > 0
    return times


def rows_in(text: str) -> list[dict[str, float | None]]:
    """The columns of minimum times in a CSV text; None where a cell is empty."""
    return [
        {name: float(cell) if cell else None for name, cell in row.items() if "_min_time_s" in name}
        for row in csv.DictReader(io.StringIO(text))
    ]


ON = {"inputs": IMAGE, "hardware": CPU}
TWO = {"inputs": IMAGE, "hardware": [CPU, "v100"]}
SOURCES: dict[str, Callable[[], Any]] = {
    "analysis": lambda: analysis(),
    "machines": lambda: roofline.compare_machines(model(), **TWO),
    "models": lambda: roofline.compare(model(), wider(), **ON),
    "models on machines": lambda: roofline.compare(model(), wider(), **TWO),
    "advice": lambda: roofline.advise(model(), **ON),
    "optimization": lambda: roofline.optimize(model(), **ON, rules="fold-batch-norm"),
    "quantization": lambda: roofline.quantize(model(), **ON, weights=4, activations=4),
    "scaling": lambda: roofline.scale(
        model(), **ON, data_parallel=2, link_bandwidth="10GB/s", optimizer="sgd"
    ),
    "language model": lambda: roofline.analyze_language(
        "hf:mixtral",
        config=MIXTURE,
        context=16,
        batch=(1, 2),
        engine="transformers",
        hardware=CPU,
    ),
}


@cache
def result(kind: str) -> Any:
    """A small result of a kind that can be saved."""
    return SOURCES[kind]()


def tables(data: Any) -> Iterator[dict[str, Any]]:
    """All tables in plain data, however deep."""
    if isinstance(data, dict):
        yield data
    for each in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from tables(each)


def stands_beside(bound: str) -> set[str]:
    """By what a minimum time is called beside a bound of that name, any of which will do."""
    if side := re.fullmatch(r"bound_(before|after)_s|(separate)_eager_min_time_s", bound):
        return {f"minimum_{side[1] or side[2]}"}
    return {bound.replace("eager_min_time_s", name) for name in MINIMUM_TIMES}


def lacking(names: Iterable[str]) -> list[str]:
    """The bounds in seconds among `names` without a minimum time beside them."""
    found = set(names)
    bounds = [name for name in found if re.search(r"(^|_)bound(_before|_after)?_s$", name)]
    return [name for name in bounds if not stands_beside(name) & found]


@pytest.mark.parametrize("kind", SOURCES)
def test_beside_every_bound_that_is_saved_stands_a_minimum_time(kind: str, tmp_path: Path) -> None:
    found = result(kind)
    found.save(tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    seen = 0
    for table in tables(data):
        seen += any(name in MINIMUM_TIMES for name in table)
        # Parts of an architecture have none (docs/explanation/counting.md).
        assert not lacking(table) or {"cache_bytes", "min_flop"} <= table.keys()
    assert seen
    if kind != "advice":
        found.save(tmp_path / "a.csv")
        header = (tmp_path / "a.csv").read_text(encoding="utf-8").partition("\n")[0].split(",")
        assert not lacking(header) and any("_min_time_s" in name for name in header)


def test_groups_know_the_kernels_that_lie_whole_in_them() -> None:
    found = analysis()
    by_module = {
        each.name: each for each in groups(found, lambda row: row.module_path.partition(".")[0])
    }
    # The ReLU of the first convolution is in its module, that of the second outside.
    assert by_module["0"].fused_min_time_s is not None
    assert by_module["0"].fused_min_time_s < (by_module["0"].eager_min_time_s or 0.0)
    assert by_module["1"].fused_min_time_s is by_module["2"].fused_min_time_s is None
    assert all(each.model_min_time_s is None for each in by_module.values())
    # Both of them together are whole kernels again, and everything is the pass itself.
    whole, rows = Whole.of(found), working(found.operators)
    rest = group_of("", [row for row in rows if not row.module_path.startswith("0")], whole)
    parts_s = by_module["0"].fused_min_time_s + (rest.fused_min_time_s or 0.0)
    assert parts_s == pytest.approx(sum(row.fused_min_time_s or 0.0 for row in rows))
    assert minimum_times_of(group_of("", rows, whole)) == known(found.totals)
    none = minimum_times_of(group_of("", [], whole))
    assert none == {"eager_min_time_s": 0, "fused_min_time_s": 0, "model_min_time_s": None}


def test_groups_in_csv_and_event_files_say_the_same() -> None:
    found = analysis()
    by_type = groups(found, lambda row: row.type)
    assert rows_in(found.to_csv(by="type")) == [minimum_times_of(each) for each in by_type]
    assert rows_in(found.to_csv(by="phase")) == [known(found.totals)]
    first, *_, act = rows_in(found.to_csv(by="module", depth=1))
    assert first == known(found.totals)
    assert act["eager_min_time_s"] and act["fused_min_time_s"] is None
    drawn = {tag: value for tag, _, value in scalars(found)}
    for name, time_s in known(found.totals).items():
        assert drawn[f"totals/{name}"] == time_s
    for group in by_type:
        for name, time_s in minimum_times_of(group).items():
            assert drawn.get(f"types/{group.name}/{name}") == time_s


def test_several_machines() -> None:
    found = result("machines")
    for summary, each in zip(found.machines, found.analyses, strict=True):
        assert known(summary) == known(each.totals)
    rows = rows_in(found.to_csv())
    frame = found.to_frame()
    place = 0
    for each in found.analyses:
        for operator in each.operators:
            assert rows[place]["eager_min_time_s"] == operator.eager_min_time_s
            assert rows[place]["model_min_time_s"] == each.totals.model_min_time_s
            assert frame["model_min_time_s"][place] == each.totals.model_min_time_s
            place += 1
    assert place == len(rows) == len(frame)
    text = plain_text(found.report())
    assert all(name in text for name in ("eager", "fused", "model"))


def test_groups_on_several_machines_are_those_of_each_alone() -> None:
    found = result("machines")
    alone = [
        {each.name: each for each in groups(analysis(name), lambda row: row.type)}
        for name in (CPU, "v100")
    ]
    across = found.groups(lambda across: across[0].type)
    assert {each.operators[0][0].type for each in across} == alone[0].keys()
    for group in across:
        for place, by_type in enumerate(alone):
            expected = minimum_times_of(by_type[group.operators[0][0].type])
            for name in MINIMUM_TIMES:
                assert getattr(group, name)[place] == expected[name]
    whole = combine_operators(found, found.operators)
    for place, name in enumerate((CPU, "v100")):
        times = {key: getattr(whole, key)[place] for key in MINIMUM_TIMES}
        assert times == known(analysis(name).totals)


def test_the_interactive_page_has_those_of_every_machine_and_operator() -> None:
    found = result("machines")
    machines = page_data(found.machine_names, found.analyses)["machines"]
    for machine, each in zip(machines, found.analyses, strict=True):
        for name, time_s in known(each.totals).items():
            assert f"{name.removesuffix('_min_time_s')} {format_s(time_s)}" in machine["minimum"]
        times = [row.eager_min_time_s for row in each.operators]
        assert machine["eager_min_time_s"] == times
        assert sum(time_s or 0.0 for time_s in times) == pytest.approx(each.totals.eager_min_time_s)


def test_modules_and_types_of_models_side_by_side() -> None:
    data = json.loads(result("models").to_json())
    other = roofline.analyze(wider(), **ON)
    for row, each in zip(data["rows"], (analysis(), other), strict=True):
        assert {name: row[name] for name in MINIMUM_TIMES} == known(each.totals)
    by_type = [
        {group.name: group for group in groups(each, lambda row: row.type)}
        for each in (analysis(), other)
    ]
    seen = 0
    for row in data["types"][0]["rows"]:
        for part, of in zip(row["parts"], by_type, strict=True):
            if part is not None:
                expected = minimum_times_of(of[part["name"]])
                assert {name: part[name] for name in MINIMUM_TIMES} == expected
                seen += 1
    assert seen == sum(map(len, by_type))
    parts = [part for row in data["module_alignment"][0]["rows"] for part in row["parts"] if part]
    # Predicted by the generic CPU model.
    assert all(part["eager_min_time_s"] < part["time_s"] for part in parts)
    assert all(part["model_min_time_s"] is None for part in parts)


def test_work_of_one_sample_has_the_minimum_times_of_one() -> None:
    found = roofline.compare(model(), batch=(1, 4), inputs=IMAGE, hardware=CPU)
    for number, each in enumerate(found.analyses):
        by_type = {group.name: group for group in groups(each, lambda row: row.type)}
        for row in found.types.rows:
            part = row.parts[number]
            assert part is not None and part.eager_min_time_s is not None
            whole_s = by_type[part.name].eager_min_time_s
            assert part.eager_min_time_s * (1, 4)[number] == pytest.approx(whole_s)


def test_traces_have_those_of_operators_and_of_the_pass() -> None:
    found = replace(analysis(), operators=measured(analysis()).operators)
    events = json.loads(trace_json(found))
    assert {name: events["otherData"][name] for name in MINIMUM_TIMES} == known(found.totals)
    told = [each.get("args", {}) for each in events["traceEvents"]]
    of_operators = {args["index"]: args for args in told if "index" in args}
    assert of_operators.keys() >= {row.index for row in working(found.operators)}
    for args in of_operators.values():
        row = found.operators[args["index"]]
        assert args.get("eager_min_time_s") == row.eager_min_time_s
        assert args.get("fused_min_time_s") == row.fused_min_time_s


def test_sweeps() -> None:
    designs = ("conv2d(8,c,3)+relu()@32x32", "conv2d(8,c,1)+relu()@32x32")
    found = roofline.sweep(*designs, axes="c=8:16:x2", hardware=CPU)
    frame = found.to_frame().to_dict("records")
    data = json.loads(found.to_json())["rows"]
    assert len(data) == len(frame) == 4
    for row, cell in zip(data, frame, strict=True):
        alone = roofline.analyze(row["design"].replace(",c,", f",{row['c']},"), hardware=CPU)
        assert {name: row[name] for name in MINIMUM_TIMES} == known(alone.totals)
        assert {name: cell[name] for name in MINIMUM_TIMES} == known(alone.totals)


def test_sweeps_of_balance_know_the_eager_minimum_alone() -> None:
    designs = ("conv2d(8,8,3)@32x32", "conv2d(8,8,1)@32x32")
    for row in roofline.sweep(*designs, hardware=CPU, axes="balance=1:4:x2").records():
        times = {name: row[name] for name in MINIMUM_TIMES}
        assert times == minimum_times_of(MinTimes(eager_min_time_s=row["eager_min_time_s"]))
        assert times["eager_min_time_s"] > 0 and times["model_min_time_s"] is None


def test_optimizations() -> None:
    found = result("optimization")
    assert found.decision == "predicted faster"
    was, now = known(found.figures_before), known(found.figures_after)
    assert was == known(found.before.totals)
    assert now == known(found.after.totals)
    assert now["eager_min_time_s"] < was["eager_min_time_s"]
    # The fold is one of the rewritings that the model minimum allows.
    assert now["eager_min_time_s"] >= was["model_min_time_s"]
    data = json.loads(found.to_json())
    for side, times in (("before", was), ("after", now)):
        assert {name: data[f"figures_{side}"][name] for name in MINIMUM_TIMES} == times
    sides = {f"before_{name}": each for name, each in was.items()}
    sides |= {f"after_{name}": each for name, each in now.items()}
    rows = rows_in(found.to_csv())
    assert rows and all(row == sides for row in rows)


def test_quantizations() -> None:
    found = result("quantization")
    what_if, totals = found.what_if, found.analysis.totals
    assert known(what_if.minimum_before) == known(totals)
    assert what_if.minimum_after.eager_min_time_s == what_if.eager_min_time_after_s
    assert what_if.minimum_after.fused_min_time_s is what_if.minimum_after.model_min_time_s is None
    data = json.loads(found.to_json())["what_ifs"][0]
    assert data["minimum_before"] == known(totals)
    assert data["minimum_after"] == minimum_times_of(what_if.minimum_after)
    assert data["minimum_separate"]["eager_min_time_s"] == what_if.separate_eager_min_time_s
    # A part or a pass over a tensor has the eager one alone.
    sides = dict.fromkeys(SIDES, 0.0)
    for part, written in zip(what_if.parts, data["parts"], strict=True):
        assert {key for key in written if "_min_time_s" in key} == {
            f"{side}_eager_min_time_s" for side in sides
        }
        for side in sides:
            time_s = written[f"{side}_eager_min_time_s"]
            assert time_s == getattr(part, f"{side}_eager_min_time_s")
            sides[side] += 0.0 if part.name == "requantization" else time_s
    assert sides["before"] == pytest.approx(totals.eager_min_time_s)
    assert sides["after"] == pytest.approx(what_if.minimum_after.eager_min_time_s)
    assert what_if.passes
    for walk, written in zip(what_if.passes, data["passes"], strict=True):
        assert {key for key in written if "_min_time_s" in key} == {"eager_min_time_s"}
        assert 0 < written["eager_min_time_s"] == walk.eager_min_time_s
    rows = rows_in(found.to_csv())
    for layer, row in zip(what_if.layers, rows, strict=True):
        for name, side in (("before", layer.before), ("after", layer.after)):
            times = minimum_times_of(MinTimes(eager_min_time_s=side.eager_min_time_s))
            assert minimum_times_of(side) == times
            assert {key: row[f"{name}_{key}"] for key in MINIMUM_TIMES} == times


def test_training_on_several_ranks() -> None:
    found = result("scaling")
    times = known(found.analysis.totals)
    data = json.loads(found.to_json())
    assert data["minimum_times"] == times
    assert rows_in(found.to_csv()) == [times] * len(found.points)


def test_language_models() -> None:
    found = result("language model")
    data = json.loads(found.to_json())
    rows = rows_in(found.to_frame().to_csv())
    for stage, written, row in zip(found.stages, data["stages"], rows, strict=False):
        times = known(stage.analysis.totals)
        assert {name: row[name] for name in MINIMUM_TIMES} == times
        asked_s = stage.asked.model_min_time_s
        assert asked_s and asked_s == row["asked_model_min_time_s"]
        assert asked_s == written["asked"]["model_min_time_s"]
    cells = data["cells"]
    assert [stage["model_min_time_s"] for each in cells for stage in each["stages"]] == [
        stage.model_min_time_s for each in found.cells for stage in each.stages
    ]
