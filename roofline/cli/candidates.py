"""Completion of command-line words in shells.

Runs at every key press: imports no model library and nothing slow.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_OF_MODELS = (".py", ".pt2", ".pt", ".onnx")
"""Suffixes of model files."""


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(find: Callable[[str], Iterable[str]]) -> Completer:
    """Return a completer from `find`, which yields words with a given beginning."""
    return lambda _context, _parameter, incomplete: _items(find(incomplete))


def models_given(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the models already on the command line."""
    # An option without its value ends the parsing, and leaves there what was not parsed.
    given = context.params.get("models") or context.args
    return _items(each for each in given if each.startswith(incomplete))


def machines(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return matching names of hardware profiles and profile files."""
    from roofline.machine.catalog import HOST, bundled_folder, user_folder

    known = {
        path.stem for folder in (user_folder(), bundled_folder()) for path in folder.glob("*.toml")
    }
    names = sorted(each for each in known | {HOST} if each.startswith(incomplete))
    return _items([*names, *_paths(incomplete, (".toml",))])


def _items(values: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value in dict.fromkeys(values)]


def _models(incomplete: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    from roofline.workload.models.libraries import names

    before, colon, after = incomplete.partition(":")
    libraries: dict[str, names.Library] = {
        names.PREFIX[library]: library for library in names.LIBRARIES
    }
    if colon and before in libraries:
        known = names.names_of(libraries[before])
        if before == "hf" and after != after.lower():
            known = names.transformers_classes()
        yield from (f"{before}:{each}" for each in sorted(known) if each.startswith(after))
    elif colon and before.endswith(".py"):
        yield from (f"{before}:{each}" for each in _made_in(before) if each.startswith(after))
    elif not colon:
        # With the names behind it, the shell stops at the colon.
        for prefix in (each for each in libraries if incomplete and each.startswith(incomplete)):
            yield from (f"{prefix}:{each}" for each in sorted(names.names_of(libraries[prefix])))
        # Two thousand names help nobody: the first library's, before there is a letter.
        known = names.all_names() if incomplete else sorted(names.names_of("torchvision"))
        yield from (each for each in known if each.startswith(incomplete))
        yield from _designs(incomplete)
        for path in _paths(incomplete, suffixes):
            if path.endswith(".py"):
                yield from (f"{path}:{each}" for each in _made_in(path))
            else:
                yield path


_NO_BRACKETS = re.compile(r"(\w+\+)*\w+")


def _designs(incomplete: str) -> Iterator[str]:
    """Yield designs with the last layer's name completed; none once there are brackets.

    Brackets need quotes, inside which shells complete differently.
    """
    from roofline.workload.models.libraries.names import listed_layers

    if _NO_BRACKETS.fullmatch(incomplete):
        before, plus, begun = incomplete.rpartition("+")
        yield from (f"{before}{plus}{each}" for each in listed_layers() if each.startswith(begun))


def _paths(incomplete: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield matching files of these suffixes, and folders with a final ``/``."""
    written, slash, begun = incomplete.rpartition("/")
    folder = Path(written + slash).expanduser() if slash else Path()
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return
    for path in found:
        if not path.name.startswith(begun) or (path.name.startswith(".") and not begun):
            continue
        if path.is_dir():
            yield f"{written}{slash}{path.name}/"
        elif path.suffix in suffixes:
            yield f"{written}{slash}{path.name}"


_LARGEST_BYTE = 2_000_000


def _made_in(file: str) -> list[str]:
    """Return public classes and functions of a Python file, without running it."""
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > _LARGEST_BYTE:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    made = (ast.ClassDef, ast.FunctionDef)
    public = [each.name for each in tree.body if isinstance(each, made)]
    return [name for name in public if not re.match("_", name)]


models = _completer(lambda begun: _models(begun, _OF_MODELS))
"""Matching model names, model files, and the members of Python files."""

models_and_saved = _completer(lambda begun: _models(begun, (*_OF_MODELS, ".json")))
"""`models` and saved analyses."""

_FLOATS = ("float32", "bfloat16", "float16", "float64")


def _words(*known: str) -> Completer:
    return _completer(lambda begun: (each for each in known if each.startswith(begun)))


dtypes = _words(*_FLOATS)
"""Floating types of ``--dtype``."""

calibrated_dtypes = _words(*_FLOATS, "int8")
"""Types of `dtypes`, and int8."""
