"""Rules (pattern, precondition, rewrite, and weights) and their registry."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast

from roofline.core.text import printable
from roofline.errors import InputError, RooflineError, did_you_mean, error_text
from roofline.substitution.graphs.graph import (
    Complete,
    Editor,
    Graph,
    Node,
    RewriteError,
    values_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Location of a pattern: node numbers by role, in the order of the pattern.

    Most roles have one node; several where a pattern accepts any number (siblings).
    """

    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    def __getitem__(self, role: str) -> int:
        """Return the first node of a role."""
        return self.all(role)[0]

    def all(self, role: str) -> tuple[int, ...]:
        """Return all nodes of a role; none if the match has no such role."""
        return next((numbers for name, numbers in self.nodes if name == role), ())

    @property
    def numbers(self) -> tuple[int, ...]:
        """All nodes, each once, in the order of the pattern."""
        return tuple(dict.fromkeys(number for _, each in self.nodes for number in each))


class Pattern(Protocol):
    """Search of candidate locations in a graph; the precondition of the rule decides on them."""

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """Yield the matches in execution order; deterministic."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionPattern:
    find: Callable[[Graph], Iterator[Match]]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        return self.find(graph)


Safety = Literal["safe", "adds work", "changes layout"]
"""``safe`` rules remove or merge operators, and never add FLOP. Rules that add work (zero padding
of kernels) or change layouts pay on some machines only.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rewrite that preserves the function of a model.

    Attributes:
        name: lower case with hyphens, as in ``--rules``: ``"fold-batch-norm"``.
        summary: its effect, in one line.
        safety: its possible cost.
        pattern: finds matches.
        refuses: returns the reason why a match must not be rewritten; ``""``: it may be.
        rewrite: applies the change in an editor.
        constructors: functions that create derived weights, by name; each takes the tensors of
            ``Weight.of`` as float64 (integers unchanged) and the options as keywords.
    """

    name: str
    summary: str
    safety: Safety = "safe"
    pattern: Pattern
    refuses: Callable[[Graph, Match], str]
    rewrite: Callable[[Editor, Match], None]
    constructors: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])

    def applied(self, graph: Graph, match: Match, complete: Complete) -> Graph:
        editor = Editor(graph, complete, self.name)
        self.rewrite(editor, match)
        return editor.finished()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Operator of a chain.

    ``ops`` are its possible names. It reads, in the argument ``at`` (None: any), the output of the
    step with the role ``after``; the first step has neither.
    """

    role: str
    ops: frozenset[str]
    after: str = ""
    at: str | None = None

    def fits(self, node: Node, producer: int) -> bool:
        """Return whether a node is this step, as a reader of `producer`."""
        taken = node.values() if self.at is None else values_in(node.get(self.at))
        return node.op in self.ops and any(value.node == producer for value in taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Pattern of operators that read each other's outputs, one node per role."""

    steps: tuple[Step, ...]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        first, *rest = self.steps
        for number, node in graph.nodes.items():
            if node.op in first.ops:
                yield from self._completed(graph, {first.role: number}, rest)

    def _completed(self, graph: Graph, found: dict[str, int], rest: list[Step]) -> Iterator[Match]:
        if not rest:
            yield Match(nodes=tuple((role, (number,)) for role, number in found.items()))
            return
        step, *others = rest
        producer = found[step.after]
        for number in graph.users(producer):
            if step.fits(graph.nodes[number], producer) and number not in found.values():
                yield from self._completed(graph, {**found, step.role: number}, others)


# -- user rules ------------------------------------------------------------------------------------

_MOST_MATCHES = 10_000
_MATCHES_OF_A_NODE = 100
"""Maximum number of matches, in total and per operator; more would never end."""


def guard_rule(rule: Rule) -> Rule:
    """Return the rule with its errors reported in one line with its name."""

    @contextmanager
    def named(*known: type[Exception]) -> Iterator[None]:
        try:
            yield
        except known:
            raise
        except (Exception, SystemExit) as error:
            text = ": ".join(filter(None, (type(error).__name__, printable(error_text(error)))))
            raise RooflineError(f"rule '{rule.name}' failed: {text}") from error

    def matches(graph: Graph) -> Iterator[Match]:
        most = max(_MOST_MATCHES, _MATCHES_OF_A_NODE * len(graph.nodes))
        with named():
            for count, match in enumerate(rule.pattern.matches(graph)):
                if count >= most:
                    raise ValueError(f"more than {most} matches in one graph")
                if not match.numbers or not graph.nodes.keys() >= set(match.numbers):
                    raise ValueError("match of operators that are not in the graph")
                yield match

    def refuses(graph: Graph, match: Match) -> str:
        with named():
            reason: object = rule.refuses(graph, match)
            if not isinstance(reason, (str, type(None))):
                raise TypeError(f"refuses: expected text, got {reason!r:.40}")
            return printable(reason or "")

    def rewrite(editor: Editor, match: Match) -> None:
        with named(RewriteError, RooflineError):
            rule.rewrite(editor, match)

    return replace(rule, pattern=FunctionPattern(matches), refuses=refuses, rewrite=rewrite)


# -- the registry ----------------------------------------------------------------------------------

_MODULES = ("identities", "convolutions", "convolution_sum", "products", "recurrent", "layout")
"""Modules of the built-in rules."""


_ORDER = (
    *("drop-dropout", "drop-identity", "eliminate-split-concat"),
    *("fold-batch-norm", "fold-linear-batch-norm", "merge-convolutions", "enlarge-kernel"),
    *("enlarge-and-merge", "sum-convolutions", "absorb-residual", "merge-linears", "merge-matmuls"),
    *("hoist-product", "merge-gates", "fuse-activation", "channels-last"),
)
"""Order of the built-in rules, independent of the import order."""


_RULES: dict[str, Rule] = {}
_FILES: dict[Path, tuple[bytes, tuple[str, ...]]] = {}
"""Content of each user rule file, and the names that it registers."""


def register_rule(rule: Rule) -> Rule:
    """Register a rule and its constructors under their names.

    Raises:
        InputError: the name is invalid or taken, or a constructor has the name of another one.
    """
    words = rule.name.split("-")
    if not all(word.isascii() and word.isalnum() for word in words) or rule.name in _GROUPS:
        raise InputError(
            f"invalid rule name '{printable(rule.name)}';"
            " use letters, digits and single hyphens, and neither 'all' nor 'safe'"
        )
    if rule.name in _RULES:
        raise InputError(f"rule '{rule.name}' is already registered; use another name")
    known = _constructors()
    for name, function in rule.constructors.items():
        if known.get(name, function) is not function:
            raise InputError(
                f"rule '{rule.name}': weight constructor '{name}' is already registered; rename it"
            )
    _RULES[rule.name] = rule
    return rule


def all_rules() -> tuple[Rule, ...]:
    """Return all rules: built-in ones in a fixed order, then user rules as registered."""
    for module in _MODULES:
        importlib.import_module(f"roofline.substitution.rules.{module}")
    own = [_RULES[name] for name in _ORDER if name in _RULES]
    return (*own, *(rule for name, rule in _RULES.items() if name not in _ORDER))


_GROUPS: dict[str, Callable[[Rule], bool]] = {
    "all": lambda rule: True,
    "safe": lambda rule: rule.safety == "safe",
}


def select_rules(selection: str | Path | Sequence[str | Path]) -> tuple[Rule, ...]:
    """Return the selected rules, in the order of `all_rules`.

    A selection is a list of names, or text with commas: names of rules, ``"all"``, ``"safe"``, or
    paths of ``.py`` files, which stand for the rules that they register. ``-NAME`` excludes rules;
    exclusions alone start from all.
    """
    items = _selected_names(selection)
    all_rules()
    chosen: set[str] = set()
    if items and all(item.startswith("-") for item in items):
        chosen |= set(_RULES)
    for item in items:
        if item.startswith("-"):
            chosen -= _resolve_name(item[1:])
        else:
            chosen |= _resolve_name(item)
    if not chosen:
        raise InputError(
            "no rule selected; give names, 'all' or 'safe';"
            f" rules: {', '.join(rule.name for rule in all_rules())}"
        )
    return tuple(rule for rule in all_rules() if rule.name in chosen)


def _selected_names(selection: object) -> list[str]:
    fix = "give names of rules, as text with commas or as a list"
    if isinstance(selection, str):
        selection = selection.split(",")
    elif isinstance(selection, Path):
        selection = [selection]
    if not isinstance(selection, Iterable) or isinstance(selection, bytes):
        raise InputError(f"rules={selection!r}: {fix}")
    items = list(cast("Iterable[object]", selection))
    for item in items:
        if not isinstance(item, (str, Path)):
            raise InputError(f"rules: {item!r} is not a rule name; {fix}")
    return [name for item in items if (name := str(item).strip())]


def _resolve_name(item: str) -> set[str]:
    if item.endswith(".py"):
        return set(_file_rules(Path(item)))
    if item in _GROUPS:
        return {name for name, rule in _RULES.items() if _GROUPS[item](rule)}
    if item not in _RULES:
        names = [*_GROUPS, *(rule.name for rule in all_rules())]
        raise InputError(
            f"unknown rule '{printable(item)}'{did_you_mean(item, names)};"
            f" rules: {', '.join(names)}, and paths of .py files"
        )
    return {item}


def _file_rules(path: Path) -> tuple[str, ...]:
    """Return the names that a file registers; it runs once, and again after changes."""
    name = printable(str(path))
    try:
        path = path.resolve()
        content = path.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error_text(error)
        raise InputError(f"rules '{name}': {why}; give the path of a .py file") from None
    known, names = _FILES.get(path, (b"", ()))
    if known == content and names and all(name in _RULES for name in names):
        return names
    old = {name: _RULES.pop(name) for name in names if name in _RULES}
    before = dict(_RULES)
    try:
        _run_file(path, content)
        names = tuple(name for name in _RULES if name not in before)
        if not names:
            raise InputError("no rule registered; call register_rule in it")
    except BaseException as error:
        _RULES.clear()
        _RULES.update(before | old)
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        raise InputError(f"rules '{name}': {kind}{printable(error_text(error))}") from None
    _FILES[path] = content, names
    return names


def _run_file(path: Path, content: bytes) -> None:
    # Prefixed, so that a file called torch.py does not hide torch.
    module = ModuleType(f"roofline_rules_{path.stem}")
    module.__file__ = str(path)
    # Registered: dataclasses and pickle look their module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise


def weight_constructor(name: str) -> Callable[..., Any]:
    """Return the constructor of a derived weight, by the name in `Weight.made_by`."""
    if name not in _constructors():
        all_rules()
    known = _constructors()
    if name not in known:
        raise InputError(
            f"unknown weight constructor '{printable(name)}'{did_you_mean(name, known)};"
            " register its rule first"
        )
    return known[name]


def _constructors() -> dict[str, Callable[..., Any]]:
    return {name: each for rule in _RULES.values() for name, each in rule.constructors.items()}
