"""Models timed in lower precision beside their what-ifs, with clocks that are made up and real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.design.advice.subject import Time
from roofline.design.comparison.ratios import RoundTime
from roofline.errors import MeasurementError, ModelError
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline import native_variants as pipeline
from roofline.pipeline.fresh_processes import run_here
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.native_variants import (
    VARIANTS,
    TimedPair,
    Variant,
    measure_variants,
    time_pair,
    variant_policy,
)
from roofline.quantization.native_variants import VariantKind, int8_problem
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import NativeVariant
from roofline.run import RunOptions

SHEET = "10980xe"
SHAPE = (1, 3, 8, 8)
STATIC = next(each for each in VARIANTS if each.kind == "int8 static")


class Net(nn.Module):
    """A convolution, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(144, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


TYPES = {16: "bfloat16", 8: "int8"}
"""In which layers are computed, by their bits."""

ANALYSIS = roofline.analyze(Net(), torch.zeros(SHAPE), hardware=SHEET, threads=1)


def bench_of(*instruction_sets: str) -> Callable[..., AbstractContextManager[Any]]:
    """This machine, with these instruction sets."""
    profile = SimpleNamespace(host=SimpleNamespace(instruction_sets=instruction_sets))
    here = SimpleNamespace(
        profile=profile, conditions=("loud",), topology=SimpleNamespace(cores=(0,))
    )
    return lambda **_: nullcontext(here)


def processes_of(answer: Callable[[VariantKind, int], Any]) -> Callable[[], Any]:
    """Processes in which a way gives what `answer` says."""

    def run(function: object, _here: object, _asked: object, kind: Any, count: int) -> Any:
        assert function is time_pair
        return answer(kind, count)

    return lambda: nullcontext(run)


def what_if_of(policy: Policy) -> Any:
    """Layers of floats take 4 s; those of 16 bits 3 s, of 8 bits 2 s, of others nobody knows."""
    rows = [
        (place, each)
        for place, each in enumerate(ANALYSIS.operators)
        if each.type in ("convolution", "matrix product")
    ]
    bits = [policy.bits_of(row.module_path, "inner") for _, row in rows]
    layers = [
        SimpleNamespace(
            layer=SimpleNamespace(name=row.module_path, index=i),
            executable=TYPES.get(each.weights, "float32"),
        )
        for (i, row), each in zip(rows, bits, strict=True)
    ]
    after = {16: 3.0, 8: 2.0}.get(bits[0].weights)
    return SimpleNamespace(
        layers=layers,
        before=Time(s=4.0),
        after=Time(s=after) if after else None,
    )


def pair_of(*rounds: tuple[float, float], error: float | None = 0.25) -> TimedPair:
    return TimedPair(
        rounds=tuple((RoundTime(times_s=(one,)), RoundTime(times_s=(two,))) for one, two in rounds),
        error=error,
    )


def found(
    answer: Callable[[VariantKind, int], Any],
    *,
    sets: Sequence[str] = ("avx512_bf16",),
    **options: Any,
) -> dict[str, NativeVariant]:
    result, conditions = measure_variants(
        Net(),
        torch.zeros(SHAPE),
        options=RunOptions(),
        analysis=options.pop("analysis", ANALYSIS),
        what_if_of=what_if_of,
        processes=processes_of(answer),
        on=bench_of(*sets),
        **options,
    )
    assert conditions == ("loud",)
    return {each.way: each for each in result}


@pytest.fixture(autouse=True)
def torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as installed."""
    monkeypatch.setattr(pipeline, "has_torchao", lambda: True)


def test_rounds_are_compared_one_by_one_and_stand_beside_the_what_if() -> None:
    """The machine is twice as slow in the second round, for both: ratios are 2, 2 and 2.5."""
    asked: list[tuple[str, int]] = []

    def answer(kind: VariantKind, count: int) -> TimedPair:
        asked.append((kind, count))
        return pair_of((2.0, 1.0), (4.0, 2.0), (2.0, 0.8))

    ways = found(answer, rounds=3)
    assert asked == [(each.kind, 3) for each in VARIANTS]
    assert list(ways) == [each.name for each in VARIANTS]
    one = ways["int8 (torch.ao, static)"]
    assert (one.before_s, one.after_s, one.speedup, one.rounds) == (2.0, 1.0, 2.0, 3)
    assert one.speedup_low is not None and one.speedup_high is not None
    assert 2.0 <= one.speedup_low <= 2.0 < one.speedup_high <= 2.5
    assert (one.predicted_before_s, one.predicted_s, one.error) == (4.0, 2.0, 0.25)
    assert ways["bfloat16"].predicted_s == 3.0
    assert ways["bfloat16"].bits == LayerBits(weights=16, activations=16)
    # Where convolutions stay floats the first layer of this what-if has no time.
    assert ways["int8 (torch.ao, dynamic, linear layers)"].predicted_s is None


def test_what_is_predicted_of_another_type_of_16_bits_does_not_stand_beside_bfloat16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TYPES, 16, "float16")
    one = found(lambda _kind, _count: pair_of((2.0, 1.0)))["bfloat16"]
    assert (one.after_s, one.predicted_before_s, one.predicted_s) == (1.0, 4.0, None)


def test_seven_rounds_are_usual_and_one_has_no_interval() -> None:
    counts: list[int] = []

    def answer(_kind: VariantKind, count: int) -> TimedPair:
        counts.append(count)
        return pair_of((2.0, 1.0))

    (one,) = found(answer, ways=[STATIC]).values()
    assert counts == [7]
    assert (one.speedup, one.speedup_low, one.speedup_high) == (2.0, None, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("conversion failed: no"), "conversion failed: no"),
        (MeasurementError("its process was ended by SIGSEGV"), "its process was ended by SIGSEGV"),
        (MemoryError(), "out of memory"),
    ],
)
def test_a_way_that_fails_says_why_and_others_go_on(error: Exception, said: str) -> None:
    def answer(kind: VariantKind, _count: int) -> TimedPair:
        if kind == "int8 static":
            raise error
        return pair_of((1.0, 1.0))

    ways = found(answer)
    one = ways.pop(STATIC.name)
    assert one.why_not == said
    assert (one.before_s, one.after_s, one.speedup, one.predicted_s, one.error) == (None,) * 5
    assert all(each.after_s == 1.0 and not each.why_not for each in ways.values())


def test_an_interrupt_ends_all_of_it() -> None:
    def answer(_kind: VariantKind, _count: int) -> TimedPair:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found(answer)


def test_bfloat16_is_left_out_where_it_says_nothing() -> None:
    def answer(kind: VariantKind, _count: int) -> TimedPair:
        assert kind != "bfloat16"
        return pair_of((1.0, 1.0))

    assert "no bfloat16 arithmetic" in found(answer, sets=("avx2",))["bfloat16"].why_not
    half = roofline.analyze(Net(), torch.zeros(SHAPE), hardware=SHEET, threads=1, dtype="bfloat16")
    assert "already runs in bfloat16" in found(answer, analysis=half)["bfloat16"].why_not


def test_what_could_not_run_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(kind: VariantKind, _count: int) -> TimedPair:
        asked.append(kind)
        return pair_of((1.0, 1.0))

    monkeypatch.setattr(pipeline, "has_torchao", lambda: False)
    ways = found(answer)
    assert "roofline[int8]" in ways["int8 (torchao, dynamic, linear layers)"].why_not
    assert asked == ["bfloat16", "int8 static", "int8 dynamic"]
    asked.clear()
    convolution = roofline.analyze("conv2d(3,4,3)@1x3x8x8", hardware=SHEET, threads=1)

    def no_linear_layers(policy: Policy) -> Any:
        layer = SimpleNamespace(name="0", index=0)
        return SimpleNamespace(
            layers=[SimpleNamespace(layer=layer, executable="bfloat16")],
            before=Time(s=4.0),
            after=None,
        )

    result, _ = measure_variants(
        "conv2d(3,4,3)@1x3x8x8",
        options=RunOptions(),
        analysis=convolution,
        what_if_of=no_linear_layers,
        processes=processes_of(answer),
        on=bench_of("avx512_bf16"),
    )
    assert asked == ["bfloat16", "int8 static"]
    assert ["no linear layers" in each.why_not for each in result] == [
        False,
        False,
        True,
        True,
    ]


def test_progress_goes_from_way_to_way() -> None:
    told: list[tuple[float, str]] = []
    found(
        lambda _kind, _count: pair_of((1.0, 1.0)),
        progress=lambda done, what: told.append((done, what)),
    )
    assert told == [(place / len(VARIANTS), each.name) for place, each in enumerate(VARIANTS)]


def test_policies_are_of_all_layers_or_of_linear_ones() -> None:
    layers = [("body.0", "first"), ("head", "last")]

    def bits(way: Variant) -> list[str]:
        policy = variant_policy(way, ANALYSIS, what_if_of)
        return [policy.bits_of(name, place).words for name, place in layers]  # pyright: ignore[reportArgumentType]

    assert [bits(each) for each in VARIANTS] == [
        ["w16a16", "w16a16"],
        ["w8a8", "w8a8"],
        ["w32a32", "w8a8"],
        ["w32a32", "w8a8"],
    ]


# -- for real --------------------------------------------------------------------------------------


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Effort(warm_ups=0, min_rounds=1, max_rounds=1, budget_s=0.0)
    monkeypatch.setattr(pipeline, "_EFFORT", few)


@pytest.mark.parametrize("kind", ["bfloat16", "int8 static", "int8 dynamic"])
def test_models_are_really_run(kind: VariantKind, quickly: None) -> None:
    if kind != "bfloat16" and int8_problem():
        pytest.skip(int8_problem())
    model = Net().train()
    weight = model.head.weight.clone()
    with bench_of()() as here:
        timed = time_pair(here, original(model), kind, 2)
    assert len(timed.rounds) == 2
    assert all(each.measured_s > 0 for pair in timed.rounds for each in pair)
    assert timed.error is not None and 0 < timed.error < 0.2
    assert model.training and torch.equal(model.head.weight, weight)
    assert all(type(each) is not torch.fx.GraphModule for each in model.modules())


def original(model: Any, inputs: Any = SHAPE) -> Candidate:
    return Candidate(name="model", model=model, inputs=inputs, options=RunOptions(threads=1))


def test_the_same_model_has_the_same_error_every_time(quickly: None) -> None:
    """Weights of a name are random ones, and so are inputs of a shape: the same in any process."""
    with bench_of()() as here:
        errors = {
            time_pair(here, original("conv2d(3,8,3)+relu@1x3x9x9", None), "bfloat16", 1).error
            for _ in range(2)
        }
    assert len(errors) == 1


def test_a_model_that_other_processes_cannot_load_is_timed_in_this_one(
    quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(Net):
        pass

    def forbidden() -> Any:
        raise AssertionError("it was to stay here")

    monkeypatch.setattr(pipeline, "fresh_processes", forbidden)
    result, conditions = measure_variants(
        Local(),
        torch.zeros(SHAPE),
        options=RunOptions(),
        analysis=ANALYSIS,
        what_if_of=what_if_of,
        ways=VARIANTS[:1],
        rounds=1,
        on=bench_of("avx512_bf16"),
    )
    assert result[0].after_s is not None
    assert any("in this process" in each for each in conditions)


def test_one_that_can_be_loaded_has_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def processes() -> Any:
        asked.append("new")
        return nullcontext(run_here)

    few = Effort(warm_ups=0, min_rounds=1, max_rounds=1, budget_s=0.0)
    monkeypatch.setattr(pipeline, "_EFFORT", few)
    monkeypatch.setattr(pipeline, "fresh_processes", processes)
    _, conditions = measure_variants(
        "linear(8,8)@2x8",
        options=RunOptions(),
        analysis=ANALYSIS,
        what_if_of=what_if_of,
        ways=VARIANTS[:1],
        rounds=1,
        on=bench_of("avx512_bf16"),
    )
    assert asked == ["new"] and conditions == ("loud",)
