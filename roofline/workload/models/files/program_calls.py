"""Whether what a program in a .pt2 file calls is an operator, and one that opens no files.

torch takes the name that a file says and looks it up in all of its own package, where
``torch.os.system`` and ``torch.ops.import_module.__call__`` would be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

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
    found = _found(parts)
    if found is None:
        return MISSING
    if not _is_operator(found):
        return "which is no operator"
    return "which opens files" if parts[2] in _OPENING or _opens_files(found) else ""


def _found(parts: re.Match[str]) -> Any:
    found: Any = torch.ops
    for name in filter(None, parts.groups()):
        try:
            found = getattr(found, name)
        # What is registered wrongly raises more than AttributeError.
        except (AttributeError, RuntimeError):
            return None
    return found


def _is_operator(found: Any) -> bool:
    return isinstance(found, _KINDS)


def _opens_files(found: Any) -> bool:
    return any(
        "str" in str(argument.type) and _OF_FILES.search(argument.name)
        for schema in _schemas(found)
        for argument in schema.arguments
    )


def _schemas(found: Any) -> Iterable[Any]:
    if isinstance(found, torch._ops.OpOverload):
        return (found._schema,)
    if isinstance(found, torch._ops.OpOverloadPacket):
        return tuple(found._schemas.values())
    return ()
