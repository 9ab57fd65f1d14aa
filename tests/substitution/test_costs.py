"""Costs of graphs: worked out by hand, and against what predict and the bounds say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from roofline.core.sampling import Sample
from roofline.latency.calibration import Calibration
from roofline.latency.features import features_of
from roofline.latency.measuring.calls import Call
from roofline.latency.predictor import Predictor
from roofline.latency.samples import IsolatedSample, OperatorFeatures, OperatorSample, RunSample
from roofline.machine.core_state import CoreState
from roofline.machine.hardware import Duration, HardwareProfile, Overhead
from roofline.placement import Roof, place
from roofline.substitution.costs import (
    FusedCosts,
    LaunchTimes,
    MeasuredCosts,
    MinimumTimeCosts,
    PredictedCosts,
    launch_times,
)
from roofline.substitution.graphs.capturing import capture_graph
from roofline.substitution.graphs.counting import Counted, count_records
from roofline.substitution.graphs.graph import Graph
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role
from tests.builders import SOURCE, ceiling, level, profile, record, tensor
from tests.substitution.rewriting import OPERATORS

EMPTY = Graph(nodes={}, outputs=())
ONLY_DRAM = profile([ceiling(100.0)], [level("DRAM", None, {"read": {1: 10.0}})])
CACHED = profile(
    [ceiling(100.0)],
    [
        level("L1", 1000, {"read": {1: 100.0}}),
        level("DRAM", None, {"read": {1: 10.0}}),
    ],
)
TWO_SECONDS = LaunchTimes(default_s=2.0, source="")
NO_LAUNCHES = LaunchTimes(default_s=0.0, source="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a graph is said to be."""

    records: tuple[OperatorRecord, ...]
    calls: tuple[Call | None, ...] = ()
    node_of: tuple[int, ...] = ()

    def __call__(self, graph: Graph, /, *, rest_bytes: int = 0) -> Any:
        if not rest_bytes:
            return self
        rest = tensor(999, rest_bytes, of="uint8", role=Role.BUFFER)
        return replace(self, records=(*self.records, record([rest], [])))


def graph_of(model: nn.Module, *inputs: torch.Tensor) -> Graph:
    return capture_graph(model.eval(), inputs, operators=OPERATORS).graph


POINTWISE = nn.Conv2d(1, 1, 1, bias=False)
SLOW = profile([ceiling(1.0)], [level("DRAM", None, {"read": {1: 10.0}})])


def count(graph: Graph, /, *, rest_bytes: int = 0) -> Counted:
    return count_records(graph, OPERATORS, rest_bytes=rest_bytes)


# -- bounds ----------------------------------------------------------------------------------------


def test_bounds_and_launches_add_up() -> None:
    """120 byte at 10 a second take 12 s, 3000 FLOP at 100 take 30; two launches take 2 each."""
    given = Given(
        records=(
            record([tensor(0, 20)], [tensor(1, 10)], flop=500),
            record([tensor(1, 10)], [tensor(1, 10)], state=State.FREE),
            record([tensor(1, 10)], [tensor(2, 20)], flop=3000),
        )
    )
    cost = MinimumTimeCosts(given, Roof(ONLY_DRAM, 1), TWO_SECONDS).cost(EMPTY)
    assert cost.total_s == pytest.approx(12 + 30 + 4)
    assert (cost.launches, cost.traffic_bytes, cost.flop, cost.unknown) == (2, 240, 3500, ())


def test_unknown_time_is_never_zero() -> None:
    """No formula, and no ceiling for the type: both are left out, and said."""
    given = Given(
        records=(
            record([tensor(0, 20)], [tensor(1, 10)], flop=500),
            record([tensor(1, 10)], [tensor(2, 10)], flop=None, op="aten.mystery"),
            record([tensor(2, 10, of="float64")], [tensor(3, 10, of="float64")], flop=1, op="b"),
        )
    )
    cost = MinimumTimeCosts(given, Roof(ONLY_DRAM, 1), NO_LAUNCHES).cost(EMPTY)
    assert cost.total_s == pytest.approx(12)
    assert cost.unknown == ("aten.mystery", "b")
    assert cost.flop is None
    other = MinimumTimeCosts(Given(records=given.records[:1]), Roof(ONLY_DRAM, 1), NO_LAUNCHES)
    assert not other.cost(EMPTY).is_comparable(cost)
    # Whole numbers have no ceiling, and are bound by their bytes.
    numbers = record([tensor(0, 10, of="int64")], [tensor(1, 10, of="int64")], flop=10)
    cost = MinimumTimeCosts(Given(records=(numbers,)), Roof(ONLY_DRAM, 1), NO_LAUNCHES).cost(EMPTY)
    assert (cost.total_s, cost.unknown) == (pytest.approx(16), ())
    # A fused kernel with an unknown part is unknown as a whole.
    chain = (
        record([tensor(0, 10)], [tensor(1, 10)], flop=10, op="a"),
        record([tensor(1, 10)], [tensor(2, 10)], flop=None, op="b", freed=[1]),
    )
    cost = FusedCosts(Given(records=chain), Roof(ONLY_DRAM, 1), NO_LAUNCHES).cost(EMPTY)
    assert (cost.total_s, cost.unknown, cost.launches) == (0.0, ("a", "b"), 1)
    # So is what was not learned, and what cannot be timed.
    layer = graph_of(nn.Linear(8, 8).double(), torch.randn(1, 8, dtype=torch.float64))
    roof = Roof(CACHED, 1)
    predictor = learned_from(graph_of(SMALL, torch.randn(1, 3, 12, 12)), roof)
    untimed = MeasuredCosts(count, roof, lambda calls: [None] * len(calls), None)
    assert PredictedCosts(count, roof, predictor).cost(layer).unknown == ("aten.addmm",)
    cost = untimed.cost(layer)
    assert (cost.total_s, cost.unknown, cost.launches) == (0.0, ("aten.addmm",), 1)


