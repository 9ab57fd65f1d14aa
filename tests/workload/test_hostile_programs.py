"""Programs in .pt2 files that would run code or fill all memory when torch reads or calls them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from roofline.workload.models.files.programs import is_arithmetic, refusal_reason
from roofline.workload.models.sources import load_model
from tests.workload.hostile_files import (
    Change,
    Evil,
    changed,
    edited,
    program_content,
    replaced,
    said_of,
    saved,
    written,
)

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
RELU = "torch.ops.aten.relu.default"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound file, in a folder to stand in: what code would make in it would be seen."""
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, ".pt2")


def _call(told: Any) -> Any:
    nodes = told["graph_module"]["graph"]["nodes"]
    return next(each for each in nodes if each["target"] == RELU)


def _size(text: str) -> Change:
    def edit(told: Any) -> None:
        values = told["graph_module"]["graph"]["tensor_values"]
        next(iter(values.values()))["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}

    return edited(edit)


def _wrapped(what: str) -> Change:
    """torch's ``wrap`` calls what it is given, and may be given what a name is looked up to."""

    def edit(told: Any) -> None:
        call = _call(told)
        call["target"] = "torch.ops.higher_order.wrap"
        called = {"name": "", "arg": {"as_operator": what}, "kind": 1}
        text = {"name": "", "arg": {"as_string": "touch MARK"}, "kind": 1}
        call["inputs"] = [called, text]

    return edited(edit)


def _enumeration(told: Any) -> None:
    """torch imports the module that such a context names."""
    call = told["graph_module"]["module_call_graph"][0]["signature"]
    spec = json.loads(call["in_spec"])
    spec[1]["context"] = json.dumps({"__enum__": True, "fqn": "antigravity:A", "name": "A"})
    call["in_spec"] = json.dumps(spec)


CODE = 'a")\nopen("MARK", "w")\n#'
"""A name that is code where torch writes it between quotes into Python."""


def _named(key: str) -> Change:
    def edit(told: Any) -> None:
        graph = told["graph_module"]
        if key == "parameter_name":
            specs = graph["signature"]["input_specs"]
            next(each["parameter"] for each in specs if "parameter" in each)[key] = CODE
        elif key == "fqn":
            graph["module_call_graph"][-1][key] = CODE
        else:
            _call(told)["metadata"][key] = f"a,{CODE},torch.nn.ReLU"

    return edited(edit)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced(RELU, "torch.os.system"), "calls 'torch.os.system', which is not an operator"),
        (replaced(RELU, "torch.hub.load"), "calls 'torch.hub.load'"),
        (replaced(RELU, "torch.load"), "calls 'torch.load'"),
        (replaced(RELU, "torch.ops.load_library"), "calls 'torch.ops.load_library'"),
        (replaced(RELU, "torch.ops.aten.from_file.default"), "aten.from_file"),
        (replaced(RELU, "_operator.methodcaller"), "calls '_operator.methodcaller'"),
        (replaced(RELU, "_operator.attrgetter"), "calls '_operator.attrgetter'"),
        (replaced(RELU, "#extension:evil"), "calls '#extension:evil'"),
        (replaced(RELU, "builtins.eval"), "calls 'builtins.eval'"),
        (replaced(RELU, "torch.ops.import_module.__call__"), "which is not an operator"),
        (replaced(RELU, "torch.ops.__class__.__subclasses__"), "which is not an operator"),
        (replaced(RELU, "torch.ops.loaded_libraries.add"), "which is not an operator"),
        (replaced(RELU, "torch.ops.aten.relu._schema"), "which is not an operator"),
        (replaced(RELU, "torch.ops.higher_order.print"), "which is not allowed in files"),
        (replaced(RELU, "torch.ops.mine.fancy.default"), "import its package first"),
        (_wrapped("torch.os.system"), "calls 'torch.os.system', which is not an operator"),
        (_wrapped("torch.hub.load"), "calls 'torch.hub.load', which is not an operator"),
        (_size("__import__('os').system('touch MARK')"), "which is not arithmetic"),
        (_size("s0.__class__"), "which is not arithmetic"),
        (_size("(" * 900 + ")" * 900), "which is not arithmetic"),
        (replaced('"name": "relu"', '"name": "relu; import os; os.system(1)"'), "invalid name"),
        (replaced("builtins.tuple", "antigravity.Type"), "has the type 'antigravity.Type'"),
        (edited(_enumeration), "which torch would import"),
        (lambda _: b"[]", "has no graph"),
        (lambda _: b"{" * 100_000, "is damaged"),
        (lambda content: content[:-30], "is damaged"),
        # torch would count up to it.
        (
            edited(lambda told: told.update(range_constraints={"u999999999999": {}})),
            "more than a million sizes",
        ),
        *((_named(key), "invalid name 'a") for key in ("parameter_name", "fqn")),
        (_named("nn_module_stack"), "invalid name 'a"),
    ],
)
def test_programs_that_say_what_torch_never_writes(
    change: Change, words: str, program: Path, tmp_path: Path
) -> None:
    assert words in said_of(changed(program, tmp_path / "a.pt2", {MODEL: change}))
    assert not (tmp_path / "MARK").exists()


