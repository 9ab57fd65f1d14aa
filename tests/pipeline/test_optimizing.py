"""optimize: what it returns, what it decides, what it rolls back, and what it leaves alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.core.sampling import Sample
from roofline.design.comparison.ratios import RoundTime
from roofline.errors import HardwareError, InputError, MeasurementError
from roofline.latency.samples import IsolatedSample
from roofline.machine.core_state import UNKNOWN
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline import (
    optimization_machine,
    optimizing,
)
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.optimization_machine import (
    CompileError,
    Trials,
    time_compiled,
    time_eager,
)
from roofline.pipeline.optimizing import optimize
from roofline.run import RunOptions
from roofline.substitution.costs import Cost
from roofline.substitution.graphs.graph import Editor, Graph, Value
from roofline.substitution.result import Rounds
from roofline.substitution.rules import rule as registry
from roofline.substitution.rules.layout import is_channels_last
from roofline.substitution.rules.rule import Chain, Match, Rule, Step
from roofline.workload.inputs import Inputs
from tests import builders

MACHINE = builders.profile(
    [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e9}})]
)
IMAGE = (2, 3, 8, 8)


class Norms(nn.Module):
    """Two convolutions, each with a batch norm and a ReLU, and scores."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self.head(x.mean((2, 3)))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> HardwareProfile:
    """A machine that is taken to be this one, and to be quiet."""
    monkeypatch.setattr(optimizing, "check_bench", lambda **_: None)
    monkeypatch.setattr(optimization_machine, "is_this_machine", lambda _: True)
    return MACHINE


def trials_of(*speedups: float) -> Callable[..., Trials]:
    """Takes the place of the clock: each contender is so many times as fast, within 1 %."""

    def trials(candidates: Sequence[Candidate], **_: Any) -> Trials:
        assert len(candidates[1:]) <= len(speedups)
        pairs = list(zip(candidates[1:], speedups, strict=False))
        return Trials(
            samples=(Sample(times_s=(1.0,)), *(Sample(times_s=(1 / by,)) for _, by in pairs)),
            rounds=tuple(
                Rounds(
                    baseline="eager",
                    candidate=each.name,
                    before_s=1.0,
                    after_s=1 / by,
                    speedup=by,
                    speedup_low=0.99 * by,
                    speedup_high=1.01 * by,
                    rounds=7,
                )
                for each, by in pairs
            ),
            conditions=("noticed something",),
        )

    return trials


# -- what is returned ------------------------------------------------------------------------------


