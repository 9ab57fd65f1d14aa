"""Rules of anybody: what is wrong with one is said in a line that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from roofline.errors import RooflineError, said_by
from roofline.foundation.text import printable
from roofline.substitution.graphs.editing import Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Match, Rule

_MOST_MATCHES = 10_000
_MATCHES_OF_A_NODE = 100
"""A rule that matches more often, in all and for each operator of a graph, never ends."""


def guarded(rule: Rule) -> Rule:
    """The rule, whose own mistakes are said in a line that names it."""

    def raising(error: BaseException) -> RooflineError:
        said = printable(said_by(error))
        kind = type(error).__name__
        return RooflineError(f"rule '{rule.name}' failed: {kind}{f': {said}' if said else ''}")

    def matches(graph: Graph) -> Iterator[Match]:
        most = max(_MOST_MATCHES, _MATCHES_OF_A_NODE * len(graph.nodes))
        try:
            for count, match in enumerate(rule.pattern.matches(graph)):
                if count >= most:
                    raise ValueError(f"it matches more than {most} times in one graph")
                if not match.numbers or not graph.nodes.keys() >= set(match.numbers):
                    raise ValueError("it matches operators that the graph does not have")
                yield match
        except (Exception, SystemExit) as error:
            raise raising(error) from error

    def refuses(graph: Graph, match: Match) -> str:
        try:
            reason: object = rule.refuses(graph, match)
            if not isinstance(reason, (str, type(None))):
                raise TypeError(f"its precondition gives {reason!r:.40}, not a reason in words")
            return printable(reason or "")
        except (Exception, SystemExit) as error:
            raise raising(error) from error

    def rewrite(editor: Editor, match: Match) -> None:
        try:
            rule.rewrite(editor, match)
        except (RewriteError, RooflineError):
            raise
        except (Exception, SystemExit) as error:
            raise raising(error) from error

    return replace(rule, pattern=_Guarded(matches), refuses=refuses, rewrite=rewrite)


class _Guarded:
    """A pattern that is a function."""

    def __init__(self, find: Callable[[Graph], Iterator[Match]]) -> None:
        self._find = find

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """What the function gives."""
        return self._find(graph)
