"""What lies in a .pt2 file: its program, its weights, and what would be unpickled or run."""

from __future__ import annotations

import ast
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes
from roofline.workload.models.files.archives import Archive, archive_in
from roofline.workload.models.files.pickled import refused_import

# torch looks operators up by name in all of its own package, computes sizes by evaluating text, and
# writes Python code in which the names of weights and modules stand. So every name and every text
# is checked here first: what a program that `torch.export.save` wrote never says is refused.

# torch takes the name that a file says and looks it up in all of its own package, where
# ``torch.os.system`` and ``torch.ops.import_module.__call__`` would be found.

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

_OF_FILES = re.compile(r"(^|_)(file|filename|path|url|uri|dir|folder)s?($|_)")
_OPENING = frozenset({"from_file", "save", "load", "read_file", "write_file", "load_library"})

MISSING = "which torch does not have here; import the package that brings it, from Python"

_KINDS = (
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch._ops.HigherOrderOperator,
)


def why_refused(target: object) -> str:
    """Why a program may not call this; ``""`` if it may.

    Args:
        target: what the file says, ``"torch.ops.aten.relu.default"``.
    """
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
    schemas: Iterable[Any] = ()
    if isinstance(found, torch._ops.OpOverload):
        schemas = (found._schema,)
    elif isinstance(found, torch._ops.OpOverloadPacket):
        schemas = found._schemas.values()
    opens_files = parts[2] in _OPENING or any(
        "str" in str(argument.type) and _OF_FILES.search(argument.name)
        for schema in schemas
        for argument in schema.arguments
    )
    return "which opens files" if opens_files else ""


_PARTS = (
    *(ast.Expression, ast.Name, ast.Load, ast.Call, ast.Constant, ast.UnaryOp, ast.BinOp),
    *(ast.Tuple, ast.Compare, ast.BoolOp, ast.unaryop, ast.cmpop, ast.boolop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
)
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
_LONGEST = 2000
_LARGEST_EXPONENT = 64
"""What powers of powers may come to: numbers stay small enough to compute."""

_LARGEST_NUMBER = 2**64


def is_arithmetic(text: str) -> bool:
    """Whether evaluating a text does nothing but arithmetic, and soon ends."""
    try:
        if len(text) > _LONGEST:
            return False
        tree = ast.parse(text, mode="eval")
        is_allowed = all(_is_allowed(part) for part in ast.walk(tree))
        return is_allowed and _power(tree) <= _LARGEST_EXPONENT
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_allowed(part: ast.AST) -> bool:
    if isinstance(part, ast.Name):
        return "__" not in part.id
    if isinstance(part, ast.Constant):
        value = part.value
        return isinstance(value, (int, float)) and abs(value) <= _LARGEST_NUMBER
    if isinstance(part, ast.Call):
        is_known = isinstance(part.func, ast.Name) and part.func.id in _FUNCTIONS
        return is_known and not part.keywords
    return isinstance(part, _PARTS)


def _power(part: ast.AST) -> int:
    """The largest product of exponents that stand within each other."""
    inner = max((_power(each) for each in ast.iter_child_nodes(part)), default=1)
    return max(1, _exponent(part)) * inner


def _exponent(part: ast.AST) -> int:
    """The exponent of a power, 1 of anything else; too large a number where it is computed."""
    match part:
        case ast.BinOp(op=ast.Pow(), right=exponent):
            return _whole(exponent)
        case ast.Call(func=ast.Name(id=name), args=[_, exponent]) if name in _POWERS:
            return _whole(exponent)
        case ast.Call(func=ast.Name(id=name)) if name in _POWERS:
            return _LARGEST_EXPONENT + 1
        case _:
            return 1


def _whole(exponent: ast.expr) -> int:
    while isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    # A root, as sympy writes it: x**(1/2).
    if isinstance(exponent, ast.BinOp) and isinstance(exponent.op, ast.Div):
        return _whole(exponent.left)
    if isinstance(exponent, ast.Constant) and isinstance(exponent.value, (int, float)):
        return int(exponent.value)
    # Two to the power of a size is what a model may ask for; a number to that of a number is not.
    return 1 if isinstance(exponent, ast.Name) else _LARGEST_EXPONENT + 1


_NAME = re.compile(r"[A-Za-z_]\w{0,499}")
_UNSPEAKABLE = re.compile(r'["\\\x00-\x1f\x7f\u2028\u2029]')
"""What no name of a weight or module has: torch writes them between quotes into code."""

_CONTAINERS = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.Size",
)
_OTHER_OUTPUTS = re.compile(r"(transformers|torch)(\.\w+)+")


def check_program(path: Path, text: bytes) -> Mapping[str, Any]:
    """The program's description, once nothing in it can run code.

    Raises:
        FileFormatError: it is damaged, or says what torch.export never writes.
    """
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