def test_a_piece_finds_its_weights_where_the_model_leaves_them() -> None:
    """100 byte wait in the cache (1 s), unless 2000 others were touched meanwhile (10 s)."""
    given = Given(records=(record([tensor(0, 25, role=Role.PARAMETER)], [], flop=0),))
    costs = MinimumTimeCosts(given, Roof(CACHED, 1), NO_LAUNCHES)
    alone, within = costs.cost(EMPTY), costs.cost(EMPTY, rest_bytes=2000)
    assert (alone.total_s, within.total_s) == (pytest.approx(1), pytest.approx(10))
    # What stands for the rest of the model is no part of the piece.
    assert (
        (within.launches, within.traffic_bytes) == (alone.launches, alone.traffic_bytes) == (1, 100)
    )


def test_remembered_bounds_are_those_of_the_placement() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    graph = graph_of(model, torch.randn(1, 3, 12, 12))
    roof = Roof(CACHED, 1)
    costs = MinimumTimeCosts(count, roof, NO_LAUNCHES)
    counted = count(graph).records
    expected = sum(
        each.eager_min_time_s or 0.0 for each in place(counted, trace_residency(counted), roof)
    )
    assert costs.cost(graph).total_s == pytest.approx(expected)
    assert costs.cost(graph) == costs.cost(graph)


@pytest.mark.parametrize(
    ("behind", "machine", "launches", "total_s", "traffic_bytes", "flop"),
    [
        # 16 elements: 64 byte in, 4 of weight, 64 out: 13.2 s, and 2.
        (nn.ReLU(), ONLY_DRAM, TWO_SECONDS, 15.2, 132, 48),
        # 32 FLOP of the convolution and 16 of the ReLU at 1 a second, against 13.2 s of bytes.
        (nn.ReLU(), SLOW, NO_LAUNCHES, 48, 132, 48),
        # Of a norm's four vectors one of 4 byte remains, as the bias; its arithmetic is not done.
        (nn.BatchNorm2d(1), SLOW, NO_LAUNCHES, 32, 136, 32),
    ],
    ids=["bytes", "arithmetic", "folded"],
)
def test_a_fused_kernel_is_one_launch_with_the_work_of_its_members(
    behind: nn.Module,
    machine: HardwareProfile,
    launches: LaunchTimes,
    total_s: float,
    traffic_bytes: int,
    flop: int,
) -> None:
    graph = graph_of(nn.Sequential(POINTWISE, behind), torch.randn(1, 1, 4, 4))
    cost = FusedCosts(count, Roof(machine, 1), launches).cost(graph)
    assert cost.total_s == pytest.approx(total_s)
    assert (cost.launches, cost.traffic_bytes, cost.flop) == (1, traffic_bytes, flop)


# -- launches --------------------------------------------------------------------------------------


def overhead(name: str, time_s: float) -> Overhead:
    duration = Duration(fast_s=time_s, median_s=time_s, provenance=SOURCE)
    return Overhead(name=name, threads=1, time=duration)


def with_overheads(device: str, *overheads: Overhead) -> HardwareProfile:
    return replace(ONLY_DRAM, device=device, overheads=overheads)


def test_launches_are_those_that_the_profile_knows() -> None:
    cpu = with_overheads(
        "cpu", overhead("dispatch of add", 1e-6), overhead("dispatch of linear", 3e-6)
    )
    launches = launch_times(cpu)
    product = replace(record([], []), type="matrix product")
    assert (launches.of(record([], [])), launches.of(product)) == (1e-6, 3e-6)
    device = with_overheads("cuda", overhead("launch of an empty kernel", 8e-6))
    assert launch_times(device).of(product) == 8e-6
    assert "8.0 µs (launch of an empty kernel)" in launch_times(device).source
    assert launch_times(ONLY_DRAM).of(product) == 0
    assert "has no launch overhead" in launch_times(ONLY_DRAM).source


