"""Programs in .pt2 files that would run code when torch reads or calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from roofline.workload.models.files.programs import is_arithmetic, why_refused
from roofline.workload.models.sources import load
from tests.workload.hostile_files import Change, changed, edited, replaced, said_of, written


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path, ".pt2")


def _sizes(told: Any, text: str) -> None:
    values = told["graph_module"]["graph"]["tensor_values"]
    next(iter(values.values()))["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}


def _call(told: Any) -> Any:
    nodes = told["graph_module"]["graph"]["nodes"]
    return next(each for each in nodes if each["target"] == _RELU)


def _wrapped(what: str) -> Change:
    """torch's ``wrap`` calls what it is given, and may be given what a name is looked up to."""

    def edit(told: Any) -> None:
        call = _call(told)
        call["target"] = "torch.ops.higher_order.wrap"
        called = {"name": "", "arg": {"as_operator": what}, "kind": 1}
        text = {"name": "", "arg": {"as_string": "touch MARK"}, "kind": 1}
        call["inputs"] = [called, text]

    return edited(edit)


_RELU = "torch.ops.aten.relu.default"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced(_RELU, "torch.os.system"), "calls 'torch.os.system', which is no operator"),
        (replaced(_RELU, "torch.hub.load"), "calls 'torch.hub.load'"),
        (replaced(_RELU, "torch.load"), "calls 'torch.load'"),
        (replaced(_RELU, "torch.ops.load_library"), "calls 'torch.ops.load_library'"),
        (replaced(_RELU, "torch.ops.aten.from_file.default"), "aten.from_file"),
        (replaced(_RELU, "_operator.methodcaller"), "calls '_operator.methodcaller'"),
        (replaced(_RELU, "_operator.attrgetter"), "calls '_operator.attrgetter'"),
        (replaced(_RELU, "#extension:evil"), "calls '#extension:evil'"),
        (replaced(_RELU, "builtins.eval"), "calls 'builtins.eval'"),
        (replaced(_RELU, "torch.ops.import_module.__call__"), "which is no operator"),
        (replaced(_RELU, "torch.ops.__class__.__subclasses__"), "which is no operator"),
        (replaced(_RELU, "torch.ops.loaded_libraries.add"), "which is no operator"),
        (replaced(_RELU, "torch.ops.aten.relu._schema"), "which is no operator"),
        (replaced(_RELU, "torch.ops.higher_order.print"), "which is not run from files"),
        (replaced(_RELU, "torch.ops.mine.fancy.default"), "import the package that brings it"),
        (_wrapped("torch.os.system"), "calls 'torch.os.system', which is no operator"),
        (_wrapped("torch.hub.load"), "calls 'torch.hub.load', which is no operator"),
        (
            edited(lambda told: _sizes(told, "__import__('os').system('touch MARK')")),
            "which is no arithmetic",
        ),
        (edited(lambda told: _sizes(told, "s0.__class__")), "which is no arithmetic"),
        (edited(lambda told: _sizes(told, "(" * 900 + ")" * 900)), "which is no arithmetic"),
        (
            replaced('"name": "relu"', '"name": "relu; import os; os.system(1)"'),
            "which is no name",
        ),
        (replaced("builtins.tuple", "antigravity.Type"), "is of the type 'antigravity.Type'"),
        (lambda _: b"[]", "has no graph"),
        (lambda _: b"{" * 100_000, "is damaged"),
        (lambda content: content[:-30], "is damaged"),
    ],
)
def test_programs_that_say_what_torch_never_writes(
    change: Change, words: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = changed(program, tmp_path / "a.pt2", {"models/model.json": change})
    assert words in said_of(path)
    assert not (tmp_path / "MARK").exists()


def test_enumerations_and_factories_would_be_imported(program: Path, tmp_path: Path) -> None:
    """torch imports the module that such a context names."""

    def edit(told: Any) -> None:
        call = told["graph_module"]["module_call_graph"][0]["signature"]
        spec = json.loads(call["in_spec"])
        spec[1]["context"] = json.dumps({"__enum__": True, "fqn": "antigravity:A", "name": "A"})
        call["in_spec"] = json.dumps(spec)

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": edited(edit)})
    assert "which torch would import" in said_of(path)


def test_guards_of_a_program_are_not_run(program: Path, tmp_path: Path) -> None:
    """They are Python code; operators check shapes themselves."""
    mark = tmp_path / "MARK"

    def edit(told: Any) -> None:
        told["guards_code"] = [f"__import__('pathlib').Path({str(mark)!r}).touch() is None"]

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": edited(edit)})
    module = load(str(path)).module
    module(torch.zeros(1, 3, 8, 8))
    assert not mark.exists()


def test_compiled_programs_are_not_loaded(program: Path, tmp_path: Path) -> None:
    path = changed(program, tmp_path / "a.pt2", {"data/aotinductor/model/a.so": b"\x7fELF"})
    assert "machine code that AOTInductor compiled" in said_of(path)


def test_files_without_a_program_or_with_several(program: Path, tmp_path: Path) -> None:
    path = changed(program, tmp_path / "a.pt2", {"models/model.json": None})
    assert "no exported program in it" in said_of(path)
    path = changed(program, tmp_path / "b.pt2", {"models/other.json": b"{}"})
    assert "programs called model, other" in said_of(path)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("s0", True),
        ("2*s0 + 1", True),
        ("FloorDiv(s0 - 1, 2) + 1", True),
        ("Max(1, Mod(s0, 8))*s1**2*s2**2*s3**2*s4**2*s5**2*s6**2*s7**2", True),
        ("s0**(1/2)", True),
        ("PowByNatural(2, s0)", True),
        ("Piecewise((1, Eq(s0, 1)), (s0, True))", True),
        ("exec(s0)", False),
        ("Lambda(s0, s0)", False),
        ("Symbol('os')", False),
        ("s0.real", False),
        ("[s0]", False),
        ("9**9**9**9", False),
        ("(((9**16)**16)**16)**16", False),
        ("LShift(1, 10**12)", False),
        ("1 << 10**12", False),
        ("Pow(9, Pow(9, 9))", False),
        ("PowByNatural(9, 9**9)", False),
        ("(s0 - s0 + 9)**(9*9)", False),
        ("+".join(["s0"] * 5000), False),
    ],
)
def test_sizes_are_arithmetic_that_ends(text: str, is_one: bool) -> None:
    assert is_arithmetic(text) is is_one


