"""What lies in a .pt2 file: its program, its weights, and what would be unpickled or run."""

from __future__ import annotations

import ast
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.core.text import printable
from roofline.core.units import format_bytes
from roofline.errors import FileFormatError, argument
from roofline.workload.models.files.archives import Archive, open_archive

# torch looks operators up by name in all of its own package, where ``torch.os.system`` and
# ``torch.ops.import_module.__call__`` would be found, computes sizes by evaluating text, and writes
# Python code in which the names of weights and modules stand. So every name and every text is
# checked here first: what a program that `torch.export.save` wrote never says is refused.

_OPERATOR = re.compile(r"torch\.ops\.([A-Za-z]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z]\w*))?")
_SIZE_FUNCTION = re.compile(r"torch\._?sym_[a-z]\w*|math\.[a-z]\w*")
_PYTHON_OPERATOR = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pos|pow|and_|or_|xor|not_|lshift|rshift"
    r"|eq|ne|lt|le|gt|ge|getitem|abs|invert)"
)
_HIGHER_ORDER = frozenset(
    {
        *("cond", "while_loop", "while_loop_stack_output", "map_impl", "scan", "associative_scan"),
        *("wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast", "strict_mode", "out_dtype"),
        *("tag_activation_checkpoint", "wrap_activation_checkpoint", "autograd_function_apply"),
        *("auto_functionalized", "auto_functionalized_v2", "invoke_subgraph", "with_effects"),
        *("flex_attention", "hints_wrapper", "run_const_graph"),
    }
)
"""Operators of graphs that run nothing but the graphs and operators that they are given."""

_FILE_ARGUMENT = re.compile(r"(^|_)(file|filename|path|url|uri|dir|folder)s?($|_)")
_OPENING = frozenset({"from_file", "save", "load", "read_file", "write_file", "load_library"})

MISSING = "which torch does not have here; import the package that brings it, from Python"

_KINDS = (
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch._ops.HigherOrderOperator,
)


def refusal_reason(target: object) -> str:
    """Return why a program may not call ``"torch.ops.aten.relu.default"``; ``""`` if it may."""
    if not isinstance(target, str):
        return "which is no operator"
    if _SIZE_FUNCTION.fullmatch(target) or _PYTHON_OPERATOR.fullmatch(target):
        return ""
    parts = _OPERATOR.fullmatch(target)
    if parts is None:
        return "which is no operator"
    if parts[1] == "higher_order":
        return "" if parts[2] in _HIGHER_ORDER else "which is not run from files"
    found: Any = torch.ops
    for name in filter(None, parts.groups()):
        try:
            found = getattr(found, name)
        # What is registered wrongly raises more than AttributeError.
        except (AttributeError, RuntimeError):
            return MISSING
    if not isinstance(found, _KINDS):
        return "which is no operator"
    many: Any = getattr(found, "_schemas", {})
    opens_files = parts[2] in _OPENING or any(
        "str" in str(argument.type) and _FILE_ARGUMENT.search(argument.name)
        for schema in (*many.values(), *filter(None, [getattr(found, "_schema", None)]))
        for argument in schema.arguments
    )
    return "which opens files" if opens_files else ""


_FUNCTIONS = frozenset(
    {
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilDiv"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "TruncToFloat", "RoundDecimal"),
        *("ToFloat", "FloatTrueDiv", "IntTrueDiv", "Identity", "LShift", "RShift", "PowByNatural"),
        *("FloatPow", "IsNonOverlappingAndDenseIndicator", "Max", "Min", "Abs", "sqrt"),
        *("floor", "ceiling", "Piecewise", "ExprCondPair", "And", "Or", "Not"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Integer", "Float", "Rational"),
    }
)
"""What torch writes: its own functions and sympy's, none of which looks anything up by a text."""

_POWERS = ("LShift", "RShift", "PowByNatural", "FloatPow")
_MAX_LENGTH = 2000
_MAX_EXPONENT = 64
"""What powers of powers may come to: numbers stay small enough to compute."""

_MAX_NUMBER = 2**64


def is_arithmetic(text: str) -> bool:
    """Whether evaluating a text does nothing but arithmetic, and soon ends."""
    try:
        tree = ast.parse(text if len(text) <= _MAX_LENGTH else "", mode="eval")
        return _power(tree.body) <= _MAX_EXPONENT
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _power(part: ast.AST) -> float:
    """The largest product of exponents that stand within each other; infinite: no arithmetic."""
    own = 1.0
    match part:
        case ast.Constant(value=int() | float() as value) if abs(value) <= _MAX_NUMBER:
            pass
        case ast.Name(id=name) if "__" not in name:
            pass
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if name in _POWERS:
                own = _exponent(args[1]) if len(args) == 2 else math.inf
        case ast.BinOp(op=ast.Pow(), right=exponent):
            own = _exponent(exponent)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv()):
            pass
        case ast.BinOp(op=ast.Mod()) | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.Tuple():
            pass
        case ast.operator() | ast.unaryop() | ast.boolop() | ast.cmpop() | ast.expr_context():
            pass
        case _:
            return math.inf
    return max(1.0, own) * max(map(_power, ast.iter_child_nodes(part)), default=1.0)


