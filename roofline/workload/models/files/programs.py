"""Checks of .pt2 files: program, weights, and anything that would be unpickled or run."""

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

# torch looks up operators by name in its whole package, which includes ``torch.os.system`` and
# ``torch.ops.import_module.__call__``, evaluates sizes as Python code, and writes names of weights
# and modules into Python code. So all names and texts are checked here first: anything that
# `torch.export.save` never writes is rejected.

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
"""Higher-order operators that run only the graphs and operators passed to them."""

_FILE_ARGUMENT = re.compile(r"(^|_)(file|filename|path|url|uri|dir|folder)s?($|_)")
_OPENING = frozenset({"from_file", "save", "load", "read_file", "write_file", "load_library"})

MISSING = "which is not loaded; import its package first, in Python"

_KINDS = (
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch._ops.HigherOrderOperator,
)


def refusal_reason(target: object) -> str:
    """Return why a program may not call ``"torch.ops.aten.relu.default"``; ``""`` if it may."""
    if not isinstance(target, str):
        return "which is not an operator"
    if _SIZE_FUNCTION.fullmatch(target) or _PYTHON_OPERATOR.fullmatch(target):
        return ""
    parts = _OPERATOR.fullmatch(target)
    if parts is None:
        return "which is not an operator"
    if parts[1] == "higher_order":
        return "" if parts[2] in _HIGHER_ORDER else "which is not allowed in files"
    found: Any = torch.ops
    for name in filter(None, parts.groups()):
        try:
            found = getattr(found, name)
        # Invalid registrations raise more than AttributeError.
        except (AttributeError, RuntimeError):
            return MISSING
    if not isinstance(found, _KINDS):
        return "which is not an operator"
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
"""Functions that torch writes: its own and sympy's, none of which looks up names."""

_POWERS = ("LShift", "RShift", "PowByNatural", "FloatPow")
_MAX_LENGTH = 2000
_MAX_EXPONENT = 64
"""Largest product of nested exponents: numbers stay small enough to compute."""

_MAX_NUMBER = 2**64


def is_arithmetic(text: str) -> bool:
    """Return whether a text is only arithmetic, fast to evaluate."""
    try:
        tree = ast.parse(text if len(text) <= _MAX_LENGTH else "", mode="eval")
        return _power(tree.body) <= _MAX_EXPONENT
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _power(part: ast.AST) -> float:
    """Return the largest product of nested exponents; infinite for anything but arithmetic."""
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
    """Return the exponent of a power; infinite for a computed one."""
    while isinstance(node, ast.UnaryOp):
        node = node.operand
    match node:
        case ast.BinOp(left=left, op=ast.Div()):
            # A root in sympy's form: x**(1/2).
            return _exponent(left)
        case ast.Constant(value=int() | float() as value):
            return int(value)
        case ast.Name():
            # A model may use two to the power of a size.
            return 1
        case _:
            return math.inf


_NAME = re.compile(r"[A-Za-z_]\w{0,499}")
_FORBIDDEN_CHARACTERS = re.compile(r'["\\\x00-\x1f\x7f\u2028\u2029]')
"""Characters not allowed in names of weights and modules, which torch writes into code."""

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
    """Return the program's description, checked for code."""
    try:
        program = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path}: the program is damaged: {printable(str(error)[:100])}"
        ) from None
    if not isinstance(program, dict) or "graph_module" not in program:
        raise FileFormatError(f"{path}: the program has no graph; export the model again")
    for where, value in _values(program):
        _check(path, where, value)
    return program


def _values(program: Any) -> Iterator[tuple[str, Any]]:
    """Yield all values with their keys, without recursion."""
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
"""Numbers of size symbols, up to which torch counts."""


