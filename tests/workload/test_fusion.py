"""Fused traffic: chains worked out by hand, whole models by their modules, and random operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roofline.workload.capture.passes import capture
from roofline.workload.fusion import FusedOperator, fused_records, fused_traffic
from roofline.workload.inputs import resolve_inputs
from roofline.workload.models.sources import load_model
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from tests.builders import record, tensor
from tests.workload.passes import passed, trained

F = 4
"""Bytes of a float32."""


def chains(*run: Any) -> list[tuple[str, int, int]]:
    """Operators that are not free: their names, the kernel each is in, the bytes that cross."""
    records = passed(*run).records
    shown = [
        (_name(each), fused.chain, fused.traffic_bytes)
        for each, fused in zip(records, fused_traffic(records), strict=True)
        if each.state is not State.FREE
    ]
    kernels = list(dict.fromkeys(chain for _, chain, _ in shown))
    return [(op, kernels.index(chain), byte) for op, chain, byte in shown]


def _name(record: OperatorRecord) -> str:
    """The operator's name; batch normalisation has several."""
    return "batch_norm" if "batch_norm" in record.op else record.op.removeprefix("aten.")


X, Y, W = 3 * 10 * 10 * F, 8 * 8 * 8 * F, 8 * 3 * 3 * 3 * F
"""Image, output and weights of the convolution in these tests."""
C = 8 * F
"""One number a channel."""


def conv(*, bias: bool = False) -> nn.Module:
    return nn.Conv2d(3, 8, 3, bias=bias)


# -- chains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inplace", [False, True])
def test_conv_bn_relu_is_one_kernel_whose_batch_norm_is_gone(inplace: bool) -> None:
    """Its shift becomes the bias that the convolution did not have; the result is written once."""
    model = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU(inplace))
    relu = "relu_" if inplace else "relu"
    assert chains(model, (1, 3, 10, 10)) == [
        ("convolution", 0, X + W),
        ("batch_norm", 0, C),
        (relu, 0, Y),
    ]
    records = passed(model, (1, 3, 10, 10)).records
    folded = [n for n, each in enumerate(fused_traffic(records)) if each.is_folded]
    assert ["batch_norm" in records[n].op for n in folded] == [True]


def test_conv_relu_bn_is_one_kernel_that_still_reads_its_batch_norm() -> None:
    model = nn.Sequential(conv(), nn.ReLU(), nn.BatchNorm2d(8))
    assert chains(model, (1, 3, 10, 10)) == [
        ("convolution", 0, X + W),
        ("relu", 0, 0),
        ("batch_norm", 0, 4 * C + Y),
    ]
    assert not any(each.is_folded for each in fused_traffic(passed(model, (1, 3, 10, 10)).records))


def test_a_batch_norm_cannot_be_folded_where_the_convolution_has_another_reader() -> None:
    """What is put side by side is written where it ends up, and not moved there."""

    convolution, norm = conv(), nn.BatchNorm2d(8)

    def branched(x: torch.Tensor) -> torch.Tensor:
        y = convolution(x)
        return torch.cat([norm(y), y])

    assert chains(branched, (1, 3, 10, 10)) == [
        ("convolution", 0, X + W + Y),
        ("batch_norm", 0, 4 * C + Y),
        ("cat", 1, 0),
    ]


def test_a_batch_norm_in_training_is_not_folded() -> None:
    """Statistics over the batch: a kernel of its own, whose result is made positive on the fly."""
    model = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU())
    records = trained(model, (2, 3, 10, 10), loss=lambda y: y.sum()).records
    fused = fused_traffic(records)
    assert not any(each.is_folded for each in fused)
    at = {each.op.removeprefix("aten."): n for n, each in enumerate(records)}
    norm = next(n for name, n in at.items() if name.endswith("batch_norm"))
    assert fused[norm].chain == norm
    assert fused[at["relu"]].chain == norm
    # What the backward pass reads of the forward pass is written: nothing joins across.
    for each, kernel in zip(records, fused, strict=True):
        assert each.phase == records[kernel.chain].phase
    saved = 2 * Y
    assert fused[at["convolution"]].traffic_bytes == 2 * X + W + saved


