"""Models that change something in their forward pass are left as they were."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import roofline
from roofline.errors import RooflineError
from roofline.run import Run
from roofline.workload.capture.prepared_model import prepare_model
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.restoration import restore_state, restore_tensors
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function

MACHINE = "10980xe"
X = torch.linspace(-1.0, 1.0, 8).reshape(2, 4)


class Slots:
    __slots__ = ("count", "number")


@dataclasses.dataclass(frozen=True)
class Frozen:
    count: torch.Tensor


class Named(NamedTuple):
    kept: torch.Tensor


COUNT = torch.zeros(1)
"""Of a model whose file keeps it."""

TENSORS: dict[str, Callable[[nn.Module, torch.Tensor], Callable[[], torch.Tensor]]] = {}
"""By where a model keeps a tensor: what puts it there, and returns what finds it."""


def _kept_in(place: str) -> Callable[..., Any]:
    def note(put: Callable[..., Any]) -> Callable[..., Any]:
        TENSORS[place] = put
        return put

    return note


@_kept_in("buffer")
def _(model: Any, count: torch.Tensor) -> Any:
    model.register_buffer("count", count)
    return lambda: model.count


@_kept_in("parameter")
def _(model: Any, count: torch.Tensor) -> Any:
    model.count = nn.Parameter(count, requires_grad=False)
    return lambda: model.count


@_kept_in("attribute")
def _(model: Any, count: torch.Tensor) -> Any:
    model.count = count
    return lambda: model.count


@_kept_in("list of dicts")
def _(model: Any, count: torch.Tensor) -> Any:
    model.state = [{"count": count}]
    return lambda: model.state[0]["count"]


@_kept_in("tuples")
def _(model: Any, count: torch.Tensor) -> Any:
    model.state = ({"count": (Named(count),)},)
    return lambda: model.state[0]["count"][0].kept


@_kept_in("frozen dataclass")
def _(model: Any, count: torch.Tensor) -> Any:
    model.state = Frozen(count)
    return lambda: model.state.count


@_kept_in("slots")
def _(model: Any, count: torch.Tensor) -> Any:
    model.state = Slots()
    model.state.count = count
    return lambda: model.state.count


@_kept_in("view")
def _(model: Any, count: torch.Tensor) -> Any:
    model.whole = torch.zeros(3)
    model.state = [model.whole[1:2]]
    return lambda: model.state[0]


@_kept_in("closure")
def _(model: Any, count: torch.Tensor) -> Any:
    model.counted = lambda: count
    return lambda: model.counted()


@_kept_in("global")
def _(model: Any, count: torch.Tensor) -> Any:
    COUNT.zero_()
    return lambda: COUNT


class Counting(nn.Module):
    """Multiplies by how often it was called."""

    def __init__(self, place: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(4, 4)
        self.find = [TENSORS[place](self, torch.zeros(1))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = self.find[0]()
        count.add_(1)
        return self.l(x) * count

    @property
    def calls(self) -> float:
        return float(self.find[0]())


class Noting(nn.Module):
    """Changes what is no tensor: numbers, an array, random generators."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.number, self.table = 0, {"calls": [0]}
        self.slots = Slots()
        self.slots.number = 0
        self.array = np.zeros(2)
        self.generators = [
            torch.Generator().manual_seed(1),
            random.Random(1),
            np.random.default_rng(1),
            np.random.RandomState(1),
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.number += 1
        self.table["calls"][0] += 1
        self.slots.number += 1
        self.array[1] += 1
        drawn, python, new, old = self.generators
        noise = torch.rand(4, generator=drawn)
        return self.l(x) + noise * (python.random() + new.random() + old.rand())

    def state(self) -> tuple[Any, ...]:
        drawn, python, new, old = self.generators
        return (
            *(self.number, self.table["calls"][0], self.slots.number, self.array.tolist()),
            *(drawn.get_state().tolist(), python.getstate()),
            *(str(new.bit_generator.state), str(old.get_state())),
        )


def analyzed(model: nn.Module, folder: Path) -> None:
    roofline.analyze(model, X, hardware=MACHINE)


def optimized(model: nn.Module, folder: Path) -> None:
    # A graph has no place for what changes: the model is kept around its modules.
    assert not roofline.optimize(model, X, hardware=MACHINE).parts[0].searched


def crosschecked(model: nn.Module, folder: Path) -> None:
    """Other counters run copies, which share what functions hold."""
    roofline.crosscheck(model, X)


def passed_for_real(model: nn.Module, folder: Path) -> None:
    """As `profile`, `compare` and others time passes."""
    run = Run()
    with prepare_model(model, Inputs(X), run, RealTensors(run)) as stage:
        for _ in range(3):
            stage.model(*stage.args)


def exported(model: nn.Module, folder: Path) -> None:
    roofline.export(model, X, files=folder / "a.pt2", overwrite=True)


@pytest.mark.parametrize("place", TENSORS)
@pytest.mark.parametrize("use", [analyzed, optimized, crosschecked, passed_for_real, exported])
def test_tensors_that_a_pass_changes_are_as_they_were(
    use: Callable[[nn.Module, Path], None], place: str, tmp_path: Path
) -> None:
    model = Counting(place)
    kept = model.find[0]()
    use(model, tmp_path)
    assert model.calls == 0
    assert model.find[0]() is kept


@pytest.mark.parametrize("use", [analyzed, optimized, passed_for_real])
def test_what_is_no_tensor_is_as_it_was(
    use: Callable[[nn.Module, Path], None], tmp_path: Path
) -> None:
    model = Noting()
    before = model.state()
    use(model, tmp_path)
    assert model.state() == before


@pytest.mark.parametrize("place", TENSORS)
def test_an_exported_file_gives_what_the_model_gives(place: str, tmp_path: Path) -> None:
    """At its first call and, where it keeps what the model keeps, at those after it."""
    model = Counting(place)
    exported(model, tmp_path)
    with torch.no_grad():
        file = torch.export.load(tmp_path / "a.pt2").module()
        found = [file(X) for _ in range(3)]
        expected = [model(X) for _ in range(3)]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("suffix", "model"),
    [(".onnx", Counting("buffer")), (".onnx", Counting("parameter")), (".pt2", Noting())],
)
def test_a_file_that_cannot_keep_it_is_not_written(
    suffix: str, model: nn.Module, tmp_path: Path
) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RooflineError) as said:
        roofline.export(model, X, files=tmp_path / f"a{suffix}")
    assert "\n" not in str(said.value)
    assert suffix != ".onnx" or "the model's outputs change between calls" in str(said.value)
    assert list(tmp_path.iterdir()) == []
    torch.testing.assert_close(dict(model.state_dict()), dict(before))


