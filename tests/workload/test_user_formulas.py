"""Operators and formulas of the user's own, as they meet them: files, notebooks, mistakes."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import roofline
from roofline.errors import InputError, RooflineError
from roofline.pipeline.crosschecks import missing_operators
from roofline.workload.formulas import Flop, find, formula, known, registry
from roofline.workload.operators import Capture, OperatorRecord, State
from tests.workload.passes import only, passed, trained, working

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "formulas.md"


pytestmark = pytest.mark.usefixtures("a_registry_of_its_own")


@torch.library.custom_op("roofline_user::scale", mutates_args=())
def scale(x: torch.Tensor, weight: torch.Tensor, steps: int = 3) -> torch.Tensor:
    return x * weight * steps


@scale.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, steps: int = 3) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("roofline_user::scale_backward", mutates_args=())
def scale_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return grad * weight, (grad * x).sum(0)


@scale_backward.register_fake
def _(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, grad: Any) -> Any:
    return (*scale_backward(grad, *ctx.saved_tensors), None)


scale.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("roofline_user::unfaked", mutates_args=())
def unfaked(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.library.custom_op("roofline_user::add_into", mutates_args=("total",))
def add_into(total: torch.Tensor, x: torch.Tensor) -> None:
    total += x


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: Any) -> Any:
        return scale(x, self.weight)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * 2


def calls_of(captured: Capture, op: str) -> list[OperatorRecord]:
    return [each for each in captured.records if each.op == op]


def wrong(function: Callable[..., Any]) -> str:
    """What a pass says with `function` as the formula of ``roofline_user.scale``."""
    registry._formulas.pop("roofline_user.scale", None)
    formula("roofline_user.scale")(function)
    with pytest.raises(RooflineError) as raised:
        passed(Scaled(), (4, 8))
    message = str(raised.value)
    assert "\n" not in message
    assert raised.value.exit_code == 1
    return message


# -- unknown until there is a formula --------------------------------------------------------------


def test_a_custom_operator_is_unknown_with_its_bytes_until_it_has_a_formula() -> None:
    """x and the result have 4 x 8 elements of 4 bytes, the weight has 8; steps are left out."""
    record = only(passed(Scaled(), (4, 8)))
    assert (record.op, record.state) == ("roofline_user.scale", State.UNKNOWN)
    assert (record.work.flop, record.work.macs, record.work.internal_bytes) == (None, None, None)
    assert record.work.traffic_bytes == 2 * 128 + 32

    @formula("roofline_user.scale", type="my kind")
    def scale_flop(x: Any, steps: int, **_: Any) -> Flop:
        return Flop(other=steps * x.elements)

    record = only(passed(Scaled(), (4, 8)))
    assert (record.state, record.type, record.work.flop) == (State.COUNTED, "my kind", 3 * 32)
    assert record.formula == "roofline_user.scale"
    assert record.work.traffic_bytes == 2 * 128 + 32


def test_its_backward_is_an_operator_of_its_own() -> None:
    """Each is unknown until it has a formula; the rest of the step is counted."""

    @formula("roofline_user.scale")
    def scale_flop(x: Any, **_: Any) -> Flop:
        return Flop(other=2 * x.elements)

    captured = trained(Scaled(), (4, 8), loss=lambda output: output.sum())
    unknown = [each for each in working(captured) if each.state is State.UNKNOWN]
    assert [(each.op, each.phase) for each in unknown] == [
        ("roofline_user.scale_backward", "backward")
    ]
    # The gradient of the result is one number, repeated; x and the weight, and their gradients.
    assert unknown[0].work.traffic_bytes == 4 + 2 * 128 + 2 * 32

    @formula("roofline_user.scale_backward")
    def scale_backward_flop(x: Any, weight: Any, **_: Any) -> Flop:
        return Flop(other=3 * x.elements - weight.elements)

    captured = trained(Scaled(), (4, 8), loss=lambda output: output.sum())
    assert not [each for each in working(captured) if each.state is State.UNKNOWN]
    (backward,) = calls_of(captured, "roofline_user.scale_backward")
    assert (backward.phase, backward.work.flop) == ("backward", 3 * 32 - 8)


def test_an_autograd_function_of_torchs_operators_is_counted() -> None:
    assert only(passed(lambda x: Doubled.apply(x), (4, 8))).work.flop == 32
    captured = trained(
        torch.nn.Sequential(torch.nn.Linear(8, 8), _Applied()), (4, 8), loss=lambda y: y.sum()
    )
    assert [each.phase for each in calls_of(captured, "aten.mul")] == ["forward", "backward"]
    assert not [each for each in working(captured) if each.state is State.UNKNOWN]


class _Applied(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return Doubled.apply(x)


def test_an_operator_without_a_fake_kernel_runs_for_real_and_is_unknown() -> None:
    captured = passed(lambda x: unfaked(x), (4, 8))
    record = only(captured)
    assert (record.op, record.state) == ("roofline_user.unfaked", State.UNKNOWN)
    assert record.work.traffic_bytes == 2 * 128
    assert any("real tensors" in note for note in captured.notes)

    @formula("roofline_user.unfaked")
    def unfaked_flop(output: Any, **_: Any) -> Flop:
        return Flop(other=output.elements)

    record = only(passed(lambda x: unfaked(x), (4, 8)))
    assert (record.work.flop, record.type) == (32, "custom")


def test_an_operator_that_updates_in_place_reads_and_writes() -> None:
    """The total is read and written, x is read."""
    record = only(passed(lambda total, x: add_into(total, x), (4, 8), (4, 8)))
    assert (record.op, record.state) == ("roofline_user.add_into", State.UNKNOWN)
    assert record.work.traffic_bytes == 3 * 128


def test_an_operator_of_torchs_operators_comes_as_these() -> None:
    """A composite implementation takes itself apart: nothing is unknown."""
    with torch.library._scoped_library("roofline_user_composite", "DEF") as library:
        library.define("both(Tensor x) -> Tensor")
        library.impl("both", lambda x: torch.relu(x) + x, "CompositeImplicitAutograd")
        captured = passed(lambda x: torch.ops.roofline_user_composite.both(x), (4, 8))
    assert [each.op for each in working(captured)] == ["aten.relu", "aten.add"]


# -- what a formula may not do ---------------------------------------------------------------------


def test_a_formula_that_raises() -> None:
    def raising(x: Any, **_: Any) -> Flop:
        raise KeyError("two\nlines")

    line = raising.__code__.co_firstlineno + 1
    assert wrong(raising) == (
        f"the formula for roofline_user.scale ({__name__}.test_a_formula_that_raises.<locals>."
        f"raising) failed: KeyError: 'two\\nlines' ({Path(__file__).name}, line {line})"
    )


def test_a_formula_that_raises_in_the_backward_pass() -> None:
    @formula("roofline_user.scale_backward")
    def raising(**_: Any) -> Flop:
        raise ZeroDivisionError

    with pytest.raises(RooflineError, match=r"formula for roofline_user\.scale_backward .* failed"):
        trained(Scaled(), (4, 8))


@pytest.mark.parametrize(
    ("result", "kind"), [(3, "int"), (None, "NoneType"), ({"other": 3}, "dict")]
)
def test_a_formula_that_returns_something_else(result: Any, kind: str) -> None:
    """A plain number leaves open what it counts."""
    assert f"returned {kind}; return roofline.Flop" in wrong(lambda **_: result)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"other": -1}, "other must be a whole number from 0, got -1"),
        ({"other": 2.0}, "other must be a whole number from 0, got 2.0; write int(…)"),
        ({"other": numpy.int64(2)}, "got np.int64(2); write int(…)"),
        ({"other": None}, "other must be a whole number from 0, got None"),
        ({"other": ...}, "other must be a whole number from 0, got Ellipsis"),
        ({"macs": torch.tensor(2)}, "got tensor(2); write int(…)"),
        ({"internal_bytes": -2}, "internal_bytes must be a whole number from 0, got -2"),
        ({"other": 1, "least": 2}, "least must not exceed flop (1), got 2"),
        ({"elements": {"x": -1}}, "elements['x'] must be a whole number from 0, got -1"),
        ({"elements": {"x": numpy.int64(1)}}, "elements['x'] must be a whole number from 0, got"),
        ({"min_elements": {"x": 0.5}}, "min_elements['x'] must be a whole number from 0"),
        ({"elements": {"y": 1}}, "elements of 'y'; expected one of steps, x, weight, output"),
    ],
)
def test_a_formula_that_returns_nonsense(counts: dict[str, Any], message: str) -> None:
    said = wrong(lambda **_: Flop(**counts))
    assert "formula for roofline_user.scale (" in said
    assert message in said


def test_a_formula_whose_parameters_are_not_the_operators() -> None:
    """One too few without **_, and one that the operator does not have."""
    assert (
        "failed: got an unexpected keyword argument 'steps'; its operator passes steps, x, weight,"
        " output (a last parameter **_ takes"
    ) in wrong(lambda x, weight, output: Flop())
    assert "failed: missing a required argument: 'bias'; its operator passes" in wrong(
        lambda bias, **_: Flop()
    )


# -- what the decorator refuses --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("my_op",), "'my_op': .* with its namespace, as in torch.ops: 'mylib.my_op'"),
        (("mylib::my_op",), "'mylib::my_op': .*: 'mylib.my_op'"),
        (("torch.ops.mylib.my_op",), ": 'mylib.my_op'"),
        (("",), "such as 'mylib.my_op'"),
        (("mylib.",), "such as 'mylib.my_op'"),
        (("mylib.my op",), "such as 'mylib.my_op'"),
        (("a.b.c.d",), "such as 'mylib.my_op'"),
        ((), "expected operator names"),
        ((3,), "expected operator names"),
        ((len,), "expected operator names"),
    ],
)
def test_what_is_no_name_of_an_operator(keys: tuple[Any, ...], message: str) -> None:
    before = known()
    with pytest.raises(InputError, match=message) as raised:
        formula(*keys)(lambda **_: Flop())
    assert "\n" not in str(raised.value)
    assert known() == before


def test_what_is_no_function() -> None:
    with pytest.raises(InputError, match=r"formula for mylib\.x: expected a function, got 3"):
        formula("mylib.x")(3)  # pyright: ignore


# -- defined once more -----------------------------------------------------------------------------

CELL = """
import roofline

