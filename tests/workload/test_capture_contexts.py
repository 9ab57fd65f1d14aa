"""A pass is the same whatever it is called in, and whoever else is at work."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import ModelError
from roofline.workload.capture import module_stack, passes
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function, load_model
from roofline.workload.operators import State
from tests.workload.passes import passed, trained, working


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()
    )


CONTEXTS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "gradients": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "meta": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("run", [passed, trained], ids=["inference", "training"])
def test_what_the_caller_switched_on_does_not_matter(
    context: Callable[[], contextlib.AbstractContextManager[Any]], run: Callable[..., Any]
) -> None:
    """And goes on."""

    def modes() -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    outside = run(net(), (2, 3, 8, 8))
    model = net()
    with context():
        before = modes()
        inside = run(model, (2, 3, 8, 8))
        assert modes() == before
    assert inside.records == outside.records


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_models_may_be_made_in_there_too(
    context: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    """Composite operators come apart, and weights of inference mode are as good as others."""
    with context():
        captured = passed(load_model("hf:bert").module, input_ids="1x16:int64")
    assert not any(each.state is State.UNKNOWN for each in captured.records)
    assert "aten.addmm" in {each.op for each in captured.records}


def test_models_that_switch_on_inference_mode_themselves() -> None:
    """Composite operators come whole in there, and are taken apart as elsewhere."""

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 8, 3)
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm = torch.nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.norm(self.convolution(x).flatten(2).mT)
            attended: torch.Tensor = self.attention(tokens, tokens, tokens)[0]
            return torch.nn.functional.grid_sample(
                x, attended[..., :2].unsqueeze(1), align_corners=False
            )

    class Switching(Plain):
        @torch.inference_mode()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    plain, switching = (passed(each(), (2, 3, 8, 8)) for each in (Plain, Switching))
    assert [each.op for each in working(switching)] == [each.op for each in working(plain)]
    assert not any(each.state is State.UNKNOWN for each in switching.records)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that hides the cache in its own function."""
    cached = functools.lru_cache(function)

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return cached(*args)

    return wrapper


