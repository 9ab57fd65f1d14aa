"""Messages outside the command line name keywords of Python, by `roofline.errors.argument`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import roofline
from roofline.cli.main import OPTIONS
from roofline.errors import argument, command_line

PACKAGE = Path(roofline.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"\b(roofline|pytest|analyze|calibrate|compare|advise|measure)\b|^--roofline-")
"""Commands to run are written with their options."""

HELD = {
    # Options of `measure --explain` and of `hardware fit`, which Python does not have.
    "machine/measuring/explanation.py",
    "machine/theory/datasheet.py",
    # CSS.
    "render/interactive.py",
}


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the literals of a module without documentation; f-strings by their constant parts."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            known = [each for each in node.values if isinstance(each, ast.Constant)]
            skipped |= set(map(id, known))
            yield " ".join(str(each.value) for each in known)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node.value


def test_options_are_named_in_commands_alone() -> None:
    found = [
        f"{name}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith("cli/")
        and name not in HELD
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if OPTION.search(text) and not COMMAND.search(text)
    ]
    assert found == []


def test_arguments_are_keywords_in_python_and_options_on_the_command_line() -> None:
    assert argument("operators_measured", True) == "operators_measured=True"
    with command_line(OPTIONS):
        assert argument("operators_measured", True) == "--operators measured"
        assert argument("time_limit_s") == "--time-limit"
