"""Predictions on GPUs: kernels of operators, times, intervals, and what is not predicted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import roofline
from roofline.design.advice.rules import dispatch_bound
from roofline.design.advice.subject import Subject
from roofline.latency.gpu.chips import Chip, chip_of
from roofline.latency.gpu.kernels import Kernel, kernel_of
from roofline.latency.gpu.learned import shipped
from roofline.latency.gpu.predictor import GpuPredictor
from roofline.latency.gpu.times import seconds
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound, Placement
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function
from roofline.workload.operators import State
from tests.unknown_operator import mystery

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def kernels(function: Callable[..., object], *shapes: tuple[int, ...]) -> list[Kernel]:
    found = capture(Function(function), Inputs(*shapes), name="f", run=Run(device="cuda"))
    return [
        kernel_of(Placement(record=each, bound=Bound.MEMORY, eager_min_time_s=None))
        for each in found.records
        if each.state is not State.FREE
    ]


def chip(name: str) -> Chip:
    found = chip_of(load_hardware(name))
    assert found is not None
    return found


# -- chips and kernels -----------------------------------------------------------------------------


def test_figures_of_a_chip_are_those_of_its_data_sheet() -> None:
    found = chip("t4")

    assert (found.multiprocessors, found.l2_bytes, found.power_limit_w) == (40, 4 * 2**20, 70)
    assert found.gemm_flop_per_s("float16") == pytest.approx(65.1e12, rel=0.01)
    assert found.gemm_flop_per_s("bfloat16") is None
    assert found.generation == 1
    assert (chip("p4").generation, chip("a100").generation, chip("l4").generation) == (0, 2, 3)


def test_architectures_of_equal_types_differ_by_float64() -> None:
    assert chip("h100").architecture != chip("l4").architecture
    assert chip("a100").architecture != chip("rtx-3090").architecture
    assert chip("a100").architecture == chip("a100-pcie-40gb").architecture


@pytest.mark.parametrize("name", ["mi300x", "10980xe", "m2-ultra"])
def test_other_machines_are_no_chips(name: str) -> None:
    assert chip_of(load_hardware(name)) is None


def test_what_a_machine_file_lacks_is_assumed_and_named() -> None:
    whole = load_hardware("v100-pcie-32gb")
    bare = replace(whole, multiprocessors=None, power_limit_w=None, memory=whole.memory[-1:])

    found = chip_of(bare)

    assert found is not None
    assert found.assumed == ("multiprocessors", "L2 capacity", "power limit")


def test_kernels_have_the_sizes_of_their_operators() -> None:
    (product,) = kernels(torch.mm, (128, 64), (64, 32))
    (batched,) = kernels(torch.bmm, (4, 128, 64), (4, 64, 32))
    (convolution,) = kernels(
        lambda x, w: torch.conv2d(x, w, padding=1), (8, 16, 14, 14), (32, 16, 3, 3)
    )
    (depthwise,) = kernels(
        lambda x, w: torch.conv2d(x, w, padding=1, groups=64), (2, 64, 28, 28), (64, 1, 3, 3)
    )
    (softmax,) = kernels(lambda x: x.softmax(-1), (6, 50, 70))

    assert (product.kind, product.batch, product.m, product.n, product.k) == (
        "gemm",
        1,
        128,
        32,
        64,
    )
    assert (batched.kind, batched.batch) == ("batched gemm", 4)
    assert convolution.kind == "convolution"
    assert (convolution.m, convolution.n, convolution.k) == (8 * 14 * 14, 32, 16)
    assert convolution.taps == 9
    assert convolution.layout_bytes == 4 * 8 * 14 * 14 * (16 + 32)
    assert (depthwise.kind, depthwise.batch, depthwise.layout_bytes) == ("depthwise", 64, 0)
    assert (softmax.kind, softmax.k, softmax.elements) == ("softmax", 70, 6 * 50 * 70)


# -- times -----------------------------------------------------------------------------------------

GPUS = ("p4", "p100", "v100-pcie-32gb", "t4", "a100", "rtx-3090", "rtx4090", "l4", "h100", "b200")


def gemm(m: float, n: float, k: float, dtype: str = "float32") -> Kernel:
    byte = (m * k + k * n + m * n) * (4 if dtype == "float32" else 2)
    return Kernel(kind="gemm", dtype=dtype, m=m, n=n, k=k, dram_bytes=byte)


def add(elements: float) -> Kernel:
    return Kernel(kind="add", dtype="float32", elements=elements, dram_bytes=12 * elements)


@pytest.mark.parametrize("name", GPUS)
def test_large_kernels_stay_near_their_ceilings(name: str) -> None:
    """Half of the peak at the least where power allows it; never more than boost clocks give."""
    of = chip(name)
    flop = 2 * 4096.0**3
    product_s, add_s = seconds([gemm(4096, 4096, 4096), add(2**28)], of, shipped())

    assert 0.25 < flop / of.float32_flop_per_s / product_s < 1.2
    assert 0.6 < 12 * 2**28 / of.dram_bytes_per_s / add_s < 1.1


@pytest.mark.parametrize("name", GPUS)
def test_more_work_takes_longer(name: str) -> None:
    sizes = [2.0**n for n in range(7, 14)]
    of = chip(name)

    products = seconds([gemm(each, 1024, 1024) for each in sizes], of, shipped())
    adds = seconds([add(each**2) for each in sizes], of, shipped())

    assert (np.diff(adds) > 0).all()
    # Tiles quantize sizes: a larger product may take as long as a smaller one.
    assert (products[1:] >= 0.9 * products[:-1]).all()
    assert products[-1] > 4 * products[0]


MEASURED = [
    # Tesla V100-PCIE-32GB, A100-PCIE-40GB: rows of the public source that constants follow from.
    ("v100-pcie-32gb", Kernel(kind="softmax", dtype="float32", k=1024, elements=2**26,
                              dram_bytes=2**29), 8 * 2**26 / 900e9 / 0.82),
    ("a100-pcie-40gb", gemm(8192, 4096, 1024), 2 * 8192 * 4096 * 1024 / 19.5e12 / 0.80),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel", "time_s"), MEASURED)
def test_times_are_near_published_ones(name: str, kernel: Kernel, time_s: float) -> None:
    (found_s,) = seconds([kernel], chip(name), shipped())

    assert found_s == pytest.approx(time_s, rel=0.25)


def test_rows_that_are_no_multiples_of_a_vector_slow_16_bit_products() -> None:
    """96 x 3137 x 64 x 3137 took 1.70 ms on an H100 (TraceLens's TimeSformer): 71 TFLOP/s."""
    odd, even = (
        replace(gemm(n, 64, n, "bfloat16"), kind="batched gemm", batch=96.0) for n in (3137, 3136)
    )
    of = chip("h100")

    odd_s, even_s = seconds([odd, even], of, shipped())

    assert odd_s > 1.5 * even_s
    assert odd_s == pytest.approx(1.70e-3, rel=0.25)


def test_attention_waits_for_softmax_and_leaves_multiprocessors_idle() -> None:
    of = chip("h100")
    few, many, wide = (
        Kernel(kind="attention", dtype="bfloat16", batch=batch, m=1024, n=1024, k=k)
        for batch, k in ((2, 64), (16, 64), (16, 32))
    )

    few_s, many_s, wide_s = seconds([few, many, wide], of, shipped())

    assert few_s > 0.9 * many_s
    assert wide_s == pytest.approx(many_s)


def test_patches_of_images_fill_channels_of_tensor_cores() -> None:
    of = chip("h100")
    small, patch = (
        Kernel(kind="first convolution", dtype="bfloat16", m=2**18, n=1024, k=3, taps=taps)
        for taps in (49, 196)
    )

    small_s, patch_s = seconds([small, patch], of, shipped())

    assert patch_s > 20 * small_s


def test_a_power_limit_slows_float32_products() -> None:
    limited = chip("l4")
    free = replace(limited, power_limit_w=None)
    product = gemm(8192, 8192, 8192)

    (limited_s,), (free_s,) = (seconds([product], each, shipped()) for each in (limited, free))

    assert limited_s > 1.5 * free_s


# -- predictions of models -------------------------------------------------------------------------


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten())


