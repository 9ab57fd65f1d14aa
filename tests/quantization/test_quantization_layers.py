"""Layers, their places, and shortcuts: found in the operators of models that are known."""

from __future__ import annotations

import torch
from torch import nn

from roofline.quantization.policy import Layer, Structure, structure_of
from tests.quantization.what_if_machines import Fork, Joined, PingPong, resnet20
from tests.workload.passes import passed


def structure(model: nn.Module, *shape: int) -> Structure:
    return structure_of(passed(model.eval(), shape).records)


def places(found: Structure) -> dict[str, str]:
    return {each.name: each.place for each in found.layers}


def test_a_chain() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
    found = structure(model, 1, 4)
    assert places(found) == {"0": "first", "2": "inner", "3": "last"}
    assert not found.shortcuts


def test_a_single_layer_is_first() -> None:
    assert places(structure(nn.Sequential(nn.Linear(4, 2)), 1, 4)) == {"0": "first"}


def test_several_layers_may_be_last() -> None:
    assert places(structure(Fork(), 2, 8)) == {"stem": "first", "left": "last", "right": "last"}


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


def test_a_residual_stream_is_a_shortcut_around_linear_layers() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x + self.down(torch.relu(self.up(self.norm(x)))))

    found = structure(Residual(), 2, 8)
    (path,) = found.shortcuts
    assert (path.operand, path.layers) == (0, ())
    assert places(found) == {"up": "first", "down": "inner", "head": "last"}


def test_branches_of_the_same_length_are_no_shortcuts() -> None:
    class Even(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x)

    assert not structure(Even(), 1, 4).shortcuts


def test_biases_and_constants_that_are_added_are_no_shortcuts() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.shift = nn.Linear(4, 4), nn.Parameter(torch.zeros(1, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.shift

    assert not structure(Shifted(), 1, 4).shortcuts


def test_products_of_two_activations_are_no_layers() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(self.query(x), self.key(x).t())

    assert set(places(structure(Attention(), 3, 4))) == {"query", "key"}


def test_recurrent_layers_and_embeddings_are_no_layers() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(x)[0])

    assert set(places(structure(Words(), 1, 3, 4))) == {"head"}


def test_integer_weights_are_no_layers() -> None:
    class Whole(nn.Module):
        table: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(4, 4, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(x.to(torch.int64), self.table)

    assert not structure(Whole(), 2, 4).layers


def test_modules_that_run_twice_have_numbers() -> None:
    layer = nn.Linear(4, 4)
    found = structure(nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer), 1, 4)
    assert [each.name for each in found.layers] == ["0", "0#2", "0#3"]


def test_softmax_in_between_does_not_end_a_chain() -> None:
    found = structure(PingPong(8, 3), 2, 8)
    assert [each.place for each in found.layers] == ["first", "inner", "last"]