def _check(path: Path, where: str, value: Any) -> None:
    """Refuses a value that names or computes what no exported program does."""
    if where == "expr_str" and not (isinstance(value, str) and is_arithmetic(value)):
        raise _refused(path, f"a size is {_shown(value)}, which is no arithmetic")
    if isinstance(value, dict):
        for key in ("target", "as_operator"):
            if key in value:
                _check_target(path, value[key])
        for name in value if where in _NAMED_VALUES else ():
            if not _NAME.fullmatch(name):
                raise _refused(path, f"a value called {_shown(name)}, which is no name")
            if where == "range_constraints" and _MANY.fullmatch(name):
                raise _refused(path, f"more than a million sizes, up to {_shown(name)}")
    elif isinstance(value, str) and value:
        if where in _NAMES and not _NAME.fullmatch(value):
            raise _refused(path, f"something called {_shown(value)}, which is no name")
        if where in _PATHS:
            check_path(path, value)
        if where in ("in_spec", "out_spec"):
            _check_structure(path, value)


_NAMES = ("name", "as_name", "forward_arg_names")
_PATHS = (
    *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name"),
    *("user_input_name", "fqn", "class_fqn", "nn_module_stack"),
)
_NAMED_VALUES = (
    *("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"),
    *("custom_obj_values", "range_constraints"),
)


_MANY = re.compile(r"\D*0*[1-9]\d{6,}")
"""Symbols of sizes are numbered, and torch counts up to each number."""


def check_path(path: Path, name: str) -> None:
    """Refuses a name of a weight or module that would be code where torch writes it into some.

    Raises:
        FileFormatError: it has quotes or line breaks.
    """
    if _UNSPEAKABLE.search(name):
        raise _refused(path, f"something is called {_shown(name)}")


def _check_target(path: Path, target: Any) -> None:
    """Only operators may be called."""
    why = why_refused(target)
    if why == MISSING:
        raise FileFormatError(f"{path}: the program calls {_shown(target)}, {why}")
    if why:
        raise _refused(path, f"the program calls {_shown(target)}, {why}")


# -- what goes in and comes out --------------------------------------------------------------------