SHAPE = (64, 3, 128, 128)


def predicted(hardware: str | HardwareProfile, **run: object) -> roofline.Analysis:
    return roofline.predict(net(), SHAPE, hardware=hardware, **run)  # pyright: ignore


def test_a_pass_on_a_gpu_has_a_time_with_an_interval_and_its_source() -> None:
    found = predicted("l4")

    run = found.prediction
    assert run is not None
    assert found.totals.eager_min_time_s is not None
    assert found.totals.eager_min_time_s < run.predicted_s < 10 * found.totals.eager_min_time_s
    assert run.low_s < run.predicted_s < run.high_s < 3 * run.low_s
    assert "GPU" in run.calibration
    assert all(row.predicted_s for row in found.operators if row.state is not State.FREE)


def test_torch_compile_saves_the_traffic_of_chains() -> None:
    found = predicted("rtx4090", autocast="float16")

    assert found.prediction is not None
    assert found.compiled_prediction is not None
    assert found.compiled_prediction.predicted_s < found.prediction.predicted_s


def test_unknown_figures_widen_the_interval() -> None:
    whole = load_hardware("rtx-3090")
    bare = replace(whole, name="bare", power_limit_w=None)

    runs = [predicted(each).prediction for each in (whole, bare)]

    known, lacking = (math.log(each.high_s / each.low_s) for each in runs if each)
    assert lacking > 1.3 * known