def test_a_scripted_model_is_as_it_was(tmp_path: Path) -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)
            self.count: torch.Tensor
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return self.l(x) * self.count

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model: Any = torch.jit.script(Scripted())
    analyzed(model, tmp_path)
    passed_for_real(model, tmp_path)
    assert float(model.count) == 0


def test_storages_that_a_pass_exchanges_are_exchanged_back() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    with restore_tensors(model):
        model.weight.data = torch.zeros(3, 3)
        model.bias.data.numpy()[:] = torch.nan
    assert torch.equal(model.weight, before)
    assert not model.bias.isnan().any()


MANY: Any = None
"""What a file holds besides; no code of a model names it."""

WORDS: dict[Any, Any] = {}
LISTED: tuple[Any, ...] = ()


class Looking(nn.Module):
    """Keeps a tensor under its size in a table of its file."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(LISTED) + WORDS.setdefault(("size", len(x)), x.sin())


def calls_around_a_pass(model: nn.Module) -> int:
    """How many functions are called to look at what a pass can reach, and to put it back."""
    calls = 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # What classes are is remembered.
    with restore_state(model, (X,)):
        pass
    with contextlib.ExitStack() as stack:
        before = sys.getprofile()
        sys.setprofile(called)
        stack.callback(sys.setprofile, before)
        with restore_state(model, (X,)):
            pass
    return calls


@pytest.mark.parametrize("model", [nn.Linear(4, 4), Looking()], ids=["layer", "with a table"])
def test_what_else_a_process_holds_is_not_looked_at(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = calls_around_a_pass(model)
    monkeypatch.setitem(globals(), "MANY", [{} for _ in range(1_000_000)])
    for each in range(1_000):
        monkeypatch.setitem(globals(), f"ANOTHER_{each}", [{}])
    assert calls_around_a_pass(model) == few < 1_000


def test_of_a_long_table_only_what_a_pass_adds_is_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words: dict[Any, Any] = {each: [each] for each in range(20_000)}
    monkeypatch.setitem(globals(), "WORDS", words)
    monkeypatch.setitem(globals(), "LISTED", tuple([each] for each in range(20_000)))
    model = Looking()
    few = calls_around_a_pass(model)
    for _ in range(2):
        assert roofline.analyze(model, X, hardware=MACHINE).operators[-1].op == "aten.add"
        assert list(words) == list(range(20_000))
    words |= {each: [each] for each in range(20_000, 1_000_000)}
    monkeypatch.setitem(globals(), "LISTED", tuple([each] for each in range(1_000_000)))
    assert calls_around_a_pass(model) == few < 1_000


FOUND: dict[str, Any] = {}


def keeping(x: torch.Tensor) -> torch.Tensor:
    """Keeps tensors in a table of its file, and under a name that was not there."""
    global LATEST
    FOUND["latest"] = LATEST = x.sin()  # pyright: ignore
    return x + 1


@pytest.mark.parametrize(
    "function",
    [
        keeping,
        torch.no_grad()(keeping),
        functools.partial(keeping),
        lambda x: keeping(x),
        nn.Sequential(Function(keeping)),
    ],
    ids=["plain", "decorated", "partial", "called", "in a module"],
)
def test_global_names_that_functions_use_keep_nothing(function: Any) -> None:
    roofline.analyze(function, X, hardware=MACHINE)
    assert not FOUND
    assert "LATEST" not in globals()
