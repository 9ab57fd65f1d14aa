"""Layers, their places, and shortcuts: found in the operators of models that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roofline.quantization.policy import Layer, Structure, structure_of
from tests.quantization.small_networks import Of
from tests.quantization.what_if_machines import Fork, Joined, PingPong, resnet20
from tests.workload.passes import passed


def structure(model: nn.Module, *shape: int) -> Structure:
    return structure_of(passed(model.eval(), shape).records)


def places(found: Structure) -> dict[str, str]:
    return {each.name: each.place for each in found.layers}


def _pair(function: Callable[..., Any]) -> nn.Module:
    return Of(function, a=nn.Linear(4, 4), b=nn.Linear(4, 4))


_SAME = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("model", "shape", "expected", "shortcuts"),
    [
        (
            nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2)),
            *((1, 4), {"0": "first", "2": "inner", "3": "last"}, []),
        ),
        (nn.Sequential(nn.Linear(4, 2)), (1, 4), {"0": "first"}, []),
        (Fork(), (2, 8), {"stem": "first", "left": "last", "right": "last"}, []),
        (
            PingPong(8, 3),
            *((2, 8), {"layers.0": "first", "layers.1": "inner", "layers.2": "last"}, []),
        ),
        (
            Of(
                lambda m, x: m.head(x + m.down(torch.relu(m.up(m.norm(x))))),
                norm=nn.LayerNorm(8),
                up=nn.Linear(8, 16),
                down=nn.Linear(16, 8),
                head=nn.Linear(8, 3),
            ),
            *((2, 8), {"up": "first", "down": "inner", "head": "last"}, [(0, ())]),
        ),
        (_pair(lambda m, x: m.a(x) + m.b(x)), (1, 4), {"a": "first", "b": "first"}, []),
        (
            Of(lambda m, x: m.a(x) + m.b, a=nn.Linear(4, 4), b=nn.Parameter(torch.zeros(1, 4))),
            *((1, 4), {"a": "first"}, []),
        ),
        (
            _pair(lambda m, x: torch.mm(m.a(x), m.b(x).t())),
            *((3, 4), {"a": "first", "b": "first"}, []),
        ),
        (
            Of(
                lambda m, x: m.head(m.lstm(x)[0]),
                lstm=nn.LSTM(4, 4, batch_first=True),
                head=nn.Linear(4, 2),
            ),
            *((1, 3, 4), {"head": "first"}, []),
        ),
        (
            nn.Sequential(_SAME, nn.ReLU(), _SAME, nn.ReLU(), _SAME),
            *((1, 4), {"0": "first", "0#2": "inner", "0#3": "last"}, []),
        ),
    ],
    ids=[
        *("a chain", "one layer", "several last", "softmax between", "residual stream"),
        *("even branches", "bias added", "product of activations", "recurrent", "thrice"),
    ],
)
def test_layers_have_places_and_shortcuts_go_around_them(
    model: nn.Module, shape: tuple[int, ...], expected: dict[str, str], shortcuts: list[Any]
) -> None:
    found = structure(model, *shape)
    assert places(found) == expected
    assert [(each.operand, each.layers) for each in found.shortcuts] == shortcuts


def test_integer_weights_are_no_layers() -> None:
    model = Of(lambda m, x: torch.mm(x.to(torch.int64), m.table))
    model.register_buffer("table", torch.ones(4, 4, dtype=torch.int64))
    assert not structure(model, 2, 4).layers


def test_operands_are_found_wherever_they_stand() -> None:
    """A bias stands before the activations of a linear layer, behind those of a convolution."""
    captured = passed(Joined().eval(), (1, 3, 8, 8))
    for each in structure_of(captured.records).layers:
        record = captured.records[each.index]
        assert (each.activation, each.weight) == (0, 1)
        assert len(record.inputs[each.weight].shape) == 4
    captured = passed(nn.Linear(4, 2).eval(), (3, 4))
    (layer,) = structure_of(captured.records).layers
    record = captured.records[layer.index]
    assert record.inputs[layer.activation].shape == (3, 4)
    assert record.inputs[layer.weight].shape == (4, 2)
    assert layer == Layer(name="", index=layer.index, place="first", activation=1, weight=2)


def test_resnet20_has_nine_shortcuts_two_of_them_with_a_projection() -> None:
    captured = passed(resnet20().eval(), (1, 3, 32, 32))
    found = structure_of(captured.records)
    assert len(found.shortcuts) == 9
    projections = [each.layers for each in found.shortcuts if each.layers]
    names = {each.index: each.name for each in found.layers}
    assert [[names[one] for one in each] for each in projections] == [
        ["blocks.3.shortcut.0"],
        ["blocks.6.shortcut.0"],
    ]
    assert places(found)["blocks.3.shortcut.0"] == "shortcut"
    for each in found.shortcuts:
        assert captured.records[each.addition].op in ("aten.add", "aten.add_")
        # What comes along the shortcut is the second operand: y + shortcut(x).
        assert each.operand == 1