# -- predictions -----------------------------------------------------------------------------------

SMALL = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
)


def learned_from(graph: Graph, roof: Roof, *, per_call_s: float = 1e-6) -> Predictor:
    """A calibration that has measured every operator of a graph: 1 ms, 2 ms …"""
    counted, facts = count(graph).records, facts_in(graph, roof)
    samples = tuple(
        OperatorSample(facts=each, calls=1, time_s=1e-3 * n, iqr_s=0.0, page_faults=0.0)
        for n, each in enumerate(facts, start=1)
    )
    operators_s = sum(each.time_s for each in samples)
    run = RunSample(
        model="small",
        family="small",
        origin="calibrate",
        date="2026-01-01",
        batch=1,
        dtype="float32",
        threads=1,
        channels_last=False,
        train=False,
        end_to_end_s=operators_s + per_call_s * len(counted),
        end_to_end_iqr_s=0.0,
        operators_s=operators_s,
        free_s=0.0,
        free_calls=len(counted) - len(samples),
        calls=len(counted),
        page_faults=0.0,
        operators=samples,
    )
    return Predictor(calibration=Calibration([run]))


def facts_in(graph: Graph, roof: Roof) -> list[OperatorFeatures]:
    """What is learned of each operator of a graph."""
    counted = count(graph).records
    placements = place(counted, trace_residency(counted), roof)
    working = (each for each in placements if each.record.state is not State.FREE)
    return [features_of(each, roof.threads) for each in working]


def test_predicted_costs_are_what_predict_says() -> None:
    graph, roof = graph_of(SMALL, torch.randn(1, 3, 12, 12)), Roof(CACHED, 1)
    predictor = learned_from(graph, roof)
    counted = count(graph).records
    whole = predictor.predict(place(counted, trace_residency(counted), roof), 1).run
    assert whole is not None
    costs = PredictedCosts(count, roof, predictor)
    assert costs.cost(graph).total_s == pytest.approx(whole.predicted_s)
    assert costs.cost(graph) == costs.cost(graph)
    assert (costs.cost(graph).launches, costs.cost(graph).unknown) == (5, ())


# -- measurements ----------------------------------------------------------------------------------


def sample(time_s: float, clock_hz: float | None = None) -> IsolatedSample:
    return IsolatedSample(sample=Sample(times_s=(time_s,)), pace=CoreState(clock_hz=clock_hz))


class Clock:
    """Times calls: the first 1 s, the next 2 s …; remembers what it was asked."""

    def __init__(self, *clocks_hz: float) -> None:
        self.asked: list[Call] = []
        self._clocks_hz = clocks_hz

    def __call__(self, calls: Sequence[Call]) -> list[IsolatedSample | None]:
        found: list[IsolatedSample | None] = []
        for call in calls:
            place = len(self.asked)
            self.asked.append(call)
            found.append(sample(place + 1.0, self._clocks_hz[place] if self._clocks_hz else None))
        return found


def test_each_operator_is_timed_once() -> None:
    """Two equal layers are one call (1 s each); the third is another (2 s)."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 4))
    graph, clock = graph_of(model, torch.randn(1, 8)), Clock()
    costs = MeasuredCosts(count, Roof(CACHED, 1), clock, None)
    # The first layer reads an input that the model is given, the second what the first computed.
    assert costs.cost(graph).total_s == pytest.approx(1 + 2 + 3)
    twice = nn.Sequential(model[0], nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    assert costs.cost(graph_of(twice, torch.randn(1, 8))).total_s == pytest.approx(1 + 2 + 2 + 3)
    assert len(clock.asked) == 3
    assert costs.time_s(clock.asked[1]) == 2.0


def test_times_are_stated_for_one_clock() -> None:
    """Timed at 1 and at 2 GHz: the second call would take twice as long at 1 GHz."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    costs = MeasuredCosts(count, Roof(CACHED, 1), Clock(1e9, 2e9), None)
    assert costs.cost(graph_of(model, torch.randn(1, 8))).total_s == pytest.approx(1 + 4)


def test_what_runs_between_operators_is_part_of_what_was_measured() -> None:
    graph, roof = graph_of(SMALL, torch.randn(1, 3, 12, 12)), Roof(CACHED, 1)
    predictor = learned_from(graph, roof, per_call_s=1.0)
    calls = len(count(graph).records)
    threads = facts_in(graph, roof)[0].threads
    between_s = predictor.calibration.overhead_s(threads, calls=calls)
    with_them = MeasuredCosts(count, roof, Clock(), predictor).cost(graph).total_s
    without = MeasuredCosts(count, roof, Clock(), None).cost(graph).total_s
    assert between_s > 1
    assert with_them == pytest.approx(without + between_s)
