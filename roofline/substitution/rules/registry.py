"""Where rules are registered, and found by name."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from roofline.errors import InputError, nearest, said_by
from roofline.foundation.text import printable
from roofline.substitution.rules.rule import Rule

_MODULES = (
    "identities",
    "concatenation",
    "batch_norm",
    "convolution_enlarge",
    "convolution_sum",
    "product_merge",
    "hoisting",
    "recurrent",
    "activation",
    "layout",
)
"""The modules of our own rules."""

_ORDER = (
    "drop-dropout",
    "drop-identity",
    "eliminate-split-concat",
    "fold-batch-norm",
    "fold-linear-batch-norm",
    "merge-convolutions",
    "enlarge-kernel",
    "enlarge-and-merge",
    "sum-convolutions",
    "absorb-residual",
    "merge-linears",
    "merge-matmuls",
    "hoist-product",
    "merge-gates",
    "fuse-activation",
    "channels-last",
)
"""The order in which our own rules stand, whichever module was imported first."""

_RULES: dict[str, Rule] = {}
_FILES: dict[Path, tuple[str, tuple[str, ...]]] = {}
"""Of each file of a user's rules the digest of what it said, and the names that it registered."""


def register_rule(rule: Rule) -> Rule:
    """Makes a rule known under its name, and its constructors under theirs.

    Raises:
        InputError: the name is not one that can be selected, another rule has it, or one of its
            constructors has another's name.
    """
    words = rule.name.split("-")
    if not all(word.isascii() and word.isalnum() for word in words) or rule.name in _GROUPS:
        raise InputError(
            f"a rule cannot be called '{printable(rule.name)}';"
            " take letters, digits and single hyphens, and neither 'all' nor 'safe'"
        )
    if rule.name in _RULES:
        raise InputError(f"rule '{rule.name}' is registered already; give yours another name")
    known = _constructors(_RULES.values())
    for name, function in rule.constructors.items():
        if known.get(name, function) is not function:
            raise InputError(
                f"rule '{rule.name}': another rule has a weight constructor '{name}'; rename yours"
            )
    _RULES[rule.name] = rule
    return rule


def known_rules() -> tuple[Rule, ...]:
    """All rules: our own in a fixed order, then those that users registered, in theirs."""
    for module in _MODULES:
        importlib.import_module(f"roofline.substitution.rules.{module}")
    own = [_RULES[name] for name in _ORDER if name in _RULES]
    return (*own, *(rule for name, rule in _RULES.items() if name not in _ORDER))


_GROUPS: dict[str, Callable[[Rule], bool]] = {
    "all": lambda rule: True,
    "safe": lambda rule: rule.safety == "safe",
}


def rules_named(selection: str | Path | Sequence[str | Path]) -> tuple[Rule, ...]:
    """The rules that a selection names, in the order of `known_rules`.

    Args:
        selection: names separated by commas, or several names: of rules, ``"all"``, ``"safe"``, or
            paths of ``.py`` files, which stand for the rules that they register. A name with
            ``-`` before it takes that out; where all have it, they are taken out of all.

    Raises:
        InputError: a name is not known, a file cannot be run or registers nothing, or no rule is
            left.
    """
    items = _items(selection)
    known_rules()
    chosen: set[str] = set()
    if items and all(item.startswith("-") for item in items):
        chosen |= set(_RULES)
    for item in items:
        if item.startswith("-"):
            chosen -= _names(item[1:])
        else:
            chosen |= _names(item)
    if not chosen:
        raise InputError(
            "no rule is selected; name some, or write 'all' or 'safe';"
            f" rules are {', '.join(rule.name for rule in known_rules())}"
        )
    return tuple(rule for rule in known_rules() if rule.name in chosen)


def _items(selection: object) -> list[str]:
    if isinstance(selection, str):
        selection = selection.split(",")
    elif isinstance(selection, Path):
        selection = [selection]
    if not isinstance(selection, Iterable) or isinstance(selection, bytes):
        raise InputError(f"rules={selection!r}: {_TAKEN}")
    items: list[str] = []
    for item in cast("Iterable[object]", selection):
        if not isinstance(item, (str, Path)):
            raise InputError(f"rules: {item!r} is no name of a rule; {_TAKEN}")
        items.append(str(item).strip())
    return [item for item in items if item]


_TAKEN = "give names of rules, as text with commas between or as a list"


def constructor(name: str) -> Callable[..., Any]:
    """What makes a weight, by the name in `Weight.made_by`.

    Raises:
        InputError: no rule has one of that name.
    """
    known = _constructors(_RULES.values())
    if name not in known:
        known = _constructors(known_rules())
    if name not in known:
        raise InputError(
            f"no rule has a weight constructor '{printable(name)}'{nearest(name, known)};"
            " register the rule that has it first"
        )
    return known[name]


def _names(item: str) -> set[str]:
    if item.endswith(".py"):
        return set(_file_rules(Path(item)))
    if item in _GROUPS:
        return {name for name, rule in _RULES.items() if _GROUPS[item](rule)}
    if item not in _RULES:
        names = [*_GROUPS, *(rule.name for rule in known_rules())]
        raise InputError(
            f"no rule is called '{printable(item)}'{nearest(item, names)};"
            f" there are {', '.join(names)}, and paths of .py files"
        )
    return {item}


def _file_rules(path: Path) -> tuple[str, ...]:
    """The names that a file registers; it is run once, and again when it has changed."""
    said = printable(str(path))
    try:
        path = path.resolve()
        digest = hashlib.sha1(path.read_bytes()).hexdigest()
    # A path may hold what no file name can, too.
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or said_by(error)
        raise InputError(f"rules '{said}': {why}; give the path of a .py file") from None
    known_digest, names = _FILES.get(path, ("", ()))
    if known_digest == digest and all(name in _RULES for name in names):
        return names
    old = {name: _RULES.pop(name) for name in names if name in _RULES}
    before = dict(_RULES)
    try:
        _run(path)
        names = tuple(name for name in _RULES if name not in before)
        if not names:
            raise InputError("it registers none; call register_rule in it")
    except BaseException as error:
        _RULES.clear()
        _RULES.update(before | old)
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        raise InputError(f"rules '{said}': {kind}{printable(said_by(error))}") from None
    _FILES[path] = digest, names
    return names


def _run(path: Path) -> None:
    # A name of its own, so that a file called torch.py is not taken for torch.
    name = f"roofline_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Known while it runs and after: dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _constructors(rules: Iterable[Rule]) -> dict[str, Callable[..., Any]]:
    return {name: each for rule in rules for name, each in rule.constructors.items()}
