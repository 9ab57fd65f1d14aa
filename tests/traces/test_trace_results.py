"""Traces as results: counts, times, the machine, and traces of torch's own profiler."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

import roofline
from roofline.cli.main import run
from roofline.errors import FileFormatError, HardwareError, InputError
from roofline.pipeline.traces import element_type, read_trace
from roofline.result import read_result
from roofline.traces.advice import TraceAdvice, with_storages
from roofline.traces.result import TraceAnalysis, short_kernel

from .events import H100, PRODUCT, Events, product_step


def steps(tmp_path: Path, *, number: int = 3, **top: Any) -> Path:
    events = Events(**top)
    for step in range(number):
        start = 100.0 * step
        events.add("user_annotation", f"ProfilerStep#{step}", start, 90)
        product_step(events, start, wait=10 + step)
    return events.save(tmp_path / "t.json")


def test_an_operator_is_counted_timed_and_placed(tmp_path: Path) -> None:
    found = read_trace(steps(tmp_path))
    (row,) = found.operators
    assert (row.op, row.flop, row.macs) == ("aten.mm", 2 * 8 * 16 * 32, 8 * 16 * 32)
    assert row.traffic_bytes == 2 * (8 * 16 + 16 * 32 + 8 * 32)
    assert row.measured_times_s == pytest.approx((5e-6,) * 3)
    assert found.hardware.name == "h100"
    assert found.machine_source == "device 'NVIDIA H100 80GB HBM3'"
    assert found.modeled_share == found.linked_share == 1
    assert row.eager_min_time_s is not None
    assert 0 < row.eager_min_time_s < 5e-6
    assert len(found.steps) == 3


def test_one_step_can_be_chosen(tmp_path: Path) -> None:
    path = steps(tmp_path)
    assert [each.name for each in read_trace(path, step=1).steps] == ["step 1"]
    with pytest.raises(InputError, match=r"step=9: no such step; the trace has steps 0, 1, 2"):
        read_trace(path, step=9)


def test_what_cannot_be_counted_keeps_its_time(tmp_path: Path) -> None:
    events = Events()
    product_step(events)
    number = events.operator("mylab::soft_clip", 50, 5, **PRODUCT)
    events.kernel("soft_clip", 60, 15, correlation=events.launch(51), **{"External id": number})
    found = read_trace(events.save(tmp_path / "t.json"))
    (other,) = found.unmodeled
    assert (other.operator, other.calls) == ("mylab::soft_clip", 1)
    assert other.time_s == pytest.approx(15e-6)
    assert "no mylab.soft_clip" in other.reason
    assert found.modeled_share == pytest.approx(0.25)


def test_shapes_that_do_not_fit_the_operator_are_no_count(tmp_path: Path) -> None:
    events = Events()
    wrong = {**PRODUCT, "Input Dims": [[8, 16], [17, 32]]}
    for place, dims in enumerate(
        ([[8, 16], [17, 32]], [[8, -16], [16, 32]], [["x"], [16, 32]], [])
    ):
        start = 100 * place
        number = events.operator("aten::mm", start, 5, **{**wrong, "Input Dims": dims})
        correlation = events.launch(start + 1)
        events.kernel("mm", start + 9, 15, correlation=correlation, **{"External id": number})
    found = read_trace(events.save(tmp_path / "t.json"))
    assert not found.operators
    assert sum(each.calls for each in found.unmodeled) == 4


@pytest.mark.parametrize(
    ("name", "dims", "values"),
    [
        ("aten::slice", [[8], [], [], [], []], ["", "1", "0", "4", "1"]),
        ("aten::sum", [[8], [], [], []], ["", f"[{10**30}]", "False", ""]),
        ("aten::sum", [[8], [], [], []], ["", "[0]", "False", str(-(10**30))]),
    ],
)
def test_values_that_do_not_fit_the_operator_are_no_count(
    tmp_path: Path, name: str, dims: Any, values: Any
) -> None:
    events = Events()
    types = ["float", *["Scalar"] * (len(dims) - 1)]
    logged: Any = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
    link: Any = {"External id": events.operator(name, 0, 5, **logged)}
    events.kernel("k", 9, 15, correlation=events.launch(1), **link)
    found = read_trace(events.save(tmp_path / "t.json"))
    assert not found.operators
    assert found.unmodeled[0].time_s == pytest.approx(15e-6)


def test_the_machine_is_named_inferred_or_asked_for(tmp_path: Path) -> None:
    nameless = {**H100, "name": ""}
    assert read_trace(steps(tmp_path, deviceProperties=[nameless])).hardware.name == "h100"
    # 108 multiprocessors and 42 GB: with SXM or PCIe.
    several = {**nameless, "numSms": 108, "totalGlobalMem": 42_298_834_944}
    with pytest.raises(HardwareError, match=r"may be a100-40gb, a100-pcie-40gb.*hardware") as error:
        read_trace(steps(tmp_path, deviceProperties=[several]))
    assert "\n" not in str(error.value)
    amd = {**nameless, "totalGlobalMem": 206_141_652_992, "numSms": 304}
    found = read_trace(steps(tmp_path, deviceProperties=[amd]))
    assert (found.hardware.name, found.machine_source[:8]) == ("mi300x", "inferred")
    with pytest.raises(HardwareError, match="does not name its device"):
        read_trace(steps(tmp_path, deviceProperties=[]))
    assert read_trace(steps(tmp_path, deviceProperties=[]), hardware="v100").machine_source == ""


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    events = Events()
    number = events.operator("aten::mm", 0, 6)
    events.kernel("gemm", 10, 5, correlation=events.launch(2), **{"External id": number})
    found = read_trace(events.save(tmp_path / "t.json"))
    assert found.kernel_s == pytest.approx(5e-6)
    assert not found.operators
    assert any("record_shapes=True" in each for each in found.warnings)
    assert "0 % of kernel time has shapes" in found.summary


def test_types_that_were_not_logged_follow_from_kernels_that_name_one(tmp_path: Path) -> None:
    events = Events()
    dims = {"Input Dims": PRODUCT["Input Dims"], "Input type": []}
    kernels = (
        ("aten::mm", ("gemm<float>", "volta_sgemm")),
        ("aten::mm", ("volta_sgemm",)),
        ("aten::mm", ("gemm<float>", "gemm<c10::Half>")),
        ("aten::mm", ("copy<float, LoadWithCast<1>>",)),
        # The factor of the sum was not logged either.
        ("aten::addmm", ("gemm<float>",)),
    )
    for place, (name, launched) in enumerate(kernels):
        start = 100.0 * place
        shapes: Any = [[32], *dims["Input Dims"], [], []] if name == "aten::addmm" else None
        given: Any = {**dims, "Input Dims": shapes} if shapes else dims
        number = events.operator(name, start, 5, **given)
        for offset, kernel in enumerate(launched):
            link: Any = {"External id": number}
            correlation = events.launch(start + 1 + offset)
            events.kernel(kernel, start + 9 + 10 * offset, 4, correlation=correlation, **link)
    found = read_trace(events.save(tmp_path / "t.json"))
    (row,) = found.operators
    assert (row.op, row.flop) == ("aten.mm", 2 * 8 * 16 * 32)
    assert row.traffic_bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    reasons = Counter({each.reason: each.calls for each in found.unmodeled})
    assert reasons["types of its arguments were not logged"] == 3
    assert reasons["the value of 'beta' was not logged"] == 1
    assert any("types follow from kernel names" in each for each in found.warnings)


def test_results_are_saved_and_read_without_loss(tmp_path: Path) -> None:
    events = Events()
    hostile = "</script><b>\x1b[31m|`"
    number = events.operator(hostile, 0, 6, **PRODUCT)
    events.kernel(hostile, 10, 5, correlation=events.launch(2), **{"External id": number})
    product_step(events, 50)
    found = read_trace(events.save(tmp_path / "t.json"))
    paths = [tmp_path / f"r{suffix}" for suffix in TraceAnalysis.suffixes]
    found.save(*paths)
    assert read_result(tmp_path / "r.json") == found
    for path in paths:
        if path.suffix in (".md", ".html", ".svg"):
            text = path.read_text(encoding="utf-8")
            assert "\x1b" not in text
            assert "</script><b>" not in text
    data = json.loads((tmp_path / "r.json").read_text())
    assert "parameters" not in data


@pytest.mark.parametrize(
    ("kernel", "element"),
    [
        (
            "CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned>",
            "BFloat16",
        ),
        ("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>>", "Half"),
        ("gemm_kernel<float, 128>", "float"),
        ("sm90_xmma_gemm", ""),
    ],
)
def test_element_types_are_read_from_kernel_names(kernel: str, element: str) -> None:
    assert element_type(kernel) == element


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, stride=2)
        self.norm = torch.nn.BatchNorm2d(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x))).flatten(2).transpose(1, 2)
        # Different tensors: a trace does not tell that two operands are one.
        z = y + self.attention(y, torch.relu(y), torch.tanh(y), need_weights=False)[0]
        return self.head(torch.cat([y, z], 1).mean(1))


def recorded(run: Any, path: Path) -> Path:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        run()
    recording.export_chrome_trace(str(path))
    return path


def work_of(found: Any) -> Counter[tuple[str, int | None, int]]:
    # Linear layers add their bias in place, where captures have a new tensor.
    return Counter(
        (row.op.rstrip("_"), row.flop, row.traffic_bytes)
        for row in found.operators
        if row.state != "free"
    )


def test_a_trace_of_torchs_profiler_has_the_counts_of_analyze(tmp_path: Path) -> None:
    model, x = Block().eval(), torch.randn(2, 3, 32, 32)
    machine = "10980xe"
    with torch.no_grad():
        path = recorded(lambda: model(x), tmp_path / "t.json")
    found = read_trace(path, hardware=machine)
    expected = roofline.analyze(model, x, hardware=machine)
    assert not found.unmodeled
    assert work_of(found) == work_of(expected)


def test_a_traced_training_step_has_the_flop_of_analyze(tmp_path: Path) -> None:
    model, x = Block(), torch.randn(2, 3, 32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        torch.nn.functional.cross_entropy(model(x), torch.ones(2, dtype=torch.long)).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    found = read_trace(recorded(step, tmp_path / "t.json"), hardware="10980xe")
    expected = roofline.analyze(model, x, train=True, optimizer="sgd", hardware="10980xe")
    assert not found.unmodeled
    by_phase: dict[str, Counter[str]] = {"trace": Counter(), "analyze": Counter()}
    for name, result in (("trace", found), ("analyze", expected)):
        for row in result.operators:
            by_phase[name][row.phase] += row.flop or 0
    assert by_phase["trace"] == by_phase["analyze"]


def test_an_execution_trace_brings_the_shapes_that_a_trace_lacks(tmp_path: Path) -> None:
    model, x = Block().eval(), torch.randn(2, 3, 32, 32)
    path, execution = tmp_path / "t.json", tmp_path / "e.json"
    observer = ExecutionTraceObserver().register_callback(str(execution))
    with (
        torch.no_grad(),
        profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as recording,
    ):
        model(x)
    recording.export_chrome_trace(str(path))
    expected = work_of(roofline.analyze(model, x, hardware="10980xe"))
    assert not read_trace(path, hardware="10980xe").operators
    found = read_trace(path, hardware="10980xe", execution=execution)
    assert work_of(found) == expected
    assert found.measured_s
    alone = read_trace(execution, hardware="10980xe")
    assert work_of(alone) == expected
    assert alone.measured_s is alone.kernel_s is alone.modeled_share is None
    assert "no kernel times" in alone.summary
    assert alone.to_frame()["measured_s"].isna().all()
    with pytest.raises(InputError, match=r"e.json: has no times; give a trace of a profiler"):
        roofline.TraceComparison.of(found, alone)
    alone.save(tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == alone


def test_ranks_in_one_file_are_refused(tmp_path: Path) -> None:
    events = Events()
    product_step(events)
    for each in [dict(each, pid=2) for each in events.events]:
        events.events.append(each)
    with pytest.raises(FileFormatError, match=r"several processes .*1 and 2.*one rank"):
        read_trace(events.save(tmp_path / "t.json"))


def test_clocks_that_run_backwards_give_no_negative_times(tmp_path: Path) -> None:
    events = Events()
    product_step(events, 100, wait=-40)  # starts before it was launched
    product_step(events, 0)
    found = read_trace(events.save(tmp_path / "t.json"))
    assert found.step is not None
    assert (found.step.host_bound_s or 0.0) >= 0
    assert found.step.idle_s >= 0
    assert len(found.operators) == 2


def test_steps_whose_values_change_are_repetitions(tmp_path: Path) -> None:
    events = Events()
    for step in range(3):
        start = 100.0 * step
        events.add("user_annotation", f"ProfilerStep#{step}", start, 90)
        values: Any = {
            "Input Dims": [[8, 16], [8, 16], []],
            "Input type": ["float", "float", "Scalar"],
            "Input Strides": [[16, 1], [16, 1], []],
            "Concrete Inputs": ["", "", str(0.1 * (step + 1))],
        }
        number = events.operator("aten::add", start, 5, **values)
        link: Any = {"External id": number}
        events.kernel("add", start + 9, 4, correlation=events.launch(start + 1), **link)
    found = read_trace(events.save(tmp_path / "t.json"))
    assert len(found.steps) == 3
    assert not found.warnings
    assert len(found.operators[0].measured_times_s) == 3


def test_the_device_is_the_one_that_ran_the_kernels(tmp_path: Path) -> None:
    other = {**H100, "id": 1, "name": "Tesla T4", "numSms": 40}
    found = read_trace(steps(tmp_path, deviceProperties=[other, H100]))
    assert found.hardware.name == "h100"


@pytest.mark.parametrize(
    "dims",
    [
        *({"a": 1}, 1.5, [-1, 2], [[8, {"a": 1}], [16, 32]], "8x16", [[10**400, 16], [16, 32]]),
        [[8, [16]], [16, 32]],
    ],
)
def test_damaged_shapes_are_left_out_and_counted(tmp_path: Path, dims: Any) -> None:
    events = Events()
    number = events.operator("aten::mm", 0, 6, **{**PRODUCT, "Input Dims": dims})
    events.kernel("gemm", 10, 5, correlation=events.launch(2), **{"External id": number})
    found = read_trace(events.save(tmp_path / "t.json"))
    assert not found.operators
    assert found.kernel_s == pytest.approx(5e-6)
    assert str(found)


def test_names_and_numbers_that_nothing_can_print(tmp_path: Path) -> None:
    events = Events(deviceProperties=[{**H100, "name": "", "totalGlobalMem": 10**400}])
    number = events.operator("my::\ud800", 0, 6, **PRODUCT)
    events.kernel("k" * 10**5, 10, 5, correlation=events.launch(2), **{"External id": number})
    events.add("gpu_memcpy", "Memcpy HtoD", 20, 4, device=0, stream=7, bytes=10**40)
    path = events.save(tmp_path / "t.json")
    with pytest.raises(HardwareError, match="is not known"):
        read_trace(path)
    found = read_trace(path, hardware="h100")
    assert found.copies[0].bytes is None
    assert str(found)
    found.save(tmp_path / "r.json", tmp_path / "r.html")


def test_what_was_cut_is_said_wherever_the_trace_is_used(tmp_path: Path) -> None:
    path, cut = steps(tmp_path), tmp_path / "cut.json"
    cut.write_text(path.read_text()[:-900])
    found = read_trace(path, capture=cut)
    assert "cut.json: the file is cut" in str(found)
    damaged = read_trace(cut)
    for each in (damaged, TraceAdvice.of(damaged), roofline.TraceComparison.of(found, damaged)):
        assert "the file is cut" in str(each)


def test_a_device_is_named_by_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"without a name \(no properties\) is not known"):
        read_trace(steps(tmp_path, deviceProperties=[{}]))
    path = steps(tmp_path, deviceProperties=[])
    path.write_text(path.read_text()[:-900])
    with pytest.raises(HardwareError, match=r"does not name its device \(the file is cut"):
        read_trace(path)


def test_an_operator_without_a_formula_stays_unknown(tmp_path: Path) -> None:
    library = torch.library.Library("tracelab", "FRAGMENT")
    library.define("twice(Tensor x, Tensor y) -> Tensor")
    library.impl("twice", lambda x, y: torch.empty_like(x), "Meta")
    events = Events()
    product_step(events)
    number = events.operator("tracelab::twice", 50, 5, **PRODUCT)
    link: Any = {"External id": number}
    events.kernel("twice", 60, 15, correlation=events.launch(51), **link)
    found = read_trace(events.save(tmp_path / "t.json"))
    assert [row.op for row in found.operators] == ["aten.mm"]
    (other,) = found.unmodeled
    assert "formula" in other.reason
    assert found.modeled_share == pytest.approx(0.25)
    library._destroy()


def test_waiting_for_the_host_is_unknown_without_launches(tmp_path: Path) -> None:
    events = Events()
    for start in (10, 50):
        link: Any = {"External id": events.operator("aten::mm", start, 6, **PRODUCT)}
        events.kernel("gemm", start + 9, 5, **link)
    found = read_trace(events.save(tmp_path / "t.json"))
    assert found.step is not None
    assert found.step.host_bound_s is None
    assert all(each.host_bound_s is None for each in found.gaps)
    assert "host-bound" not in str(found).partition("Longest")[0]


def test_a_wrong_execution_trace_is_refused(tmp_path: Path) -> None:
    path = steps(tmp_path)
    with pytest.raises(FileFormatError, match="is no execution trace"):
        read_trace(path, execution=path)


def test_a_trace_of_a_cpu_without_shapes_has_times(tmp_path: Path) -> None:
    model, x = Block().eval(), torch.randn(2, 3, 32, 32)
    path = tmp_path / "t.json"
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as recording:
        model(x)
    recording.export_chrome_trace(str(path))
    found = read_trace(path, hardware="10980xe")
    assert not found.operators
    assert found.kernel_s
    assert any("record_shapes=True" in each for each in found.warnings)


def test_an_operator_of_a_cpu_without_a_formula_keeps_its_time(tmp_path: Path) -> None:
    events = Events()
    events.add("python_function", "nn.Module: Net_0", 0, 1000)
    events.operator("mylab::whole", 0, 100)  # its time is that of the product within
    events.operator("aten::mm", 10, 60, **PRODUCT)
    events.operator("mylab::soft_clip", 200, 40, **PRODUCT)
    events.operator("aten::reshape", 300, 9, **PRODUCT)
    events.operator("profiler::_record_function_enter_new", 400, 9, **PRODUCT)
    events.operator("autograd::engine::evaluate_function: MulBackward0", 500, 9)
    found = read_trace(events.save(tmp_path / "t.json"), hardware="10980xe")
    assert [row.op for row in found.operators] == ["aten.mm"]
    ((name, time_s),) = [(each.operator, each.time_s) for each in found.unmodeled]
    assert (name, time_s) == ("mylab::soft_clip", pytest.approx(40e-6))
    assert found.modeled_share == pytest.approx(0.6)


def test_a_comparison_names_what_changed(tmp_path: Path) -> None:
    found: list[TraceAnalysis] = []
    for name, kernel in (("a", "big_a"), ("b", "big_b")):
        events = Events()
        product_step(events)
        large: Any = {**PRODUCT, "Input Dims": [[640, 16], [16, 32]]}
        number = events.operator("aten::mm", 50, 6, **large)
        link: Any = {"External id": number}
        events.kernel(kernel, 60, 5, correlation=events.launch(52), **link)
        if name == "b":
            product_step(events, 100)
        found.append(read_trace(events.save(tmp_path / f"{name}.json")))
    comparison = roofline.TraceComparison.of(*found)
    (other,) = [each for each in comparison.changes if each.is_other_kernel]
    assert (other.inputs, other.kernels_before, other.kernels_after) == (
        "640x16, 16x32",
        ("big_a",),
        ("big_b",),
    )
    (slower,) = [each for each in comparison.changes if each.change == "slower"]
    assert (slower.inputs, slower.calls_before, slower.calls_after) == ("8x16, 16x32", 1, 2)
    assert slower.difference_s == pytest.approx(5e-6)
    comparison.save(tmp_path / "c.json")
    assert read_result(tmp_path / "c.json") == comparison


def test_advice_names_the_wait_for_the_host_and_written_attention(tmp_path: Path) -> None:
    events = Events()
    events.add("user_annotation", "ProfilerStep#1", 0, 1000)
    product: Any = {
        "Input Dims": [[4, 64, 32], [4, 32, 64]],
        "Input type": ["float", "float"],
        "Input Strides": [[2048, 32, 1], [2048, 64, 1]],
        "Concrete Inputs": ["", ""],
    }
    softmax: Any = {
        "Input Dims": [[4, 64, 64], [], []],
        "Input type": ["float", "Scalar", "Scalar"],
        "Input Strides": [[4096, 64, 1], [], []],
        "Concrete Inputs": ["", "-1", "False"],
    }
    back: Any = {**product, "Input Dims": [[4, 64, 64], [4, 64, 32]]}
    back["Input Strides"] = [[4096, 64, 1], [2048, 32, 1]]
    parts = (("aten::bmm", product), ("aten::_softmax", softmax), ("aten::bmm", back))
    events.add("python_function", "nn.Module: SelfAttention_2", 0, 990)
    for place, (name, args) in enumerate(parts):
        start = 300.0 * place
        link: Any = {"External id": events.operator(name, start, 5, **args)}
        events.kernel(name, start + 10, 100, correlation=events.launch(start + 1), **link)
    found = TraceAdvice.of(read_trace(events.save(tmp_path / "t.json")))
    rules = [each.rule for each in found.findings]
    assert {"launch-bound", "attention written out"} <= set(rules)
    attention = next(each for each in found.findings if each.rule == "attention written out")
    assert attention.operators == (0, 1, 2)
    assert attention.predicted_before_s == pytest.approx(300e-6)
    assert attention.evidence.endswith("; most time: bmm, _softmax in SelfAttention")
    assert str(found)


def test_long_waits_are_work_of_the_host_and_short_ones_launches(tmp_path: Path) -> None:
    events = Events()
    events.add("user_annotation", "ProfilerStep#1", 0, 6000)
    for start in (0, 200, 5500):
        product_step(events, start, wait=100)
    found = {
        each.rule: each
        for each in TraceAdvice.of(read_trace(events.save(tmp_path / "t.json"))).findings
    }
    work, launches = found["host work"], found["launch-bound"]
    # From the end of the second kernel to the launch of the third.
    assert work.saving_s == pytest.approx((5502 - 305) * 1e-6, abs=2e-6)
    assert "1 wait" in work.evidence and "DataLoader" in work.change
    assert (launches.saving_s or 0) < 600e-6 and "3 launches" in launches.evidence


def test_operands_of_traces_are_the_latest_outputs_of_their_size(tmp_path: Path) -> None:
    events = Events()
    events.add("user_annotation", "ProfilerStep#1", 0, 1000)

    def call(name: str, dims: list[Any], kinds: str = "") -> None:
        strides = [[shape[1], 1] if len(shape) > 1 else [1] * len(shape) for shape in dims]
        if name == "aten::mm":
            strides[1] = [1, dims[1][0]]
        start = 20.0 * len(events.events)
        types = ["float"] * len(dims) if not kinds else kinds.split()
        given = {"Input Dims": dims, "Input type": types, "Input Strides": strides}
        values: Any = {"Concrete Inputs": ["1" if kind == "Scalar" else "" for kind in types]}
        link: Any = {"External id": events.operator(name, start, 5, **given, **values)}
        events.kernel(name, start + 10, 5, correlation=events.launch(start + 1), **link)

    call("aten::relu", [[64, 32]])
    for _ in "qkv":
        call("aten::mm", [[64, 32], [32, 32]])
    call("aten::add", [[64, 32], [64, 32], []], "float float Scalar")
    trace = read_trace(events.save(tmp_path / "t.json"))
    rows = with_storages(trace.analysis).operators
    (relu,) = rows[0].outputs
    # All three products read the activation, not the result of the product before them.
    assert [row.inputs[0].storage for row in rows[1:4]] == [relu.storage] * 3
    assert {row.inputs[1].role for row in rows[1:4]} == {"parameter"}
    assert len({row.inputs[1].storage for row in rows[1:4]}) == 3
    # The sum reads the latest two.
    assert [each.storage for each in rows[4].inputs[:2]] == [
        rows[place].outputs[0].storage for place in (3, 2)
    ]
    assert rows[4].chain is not None and rows[0].inputs[0].role == "parameter"


def test_bad_files_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{}")
    with pytest.raises(FileFormatError, match="no profiler trace"):
        read_trace(path)


def test_a_saved_trace_is_shown_by_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "r.json"
    read_trace(steps(tmp_path)).save(saved)
    assert run(["show", str(saved), "--by", "kernel"]) == 0
    assert "sm90_gemm" in capsys.readouterr().out
    assert run(["show", str(saved), "--fused"]) == 2
    assert capsys.readouterr().err.endswith(
        f"--fused: {saved} is a trace; --fused takes analyses\n"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("void at::native::(anonymous namespace)::norm<c10::Half>(int, float)", "norm<c10::Half>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        (
            "cutlass::Kernel2<" + "a" * 60 + "_128x64_align8>(P)",
            "cutlass::Kernel2<aaaaaaaaa…28x64_align8>",
        ),
    ],
)
def test_names_of_kernels_keep_their_ends(name: str, words: str) -> None:
    assert short_kernel(name, 40) == words