def test_symbols_that_torch_would_count_up_to(program: Path, tmp_path: Path) -> None:
    def edit(told: Any) -> None:
        told["range_constraints"] = {"u999999999999": {"min_val": 0, "max_val": 9}}

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": edited(edit)})
    assert "more than a million sizes" in said_of(path)


@pytest.mark.parametrize("key", ["parameter_name", "fqn", "nn_module_stack"])
def test_names_that_would_be_code(key: str, program: Path, tmp_path: Path) -> None:
    """torch writes the names of weights and modules between quotes into Python code."""
    mark = tmp_path / "MARK"
    name = f'a")\nopen({str(mark)!r}, "w")\n#'

    def edit(told: Any) -> None:
        graph = told["graph_module"]
        if key == "parameter_name":
            specs = graph["signature"]["input_specs"]
            next(each["parameter"] for each in specs if "parameter" in each)[key] = name
        elif key == "fqn":
            graph["module_call_graph"][-1][key] = name
        else:
            _call(told)["metadata"][key] = f"a,{name},torch.nn.ReLU"

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": edited(edit)})
    assert "something is called 'a" in said_of(path)
    assert not mark.exists()


def test_names_of_weights_that_would_be_code(program: Path, tmp_path: Path) -> None:
    def edit(told: Any) -> None:
        told["config"]['a")\nimport os\n#'] = next(iter(told["config"].values()))

    name = "data/weights/model_weights_config.json"
    assert "something is called" in said_of(
        changed(program, tmp_path / "a.pt2", {name: edited(edit)})
    )


def test_weights_that_would_be_read_from_elsewhere(program: Path, tmp_path: Path) -> None:
    """A name with a slash is another member to torch than to who looks into the file."""

    def edit(told: Any) -> None:
        next(iter(told["config"].values()))["path_name"] = "/weight_0"

    changes: dict[str, bytes | Change | None] = {
        "data/weights/model_weights_config.json": edited(edit),
        "data/weights//weight_0": bytes(432),
    }
    assert "is missing in it" in said_of(changed(program, tmp_path / "a.pt2", changes))


def test_the_operators_that_open_files_are_known() -> None:
    """Every operator of torch that takes the name of a file, found by what it takes."""
    schemas = torch._C._jit_get_all_schemas()
    taking = {
        str(schema.name)
        for schema in schemas
        for argument in schema.arguments
        if "str" in str(argument.type) and "file" in argument.name
    }
    assert "aten::from_file" in taking
    for name in taking:
        namespace, _, operator = name.partition("::")
        assert why_refused(f"torch.ops.{namespace}.{operator}") != "", name
