"""optimize with operators of the user, and with models that no graph holds as a whole."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import roofline
from roofline.cli.main import run
from roofline.errors import ModelError
from roofline.pipeline.fresh_processes import fresh_processes
from roofline.pipeline.measured_comparisons import Candidate, unpicklable_candidate
from roofline.pipeline.optimizing import optimize
from roofline.result import read_result
from roofline.run import RunOptions
from roofline.substitution.graphs.parts import SearchedPart
from roofline.substitution.result import Optimization
from tests import builders

MACHINE = builders.profile(
    [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e9}})]
)
IMAGE = (2, 3, 8, 8)


@torch.library.custom_op("optimized::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    """Multiply by a number; with a fake kernel."""
    return x * by


@scale.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("optimized::bare", mutates_args=())
def bare(x: torch.Tensor) -> torch.Tensor:
    """Double; without a fake kernel."""
    return x * 2


LIBRARY = torch.library.Library("optimized_too", "DEF")
LIBRARY.define("double(Tensor x) -> Tensor")
LIBRARY.impl("double", lambda x: x * 2, "CPU")
LIBRARY.impl("double", torch.empty_like, "Meta")


class Norm(nn.Module):
    """A convolution, a batch norm that folds into it, and a ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.norm.running_mean = torch.rand(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu()


class Between(nn.Module):
    """Two norms, and something between them that takes and gives an image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = Norm(3), Norm(4)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.optimized.scale(x, 0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.two(self.between(self.one(x)))


class OfLibrary(Between):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.optimized_too.double(x)


class WithoutFake(Between):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.optimized.bare(x)


class Branching(Between):
    """A branch that the value of a weight decides, so that a test can turn it."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(0.0))
        self.taken: list[bool] = []

    def between(self, x: torch.Tensor) -> torch.Tensor:
        is_more = bool(x.mean() > self.threshold)
        self.taken.append(is_more)
        return x * 2 if is_more else x - 1


class Item(Between):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.mean().item()


class Nonzero(Between):
    """The second norm gets as many images as have a positive mean."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x[(x.mean((1, 2, 3)) > 0.0).nonzero().flatten()]


class Twice(Branching):
    """The second norm is called with two shapes."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.between(self.one(x))
        return {"large": self.two(x), "small": self.two(x[:, :, ::2])}


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1


def searched(model: nn.Module, inputs: Any = IMAGE, **how: Any) -> Optimization:
    return optimize(model, inputs, hardware=MACHINE, rules="fold-batch-norm", **how)


def equal(one: nn.Module, other: nn.Module, x: torch.Tensor) -> bool:
    with torch.no_grad():
        torch.testing.assert_close(one(x), copy.deepcopy(other).eval()(x), atol=1e-5, rtol=1e-5)
    return True


# -- operators of the user -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "op"), [(Between, "optimized.scale"), (OfLibrary, "optimized_too.double")]
)
def test_an_operator_of_the_user_stays_and_all_around_it_is_searched(
    kind: type[Between], op: str, tmp_path: Path
) -> None:
    model = kind()
    found = searched(model)
    assert (found.decision, found.parts) == ("predicted faster", ())
    assert [each.rule for each in found.substitutions] == ["fold-batch-norm"] * 2
    assert op in [each.op for each in found.after.operators]
    # Its time is unknown, which is said; so a share of the roofline would leave it out.
    assert f"unknown time of 1 operator ({op}), not included in costs" in found.warnings
    assert found.figures_before.share_of_roof is None
    assert equal(found.module, model, torch.randn(IMAGE))
    found.save(tmp_path / "found.pt2")
    exported = torch.export.load(tmp_path / "found.pt2").module()
    assert equal(exported, model, torch.randn(IMAGE)) if kind is Between else exported


def test_an_operator_without_a_fake_kernel_is_kept_and_named_with_its_fix() -> None:
    model = WithoutFake()
    found = searched(model)
    assert [(each.path, each.why) for each in found.parts] == [
        (
            "",
            "operator optimized::bare has no fake kernel; register one with"
            " torch.library.register_fake, in the model itself (WithoutFake)",
        ),
        ("one", ""),
        ("two", ""),
    ]
    assert len(found.substitutions) == 2
    assert "optimized.bare" in [each.op for each in found.after.operators]
    assert equal(found.module, model, torch.randn(IMAGE))