@roofline.formula({keys})
def {name}(**_):
    return roofline.Flop(other={count})
"""


def run_cell(
    module: dict[str, Any], file: str, *keys: str, name: str = "my_op", count: int = 1
) -> None:
    """Runs a cell of a notebook, or a module's file, in the name space of `module`."""
    text = CELL.format(keys=", ".join(map(repr, keys)), name=name, count=count)
    exec(compile(text, file, "exec"), module)


def flop_of(key: str) -> int | None:
    found = find(key)
    return None if found is None else found.count({}).flop


def test_a_cell_that_runs_again_replaces_its_formula() -> None:
    """As it is, changed (notebooks give a changed cell another file name), or renamed."""
    notebook = {"__name__": "__main__"}
    run_cell(notebook, "/tmp/cell_1.py", "mylib.a")
    run_cell(notebook, "/tmp/cell_1.py", "mylib.a")
    run_cell(notebook, "/tmp/cell_2.py", "mylib.a", count=2)
    assert flop_of("mylib.a") == 2
    run_cell(notebook, "/tmp/cell_3.py", "mylib.a", name="other", count=3)
    assert flop_of("mylib.a") == 3


def test_an_operator_that_is_no_longer_named_has_no_formula() -> None:
    """The cell counted two operators, and now counts one: the other is unknown again."""
    notebook = {"__name__": "__main__"}
    run_cell(notebook, "/tmp/cell_1.py", "mylib.a", "mylib.b")
    run_cell(notebook, "/tmp/cell_2.py", "mylib.a", count=2)
    assert (flop_of("mylib.a"), flop_of("mylib.b")) == (2, None)


