"""Rules by name, and rules that users register, in Python and from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from roofline.errors import InputError
from roofline.substitution.graphs.graph import Editor, Value, Weight
from roofline.substitution.rules import rule as registry
from roofline.substitution.rules.rule import (
    Chain,
    Match,
    Rule,
    Step,
    all_rules,
    register_rule,
    select_rules,
    weight_constructor,
)
from tests.substitution.rewriting import Model, assert_rewrites, ops, random

OWN = [
    *("drop-dropout", "drop-identity", "eliminate-split-concat", "fold-batch-norm"),
    *("fold-linear-batch-norm", "merge-convolutions", "enlarge-kernel", "enlarge-and-merge"),
    *("sum-convolutions", "absorb-residual", "merge-linears", "merge-matmuls", "hoist-product"),
    *("merge-gates", "fuse-activation", "channels-last"),
]


@pytest.fixture(autouse=True)
def _only_own_rules() -> Iterator[None]:
    all_rules()
    rules, files = dict(registry._RULES), dict(registry._FILES)
    yield
    registry._RULES.clear()
    registry._RULES.update(rules)
    registry._FILES.clear()
    registry._FILES.update(files)


def names(selection: str | list[str]) -> list[str]:
    return [rule.name for rule in select_rules(selection)]


def test_all_rules_are_known_in_one_order() -> None:
    assert names("all") == [rule.name for rule in all_rules()] == OWN


def test_names_are_selected_and_taken_out() -> None:
    assert names("merge-linears, drop-dropout") == ["drop-dropout", "merge-linears"]
    assert names(["merge-linears", "drop-dropout"]) == ["drop-dropout", "merge-linears"]
    assert names("safe,channels-last,-merge-gates") == [
        name for name in OWN if name not in ("enlarge-kernel", "enlarge-and-merge", "merge-gates")
    ]
    assert names("-channels-last") == OWN[:-1]
    # Safe rules neither add work nor change the layout.
    assert set(OWN) - set(names("safe")) == {"enlarge-kernel", "enlarge-and-merge", "channels-last"}
    assert names("all,-safe") == ["enlarge-kernel", "enlarge-and-merge", "channels-last"]


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("fold-bach-norm", "unknown rule 'fold-bach-norm'; did you mean 'fold-batch-norm'?"),
        ("-al", "unknown rule 'al'; did you mean 'all'?"),
        ("merge\x1blinears", "unknown rule 'merge\\x1blinears'"),
        ("", "no rule selected"),
        ("safe,-all", "no rule selected"),
        ("nowhere/my_rules.py", "rules 'nowhere/my_rules.py': No such file or directory"),
    ],
)
def test_what_cannot_be_selected_is_said_in_one_line(selection: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        select_rules(selection)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_constructor_is_found_by_its_name() -> None:
    for rule in all_rules():
        for name, function in rule.constructors.items():
            assert weight_constructor(name) is function
    with pytest.raises(InputError, match="did you mean 'concatenated'"):
        weight_constructor("concatenate")


# -- a rule of a user's own: twice a value times a weight is the value times twice the weight


def doubled(matrix: torch.Tensor, *, factor: float) -> torch.Tensor:
    return matrix * factor


def own_rule(name: str = "scale-weight", constructor_name: str = "doubled") -> Rule:
    def rewrite(editor: Editor, match: Match) -> None:
        linear = editor.graph.nodes[match["linear"]]
        factor = editor.graph.nodes[match["scale"]]["other"]
        weight = Weight(
            type=linear["weight"].type,
            made_by=constructor_name,
            of=(linear["weight"],),
            options=(("factor", factor),),
        )
        editor.replace(Value(match["scale"]), Value(editor.add_like(linear, weight=weight)))

    return Rule(
        name=name,
        summary="a linear does the factor behind it",
        pattern=Chain(
            steps=(
                Step(role="linear", ops=frozenset({"aten.linear"})),
                Step(role="scale", ops=frozenset({"aten.mul"}), after="linear", at="self"),
            )
        ),
        refuses=lambda graph, match: (
            "" if graph.nodes[match["linear"]]["bias"] is None else "it has a bias"
        ),
        rewrite=rewrite,
        constructors={constructor_name: doubled},
    )


SCALED = Model(lambda m, x: m.linear(x) * 2.5, linear=nn.Linear(3, 2, bias=False))


def test_a_rule_registered_in_python_is_used_like_any_other() -> None:
    rule = register_rule(own_rule())
    assert all_rules()[-1] is rule
    assert names("scale-weight") == ["scale-weight"]
    assert names("all") == [*OWN, "scale-weight"]
    found = assert_rewrites(SCALED, (random(4, 3),), "scale-weight")
    assert ops(found.graph) == {"linear": 1}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (own_rule("merge-linears"), "'merge-linears' is already registered"),
        (own_rule(constructor_name="concatenated"), "weight constructor 'concatenated'"),
        (own_rule("all"), "invalid rule name 'all'"),
        (own_rule("a,b"), "invalid rule name 'a,b'"),
        (own_rule("-a"), "invalid rule name '-a'"),
        (own_rule(""), "invalid rule name ''"),
    ],
)
def test_a_rule_that_cannot_be_registered(rule: Rule, said: str) -> None:
    with pytest.raises(InputError, match=said):
        register_rule(rule)
    assert [each.name for each in all_rules()] == OWN


FILE = """
from tests.substitution.test_rule_registry import own_rule
from roofline.substitution.rules.rule import register_rule

register_rule(own_rule({names!r}))
"""


def written(path: Path, *rules: str) -> Path:
    path.write_text("".join(FILE.format(names=name) for name in rules), encoding="utf-8")
    return path


def test_rules_of_a_file_are_registered_once(tmp_path: Path) -> None:
    path = written(tmp_path / "torch.py", "one", "two")
    assert names(str(path)) == ["one", "two"]
    assert names(f"{path},drop-dropout,-one") == ["drop-dropout", "two"]
    assert names("all")[-2:] == ["one", "two"]
    assert_rewrites(SCALED, (random(4, 3),), "two")
    # A file that has changed is read again.
    written(path, "three")
    assert names(str(path)) == ["three"]
    assert names("all") == [*OWN, "three"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "no rule registered"),
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (FILE.format(names="one") + FILE.format(names="drop-dropout"), "already registered"),
    ],
)
def test_a_file_that_fails_registers_nothing(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        select_rules(str(path))
    assert str(path) in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert names("all") == OWN