def test_on_another_machine_the_result_is_predicted_and_computes_the_same() -> None:
    model = Norms()
    found = optimize(model, IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    assert (found.decision, found.cost) == ("predicted faster", "bound")
    assert (found.not_timed, found.rounds) == ("another machine", ())
    assert [each.rule for each in found.substitutions] == ["fold-batch-norm"] * 2
    assert all(each.holds for each in found.proofs)
    # Both norms, their launches and their traffic are gone: 8 launches, then 6.
    assert found.figures_before.launches - found.figures_after.launches == 2
    assert found.figures_after.cost_s < found.figures_before.cost_s
    # Four vectors of 4 for each norm became none: the biases of the convolutions took them in.
    assert found.figures_before.weight_bytes - found.figures_after.weight_bytes == 2 * 4 * 4 * 4
    image = torch.randn(IMAGE)
    with torch.no_grad():
        assert torch.allclose(found.module(image), model.eval()(image), atol=1e-5)
    assert pickle.loads(pickle.dumps(found.module))(image).shape == (2, 5)


class Converting(nn.Module):
    """Computes in float32 whatever its input is, as normalizations of language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        x = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return self.queries(x) + self.keys(x).relu()


def test_a_model_that_converts_to_float32_is_compared_with_its_graph_in_float64() -> None:
    found = optimize(Converting(), (4, 8), hardware=MACHINE, rules="merge-linears")
    assert [each.rule for each in found.substitutions] == ["merge-linears"]
    assert all(each.holds for each in found.proofs)
    own = {each.dtype: each for each in found.proofs if each.weights == "own"}
    assert own["float64"].largest_error < 1e-14
    assert own["float32"].limit == 1e-5


def test_a_model_that_is_given_is_left_as_it_was() -> None:
    model = Norms()
    model.train()
    called: list[object] = []
    model.register_forward_hook(lambda *each: called.append(each))
    before = copy.deepcopy(model.state_dict())
    tensors = [*model.parameters(), *model.buffers()]
    found = optimize(model, IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    assert found.decision == "predicted faster"
    assert model.training
    assert len(model._forward_hooks) == 1
    now = [*model.parameters(), *model.buffers()]
    assert all(one is other for one, other in zip(tensors, now, strict=True))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    with torch.no_grad():
        model(torch.randn(IMAGE))


def test_where_nothing_is_found_the_model_itself_is_the_result() -> None:
    model = nn.Linear(4, 4)
    found = optimize(model, (1, 4), hardware=MACHINE, rules="fold-batch-norm")
    assert found.decision == "nothing found"
    assert found.module is model
    assert (found.substitutions, found.proofs, found.not_timed) == ((), (), "")
    assert found.figures_after == found.figures_before


def test_rows_are_those_of_both_analyses() -> None:
    found = optimize(Norms(), IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    for each in found.substitutions:
        before = [found.before.operators[row].op for row in each.before_operators]
        after = [found.after.operators[row].op for row in each.after_operators]
        working = [op for op in before if op in ("aten.convolution", "aten.native_batch_norm")]
        assert len(working) == 2, before
        assert after == ["aten.convolution"]
    assert found.before.totals.eager_min_time_s is not None
    paths = {row.module_path for row in found.before.operators}
    assert {"conv1", "bn1", "head"} <= paths


def test_a_name_is_enough() -> None:
    found = optimize("conv2d(3,4,3)+batchnorm2d(4)@8x8", hardware=MACHINE, rules="fold-batch-norm")
    assert len(found.substitutions) == 1


def test_another_type_is_held_against_the_model_in_that_type() -> None:
    model = Norms()
    machine = replace(MACHINE, compute=(*MACHINE.compute, builders.ceiling(1e9, of="bfloat16")))
    found = optimize(model, IMAGE, hardware=machine, rules="fold-batch-norm", dtype="bfloat16")
    assert len(found.substitutions) == 2
    assert {each.dtype for each in found.proofs} == {"float64", "float32"}
    assert found.module(torch.randn(IMAGE).bfloat16()).dtype == torch.bfloat16
    assert model.head.weight.dtype == torch.float32


def test_progress_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = registered(monkeypatch, dropping("drop-relu", "aten.relu"))
    done: list[float] = []
    optimize(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        (2, 4),
        hardware=MACHINE,
        rules=wrong,
        progress=lambda each, _: done.append(each),
    )
    assert done == sorted(done)
    assert len(done) > 2


def test_refusals_are_told_once_each() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv(x)
            return self.bn(x) + x

    found = optimize(Twice(), IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    (refused,) = found.rejected
    assert (refused.rule, refused.is_applied) == ("fold-batch-norm", False)
    assert refused.why
    assert refused.cost_after_s is None


# -- decisions -------------------------------------------------------------------------------------


def test_what_is_faster_by_the_clock_is_the_result(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "time_eager", trials_of(1.25))
    found = optimize(Norms(), IMAGE, hardware=here, rules="fold-batch-norm")
    assert found.decision == "measured faster"
    assert (found.figures_before.measured_s, found.figures_after.measured_s) == (1.0, 0.8)
    flop = found.figures_after.flop
    assert flop is not None
    assert found.figures_after.flop_per_s == pytest.approx(flop / 0.8)
    assert all(each.is_applied for each in found.substitutions)
    assert "noticed something" in found.warnings


@pytest.mark.parametrize("speedup", [0.5, 1.005])
def test_what_is_not_significantly_faster_is_given_up(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch, speedup: float
) -> None:
    monkeypatch.setattr(optimizing, "time_eager", trials_of(speedup))
    model = Norms()
    found = optimize(model, IMAGE, hardware=here, rules="fold-batch-norm")
    assert found.decision == "not faster"
    assert found.module is model
    assert found.is_kept
    assert [each.is_applied for each in found.substitutions] == [False, False]
    assert found.figures_after.measured_s == pytest.approx(1 / speedup)


def test_fewer_rules_may_win_by_the_clock(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest by its cost has another layout, and loses; folding alone wins."""

    class Again(Norms):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).relu().relu()

    timed: list[str] = []

    def trials(candidates: Sequence[Candidate], **options: Any) -> Trials:
        timed.extend(each.name for each in candidates[1:])
        return trials_of(0.9, 1.2)(candidates, **options)

    monkeypatch.setattr(optimizing, "time_eager", trials)
    layout = registered(
        monkeypatch,
        dropping("drop-second-relu", "aten.relu", keeps=True, safety="changes layout"),
    )
    found = optimize(Again(), IMAGE, hardware=here, rules=f"fold-batch-norm,{layout}")
    assert timed == ["all rules", "no layouts"]
    assert found.decision == "measured faster"
    assert {each.rule for each in found.substitutions} == {"fold-batch-norm"}
    (lost,) = [each for each in found.rejected if each.rule == layout]
    assert "'all rules'" in lost.why
    assert lost.saving_s is not None