def _check(path: Path, where: str, value: Any) -> None:
    """Reject names and expressions that exported programs never contain."""
    if where == "expr_str" and not (isinstance(value, str) and is_arithmetic(value)):
        raise _refused(path, f"a size is {_quote(value)}, which is not arithmetic")
    if isinstance(value, dict):
        for target in (value[key] for key in ("target", "as_operator") if key in value):
            why = refusal_reason(target)
            if why == MISSING:
                raise FileFormatError(f"{path}: the program calls {_quote(target)}, {why}")
            if why:
                raise _refused(path, f"the program calls {_quote(target)}, {why}")
        for name in value if where in _NAMED_VALUES else ():
            if not _NAME.fullmatch(name):
                raise _refused(path, f"a value has the invalid name {_quote(name)}")
            if where == "range_constraints" and _HUGE_NUMBER.fullmatch(name):
                raise _refused(path, f"more than a million sizes, up to {_quote(name)}")
    elif isinstance(value, str) and value:
        if where in _NAMES and not _NAME.fullmatch(value):
            raise _refused(path, f"invalid name {_quote(value)}")
        if where in _PATHS:
            _check_path(path, value)
        if where in ("in_spec", "out_spec"):
            _check_structure(path, value)


def _check_path(path: Path, name: str) -> None:
    """Reject names of weights and modules that could inject code."""
    if _FORBIDDEN_CHARACTERS.search(name):
        raise _refused(path, f"invalid name {_quote(name)}")


# -- inputs and outputs ----------------------------------------------------------------------------


