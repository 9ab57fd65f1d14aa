"""The rule in docs/how-to/optimizing.md works, and refuses unsafe matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.rules import rule as registry
from roofline.substitution.rules.rule import Match, Rule
from tests.substitution.rewriting import OPERATORS, Model, capture_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rule]:
    text = (ROOT / "docs" / "how-to" / "optimizing.md").read_text(encoding="utf-8")
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", text, re.S) if "Rule(" in each)
    file = tmp_path / "scale.py"
    file.write_text(code, encoding="utf-8")
    registry.all_rules()
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # pyright: ignore[reportPrivateUsage]
    (found,) = registry.select_rules(str(file))
    yield found


def scaled(function: Callable[..., torch.Tensor], *, bias: bool = True) -> nn.Module:
    return Model(function, inner=nn.Linear(5, 4, bias=bias), outer=nn.Linear(4, 3))


def places(rule: Rule, module: nn.Module) -> tuple[CapturedModel, list[Match]]:
    found = capture_of(module.eval(), torch.randn(2, 5))
    return found, list(rule.pattern.matches(found.graph))


@pytest.mark.parametrize("bias", [True, False])
def test_it_takes_the_number_into_the_weights(rule: Rule, bias: bool):
    module = scaled(lambda m, x: m.outer(m.inner(x) * 0.25), bias=bias)
    found, (match,) = places(rule, module)
    assert rule.refuses(found.graph, match) == ""
    graph = rule.applied(found.graph, match, OPERATORS.complete)
    assert [node.op for node in graph.nodes.values()] == ["input", "aten.linear", "aten.linear"]
    x = torch.randn(2, 5, dtype=torch.float64)
    result = build_module(found, graph).double()(x)
    assert torch.allclose(result, module.double()(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (scaled(lambda m, x: m.inner(x) * x.sum()), "it is multiplied by a tensor"),
        (scaled(lambda m, x: (y := m.inner(x)) * 0.25 + y), "also reads the output of inner"),
        (scaled(lambda m, x: m.inner(x) * 0.25 + m.inner(x + 1)), "is shared with"),
    ],
    ids=["tensor", "taken twice", "shared weight"],
)
def test_it_refuses(rule: Rule, module: nn.Module, why: str):
    found, matches = places(rule, module)
    assert why in rule.refuses(found.graph, matches[0])


def test_every_rule_is_in_the_docs():
    text = (ROOT / "docs" / "how-to" / "optimizing.md").read_text(encoding="utf-8")
    table = text.partition("## Rules")[2].partition("## Report")[0]
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table))
    assert {each.name for each in registry.all_rules()} <= listed