def _first(edit: Mapping[str, Any] | None = None, **meta: Any) -> Change:
    """A change of what a list of tensors says of the first one."""

    def change(told: Any) -> None:
        entry = next(iter(told["config"].values()))
        entry.update(edit or {})
        entry["tensor_meta"].update(meta)

    return edited(change)


def _first_file() -> str:
    """The member that has the values of the first weight."""
    with zipfile.ZipFile(io.BytesIO(program_content())) as opened:
        name = next(each for each in opened.namelist() if each.endswith(WEIGHTS))
        told = json.loads(opened.read(name))
    return f"data/weights/{next(iter(told['config'].values()))['path_name']}"


HUGE = [{"as_int": 2**45}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data/aotinductor/model/a.so": b"\x7fELF"}, "machine code of AOTInductor"),
        ({MODEL: None}, "no exported program in the file"),
        ({"models/other.json": b"{}"}, "programs model, other"),
        (
            {WEIGHTS: edited(lambda told: told["config"].update({CODE: {"path_name": ""}}))},
            "invalid name",
        ),
        # A name with a slash is another member to torch than to who looks into the file.
        (
            {WEIGHTS: _first({"path_name": "/weight_0"}), "data/weights//weight_0": bytes(432)},
            "is missing",
        ),
        # torch would make as many zeros as the file asks for, and copies what is repeated.
        ({WEIGHTS: _first(sizes=HUGE), _first_file(): lambda _: b""}, "no data in the file"),
        ({WEIGHTS: _first(sizes=HUGE)}, "but 432 B of data in the file"),
        ({WEIGHTS: _first(sizes=HUGE, strides=[{"as_int": 0}])}, "of data in the file"),
        ({_first_file(): None}, "is missing"),
        (
            {WEIGHTS: _first(device={"type": "cuda", "index": 0})},
            "exported on device 'cuda'; export the model on the CPU",
        ),
        # torch would unpickle each of these.
        (
            {"data/sample_inputs/model.pt": saved((Evil(), {}))},
            "'data/sample_inputs/model.pt' is a pickle that imports posix.mkdir",
        ),
        ({"data/weights/model.pt": saved({"a": Evil()})}, "if you trust it, add allow_pickle=True"),
        ({WEIGHTS: _first({"use_pickle": True})}, "is pickled"),
        *(
            (
                {
                    CONSTANTS: json.dumps({"config": {"a": {"path_name": f"{kind}_0"}}}).encode(),
                    f"data/constants/{kind}_0": pickle.dumps(Evil()),
                },
                "is pickled",
            )
            for kind in ("custom_obj", "opaque_obj")
        ),
    ],
)
def test_members_that_torch_would_run_or_allocate(
    changes: Mapping[str, bytes | Change | None], words: str, program: Path, tmp_path: Path
) -> None:
    assert words in said_of(changed(program, tmp_path / "a.pt2", changes))
    assert not (tmp_path / "MARK").exists()


@pytest.mark.parametrize("pickled", ["state_dict", "constants", "example_inputs"])
def test_pickles_of_files_that_torch_wrote_before(pickled: str, program: Path) -> None:
    """They have no folder, and weights, constants and examples are unpickled."""
    with zipfile.ZipFile(program) as opened, zipfile.ZipFile("a.pt2", "w") as made:
        name = next(each for each in opened.namelist() if each.endswith(MODEL))
        made.writestr("serialized_exported_program.json", opened.read(name))
        made.writestr("version", "8.8")
        for each in ("state_dict", "constants", "example_inputs"):
            content = saved({"a": Evil()}) if each == pickled else b""
            made.writestr(f"serialized_{each}.pt", content)
    assert "is a pickle that imports posix.mkdir" in said_of("a.pt2")
    assert not Path("MARK").exists()


def test_guards_of_a_program_are_not_run(program: Path, tmp_path: Path) -> None:
    """They are Python code; operators check shapes themselves."""
    guard = "__import__('pathlib').Path('MARK').touch() is None"
    change = edited(lambda told: told.update(guards_code=[guard]))
    module = load_model(str(changed(program, tmp_path / "a.pt2", {MODEL: change}))).module
    module(torch.zeros(1, 3, 8, 8))
    assert not (tmp_path / "MARK").exists()


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
        assert refusal_reason(f"torch.ops.{namespace}.{operator}") != "", name
