"""Fused traffic against the kernels that Inductor makes of the same model.

    python benchmarks/fused_vs_inductor.py > benchmarks/fused_vs_inductor.md

Inductor's scheduler says of every kernel which bytes it reads and writes, best case: that is an
independent count of what chains move. Nothing is timed or compiled to machine code; the schedule is
taken from it when it is done. By default it calls a library for products and leaves apart what
follows them, so the column to compare with has products apart, too. With freezing, convolutions are
those of oneDNN, with folded weights and epilogues: to be compared with the fused column. (Frozen
linear layers are MKL's, whose packed weights have no size that means anything.)
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._inductor.graph import GraphLowering

from roofline.workload.capture.passes import capture
from roofline.workload.fusion import FusedOperator, fused_traffic
from roofline.workload.fusion_kinds import Kind, kind_of
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function
from roofline.workload.operators import OperatorRecord, State


class Scheduled(BaseException):
    """Ends a compilation when the kernels are known."""

    def __init__(self, byte: int, kernels: int) -> None:
        super().__init__()
        self.byte = byte
        self.kernels = kernels


def _kernel_bytes(node: Any, constants: dict[str, torch.Tensor]) -> int:
    """What a kernel moves; Inductor leaves out frozen weights, which are read all the same."""
    moved: dict[str, int] = node.get_read_write_buffer_accesses(True, True)
    frozen = {each.name for each in node.read_writes.reads} & constants.keys() - moved.keys()
    return sum(moved.values()) + sum(constants[name].nbytes for name in frozen)


def _stop(graph: GraphLowering) -> Any:
    graph._update_scheduler()
    byte = [_kernel_bytes(node, graph.constants) for node in graph.scheduler.nodes]
    raise Scheduled(sum(byte), sum(each > 0 for each in byte))


def scheduled(
    model: Callable[..., Any], inputs: list[torch.Tensor], *, freezing: bool
) -> Scheduled:
    """Bytes and kernels of Inductor's schedule."""
    torch._dynamo.reset()
    if freezing:
        # oneDNN computes with the channels last; what comes otherwise would be copied first.
        inputs = [
            each.to(memory_format=torch.channels_last) if each.dim() == 4 else each
            for each in inputs
        ]
    settings = {"freezing": freezing, "layout_optimization": False, "fx_graph_cache": False}
    with (
        torch.no_grad(),
        torch._inductor.config.patch(settings),
        mock.patch.object(GraphLowering, "_compile_to_module", _stop),
        _quiet(),
    ):
        try:
            torch.compile(model)(*inputs)
        except Scheduled as found:
            return found
    raise SystemExit("torch.compile made no kernels")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


class Residual(nn.Module):
    """Two convolutions beside their input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.two, self.last = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.one(x)))
        return torch.relu(self.last(self.two(y)) + x)


class Gated(nn.Module):
    """Squeeze and excite."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Conv2d(16, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.silu(x)
        return y * torch.sigmoid(self.scale(y.mean((2, 3), keepdim=True)))


class Layer(nn.Module):
    """A transformer's layer in its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(64, 64) for _ in range(3))
        self.out, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)
        self.wide, self.narrow, self.last = nn.Linear(64, 256), nn.Linear(256, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        shares = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(64), dim=-1)
        x = self.norm(x + self.out(shares @ v))
        return self.last(x + self.narrow(torch.nn.functional.gelu(self.wide(x))))


class Embedded(nn.Module):
    """Words and places, added and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(64, 32), nn.Embedding(64, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.words(x) + self.places(x))


def _root_mean_square(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _two_readers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.exp(x)
    return torch.sin(y) @ y, torch.cos(y)


def _halves(x: torch.Tensor) -> torch.Tensor:
    a, b = torch.exp(x).chunk(2, dim=-1)
    return a * torch.sigmoid(b)


def _pieces(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.exp(x), torch.sin(y)], dim=-1) * 2


def _in_place(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x).relu_().mul_(2).add_(x)


def _pooled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.nn.functional.max_pool2d(torch.sigmoid(x), 2))


