"""Whether what a .pt2 file says of its program may be handed to torch.

torch looks operators up by name in all of its own package, computes sizes by evaluating text, and
writes Python code in which the names of weights and modules stand. So every name and every text is
checked here first: what a program that `torch.export.save` wrote never says is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.workload.models.files.program_calls import MISSING, why_refused
from roofline.workload.models.files.program_sizes import is_arithmetic

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
    if where == "expr_str" and not (isinstance(value, str) and is_arithmetic(value)):
        raise _refused(path, f"a size is {_shown(value)}, which is no arithmetic")
    if isinstance(value, dict):
        if "target" in value:
            _check_target(path, value["target"])
        if "as_operator" in value:
            _check_target(path, value["as_operator"])
        _check_keys(path, where, value)
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


def _check_keys(path: Path, where: str, value: Mapping[str, Any]) -> None:
    if where in _NAMED_VALUES:
        for name in value:
            if not _NAME.fullmatch(name):
                raise _refused(path, f"a value called {_shown(name)}, which is no name")
            if where == "range_constraints" and _MANY.fullmatch(name):
                raise _refused(path, f"more than a million sizes, up to {_shown(name)}")


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