FILE = """
import torch
from torch import nn

{header}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.ops.{name}.half(self.norm(self.conv(x)))
"""

OPERATOR = """
@torch.library.custom_op("{name}::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2

@half.register_fake
def _(x):
    return torch.empty_like(x)
"""

OF_LIBRARY = """
kept = torch.library.Library("{name}", "DEF")
kept.define("half(Tensor x) -> Tensor")
kept.impl("half", lambda x: x / 2, "CompositeExplicitAutograd")
kept.impl("half", torch.empty_like, "Meta")
"""


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.of_cell.half(x)


def output_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(x)


@pytest.mark.parametrize("form", [OPERATOR, OF_LIBRARY])
@pytest.mark.parametrize("is_apart", [False, True])
def test_a_fresh_process_imports_the_file_with_the_operator(
    form: str, is_apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"of_file_{is_apart}_{form is OPERATOR}".lower()
    header = form.format(name=name)
    if is_apart:
        # In a file of its own, which only the model's file imports.
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / f"{name}_operators.py").write_text(f"import torch\n{header}", encoding="utf-8")
        header = f"import {name}_operators"
    file = tmp_path / f"{name}.py"
    file.write_text(FILE.format(header=header, name=name), encoding="utf-8")
    found = optimize(f"{file}:Net", IMAGE, hardware=MACHINE, rules="fold-batch-norm")
    assert found.decision == "predicted faster"
    x = torch.randn(IMAGE)
    with fresh_processes() as process:
        assert torch.allclose(process(output_of, found.module, x), output_of(found.module, x))


def test_a_result_with_an_operator_of_a_notebook_is_timed_in_this_process() -> None:
    cell = OF_LIBRARY.format(name="of_cell") + "\nkeep.append(kept)"
    kept: list[object] = []
    exec(compile(cell, "<cell>", "exec"), {"torch": torch, "keep": kept})
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Half())
    found = searched(module)
    candidates = [
        Candidate(name=name, model=each, inputs=IMAGE, options=RunOptions(threads=1))
        for name, each in (("original", module), ("result", found.module))
    ]
    assert unpicklable_candidate(candidates) == "result"


# -- models without a graph of their own -----------------------------------------------------------


def test_a_branch_in_the_middle_is_kept_and_goes_both_ways_afterwards() -> None:
    model = Branching()
    found = searched(model)
    assert found.decision == "predicted faster"
    assert [(each.path, each.kind, each.searched) for each in found.parts] == [
        ("", "Branching", 0),
        ("one", "Norm", 1),
        ("two", "Norm", 1),
    ]
    assert "depends on tensor values" in found.parts[0].why
    assert [each.rule for each in found.substitutions] == ["fold-batch-norm"] * 2
    assert {each.weights for each in found.proofs} == {"own", "random", "own, whole model"}
    assert all(each.holds for each in found.proofs)
    x = torch.randn(IMAGE)
    for threshold in (-10.0, 10.0):
        # The result shares the weights of the model.
        model.threshold.data.fill_(threshold)
        assert equal(found.module, model, x)
        assert found.module.taken[-1] == (threshold < 0)
    assert isinstance(found.module.one, SearchedPart)
    assert found.module.one.conv is not model.one.conv
    assert found.module.one.conv.weight is model.one.conv.weight


def test_the_totals_are_of_the_whole_model() -> None:
    model = Branching()
    found = searched(model)
    analysis = roofline.analyze(model, IMAGE, hardware=MACHINE)
    before = found.figures_before
    assert found.before.totals == analysis.totals
    assert before.flop == analysis.totals.flop
    assert before.launches == sum(each.state != "free" for each in analysis.operators)
    # Only the norms are gone, and the vectors that they read: 4 of 4 floats each.
    assert before.launches - found.figures_after.launches == 2
    assert before.weight_bytes == sum(
        each.nbytes for each in (*model.parameters(), *model.buffers())
    )
    assert before.weight_bytes - found.figures_after.weight_bytes == 2 * 4 * 4 * 4
    saved_s = sum(each.saving_s or 0.0 for each in found.substitutions)
    assert before.cost_s - found.figures_after.cost_s == pytest.approx(saved_s)