def _exponent(node: ast.expr) -> float:
    """The exponent of a power; infinite where it is computed."""
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    match node:
        case ast.BinOp(left=left, op=ast.Div()):
            # A root, as sympy writes it: x**(1/2).
            return _exponent(left)
        case ast.Constant(value=int() | float() as value):
            return int(value)
        case ast.Name():
            # Two to the power of a size is what a model may ask for.
            return 1
        case _:
            return math.inf


_NAME = re.compile(r"[A-Za-z_]\w{0,499}")
_FORBIDDEN_CHARACTERS = re.compile(r'["\\\x00-\x1f\x7f\u2028\u2029]')
"""What no name of a weight or module has: torch writes them between quotes into code."""

_CONTAINERS = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.Size",
)
_IMPORTED = ("__enum__", "default_factory_module")
_OTHER_OUTPUTS = re.compile(r"(transformers|torch)(\.\w+)+")


def _program(path: Path, text: bytes) -> Mapping[str, Any]:
    """The program's description, once nothing in it can run code."""
    try:
        program = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path}: the program in it is damaged: {printable(str(error)[:100])}"
        ) from None
    if not isinstance(program, dict) or "graph_module" not in program:
        raise FileFormatError(f"{path}: the program in it has no graph; export the model again")
    for where, value in _values(program):
        _check(path, where, value)
    return program


def _values(program: Any) -> Iterator[tuple[str, Any]]:
    """Everything in it with the key that it stands under, without recursion."""
    waiting: list[tuple[str, Any]] = [("", program)]
    while waiting:
        where, value = waiting.pop()
        yield where, value
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += ((where, each) for each in value)


_NAMES = ("name", "as_name", "forward_arg_names")
_PATHS = (
    *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name"),
    *("user_input_name", "fqn", "class_fqn", "nn_module_stack"),
)
_NAMED_VALUES = (
    *("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"),
    *("custom_obj_values", "range_constraints"),
)
_HUGE_NUMBER = re.compile(r"\D*0*[1-9]\d{6,}")
"""Symbols of sizes are numbered, and torch counts up to each number."""


def _check(path: Path, where: str, value: Any) -> None:
    """Refuses a value that names or computes what no exported program does."""
    if where == "expr_str" and not (isinstance(value, str) and is_arithmetic(value)):
        raise _refused(path, f"a size is {_quote(value)}, which is no arithmetic")
    if isinstance(value, dict):
        for target in (value[key] for key in ("target", "as_operator") if key in value):
            why = refusal_reason(target)
            if why == MISSING:
                raise FileFormatError(f"{path}: the program calls {_quote(target)}, {why}")
            if why:
                raise _refused(path, f"the program calls {_quote(target)}, {why}")
        for name in value if where in _NAMED_VALUES else ():
            if not _NAME.fullmatch(name):
                raise _refused(path, f"a value called {_quote(name)}, which is no name")
            if where == "range_constraints" and _HUGE_NUMBER.fullmatch(name):
                raise _refused(path, f"more than a million sizes, up to {_quote(name)}")
    elif isinstance(value, str) and value:
        if where in _NAMES and not _NAME.fullmatch(value):
            raise _refused(path, f"something called {_quote(value)}, which is no name")
        if where in _PATHS:
            _check_path(path, value)
        if where in ("in_spec", "out_spec"):
            _check_structure(path, value)


