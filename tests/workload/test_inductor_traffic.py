"""Bytes of compiled kernels, by hand, where the scheduler's own figure is more than is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from roofline.run import Run
from roofline.workload.capture.inductor import compiled_pass
from roofline.workload.compiled_kernels import CompiledPass
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function

F, LONG = 4, 8
"""Bytes of a float32 and of an index."""

ROWS, WIDTH = 64, 128
X = ROWS * WIDTH * F


def compiled(model: nn.Module | Callable[..., Any], *inputs: torch.Tensor) -> CompiledPass:
    module = model if isinstance(model, nn.Module) else Function(model)
    found = compiled_pass(module, Inputs(*inputs))
    assert not found.why_not
    return found


def moved(found: CompiledPass) -> list[tuple[str, int, int | None, int | None]]:
    return [
        (each.kind, each.loops, each.read_bytes, each.written_bytes)
        for graph in found.graphs
        for each in graph.kernels
    ]


def x() -> torch.Tensor:
    return torch.empty(ROWS, WIDTH)


def indices(count: int, most: int) -> torch.Tensor:
    return torch.arange(count) % most


# -- gathers ---------------------------------------------------------------------------------------


class Normalized(nn.Module):
    """A gather in one loop nest with a reduction over what it fetches."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(self.table(ids), (WIDTH,))


def test_a_fused_gather_is_charged_what_it_fetches() -> None:
    fetched = 16 * WIDTH * F
    found = compiled(Normalized(1000), indices(16, 1000))
    assert moved(found) == [("generated", 1, 16 * LONG + fetched, fetched)]


def test_and_no_more_than_there_is() -> None:
    """Of 16 rows at most 4 are different."""
    found = compiled(Normalized(4), indices(16, 4))
    assert moved(found) == [("generated", 1, 16 * LONG + 4 * WIDTH * F, 16 * WIDTH * F)]


def test_two_gathers_from_one_table_may_fetch_different_rows() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1000, WIDTH)

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return self.table(one) + self.table(other)

    found = compiled(Two(), indices(16, 1000), indices(16, 7))
    row = 16 * WIDTH * F
    assert moved(found) == [("generated", 1, 2 * 16 * LONG + 2 * row, row)]


# -- parts of buffers ------------------------------------------------------------------------------


def test_a_part_that_two_nodes_of_a_loop_read_is_read_once() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = x[:, : WIDTH // 2]
        return torch.exp(half), half.sum(1)

    found = compiled(model, x())
    assert moved(found) == [("generated", 1, X // 2, X // 2 + ROWS * F)]


def test_a_library_reads_the_part_that_it_is_given() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH // 2, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x[:, : WIDTH // 2])

    weights = (WIDTH // 2 * 32 + 32) * F
    assert moved(compiled(Half(), x())) == [("library", 1, X // 2 + weights, ROWS * 32 * F)]


def test_a_value_for_all_rows_is_read_once() -> None:
    found = compiled(lambda x, row: x + row[:WIDTH], x(), torch.empty(2 * WIDTH))
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
    assert moved(compiled(Kept(), x())) == [("generated", 1, X, 2 * X)]


class Summed(Kept):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.add_(x)
        return x + 1


def test_what_is_added_to_is_read_and_written() -> None:
    assert moved(compiled(Summed(), x())) == [("generated", 1, 2 * X, 2 * X)]


def test_the_buffers_of_a_batch_norm_are_read_and_written_in_training() -> None:
    channels, pixels = 8, 2 * 6 * 6
    found = compiled_pass(
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
    found = compiled(model, torch.empty(32, WIDTH), indices(32, 16), torch.empty(1000, WIDTH))
    table = 1000 * WIDTH * F
    # A copy of the table first.
    assert moved(found) == [("generated", 2, table + 32 * LONG + 2 * rows, table + rows)]
