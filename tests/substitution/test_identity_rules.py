"""Operators that give what they take: dropped where nothing is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.substitution.rewriting import (
    Model,
    assert_rewrites,
    assert_same_outputs,
    graph_of,
    ops,
    places,
    random,
    refusal,
    rewritten,
)

RULES = ("drop-dropout", "drop-identity")


Function = Callable[[torch.Tensor], Any]


def only(does: Function) -> nn.Module:
    """A model of a function."""
    return Model(lambda m, x: does(x))


def within(does: Function) -> nn.Module:
    """A model that does something between two operators that stay; `does` may be a module."""
    return Model(lambda m, x: torch.tanh(m.does(torch.relu(x))), does=does)


@pytest.mark.parametrize(
    "module",
    [
        nn.Dropout(0.5),
        nn.Dropout(0.5, inplace=True),
        nn.Dropout1d(0.5),
        nn.Dropout2d(0.5),
        nn.AlphaDropout(0.5),
        nn.FeatureAlphaDropout(0.5),
    ],
    ids=lambda module: type(module).__name__,
)
def test_dropout_goes_in_eval_mode(module: nn.Module) -> None:
    shape = (2, 3, 4, 4) if isinstance(module, nn.Dropout2d) else (2, 3, 4)
    found = rewritten(within(module), (random(*shape),), "drop-dropout")
    assert_same_outputs(found, (random(*shape),))
    assert ops(found.graph) == {"relu": 1, "tanh": 1}
    # Among modules that do nothing, nothing is left.
    idle = nn.Sequential(nn.ReLU(), nn.Identity(), module, nn.Flatten(2), nn.Tanh())
    times = 1 + (len(shape) == 3)
    found = assert_rewrites(idle, (random(*shape),), *RULES, times=times)
    assert ops(found.graph)["relu"] == ops(found.graph)["tanh"] == 1


IDENTITIES: dict[str, Function] = {
    "plus 0": lambda x: x + 0,
    "0 plus": lambda x: 0 + x,
    "minus 0": lambda x: x - 0.0,
    "times 1": lambda x: x * 1,
    "1 times": lambda x: 1.0 * x,
    "over 1": lambda x: x / 1,
    "to the power of 1": lambda x: x**1,
    "dropout of nothing": lambda x: functional.dropout(x, 0.0, training=True),
    "reshape": lambda x: x.reshape(2, 3, 4),
    "view": lambda x: x.view(2, -1, 4),
    "flatten": lambda x: x.flatten(2),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x.dtype),
    "slices": lambda x: x[:, :],
    "whole slice": lambda x: x[:, :3],
    "cat of one": lambda x: torch.cat([x], dim=1),
    "concat of one": lambda x: torch.concat([x], dim=1),
    "pad of nothing": lambda x: functional.pad(x, (0, 0, 0, 0)),
    "permute": lambda x: x.permute(0, 1, 2),
    "expand": lambda x: x.expand(2, 3, 4),
    "split in one": lambda x: x.split(4, dim=2)[0],
    "clone": lambda x: x.clone(),
    "pooling": lambda x: functional.adaptive_avg_pool2d(x[None], (3, 4))[0],
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_goes(name: str) -> None:
    found = rewritten(within(IDENTITIES[name]), (random(2, 3, 4),), "drop-identity")
    left = ops(found.graph)
    del left["unsqueeze"], left["select"], left["_assert_tensor_metadata"]
    assert left == {"relu": 1, "tanh": 1}


def test_what_is_returned_goes_one_by_one() -> None:
    """Both alone could be what they are of; not both."""
    module = only(lambda x: [(y := torch.relu(x)) + 0, y * 1, torch.tanh(y + 0)])
    found = assert_rewrites(module, (random(2, 3),), "drop-identity", times=2)
    assert ops(found.graph) == {"relu": 1, "mul": 1, "tanh": 1}


OTHERS: dict[str, Function] = {
    "plus 1": lambda x: x + 1,
    "times 2": lambda x: x * 2,
    "plus itself": lambda x: x + x,
    "rounded": lambda x: torch.div(x, 1, rounding_mode="floor"),
    "other sizes": lambda x: x.reshape(2, 12),
    "transposed": lambda x: x.permute(0, 2, 1).reshape(2, 3, 4),
    "other type": lambda x: x.to(torch.float16),
    "part": lambda x: x[:, :2],
    "every second": lambda x: x[:, ::2],
    "padded": lambda x: functional.pad(x, (0, 1)),
    "padded and cut": lambda x: functional.pad(x, (1, -1)),
    "square transposed": lambda x: x[:, :3, :3].transpose(1, 2),
    "pooled": lambda x: functional.avg_pool1d(x, 3, 1, 1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_changes_something_stays(name: str) -> None:
    graph = graph_of(within(OTHERS[name]), random(2, 3, 4))
    assert places(graph, "drop-identity") == []


def test_a_conversion_there_and_back_goes() -> None:
    module = only(
        lambda x: torch.tanh(x.contiguous(memory_format=torch.channels_last).contiguous())
    )
    found = assert_rewrites(module, (random(2, 3, 4, 5),), "drop-identity")
    assert ops(found.graph) == {"tanh": 1}
    # Another order in memory stays.
    graph = graph_of(only(lambda x: torch.tanh(x.contiguous())), random(4, 3).t())
    assert places(graph, "drop-identity") == []


CONCATENATIONS = "eliminate-split-concat"
_DROPS = "dropout is active (training mode)"


@pytest.mark.parametrize(
    ("rule", "does", "why"),
    [
        ("drop-dropout", lambda x: functional.dropout(x, 0.5, True).tanh(), _DROPS),
        ("drop-identity", lambda x: x + 0, "the model would return its input"),
        (
            "drop-identity",
            lambda x: [y := torch.relu(x), y * 1],
            "the model would return the same tensor twice",
        ),
        ("drop-identity", lambda x: x.relu().to("cpu"), "it may move the tensor to another device"),
        (CONCATENATIONS, lambda x: torch.cat(x.split(2, 1), 1), "would return its input"),
        (CONCATENATIONS, lambda x: torch.cat(x.relu().split(1, 1)[1:], 1), "would return a view"),
        (
            CONCATENATIONS,
            lambda x: [y := torch.cat([x, x.exp()], 1), y.split(4, 1)[0].sum()],
            "model returns the output",
        ),
        (
            CONCATENATIONS,
            lambda x: [y := torch.cat([x, x], 1), torch.cat([y, x], 1)],
            "model returns the output",
        ),
    ],
)
def test_it_refuses(rule: str, does: Function, why: str) -> None:
    assert why in refusal(only(does), (random(2, 4, 3),), rule)


@settings(max_examples=15, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    names=st.lists(st.sampled_from(["+0", "*1", "view", "slice", "cat", "dropout"]), max_size=5),
)
def test_any_number_of_identities_goes(shape: list[int], names: list[str]) -> None:
    steps: dict[str, Function] = {
        "+0": lambda x: x + 0,
        "*1": lambda x: x * 1,
        "view": lambda x: x.view(shape),
        "slice": lambda x: x[: shape[0]],
        "cat": lambda x: torch.cat([x], dim=-1),
        "dropout": lambda x: functional.dropout(x, 0.4, training=False),
    }
    module = within(lambda x: functools.reduce(lambda y, name: steps[name](y), names, x))
    kinds = len({name == "dropout" for name in names})
    found = assert_rewrites(module, (random(*shape),), *RULES, times=kinds)
    assert ops(found.graph) == {"relu": 1, "tanh": 1}


# -- splits and concatenations


def _parts_of_a_concatenation(x: torch.Tensor) -> torch.Tensor:
    first, second = torch.cat([x.sigmoid(), x.exp(), x], dim=1).split([4, 8], dim=1)
    return first.sum(1, keepdim=True) * second


def _unbound_stack(x: torch.Tensor) -> torch.Tensor:
    first, second = torch.stack([torch.sigmoid(x), torch.exp(x)], dim=-1).unbind(-1)
    return first - second


@pytest.mark.parametrize(
    ("does", "times", "left"),
    [
        (lambda x: torch.cat(x.split([1, 2, 1], dim=1), dim=1), 1, {}),
        (lambda x: torch.cat([*x[:, :3].chunk(2, 1), x[:, 3:]], dim=1), 2, {}),
        (
            lambda x: torch.cat([torch.cat([x.sigmoid(), x.exp()], 1), *x.split([1, 3], 1)], 1),
            *(2, {"sigmoid": 1, "exp": 1, "cat": 1}),
        ),
        (_parts_of_a_concatenation, 1, {"sigmoid": 1, "exp": 1, "cat": 1, "sum": 1, "mul": 1}),
        (lambda x: torch.stack(x.unbind(1), dim=1), 1, {}),
        (_unbound_stack, 1, {"sigmoid": 1, "exp": 1, "sub": 1}),
        (lambda x: torch.cat(x.split([1, 2, 1], dim=1)[1:], dim=1), 1, {"slice": 1}),
    ],
    ids=[
        *("all pieces", "slices and chunks", "nested concatenations", "parts of a concatenation"),
        *("stack of what was unbound", "the other way round", "neighboring pieces"),
    ],
)
def test_pieces_that_are_joined_are_what_they_are_of(
    does: Function, times: int, left: dict[str, int]
) -> None:
    module = within(does)
    found = assert_rewrites(module, (random(2, 4, 3),), "eliminate-split-concat", times=times)
    assert ops(found.graph) == {"relu": 1, "tanh": 1, **left}


SPLITS: dict[str, Function] = {
    "another order": lambda x: torch.cat(x.split([2, 2], 1)[::-1], 1),
    "another dimension": lambda x: torch.cat(x.split([2, 2], 1), 2),
    "twice the same": lambda x: torch.cat([x[:, :2], x[:, :2]], 1),
    "gaps": lambda x: torch.cat([x[:, :1], x[:, 2:]], 1),
    "across parts": lambda x: torch.cat([x, x.exp()], 1)[:, 2:6],
    "some of a stack of slices": lambda x: torch.stack([x[:, 0], x[:, 2]], 1),
}


@pytest.mark.parametrize("name", SPLITS)
def test_pieces_that_are_not_the_whole_stay(name: str) -> None:
    graph = graph_of(within(SPLITS[name]), random(2, 4, 4))
    assert places(graph, "eliminate-split-concat") == []


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    dim=st.integers(-3, 2),
    cuts=st.data(),
)
def test_any_split_and_concatenation(sizes: list[int], dim: int, cuts: st.DataObject) -> None:
    """Pieces in any selection: whatever the rule makes of it computes the same."""
    shape = [2, 3, 2]
    shape[dim] = sum(sizes)
    taken = cuts.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=6))

    def does(x: torch.Tensor) -> torch.Tensor:
        pieces = x.split(sizes, dim)
        return torch.cat([torch.cat([pieces[each] for each in taken], dim), x], dim)

    found = rewritten(within(does), (random(*shape),), "eliminate-split-concat")
    assert_rewrites(within(does), (random(*shape),), "eliminate-split-concat", times=found.times)
