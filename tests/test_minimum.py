"""Minimum times: kernels and models worked out by hand, and the order model ≤ fused ≤ eager."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from roofline import load_hardware
from roofline.core.dtypes import dtype
from roofline.machine.hardware import HardwareProfile
from roofline.minimum import MinimumTimes, kernel_minimums, minimum_times, model_minimum
from roofline.pipeline.runs import CapturedPass, capture_pass
from roofline.placement import Bound, Roof, place
from roofline.run import RunOptions
from roofline.workload.fusion import FusedOperator, fused_records, fused_traffic
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import trace_residency
from roofline.workload.rewritings import ModelWork, model_work
from roofline.workload.tensors import Role, TensorSpec
from tests.builders import ceiling, level, profile, record, tensor

GB = 1e9
CACHED = profile(
    [ceiling(100e9), ceiling(150e9, kernel="fma-add"), ceiling(1e12, of="bfloat16", unit="amx")],
    [
        level("L2", 1000, {"read": {1: 100 * GB}, "update": {1: 200 * GB}}),
        level("DRAM", None, {"read": {1: 10 * GB}, "update": {1: 20 * GB}}),
    ],
)
"""1,000 bytes of cache; reads at half the rate of updates."""
CLASSIC = profile([ceiling(100e9)], [level("DRAM", None, {"unspecified": {1: 10 * GB}})])


def given(number: int, elements: int) -> TensorSpec:
    return tensor(number, elements, role=Role.INPUT)


def pointwise(
    inputs: list[TensorSpec], output: TensorSpec, freed: list[int], *, flop: int, index: int
) -> OperatorRecord:
    made = record(inputs, [output], freed=freed, flop=flop, index=index)
    return replace(made, op="aten.relu")


def times(
    records: list[OperatorRecord], machine: HardwareProfile, *, cold: bool = False
) -> tuple[float, MinimumTimes]:
    roof = Roof(machine, 1)
    placements = place(records, trace_residency(records), roof, cache="cold" if cold else "steady")
    found = minimum_times(placements, fused_traffic(records), model_work(records), roof, cold=cold)
    assert found is not None
    return sum(each.eager_min_time_s or 0.0 for each in placements), found


def chain() -> list[OperatorRecord]:
    """b = f(a), c = g(b), 1,000 float32 each; a is an input, c the result."""
    return [
        pointwise([given(0, 1000)], tensor(1, 1000), [], index=0, flop=1000),
        pointwise([tensor(1, 1000)], tensor(2, 1000), [1], index=1, flop=1000),
    ]


def test_a_chain_by_hand_on_one_level() -> None:
    """4,000 bytes a tensor: four crossings one by one, two in a kernel; 800 ns per 8,000 bytes."""
    eager_s, found = times(chain(), CLASSIC)
    assert eager_s == pytest.approx(1600e-9)
    assert found.fused.time_s == found.model.time_s == pytest.approx(800e-9)
    assert found.fused.ceiling == found.model.ceiling == "DRAM"
    assert found.kernels_s == pytest.approx({0: 800e-9})


def test_a_chain_by_hand_on_two_levels() -> None:
    """Of the kernel's 8,000 bytes 1,000 may still be in the cache; cold, none."""
    _, cold = times(chain(), CACHED, cold=True)
    # 8,000 bytes at 20 GB/s; 4,000 of them are read, at 10 GB/s.
    assert cold.fused.time_s == cold.model.time_s == pytest.approx(400e-9)
    eager_s, steady = times(chain(), CACHED)
    # All 8,000 were touched by the pass before: the result takes the memory that it had there.
    assert steady.fused.time_s == steady.model.time_s == pytest.approx(7000 / 20e9)
    assert steady.model.time_s < eager_s


def test_the_arithmetic_of_a_kernel_is_that_of_its_members() -> None:
    """Products at 100 GFLOP/s and all arithmetic at 150, which go on beside each other."""
    product = replace(
        record(
            [given(0, 10), tensor(3, 10, role=Role.PARAMETER)],
            [tensor(1, 10)],
            flop=9000,
            macs=4500,
        ),
        op="aten.mm",
        type="matrix product",
    )
    after = pointwise([tensor(1, 10)], tensor(2, 10), [1], index=1, flop=3000)
    eager_s, found = times([product, after], CACHED)
    # One by one: 90 ns of products, then 20 ns of other arithmetic. As one: 12,000 FLOP at 150.
    assert eager_s == pytest.approx(110e-9)
    assert found.fused.time_s == pytest.approx(90e-9)
    assert found.model.time_s == pytest.approx(90e-9)
    assert found.fused.ceiling == found.model.ceiling == "float32 avx2 fma"


def test_a_kernel_whose_other_arithmetic_takes_longest() -> None:
    _, found = times(
        [replace(each, work=replace(each.work, flop=90_000, min_flop=90_000)) for each in chain()],
        CACHED,
    )
    assert found.fused.time_s == pytest.approx(180_000 / 150e9)
    assert found.fused.ceiling == "float32 avx2 fma-add"
    # Of arithmetic the model minimum has products alone.
    assert found.model.time_s == pytest.approx(7000 / 20e9)
    assert found.model.ceiling == "DRAM update"