class Remembering(torch.nn.Module):
    """Takes a table from a cache, and needs values after that."""

    @staticmethod
    @remembered
    def table(size: int) -> torch.Tensor:
        return torch.arange(size, dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.table(x.shape[-1])
        return y if y.sum().item() > 0 else -y


def test_what_a_decorator_remembers_is_forgotten_between_passes() -> None:
    """What the fake pass left in the cache must not be met by the real one, or afterwards."""
    captured = passed(Remembering(), (2, 3))
    assert not any("keeps fake tensors" in note for note in captured.notes)
    assert type(Remembering.table(3)) is torch.Tensor


# torch warns of its own use of torch.jit when its compiler is imported.
its_own_warning = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


# -- compiled --------------------------------------------------------------------------------------


def in_place(model: torch.nn.Module) -> torch.nn.Module:
    model.compile()
    return model


@its_own_warning
@pytest.mark.parametrize("compiled", [torch.compile, in_place], ids=["wrapped", "in place"])
def test_compiled_modules_are_counted_as_eager_and_that_is_said(
    compiled: Callable[[torch.nn.Module], Any],
) -> None:
    """Under the names that they have without torch.compile."""
    eager = passed(net(), (2, 3, 8, 8))
    captured = passed(compiled(net()), (2, 3, 8, 8))
    assert captured.records == eager.records
    assert any("without torch.compile" in note for note in captured.notes)
    assert not any("without torch.compile" in note for note in eager.notes)


@its_own_warning
def test_a_part_that_is_compiled() -> None:
    second: Any = torch.compile(torch.nn.Linear(8, 8))
    model = torch.nn.Sequential(OrderedDict(first=torch.nn.Linear(8, 8), second=second))

    captured = trained(model, (4, 8), optimizer="sgd")
    assert {each.module_path for each in working(captured)} >= {"first", "second"}
    assert not any("_orig_mod" in each.module_path for each in captured.records)


# -- hooks -----------------------------------------------------------------------------------------


def test_what_hooks_compute_is_counted_where_they_hang() -> None:
    model = net()

    def doubled(_module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 2

    hook = model[2].register_forward_hook(doubled)
    (product,) = [each for each in passed(model, (2, 3, 8, 8)).records if each.op == "aten.mul"]
    assert product.module_path == "2"
    assert list(model[2]._forward_hooks.values()) == [doubled]
    hook.remove()


def test_hooks_of_gradients_run_in_training() -> None:
    model = net()
    weight = next(model.parameters())
    weight.register_hook(lambda gradient: gradient * 2)
    found = trained(model, (2, 3, 8, 8)).records
    (product,) = [each for each in found if each.op == "aten.mul"]
    assert product.phase == "backward"
    assert weight.grad is None


# -- threads ---------------------------------------------------------------------------------------


def test_what_a_profiler_holds_for_a_moment_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that samples frames does: it holds the local variables of a call that has ended."""
    held: list[torch.Tensor] = []
    monkeypatch.setattr(passes, "_RELEASE_TIMEOUT_S", 10.0)

    def forward(x: torch.Tensor) -> torch.Tensor:
        inner = x.exp()
        held.append(inner)
        threading.Timer(0.01, held.clear).start()
        return inner.sum()

    _, last = working(passed(forward, (100,)))
    assert not held
    assert {spec.storage for spec in last.inputs} == set(last.freed)


# -- memory ----------------------------------------------------------------------------------------


def test_nothing_is_kept_from_model_to_model() -> None:
    """No tensor and no hook is more after ten analyses than after two."""
    from torch.nn.modules import module as modules

    def alive() -> tuple[int, int]:
        import gc

        gc.collect()
        tensors = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
        hooks = len(modules._global_forward_hooks) + len(modules._global_forward_pre_hooks)
        return tensors, hooks

    for _ in range(2):
        trained(net(), (2, 3, 8, 8), optimizer="adamw")
    before = alive()
    for _ in range(8):
        passed(net(), (2, 3, 8, 8))
        trained(net(), (2, 3, 8, 8), optimizer="adamw")
    # Caches of other tests may have let go of theirs meanwhile.
    assert all(now <= then for now, then in zip(alive(), before, strict=True))


X = torch.linspace(-1.0, 1.0, 8).reshape(2, 4)


class Paused(nn.Module):
    """Lets the test act in the middle of the pass that is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.between: Callable[[], None] | None = None
        self.main = threading.get_ident()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.between is not None and threading.get_ident() == self.main:
            between, self.between = self.between, None
            between()
        return self.second(y)


def captured(model: nn.Module) -> list[str]:
    found = capture(model, Inputs(X), name="m")
    return [each.op for each in found.records]


CALLS: dict[str, Callable[[Paused], torch.Tensor]] = {
    "model": lambda model: model(X),
    "part": lambda model: model.second(X),
    "forward": lambda model: model.forward(X),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_thread_gets_what_the_model_gives(call: str) -> None:
    model = Paused().eval()
    expected = CALLS[call](model).detach()
    alone = captured(model)
    with ThreadPoolExecutor(1) as others:
        begun = threading.Event()
        answers: list[Any] = []

        def run() -> torch.Tensor:
            begun.set()
            return CALLS[call](model)

        def between() -> None:
            answers.append(others.submit(run))
            begun.wait()

        model.between = between
        assert captured(model) == alone
        found = answers[0].result()
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found.detach(), expected)
    assert found.requires_grad


def test_another_thread_that_uses_its_weights_gets_real_results() -> None:
    """Without calling a module it cannot be made to wait; what is captured then is not known."""
    model = Paused().eval()
    expected = model.second(X).detach()
    answers: list[torch.Tensor] = []

    def between() -> None:
        with ThreadPoolExecutor(1) as others, torch.no_grad():
            task = others.submit(nn.functional.linear, X, model.second.weight, model.second.bias)
            answers.append(task.result())

    model.between = between
    with pytest.raises(ModelError, match="part of the model ran in another thread"):
        captured(model)
    assert type(answers[0]) is torch.Tensor
    torch.testing.assert_close(answers[0].detach(), expected)
    model.between = None
    assert captured(model)


def test_threads_that_call_it_all_the_time() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    expected = model(X).detach()
    alone, stop = captured(model), threading.Event()

    def serve() -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        while not stop.is_set():
            found.append(model(X))
        return found

    with ThreadPoolExecutor(2) as others:
        served = [others.submit(serve) for _ in range(2)]
        try:
            for _ in range(20):
                assert captured(model) == alone
        finally:
            stop.set()
        found = [each for answers in served for each in answers.result()]
    assert found
    for each in found:
        assert type(each) is torch.Tensor
        torch.testing.assert_close(each.detach(), expected)


def test_a_pass_that_does_not_end_is_said_before_anything_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module_stack, "TIMEOUT_S", 0.2)
    begun, go_on = threading.Event(), threading.Event()

    class Blocked(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            begun.set()
            go_on.wait()
            return super().forward(input)

    model = Blocked(4, 4)
    own = model.weight
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(model, X)
        begun.wait()
        try:
            with pytest.raises(ModelError, match="is running in another thread"):
                captured(model)
            assert model.weight is own
        finally:
            go_on.set()
        assert type(answer.result()) is torch.Tensor
    assert captured(model)


def test_functions_that_a_model_runs_in_a_thread_are_refused() -> None:
    layer = nn.Linear(4, 4)

    def threaded(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as workers:
            return workers.submit(nn.functional.linear, x, layer.weight, layer.bias).result()

    with pytest.raises(ModelError, match="part of the model ran in another thread"):
        captured(Function(threaded))


@pytest.mark.parametrize("is_given", [True, False])
def test_a_model_with_threads_of_its_own_is_refused_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    monkeypatch.setattr(module_stack, "_STUCK_S", 0.2)
    part = nn.Linear(4, 4)

    def threaded(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as workers:
            return workers.submit(part, x if is_given else X).result()

    with pytest.raises(ModelError, match="'part' ran in another thread"):
        captured(Function(threaded))
