"""The records of a graph are those that the toolkit captures of its module, and of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from roofline.latency.measuring.calls import CallLog
from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import capture_graph
from roofline.substitution.graphs.counting import REST_OF_MODEL, Counted, count_records
from roofline.substitution.graphs.graph import INPUT, Editor, Graph, Node, Value, contiguous
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role
from tests.substitution.rewriting import OPERATORS, Model, graph_of


def _concatenating() -> nn.Module:
    """Layers whose outputs are all taken by all that follow, as in DenseNet."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        for conv in m.convs:
            x = torch.cat([x, functional.relu(conv(x), inplace=True)], 1)
        return functional.max_pool2d(x, 2)

    convs = (nn.Conv2d(3 + 2 * each, 2, 3, padding=1) for each in range(4))
    return Model(function, convs=nn.ModuleList(convs))


def _residual() -> nn.Module:
    """Sums in place."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(m.convs, m.norms, strict=True):
            y = norm(conv(x))
            y += x
            x = y.relu_()
        return x.mean((2, 3))

    convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
    return Model(function, convs=convs, norms=nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3)))


def _recurrent() -> nn.Module:
    def function(m: Any, x: torch.Tensor) -> Any:
        y, (hidden, _) = m.lstm(x)
        return m.head(y[:, -1]), hidden

    return Model(function, lstm=nn.LSTM(6, 8, 2, batch_first=True), head=nn.Linear(8, 3))


def _cell() -> nn.Module:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(x), 8), torch.zeros(len(x), 8)
        for step in range(x.shape[1]):
            state = m.cell(x[:, step], state)
        return state[0]

    return Model(function, cell=nn.LSTMCell(6, 8))


def _attention() -> nn.Module:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        heads = (
            each.view(*x.shape[:2], 2, 4).transpose(1, 2) for each in m.qkv(m.norm(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(*heads)
        return x + m.out(y.transpose(1, 2).flatten(2))

    return Model(function, qkv=nn.Linear(8, 24), norm=nn.LayerNorm(8), out=nn.Linear(8, 8))


def _frozen() -> nn.Module:
    """Products with a weight that takes no gradients are made in another way."""
    return Model(
        lambda m, x: (turned := x.transpose(0, 1)) @ m.weight + turned @ m.trained,
        weight=nn.Parameter(torch.randn(4, 4), requires_grad=False),
        trained=nn.Parameter(torch.randn(4, 4)),
    )


def _bert() -> nn.Module:
    _torchvision()
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.BertModel(
        transformers.BertConfig(**sizes, intermediate_size=32, vocab_size=20)
    )


def _torchvision() -> Any:
    library, reason = library_or_reason("torchvision")
    return library or pytest.skip(reason)


def _own(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: _torchvision().models.get_model(name, **options)


def _vit() -> nn.Module:
    """vit_b_32 with two of its twelve layers, which are alike."""
    return _torchvision().models.VisionTransformer(32, 32, 2, 12, 768, 3072)


# A block that does not expand, ones that halve, and ones with shortcuts: all kinds that there are.
_FEW_BLOCKS = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]

_IMAGE = (1, 3, 64, 64)
_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (_own("resnet18"), _IMAGE),
    "squeezenet1_0": (_own("squeezenet1_0"), _IMAGE),
    "mobilenet_v2": (_own("mobilenet_v2", inverted_residual_setting=_FEW_BLOCKS), _IMAGE),
    "googlenet": (_own("googlenet", init_weights=False), _IMAGE),
    "bert": (_bert, (2, 7)),
    "vision transformer": (_vit, (1, 3, 32, 32)),
    "concatenating": (_concatenating, (2, 3, 8, 8)),
    "residual": (_residual, (2, 4, 8, 8)),
    "frozen": (_frozen, (2, 3, 4)),
    "recurrent": (_recurrent, (2, 5, 6)),
    "cell": (_cell, (2, 5, 6)),
    "attention": (_attention, (2, 5, 8)),
}


@contextmanager
def _no_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _said(found: Sequence[OperatorRecord]) -> list[tuple[Any, ...]]:
    """Records but for the numbers of storages, which say no more than which are the same."""
    return [
        (
            *(each.op, each.type, each.state, each.work, each.formula, dict(each.attributes)),
            *(len(each.freed), _tensors(each.inputs), _tensors(each.outputs)),
        )
        for each in found
    ]


def _tensors(specs: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (each.shape, each.dtype, each.offset_bytes, each.min_elements, each.layout, each.role)
        for each in specs
    ]


def _bag(found: Sequence[OperatorRecord]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (each.op, each.work.flop, each.work.traffic_bytes, each.work.internal_bytes)
        for each in found
        if each.state != "free"
    )


def _beyond(found: Sequence[OperatorRecord], capacity_bytes: int) -> int:
    steady = trace_residency(found).steady
    return sum(each.bytes_beyond(capacity_bytes) for row in steady for each in row)


@pytest.mark.parametrize("name", _MODELS)
def test_records_are_those_of_the_built_module_and_of_the_model(name: str) -> None:
    make, shape = _MODELS[name]
    inputs = torch.randint(0, 20, shape) if name == "bert" else torch.randn(shape)
    module = make().eval()
    model = capture_graph(module, (inputs,), name=name, operators=OPERATORS)
    counted = count_records(model.graph, OPERATORS)
    rebuilt = build_module(model, model.graph)
    log = CallLog()
    of_built = capture(rebuilt, Inputs(inputs), name=name, on_call=log.begin).records
    with _no_fast_path():
        of_model = capture(module, Inputs(inputs), name=name).records

    assert _said(counted.records) == _said(of_built)
    assert counted.calls == tuple(log.calls)
    assert trace_residency(counted.records) == trace_residency(of_built)
    assert [each.index for each in counted.records] == list(range(len(of_built)))

    assert _bag(counted.records) == _bag(of_model)
    assert _paths(counted.records) == _paths(of_model)
    # A model's own code holds what it has computed until its functions return, or longer.
    mine, its = trace_residency(counted.records), trace_residency(of_model)
    assert mine.peak_activation_bytes <= its.peak_activation_bytes
    for capacity_bytes in (2**15, 2**18, 2**20, 2**22):
        expected = _beyond(of_model, capacity_bytes)
        assert _beyond(counted.records, capacity_bytes) == pytest.approx(expected, rel=0.08)


def _paths(found: Sequence[OperatorRecord]) -> list[tuple[str, str]]:
    return [(each.op, each.module_path) for each in found if each.state != "free"]


def _graph(function: Callable[..., Any], shape: tuple[int, ...]) -> Graph:
    return graph_of(Model(lambda m, x: function(x)), torch.zeros(shape))


def _in_words(counted: Counted) -> list[str]:
    return [
        f"{each.op.removeprefix('aten.')}"
        f" {','.join(str(spec.storage) for spec in each.inputs)}"
        f" > {','.join(str(spec.storage) for spec in each.outputs)}"
        + (f" x {','.join(map(str, each.freed))}" if each.freed else "")
        for each in counted.records
    ]


def test_storages_live_until_their_last_use() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        first = x * 2
        second = first.view(6)[1:4]
        third = first + 1
        return second + third.sum()

    assert _in_words(count_records(_graph(function, (2, 3)), OPERATORS)) == [
        "mul 0 > 1",
        "view 1 > 1",
        "slice 1 > 1",
        "add 1 > 2",
        "sum 2 > 3 x 2",
        "add 1,3 > 4 x 1,3",
    ]


def test_an_operator_overwrites_what_nobody_needs_any_more() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y + 1
        y.relu_()
        return y * z

    counted = count_records(_graph(function, (4,)), OPERATORS)
    assert _in_words(counted) == ["mul 0 > 1", "add 1 > 2", "relu_ 1 > 1", "mul 1,2 > 3 x 1,2"]


def test_an_operator_does_not_overwrite_what_is_needed() -> None:
    graph = _graph(lambda x: (x * 2).relu_(), (4,))
    (product,) = [number for number, node in graph.nodes.items() if node.op == "aten.mul"]
    assert _in_words(count_records(graph, OPERATORS)) == ["mul 0 > 1", "relu_ 1 > 1"]
    both = count_records(replace(graph, outputs=(*graph.outputs, Value(product))), OPERATORS)
    assert _in_words(both) == ["mul 0 > 1", "relu 1 > 2"]
    on_input = _graph(lambda x: x.relu_(), (4,))
    assert _in_words(count_records(on_input, OPERATORS)) == ["relu 0 > 1"]


def test_an_operator_does_not_overwrite_what_it_also_reads_otherwise() -> None:
    graph = _graph(lambda x: (x * 2).add_(1), (2, 2))
    editor = Editor(graph, OPERATORS.complete)
    (add,) = [number for number, node in graph.nodes.items() if node.op == "aten.add"]
    product = graph.nodes[add]["self"]
    turned = editor.add("aten.t", self=product)
    added = editor.add_like(graph.nodes[add], other=Value(turned))
    editor.replace(Value(add), Value(added))
    # The transpose of a tensor is the same bytes, which count once.
    assert _in_words(count_records(editor.finished(), OPERATORS)) == [
        *("mul 0 > 1", "t 1 > 1", "add 1 > 2 x 1")
    ]


def test_a_piece_takes_activations_that_may_be_overwritten() -> None:
    type = contiguous((4,), "float32")
    given = Node(op=INPUT, arguments=(("name", "x"), ("role", "activation")), outputs=(type,))
    relu = Node(op="aten.relu", arguments=(("self", Value(0)),), outputs=(type,), in_place=True)
    graph = Graph(nodes={0: given, 1: relu}, outputs=(Value(1),), next_number=2)
    counted = count_records(graph, OPERATORS)
    assert _in_words(counted) == ["relu_ 0 > 0"]
    assert counted.records[0].inputs[0].role is Role.ACTIVATION


def test_the_rest_of_a_model_stands_behind_a_piece() -> None:
    graph = _graph(lambda x: x * 2, (256,))
    alone = count_records(graph, OPERATORS)
    counted = count_records(graph, OPERATORS, rest_bytes=4096)
    assert counted.records[:-1] == alone.records
    assert (counted.node_of[-1], counted.calls[-1]) == (-1, None)
    rest = counted.records[-1]
    assert (rest.op, rest.work.flop, rest.work.traffic_bytes) == (REST_OF_MODEL, 0, 4096)
    # 1 KiB read and 1 KiB written a pass, of which 4 KiB of a cache hold all, but not behind 4 KiB.
    assert _beyond(alone.records, 4096) == 0
    steady = trace_residency(counted.records).steady[0]
    assert sum(each.bytes_beyond(4096) for each in steady) == 2048


def test_nodes_of_records() -> None:
    graph = _graph(lambda x: functional.max_pool2d(x, 2).flatten(1).softmax(-1), (1, 2, 4, 4))
    counted = count_records(graph, OPERATORS)
    ops = [graph.nodes[number].op for number in counted.node_of]
    assert [each.op for each in counted.records] == [
        *("aten.max_pool2d_with_indices", "aten.view", "aten._softmax")
    ]
    assert ops == ["aten.max_pool2d", "aten.flatten", "aten.softmax"]


def test_channels_last_images() -> None:
    image = torch.randn(1, 4, 8, 8).to(memory_format=torch.channels_last)
    module = _residual().eval()
    model = capture_graph(module, (image,), name="it", operators=OPERATORS)
    rebuilt = build_module(model, model.graph)
    of_built = capture(rebuilt, Inputs(image), name="it").records
    assert _said(count_records(model.graph, OPERATORS).records) == _said(of_built)
    assert of_built[0].inputs[0].layout == "channels-last"