def test_decorators_one_above_the_other_survive_a_second_run() -> None:
    text = (
        "import roofline\n"
        "@roofline.formula('mylib.a', type='one')\n"
        "@roofline.formula('mylib.b', type='two')\n"
        "def both(**_):\n    return roofline.Flop()\n"
    )
    notebook = {"__name__": "__main__"}
    for _ in range(2):
        exec(compile(text, "/tmp/cell.py", "exec"), notebook)
        assert (known()["mylib.a"].type, known()["mylib.b"].type) == ("one", "two")


def test_two_functions_of_a_file_for_one_operator_are_a_mistake() -> None:
    """Also in a script, which is `__main__` but one file."""
    for name in ("module", "__main__"):
        module = {"__name__": name}
        run_cell(module, f"/tmp/{name}.py", f"mylib.{name}", count=1)
        with pytest.raises(InputError, match=rf"mylib\.{name} already has a formula: {name}\.my_"):
            run_cell(module, f"/tmp/{name}.py", f"mylib.{name}", name="second", count=2)
        assert flop_of(f"mylib.{name}") == 1


def test_another_modules_formula_is_not_replaced() -> None:
    run_cell({"__name__": "one"}, "/tmp/one.py", "mylib.a")
    with pytest.raises(InputError, match=r"mylib\.a already has a formula: one\.my_op; only a new"):
        run_cell({"__name__": "two"}, "/tmp/two.py", "mylib.a", count=2)
    with pytest.raises(InputError, match=r"mylib\.a already has a formula"):
        run_cell({"__name__": "__main__"}, "/tmp/cell.py", "mylib.a", count=2)
    assert flop_of("mylib.a") == 1


