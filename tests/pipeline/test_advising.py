"""advise: findings predicted, and tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn

from roofline.analysis import Analysis, Finding
from roofline.core.blocks import Grid, KeyValueBlock, View
from roofline.core.dtypes import dtype
from roofline.core.units import format_percent
from roofline.design.advice.result import Advice
from roofline.design.advice.subject import Alternative, Operator, Proposal, Swap
from roofline.design.advice.whole_model import (
    Outcome,
    Variant,
    outcome_of,
    variants_of,
    without_faults,
)
from roofline.design.comparison.ratios import RoundTime
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError, MeasurementError
from roofline.latency.prediction import RunPrediction
from roofline.machine.hardware import ComputeCeiling, HardwareProfile
from roofline.pipeline.advising import advise
from roofline.pipeline.analyses import add_findings
from roofline.pipeline.timing import Bench
from roofline.pipeline.trials import (
    ChangedCandidate,
    SwapTimes,
    Trial,
    call_of,
    combine_swaps,
    fold_batch_norms,
    saving_of_rounds,
    strides_of,
    time_round,
    with_measured,
)
from roofline.run import RunOptions
from roofline.workload.tensors import TensorSpec
from tests.analysis.examples import dram_profile, full_profile
from tests.design.advice_models import Clock, analysed


def small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()
    )


# What is predicted


def test_other_ways_of_running_a_model_are_those_that_its_operators_call_for() -> None:
    images = analysed(small(), 1, 3, 16, 16, clock=Clock())
    assert [each.name for each in variants_of(images)] == [
        "channels-last",
        "bfloat16",
        "float16",
        "1 thread",
    ]
    weights = analysed(nn.Linear(4096, 4096), 1, 4096, clock=Clock())
    assert [each.name for each in variants_of(weights)] == [
        "bfloat16",
        "float16",
        "batch 8",
        "batch 32",
        "1 thread",
    ]
    halves = analysed(small(), 1, 3, 16, 16, dtype="bfloat16", channels_last=True)
    assert [each.name for each in variants_of(halves)] == ["contiguous", "float32", "1 thread"]
    quantised = analysed(nn.Linear(64, 64), 32, 64)
    first = replace(quantised.operators[0], op="quantized.linear")
    quantised = replace(quantised, operators=(first, *quantised.operators[1:]))
    assert "bfloat16" not in [each.name for each in variants_of(quantised)]
    mixed = analysed(small(), 1, 3, 16, 16, autocast="bfloat16")
    assert [(each.name, dict(each.options)) for each in variants_of(mixed)] == [
        ("channels-last", {"channels_last": True}),
        ("bfloat16 throughout", {"dtype": "bfloat16", "autocast": None}),
        ("float32", {"dtype": None, "autocast": None}),
        ("1 thread", {"threads": 1}),
    ]


def test_weights_that_dominate_are_evidence_for_larger_batches() -> None:
    weights = analysed(nn.Linear(4096, 4096), 1, 4096)
    (eight, _) = [each for each in variants_of(weights) if each.rule == "small batch"]
    # Of 64 MiB of weights those that 32 MiB of L3, and L2 and L1 of two cores, do not keep.
    assert "weights are 100 % of the 31.4 MB" in eight.why
    many = analysed(nn.Linear(256, 256), 4096, 256)
    assert not [each for each in variants_of(many) if each.rule == "small batch"]


def with_pass(analysis: Analysis, time_s: float, uncertainty_s: float) -> Analysis:
    return replace(
        analysis,
        prediction=RunPrediction(
            predicted_s=time_s,
            low_s=time_s - uncertainty_s,
            high_s=time_s + uncertainty_s,
            operators_s=time_s,
            overhead_s=None,
            calibration="a test",
        ),
    )


def test_page_faults_call_for_other_settings_of_the_allocator() -> None:
    analysis = with_pass(analysed(small(), 1, 3, 8, 8), 32e-3, 3e-3)
    assert analysis.prediction is not None
    faulting = replace(
        analysis,
        prediction=replace(
            analysis.prediction, operators_s=20e-3, page_faults=6400, tunables="a=1:b=2"
        ),
    )
    (variant,) = (each for each in variants_of(faulting) if each.rule == "allocator")
    finding = without_faults(variant, faulting).finding
    assert finding is not None
    assert (finding.predicted_before_s, finding.predicted_after_s) == (32e-3, 20e-3)
    assert finding.evidence == "6,400 page faults per pass cost 12.0 ms of 32.0 ms (37.5 %)"
    assert finding.change == "set GLIBC_TUNABLES=a=1:b=2 (or preload jemalloc)"
    assert variant.environment == {"GLIBC_TUNABLES": "a=1:b=2"}
    assert not [each for each in variants_of(analysis) if each.rule == "allocator"]


@pytest.mark.parametrize(
    ("after_s", "uncertainty_s", "is_finding", "is_open"),
    [
        (40e-3, 3e-3, True, False),
        (97e-3, 3e-3, False, True),
        (103e-3, 3e-3, False, True),
        (150e-3, 3e-3, False, False),
        (99.9e-3, 1e-6, False, False),
    ],
    ids=["faster", "maybe faster", "maybe slower", "slower", "hardly faster"],
)
def test_a_variant_is_a_finding_if_predictions_can_tell(
    after_s: float, uncertainty_s: float, is_finding: bool, is_open: bool
) -> None:
    analysis = analysed(small(), 1, 3, 16, 16, clock=Clock())
    variant = Variant(rule="a rule", name="another way", change="do it")
    before = with_pass(analysis, 100e-3, 4e-3 if uncertainty_s > 1e-3 else 1e-6)
    found = outcome_of(variant, before, with_pass(analysis, after_s, uncertainty_s))
    assert (found.finding is not None, found.is_open) == (is_finding, is_open)
    if found.finding:
        # 3 and 4 make 5.
        assert found.finding.saving_low_s == pytest.approx(55e-3)
        assert found.finding.saving_high_s == pytest.approx(65e-3)
    else:
        assert "instead of 100 ms" in found.words


def test_of_a_larger_batch_the_time_of_as_many_samples_counts() -> None:
    analysis = analysed(small(), 1, 3, 16, 16, clock=Clock())
    variant = Variant(rule="small batch", name="batch 8", samples=8, change="do it")
    found = outcome_of(
        variant, with_pass(analysis, 10e-3, 1e-6), with_pass(analysis, 16e-3, 1e-6)
    ).finding
    assert found is not None
    assert found.saving_s == pytest.approx(8e-3)


def test_a_type_that_torch_has_no_kernels_for_is_said_to_be_slow() -> None:
    fast = full_profile()
    slow = replace(
        fast.compute[-2],
        dtype=fast.compute[0].dtype,
        peak_flop_per_s=208e9,
        sustained_flop_per_s=1e9,
    )
    half = replace(slow, dtype=dtype("float16"), peak_flop_per_s=7e9)
    profile = replace(fast, compute=(*fast.compute, half))
    analysis = analysed(nn.Linear(64, 64), 8, 64, clock=Clock(), profile=profile)
    other = analysed(nn.Linear(64, 64), 8, 64, profile=profile, dtype="float16")
    variant = Variant(rule="lower precision", name="float16", change="do it")
    found = outcome_of(variant, analysis, other)
    # 2 * 8 * 64 * 64 FLOP at 7 GFLOP/s take 9.36 µs; at 208 GFLOP/s they take 315 ns.
    assert found.words == "float16: 9.36 µs instead of 315 ns (library minimum)"
    assert not found.is_open


def test_an_unreliable_rate_of_the_library_decides_nothing() -> None:
    profile = full_profile()
    rates = [each for each in profile.compute if each.kernel == "gemm"]
    one = replace(rates[0], threads=1, peak_flop_per_s=145e9, sustained_flop_per_s=140e9)
    team = replace(rates[0], peak_flop_per_s=4e9, sustained_flop_per_s=4e9)
    doubtful = replace(team, doubt="slower than on 1 thread")

    def on(*compute: ComputeCeiling) -> HardwareProfile:
        others = [each for each in profile.compute if each.kernel != "gemm"]
        hardware = [
            replace(
                each,
                threads=1,
                peak_flop_per_s=each.peak_flop_per_s / 2,
                sustained_flop_per_s=each.sustained_flop_per_s / 2,
            )
            for each in others
            if each.kind == "hardware"
        ]
        return replace(profile, compute=(*others, *hardware, *compute))

    variant = Variant(rule="number of threads", name="1 thread", change="do it")
    for compute, is_found in (((one, team), True), ((one, doubtful), False)):
        before = analysed(nn.Linear(1024, 1024), 512, 1024, profile=on(*compute))
        after = replace(before, threads=1)
        outcome = outcome_of(variant, before, after)
        assert (outcome.finding is not None) is is_found
    assert outcome.words == (
        "1 thread: not judged: the rate of float32 GEMM on 2 threads is unreliable; measure again"
    )
    assert outcome.is_open


def with_library_bfloat16() -> HardwareProfile:
    """A machine whose library reaches twice the rate of float32 in bfloat16."""
    profile = full_profile()
    half = replace(
        next(each for each in profile.compute if each.kernel == "gemm"),
        dtype=dtype("bfloat16"),
        peak_flop_per_s=416e9,
    )
    return replace(profile, compute=(*profile.compute, half))


def test_a_type_without_predictions_is_judged_by_what_the_library_reaches() -> None:
    """Where types have measured ceilings of the library, those of the hardware do not count."""
    profile, measured = full_profile(), with_library_bfloat16()
    # Compute-bound: a matrix of 512 KiB in bfloat16, 128 FLOP per byte and more.
    model, shape = nn.Linear(512, 512, bias=False), (512, 512)
    variant = Variant(rule="lower precision", name="bfloat16", change="do it")

    def found_on(machine: HardwareProfile, clock: Clock | None) -> Finding:
        before = analysed(model, *shape, clock=clock, profile=machine)
        after = analysed(model, *shape, profile=machine, dtype="bfloat16")
        found = outcome_of(variant, before, after).finding
        assert found is not None
        return found

    flop = 2 * 512**3
    for clock in (None, Clock()):
        found = found_on(measured, clock)
        assert found.basis == "library"
        assert found.predicted_before_s == pytest.approx(flop / 208e9)
        assert found.predicted_after_s == pytest.approx(flop / 416e9)
    # Without a ceiling of the library in one of the types: minimum times.
    found = found_on(profile, None)
    assert found.basis == "bound"
    assert found.predicted_before_s == pytest.approx(flop / 523e9)
    assert found.predicted_after_s == pytest.approx(flop / 1046e9)


def test_a_comparison_of_types_states_what_the_library_reaches() -> None:
    """The hardware is 1046 to 523 GFLOP/s, the library 416 to 208: twice in both."""
    model, shape = nn.Linear(512, 512, bias=False), (512, 512)

    def sentence(machine: HardwareProfile, *types: str) -> str:
        found = [analysed(model, *shape, profile=machine, dtype=each) for each in types]
        return Comparison.of(found, names=["a", "b"]).summary

    twice = sentence(with_library_bfloat16(), "float32", "bfloat16")
    assert "2× shorter minimum time (2× shorter at the measured rates of torch)" in twice
    for same in (
        sentence(full_profile(), "float32", "bfloat16"),
        sentence(with_library_bfloat16(), "bfloat16", "bfloat16"),
    ):
        assert "minimum time" in same and "rates of torch" not in same


def test_advise_of_a_machine_without_calibration_says_what_bounds_say() -> None:
    advice = advise(nn.Linear(1024, 1024), (1, 1024), hardware=dram_profile())
    assert {each.basis for each in advice.findings} == {"bound"}
    rules = [each.rule for each in advice.findings]
    assert "small batch" in rules and "lower precision" in rules
    savings = [each.saving_s or 0.0 for each in advice.findings]
    assert savings == sorted(savings, reverse=True)


def test_the_longest_layers_are_shares_of_a_pass_with_its_overhead() -> None:
    analysis = analysed(small(), 1, 3, 64, 64, clock=Clock())
    operators_s = analysis.totals.predicted_s or 0.0
    report = Advice(analysis=with_pass(analysis, 4 * operators_s, 1e-6)).report()
    _, grid = report.blocks[:2]
    assert isinstance(grid, Grid) and grid.title.startswith("Longest layers by predicted time")
    names = [each.heading for each in grid.columns]
    share, reached = names.index("share"), names.index("of ceiling")
    assert grid.sums[-1][0] == "overhead" and grid.sums[-1][share] == "75.0 %"
    rows = sorted(analysis.operators, key=lambda row: -(row.predicted_s or 0.0))
    first_s, minimum_s = rows[0].predicted_s or 0.0, rows[0].eager_min_time_s or 0.0
    assert grid.rows[0][0] == rows[0].module_path
    assert grid.rows[0][share] == format_percent(first_s / operators_s / 4)
    assert grid.rows[0][reached] == format_percent(minimum_s / first_s)


def flat_profile() -> HardwareProfile:
    """A measured host without the levels of the generic model."""
    return replace(full_profile(), memory=full_profile().memory[-1:])


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (flat_profile(), "no calibration data; run `roofline calibrate` on that machine"),
        (replace(flat_profile(), host=None), "no calibration data of this machine"),
        ("mi300x", "no measurements of such GPUs"),
    ],
    ids=["measured", "sheet", "GPU"],
)
def test_minimum_times_have_the_reason_for_no_prediction(
    profile: HardwareProfile | str, reason: str
) -> None:
    facts, grid, *_ = advise(small(), (1, 3, 16, 16), hardware=profile).report().blocks
    assert isinstance(facts, KeyValueBlock)
    time = dict(facts.lines)["Time"]
    assert time.startswith("minimum ") and f"all times are minimum times: {reason}" in time
    assert isinstance(grid, Grid) and grid.title.startswith("Longest layers by minimum time")


def test_an_analysis_with_findings_shows_them() -> None:
    analysis = add_findings(analysed(small(), 1, 3, 16, 16, profile=dram_profile()), dram_profile())
    assert [each.rule for each in analysis.findings] == ["foldable batch norm"]
    facts, *_ = analysis.report().blocks
    assert isinstance(facts, KeyValueBlock)
    assert dict(facts.lines)["Savings"].startswith("foldable batch norm ")
    titles = [getattr(block, "title", "") for block in analysis.report(View(verbose=True)).blocks]
    assert "Possible savings" in titles


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quick": True}, "quick=True has no effect without measure=True"),
        ({"measure": True, "hardware": dram_profile()}, "leave hardware out"),
        ({"measure": True, "train": True}, "leave train out"),
        ({"measure": True, "device": "meta"}, "leave device='meta' out"),
        ({"top": 0}, "top=0: must be a whole number from 1"),
        ({"top": True}, "top=True: must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        advise(small(), (1, 3, 16, 16), **options)


# What is measured


def rounds(*pairs: tuple[float, float]) -> list[tuple[RoundTime, RoundTime]]:
    return [(RoundTime(times_s=(one,)), RoundTime(times_s=(other,))) for one, other in pairs]


def test_a_saving_is_confirmed_where_its_interval_holds_no_zero() -> None:
    found = saving_of_rounds(rounds((10, 8), (11, 8), (12, 8)))
    assert (found.before_s, found.after_s) == (11, 8)
    assert (found.low_s, found.high_s) == (pytest.approx(2.2), pytest.approx(3.8))
    assert found.verdict == "confirmed"
    doubtful = saving_of_rounds(rounds((10, 11), (11, 8), (12, 8)))
    assert doubtful.before_s - doubtful.after_s == 3
    assert doubtful.verdict == "not confirmed"


def test_rounds_are_held_against_each_other_at_one_clock_and_for_as_many_samples() -> None:
    before = RoundTime(times_s=(8.0,), clock_hz=2e9)
    after = RoundTime(times_s=(4.0,), clock_hz=4e9)
    found = saving_of_rounds([(before, after)] * 3, samples=2)
    # At half the clock it would have taken 8 s for two samples.
    assert found.after_s == pytest.approx(4.0)


def test_swaps_that_are_equal_vary_together() -> None:
    one = SwapTimes(before_s=(10.0, 10.0, 10.0), after_s=(9.0, 7.0, 5.0))
    assert one.savings_s == (1.0, 3.0, 5.0)
    twice = combine_swaps([one, one])
    assert (twice.before_s, twice.after_s) == (20, 14)
    assert (twice.low_s, twice.high_s) == (pytest.approx(6 - 3.2), pytest.approx(6 + 3.2))


def test_folding_leaves_a_model_what_it_computes() -> None:
    torch.manual_seed(0)
    model = small().eval()
    cast("nn.BatchNorm2d", model[1]).running_mean.normal_()  # pyright: ignore[reportOptionalMemberAccess]
    x = torch.rand(2, 3, 16, 16)
    changed = fold_batch_norms(model, [("0", "1")])
    assert isinstance(changed[1], nn.Identity) and isinstance(model[1], nn.BatchNorm2d)  # pyright: ignore[reportIndexIssue]
    assert torch.allclose(changed(x), model(x), atol=1e-5)
    with pytest.raises(MeasurementError, match="ReLU and Flatten cannot be folded"):
        fold_batch_norms(model, [("2", "3")])


def operators_of(model: nn.Module, *shape: int, **options: Any) -> list[Operator]:
    rows = analysed(model, *shape, **options).operators
    return [row for row in rows if row.state != "free"]


@pytest.mark.parametrize("channels_last", [True, False])
def test_calls_can_be_made_again_from_their_records(channels_last: bool) -> None:
    from roofline.latency.measuring.calls import RotatedCall, plan_copies

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = layers(x).permute(0, 2, 1).contiguous().bfloat16().float()
        return head(y.flatten(1))

    layers = nn.Sequential(*list(small())[:3], nn.MaxPool2d(2), nn.Flatten(2))
    head = nn.Linear(16 * 64, 5)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = layers, head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    operators = operators_of(Whole(), 2, 3, 16, 16, channels_last=channels_last)
    names = [each.record.op for each in operators]
    assert {"aten.convolution", "aten.native_batch_norm", "aten.addmm"} <= set(names)
    # With channels last they lie as they are permuted.
    assert ("aten.clone" in names) is not channels_last
    for operator in operators:
        call = call_of(operator)
        turns = RotatedCall(
            call,
            plan_copies(call.storages, cycle_bytes=2**16, turns=2),
            sweep=None,
            clock=lambda: 0.0,
        )
        turns.prepare()
        turns.call()
        result = turns._result
        first = result[0] if isinstance(result, tuple) else result
        assert tuple(first.shape) == operator.record.outputs[0].shape, operator.record.op


def test_a_call_that_cannot_be_made_again_says_so() -> None:
    (operator,) = operators_of(nn.ReLU(), 4, 4)
    for op in ("custom.nothing", "aten.nothing"):
        with pytest.raises(MeasurementError, match="cannot be called on its own"):
            record = replace(operator.record, op=op)
            call_of(Alternative(record=record, level_bytes={}))


@pytest.mark.parametrize(
    ("shape", "layout", "strides"),
    [
        ((2, 3, 4, 5), "contiguous", (60, 20, 5, 1)),
        ((2, 3, 4, 5), "channels-last", (60, 1, 15, 3)),
        ((3, 4), "strided", (1, 3)),
        ((7,), "strided", (1,)),
        ((), "contiguous", ()),
    ],
)
def test_strides_follow_from_layouts(
    shape: tuple[int, ...], layout: Any, strides: tuple[int, ...]
) -> None:
    (operator,) = operators_of(nn.ReLU(), 4, 4)
    spec: TensorSpec = replace(
        operator.record.inputs[0], shape=shape, layout=layout, distinct_elements=1
    )
    assert strides_of(spec) == strides


class Machine:
    """Answers what a process would have measured."""

    def __init__(self, before_s: float, after_s: float) -> None:
        self.before_s, self.after_s = before_s, after_s
        self.asked: list[Any] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        if function is time_round:
            _, whole, _ = args
            self.asked.append(whole)
            is_changed = whole != self.asked[0]
            return RoundTime(times_s=(self.after_s if is_changed else self.before_s,))
        _, swaps, *_ = args
        return [SwapTimes(before_s=(2.0, 2.0), after_s=(1.0, 1.5)) for _ in swaps]


def trial(machine: Machine, analysis: Analysis) -> Trial:
    here = Bench(profile=full_profile(), topology=cast("Any", None), conditions=())
    options = RunOptions(threads=analysis.threads)
    whole = ChangedCandidate(name="small", model=small(), inputs=None, options=options)
    return Trial(machine, here, whole, analysis, is_quick=True)


def test_a_fold_is_tried_in_the_whole_model() -> None:
    analysis = add_findings(analysed(small(), 1, 3, 16, 16, profile=dram_profile()), dram_profile())
    machine = Machine(3.0, 2.0)
    tried = trial(machine, analysis).of_operators(Proposal(finding=analysis.findings[0])).finding
    assert machine.asked[1].folds == (("0", "1"),)
    assert (tried.measured_before_s, tried.measured_after_s, tried.verdict) == (3, 2, "confirmed")


def test_another_way_to_run_is_tried_with_its_options() -> None:
    analysis = analysed(small(), 1, 3, 16, 16)
    machine = Machine(3.0, 2.0)
    variant = Variant(rule="a", name="bfloat16", options={"dtype": "bfloat16"}, change="do it")
    finding = Finding(rule="a", evidence="b", change="c")
    found = trial(machine, analysis).of_model(Outcome(variant=variant, finding=finding)).finding
    assert machine.asked[1].run.dtype == "bfloat16"
    assert found is not None and found.verdict == "confirmed"


@pytest.mark.parametrize(("after_s", "is_finding"), [(2.0, True), (4.0, False)])
def test_what_predictions_cannot_tell_becomes_a_finding_if_measurement_can(
    after_s: float, is_finding: bool
) -> None:
    analysis = analysed(small(), 1, 3, 16, 16)
    variant = Variant(rule="a", name="that way", options={"channels_last": True}, change="do it")
    outcome = Outcome(variant=variant, words="that way: 3 s, perhaps", is_open=True)
    found = trial(Machine(3.0, after_s), analysis).of_model(outcome)
    assert (found.finding is not None) is is_finding
    if found.finding:
        assert (found.finding.verdict, found.finding.saving_s) == ("confirmed", None)
    else:
        assert found.words.startswith("that way: 3 s, perhaps; measured 4.00 s instead of 3.00 s")


def test_one_norm_behind_two_convolutions_is_folded_into_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.a(x)) + self.norm(self.b(x))

    model = Twice().eval()
    model.norm.running_var = torch.full((8,), 2.0)
    x = torch.arange(3.0 * 64).reshape(1, 3, 8, 8) / 64
    with torch.no_grad():
        expected, found = model(x), fold_batch_norms(model, (("a", "norm"), ("b", "norm")))(x)
    torch.testing.assert_close(found, expected)


def test_a_failing_trial_is_a_note() -> None:
    def fails(function: Callable[..., Any], *args: Any) -> Any:
        raise MeasurementError("it was ended")

    analysis = add_findings(analysed(small(), 1, 3, 16, 16, profile=dram_profile()), dram_profile())
    (finding,) = analysis.findings
    found = trial(cast("Any", fails), analysis).of_operators(Proposal(finding=finding)).finding
    assert found.verdict is None
    assert found.note == "not measured: it was ended"
    # What was to be folded is not timed against nothing, as if that had been the change.
    swaps = (Swap(before=(analysis.operators[1],)),)
    proposal = Proposal(finding=finding, swaps=swaps)
    assert trial(cast("Any", fails), analysis).of_operators(proposal).finding.verdict is None
    other = Proposal(finding=replace(finding, rule="depthwise below the ridge"))
    found = trial(cast("Any", fails), analysis).of_operators(other).finding
    assert found.note == "not measurable by single operators"


def test_measured_times_and_their_verdict_belong_together() -> None:
    finding = Finding(rule="a", evidence="b", change="c")
    found = with_measured(finding, saving_of_rounds(rounds((3, 4), (3, 4))))
    assert (found.measured_saving_s, found.verdict) == (-1, "not confirmed")
    with pytest.raises(ValueError, match="belong together"):
        replace(found, verdict=None)
    with pytest.raises(ValueError, match="is 'confirmed', but the measured"):
        replace(found, verdict="confirmed")


def test_what_does_not_fit_into_memory_is_no_finding() -> None:
    """However much faster it would be; up to the last byte."""
    analysis = analysed(small(), 1, 3, 16, 16, clock=Clock())
    variant = Variant(rule="small batch", name="batch 8", samples=8, change="do it")
    peak_bytes = analysis.totals.peak_memory_bytes

    def on(capacity_bytes: int) -> Analysis:
        last = replace(analysis.hardware.memory[-1], capacity_bytes=capacity_bytes, scope="shared")
        there = replace(analysis.hardware, memory=(last,))
        return with_pass(replace(analysis, hardware=there), 16e-3, 1e-6)

    before = with_pass(analysis, 10e-3, 1e-6)
    assert outcome_of(variant, before, on(peak_bytes)).finding is not None
    found = outcome_of(variant, before, on(peak_bytes - 1))
    assert (found.finding, found.is_open) == (None, False)
    assert found.words.startswith("batch 8: does not fit: ")


def test_bounds_rule_no_layout_out() -> None:
    before = analysed(small(), 1, 3, 16, 16)
    after = analysed(small(), 1, 3, 16, 16, channels_last=True)
    (variant,) = [each for each in variants_of(before) if each.name == "channels-last"]
    outcome = outcome_of(variant, before, after)
    assert outcome.finding is None and outcome.is_open
    assert outcome.words.endswith("(library minimum)")
