"""What Inductor makes of small models: bytes worked out by hand, and the code it really writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.capture.inductor import capture_compiled
from roofline.workload.capture.inductor_schedule import module_path
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.compiled_kernels import CompiledPass
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function

F, LONG = 4, 8
"""Bytes of a float32 and of an index."""

ROWS, WIDTH = 64, 128
SHAPE = (ROWS, WIDTH)
X = ROWS * WIDTH * F


def compiled(
    model: nn.Module | Callable[..., Any], *given: torch.Tensor | tuple[int, ...]
) -> CompiledPass:
    module = model if isinstance(model, nn.Module) else Function(model)
    tensors = [torch.empty(each) if isinstance(each, tuple) else each for each in given]
    found = capture_compiled(module, Inputs(*tensors))
    assert not found.why_not
    return found


def moved(found: CompiledPass) -> list[tuple[str, int, int | None, int | None]]:
    return [
        (each.kind, each.loops, each.read_bytes, each.written_bytes)
        for graph in found.graphs
        for each in graph.kernels
    ]


def indices(count: int, most: int) -> torch.Tensor:
    return torch.arange(count) % most


# -- by hand ---------------------------------------------------------------------------------------


def test_a_chain_is_one_function_that_reads_and_writes_once() -> None:
    found = compiled(lambda x: torch.sin(torch.exp(x)) * 2, SHAPE)
    assert moved(found) == [("generated", 1, X, X)]
    (graph,) = found.graphs
    assert (graph.buffers, graph.reused, graph.allocated_bytes, graph.peak_bytes) == (1, 0, X, X)
    assert graph.kernels[0].operators == ("aten.exp", "aten.sin", "aten.mul")


def test_a_product_is_a_library_call_between_two_functions() -> None:
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 32))
    found = compiled(model, SHAPE)
    hidden = 64 * 256 * F
    first = X + (128 * 256 + 256) * F, hidden
    second = hidden + (256 * 32 + 32) * F, 64 * 32 * F
    assert moved(found) == [
        ("library", 1, *first),
        ("generated", 1, hidden, hidden),
        ("library", 1, *second),
    ]
    assert [each.modules for each in found.graphs[0].kernels] == [("0",), ("1",), ("2",)]


def test_a_buffer_that_is_no_longer_needed_is_used_again() -> None:
    one, two = (nn.Linear(128, 128, bias=False) for _ in range(2))
    found = compiled(lambda x: torch.exp(two(torch.sin(one(torch.cos(x))))), SHAPE)
    (graph,) = found.graphs
    # sin and exp work in the memory of the products before them.
    assert (graph.buffers, graph.reused) == (5, 2)
    assert (graph.allocated_bytes, graph.peak_bytes) == (3 * X, 2 * X)


def test_a_concatenation_is_written_where_it_ends_up() -> None:
    """Two loop nests of one function, and nothing is copied."""
    found = compiled(lambda x, y: torch.cat([torch.exp(x), torch.sin(y)], -1), SHAPE, SHAPE)
    assert found.launches() == 1
    assert moved(found) == [("generated", 2, 2 * X, 2 * X)]


# -- gathers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1000, 4])
def test_a_fused_gather_is_charged_what_it_fetches(rows: int) -> None:
    """In one loop nest with a reduction; 16 rows, of which at most `rows` are different."""
    table = nn.Embedding(rows, WIDTH)
    found = compiled(lambda ids: nn.functional.layer_norm(table(ids), (WIDTH,)), indices(16, rows))
    read, written = (each * WIDTH * F for each in (min(16, rows), 16))
    assert moved(found) == [("generated", 1, 16 * LONG + read, written)]


def test_a_gather_reads_no_more_than_it_touches() -> None:
    (row,) = moved(compiled(nn.Embedding(1000, 32), indices(16, 1000)))
    assert row == ("generated", 1, 16 * LONG + 16 * 32 * F, 16 * 32 * F)


def test_two_gathers_from_one_table_may_fetch_different_rows() -> None:
    table = nn.Embedding(1000, WIDTH)
    found = compiled(
        lambda one, other: table(one) + table(other), indices(16, 1000), indices(16, 7)
    )
    row = 16 * WIDTH * F
    assert moved(found) == [("generated", 1, 2 * 16 * LONG + 2 * row, row)]


# -- parts of buffers ------------------------------------------------------------------------------


def test_a_part_that_two_nodes_of_a_loop_read_is_read_once() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = x[:, : WIDTH // 2]
        return torch.exp(half), half.sum(1)

    found = compiled(model, SHAPE)
    assert moved(found) == [("generated", 1, X // 2, X // 2 + ROWS * F)]


def test_a_library_reads_the_part_that_it_is_given() -> None:
    layer = nn.Linear(WIDTH // 2, 32)
    found = compiled(lambda x: layer(x[:, : WIDTH // 2]), SHAPE)
    weights = (WIDTH // 2 * 32 + 32) * F
    assert moved(found) == [("library", 1, X // 2 + weights, ROWS * 32 * F)]


def test_a_value_for_all_rows_is_read_once() -> None:
    found = compiled(lambda x, row: x + row[:WIDTH], SHAPE, (2 * WIDTH,))
    assert moved(found) == [("generated", 1, X + WIDTH * F, X)]


# -- what is changed in place ----------------------------------------------------------------------


class Kept(nn.Module):
    """Overwrites a buffer of its own."""

    kept: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(ROWS, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.copy_(x * 2)
        return x + 1


def test_what_is_overwritten_is_not_read() -> None:
    assert moved(compiled(Kept(), SHAPE)) == [("generated", 1, X, 2 * X)]


class Summed(Kept):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.add_(x)
        return x + 1


def test_what_is_added_to_is_read_and_written() -> None:
    assert moved(compiled(Summed(), SHAPE)) == [("generated", 1, 2 * X, 2 * X)]


def test_the_buffers_of_a_batch_norm_are_read_and_written_in_training() -> None:
    channels, pixels = 8, 2 * 6 * 6
    found = capture_compiled(
        nn.BatchNorm2d(channels), Inputs(torch.empty(2, channels, 6, 6)), run=Run(train=True)
    )
    image, row = channels * pixels * F, channels * F
    (forward,) = [each for each in found.graphs if each.phase == "forward"]
    (kernel,) = forward.kernels
    # The image for its mean and variance, and again to be normalized with those, weight and bias;
    # both running values, and how many batches there were.
    assert kernel.read_bytes == 2 * image + 4 * row + 2 * row + LONG
    # The result, the running values and the number anew; mean, variance and its root.
    assert kernel.written_bytes == image + 2 * row + LONG + 3 * row


def test_rows_that_are_added_to_are_read_too() -> None:
    """And not the whole table: 32 rows into 16 of 1000, by threads that may meet."""

    def model(x: torch.Tensor, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table.index_add(0, ids, x)

    rows = 32 * WIDTH * F
    found = compiled(model, (32, WIDTH), indices(32, 16), (1000, WIDTH))
    table = 1000 * WIDTH * F
    # A copy of the table first.
    assert moved(found) == [("generated", 2, table + 32 * LONG + 2 * rows, table + rows)]


# -- what is really written ------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.two = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.two(torch.relu(self.norm(self.one(x)))) + x).softmax(1)


class Written(BaseException):
    """Ends a compilation when its code is written."""


def written_code(model: nn.Module, x: torch.Tensor) -> str:
    """The code that torch.compile with Inductor, as users call it, writes before it is built."""
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import VecISA
    from torch._inductor.graph import GraphLowering

    codes: list[str] = []

    def save(code: str) -> None:
        codes.append(code)
        raise Written

    torch._dynamo.reset()
    with (
        torch.no_grad(),
        config.patch({"fx_graph_cache": False, "compile_threads": 1, "cpp.vec_isa_ok": True}),
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(save)),
        # Building a few lines to see which vectors there are takes ten seconds.
        mock.patch.object(VecISA, "check_build", lambda self, code: False),
        pytest.raises(Written),
    ):
        torch.compile(model)(x)
    torch._dynamo.reset()
    (code,) = codes
    return code


def test_launches_and_buffers_are_those_of_the_code_that_is_written() -> None:
    model, x = Residual().eval(), torch.randn(1, 16, 32, 32)
    (graph,) = compiled(model, tuple(x.shape)).graphs
    code = written_code(model, x)
    body = code[code.index("def call(") :]
    generated = re.findall(r"^\s+(cpp_fused\w*)\(", body, re.MULTILINE)
    assert [each.name for each in graph.kernels if each.kind == "generated"] == generated
    library = re.findall(r"(extern_kernels\.\w+)\(", body)
    assert [each.name for each in graph.kernels if each.kind == "library"] == library
    # What a library does not write into a buffer that is there, it allocates itself.
    made = re.findall(r"= extern_kernels\.\w+\(", body)
    allocated = re.findall(r"= empty_strided_cpu\(", body)
    reused = re.findall(r"# reuse$", body, re.MULTILINE)
    assert graph.reused == len(reused)
    assert graph.buffers == len(made) + len(allocated) + len(reused)


# -- training, several graphs ----------------------------------------------------------------------


def test_a_step_of_training_has_graphs_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(128, 64, bias=False), nn.ReLU(), nn.Linear(64, 10, bias=False))
    found = capture_compiled(
        model,
        Inputs(torch.empty(SHAPE)),
        run=Run(train=True, optimizer="sgd"),
        training=TrainingConfig(optimizer=optimizer_factory("sgd")),
    )
    assert {each.phase for each in found.graphs} == {"forward", "backward"}
    # Backward: two products for the second layer, one for the first, whose input has no gradient.
    assert found.launches_of("library", "forward") == 2
    assert found.launches_of("library", "backward") == 3
    assert found.called_outside("forward") == 0
    assert found.called_outside("loss") > 0
    assert found.called_outside("optimizer") > 0
    assert all(each.grad is None for each in model.parameters())


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        torch._dynamo.graph_break()
        return torch.sin(y) + 1


def test_each_piece_between_breaks_is_a_graph() -> None:
    found = compiled(Broken(), SHAPE)
    assert moved(found) == [("generated", 1, X, X)] * 2
    assert len(found.breaks) == 1 and "graph_break" in found.breaks[0]


class Nonzero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(torch.exp(x)).sum(0)


def test_what_runs_between_graphs_is_told() -> None:
    found = compiled(Nonzero(), (8,))
    assert found.called_outside("forward") >= 1
    assert "aten.nonzero" in {each.op for each in found.outside}


# -- what is not available -------------------------------------------------------------------------


def test_what_inductor_cannot_do_is_said_and_nothing_is_guessed() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_compiling():
                raise RuntimeError("not under a compiler")
            return x

    found = capture_compiled(Raises(), Inputs(torch.empty(4)))
    assert not found.graphs
    assert found.why_not


def test_kernels_for_a_gpu_are_not_known_before_they_are_timed() -> None:
    found = capture_compiled(nn.ReLU(), Inputs(torch.empty(4)), run=Run(device="cuda"))
    assert "times CUDA kernels on the device" in found.why_not


def test_a_compiled_model_is_refused() -> None:
    model: Any = torch.compile(nn.ReLU())
    with pytest.raises(ModelError, match="compiled already"):
        capture_compiled(model, Inputs(torch.empty(4)))


def test_the_model_is_left_as_it_was() -> None:
    linear = nn.Linear(8, 8)
    model = nn.Sequential(linear, nn.Dropout(0.5))
    weight = linear.weight
    before = weight.detach().clone()
    compiled(model, (2, 8))
    assert linear.weight is weight and torch.equal(weight, before)
    assert model.training and not hasattr(model, "_orig_mod")
    assert not torch._C._len_torch_dispatch_stack()


def test_weights_need_no_memory() -> None:
    with torch.device("meta"):
        model = nn.Linear(200_000, 200_000, bias=False)
    (row,) = moved(compiled(model, (1, 200_000)))
    assert row[:2] == ("library", 1)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("L['self']", ""),
        ("L['fn'].0", "0"),
        ("L['self'].layer1[0].conv1", "layer1.0.conv1"),
        ("L['self']._modules['layer1']._modules['0']", "layer1.0"),
        ("L['self']._orig_mod.fc", "fc"),
    ],
)
def test_paths_of_modules(said: str, path: str) -> None:
    assert module_path(said) == path


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0].relu()


def test_recurrent_layers_are_left_alone_and_it_is_said() -> None:
    found = capture_compiled(Recurrent(), Inputs(torch.empty(3, 2, 8)))
    assert "ran the whole model as eager torch" in found.why_not
    assert "allow_rnn" in found.why_not