def output_types(program: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of what goes in and comes out that are no plain containers."""
    found = [
        str(part.get("type"))
        for where, value in _values(program)
        if where in ("in_spec", "out_spec") and isinstance(value, str) and value
        for _, part in _values(json.loads(value))
        if isinstance(part, dict) and isinstance(part.get("type"), str)
    ]
    return tuple(dict.fromkeys(each for each in found if each not in _CONTAINERS))


def _check_structure(path: Path, text: str) -> None:
    """How inputs and outputs are nested; torch imports modules that it names."""
    try:
        parts = list(_values(json.loads(text)))
    except (ValueError, RecursionError):
        raise _refused(path, "the structure of its inputs cannot be read") from None
    for where, value in parts:
        if where == "type" and value is not None:
            is_known = value in _CONTAINERS or (
                isinstance(value, str) and _OTHER_OUTPUTS.fullmatch(value)
            )
            if not is_known:
                raise _refused(path, f"an input or output is of the type {_shown(value)}")
        elif where == "context" and isinstance(value, str):
            _check_context(path, value)


def _check_context(path: Path, text: str) -> None:
    """The keys of a dictionary: they become names of arguments in code that torch writes."""
    try:
        parts = list(_values(json.loads(text)))
    except (ValueError, RecursionError):
        parts = [("", text)]
    for _, value in parts:
        if isinstance(value, dict) and ("__enum__" in value or "default_factory_module" in value):
            raise _refused(path, "an input is of a type of its own, which torch would import")
        if isinstance(value, str) and not re.fullmatch(r"[\w .:/-]*", value):
            raise _refused(path, f"an input is called {_shown(value)}")


def _refused(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path}: not opened: {why}; torch.export writes no such thing")


def _shown(value: object) -> str:
    return f"'{printable(str(value))[:80]}'"


_MOST_TEXT_BYTE = 2**29
_MOST_EXAMPLES_BYTE = 2**31

_EARLIER = "serialized_exported_program.json"
"""What the program is called in files of torch before 2.7."""

_EARLIER_PICKLES = (
    "serialized_state_dict.pt",
    "serialized_state_dict.json",
    "serialized_constants.pt",
    "serialized_constants.json",
    "serialized_example_inputs.pt",
)
_EARLIER_TEXTS = ("version", _EARLIER, "extra_files")

_STORED = re.compile(r"[A-Za-z0-9_.-]+")
_MOST_REPEATED = 2**26
"""Elements of a tensor that is stored as fewer, each of which stands for several."""


def check_program_file(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """The description of a file's program, once loading it runs no code of the file's.

    Raises:
        FileFormatError: it is no exported program, or not whole; it holds machine code, pickles
            that were not allowed, or calls what is no operator.
    """
    path = archive.path
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
            raise FileFormatError(
                f"{path}: not opened: '{printable(name)[:80]}' in it; torch.export writes no"
                " capitals"
            )
    if any(each.endswith(_EARLIER) for each in archive.size_bytes):
        return _earlier(archive, allow_pickle=allow_pickle)
    models = archive.within("models/")
    if not models:
        raise FileFormatError(
            f"{path}: there is no exported program in it; torch.export.save writes .pt2 files"
        )
    # Of anything in this folder torch takes the name without its last five characters.
    if models != ("models/model.json",):
        names = ", ".join(printable(each[7:].removesuffix(".json"))[:60] for each in models[:5])
        raise FileFormatError(
            f"{path}: it holds programs called {names}; save the one that is meant alone"
        )
    if not archive.folder:
        raise FileFormatError(f"{path}: not all of it lies in one folder, as torch writes it")
    program = check_program(path, archive.read(models[0], max_bytes=_MOST_TEXT_BYTE))
    for kind in ("weights", "constants"):
        _check_payload(archive, kind, allow_pickle=allow_pickle)
    examples = "data/sample_inputs/model.pt"
    if examples in archive and not allow_pickle:
        _check_plain(archive, examples)
    return program


def _earlier(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """The program of a file as torch wrote it before 2.7, in which nothing else lies.

    torch looks for what it writes now first: what is here would not be what it opens.
    """
    known = (*_EARLIER_TEXTS, *_EARLIER_PICKLES)
    for name in archive.size_bytes:
        if archive.folder or name.partition("/")[0] not in known:
            raise FileFormatError(
                f"{archive.path}: not opened: '{printable(name)[:80]}' lies beside a program as"
                " torch before 2.7 wrote it, which wrote no such thing"
            )
    program = check_program(archive.path, archive.read(_EARLIER, max_bytes=_MOST_TEXT_BYTE))
    for name in _EARLIER_PICKLES:
        if name in archive and not allow_pickle:
            _check_plain(archive, name)
    return program


def _check_payload(archive: Archive, kind: str, *, allow_pickle: bool) -> None:
    """Refuses weights or constants that are pickles, missing, or larger than what is there."""
    path = archive.path
    earlier = f"data/{kind}/model.pt"
    if earlier in archive:
        if not allow_pickle:
            _check_plain(archive, earlier)
        return
    name = f"data/{kind}/model_{kind}_config.json"
    for known, entry in _entries(archive, name):
        file = entry.get("path_name")
        where = f"data/{kind}/{file}"
        shown = printable(known)[:60]
        check_path(path, known)
        if not isinstance(file, str) or not _STORED.fullmatch(file) or where not in archive:
            raise FileFormatError(f"{path}: the tensor '{shown}' is missing in it")
        if entry.get("use_pickle") or file.startswith(("custom_obj", "opaque_obj")):
            if not allow_pickle:
                _check_plain(archive, where, f"'{shown}' is pickled", always=True)
            continue
        _check_tensor(path, shown, entry, archive.size_bytes[where])


def _entries(archive: Archive, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        entries = json.loads(archive.read(name, max_bytes=_MOST_TEXT_BYTE))["config"]
        for known, entry in entries.items():
            if not isinstance(entry, dict):
                raise TypeError
            yield known, entry
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FileFormatError(f"{archive.path}: '{name}' in it is damaged") from None


def _check_tensor(path: Path, name: str, entry: Mapping[str, Any], size_bytes: int) -> None:
    """Where nothing is stored, torch makes as many zeros as are asked for."""
    try:
        meta = entry["tensor_meta"]
        sizes = [int(each["as_int"]) for each in meta["sizes"]]
        device = str(meta["device"]["type"])
    except (TypeError, KeyError, ValueError):
        raise FileFormatError(f"{path}: what it says of the tensor '{name}' is damaged") from None
    elements = math.prod(sizes)
    if min(sizes, default=0) < 0 or (elements and not size_bytes):
        raise FileFormatError(
            f"{path}: the tensor '{name}' has the shape {tuple(sizes)} and no values in the file"
        )
    # torch copies what is repeated.
    if elements > max(size_bytes, _MOST_REPEATED):
        raise FileFormatError(
            f"{path}: the tensor '{name}' has the shape {tuple(sizes)} and"
            f" {format_bytes(size_bytes)} of values in the file"
        )
    if device not in ("cpu", "meta"):
        raise FileFormatError(
            f"{path}: it was exported on '{printable(device)}', which its operators name; export"
            " the model on the CPU"
        )


def _check_plain(archive: Archive, name: str, what: str = "", *, always: bool = False) -> None:
    """Refuse what torch cannot load without running a pickle, as it would then run it.

    Args:
        archive: the file.
        name: a member.
        what: how messages call it; ``""``: by its name.
        always: refuse it, though it could be loaded.
    """
    content = archive.read(name, max_bytes=_MOST_EXAMPLES_BYTE)
    if content.startswith(b"PK"):
        archive_in(archive.path, io.BytesIO(content))
    what = what or f"'{name}' is a pickle"
    imports = refused_import("", content) if always else ""
    try:
        if content and not always:
            torch.load(io.BytesIO(content), weights_only=True, map_location="meta")
    except Exception as error:
        imports, always = refused_import(error, content), True
    if always:
        raise FileFormatError(
            f"{archive.path}: {what}{imports}, and unpickling runs what"
            " a file says; add --allow-pickle if you trust it"
        )
