"""Whether what a .pt2 file says of its program may be handed to torch.

torch looks operators up by name in all of its own package, and computes sizes by evaluating text.
So every name and every text is checked here first, without torch: what a program that
`torch.export.save` wrote never says is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError
from roofline.foundation.text import printable

_NAME = re.compile(r"[A-Za-z_]\w{0,499}")
_OPERATOR = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)(\.[A-Za-z_]\w*)?")
_SIZE_FUNCTION = re.compile(r"torch\._?sym_\w+|math\.[a-z]\w*")
_PYTHON_OPERATOR = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pos|pow|and_|or_|xor|not_|lshift|rshift"
    r"|eq|ne|lt|le|gt|ge|getitem|abs|invert)"
)
_FILE_OPERATORS = ("from_file", "save", "load", "_save", "_load", "load_library")
_CONTAINERS = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "torch.Size",
)
_OTHER_OUTPUTS = re.compile(r"(transformers|torch)(\.\w+)+")
_LONGEST_EXPRESSION = 2000
_LARGEST_EXPONENT = 16


def check_program(path: Path, text: bytes) -> Mapping[str, Any]:
    """The program's description, once nothing in it can run code.

    Args:
        path: the file, for messages.
        text: the JSON of an exported program.

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
    if isinstance(value, dict):
        if "target" in value and "inputs" in value:
            _check_target(path, value["target"])
        _check_keys(path, where, value)
    elif isinstance(value, str) and value:
        if where == "name" or where in _LISTS_OF_NAMES:
            if not _NAME.fullmatch(value):
                raise _refused(path, f"something called {_shown(value)}, which is no name")
        elif where == "expr_str":
            _check_expression(path, value)
        elif where in ("in_spec", "out_spec"):
            _check_structure(path, value)


_LISTS_OF_NAMES = ("forward_arg_names",)
_NAMED_VALUES = (
    *("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"),
    *("custom_obj_values", "range_constraints"),
)


def _check_keys(path: Path, where: str, value: Mapping[str, Any]) -> None:
    if where in _NAMED_VALUES:
        for name in value:
            if not _NAME.fullmatch(name):
                raise _refused(path, f"a value called {_shown(name)}, which is no name")


def _check_target(path: Path, target: Any) -> None:
    """Only operators may be called: torch would take any function that it can find by name."""
    if isinstance(target, str):
        found = _OPERATOR.fullmatch(target)
        if found and found[2] not in _FILE_OPERATORS and found[1] not in ("load_library",):
            return
        if _SIZE_FUNCTION.fullmatch(target) or _PYTHON_OPERATOR.fullmatch(target):
            return
    raise _refused(path, f"the program calls {_shown(target)}, which is no operator")


# -- sizes -----------------------------------------------------------------------------------------

_PARTS = (
    *(ast.Expression, ast.Name, ast.Load, ast.Call, ast.Constant, ast.UnaryOp, ast.BinOp),
    *(ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)


def _check_expression(path: Path, text: str) -> None:
    """A size may be computed of other sizes; torch evaluates the text as Python."""
    try:
        if len(text) > _LONGEST_EXPRESSION:
            raise ValueError
        tree = ast.parse(text, mode="eval")
        for part in ast.walk(tree):
            _check_part(part)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(path, f"a size is {_shown(text)}, which is no arithmetic") from None


def _check_part(part: ast.AST) -> None:
    if not isinstance(part, _PARTS):
        raise ValueError
    if isinstance(part, ast.Name) and "__" in part.id:
        raise ValueError
    if isinstance(part, ast.Constant) and type(part.value) not in (int, float, bool):
        raise ValueError
    if isinstance(part, ast.Call) and (not isinstance(part.func, ast.Name) or part.keywords):
        raise ValueError
    # What is a call, sympy makes of its own classes; these names it takes from Python.
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
        if not re.fullmatch(r"[A-Z][A-Za-z]*|floor|ceiling", part.func.id):
            raise ValueError
        if part.func.id in ("Lambda", "Symbol", "Function", "S", "Wild", "Dummy"):
            raise ValueError
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow):
        exponent = part.right
        is_small = (
            isinstance(exponent, ast.Constant)
            and isinstance(exponent.value, int)
            and exponent.value <= _LARGEST_EXPONENT
        )
        is_root = isinstance(exponent, ast.BinOp) and isinstance(exponent.op, ast.Div)
        if not (is_small or is_root):
            raise ValueError


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
