"""The trace against the format's own rules, by a checker that knows nothing of how it was made."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import Analysis, Module, OperatorRow
from roofline.analysis.chrome_trace import trace_json, trace_of
from roofline.cli.analysis import check_analysis_files
from roofline.cli.options import Output
from roofline.core.sampling import Sample
from roofline.errors import InputError
from roofline.latency.samples import RunMeasurement
from roofline.workload.operators import State
from tests.analysis.examples import (
    Made,
    Network,
    analysis_of,
    dram_profile,
    examples,
    full_profile,
    hostile,
    measured,
    resnet,
    resnet_like,
    small,
    trained,
    with_rows,
)
from tests.analysis.predictions import with_predictions


def of_example(name: str) -> Analysis:
    """An example with every operator measured."""
    return measured(examples()[name])


BARE = ("empty model", "empty model, bare machine", "no ceilings")
"""Examples of which no operator has a bound, and so none is measured."""
TRACED = [name for name in examples() if name not in BARE]
EXAMPLES = Made({name: partial(of_example, name) for name in examples()})


@dataclass
class Slice:
    """A slice as a viewer shows it."""

    name: str
    kind: str
    start: float
    end: float
    depth: int
    args: dict[str, Any]
    inside: list[Slice] = field(default_factory=list["Slice"])


def slices_of(trace: dict[str, Any]) -> dict[int, list[Slice]]:
    """Checks every event by the rules of the format, and gives the slices of each process.

    The rules: every event has its fields; times are finite and from 0; a thread's events come in
    the order of their times; every E closes the slice that was opened last, by the same name and
    category; nothing stays open; counters are finite numbers.
    """
    found: dict[int, list[Slice]] = {}
    stacks: dict[tuple[int, int], list[Slice]] = {}
    last: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in "BECiM", event
        thread = (event["pid"], event["tid"])
        assert all(type(each) is int for each in thread)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert "ts" not in event
            assert event["name"] in ("process_name", "process_sort_index", "thread_name")
            continue
        now = event["ts"]
        assert math.isfinite(now)
        assert now >= last.get(thread, 0.0)
        last[thread] = now
        stack = stacks.setdefault(thread, [])
        if event["ph"] == "B":
            opened = Slice(event["name"], event["cat"], now, now, len(stack), event.get("args", {}))
            if stack:
                stack[-1].inside.append(opened)
            stack.append(opened)
            found.setdefault(event["pid"], []).append(opened)
        elif event["ph"] == "E":
            closed = stack.pop()
            assert (closed.name, closed.kind) == (event["name"], event["cat"])
            assert now >= closed.start
            closed.end = now
        elif event["ph"] == "C":
            assert event["args"]
            assert all(math.isfinite(value) for value in event["args"].values())
    assert not any(stacks.values())
    for slices in found.values():
        for each in slices:
            assert all(each.start <= part.start <= part.end <= each.end for part in each.inside)
    return found


def operators(slices: list[Slice]) -> list[Slice]:
    return [each for each in slices if each.kind == "operator"]


def counter(trace: dict[str, Any], name: str) -> list[tuple[float, float]]:
    return [
        (event["ts"], next(iter(event["args"].values())))
        for event in trace["traceEvents"]
        if event["ph"] == "C" and event["name"] == name
    ]


def with_run(analysis: Analysis, end_to_end_s: float) -> Analysis:
    """The pass was timed as a whole as well."""
    run = RunMeasurement(
        end_to_end=Sample(times_s=(end_to_end_s,) * 5),
        operators_s=sum(row.measured_s or 0.0 for row in analysis.operators),
        page_faults=0,
        rounds=5,
        discarded=1,
    )
    return replace(analysis, measurement=run)


@pytest.mark.parametrize("name", TRACED)
def test_every_trace_keeps_the_rules_of_the_format(name: str):
    trace = json.loads(trace_json(EXAMPLES[name]))
    slices = slices_of(trace)
    measured_rows = [row for row in EXAMPLES[name].operators if row.measured_s is not None]
    assert len(operators(slices[1])) == len(measured_rows)
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}


def test_operators_are_laid_end_to_end_in_the_order_of_their_calls():
    analysis = measured(resnet())
    shown = operators(slices_of(trace_of(analysis))[1])
    rows = [row for row in analysis.operators if row.measured_s is not None]
    now = 0.0
    for each, row in zip(shown, rows, strict=True):
        assert each.args["index"] == row.index
        assert each.start == pytest.approx(1e6 * now, abs=1e-3)
        now += row.measured_s or 0.0
        assert each.end == pytest.approx(1e6 * now, abs=1e-3)


def test_rounding_never_adds_up():
    """600 operators of 333 1/3 ns end where their sum does, not 200 ns before."""
    net = Network()
    x = net.tensor(8, 8)
    for i in range(600):
        x = net.relu(x, f"act{i}")
    analysis = analysis_of(net, dram_profile())
    rows = [replace(row, measured_s=1e-6 / 3) for row in analysis.operators]
    slices = slices_of(trace_of(with_rows(analysis, rows)))
    assert slices[1][0].end == pytest.approx(200.0, abs=1e-3)


def test_modules_lie_in_each_other_as_their_paths_do():
    modules = [
        Module(path=path, kind=kind, calls=1, parameters=0)
        for path, kind in (("", "Net"), ("layer1", "Sequential"), ("layer1.0", "Bottleneck"))
    ]
    net = resnet_like((1,))
    analysis = measured(analysis_of(net, full_profile(), modules=modules))
    known = [row for row in analysis.operators if row.state is not State.UNKNOWN]
    slices = slices_of(trace_of(with_rows(analysis, known)))[1]
    by_name = {each.name: each for each in slices if each.kind == "module"}
    block = by_name["layer1.0"]
    assert block in by_name["layer1"].inside
    assert block.args == {"class": "Bottleneck"}
    inside = [each.name for each in block.inside]
    assert inside[:3] == ["layer1.0.conv1", "layer1.0.bn1", "layer1.0.relu"]
    # The block's own addition stands beside the modules in it.
    assert "add_" in inside
    for each in slices:
        for part in operators(each.inside):
            assert part.args["module"] == (each.name if each.kind == "module" else "")


def test_phases_hold_modules_where_there_are_several():
    slices = slices_of(trace_of(measured(trained())))[1]
    phases = [each.name for each in slices if each.kind == "phase"]
    assert phases == ["forward", "backward", "optimizer"]
    assert [each.name for each in slices[0].inside] == phases
    assert not [each for each in slices_of(trace_of(measured(resnet())))[1] if each.kind == "phase"]


def test_an_operator_says_what_is_known_of_it():
    """The linear layer of `small`: 650 FLOP, 1488 bytes at 10 GB/s, four times its bound."""
    layer, act = operators(slices_of(trace_of(measured(small(), 4.0)))[1])
    time_s = 4 * 1488 / 10e9
    expected = {
        "op": "aten.addmm",
        "module": "fc",
        "flop": 650,
        "traffic_bytes": 1488,
        "level": "DRAM",
        "inputs": ["10 float32", "1x32 float32", "10x32 float32"],
        "outputs": ["1x10 float32"],
    }
    assert {name: layer.args[name] for name in expected} == expected
    numbers = {
        "eager_min_time_s": time_s / 4,
        "measured_s": time_s,
        "achieved_flop_per_s": 650 / time_s,
        "achieved_bytes_per_s": 2.5e9,
        "share_of_roof": 0.25,
        "intensity_flop_per_byte": 650 / 1488,
    }
    assert {name: layer.args[name] for name in numbers} == pytest.approx(numbers)
    assert "predicted_s" not in layer.args
    assert act.name == "relu_"


def test_counters_are_rates_while_operators_run_and_sums_when_they_end():
    analysis = measured(small(), 4.0)
    trace = trace_of(analysis)
    layer, act = operators(slices_of(trace)[1])
    assert counter(trace, "compute done") == [(0, 0), (layer.end, 650), (act.end, 660)]
    assert counter(trace, "traffic done") == [(0, 0), (layer.end, 1488), (act.end, 1568)]
    assert counter(trace, "traffic achieved") == [
        (layer.start, pytest.approx(2.5e9)),
        (act.start, pytest.approx(2.5e9)),
        (act.end, 0),
    ]
    rates = counter(trace, "compute achieved")
    assert rates[0] == (layer.start, pytest.approx(650 / (4 * 1488 / 10e9)))
    total_flop = counter(trace_of(measured(resnet())), "compute done")[-1][1]
    assert total_flop == resnet().totals.flop


def test_unknown_flop_is_left_out_and_said():
    analysis = measured(resnet())
    trace = trace_of(analysis)
    (odd,) = [each for each in operators(slices_of(trace)[1]) if each.args["type"] == "unknown"]
    assert "flop" not in odd.args
    assert "achieved_flop_per_s" not in odd.args
    assert odd.args["achieved_bytes_per_s"] > 0
    assert odd.start not in [ts for ts, _ in counter(trace, "compute achieved")]
    said = trace["otherData"]["unknown_flop"]
    assert (said["operators"], said["names"]) == (1, ["custom.shuffle"])
    assert "unknown_flop" not in trace_of(measured(small()))["otherData"]


def test_bounds_and_predictions_have_timelines_of_their_own():
    analysis = with_predictions(measured(small(), 4.0), {"fc": 2e-6, "act": 1e-6})
    trace = trace_of(analysis)
    slices = slices_of(trace)
    assert slices[1][0].end == pytest.approx(1e6 * 4 * 1568 / 10e9, abs=1e-3)
    assert slices[2][0].end == pytest.approx(3.0)
    assert slices[3][0].end == pytest.approx(1e6 * 1568 / 10e9, abs=1e-3)
    names = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "process_name"
    }
    assert names == {
        1: "small · measured: medians end to end",
        2: "small · predicted, end to end",
        3: "small · minimum times, end to end",
    }
    assert trace["otherData"]["operators"] == {"measured": 2, "predicted": 2, "bound": 2}
    assert 2 not in slices_of(trace_of(measured(small())))


def test_what_runs_between_operators_is_a_slice_of_its_own():
    analysis = measured(small(), 4.0)
    alone_s = sum(row.measured_s or 0.0 for row in analysis.operators)
    trace = trace_of(with_run(analysis, alone_s + 5e-6))
    whole, *_ = slices_of(trace)[1]
    between = whole.inside[-1]
    assert between.kind == "overhead"
    assert between.end - between.start == pytest.approx(5.0, abs=2e-3)
    assert whole.end == pytest.approx(1e6 * alone_s + 5.0, abs=2e-3)
    said = trace["otherData"]["measurement"]
    assert said["framework_overhead_s"] == pytest.approx(5e-6)
    assert (said["passes"], said["discarded_rounds"]) == (5, 1)


def test_an_overhead_below_nothing_is_said_and_not_drawn():
    analysis = measured(small(), 4.0)
    trace = trace_of(with_run(analysis, 1e-9))
    assert not [each for each in slices_of(trace)[1] if each.kind == "overhead"]
    assert "timing overhead" in trace["otherData"]["measurement"]["overhead"]
    assert "not timed as a whole" in trace_of(analysis)["otherData"]["overhead"]


def test_the_trace_says_what_it_is():
    said = trace_of(measured(resnet()))["otherData"]
    assert said["what"].startswith("Not a recorded pass: medians")
    assert (said["model"], said["machine"]) == ("resnet-like", "example-2core")
    assert said["versions"] == {"torch": "2.13.0"}
    assert "measured" in said["ceilings"]


def test_the_moment_when_memory_is_fullest_is_marked():
    analysis = measured(resnet())
    trace = trace_of(analysis)
    (mark,) = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert analysis.peak is not None
    (at,) = [
        each.start
        for each in operators(slices_of(trace)[1])
        if each.args["index"] == analysis.peak.operator
    ]
    assert mark["ts"] == at
    assert mark["args"]["peak_memory_bytes"] == analysis.peak.byte


def test_names_of_models_stay_text():
    text = trace_json(measured(hostile()))
    assert "\x1b" not in text
    slices = slices_of(json.loads(text))[1]
    assert any("<script>alert('x')</script>" in each.name for each in slices)


def test_a_model_of_thousands_of_operators_keeps_the_rules():
    analysis = measured(analysis_of(resnet_like((30, 80, 60, 30)), full_profile()))
    assert len(analysis.operators) > 2000
    slices_of(json.loads(trace_json(analysis)))


@pytest.mark.parametrize("name", ["resnet", "empty model"])
def test_what_was_not_measured_is_refused(name: str):
    with pytest.raises(InputError, match="not measured; a trace needs measured operators"):
        examples()[name].render("trace")


def test_what_has_no_bound_was_not_measured():
    for name, each in EXAMPLES.items():
        assert (name in BARE) == all(row.measured_s is None for row in each.operators)


def test_half_a_measurement_is_refused():
    analysis = measured(small())
    rows: list[OperatorRow] = [
        replace(row, measured_s=None, measured_iqr_s=None) if row.index else row
        for row in analysis.operators
    ]
    with pytest.raises(InputError, match="a trace needs measured operators"):
        trace_of(with_rows(analysis, rows))


def test_the_longest_suffix_chooses_the_format(tmp_path: Path):
    files = [tmp_path / name for name in ("RUN.TRACE.JSON", "run.json", "trace.json")]
    analysis = measured(small())
    analysis.save(*files)
    assert ["traceEvents" in json.loads(each.read_text()) for each in files] == [True, False, False]
    for name in ("run.trace.jsn", "run.trace"):
        with pytest.raises(InputError, match=r"did you mean '\.trace\.json'"):
            analysis.save(tmp_path / name)
    with pytest.raises(InputError, match=r"run\.trace\.json: a trace needs measured operators"):
        check_analysis_files(Output((tmp_path / "run.trace.json",), force=False), is_measured=False)


def test_a_trace_is_written_whole_or_not_at_all(tmp_path: Path):
    target = tmp_path / "run.trace.json"
    measured(small()).save(target)
    slices_of(json.loads(target.read_text(encoding="utf-8")))
    # One that cannot be made leaves nothing behind, nor the files beside it.
    with pytest.raises(InputError, match="not measured"):
        small().save(tmp_path / "a.json", tmp_path / "b.trace.json")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.trace.json"]
