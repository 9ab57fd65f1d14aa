"""What a rule is: a pattern, a precondition, a rewrite, and weights; and which rules there are."""

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
    """Where a pattern was found: the nodes by their roles in it.

    ``nodes`` are pairs of a role and the numbers of its nodes, in the order of the pattern: one
    number for most roles, several where a pattern takes any number (siblings).
    """

    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    def __getitem__(self, role: str) -> int:
        """The first node of a role."""
        return self.all(role)[0]

    def all(self, role: str) -> tuple[int, ...]:
        """All nodes of a role; none where the match has no such role."""
        return next((numbers for name, numbers in self.nodes if name == role), ())

    @property
    def numbers(self) -> tuple[int, ...]:
        """All nodes, each once, in the order of the pattern."""
        return tuple(dict.fromkeys(number for _, each in self.nodes for number in each))


class Pattern(Protocol):
    """Finds places in a graph that look right; whether they are is the precondition's to say."""

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """The places, in the order in which they run; the same graph gives the same ones."""
        ...


@dataclass(frozen=True, slots=True)
class Finds:
    """A pattern that is a function."""

    find: Callable[[Graph], Iterator[Match]]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """What the function gives."""
        return self.find(graph)


Safety = Literal["safe", "adds work", "changes layout"]
"""``safe`` rules take operators away or join them, and never add FLOP; those that add work (padding
kernels with zeros) or change layouts pay on some machines only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewrite that keeps what a model computes.

    Attributes:
        name: in lower case with hyphens, as ``--rules`` takes it: ``"fold-batch-norm"``.
        summary: what it does, in a line.
        safety: what it may cost.
        pattern: finds places.
        refuses: says why a place must not be rewritten; ``""``: it may be.
        rewrite: makes the change in an editor.
        constructors: makes of weights those that the rewrite asks for, by name; each takes the
            tensors of ``Weight.of`` as float64 (integers as they are) and the options as keywords.
    """

    name: str
    summary: str
    safety: Safety = "safe"
    pattern: Pattern
    refuses: Callable[[Graph, Match], str]
    rewrite: Callable[[Editor, Match], None]
    constructors: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])

    def applied(self, graph: Graph, match: Match, complete: Complete) -> Graph:
        """The graph after the change was made at a place."""
        editor = Editor(graph, complete, self.name)
        self.rewrite(editor, match)
        return editor.finished()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a chain.

    ``ops`` are the names that it may have. It takes, as the argument called ``at`` (None: as any
    argument), what the step with the role ``after`` gives; the first step has neither.
    """

    role: str
    ops: frozenset[str]
    after: str = ""
    at: str | None = None

    def fits(self, node: Node, producer: int) -> bool:
        """Whether a node is one, of what its producer gives."""
        taken = node.values() if self.at is None else values_in(node.get(self.at))
        return node.op in self.ops and any(value.node == producer for value in taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Operators that take what others before them give, each role by one node."""

    steps: tuple[Step, ...]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """All of them, in the order of their first steps."""
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


# -- rules of anybody ------------------------------------------------------------------------------

_MOST_MATCHES = 10_000
_MATCHES_OF_A_NODE = 100
"""A rule that matches more often, in all and for each operator of a graph, never ends."""


def guarded(rule: Rule) -> Rule:
    """The rule, whose own mistakes are said in a line that names it."""

    @contextmanager
    def named(*known: type[Exception]) -> Iterator[None]:
        try:
            yield
        except known:
            raise
        except (Exception, SystemExit) as error:
            said = ": ".join(filter(None, (type(error).__name__, printable(error_text(error)))))
            raise RooflineError(f"rule '{rule.name}' failed: {said}") from error

    def matches(graph: Graph) -> Iterator[Match]:
        most = max(_MOST_MATCHES, _MATCHES_OF_A_NODE * len(graph.nodes))
        with named():
            for count, match in enumerate(rule.pattern.matches(graph)):
                if count >= most:
                    raise ValueError(f"it matches more than {most} times in one graph")
                if not match.numbers or not graph.nodes.keys() >= set(match.numbers):
                    raise ValueError("it matches operators that the graph does not have")
                yield match

    def refuses(graph: Graph, match: Match) -> str:
        with named():
            reason: object = rule.refuses(graph, match)
            if not isinstance(reason, (str, type(None))):
                raise TypeError(f"its precondition gives {reason!r:.40}, not a reason in words")
            return printable(reason or "")

    def rewrite(editor: Editor, match: Match) -> None:
        with named(RewriteError, RooflineError):
            rule.rewrite(editor, match)

    return replace(rule, pattern=Finds(matches), refuses=refuses, rewrite=rewrite)