def test_the_model_minimum_takes_all_of_each_unit_and_the_longest_of_units() -> None:
    """Work of different units may overlap; so may arithmetic and bytes."""
    product = record([given(0, 1)], [tensor(1, 1)])
    in_half = record(
        [replace(given(0, 1), dtype=dtype("bfloat16"))],
        [replace(tensor(1, 1), dtype=dtype("bfloat16"))],
    )
    work = ModelWork(
        products=((product, 50_000), (product, 50_000), (in_half, 1_500_000)),
        read_bytes=9_000,
        written_bytes=1_000,
    )
    roof = Roof(CACHED, 1)
    found = model_minimum(work, roof)
    assert (found.time_s, found.ceiling) == (pytest.approx(1500e-9), "bfloat16 amx fma")
    without = replace(work, products=work.products[:2])
    assert model_minimum(without, roof).time_s == pytest.approx(1000e-9)
    # 10,000 bytes less 1,000 in the cache; 8,000 of them are reads at 10 GB/s.
    alone = replace(work, products=())
    assert model_minimum(alone, roof).time_s == pytest.approx(800e-9)
    assert model_minimum(alone, roof).ceiling == "DRAM read"
    assert model_minimum(alone, roof, cold=True).time_s == pytest.approx(900e-9)
    # What fits takes its way through the nearest level alone.
    small = replace(alone, read_bytes=900, written_bytes=100)
    assert model_minimum(small, roof).time_s == pytest.approx(9e-9)
    assert model_minimum(small, roof).ceiling == "L2 read"
    # No time, no limiter.
    free = model_minimum(replace(alone, read_bytes=0, written_bytes=0), roof)
    assert (free.time_s, free.ceiling, free.bound) == (0.0, "", Bound.FREE)


def test_the_model_minimum_leaves_out_what_all_caches_hold_together() -> None:
    """Two cores: 2 x 100 byte of L2 beside 300 of L3 hold 500 of 1,200; 700 cross at 10 byte/s."""
    machine = profile(
        [ceiling(1e30)],
        [
            level("L2", 100, {"read": {2: 1e12}}, scope="private"),
            level("L3", 300, {"read": {2: 1e12}}),
            level("DRAM", None, {"read": {2: 10.0}}),
        ],
        threads=2,
    )
    work = ModelWork(products=(), read_bytes=1000, written_bytes=200)
    roof = Roof(machine, 2)
    assert model_minimum(work, roof).time_s == pytest.approx(70.0)
    assert model_minimum(work, roof, cold=True).time_s == pytest.approx(120.0)
    in_caches = ModelWork(products=(), read_bytes=300, written_bytes=200)
    # All of it crosses the L2, and 300 the L3, at 10^12 byte/s.
    assert model_minimum(in_caches, roof).time_s == pytest.approx(500e-12)


def test_a_fused_minimum_below_that_of_the_model_is_raised_to_it() -> None:
    roof = Roof(CACHED, 1)
    records = chain()
    placements = place(records, trace_residency(records), roof)
    longer = ModelWork(products=(), read_bytes=7_500, written_bytes=0)
    found = minimum_times(placements, fused_traffic(records), longer, roof)
    assert found is not None
    kernels = kernel_minimums(placements, fused_traffic(records), roof)
    assert sum(each.time_s for each in kernels.values()) == pytest.approx(350e-9)
    assert found.fused == found.model
    assert found.fused.time_s == pytest.approx(650e-9)


def test_there_are_no_minimum_times_without_ceilings() -> None:
    bare = profile([ceiling(1e9)], [])
    roof = Roof(bare, 1)
    records = chain()
    placements = place(records, trace_residency(records), roof)
    assert minimum_times(placements, fused_traffic(records), model_work(records), roof) is None


# -- models ----------------------------------------------------------------------------------------

MODELS = {
    "resnet18": {},
    "mobilenet_v3_small": {},
    "googlenet": {},
    "hf:bert": {"seq": 16},
    "hf:gpt2": {"seq": 16},
    "conv2d(8,8,3)+batchnorm2d(8)+relu()@14x14": {},
    "lstm(16,16)@8x16": {},
}


@cache
def captured(name: str, *, train: bool = False) -> CapturedPass:
    options = RunOptions(train=train, device="cpu", seq=MODELS[name].get("seq"))
    return capture_pass(name, None, options, on="cpu")


@cache
def worked_out(name: str, *, train: bool) -> tuple[tuple[FusedOperator, ...], ModelWork]:
    records = captured(name, train=train).capture.records
    return fused_traffic(records), model_work(records)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("machine", ["h100", "epyc-9654", "10980xe-measured"])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_no_minimum_time_is_above_a_weaker_one(
    name: str, machine: str, *, train: bool, cold: bool
) -> None:
    hardware = load_hardware(machine)
    roof = Roof(hardware, hardware.threads)
    records = captured(name, train=train).capture.records
    reuse = captured(name, train=train).reuse
    placements = place(records, reuse, roof, cache="cold" if cold else "steady")
    fused, work = worked_out(name, train=train)
    eager_s = sum(each.eager_min_time_s or 0.0 for each in placements)
    model_s = model_minimum(work, roof, cold=cold).time_s
    # Before any of them is held to the others.
    assert 0 < model_s <= eager_s * (1 + 1e-9)
    kernels = kernel_minimums(placements, fused, roof, cold=cold)
    assert sum(each.time_s for each in kernels.values()) <= eager_s * (1 + 1e-9)
    found = minimum_times(placements, fused, work, roof, cold=cold)
    assert found is not None
    assert found.model.time_s <= found.fused.time_s <= eager_s
    assert set(found.kernels_s) == {
        each.chain for record, each in zip(records, fused, strict=True) if record.state != "free"
    }


def test_kernels_leave_gradients_of_parameters_until_the_pass_ends() -> None:
    """Their memory is not there for what comes after them."""
    name = "conv2d(8,8,3)+batchnorm2d(8)+relu()@14x14"
    records = captured(name, train=True).capture.records
    *before, _last = fused_records(records, worked_out(name, train=True)[0])
    gradients = {
        spec.storage for each in records for spec in each.outputs if spec.role is Role.GRADIENT
    }
    left = gradients.intersection(records[-1].freed)
    assert len(left) >= 4
    assert left.isdisjoint(storage for _, kernel in before for storage in kernel.freed)