def test_a_layout_of_which_costs_know_nothing_is_left_to_the_clock(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are the same, or worse by the copies at both ends: the search does not take it."""
    timed: list[str] = []

    def trials(candidates: Sequence[Candidate], **options: Any) -> Trials:
        timed.extend(each.name for each in candidates[1:])
        return trials_of(1.1, 1.5)(candidates, **options)

    monkeypatch.setattr(optimizing, "time_eager", trials)
    model = Norms()
    found = optimize(model, IMAGE, hardware=here, rules="fold-batch-norm,channels-last")
    assert timed == ["all rules", "other layout"]
    assert found.decision == "measured faster"
    made = {each.rule: each for each in found.substitutions}
    assert set(made) == {"fold-batch-norm", "channels-last"}
    saving_s = made["channels-last"].saving_s
    assert saving_s is not None
    assert saving_s <= 0
    image = torch.randn(IMAGE)
    with torch.no_grad():
        assert torch.allclose(found.module(image), model.eval()(image), atol=1e-5)


def test_a_layout_that_loses_by_the_clock_is_no_find(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "time_eager", trials_of(0.8))
    model = Norms()
    found = optimize(model, IMAGE, hardware=here, rules="channels-last")
    assert found.decision == "nothing found"
    assert found.module is model
    assert (found.substitutions, len(found.rounds)) == ((), 1)
    (lost,) = [each for each in found.rejected if each.rule == "channels-last"]
    assert "'other layout'" in lost.why


def test_without_timing_a_gain_is_called_predicted(here: HardwareProfile) -> None:
    found = optimize(Norms(), IMAGE, hardware=here, measure=False, rules="fold-batch-norm")
    assert (found.decision, found.not_timed) == ("predicted faster", "not requested")


def test_without_a_compiler_eager_torch_decides(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "time_eager", trials_of(1.25))
    monkeypatch.setattr(optimization_machine.shutil, "which", lambda _: None)
    found = optimize(Norms(), IMAGE, hardware=here, rules="fold-batch-norm", baseline="compile")
    assert found.decision == "measured faster"
    assert any("install g++" in each for each in found.warnings)


def test_the_baseline_decides_and_the_other_stands_beside(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(candidates: Sequence[Candidate], **options: Any) -> Trials:
        found = trials_of(0.9)(candidates, **options)
        return replace(
            found, rounds=tuple(replace(each, baseline="compile") for each in found.rounds)
        )

    monkeypatch.setattr(optimizing, "time_eager", trials_of(1.25))
    monkeypatch.setattr(optimizing, "time_compiled", compiled)
    found = optimize(Norms(), IMAGE, hardware=here, rules="fold-batch-norm", baseline="compile")
    assert found.decision == "not faster"
    assert [each.baseline for each in found.rounds] == ["eager", "compile"]
    assert found.figures_after.measured_s == 0.8


def test_measured_costs_time_operators_and_tell_what_each_rewrite_saves(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operator takes 1 s: a convolution and a norm 2, a convolution alone 1."""

    @contextmanager
    def timed(*_: object, **__: object) -> Iterator[Any]:
        yield lambda calls: [
            IsolatedSample(sample=Sample(times_s=(1.0,)), pace=UNKNOWN) for _ in calls
        ]

    monkeypatch.setattr(optimization_machine, "_open_timer", timed)
    found = optimize(
        Norms(), IMAGE, hardware=here, cost="measured", measure=False, rules="fold-batch-norm"
    )
    assert found.cost == "measured"
    assert found.figures_before.cost_s - found.figures_after.cost_s == pytest.approx(2.0)
    for each in found.substitutions:
        assert (each.measured_before_s, each.measured_after_s) == (2.0, 1.0)
        assert each.saving_s == pytest.approx(1.0)


# -- what is wrong is rolled back ------------------------------------------------------------------


def dropping(
    name: str, op: str, *, keeps: bool = False, only_first: bool = False, safety: Any = "safe"
) -> Rule:
    """A rule that leaves an operator out, where `keeps` a ReLU of a ReLU, which changes nothing."""

    def rewrite(editor: Editor, match: Match) -> None:
        number = match["it"]
        taken = next(editor.graph.nodes[number].values())
        editor.replace(Value(number), taken)

    def refuses(graph: Graph, match: Match) -> str:
        numbers = [each for each, node in graph.nodes.items() if node.op == op]
        if keeps and graph.nodes[next(graph.nodes[match["it"]].values()).node].op != op:
            return "it does something"
        return "only the first" if only_first and numbers[0] != match["it"] else ""

    return Rule(
        name=name,
        summary="leaves an operator out",
        safety=safety,
        pattern=Chain(steps=(Step(role="it", ops=frozenset({op})),)),
        refuses=refuses,
        rewrite=rewrite,
    )


def registered(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> str:
    registry.all_rules()
    monkeypatch.setitem(registry._RULES, rule.name, rule)
    return rule.name


def test_a_rule_that_changes_results_is_rolled_back_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = registered(monkeypatch, dropping("drop-relu", "aten.relu"))
    model = Norms()
    found = optimize(model, IMAGE, hardware=MACHINE, rules=f"fold-batch-norm,{wrong}")
    assert [each.rule for each in found.substitutions] == ["fold-batch-norm"] * 2
    assert all(each.holds for each in found.proofs)
    back = [each for each in found.rejected if "rolled back" in each.why]
    assert {each.rule for each in back} == {"drop-relu"}
    assert "relu" in back[0].where or "head" in back[0].where or back[0].where
    image = torch.randn(IMAGE)
    with torch.no_grad():
        assert torch.allclose(found.module(image), model.eval()(image), atol=1e-5)


def test_only_the_wrong_place_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ReLU and a ReLU of that, the second may go; the one that does something may not."""

    class Relus(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.relu() * -1).relu().relu() - 1

    name = registered(monkeypatch, dropping("drop-relu", "aten.relu"))
    found = optimize(Relus(), (4, 4), hardware=MACHINE, rules=name)
    left = [each for each in found.after.operators if each.op == "aten.relu"]
    assert len(left) == 2
    assert len(found.substitutions) == 1
    assert all(each.holds for each in found.proofs)


def test_a_users_rule_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(graph: Graph, match: Match) -> str:
        raise ZeroDivisionError("division\nby zero")

    name = registered(monkeypatch, replace(dropping("drop-relu", "aten.relu"), refuses=refuses))
    with pytest.raises(
        roofline.RooflineError, match="rule 'drop-relu' failed: ZeroDivision"
    ) as one:
        optimize(Norms(), IMAGE, hardware=MACHINE, rules=name)
    assert "\n" not in str(one.value)


# -- the clock -------------------------------------------------------------------------------------


def subjects_of(*names: str) -> tuple[Candidate, ...]:
    model = Norms()
    given, options = Inputs("2x3x8x8"), RunOptions(threads=1)
    return tuple(
        Candidate(name=each, model=model, inputs=given, options=options)
        for each in ("original", *names)
    )


def on(**_: object) -> AbstractContextManager[Any]:
    return nullcontext(SimpleNamespace(conditions=("loud",)))


def processes_of(times: Sequence[Sequence[float]]) -> Callable[[], AbstractContextManager[Any]]:
    """Processes in which models take the given seconds, round after round."""
    left = [each for one in times for each in one]

    def run(_function: object, *_args: object) -> RoundTime:
        return RoundTime(times_s=(left.pop(0),))

    return lambda: nullcontext(run)


def test_rounds_are_compared_one_by_one() -> None:
    """The machine is twice as slow in the second round, for all: ratios are 2, 2 and 2.5."""
    trials = time_eager(
        subjects_of("one", "other"),
        rounds=3,
        processes=processes_of([(2.0, 1.0, 2.0), (4.0, 2.0, 4.0), (2.0, 0.8, 2.0)]),
        on=on,
    )
    one, other = trials.rounds
    assert (one.speedup, one.rounds) == (2.0, 3)
    assert 2.0 <= one.speedup_low <= 2.0 < one.speedup_high <= 2.5
    assert (one.before_s, one.after_s) == (2.0, 1.0)
    assert (other.speedup, other.is_faster) == (1.0, False)
    assert trials.fastest == 0
    assert trials.conditions == ("loud",)


def test_one_round_proves_nothing() -> None:
    trials = time_eager(subjects_of("one"), rounds=1, processes=processes_of([(2.0, 1.0)]), on=on)
    assert trials.rounds[0].speedup == 2.0
    assert trials.fastest is None


def test_a_compiler_that_fails_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization_machine.shutil, "which", lambda _: "/usr/bin/g++")

    def run(_function: object, *_args: object) -> Any:
        raise roofline.RooflineError("backend said\nno")

    with pytest.raises(CompileError, match=r"torch\.compile failed: backend said no"):
        time_compiled(subjects_of("one"), processes=lambda: nullcontext(run), on=on)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cost": "measured"}, InputError, "hardware='test' is another"),
        ({"measure": True}, InputError, "hardware='test' is another"),
        ({"cost": "predicted"}, HardwareError, "no usable calibration of hardware 'test'"),
        ({"cost": "guessed"}, InputError, "cost='guessed': must be bound, predicted or measured"),
        ({"cost": "predicted", "fused": True}, InputError, "fused kernels have minimum times only"),
        ({"baseline": "tvm"}, InputError, "baseline='tvm': must be eager or compile"),
        ({"rounds": 0}, InputError, "rounds=0"),
        ({"split": 0}, InputError, "split=0"),
        ({"time_limit_s": 0.0}, InputError, "time_limit_s=0"),
        ({"alpha": 0.5}, InputError, "alpha=0.5"),
        ({"rules": "fold-batchnorm"}, InputError, "fold-batch-norm"),
        ({"threads": 5}, HardwareError, "threads"),
        ({"batch": 0}, InputError, "batch=0"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        optimize(Norms(), IMAGE, hardware=MACHINE, **options)
    assert "\n" not in str(caught.value)


def test_a_busy_machine_is_refused_before_anything_is_searched(
    here: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(**_: object) -> None:
        raise MeasurementError("others compute")

    told: list[str] = []
    monkeypatch.setattr(optimizing, "check_bench", busy)
    with pytest.raises(MeasurementError, match="others compute"):
        optimize(Norms(), IMAGE, hardware=here, progress=lambda _, what: told.append(what))
    assert told == []


def test_a_machine_without_ceilings_has_no_bounds() -> None:
    with pytest.raises(HardwareError, match="no ceilings"):
        optimize(Norms(), IMAGE, hardware=builders.profile([], []))


def test_an_interrupt_leaves_nothing_behind() -> None:
    model = Norms()
    tensors = [*model.parameters(), *model.buffers()]

    def stop(_done: float, what: str) -> None:
        if what.startswith("comparing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimize(model, IMAGE, hardware=MACHINE, rules="fold-batch-norm", progress=stop)
    assert model.training
    assert all(
        one is other
        for one, other in zip(tensors, [*model.parameters(), *model.buffers()], strict=True)
    )
    assert optimize(model, IMAGE, hardware=MACHINE, rules="fold-batch-norm").substitutions


def test_the_same_call_gives_the_same_result() -> None:
    one, other = (
        optimize(Norms(), IMAGE, hardware=MACHINE, rules="fold-batch-norm") for _ in range(2)
    )
    assert one.substitutions == other.substitutions
    assert one.figures_after == other.figures_after
    assert [each.largest_error for each in one.proofs] == [
        each.largest_error for each in other.proofs
    ]


# -- layouts in pieces, shares of the roof, and what was not compared ------------------------------


class Deep(nn.Module):
    """A chain of convolutions that is searched in several pieces."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolutions = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(8))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolutions(x)


class CheaperLast:
    """Costs by which contiguous convolutions take twice as long as others."""

    basis = "bound"

    def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
        images = [node for node in graph.nodes.values() if node.op == "aten.conv2d"]
        last = sum(is_channels_last(each.type) for each in images)
        others = sum(node.op == "aten.contiguous" for node in graph.nodes.values())
        seconds = 2.0 * len(images) - last + 0.1 * others
        return Cost(total_s=seconds, launches=len(images) + others, traffic_bytes=0, flop=0)


def test_regions_of_pieces_are_parts_of_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization_machine, "MinimumTimeCosts", lambda *_: CheaperLast())
    model = Deep()
    found = optimize(
        model, IMAGE, hardware=MACHINE, rules="channels-last,drop-identity", split=6, alpha=1.0
    )
    assert found.statistics.pieces > 1
    assert found.decision == "predicted faster"
    # All of them, and one conversion on each way.
    assert found.figures_after.cost_s == pytest.approx(8.0 + 0.2)
    x = torch.randn(IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(found.module(x), model.eval()(x))


def test_fused_kernels_have_a_roof_of_their_own() -> None:
    """1 FLOP/s and 1 byte/s: the roof is what the kernels' own seconds are without launches."""
    found = optimize(Norms(), IMAGE, hardware=MACHINE, fused=True, rules="drop-identity")
    assert found.figures_before.share_of_roof == pytest.approx(1.0)
    eager = optimize(Norms(), IMAGE, hardware=MACHINE, rules="drop-identity")
    assert eager.figures_before.share_of_roof == pytest.approx(1.0)
    assert found.figures_before.cost_s < eager.figures_before.cost_s


def test_what_could_not_be_compared_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.substitution import proof

    def refuse(*_: Any) -> Any:
        raise RuntimeError("in no such type")

    monkeypatch.setattr(proof, "run_model", refuse)
    model = Norms()
    found = optimize(model, IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    assert found.decision == "nothing found"
    assert found.module is model
    assert any("outputs could not be compared" in each for each in found.warnings)


class Encoder(nn.Module):
    """torch's own encoder layer, which is one operator in inference, and a linear layer twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.dropout = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.layer(x) + 0.0)


def test_what_gains_on_the_graph_alone_is_not_told_as_faster() -> None:
    """By bounds with launches the parts of the layer cost more than the one operator it is."""
    model = Encoder()
    found = optimize(model, (1, 4, 16), hardware=MACHINE, rules="drop-identity,drop-dropout")
    assert found.decision == "nothing found"
    assert found.module is model
    assert any("not less than the model" in each for each in found.warnings)