# -- the registry ----------------------------------------------------------------------------------

_MODULES = ("identities", "convolutions", "convolution_sum", "products", "recurrent", "layout")
"""The modules of our own rules."""


_ORDER = (
    *("drop-dropout", "drop-identity", "eliminate-split-concat"),
    *("fold-batch-norm", "fold-linear-batch-norm", "merge-convolutions", "enlarge-kernel"),
    *("enlarge-and-merge", "sum-convolutions", "absorb-residual", "merge-linears", "merge-matmuls"),
    *("hoist-product", "merge-gates", "fuse-activation", "channels-last"),
)
"""The order in which our own rules stand, whichever module was imported first."""


_RULES: dict[str, Rule] = {}
_FILES: dict[Path, tuple[bytes, tuple[str, ...]]] = {}
"""Of each file of a user's rules what it said, and the names that it registered."""


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
    known = _constructors()
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

    A selection is names separated by commas, or several names: of rules, ``"all"``, ``"safe"``, or
    paths of ``.py`` files, which stand for the rules that they register. A name with ``-`` before
    it takes that out; where all have it, they are taken out of all.
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
    fix = "give names of rules, as text with commas between or as a list"
    if isinstance(selection, str):
        selection = selection.split(",")
    elif isinstance(selection, Path):
        selection = [selection]
    if not isinstance(selection, Iterable) or isinstance(selection, bytes):
        raise InputError(f"rules={selection!r}: {fix}")
    items = list(cast("Iterable[object]", selection))
    for item in items:
        if not isinstance(item, (str, Path)):
            raise InputError(f"rules: {item!r} is no name of a rule; {fix}")
    return [name for item in items if (name := str(item).strip())]


def _names(item: str) -> set[str]:
    if item.endswith(".py"):
        return set(_file_rules(Path(item)))
    if item in _GROUPS:
        return {name for name, rule in _RULES.items() if _GROUPS[item](rule)}
    if item not in _RULES:
        names = [*_GROUPS, *(rule.name for rule in known_rules())]
        raise InputError(
            f"no rule is called '{printable(item)}'{did_you_mean(item, names)};"
            f" there are {', '.join(names)}, and paths of .py files"
        )
    return {item}


def _file_rules(path: Path) -> tuple[str, ...]:
    """The names that a file registers; it is run once, and again when it has changed."""
    said = printable(str(path))
    try:
        path = path.resolve()
        content = path.read_bytes()
    # A path may hold what no file name can, too.
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error_text(error)
        raise InputError(f"rules '{said}': {why}; give the path of a .py file") from None
    known, names = _FILES.get(path, (b"", ()))
    if known == content and names and all(name in _RULES for name in names):
        return names
    old = {name: _RULES.pop(name) for name in names if name in _RULES}
    before = dict(_RULES)
    try:
        _run(path, content)
        names = tuple(name for name in _RULES if name not in before)
        if not names:
            raise InputError("it registers none; call register_rule in it")
    except BaseException as error:
        _RULES.clear()
        _RULES.update(before | old)
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        raise InputError(f"rules '{said}': {kind}{printable(error_text(error))}") from None
    _FILES[path] = content, names
    return names


def _run(path: Path, content: bytes) -> None:
    # A name of its own, so that a file called torch.py is not taken for torch.
    module = ModuleType(f"roofline_rules_{path.stem}")
    module.__file__ = str(path)
    # Known while it runs and after: dataclasses and pickle look their module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise


def constructor(name: str) -> Callable[..., Any]:
    """What makes a weight, by the name in `Weight.made_by`."""
    if name not in _constructors():
        known_rules()
    known = _constructors()
    if name not in known:
        raise InputError(
            f"no rule has a weight constructor '{printable(name)}'{did_you_mean(name, known)};"
            " register the rule that has it first"
        )
    return known[name]


def _constructors() -> dict[str, Callable[..., Any]]:
    return {name: each for rule in _RULES.values() for name, each in rule.constructors.items()}
