"""`roofline.track`: what ran is counted, results are as ever, and nothing of it stays behind."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,  # pyright: ignore[reportPrivateUsage]
    _global_optimizer_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode

import roofline
from roofline.design.gate.cost import cost_of
from roofline.errors import InputError, ModelError
from roofline.pipeline.tracking import Tracked, track
from roofline.workload.models.libraries.availability import library_or_reason
from tests.builders import ceiling, level, profile


def small_net(groups: int = 8) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, groups=groups),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    )


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, image: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(image).square().mean().backward()
    optimizer.step()


def test_a_linear_layer_costs_what_is_worked_out_by_hand() -> None:
    layer, given = torch.nn.Linear(8, 3), torch.randn(4, 8)
    with torch.no_grad(), track(layer) as tracked:
        layer(given)
    assert tracked.macs == 4 * 8 * 3
    assert tracked.flop == 2 * 4 * 8 * 3 + 4 * 3
    assert tracked.traffic_bytes == 4 * (24 + 3 + 32 + 12)
    assert tracked.parameters == 27
    assert tracked.launches == 1
    # Weights, biases, the input, and the result while it is made.
    assert tracked.peak_memory_bytes == 4 * (27 + 32 + 12)
    assert tracked.cost.model == "Linear" and tracked.cost.run.train is False
    assert tracked.eager_min_time_s is None


@pytest.mark.parametrize("training", [False, True])
def test_multiply_adds_are_those_of_torchs_own_counter(training: bool) -> None:
    # Of grouped convolutions, torch's counter takes the backward pass for that of whole ones.
    model, image = small_net(groups=1), torch.randn(2, 3, 12, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> None:
        if training:
            step(model, optimizer, image)
        else:
            model(image)

    with FlopCounterMode(display=False) as counter:
        run()
    with track(model) as tracked:
        run()
    assert tracked.macs is not None
    assert 2 * tracked.macs == counter.get_total_flops()


def test_multiply_adds_of_a_training_step_are_those_that_are_worked_out_by_hand() -> None:
    model, image = small_net(), torch.randn(2, 3, 12, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with track(model) as tracked:
        step(model, optimizer, image)
    # Forward, gradients of the weights, and of the inputs of all layers but the first.
    first, depthwise, last = 2 * 8 * 144 * 27, 2 * 8 * 100 * 9, 2 * 8 * 5
    assert tracked.macs == 2 * first + 3 * depthwise + 3 * last


def test_a_pass_costs_what_an_analysis_says_and_two_passes_cost_twice_as_much() -> None:
    model, image = small_net().eval(), torch.randn(2, 3, 12, 12)
    analysis = roofline.analyze(model, image, hardware="epyc-9654")
    with torch.no_grad(), track(model) as once:
        model(image)
    totals = analysis.totals
    assert (once.flop, once.macs) == (totals.flop, totals.macs)
    assert (once.traffic_bytes, once.parameters) == (totals.traffic_bytes, totals.parameters)
    assert once.peak_memory_bytes == totals.peak_memory_bytes
    with torch.no_grad(), track(model) as twice:
        model(image)
        model(image)
    assert twice.flop == 2 * totals.flop and twice.launches == 2 * once.launches
    assert twice.parameters == totals.parameters


def test_results_and_gradients_are_what_they_are_without() -> None:
    image = torch.randn(2, 3, 12, 12)
    plain, watched = small_net(), small_net()
    step(plain, torch.optim.Adam(plain.parameters()), image)
    optimizer = torch.optim.Adam(watched.parameters())
    with track(watched) as tracked:
        step(watched, optimizer, image)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other) and one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad)
    run = tracked.cost.run
    assert run.train and run.optimizer == "adam"


def left_behind() -> tuple[Any, ...]:
    return (
        torch.nn.Module.__call__,
        torch.nn.Linear.forward,
        _get_current_dispatch_mode(),
        len(_global_optimizer_pre_hooks),
        len(_global_optimizer_post_hooks),
    )


def test_nothing_stays_behind_whether_the_block_ends_or_fails() -> None:
    layer = torch.nn.Linear(8, 3)
    before = left_behind()
    with track(layer):
        layer(torch.randn(4, 8))
    assert left_behind() == before
    with pytest.raises(RuntimeError), track(layer) as failed:
        layer(torch.randn(4, 9))
    assert left_behind() == before
    with pytest.raises(InputError, match="only after the"):
        _ = failed.cost
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_while_the_block_runs_nothing_is_known_yet() -> None:
    with track() as tracked:
        assert "still running" in repr(tracked)
        with pytest.raises(InputError, match="only after the"):
            _ = tracked.flop
    assert (tracked.flop, tracked.launches) == (0, 0)


def test_without_a_model_parameters_are_those_that_are_touched() -> None:
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 3), "idle": torch.nn.Linear(8, 100)})
    given = torch.randn(4, 8)
    with torch.no_grad(), track() as tracked:
        model["used"](given)
    assert tracked.parameters == 27
    with torch.no_grad(), track(model) as known:
        model["used"](given)
    assert known.parameters == 27 + 900
    assert [each.name for each in known.cost.modules] == ["used"]


def test_any_code_may_be_tracked() -> None:
    one, other = torch.randn(6, 7), torch.randn(7, 5)
    with track(name="a product") as tracked:
        product = one @ other
        product.add_(1.0)
    assert tracked.macs == 6 * 7 * 5
    assert tracked.flop == 2 * 6 * 7 * 5 + 30
    assert tracked.cost.model == "a product"
    assert torch.equal(product, one @ other + 1.0)


def test_the_bound_is_that_of_the_machine() -> None:
    # A machine of one memory: an addition in place of n numbers reads and writes 4 n bytes each.
    machine = profile([ceiling(1e12)], [level("DRAM", None, {"read": {1: 1e9}})])
    tensor = torch.zeros(1000)
    with track(hardware=machine) as tracked:
        tensor.add_(1.0)
    assert tracked.eager_min_time_s == pytest.approx(8000 / 1e9)
    assert tracked.cost.machine is not None and tracked.cost.machine.name == "test"
    with pytest.raises(InputError, match="threads=1"), track(threads=1):
        pass


def test_an_unknown_operator_leaves_flop_unknown_and_is_counted() -> None:
    library = torch.library.Library("roofline_gate_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    given = torch.ones(10)
    with track() as tracked:
        torch.ops.roofline_gate_test.double(given)
    assert tracked.flop is None and tracked.macs is None
    assert tracked.cost.unknown_operators == 1
    assert tracked.traffic_bytes == 80


def test_a_tracked_step_is_held_against_a_baseline(tmp_path: Any) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def tracked_step(batch: int) -> Tracked:
        with track(model) as tracked:
            step(model, optimizer, torch.randn(batch, 3, 12, 12))
        return tracked

    file = tmp_path / "step.json"
    step(model, optimizer, torch.randn(2, 3, 12, 12))
    roofline.check(tracked_step(2).cost, against=file, update=True)
    limits = ["flop>+0%", "launches>+0"]
    assert roofline.check(tracked_step(2).cost, against=file, fail_if=limits).passes
    found = roofline.check(tracked_step(4).cost, against=file, fail_if=limits)
    assert [each.outcome for each in found.judgements] == ["fails", "passes"]


def test_blocks_in_each_other_count_their_own_parts() -> None:
    layer, given = torch.nn.Linear(8, 3), torch.randn(4, 8)
    before = left_behind()
    with torch.no_grad(), track(layer) as outer:
        layer(given)
        with track(layer) as inner:
            layer(given)
        layer(given)
        with pytest.raises(RuntimeError), track(layer):
            layer(torch.randn(4, 9))
    assert inner.flop == 2 * 4 * 8 * 3 + 4 * 3 and inner.launches == 1
    # The noise of the wrong shape was made in both blocks, too.
    products = next(each for each in outer.cost.types if each.name == "matrix product")
    assert products.calls == 3 and products.flop == 3 * inner.flop
    assert left_behind() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopIteration, SystemExit, GeneratorExit])
def test_any_exception_goes_through_and_nothing_stays_behind(error: type[BaseException]) -> None:
    layer = torch.nn.Linear(8, 3)
    before = left_behind()
    with pytest.raises(error), track(layer):
        layer(torch.randn(4, 8))
        raise error
    assert left_behind() == before
    with track(layer) as again:
        layer(torch.ones(4, 8))
    assert again.macs == 96


def test_a_module_that_runs_in_another_thread_is_refused_and_what_is_not_the_models_may() -> None:
    model, other = torch.nn.Sequential(torch.nn.Linear(8, 3)), torch.nn.Linear(8, 3)
    given = torch.ones(4, 8)

    def in_a_thread(module: torch.nn.Module) -> None:
        thread = threading.Thread(target=module, args=(given,))
        thread.start()
        thread.join()

    before = left_behind()
    with pytest.raises(ModelError, match="module '0' ran in another thread"), track(model):
        in_a_thread(model[0])
    assert left_behind() == before
    with track(model) as tracked:
        in_a_thread(other)
        model(given)
    assert tracked.macs == 96


def test_what_is_wrong_with_the_arguments_is_said_before_the_block_runs() -> None:
    lazy = torch.nn.LazyLinear(3)
    for wrong, said in (
        ({"hardware": "nowhere"}, "unknown hardware 'nowhere'"),
        ({"hardware": "epyc-9654", "threads": 1000}, "threads"),
        ({"threads": 2}, "has no effect without hardware"),
        ({"model": "resnet18"}, "expected a module or None, got str"),
        ({"model": lazy}, "parameter 'weight' is lazy"),
    ):
        arguments: dict[str, Any] = wrong
        with pytest.raises(InputError, match=said), track(**arguments):
            pytest.fail("the block ran")
    with track(torch.nn.Linear(8, 3)) as tracked:
        pass
    assert (tracked.launches, tracked.parameters) == (0, 27)


def test_parts_of_a_storage_are_no_more_than_themselves() -> None:
    table = torch.zeros(1000, 10)
    model = torch.nn.Module()
    model.row = torch.nn.Parameter(table[3])
    batch = torch.zeros(500, 10)[:4]
    with torch.no_grad(), track(model) as tracked:
        batch.mul_(model.row)
    assert tracked.parameters == 10
    assert tracked.peak_memory_bytes == 4 * (10 + 40)


def test_states_that_are_made_in_the_block_are_there_once() -> None:
    model, image = small_net(), torch.randn(2, 3, 12, 12)
    optimizer = torch.optim.Adam(model.parameters())
    with track(model) as first:
        step(model, optimizer, image)
    with track(model) as steady:
        step(model, optimizer, image)
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters())
    with track(model) as both:
        step(model, optimizer, image)
        step(model, optimizer, image)
    assert both.macs == (first.macs or 0) + (steady.macs or 0)
    # The second step has parameters, buffers, states and gradients, and makes what the first makes.
    assert both.peak_memory_bytes == steady.peak_memory_bytes


def seen_by_none(graph: Any, _inputs: Any) -> Any:
    """A compiler whose code no mode sees, as kernels of Inductor are not seen."""

    def run(*given: Any) -> Any:
        with _disable_current_modes():
            return graph(*given)

    return run


def test_what_was_compiled_is_counted_as_eager_torch_runs_it() -> None:
    model, given = torch.nn.Linear(8, 3), torch.randn(4, 8)
    compiled: Any = torch.compile(model, backend=seen_by_none)
    expected = 2 * 4 * 8 * 3 + 4 * 3
    counts = torch._dynamo.utils.counters["stats"]
    before = counts["calls_captured"]
    with torch.no_grad():
        for _ in range(2):
            # Not compiled yet; the second time, by a call outside.
            with track(compiled) as tracked:
                inside = compiled(given)
            assert (tracked.flop, tracked.launches) == (expected, 1)
            assert [each.name for each in tracked.cost.modules] == ["(model)"]
            assert torch.equal(inside, compiled(given))
    assert counts["calls_captured"] == before + 1
    torch._dynamo.reset()


def test_a_block_in_what_was_compiled_is_refused() -> None:
    layer = torch.nn.Linear(8, 3)

    @torch.compile(backend="eager")
    def inside(given: torch.Tensor) -> torch.Tensor:
        with track(layer):
            return layer(given)

    with warnings.catch_warnings(), pytest.raises(ModelError, match="put the `with` block around"):
        # torch warns of what it cannot compile.
        warnings.simplefilter("ignore")
        inside(torch.ones(4, 8))
    assert _get_current_dispatch_mode() is None
    torch._dynamo.reset()


def test_an_analysis_in_the_block_is_not_counted() -> None:
    layer, given = torch.nn.Linear(8, 3), torch.ones(4, 8)
    with torch.no_grad(), track(layer) as tracked:
        analysis = roofline.analyze(layer, given, hardware="epyc-9654")
        layer(given)
    assert (tracked.flop, tracked.launches) == (analysis.totals.flop, 1)


def test_nested_tensors_are_refused_in_one_line() -> None:
    layers = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    with warnings.catch_warnings():
        # torch calls nested tensors a prototype.
        warnings.simplefilter("ignore")
        model = torch.nn.TransformerEncoder(layers, 1).eval()
        padding = torch.tensor([[False, False, False], [False, False, True]])
        given = torch.randn(2, 3, 16)
        with (
            pytest.raises(ModelError, match="nested tensor") as caught,
            torch.no_grad(),
            track(model),
        ):
            model(given, src_key_padding_mask=padding)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("train", [False, True])
def test_resnet18_costs_what_an_analysis_says(train: bool) -> None:
    torchvision, _ = library_or_reason("torchvision")
    assert torchvision is not None
    model = torchvision.models.resnet18().train(train)
    image = torch.randn(2, 3, 64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    target = torch.zeros(2, dtype=torch.int64)

    def one() -> Any:
        optimizer.zero_grad()
        with torch.set_grad_enabled(train):
            output = model(image)
        if not train:
            return output
        loss = torch.nn.functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        return output, loss

    one()
    with track(model) as tracked:
        # An analysis has the results in memory to the end, too.
        held = one()
    del held
    found = cost_of(roofline.analyze(model, image, train=train, hardware="epyc-9654"))
    for name in ("flop", "macs", "traffic_bytes", "launches", "parameters"):
        assert getattr(tracked.cost, name) == getattr(found, name), name
    assert tracked.cost.types == found.types
    assert tracked.peak_memory_bytes == found.peak_memory_bytes


def test_the_update_of_tied_parameters_belongs_to_the_first_module_that_holds_them() -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4, bias=False) for name in "ab"})
    model["b"].weight = model["a"].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model["b"].weight.grad = torch.ones(4, 4)
    with track(model) as tracked:
        optimizer.step()
    assert [each.name for each in tracked.cost.modules] == ["a"]