def test_a_module_without_rewrites_runs_itself() -> None:
    model = Branching()
    model.two = nn.Conv2d(4, 4, 1)  # pyright: ignore[reportAttributeAccessIssue]
    found = searched(model)
    assert [each.path for each in found.parts if each.searched] == ["one", "two"]
    result = found.module
    assert [type(each) for each in (result.one, result.two)] == [SearchedPart, nn.Conv2d]
    assert equal(result, model, torch.randn(IMAGE))


@pytest.mark.parametrize("kind", [Item, Nonzero])
def test_values_and_sizes_that_depend_on_tensors_are_kept(kind: type[Between]) -> None:
    model = kind()
    model.two.norm.bias.data.fill_(0.5)
    found = searched(model)
    assert [each.path for each in found.parts if each.searched] == ["one", "two"]
    x = torch.randn(IMAGE)
    assert equal(found.module, model, x)
    # Another number of images reaches the second norm, or the first one: both run themselves.
    for changed in (torch.cat([x, x]), x[:1], x.to(memory_format=torch.channels_last)):
        assert equal(found.module, model, changed)


def test_a_module_called_with_two_shapes_has_a_graph_for_one_of_them() -> None:
    model = Twice()
    found = searched(model)
    two = found.parts[-1]
    assert (two.path, two.calls, two.searched) == ("two", 2, 1)
    assert "two (Norm): 1 of 2 calls" in str(found)
    for threshold in (-10.0, 10.0):
        model.threshold.data.fill_(threshold)
        assert equal(found.module, model, torch.randn(IMAGE))
    # One norm is left: that of the call with the other shape.
    norms = [
        sum("batch_norm" in each.op for each in analysis.operators)
        for analysis in (found.before, found.after)
    ]
    assert norms == [3, 1]


@dataclasses.dataclass
class Image:
    x: torch.Tensor


class OfImage(Norm):
    def forward(self, image: Image, by: Any, mask: torch.Tensor) -> Any:  # pyright: ignore
        is_flag = mask.dtype == torch.bool
        x = super().forward(image.x) * (2 if isinstance(by, bool) else 3)
        return Image(x[:, :3].masked_fill(mask, 0.5) if is_flag else x[:, :3] + mask)


class Arguments(Branching):
    """One module is called with dataclasses, and with equal numbers and masks of other types."""

    def __init__(self) -> None:
        super().__init__()
        self.one = OfImage(3)

    def forward(self, x: torch.Tensor) -> Any:
        image, mask = Image(x), x[:, :3] > 0
        for by, of in ((1, mask), (1, mask), (True, mask), (1, mask.long())):
            image = self.one(image, by, of)
        return self.between(image.x)


def test_a_graph_is_for_types_of_arguments_and_contents_of_dataclasses() -> None:
    model = Arguments()
    found = searched(model)
    assert [(each.path, each.calls, each.searched) for each in found.parts[1:]] == [("one", 4, 2)]
    assert found.substitutions
    assert equal(found.module, model, torch.randn(IMAGE))