def test_rooflines_own_formulas_are_not_replaced() -> None:
    """Nor is any of the other operators registered, nor one of the user's lost."""
    notebook = {"__name__": "__main__"}
    run_cell(notebook, "/tmp/cell_1.py", "mylib.a", "mylib.b")
    with pytest.raises(InputError, match=r"aten\.mm already has a formula: roofline\..*product"):
        run_cell(notebook, "/tmp/cell_2.py", "mylib.a", "aten.mm", count=2)
    assert (flop_of("mylib.a"), flop_of("mylib.b")) == (1, 1)


def test_two_lambdas_of_a_module_are_two_functions() -> None:
    formula("mylib.a")(lambda **_: Flop(other=1))
    with pytest.raises(InputError, match="already has a formula"):
        formula("mylib.a")(lambda **_: Flop(other=2))


def test_a_module_that_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "roofline_reloaded.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.write_text(CELL.format(keys="'mylib.a'", name="my_op", count=1))
    module = importlib.import_module("roofline_reloaded")
    file.write_text(CELL.format(keys="'mylib.a'", name="my_op", count=22))
    importlib.reload(module)
    assert flop_of("mylib.a") == 22
    del sys.modules["roofline_reloaded"]


# -- files of the user's own -----------------------------------------------------------------------

FILE = """
import torch
import roofline

@torch.library.custom_op("roofline_file::twist", mutates_args=())
def twist(x: torch.Tensor, angle: float) -> torch.Tensor:
    return x * angle

@twist.register_fake
def _(x, angle):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return twist(twist(self.inner(x), 0.5), 2.0)

    def __getattr__(self, name):
        return super().__getattr__(name)
"""
FORMULA = """
@roofline.formula("roofline_file.twist")
def twist_flop(x, **_):
    return roofline.Flop(other=3 * x.elements)
"""


def test_a_files_formula_counts_when_the_file_is_loaded(tmp_path: Path) -> None:
    """Loaded twice, and again when its formula was renamed; without it, unknown."""
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    model = f"{file}:Model"
    found = missing_operators(model, "4x8")
    assert (found.calls, found.operators) == (3, 2)
    (missing,) = found.missing
    assert (missing.op, missing.calls, missing.traffic_bytes) == ("roofline_file.twist", 2, 512)
    assert (missing.examples, missing.modules) == (("4x8 -> 4x8",), ("",))
    assert missing.phases == ("forward",)

    file.write_text(FILE + FORMULA)
    for _ in range(2):
        assert missing_operators(model, "4x8").missing == ()
        totals = roofline.analyze(model, "4x8", hardware="10980xe").totals
        assert (totals.unknown_operators, totals.flop) == (0, 2 * 4 * 8 * 8 + 32 + 2 * 3 * 32)
    file.write_text(FILE + FORMULA.replace("twist_flop", "renamed").replace("3 *", "1 *"))
    assert roofline.analyze(model, "4x8", hardware="10980xe").totals.flop == 512 + 32 + 64


