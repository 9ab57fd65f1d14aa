"""List every module of the package with the tests that should notice a fault in it.

    python benchmarks/mutation_targets.py > targets.txt

A line is ``module.py test_a.py test_b.py``. Of the tests that import a module, directly or through
others, these are the nearest, and those whose names have the most words in common with it.
Modules that only import have no line. Tests marked `hardware` measure and are not run.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

MOST = 4
"""Test files a module at the most: a run per fault stays short."""

_ROOT = Path(__file__).resolve().parent.parent


def modules(folder: str, pattern: str) -> dict[str, Path]:
    """Return files by dotted name."""
    found = sorted((_ROOT / folder).rglob(pattern))
    return {
        ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in found
    }


def named(path: Path, known: dict[str, Path]) -> Counter[str]:
    """Return the modules of `known` that a file names, with how often.

    Names are imports, attributes of imported modules (``roofline.analyze``), and strings that are
    the dotted name of a module, as tables of what is imported later have them. A name that a
    package only hands on counts for the module that defines it.
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                counts.update(each.name for each in node.names if each.name in known)
            case ast.ImportFrom(module=str(module)):
                counts.update(_home(module, each.name, known) for each in node.names)
            case ast.Attribute(value=ast.Name(id="roofline")):
                counts[_home("roofline", node.attr, known)] += 1
            case ast.Constant(value=str(text)) if text in known:
                counts[text] += 1
            case _:
                pass
    return Counter({name: number for name, number in counts.items() if name in known})


def _home(module: str, name: str, known: dict[str, Path]) -> str:
    """Return the module that defines `name`, which `module` has or hands on."""
    while True:
        if f"{module}.{name}" in known:
            return f"{module}.{name}"
        origin = _handed_on(known[module]).get(name) if module in known else None
        if origin is None:
            return module
        module = origin


@functools.cache
def _handed_on(path: Path) -> dict[str, str]:
    """Return where the names come from that a package imports for others, by name."""
    if path.name != "__init__.py":
        return {}
    return {
        each.asname: node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
        if each.asname == each.name
    }


def targets() -> list[tuple[str, list[str]]]:
    """Return relative paths of modules, each with the test files that should notice its faults."""
    package = modules("roofline", "*.py")
    helpers = modules("tests", "*.py")
    of_module = {name: named(path, package) for name, path in package.items()}
    # What a test imports through the helpers beside it counts as its own.
    of_helper = {name: named(path, {**package, **helpers}) for name, path in helpers.items()}
    of_test: dict[str, Counter[str]] = {}
    for name, path in helpers.items():
        if path.name.startswith("test_"):
            counts: Counter[str] = Counter()
            for each, number in of_helper[name].items():
                if each in package:
                    counts[each] += 2 * number
                else:
                    counts.update(of for of in of_helper.get(each, {}) if of in package)
            of_test[path.relative_to(_ROOT).as_posix()] = counts
    users: dict[str, set[str]] = {name: set() for name in package}
    for user, counts in of_module.items():
        for used in counts:
            users[used].add(user)
    lines: list[tuple[str, list[str]]] = []
    for name, path in package.items():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if all(isinstance(each, ast.Import | ast.ImportFrom | ast.Expr) for each in body):
            continue
        near: dict[str, tuple[int, int]] = {}
        ring, seen = {name}, {name}
        while ring:
            for test, counts in of_test.items():
                if test not in near and (number := sum(counts[each] for each in ring)):
                    near[test] = (len(seen), -number)
            ring = set().union(*(users[each] for each in ring)) - seen
            seen |= ring
        if near:
            nearest = sorted(near, key=lambda test: (near[test], test))
            alike = sorted(nearest, key=lambda test: -len(words(test) & words(name)))
            chosen = {*nearest[: MOST // 2], *alike[: MOST // 2]}
            lines.append((path.relative_to(_ROOT).as_posix(), sorted(chosen)))
    return lines


def words(name: str) -> set[str]:
    """Return the words of a path or dotted name, singular."""
    return {each.removesuffix("s") for each in re.findall(r"[a-z]{3,}", name)} - _EVERYWHERE


_EVERYWHERE = {"test", "roofline", "result"}


if __name__ == "__main__":
    for module, tests in targets():
        print(module, *tests)
