"""Saved analyses are believed only where everything that is shown follows from their rows."""

from __future__ import annotations

import io
import json
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import roofline
from roofline.analysis import (
    Analysis,
    Coverage,
    OperatorRow,
    Totals,
    analysis_from_data,
    read_analysis,
)
from roofline.cli.main import run
from roofline.core.blocks import By, View
from roofline.core.units import sum_known
from roofline.errors import FileFormatError
from roofline.latency.samples import EarlierRun
from roofline.placement import Bound
from roofline.workload.operators import State

Way = tuple[str | int, ...]


@cache
def plain_text() -> str:
    """A small analysis of a real module with counted, free and unknown operators, as JSON."""
    import torch

    from tests.unknown_operator import mystery

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            masked = self.linear(x).masked_fill(x[:, :3] > 0, float("-inf"))
            return mystery(masked.view(3, 8))

    earlier = EarlierRun(
        measured_s=2e-5, iqr_s=1e-6, date="2026-03-04", origin="profile", model="Tiny"
    )
    analysis = roofline.analyze(Tiny(), (8, 4), hardware="10980xe")
    return replace(analysis, earlier=earlier).to_json()


def plain() -> dict[str, Any]:
    return json.loads(plain_text())


@cache
def sound() -> Analysis:
    return analysis_from_data(plain(), file="a.json")


def changed(way: Way, value: Any) -> dict[str, Any]:
    """The plain data of the small analysis with another value in one place."""
    data = plain()
    place: Any = data
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = value
    return data


def ways(data: Any, here: Way = ()) -> list[Way]:
    """The way to every value in plain data."""
    found = [here] if here else []
    items: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    for key, value in items:
        found += ways(value, (*here, key))
    return found


VIEWS: tuple[By, ...] = ("operator", "module", "type", "phase")


def show(analysis: Analysis, *views: By) -> None:
    """Renders the analysis in every format that is text."""
    from rich.console import Console

    from roofline.render.console import print_report

    for by in views:
        for terminal in (True, False):
            console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
            print_report(analysis.report(View(by=by, fused=terminal)), console)
        assert analysis.render("csv", View(by=by))
        assert analysis.render("md", View(by=by))
    assert analysis_from_data(json.loads(analysis.to_json()), file="again.json") == analysis
    assert repr(analysis)


def test_the_example_has_operators_of_every_state() -> None:
    analysis = analysis_from_data(plain(), file="a.json")
    assert {row.state for row in analysis.operators} == set(State)
    show(analysis, *VIEWS)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.integers()
    | st.sampled_from([10**30, 10**80, 10**400, 16**5000])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "a\nb", "DRAM", "L1", "free", "unknown", "compute", "int4"])
    | st.sampled_from([[], {}, [-1], [10**30], {"DRAM": -1}, {"L9": 1}, [[]], {"a": math.inf}])
)


@settings(max_examples=1000)
@given(st.deferred(lambda: st.sampled_from(ways(plain()))), JUNK, st.sampled_from(VIEWS))
@example(("operators", 0, "eager_min_time_s"), -5.0, "operator")
@example(("operators", 0, "attributes"), [[[[]]]], "operator")
@example(("warnings",), ["a\nb\x1b[31m"], "operator")
def test_a_damaged_analysis_is_refused_or_means_something_else(way: Way, junk: Any, by: By) -> None:
    """Whatever is put in the place of a value: a clear refusal, or another analysis."""
    before, data = plain(), changed(way, junk)
    try:
        found = analysis_from_data(pickle.loads(pickle.dumps(data)), file="a.json")
    except FileFormatError as error:
        assert str(error).startswith("a.json")
        assert str(error).isprintable()
    else:
        # An older version, another name of a data type, and a run of defaults mean the same.
        is_alike = data == before or way[-1] in ("schema_version", "dtype", "run")
        assert is_alike or found != sound()
        show(found, by)


Edit = Callable[[dict[str, Any]], object]


def operator(data: dict[str, Any], op: str) -> dict[str, Any]:
    """The first row of an operator."""
    return next(row for row in data["operators"] if row["op"].partition(".")[2] == op)