def _variance(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return (y - y.mean(0)) / y.std(0)


@dataclass(frozen=True)
class Case:
    """A model, what it is called with, and why the counts differ, where they do."""

    name: str
    model: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    why: str = ""
    is_frozen: bool = False
    is_whole_numbers: bool = False


def cases() -> list[Case]:
    image, rows = (1, 16, 32, 32), (64, 128)
    norm = nn.Sequential(nn.Conv2d(16, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    late = nn.Sequential(nn.Conv2d(16, 16, 3, bias=False), nn.ReLU(), nn.BatchNorm2d(16))
    wide = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    return [
        Case("conv, bn, relu", norm, (image,), is_frozen=True),
        Case(
            "conv, relu, bn",
            late,
            (image,),
            "frozen: oneDNN has no epilogue that scales channels after relu, others have one",
            is_frozen=True,
        ),
        Case("residual block", Residual(), (image,), is_frozen=True),
        Case(
            "squeeze and excite",
            Gated(),
            (image,),
            "Inductor: silu and the mean of its result are two kernels on a CPU",
            is_frozen=True,
        ),
        Case("linear, gelu, linear", wide, ((32, 64),)),
        Case("transformer layer", Layer(), ((2, 32, 64),)),
        Case("embeddings, layer norm", Embedded(), ((2, 32),), is_whole_numbers=True),
        Case("layer norm, gelu", nn.Sequential(nn.LayerNorm(128), nn.GELU()), (rows,)),
        Case("RMS norm in parts", _root_mean_square, (rows,)),
        Case("softmax of a sum", lambda x, y: torch.softmax(x + y, -1) * 2, (rows, rows)),
        Case("in place", _in_place, (rows,)),
        Case("two readers", _two_readers, ((64, 64),)),
        Case(
            "mean and deviation of columns",
            _variance,
            (rows,),
        ),
        Case(
            "pooling",
            _pooled,
            (image,),
        ),
        Case(
            "halves",
            _halves,
            (rows,),
        ),
        Case(
            "concatenation",
            _pieces,
            (rows, rows),
            "Inductor multiplies in a kernel behind the concatenation",
        ),
    ]


def _apart(record: OperatorRecord) -> OperatorRecord:
    """The record, without an epilogue if it is a product."""
    if record.state is State.COUNTED and kind_of(record) is Kind.PRODUCT:
        return replace(record, type="product without epilogue")
    return record


def _kernels_of(fused: Sequence[FusedOperator]) -> int:
    return len({each.chain for each in fused if each.traffic_bytes})


def main() -> None:
    print("# Fused traffic against Inductor's kernels\n")
    print(
        f"torch {torch.__version__}, float32, inference on a CPU; bytes, and kernels in brackets."
    )
    print("Rerun: `python benchmarks/fused_vs_inductor.py > benchmarks/fused_vs_inductor.md`\n")
    print(
        "| model | eager | fused | products apart | Inductor | Inductor, frozen | why they differ |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    torch.manual_seed(0)
    for case in cases():
        module = case.model if isinstance(case.model, nn.Module) else Function(case.model)
        module.eval()
        inputs = [
            torch.randint(0, 64, shape) if case.is_whole_numbers else torch.randn(shape)
            for shape in case.shapes
        ]
        records = capture(module, Inputs(*inputs), name=case.name).records
        cells = [f"{sum(each.work.traffic_bytes for each in records):,}"]
        for taken in (records, tuple(map(_apart, records))):
            fused = fused_traffic(taken)
            cells.append(f"{sum(each.traffic_bytes for each in fused):,} ({_kernels_of(fused)})")
        found = scheduled(case.model, inputs, freezing=False)
        cells.append(f"{found.byte:,} ({found.kernels})")
        frozen = scheduled(case.model, inputs, freezing=True) if case.is_frozen else None
        cells.append(f"{frozen.byte:,} ({frozen.kernels})" if frozen else "")
        explained = cells[2] == cells[3] and (frozen is None or cells[1] == cells[4])
        if explained == bool(case.why):
            raise SystemExit(f"{case.name}: the counts changed; say why they differ: {cells}")
        print(f"| {case.name} | {' | '.join(cells)} | {case.why} |")


if __name__ == "__main__":
    main()