def _check_path(path: Path, name: str) -> None:
    """Refuses a name of a weight or module that would be code where torch writes it into some."""
    if _FORBIDDEN_CHARACTERS.search(name):
        raise _refused(path, f"something is called {_quote(name)}")


# -- what goes in and comes out --------------------------------------------------------------------


def _parts(text: str) -> list[tuple[str, Any]] | None:
    """Everything in a text of JSON; None where it is none."""
    try:
        return list(_values(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def output_types(program: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of what goes in and comes out that are no plain containers."""
    found = [
        str(part.get("type"))
        for where, value in _values(program)
        if where in ("in_spec", "out_spec") and isinstance(value, str) and value
        for _, part in _parts(value) or ()
        if isinstance(part, dict) and isinstance(part.get("type"), str)
    ]
    return tuple(dict.fromkeys(each for each in found if each not in _CONTAINERS))


def _check_structure(path: Path, text: str) -> None:
    """How inputs and outputs are nested; torch imports modules that it names."""
    if (parts := _parts(text)) is None:
        raise _refused(path, "the structure of its inputs cannot be read")
    for where, value in parts:
        if where == "type" and value is not None and value not in _CONTAINERS:
            if not (isinstance(value, str) and _OTHER_OUTPUTS.fullmatch(value)):
                raise _refused(path, f"an input or output is of the type {_quote(value)}")
        elif where == "context" and isinstance(value, str):
            # The keys of a dictionary: they become names of arguments in code that torch writes.
            for _, part in _parts(value) or [("", value)]:
                if isinstance(part, dict) and not part.keys().isdisjoint(_IMPORTED):
                    what = "an input is of a type of its own, which torch would import"
                    raise _refused(path, what)
                if isinstance(part, str) and not re.fullmatch(r"[\w .:/-]*", part):
                    raise _refused(path, f"an input is called {_quote(part)}")


def _refused(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path}: not opened: {why}; torch.export writes no such thing")


def _quote(value: object) -> str:
    return f"'{printable(str(value))[:80]}'"


_MAX_TEXT_BYTES = 2**29
_MAX_EXAMPLES_BYTES = 2**31

_LEGACY_PROGRAM = "serialized_exported_program.json"
"""What the program is called in files of torch before 2.7."""

_LEGACY_PICKLES = (
    "serialized_state_dict.pt",
    "serialized_state_dict.json",
    "serialized_constants.pt",
    "serialized_constants.json",
    "serialized_example_inputs.pt",
)
_LEGACY_TEXTS = ("version", _LEGACY_PROGRAM, "extra_files")

_STORED = re.compile(r"[A-Za-z0-9_.-]+")
_MAX_EXPANDED_ELEMENTS = 2**26
"""Elements of a tensor that is stored as fewer, each of which stands for several."""


def check_program_file(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """Return the description of a program, once loading its file runs no code of it."""
    path, models = archive.path, archive.within("models/")
    for folder, what in (
        ("data/aotinductor/", "machine code that AOTInductor compiled"),
        ("data/executorch/", "a program for ExecuTorch"),
    ):
        if archive.within(folder):
            raise FileFormatError(
                f"{path}: it holds {what}, whose operators cannot be seen; give the file that"
                " torch.export.save wrote"
            )
    for name in archive.size_bytes:
        # torch finds members whatever the case of their names, and writes none in capitals.
        if name != name.lower() and not name.startswith("extra"):
            raise _refused(path, f"{_quote(name)} in it is in capitals")
    place, pickles = _LEGACY_PROGRAM, _LEGACY_PICKLES
    if any(each.endswith(_LEGACY_PROGRAM) for each in archive.size_bytes):
        # torch looks for what it writes now first: what is here would not be what it opens.
        for name in archive.size_bytes:
            known = (*_LEGACY_TEXTS, *_LEGACY_PICKLES)
            if archive.folder or name.partition("/")[0] not in known:
                raise _refused(path, f"{_quote(name)} lies beside a program of torch before 2.7")
    elif not models:
        raise FileFormatError(
            f"{path}: there is no exported program in it; torch.export.save writes .pt2 files"
        )
    # Of anything in this folder torch takes the name without its last five characters.
    elif models != ("models/model.json",):
        names = ", ".join(printable(each[7:].removesuffix(".json"))[:60] for each in models[:5])
        raise FileFormatError(
            f"{path}: it holds programs called {names}; save the one that is meant alone"
        )
    elif not archive.folder:
        raise FileFormatError(f"{path}: not all of it lies in one folder, as torch writes it")
    else:
        place, pickles = "models/model.json", ("data/sample_inputs/model.pt",)
        for kind in ("weights", "constants"):
            _check_payload(archive, kind, allow_pickle=allow_pickle)
    for name in pickles:
        if name in archive and not allow_pickle:
            _check_plain(archive, name)
    return _program(path, archive.read(place, max_bytes=_MAX_TEXT_BYTES))


def _check_payload(archive: Archive, kind: str, *, allow_pickle: bool) -> None:
    """Refuses weights or constants that are pickles, missing, or larger than what is there."""
    path = archive.path
    if (earlier := f"data/{kind}/model.pt") in archive:
        if not allow_pickle:
            _check_plain(archive, earlier)
        return
    name = f"data/{kind}/model_{kind}_config.json"
    content = archive.read(name, max_bytes=_MAX_TEXT_BYTES)
    try:
        entries = dict[str, Any](json.loads(content)["config"])
        for known, entry in entries.items():
            _check_tensor(archive, f"data/{kind}", known, entry, allow_pickle=allow_pickle)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FileFormatError(f"{path}: '{name}' in it is damaged") from None


def _check_tensor(
    archive: Archive, folder: str, name: str, entry: Any, *, allow_pickle: bool
) -> None:
    path, file = archive.path, entry["path_name"]
    where, what = f"{folder}/{file}", f"{path}: the tensor '{printable(name)[:60]}'"
    _check_path(path, name)
    if not _STORED.fullmatch(file) or where not in archive:
        raise FileFormatError(f"{what} is missing in it")
    if entry.get("use_pickle") or file.startswith(("custom_obj", "opaque_obj")):
        if not allow_pickle:
            raise _pickle_error(path, f"'{printable(name)[:60]}' is pickled")
        return
    meta = entry["tensor_meta"]
    sizes = tuple(int(each["as_int"]) for each in meta["sizes"])
    device, size_bytes = str(meta["device"]["type"]), archive.size_bytes[where]
    elements = math.prod(sizes)
    # Where nothing is stored, torch makes as many zeros as are asked for.
    if min(sizes, default=0) < 0 or (elements and not size_bytes):
        raise FileFormatError(f"{what} has the shape {sizes} and no values in the file")
    # torch copies what is repeated.
    if elements > max(size_bytes, _MAX_EXPANDED_ELEMENTS):
        stored = format_bytes(size_bytes)
        raise FileFormatError(f"{what} has the shape {sizes} and {stored} of values in the file")
    if device not in ("cpu", "meta"):
        raise FileFormatError(
            f"{path}: it was exported on '{printable(device)}', which its operators name; export"
            " the model on the CPU"
        )


def _check_plain(archive: Archive, name: str) -> None:
    """Refuse what torch cannot load without running a pickle, as it would then run it."""
    content = archive.read(name, max_bytes=_MAX_EXAMPLES_BYTES)
    if content.startswith(b"PK"):
        open_archive(archive.path, io.BytesIO(content))
    try:
        if content:
            torch.load(io.BytesIO(content), weights_only=True, map_location="meta")
    except Exception as error:
        raise _pickle_error(archive.path, f"'{name}' is a pickle{refused_import(error)}") from error


_IMPORT = re.compile(r"GLOBAL ([\w.]+)")
"""How torch names an import of a pickle that it does not run."""


def refused_import(error: BaseException | None) -> str:
    """Return ``" that imports posix.mkdir"`` of a pickle that torch refused to load."""
    found = _IMPORT.search(str(error))
    return f" that imports {printable(found[1])[:80]}" if found else ""


def _pickle_error(path: Path, what: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: {what}, and unpickling runs what a file says; add"
        f" {argument('allow_pickle', True)} if you trust it"
    )