def test_a_file_with_a_wrong_formula_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong_formula.py"
    file.write_text(FILE + FORMULA.replace("roofline_file.twist", "twist"))
    with pytest.raises(InputError, match=r"importing it failed: .*'twist': .*'mylib\.twist'") as e:
        missing_operators(f"{file}:Model", "4x8")
    assert "\n" not in str(e.value)


# -- what is missing -------------------------------------------------------------------------------


def test_nothing_is_missing() -> None:
    found = missing_operators("resnet18")
    assert found.missing == ()
    assert (found.model, found.calls > 50, found.run.train) == ("resnet18", True, False)


def test_what_is_missing_in_training() -> None:
    found = missing_operators(Scaled(), (4, 8), train=True, optimizer="sgd")
    assert {each.op: each.phases for each in found.missing} == {
        "roofline_user.scale": ("forward",),
        "roofline_user.scale_backward": ("backward",),
    }
    assert found.run.optimizer == "sgd"


def test_a_formula_that_does_not_hold_for_complex_numbers() -> None:
    @formula("roofline_user.scale")
    def scale_flop(x: Any, **_: Any) -> Flop:
        return Flop(other=x.elements)

    (missing,) = missing_operators(Scaled(), "4x8:complex64").missing
    assert (missing.formula, missing.stub) == ("roofline_user.scale", "")


def test_a_stub_has_the_parameters_of_the_schema_and_counts_nothing_by_itself() -> None:
    """It registers as it is; what it lacks are the numbers, and it says so."""
    found = missing_operators(Scaled(), (4, 8))
    text = found.stubs
    assert "def scale(x, weight, steps, output, **_):" in text
    exec(compile(text, "<stub>", "exec"), {"__name__": "__main__"})
    with pytest.raises(RooflineError, match="macs must be a whole number from 0, got Elli"):
        passed(Scaled(), (4, 8))
    exec(
        compile(text.replace("macs=..., other=...", "other=7"), "<stub>", "exec"),
        {"__name__": "__main__"},
    )
    assert only(passed(Scaled(), (4, 8))).work.flop == 7


def test_a_stub_for_names_that_python_keeps_for_itself() -> None:
    with torch.library._scoped_library("roofline_user_words", "DEF") as library:
        library.define("lambda(Tensor x, float from, int times=2) -> Tensor")
        library.impl("lambda", lambda x, start, times=2: x + start, "CompositeExplicitAutograd")
        operator = getattr(torch.ops.roofline_user_words, "lambda")
        torch.library.register_fake(
            "roofline_user_words::lambda",
            lambda x, start, times=2: torch.empty_like(x),
            lib=library,
        )
        (missing,) = missing_operators(lambda x: operator(x, 1.0), (4, 8)).missing
    assert "def roofline_user_words_lambda(x, times, output, **_):" in missing.stub
    compile(missing.stub, "<stub>", "exec")


# -- the document ----------------------------------------------------------------------------------


def test_the_document_does_what_it_says() -> None:
    """Its Python runs from top to bottom, and prints what stands below each piece."""
    blocks = re.findall(r"```(python|text)\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "document"}
    said, count = "", 0
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, str(DOCUMENT), "exec"), names)
            said = out.getvalue()
        else:
            assert text == said
            count += 1
    assert count == 3


def test_the_documents_operators_do_what_their_formulas_count() -> None:
    """The recurrence as a loop over numbers: 2 for each element of each step but the first."""
    steps, features = 5, 3
    operations = 0
    x = torch.rand(steps, features)
    decay = torch.rand(features)
    states = [[float(each) for each in x[0]]]
    for row in x[1:]:
        states.append([])
        for i in range(features):
            states[-1].append(float(decay[i]) * states[-2][i] + float(row[i]))
            operations += 2
    text = DOCUMENT.read_text("utf-8")
    names: dict[str, Any] = {"__name__": "document"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, str(DOCUMENT), "exec"), names)
    assert torch.allclose(names["recurrence"](x, decay), torch.tensor(states))
    record = only(passed(names["recurrence"], (steps, features), (features,)))
    assert record.work.flop == operations