def _parts(text: str) -> list[tuple[str, Any]] | None:
    """Return all values in a JSON text; None if it is invalid."""
    try:
        return list(_values(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def output_types(program: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types of inputs and outputs that are not plain containers."""
    found = [
        str(part.get("type"))
        for where, value in _values(program)
        if where in ("in_spec", "out_spec") and isinstance(value, str) and value
        for _, part in _parts(value) or ()
        if isinstance(part, dict) and isinstance(part.get("type"), str)
    ]
    return tuple(dict.fromkeys(each for each in found if each not in _CONTAINERS))


def _check_structure(path: Path, text: str) -> None:
    """Reject foreign types in the structure of inputs and outputs, which torch would import."""
    if (parts := _parts(text)) is None:
        raise _refused(path, "the structure of its inputs is invalid")
    for where, value in parts:
        if where == "type" and value is not None and value not in _CONTAINERS:
            if not (isinstance(value, str) and _OTHER_OUTPUTS.fullmatch(value)):
                raise _refused(path, f"an input or output has the type {_quote(value)}")
        elif where == "context" and isinstance(value, str):
            # Keys of a dictionary become argument names in code that torch writes.
            for _, part in _parts(value) or [("", value)]:
                if isinstance(part, dict) and not part.keys().isdisjoint(_IMPORTED):
                    raise _refused(path, "an input has a custom type, which torch would import")
                if isinstance(part, str) and not re.fullmatch(r"[\w .:/-]*", part):
                    raise _refused(path, f"an input has the invalid name {_quote(part)}")


def _refused(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path}: not opened: {why}; not written by torch.export")


def _quote(value: object) -> str:
    return f"'{printable(str(value))[:80]}'"


_MAX_TEXT_BYTES = 2**29
_MAX_EXAMPLES_BYTES = 2**31

_LEGACY_PROGRAM = "serialized_exported_program.json"
"""Name of the program in files of torch before 2.7."""

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
"""Limit for tensors stored with fewer elements (stride 0)."""


def check_program_file(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """Return the description of a program, after checks that loading runs no code in the file."""
    path, models = archive.path, archive.within("models/")
    for folder, what in (
        ("data/aotinductor/", "machine code of AOTInductor"),
        ("data/executorch/", "an ExecuTorch program"),
    ):
        if archive.within(folder):
            raise FileFormatError(
                f"{path}: contains {what}, whose operators are not readable; use the file of"
                " torch.export.save"
            )
    for name in archive.size_bytes:
        # torch ignores the case of names, and writes no capitals.
        if name != name.lower() and not name.startswith("extra"):
            raise _refused(path, f"member {_quote(name)} has capitals")
    place, pickles = _LEGACY_PROGRAM, _LEGACY_PICKLES
    if any(each.endswith(_LEGACY_PROGRAM) for each in archive.size_bytes):
        # torch prefers the new format, so a file with both would open differently.
        for name in archive.size_bytes:
            known = (*_LEGACY_TEXTS, *_LEGACY_PICKLES)
            if archive.folder or name.partition("/")[0] not in known:
                raise _refused(path, f"{_quote(name)} next to a program of torch before 2.7")
    elif not models:
        raise FileFormatError(
            f"{path}: no exported program in the file; write it with torch.export.save"
        )
    # torch uses the names in this folder without their last five characters.
    elif models != ("models/model.json",):
        names = ", ".join(printable(each[7:].removesuffix(".json"))[:60] for each in models[:5])
        raise FileFormatError(
            f"{path}: contains the programs {names}; expected one program 'model', save it alone"
        )
    elif not archive.folder:
        raise FileFormatError(f"{path}: its members are not in one folder, as torch writes them")
    else:
        place, pickles = "models/model.json", ("data/sample_inputs/model.pt",)
        for kind in ("weights", "constants"):
            _check_payload(archive, kind, allow_pickle=allow_pickle)
    for name in pickles:
        if name in archive and not allow_pickle:
            _check_plain(archive, name)
    return _program(path, archive.read(place, max_bytes=_MAX_TEXT_BYTES))


def _check_payload(archive: Archive, kind: str, *, allow_pickle: bool) -> None:
    """Reject weights or constants that are pickled, missing, or larger than their data."""
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
        raise FileFormatError(f"{path}: member '{name}' is damaged") from None


def _check_tensor(
    archive: Archive, folder: str, name: str, entry: Any, *, allow_pickle: bool
) -> None:
    path, file = archive.path, entry["path_name"]
    where, what = f"{folder}/{file}", f"{path}: the tensor '{printable(name)[:60]}'"
    _check_path(path, name)
    if not _STORED.fullmatch(file) or where not in archive:
        raise FileFormatError(f"{what} is missing")
    if entry.get("use_pickle") or file.startswith(("custom_obj", "opaque_obj")):
        if not allow_pickle:
            raise _pickle_error(path, f"'{printable(name)[:60]}' is pickled")
        return
    meta = entry["tensor_meta"]
    sizes = tuple(int(each["as_int"]) for each in meta["sizes"])
    device, size_bytes = str(meta["device"]["type"]), archive.size_bytes[where]
    elements = math.prod(sizes)
    # Without data torch allocates zeros of the whole shape.
    if min(sizes, default=0) < 0 or (elements and not size_bytes):
        raise FileFormatError(f"{what} has shape {sizes} but no data in the file")
    # torch copies expanded tensors.
    if elements > max(size_bytes, _MAX_EXPANDED_ELEMENTS):
        stored = format_bytes(size_bytes)
        raise FileFormatError(f"{what} has shape {sizes} but {stored} of data in the file")
    if device not in ("cpu", "meta"):
        raise FileFormatError(
            f"{path}: exported on device '{printable(device)}'; export the model on the CPU"
        )


def _check_plain(archive: Archive, name: str) -> None:
    """Reject a member that torch cannot load without unpickling."""
    content = archive.read(name, max_bytes=_MAX_EXAMPLES_BYTES)
    if content.startswith(b"PK"):
        open_archive(archive.path, io.BytesIO(content))
    try:
        if content:
            torch.load(io.BytesIO(content), weights_only=True, map_location="meta")
    except Exception as error:
        raise _pickle_error(archive.path, f"'{name}' is a pickle{refused_import(error)}") from error


_IMPORT = re.compile(r"GLOBAL ([\w.]+)")
"""torch's message about a rejected import in a pickle."""


def refused_import(error: BaseException | None) -> str:
    """Return ``" that imports posix.mkdir"`` for a pickle that torch rejected."""
    found = _IMPORT.search(str(error))
    return f" that imports {printable(found[1])[:80]}" if found else ""


def _pickle_error(path: Path, what: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: {what}, and unpickling runs code in the file; if you trust it, add"
        f" {argument('allow_pickle', True)}"
    )