def product_on(name: str) -> roofline.OperatorRow:
    model = nn.Linear(512, 512, bias=False)
    rows = roofline.predict(model, (256, 512), hardware=name).operators
    (product,) = [each for each in rows if each.type == "matrix product"]
    return product


def test_an_architecture_without_measurements_is_extrapolated() -> None:
    far, known = product_on("l4"), product_on("t4")

    assert far.prediction_source is not None
    assert far.prediction_source.startswith("extrapolated")
    assert known.prediction_source is not None
    assert known.prediction_source.startswith("learned")
    widths = [
        math.log(each.predicted_high_s / each.predicted_low_s)
        for each in (far, known)
        if each.predicted_high_s and each.predicted_low_s
    ]
    # The file has five digits.
    assert widths[0] == pytest.approx(2 * widths[1], rel=1e-4)


def test_a_pass_that_the_host_dispatches_slowly_is_launch_bound() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(50)))

    found = roofline.advise(model, (8, 64), hardware="h100")

    run = found.analysis.prediction
    assert run is not None
    assert run.overhead_s is not None
    assert run.overhead_s > 0.5 * run.predicted_s
    assert "launch-bound" in found.analysis.summary
    (finding,) = [each for each in found.findings if each.rule == "dispatch overhead"]
    assert finding.saving_s == pytest.approx(run.overhead_s)
    assert "CUDA graphs" in finding.change


def test_measured_passes_have_no_launch_bound_finding_from_predictions() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(50)))
    found = roofline.predict(model, (8, 64), hardware="h100")
    rows = tuple(replace(each, measured_s=1e-5) for each in found.operators)

    totals = replace(found.totals, measured_s=sum(each.measured_s or 0.0 for each in rows))

    predictor = GpuPredictor(chip=chip("h100"))
    measured = Subject(analysis=replace(found, operators=rows, totals=totals), predictor=predictor)

    assert measured.kind == "measured"
    assert dispatch_bound(Subject(analysis=found, predictor=predictor))
    assert not dispatch_bound(measured)


def test_a_pass_that_kernels_limit_is_not_launch_bound() -> None:
    found = roofline.advise(nn.Linear(8192, 8192), (8192, 8192), hardware="h100")

    assert "launch-bound" not in found.analysis.summary
    assert "dispatch overhead" not in {each.rule for each in found.findings}


def test_operators_of_unknown_flop_leave_the_pass_without_a_prediction_and_a_fix() -> None:
    found = roofline.predict(lambda x: mystery(x).relu(), (8, 64), hardware="h100")

    assert found.prediction is None
    assert "unknown FLOP of roofline_tests.mystery; add a formula" in found.not_predicted


@pytest.mark.parametrize("name", ["mi300x", "m2-ultra"])
def test_machines_without_similar_measurements_have_minimum_times_only(name: str) -> None:
    found = roofline.analyze(net(), SHAPE, hardware=name)

    assert found.prediction is None


def test_types_that_a_gpu_lacks_are_not_predicted() -> None:
    found = roofline.analyze(nn.Linear(64, 64), (8, 64), hardware="t4", dtype="bfloat16")

    assert found.prediction is None


# -- what was learned ------------------------------------------------------------------------------


