"""The tree of modules: what each holds, in which order, and that its rows add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from roofline.analysis import Analysis, Branch, Module, module_tree
from roofline.workload.tensors import Role
from tests.analysis.examples import Network, analysis_of, full_profile, resnet
from tests.analysis.predictions import with_predictions


def nested() -> Analysis:
    """A ReLU of 8 in the model, of 16 and 32 in ``b.x`` and ``b.y``, of 4 in ``b``, of 2 in ``a``.

    ``b`` runs before ``a``, and ``b.y`` before ``b.x``.
    """
    net = Network()
    for elements, module in ((8, ""), (32, "b.y"), (16, "b.x"), (4, "b"), (2, "a.deep.er")):
        net.relu(net.tensor(elements, role=Role.INPUT), module)
    return analysis_of(
        net,
        full_profile(),
        modules=(
            Module(path="", kind="Net", calls=1, parameters=7),
            Module(path="b", kind="Block", calls=2, parameters=0),
            Module(path="b.y", kind="Y", calls=4, parameters=5),
            Module(path="b.x", kind="X", calls=2, parameters=0),
            Module(path="a.deep.er", kind="Leaf", calls=1, parameters=1),
            Module(path="a", kind="ModuleList", calls=0, parameters=0),
            Module(path="b.idle", kind="Identity", calls=0, parameters=0),
            Module(path="never", kind="Linear", calls=0, parameters=20),
        ),
    )


def said(branch: Branch) -> tuple[object, ...]:
    return (branch.path, branch.part, branch.calls, branch.parameters, branch.group.work.flop)


def test_a_module_holds_all_that_is_in_it_in_the_order_of_first_calls() -> None:
    assert [said(each) for each in module_tree(nested(), depth=2)] == [
        ("", "whole", 1, 33, 62),
        ("", "own", None, 7, 8),
        ("b", "whole", 2, 5, 52),
        ("b", "own", None, 0, 4),
        ("b.y", "whole", 4, 5, 32),
        ("b.x", "whole", 2, 0, 16),
        ("a", "whole", 0, 1, 2),
        ("a.deep", "whole", None, 1, 2),
        ("never", "whole", 0, 20, 0),
    ]


def test_what_lies_deeper_belongs_to_the_last_module_that_is_shown() -> None:
    assert [said(each)[:2] + said(each)[3:] for each in module_tree(nested(), depth=1)] == [
        ("", "whole", 33, 62),
        ("", "own", 7, 8),
        ("b", "whole", 5, 52),
        ("a", "whole", 1, 2),
        ("never", "whole", 20, 0),
    ]
    (model,) = module_tree(nested(), depth=0)
    assert said(model) == ("", "whole", 1, 33, 62)
    assert [each.path for each in module_tree(nested())][-2] == "a.deep.er"


def test_the_longest_modules_in_each_are_kept() -> None:
    rows = [said(each) for each in module_tree(nested(), depth=2, top=1)]
    assert rows == [
        ("", "whole", 1, 33, 62),
        ("", "own", None, 7, 8),
        ("b", "whole", 2, 5, 52),
        ("b", "own", None, 0, 4),
        ("b.y", "whole", 4, 5, 32),
        ("b", "rest", None, 0, 16),
        ("", "rest", None, 21, 2),
    ]


def test_the_longest_by_another_time_are_kept() -> None:
    """By bounds ``b`` is kept; ``a`` is predicted to take longer."""
    seconds = {"": 1.0, "b": 1.0, "b.y": 2.0, "b.x": 3.0, "a.deep.er": 9.0}
    analysis = with_predictions(nested(), seconds)
    tree = module_tree(analysis, depth=2, top=1, time_s=lambda group: group.predicted_s)
    assert [(each.path, each.part, each.group.predicted_s) for each in tree] == [
        ("", "whole", 16.0),
        ("", "own", 1.0),
        ("a", "whole", 9.0),
        ("a.deep", "whole", 9.0),
        ("", "rest", 6.0),
    ]
    by_bound = module_tree(analysis, depth=1, top=1)
    assert [each.path for each in by_bound if each.part == "whole"] == ["", "b"]


def test_a_module_with_an_unknown_time_has_none_and_one_that_does_nothing_takes_none() -> None:
    seconds = {"": 1.0, "b": 1.0, "b.y": 2.0, "a.deep.er": 9.0}
    tree = module_tree(with_predictions(nested(), seconds), depth=2)
    assert {each.path: each.group.predicted_s for each in tree if each.part == "whole"} == {
        "": None,
        "b": None,
        "b.y": 2.0,
        "b.x": None,
        "a": 9.0,
        "a.deep": 9.0,
        "never": 0.0,
    }
    assert {each.group.measured_s for each in tree} == {None}


@pytest.mark.parametrize("top", [1, 2, None])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
@pytest.mark.parametrize("make", [nested, resnet])
def test_rows_that_are_not_open_add_up(
    make: Callable[[], Analysis], depth: int | None, top: int | None
) -> None:
    analysis = make()
    tree = module_tree(analysis, depth=depth, top=top)
    leaves = [each.group for each in tree if not each.is_open]
    totals = analysis.totals
    assert sum(each.work.traffic_bytes for each in leaves) == totals.traffic_bytes
    assert sum(each.work.flop or 0 for each in leaves) == totals.flop
    assert sum(each.fused_bytes or 0 for each in leaves) == totals.fused_bytes
    assert sum(each.unknown_operators for each in leaves) == totals.unknown_operators
    assert sum(each.eager_min_time_s or 0 for each in leaves) == pytest.approx(
        totals.eager_min_time_s
    )
    assert tree[0].group.work.flop == totals.flop
    assert tree[0].group.share == pytest.approx(1.0)


def test_a_file_that_knows_no_modules_gives_the_tree_of_its_operators() -> None:
    tree = module_tree(replace(nested(), modules=()), depth=1)
    assert [(each.path, each.part) for each in tree] == [
        ("", "whole"),
        ("", "own"),
        ("b", "whole"),
        ("a", "whole"),
    ]
    assert {(each.calls, each.parameters, each.kind) for each in tree} == {(None, None, "")}


def test_free_operators_are_in_no_row() -> None:
    analysis = resnet()
    free = [row for row in analysis.operators if row.state == "free"]
    (model,) = module_tree(analysis, depth=0)
    assert free
    assert model.group.calls == len(analysis.operators) - len(free)