def test_a_residual_is_added_in_the_epilogue_of_the_later_convolution() -> None:
    convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    norm = nn.BatchNorm2d(8)

    def block(x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return torch.relu(norm(convolution(x)) + x)

    assert chains(block, (1, 8, 8, 8)) == [
        ("relu", 0, 2 * Y),
        ("convolution", 1, Y + 8 * 8 * 9 * F),
        ("batch_norm", 1, C),
        ("add", 1, Y),
        ("relu", 1, Y),
    ]


def test_attention_by_hand() -> None:
    """softmax(Q K^T / sqrt d + mask) V: scores cross after the mask, and again as shares."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Any:
        scores = q @ k.transpose(-2, -1) / math.sqrt(8)
        return torch.softmax(scores + mask, dim=-1) @ v

    heads, scores = F * 2 * 5 * 8, F * 2 * 5 * 5
    assert chains(attention, (2, 5, 8), (2, 5, 8), (2, 5, 8), (5, 5)) == [
        ("bmm", 0, 2 * heads),
        ("div", 0, 0),
        ("add", 0, F * 5 * 5 + scores),
        ("_softmax", 1, 2 * scores),
        ("bmm", 2, scores + 2 * heads),
    ]


def test_layer_norm_takes_in_the_sum_before_it_and_what_comes_after() -> None:
    """The sum is read again later, so it is written, but the normalisation need not read it."""

    norm = nn.LayerNorm(32)

    def normed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = x + y
        return torch.sigmoid(norm(both)), both

    size = F * 6 * 32
    assert chains(normed, (6, 32), (6, 32)) == [
        ("add", 0, 3 * size),
        ("native_layer_norm", 0, 2 * 32 * F),
        ("sigmoid", 0, size),
    ]


def test_a_gate_waits_for_its_input() -> None:
    """Squeeze and excite: the product needs the pooled image, so the image is read twice."""

    scale = nn.Conv2d(8, 8, 1)

    def gated(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return y * torch.sigmoid(scale(y.mean((2, 3), keepdim=True)))

    pooled = 8 * F
    assert chains(gated, (1, 8, 8, 8)) == [
        ("relu", 0, Y),
        ("mean", 0, pooled),
        ("convolution", 1, pooled + 64 * F + pooled),
        ("sigmoid", 1, pooled),
        ("mul", 2, 2 * Y + pooled),
    ]


def test_embeddings_are_looked_up_where_they_are_added() -> None:
    words, places, norm = nn.Embedding(100, 16), nn.Embedding(50, 16), nn.LayerNorm(16)

    def embedded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return norm(words(x) + places(y))

    number = torch.zeros(1, 7, dtype=torch.int64)
    rows = F * 7 * 16
    assert chains(embedded, number, number.clone()) == [
        ("embedding", 0, rows + 7 * 8),
        ("embedding", 0, rows + 7 * 8),
        ("add", 0, 0),
        ("native_layer_norm", 0, 2 * 16 * F + rows),
    ]


def test_a_draw_joins_what_uses_it_and_is_kept_for_the_way_back() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.5))
    records = trained(model, (10, 16), loss=lambda y: y.sum()).records
    fused = fused_traffic(records)
    first = next(n for n, each in enumerate(records) if each.op == "aten.addmm")
    chain = [n for n, each in enumerate(fused) if each.chain == first]
    assert [records[n].op for n in chain][:3] == ["aten.addmm", "aten.gelu", "aten.bernoulli_"]
    # The way back needs the mask, and what gelu was given; the loss needs the result.
    size = F * 10 * 16
    assert sum(fused[n].traffic_bytes for n in chain) == size + F * (16 * 16 + 16) + 3 * size


def test_a_part_overwritten_in_place_is_done_in_memory() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        y[:2].mul_(2)
        return torch.sin(y)

    eager = [each for each in passed(function, (10,)).records if each.state is not State.FREE]
    assert chains(function, (10,)) == [
        (each.op.removeprefix("aten."), n, each.work.traffic_bytes) for n, each in enumerate(eager)
    ]


def test_an_update_in_parts_is_one_kernel() -> None:
    """Each parameter and its momentum are read and written once, however many steps it takes."""
    model = nn.Linear(16, 16, bias=False)
    records = trained(model, (4, 16), optimizer="adam", loss=lambda y: y.sum()).records
    fused = fused_traffic(records)
    update = [n for n, each in enumerate(records) if each.phase == "optimizer"]
    size = 16 * 16 * F
    big = [n for n in update if records[n].work.traffic_bytes >= size]
    # Weight, both moments: read and written; the gradient: read.
    assert sum(fused[n].traffic_bytes for n in big) == 7 * size
    assert sum(records[n].work.traffic_bytes for n in big) > 2 * 7 * size


def test_what_is_read_of_a_value_is_all_that_is_computed_of_it_again() -> None:
    """The gates of a layer: one half of exp(x) is used, then both."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.exp(x).chunk(2)
        return a * torch.sigmoid(b)

    half = chains(lambda x: torch.exp(x)[:4] * 2, (10,))
    assert half == [("exp", 0, 0), ("mul", 1, 2 * 16)]
    assert sum(byte for *_, byte in chains(halves, (10,))) == 40 + 20


def test_what_follows_from_parameters_alone_is_computed_before_the_pass() -> None:
    """Not in a training step, which changes them."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.tanh(self.weight)

    assert chains(Scaled(), (8, 8)) == [("tanh", 0, 0), ("mm", 1, 3 * 256)]
    records = trained(Scaled(), (8, 8), loss=lambda y: y.sum()).records
    tanh = next(n for n, each in enumerate(records) if each.op == "aten.tanh")
    assert fused_traffic(records)[tanh].traffic_bytes == 2 * 256


N = F * 6 * 32
"""Bytes of 6 rows of 32 numbers."""
LONG = F * 2 * 32768

CHAINS: dict[str, tuple[Any, Sequence[tuple[int, ...]], list[tuple[str, int, int]]]] = {
    "a bias takes the shift of the batch norm": (
        nn.Sequential(conv(bias=True), nn.BatchNorm2d(8)),
        [(1, 3, 10, 10)],
        [("convolution", 0, X + W + C), ("batch_norm", 0, Y)],
    ),
    "a batch norm after a linear layer is folded too": (
        nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)),
        [(10, 16)],
        [("addmm", 0, F * (10 * 16 + 16 * 8 + 8)), ("batch_norm", 0, F * 10 * 8)],
    ),
    "an activation is done on a product's tiles, and the next product reads it from memory": (
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)),
        [(10, 16)],
        [
            ("addmm", 0, F * (10 * 16 + 16 * 64 + 64)),
            ("gelu", 0, F * 10 * 64),
            ("addmm", 1, F * (10 * 64 + 64 * 16 + 16 + 10 * 16)),
        ],
    ),
    "rows too long to stay on chip are read from memory, but what follows is done on the fly": (
        nn.Sequential(nn.ReLU(), nn.Softmax(-1), nn.Sigmoid()),
        [(2, 32768)],
        [("relu", 0, 0), ("_softmax", 1, LONG), ("sigmoid", 1, LONG)],
    ),
    "of a normalization in parts, the row is on chip when its mean is known": (
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1),
        [(6, 32)],
        [("pow", 0, N), ("mean", 0, 0), ("add", 0, 0), ("rsqrt", 0, 0), ("mul", 0, N)],
    ),
    "a mean over the batch is taken in, and who uses it computes the image again": (
        lambda x: (y := torch.relu(x)) - y.mean(0, keepdim=True),
        [(6, 32)],
        [("relu", 0, N), ("mean", 0, F * 32), ("sub", 1, N + F * 32 + N)],
    ),
    # Who reads the same bytes a second time in a kernel finds them there.
    "a sum joins the pooling, whose windows compute the activation again": (
        lambda x: nn.functional.max_pool2d(y := torch.relu(x), 3, 1, 1) + y,
        [(1, 8, 8, 8)],
        [("relu", 0, 0), ("max_pool2d_with_indices", 1, Y), ("add", 1, Y)],
    ),
    "views between are transparent, and what is kept is written": (
        lambda x: (torch.sin((y := torch.exp(x)).view(4, 10).t()) * 2, y),
        [(40,)],
        [("exp", 0, 320), ("sin", 0, 0), ("mul", 0, 160)],
    ),
    "an operand of two members is read once": (
        lambda x, y: (x + y) * x,
        [(10,)] * 2,
        [("add", 0, 80), ("mul", 0, 40)],
    ),
    "kernels over the same elements read a shared operand once": (
        lambda x, y: (torch.sin(x), x + y),
        [(10,)] * 2,
        [("sin", 0, 80), ("add", 0, 80)],
    ),
    "a product shares nothing with those that read its operand": (
        lambda x, w: (x @ w, torch.sin(x)),
        [(8, 8)] * 2,
        [("mm", 0, 3 * 256), ("sin", 1, 2 * 256)],
    ),
    "a small value is computed again for each of its many readers": (
        lambda x, gate: x * torch.sigmoid(gate),
        [(10, 8), (8,)],
        [("sigmoid", 0, 0), ("mul", 1, 2 * 320 + 32)],
    ),
    "a value of two operands is stored where a product reads it anyway": (
        lambda x, y, w: (both := x + y) @ w + both,
        [(8, 8)] * 3,
        [("add", 0, 3 * 256), ("mm", 1, 2 * 256), ("add", 1, 2 * 256)],
    ),
    "products write the pieces of a concatenation where they end up, and inputs are copied": (
        lambda x, w: torch.cat([x, torch.relu(x @ w)]),
        [(8, 8)] * 2,
        [("mm", 0, 2 * 256), ("relu", 0, 256), ("cat", 1, 2 * 256)],
    ),
    "what nobody reads is not done": (
        lambda x: (torch.exp(x), torch.sin(x))[1],
        [(10,)],
        [("exp", 0, 0), ("sin", 0, 80)],
    ),
}


@pytest.mark.parametrize(("model", "shapes", "expected"), CHAINS.values(), ids=CHAINS)
def test_by_hand(
    model: Any, shapes: Sequence[tuple[int, ...]], expected: list[tuple[str, int, int]]
) -> None:
    assert chains(model, *shapes) == expected


# -- whole models ----------------------------------------------------------------------------------


def run(name: str) -> tuple[OperatorRecord, ...]:
    source = load_model(name)
    inputs = resolve_inputs(source.module, None, source.default_inputs, name=name, batch=None)
    return capture(source.module, inputs, name=name).records


def by_modules(name: str) -> int:
    """Bytes of a network of convolutions, from its modules alone: each runs once, with a bias.

    Normalisation and activation cost nothing; a residual is read where it is added.
    """
    source = load_model(name)
    model = source.module.eval()
    byte = 0

    def count(module: nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal byte
        if isinstance(module, nn.Conv2d):
            byte += given[0].nbytes + module.weight.nbytes + output.nbytes + F * len(module.weight)
        elif isinstance(module, nn.Linear):
            weights = module.weight.nbytes + module.bias.nbytes
            byte += given[0].nbytes + weights + output.nbytes
        elif isinstance(module, (nn.MaxPool2d, nn.AdaptiveAvgPool2d)):
            byte += given[0].nbytes + output.nbytes
        elif type(module).__name__ == "Bottleneck" or getattr(module, "use_res_connect", False):
            byte += output.nbytes

    for module in model.modules():
        module.register_forward_hook(count)
    model.to("meta")(torch.empty(1, 3, 224, 224, device="meta"))
    return byte


@pytest.mark.parametrize(
    # The latter has no module that pools: it takes the mean on the tiles of nothing.
    ("name", "pooled"),
    [("resnet50", 0), ("mobilenet_v2", F * (1280 * 7 * 7 + 1280))],
)
def test_networks_are_what_their_modules_move(name: str, pooled: int) -> None:
    found = sum(each.traffic_bytes for each in fused_traffic(run(name)))
    assert found == by_modules(name) + pooled


def test_bert_keeps_its_products_and_writes_less_between_them() -> None:
    records = run("hf:bert")
    fused = fused_traffic(records)
    eager = sum(each.work.traffic_bytes for each in records)
    parameters = sum(each.work.parameter_bytes for each in records)
    total = sum(each.traffic_bytes for each in fused)
    assert parameters < total < eager
    for each, kernel in zip(records, fused, strict=True):
        if each.op == "aten.gelu":
            assert records[kernel.chain].op == "aten.addmm"
    # Only products, attention and the normalisations between them are kernels: nothing else is.
    kernels = {records[each.chain].type for each in fused} - {"free"}
    assert "normalization" in kernels
    chained = [n for n, each in enumerate(fused) if each.chain != n]
    assert sum(records[n].type == "pointwise" for n in chained) >= 24


# -- random operators ------------------------------------------------------------------------------

OPERATORS = {
    "aten.relu": "pointwise",
    "aten.mm": "matrix product",
    "aten._softmax": "softmax",
    "aten.sum": "reduction",
    "aten.cat": "data movement",
    "aten.max_pool2d": "pooling",
}


@st.composite
def programs(draw: st.DrawFn, *, parts: bool = True, in_place: bool = True) -> list[OperatorRecord]:
    """Operators over parameters and activations: in place, parts of tensors, several readers."""
    sizes: dict[int, int] = {0: 8, 1: 8, 2: 2}
    alive = set(sizes)
    records: list[OperatorRecord] = []

    def operand(number: int, *, whole: bool = False) -> TensorSpec:
        size = sizes[number]
        part = parts and not whole and draw(st.integers(0, 9)) == 0
        role = Role.PARAMETER if number == 0 else Role.INPUT if number < 3 else Role.ACTIVATION
        start = draw(st.integers(0, size - 1)) if part else 0
        return tensor(number, size - start, role=role, of="int8", offset_bytes=start)

    for index in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from([*["aten.relu"] * 4, *OPERATORS]))
        known = st.sampled_from(sorted(alive))
        inputs = [operand(n) for n in draw(st.lists(known, min_size=1, max_size=3, unique=True))]
        if op == "aten.relu" and in_place and draw(st.integers(0, 4)) == 0:
            outputs = [inputs[0]]
        else:
            number = len(sizes)
            sizes[number] = 2 if op == "aten.sum" else 8 if op != "aten.cat" else 12
            alive.add(number)
            outputs = [operand(number, whole=True)]
        droppable = sorted(n for n in alive if n > 2)
        freed = (
            draw(st.lists(st.sampled_from(droppable), max_size=2, unique=True)) if droppable else []
        )
        alive -= set(freed)
        made = record(inputs, outputs, freed=freed, index=index, op=op)
        phase = "backward" if index >= 9 else "forward"
        dim = {"dim": -1} if op in ("aten._softmax", "aten.sum") else {}
        records.append(replace(made, type=OPERATORS[op], phase=phase, attributes=dim))
    return records


def needed(records: Sequence[OperatorRecord], fused: Sequence[FusedOperator]) -> int:
    """What kernels must move, byte by byte, if each reads and writes what others need just once.

    Nothing is computed twice there, or in its place.
    """
    version: dict[tuple[int, int], int] = {}  # byte of a storage -> who wrote it last
    crossing: set[tuple[str, int, tuple[int, int], int]] = set()
    kernel = [each.chain for each in fused]
    for now, each in enumerate(records):
        for spec in each.inputs:
            for at in range(spec.offset_bytes, spec.offset_bytes + spec.byte):
                writer = version.get((spec.storage, at), -1)
                if writer == -1 or kernel[writer] != kernel[now]:
                    crossing.add(("read", kernel[now], (spec.storage, at), writer))
                    if writer >= 0:
                        crossing.add(("write", kernel[writer], (spec.storage, at), writer))
        for spec in each.outputs:
            for at in range(spec.offset_bytes, spec.offset_bytes + spec.byte):
                version[spec.storage, at] = now
    dropped = {number for each in records for number in each.freed}
    for (storage, at), writer in version.items():
        if storage not in dropped:
            crossing.add(("write", kernel[writer], (storage, at), writer))
    return len(crossing)


@given(programs())
@settings(max_examples=150)
def test_no_operator_moves_more_than_alone(records: list[OperatorRecord]) -> None:
    for each, one in zip(records, fused_traffic(records), strict=True):
        assert 0 <= one.traffic_bytes <= each.work.traffic_bytes
        assert one.traffic_bytes <= sum(spec.byte for spec in (*one.reads, *one.writes))


@given(programs(parts=False, in_place=False))
@settings(max_examples=300)
def test_kernels_can_do_with_what_they_move(records: list[OperatorRecord]) -> None:
    """Each kernel in its turn, from what it reads: its own operators, and others' done again."""
    fused = fused_traffic(records)
    made = {spec.storage for each in records for spec in each.outputs}
    memory = {spec.storage for each in records for spec in each.inputs} - made
    for each, one in zip(records, fused, strict=True):
        if one.is_folded:
            memory |= {spec.storage for spec in each.outputs}
    again = [each for each in records if each.op in ("aten.relu", "aten.cat", "aten.max_pool2d")]
    for members, kernel in fused_records(records, fused):
        read = {spec.storage for spec in kernel.inputs}
        assert read <= memory
        done = [records[n] for n in members if fused[n].is_executed]
        # The pieces of a concatenation that are in their places are not read.
        pieces = {spec.storage for each in done if each.op == "aten.cat" for spec in each.inputs}
        known = read | (pieces & memory)
        while True:
            found = {
                spec.storage
                for each in (*done, *again)
                if {spec.storage for spec in each.inputs} <= known
                for spec in each.outputs
            }
            if found <= known:
                break
            known |= found
        assert all({spec.storage for spec in each.inputs} <= known for each in done)
        written = {spec.storage for spec in kernel.outputs}
        assert written <= known
        memory |= written | {
            spec.storage for each in done if each.op == "aten.cat" for spec in each.outputs
        }
    dropped = {number for each in records for number in each.freed}
    assert made - dropped <= memory


@given(programs(parts=False))
@settings(max_examples=150)
def test_computing_again_never_moves_more(records: list[OperatorRecord]) -> None:
    """An epilogue reads again what its product read; libraries write what is unread."""
    fused = fused_traffic(records)
    products = [each for each in records if each.op == "aten.mm"]
    again = sum(spec.byte for each in products for spec in each.inputs)
    unread = sum(spec.byte for each in products for spec in each.outputs)
    assert sum(each.traffic_bytes for each in fused) <= needed(records, fused) + again + unread


@given(programs())
@settings(max_examples=150)
def test_kernels_can_run_one_after_the_other(records: list[OperatorRecord]) -> None:
    """No kernel needs, by way of another, what it makes itself; none has two products."""
    check_kernels(records, fused_traffic(records))


@pytest.mark.parametrize("through_another", [False, True])
def test_a_kernel_that_ends_later_can_feed_by_its_first_operators(through_another: bool) -> None:
    """Two readers of one operand stay apart where a third kernel needs one and feeds the other."""
    small, big, wide = tensor(0, 2, role=Role.INPUT), tensor(1, 8, role=Role.INPUT), tensor(9, 16)
    first, last = tensor(2, 2), tensor(3, 2)
    fed, feeding = tensor(4, 8), tensor(5, 8)
    steps = [
        ([small], first),
        ([big, first], fed),
        ([big], feeding),
        *([([feeding], wide)] if through_another else []),
        ([first, wide if through_another else feeding], last),
    ]
    records = [
        record(inputs, [output], index=n, op="aten.relu")
        for n, (inputs, output) in enumerate(steps)
    ]
    fused = fused_traffic(records)
    assert fused[-1].chain == fused[0].chain
    assert fused[1].chain != fused[2].chain
    check_kernels(records, fused)
    fused_records(records, fused)


def check_kernels(records: Sequence[OperatorRecord], fused: Sequence[FusedOperator]) -> None:
    order: dict[int, set[int]] = {each.chain: set() for each in fused}
    version: dict[tuple[int, int], int] = {}
    for now, each in enumerate(records):
        for spec in each.inputs:
            for at in range(spec.offset_bytes, spec.offset_bytes + spec.byte):
                writer = version.get((spec.storage, at))
                if writer is not None and fused[writer].chain != fused[now].chain:
                    order[fused[now].chain].add(fused[writer].chain)
        for spec in each.outputs:
            for at in range(spec.offset_bytes, spec.offset_bytes + spec.byte):
                version[spec.storage, at] = now
    TopologicalSorter(order).prepare()
    for chain in order:
        members = [each for each, one in zip(records, fused, strict=True) if one.chain == chain]
        assert sum(each.op == "aten.mm" for each in members) <= 1
        assert len({each.phase for each in members}) == 1
        assert records[chain] is members[0]
        if any(each.op == "aten.mm" for each in members):
            assert {each.op for each in members} <= {"aten.mm", "aten.relu"}


@pytest.mark.parametrize("length", [1, 2000])
def test_long_chains_stay_quick(length: int) -> None:
    values = [tensor(0, 8, role=Role.INPUT), *(tensor(n, 8) for n in range(1, length + 1))]
    records = [
        record([x], [y], freed=[n] if n else [], index=n, op="aten.relu")
        for n, (x, y) in enumerate(pairwise(values))
    ]
    fused = fused_traffic(records)
    assert {each.chain for each in fused} == {0}
    assert sum(each.traffic_bytes for each in fused) == 64