class Arrays(Branching):
    """A module is called with arrays, which have no truth value."""

    class Scaled(Norm):
        def forward(self, x: torch.Tensor, by: Any) -> torch.Tensor:  # pyright: ignore
            return super().forward(x)[:, :3] * float(by.sum())

    def __init__(self) -> None:
        super().__init__()
        self.one = self.Scaled(3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.between(self.one(self.one(x, np.ones(3)), np.ones(3)))


def test_a_module_with_arguments_that_no_graph_has_is_kept() -> None:
    (_, kept, *_) = searched(Arrays()).parts
    assert kept.path == "one"
    assert "unsupported type ndarray" in kept.why


class Rounding(Branching):
    """A model in bfloat16 that runs in no other type, so its own rounding error is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.bfloat16())


def test_without_a_limit_only_equal_outputs_hold() -> None:
    found = searched(Rounding())
    assert any("rolled back" in each.why for each in found.rejected)


def test_without_a_module_to_search_one_line_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError) as raised:
        searched(Nothing())
    assert str(raised.value) == (
        "Nothing cannot be captured: its control flow depends on tensor values, in the model itself"
        " (Nothing); nor can any module in it"
    )
    file = tmp_path / "nothing.py"
    file.write_text(f"import torch\nfrom torch import nn\n\n{inspect.getsource(Nothing)}")
    command = f"optimize {file}:Nothing --input 1x3x8x8 --hardware h100"
    assert run(command.split()) == 2
    assert capsys.readouterr().err.strip().endswith("; nor can any module in it")


def test_state_and_mode_of_the_model_and_of_the_result() -> None:
    model = Branching().train()
    model.one.eval()
    hooks: list[object] = []
    model.two.register_forward_hook(lambda *each: hooks.append(each))
    before = copy.deepcopy(model.state_dict())
    modes = [each.training for each in model.modules()]
    found = searched(model)
    assert [each.training for each in model.modules()] == modes
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert [type(each) for each in (model.one, model.two)] == [Norm, Norm]
    assert [len(each._forward_pre_hooks) for each in model.modules()] == [0] * len(modes)
    result = found.module
    assert not any(each.training for each in result.modules())
    keys = set(result.state_dict())
    assert {"threshold", "one.module.conv.weight", "one.module.norm.running_mean"} <= keys
    assert any(each.startswith("one.graph.") for each in keys)
    # In training, its modules run themselves; a graph would not update the statistics.
    result.train()(torch.randn(IMAGE) + 5)
    now = model.state_dict()["two.norm.running_mean"]
    assert not torch.equal(now, before["two.norm.running_mean"])


def test_results_are_pickled_saved_and_read_back(tmp_path: Path) -> None:
    model = Branching()
    found = searched(model)
    x = torch.randn(IMAGE)
    assert equal(pickle.loads(pickle.dumps(found.module)), found.module, x)
    assert equal(
        copy.deepcopy(found.module).double(), copy.deepcopy(found.module).double(), x.double()
    )
    found.save(tmp_path / "found.json", tmp_path / "found.svg")
    assert "Not drawn: 2 rewrites in modules searched alone" in (tmp_path / "found.svg").read_text()
    read = read_result(tmp_path / "found.json")
    assert isinstance(read, Optimization)
    assert read.parts == found.parts
    assert "Kept as they are" in str(read)
    assert json.loads((tmp_path / "found.json").read_text())["parts"][1]["path"] == "one"
    with pytest.raises(ModelError, match=r"cannot be captured as a whole, so neither as .pt2"):
        found.save(tmp_path / "found.pt2")


def test_one_graph_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def searched_anyway(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("roofline.pipeline.optimizing.ProvenSearch", searched_anyway)
    monkeypatch.setattr("roofline.pipeline.optimizing.check_bench", lambda **_: None)
    with pytest.raises(ModelError, match=r"its modules are searched without fullgraph"):
        optimize(Branching(), IMAGE, hardware=MACHINE, fullgraph=True)
    file, model = tmp_path / "found.pt2", tmp_path / "net.py"
    model.write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.relu() if x.sum() > 0 else x\n"
    )
    words = ("--input", "2x3", "--hardware", "v100", "-o", str(file))
    assert run(["optimize", f"{model}:Net", *words]) == 2
    assert "its modules are searched without --fullgraph and .pt2 files" in capsys.readouterr().err
    assert not file.exists()


class Breaking(Branching):
    """Raises on real tensors, behind its first module."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > self.threshold:
            raise RuntimeError("too large")
        return x


def test_a_model_that_raises_leaves_nothing_behind() -> None:
    model = Breaking().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match="too large"):
        searched(model)
    assert all(each.training for each in model.modules())
    assert all(not each._forward_pre_hooks for each in model.modules())
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


class Overwriting(Branching):
    """Its first module changes what it is given, which the model reads again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> Any:
        x = x * 1.0
        self.first(x)
        return super().forward(x)


def test_a_module_that_overwrites_its_inputs_is_kept() -> None:
    model = Overwriting()
    found = searched(model)
    assert {each.path: each.why for each in found.parts}["first"] == "it overwrites its inputs"
    assert equal(found.module, model, torch.randn(IMAGE))
