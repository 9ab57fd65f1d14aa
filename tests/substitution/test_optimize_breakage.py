"""What is wrong in calls of `optimize`, in rules of users and in models ends in one line."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import roofline
from roofline.errors import InputError, ModelError, RooflineError
from roofline.substitution.graphs.graph import Editor, Graph, Value
from roofline.substitution.rules import rule as registry
from roofline.substitution.rules.rule import Chain, FunctionPattern, Match, Rule, Step, guard_rule
from tests.substitution.rewriting import Model

_RELU = Chain(steps=(Step(role="relu", ops=frozenset({"aten.relu"})),))


def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Tanh()).eval()


def _optimized(model: torch.nn.Module | None = None, **options: Any) -> roofline.Optimization:
    options = {"measure": False, "hardware": "v100", "budget": 20, **options}
    return roofline.optimize(model or _net(), torch.randn(2, 8), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": "x"},
        {"alpha": None},
        {"alpha": True},
        {"alpha": [1]},
        {"alpha": 1j},
        {"budget": 1.5},
        {"budget": "3"},
        {"budget": None},
        {"budget": True},
        {"budget": float("nan")},
        {"rules": 5},
        {"rules": None},
        {"rules": True},
        {"rules": b"all"},
        {"rules": ["all", 5]},
        {"rules": [None]},
        {"rules": []},
        {"rules": "\0.py"},
        {"rules": [Path("/no/such/file.py")]},
        {"rules": ["safe", Path("/no/such/file.py")]},
        {"split": True},
        {"hardware": 5},
        {"time_limit_s": "x"},
        {"time_limit_s": []},
        {"time_limit_s": True},
        {"fused": "no"},
        {"measure": "no"},
        {"force": 1},
        {"progress": 5},
        {"say": "x"},
    ],
    ids=str,
)
def test_options_of_wrong_types_are_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        _optimized(**options)
    assert "\n" not in str(caught.value)


# -- rules of users --------------------------------------------------------------------------------


def _without_relu(editor: Editor, match: Match) -> None:
    number = match.numbers[0]
    taken = editor.node(number)["self"]
    assert isinstance(taken, Value)
    editor.replace(Value(number), taken)


def _never(graph: Graph, match: Match) -> str:
    return ""


def _rule(**changes: Any) -> Rule:
    given: dict[str, Any] = {
        "name": "users-own",
        "summary": "a user's",
        "pattern": _RELU,
        "refuses": _never,
        "rewrite": _without_relu,
    }
    return Rule(**{**given, **changes})


@pytest.fixture
def optimized_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], roofline.Optimization]:
    def run(rule: Rule) -> roofline.Optimization:
        registry.all_rules()
        monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
        registry.register_rule(rule)
        return _optimized(rules=rule.name)

    return run


def _raising(*_: Any) -> Any:
    raise ValueError("one\ntwo\x1b[31m")


def _leaving(*_: Any) -> Any:
    sys.exit(3)


def _finds(find: Callable[[Graph], Any]) -> dict[str, Any]:
    return {"pattern": FunctionPattern(find)}


def _at(*numbers: int) -> dict[str, Any]:
    """A pattern that matches at these operators, for ever."""
    match = Match(nodes=(("relu", numbers),) if numbers else ())
    return _finds(lambda graph: itertools.repeat(match))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (_at(1), "more than 10000 matches"),
        (_at(12345), "operators that are not in the graph"),
        (_at(), "operators that are not in the graph"),
        (_finds(_raising), "ValueError: one two"),
        ({"pattern": 5}, "AttributeError"),
        ({"refuses": _raising}, "ValueError: one two"),
        ({"refuses": lambda graph, match: True}, "expected text, got True"),
        ({"refuses": None}, "not callable"),
        ({"rewrite": _raising}, "ValueError: one two"),
        ({"rewrite": _leaving}, "SystemExit"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_wrong_rules_are_named_in_a_line(
    optimized_by: Callable[[Rule], roofline.Optimization], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(RooflineError, match=said) as caught:
        optimized_by(_rule(**changes))
    assert "rule 'users-own' failed" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_rule_with_wrong_maths_is_rolled_back_and_named(
    optimized_by: Callable[[Rule], roofline.Optimization],
) -> None:
    result = optimized_by(_rule())
    assert result.is_kept
    assert [each.rule for each in result.rejected] == ["users-own"]
    assert "rolled back" in result.rejected[0].why
    # Reasons of users' rules are printable.
    rule = guard_rule(_rule(refuses=lambda graph, match: "one\ntwo\x1b[31m"))
    reason = rule.refuses(Graph(nodes={}, outputs=()), Match(nodes=()))
    assert reason
    assert not {"\n", "\x1b"} & set(reason)


def _twice(editor: Editor, match: Match) -> None:
    number = match.numbers[0]
    once = editor.add("aten.relu", self=editor.node(number)["self"])
    editor.replace(Value(number), Value(editor.add("aten.relu", self=Value(once))))


def test_a_rule_that_feeds_itself_ends(
    optimized_by: Callable[[Rule], roofline.Optimization],
) -> None:
    assert optimized_by(_rule(rewrite=_twice)).is_kept


@dataclass
class _Scores:
    scores: torch.Tensor
    name: str


def _scores(m: Any, x: torch.Tensor) -> tuple[_Scores, list[_Scores], torch.Size]:
    scores = m.norm(m.one(x))
    return _Scores(scores, "all"), [_Scores(scores + 1, "more")], scores.shape


def test_dataclasses_with_tensors_are_compared() -> None:
    x = torch.randn(2, 8)
    model = Model(_scores, one=torch.nn.Linear(8, 8), norm=torch.nn.BatchNorm1d(8)).eval()
    result = _optimized(model)
    assert not result.is_kept
    assert result.proofs
    (first, (more,), size), (expected, *_) = result.module(x), model(x)
    assert type(size) is torch.Size
    assert isinstance(first, _Scores)
    assert more.name == "more"
    torch.testing.assert_close(first.scores, expected.scores)


# -- models ----------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_copied_takes_no_other_type() -> None:
    model = _net()
    model.__dict__["lock"] = threading.Lock()
    with pytest.raises(ModelError, match="cannot be copied") as caught:
        _optimized(model, dtype="bfloat16")
    assert "\n" not in str(caught.value)
    assert _optimized(model).model