FALSE: dict[str, tuple[Edit, str]] = {
    "eager_min_time_s of totals": (
        lambda d: d["totals"].update(eager_min_time_s=1.0),
        "totals.eager_min_time_s is 1.0",
    ),
    "no eager_min_time_s": (
        lambda d: d["totals"].update(eager_min_time_s=None),
        "totals.eager_min_time_s is None",
    ),
    "negative eager_min_time_s": (
        lambda d: operator(d, "addmm").update(eager_min_time_s=-5.0),
        r"operators\[1?\d\]: eager_min_time_s must be a finite number from 0, got -5.0",
    ),
    "measured_s of totals": (lambda d: d["totals"].update(measured_s=1.0), "totals.measured_s"),
    "predicted_s of totals": (lambda d: d["totals"].update(predicted_s=1.0), "totals.predicted_s"),
    "interval without a middle": (
        lambda d: d["totals"].update(predicted_low_s=1.0, predicted_high_s=2.0),
        "totals: predicted_s is None, not between 1.0 and 2.0",
    ),
    "coverage": (lambda d: d["coverage"].update(calls=7.0), "coverage: calls must be a fraction"),
    "other coverage": (lambda d: d["coverage"].update(traffic=0.5), "coverage.traffic is 0.5"),
    "coverage of no times": (lambda d: d["coverage"].update(time=0.5), "coverage.time is 0.5"),
    "unknown": (lambda d: d["totals"].update(unknown_operators=99), "totals.unknown_operators"),
    "parameters": (lambda d: d["totals"].update(parameters=-7), "totals: parameters must be"),
    "shape": (lambda d: d["inputs"][0].update(shape=[-1, 4]), r"inputs\[0\]"),
    "shape of an operand": (
        lambda d: operator(d, "addmm")["inputs"][0].update(shape=[-1]),
        r"operators\[\d+\].inputs\[0\]",
    ),
    "level": (
        lambda d: operator(d, "addmm").update(level="L9"),
        r"operators\[\d+\]: memory level 'L9' is not in the hardware \(DRAM\)",
    ),
    "level of bytes": (
        lambda d: operator(d, "addmm")["level_bytes"].update(L9=1),
        "memory level 'L9' is not in the hardware",
    ),
    "negative level": (
        lambda d: operator(d, "addmm")["level_bytes"].update(DRAM=-1),
        "level_bytes must not be negative",
    ),
    "bound of nothing": (
        lambda d: operator(d, "mystery").update(bound="compute", eager_min_time_s=None),
        "bound is 'compute', but eager_min_time_s is null",
    ),
    "threads 0": (lambda d: d.update(threads=0), "threads is 0, but the hardware has 16"),
    "threads 99": (lambda d: d.update(threads=99), "threads is 99, but the hardware has 16"),
    "threads 10**30": (lambda d: d.update(threads=10**30), "but the hardware has 16"),
    "negative intensity": (
        lambda d: operator(d, "addmm").update(intensity_flop_per_byte=-1.0),
        "intensity_flop_per_byte must be a finite number from 0",
    ),
    "other intensity": (
        lambda d: operator(d, "addmm").update(intensity_flop_per_byte=1e9),
        "intensity_flop_per_byte is 1000000000.0, but flop over bytes of 'DRAM' is",
    ),
    "attainable": (
        lambda d: operator(d, "addmm").update(attainable_flop_per_s=1e30),
        r"attainable_flop_per_s is 1e\+30, but flop over eager_min_time_s is",
    ),
    "traffic": (
        lambda d: operator(d, "addmm").update(traffic_bytes=10**6),
        "traffic_bytes is 1000000, but its parts add up to",
    ),
    "flop alone": (
        lambda d: operator(d, "addmm").update(flop=None),
        "must be known or null together",
    ),
    "state": (
        lambda d: operator(d, "mystery").update(state="counted"),
        "state is 'counted', but flop is None",
    ),
    "known and unknown": (
        lambda d: operator(d, "addmm").update(state="unknown"),
        "state is 'unknown', but flop is",
    ),
    "free and bound": (
        lambda d: operator(d, "addmm").update(state="free"),
        "state is 'free', but bound is",
    ),
    "other peak": (
        lambda d: d["peak"].update(activation_bytes=1),
        r"totals.peak_memory_bytes is \d+, but peak has",
    ),
    "peak after the end": (
        lambda d: d["peak"].update(operator=99),
        r"peak.operator is 99, but there are \d+",
    ),
    "other parameters at the peak": (
        lambda d: d["peak"].update(
            parameter_bytes=d["peak"]["parameter_bytes"] - 1,
            activation_bytes=d["peak"]["activation_bytes"] + 1,
        ),
        r"peak.parameter_bytes is \d+, but the model keeps \d+",
    ),
    "a module twice": (
        lambda d: d["modules"].append(d["modules"][1]),
        "modules has 'linear' twice",
    ),
    "calls": (
        lambda d: d["modules"][1].update(calls=-1),
        r"modules\[1\]: calls must be a whole number from 0, got -1",
    ),
    "optimizer of an inference": (
        lambda d: d["run"].update(optimizer="sgd"),
        "run: an optimizer and a loss belong to training",
    ),
    "device": (lambda d: d["run"].update(device="abacus"), "run"),
    "fused_bytes of totals": (
        lambda d: d["totals"].update(fused_bytes=1),
        "totals.fused_bytes is 1",
    ),
    "fused_bytes above traffic": (
        lambda d: operator(d, "addmm").update(fused_bytes=10**6),
        "fused_bytes is 1000000, above traffic_bytes",
    ),
    "fused_bytes without a chain": (
        lambda d: operator(d, "addmm").update(chain=None),
        "chain and fused_bytes must be known or null together",
    ),
    "internal_bytes of totals": (
        lambda d: d["totals"].update(internal_bytes=8),
        "totals.internal_bytes is 8, but the operators add up to 0",
    ),
    "no time before": (
        lambda d: d["earlier"].update(measured_s=0.0),
        "earlier: measured_s must be a finite number above 0, got 0.0",
    ),
    "negative spread before": (
        lambda d: d["earlier"].update(iqr_s=-1.0),
        "earlier: iqr_s must be a finite number from 0, got -1.0",
    ),
    "negative page faults before": (
        lambda d: d["earlier"].update(page_faults=-1.0),
        "earlier: page_faults must be a finite number from 0, got -1.0",
    ),
    "measured by nobody": (lambda d: d["earlier"].update(origin="hearsay"), "earlier"),
    "measured before and now": (
        lambda d: d.update(
            measurement={
                "end_to_end": {"times_s": [2e-5]},
                "operators_s": 2e-5,
                "page_faults": 0,
                "rounds": 1,
                "discarded": 0,
            }
        ),
        "earlier is given together with a measurement",
    ),
    "measured before, but cold": (
        lambda d: d.update(cache="cold"),
        "earlier is given, but cache is 'cold'",
    ),
    "measured before, but training": (
        lambda d: d["run"].update(train=True),
        "earlier is given, but run is no eager inference on a CPU",
    ),
    "measured before, but elsewhere": (
        lambda d: d["run"].update(device="cuda"),
        "earlier is given, but run is no eager inference on a CPU",
    ),
    "measured before, but in other types": (
        lambda d: d["run"].update(autocast="bfloat16"),
        "earlier is given, but run is no eager inference on a CPU",
    ),
    "a row too few": (lambda d: d["operators"].pop(), "totals..* add up to"),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_figures_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, message = FALSE[name]
    path, data = tmp_path / "a.json", plain()
    path.write_text(json.dumps(data))
    assert read_analysis(path).totals.unknown_operators == 1
    edit(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FileFormatError, match=message) as refused:
        read_analysis(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "make it again with `roofline analyze" in str(refused.value)
    assert run(["show", str(path), "-o", str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err == f"roofline: error: {refused.value}\n"


def test_sums_of_unknown_are_unknown() -> None:
    assert sum_known([1.0, 2.5]) == 3.5
    assert sum_known(each for each in (1.0, 2.5)) == 3.5
    assert sum_known([1.0, None]) is None
    assert sum_known([]) == 0


def test_sums_may_be_rounded_differently() -> None:
    data = plain()
    data["totals"]["eager_min_time_s"] *= 1 + 1e-12
    assert (
        analysis_from_data(data, file="a.json").totals.eager_min_time_s
        == data["totals"]["eager_min_time_s"]
    )
    data["totals"]["eager_min_time_s"] *= 1 + 1e-6
    with pytest.raises(FileFormatError, match=r"totals\.eager_min_time_s"):
        analysis_from_data(data, file="a.json")


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, -1e-300])
def test_no_number_is_negative_or_infinite(value: float) -> None:
    analysis = analysis_from_data(plain(), file="a.json")
    row = next(row for row in analysis.operators if row.state is State.COUNTED)
    numbers = [
        each.name
        for each in fields(OperatorRow)
        if each.type in ("int", "int | None", "float | None")
    ]
    assert {"index", "flop", "traffic_bytes", "eager_min_time_s", "measured_iqr_s"} <= set(numbers)
    for name in numbers:
        with pytest.raises(ValueError, match=f"{name} must be a finite number from 0"):
            replace(row, **{name: value})
    for each in (each for each in fields(Totals) if each.type != "str"):
        with pytest.raises(ValueError, match=f"{each.name} must be a finite number from 0"):
            replace(analysis.totals, **{each.name: value})
    for each in fields(Coverage):
        with pytest.raises(ValueError, match=f"{each.name} must be a fraction"):
            replace(analysis.coverage, **{each.name: value})


def test_a_bound_of_unknown_flop_may_be_unknown_too() -> None:
    row = next(
        row for row in analysis_from_data(plain(), file="a.json").operators if row.flop is None
    )
    assert replace(row, eager_min_time_s=None).bound is Bound.UNKNOWN


def test_rows_are_made_quickly() -> None:
    """Rows are made by the thousand: what checks one calls few functions, 33 by now."""
    row = analysis_from_data(plain(), file="a.json").operators[0]
    values = {each.name: getattr(row, each.name) for each in fields(OperatorRow)}
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _what: calls.append(event) if "call" in event else None)
    try:
        OperatorRow(**values)
    finally:
        sys.setprofile(None)
    assert 1 < len(calls) <= 40
