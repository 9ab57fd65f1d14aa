"""The networks of benchmarks/networks: they are what they are called, and what is shown on them."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import capture_graph
from roofline.substitution.graphs.graph import Editor
from roofline.substitution.graphs.operators import Operators
from roofline.substitution.rules.rule import select_rules

FOLDER = Path(__file__).parents[2] / "benchmarks" / "networks"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"networks_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_step_of_an_sru_by_hand():
    """Of one feature, all products are of numbers."""
    cell = loaded("recurrent").SimpleRecurrentUnit(1).double()
    with torch.no_grad():
        cell.candidate.weight.fill_(2.0)
        cell.forget.weight.fill_(0.5)
        cell.forget.bias.fill_(0.1)
        cell.reset.weight.fill_(-1.0)
        cell.reset.bias.fill_(0.3)
    x, c = 0.7, -0.4
    given = (torch.tensor([[each]], dtype=torch.float64) for each in (x, c))
    h, state = cell(*given)
    f, r = sigmoid(0.5 * x + 0.1), sigmoid(-x + 0.3)
    expected = f * c + (1 - f) * 2 * x
    assert math.isclose(state.item(), expected)
    assert math.isclose(h.item(), r * math.tanh(expected) + (1 - r) * x)


def test_a_step_of_an_lstm_is_that_of_torch():
    own = loaded("recurrent").LongShortTermMemory(8).double()
    other = nn.LSTMCell(8, 8).double()
    # torch's gates are in the order: in, forget, candidate, out.
    order = (1, 0, 2, 3)
    with torch.no_grad():
        other.bias_hh.zero_()
        for place, gate in enumerate(order):
            rows = slice(8 * gate, 8 * gate + 8)
            other.weight_ih[rows] = own.of_input[place].weight
            other.bias_ih[rows] = own.of_input[place].bias
            other.weight_hh[rows] = own.of_state[place].weight
    x, h, c = torch.randn(3, 5, 8, dtype=torch.float64)
    for one, two in zip(own(x, h, c), other(x, (h, c)), strict=True):
        assert torch.allclose(one, two, rtol=1e-12)


def test_repvgg_becomes_a_chain_of_3x3_convolutions():
    """22 blocks of three or two branches each: one convolution with a bias is left of each."""
    library = loaded("repvgg")
    module = library.RepVGG().eval()
    operators = Operators()
    model = capture_graph(module, (torch.randn(1, 3, 64, 64),), operators=operators)
    (rule,) = select_rules("sum-convolutions")
    graph = model.graph
    while places := [each for each in rule.pattern.matches(graph) if not rule.refuses(graph, each)]:
        editor = Editor(graph, operators.complete, rule.name)
        rule.rewrite(editor, max(places, key=lambda each: len(each.numbers)))
        graph = editor.finished()
    ops = [node.op for node in graph.nodes.values()]
    assert ops.count("aten.conv2d") == ops.count("aten.relu") == 22
    assert "aten.batch_norm" not in ops
    assert "aten.add" not in ops
    sizes, channels = 0, 3
    for filters, count in zip(library.WIDTHS, library.BLOCKS, strict=True):
        for _ in range(count):
            sizes += 9 * channels * filters + filters
            channels = filters
    sizes += channels * 1000 + 1000
    assert sum(each.numel() for each in build_module(model, graph).parameters()) == sizes