def test_constants_are_those_of_the_script() -> None:
    names = ("gpu_learning.py", "gpu_rows.py")
    content = b"".join((BENCHMARKS / name).read_bytes() for name in names)

    assert shipped().digest == hashlib.sha256(content).hexdigest()


def test_every_group_names_its_source() -> None:
    for each in shipped().groups:
        assert each.source
        assert each.rows > 0
        assert 0 < each.deviation < 1


def test_a_measurement_of_the_judged_chip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_accuracy  # pyright: ignore[reportMissingImports]
    import gpu_rows  # pyright: ignore[reportMissingImports]

    one = gpu_rows.Measured(
        "NVIDIA A100-SXM4-40GB",
        "gemm",
        "float32",
        (gemm(512, 512, 512),),
        np.array([1e-4]),
        np.array([True]),
    )
    data = gpu_accuracy.Data([one])

    # Another board of the chip.
    with pytest.raises(gpu_accuracy.LeakError, match="a100"):
        gpu_accuracy.learn_without(data, gpu_rows.chip("NVIDIA A100-PCIE-40GB")[0])
    assert not data.without("a100").rows


def test_a_trace_of_the_judged_chip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_accuracy  # pyright: ignore[reportMissingImports]
    import gpu_rows  # pyright: ignore[reportMissingImports]

    whole = gpu_rows.Whole("h100", "a", "a", (gemm(512, 512, 512),), (1,), 1e-4)
    data = gpu_accuracy.Data([], traces=[gpu_rows.Trace((), whole)])

    with pytest.raises(gpu_accuracy.LeakError, match="h100"):
        gpu_accuracy.learn_without(data, "h100")
    assert not data.without("h100").traces


def test_an_operator_of_unknown_arithmetic_is_not_predicted() -> None:
    found = roofline.analyze(lambda x: mystery(x).relu(), (64, 64), hardware="t4")

    unknown, relu = [each for each in found.operators if each.state is not State.FREE]
    assert unknown.state is State.UNKNOWN and unknown.predicted_s is None
    assert relu.predicted_s
    assert found.prediction is None and found.compiled_prediction is None


def test_products_without_a_formula_are_not_taken_for_traffic() -> None:
    integers = torch.ones(32, 32, dtype=torch.int8)
    (row,) = roofline.analyze(torch.ops.aten._int_mm, [integers, integers], hardware="t4").operators

    assert row.macs == 32**3
    assert row.predicted_s is None


@pytest.mark.parametrize("name", ["t4", "rtx4090", "h100", "b200"])
@pytest.mark.parametrize("model", ["resnet18", "mobilenet_v2", "vit_b_16"])
def test_no_prediction_is_below_the_minimum_time(name: str, model: str) -> None:
    """Activations of one image stay in a large L2, whose bandwidth bounds them."""
    found = roofline.analyze(model, hardware=name)

    for row in found.operators:
        if row.state is not State.FREE:
            assert row.predicted_s is not None
            assert row.eager_min_time_s is not None
            assert row.predicted_s >= row.eager_min_time_s
    assert found.prediction is not None
    assert found.compiled_prediction is not None
    assert found.totals.model_min_time_s is not None
    assert found.compiled_prediction.predicted_s >= found.totals.model_min_time_s


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_no_convolution_exceeds_the_peak_of_a_board_for_hpc(machine: str, dtype: str) -> None:
    found = roofline.analyze(
        nn.Conv2d(256, 256, 3, padding=1),
        "256x256x56x56",
        hardware=machine,
        dtype=dtype,
        channels_last=True,
    )
    (row,) = [each for each in found.operators if each.macs]
    peaks = {"h100": {"float16": 989.4e12, "float32": 494.7e12}}
    peaks["a100"] = {"float16": 312e12, "float32": 156e12}
    assert row.predicted_s and row.macs
    assert 2 * row.macs / row.predicted_s < peaks[machine][dtype]


def test_intervals_begin_at_the_minimum_time() -> None:
    found = roofline.analyze(
        nn.Conv2d(32, 32, 3, padding=1),
        "256x32x56x56",
        hardware="h100",
        channels_last=True,
    )
    assert found.prediction and found.totals.eager_min_time_s
    assert found.prediction.low_s >= found.totals.eager_min_time_s
    assert all(
        each.predicted_low_s >= each.eager_min_time_s
        for each in found.operators
        if each.predicted_low_s and each.eager_min_time_s
    )
