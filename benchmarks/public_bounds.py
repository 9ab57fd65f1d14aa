"""Does any measurement that others published beat our minimum times?

    python benchmarks/public_bounds.py [FOLDER] [--models N] [--minutes M] > public_bounds.md

FOLDER has public measurements as CSV files, packed or not, `../shared/measurements` unless given:
products of matrices (gpu-gemm-bf16-fp8.csv.gz), single operators (gpu-operators-fp32.csv.gz),
convolutions (gpu-convolutions-fp32.csv.gz), the nodes of models (gpu-model-nodes-fp32.csv.gz),
whole models of timm (timm/benchmark-*.csv) and tokens per second of language models (llm.csv). Any
device may be in them; other columns are ignored. A file that is missing or not readable is one line
of the report, and a row that is not compared has its reason there.

Each row is held against the minimum time on the machine file that its device's name stands for: the
operator is counted by the formula that counts it in every analysis, its operands are where two
passes of it leave them, and no ceiling is fitted to any row. What a row leaves open stands at its
least: an operand that may be an expanded view repeats one element, an embedding reads one row.
Eager runs of models are held against the eager minimum, those of torch.compile (timm's files whose
names end in -dynamo) against the fused one, models with recurrent layers against the model minimum
(GPUs run all steps in one kernel; the captured pass has the operators of each).

timm's models are taken in an order of which every beginning has them from all families evenly,
until N are done (0: all) or M minutes are over: a family has the names that begin with the same
letters (and `tf_`). Where the parameters of a row are not those of the model, it is another of that
name. Each model is built once and captured at every batch, size and type that a row has, in torch's
operators for its kind of device, once for all machines; nothing is scaled from another batch. That
takes about half a second of one core.

A measured time below its minimum is a violation. It is explained only by a class that the row
itself proves:

* clock above paper: a product of matrices, every multiply-add of which is done, at a rate up to a
  tenth above the peak at boost clock: an H100 runs 8 % above the clock of its tensor cores' figure.
* wrong unit: impossible by more than ten times, and possible, at 1 % of the peak or more, in a unit
  a thousand or a million times larger.

Exits with 1 where a violation is not explained, or not model ≤ fused ≤ eager.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import itertools
import json
import math
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas
import torch

from roofline.core.dtypes import DType, dtype
from roofline.errors import RooflineError
from roofline.machine.catalog import load_hardware
from roofline.minimum import minimum_times
from roofline.pipeline.language import analyze_language
from roofline.placement import Bound, Roof
from roofline.run import Device, Run
from roofline.workload import formulas
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig
from roofline.workload.fusion import fused_traffic
from roofline.workload.inputs import InputRequest, Inputs, resolve_inputs
from roofline.workload.models.sources import Function, Source, load_model
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.rewritings import model_work
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

FOLDER = Path(__file__).parents[1].parent / "shared" / "measurements"
MINUTES = 60.0
"""After which no further model of timm is taken."""

ABOVE_PAPER = 1.1
"""How far a rate may lie above the peak at boost clock for a clock above paper to explain it."""

FEWER_THAN = ((1e9, "below 10⁹"), (1e11, "10⁹ to 10¹¹"), (math.inf, "from 10¹¹"))
"""Classes of size, by FLOP; of what is elementwise by bytes."""

Cell = Mapping[Any, Any]


# -- records ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operand:
    """What an operator is given, by the name that its schema has for it."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    role: Role = Role.INPUT


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Operators with the reuse of their operands, ready for any machine.

    ``has_own_kernels``: machines run some of them as one kernel that is none of ours.
    ``minima`` keeps what `minimum_of` found.
    """

    records: tuple[OperatorRecord, ...]
    reuses: tuple[tuple[Reuse, ...], ...]
    has_own_kernels: bool = False
    minima: dict[tuple[int, bool], Minimum | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, records: Sequence[OperatorRecord]) -> Placed:
        """In the steady state: what the pass before left in a cache is still there."""
        return cls(tuple(records), tuple(trace_residency(records).steady))

    @property
    def flop(self) -> int | None:
        """FLOP of all of them; None: unknown of one."""
        return sum((each.work for each in self.records), start=Work()).flop

    @property
    def byte(self) -> int:
        """Bytes of all operands."""
        return sum(each.work.traffic_bytes for each in self.records)


def record_of(op: str, given: Sequence[Operand], out: Operand, **attributes: Any) -> OperatorRecord:
    """The record of a call, counted by the operator's formula as a capture of it would be."""
    formula = formulas.find(op)
    if formula is None:
        raise ValueError(f"{op} has no formula")
    inputs = [_spec(each, place) for place, each in enumerate(given)]
    output = _spec(out, len(given))
    named = {each.name: spec for each, spec in zip(given, inputs, strict=True)}
    count = formula.count({**attributes, "bias": None, **named, "output": output})
    touched = tuple(
        replace(spec, min_elements=least if least < spec.distinct_elements else None)
        for name, spec in named.items()
        for least in [count.min_elements.get(name, spec.distinct_elements)]
    )
    return OperatorRecord(
        index=0,
        op=op,
        type=count.type or formula.type,
        module_path="",
        phase="forward",
        inputs=touched,
        outputs=(output,),
        attributes=attributes,
        state=State.COUNTED,
        work=Work(
            flop=count.flop,
            macs=count.macs,
            min_flop=count.min_flop,
            internal_bytes=count.internal_bytes,
            **traffic_of(touched, (output,)),
        ),
        formula=formula.key,
    )


def _spec(operand: Operand, storage: int) -> TensorSpec:
    return TensorSpec(
        shape=operand.shape,
        dtype=operand.dtype,
        distinct_elements=math.prod(operand.shape),
        storage=storage,
        role=operand.role,
    )


F32, BF16 = dtype("float32"), dtype("bfloat16")
FP8 = dtype("float8_e4m3fn")


@functools.cache
def product(of: str, batch: int, m: int, n: int, k: int) -> Placed:
    """A matrix of m × k with one of k × n, or `batch` of these; narrow floats give bfloat16."""
    if of == "float8_e4m3fn":
        given = [Operand("self", (m, k), FP8), Operand("mat2", (k, n), FP8, Role.PARAMETER)]
        return Placed.of([record_of("aten._scaled_mm", given, _activation((m, n), BF16))])
    kind = dtype(of)
    if batch == 1:
        given = [Operand("self", (m, k), kind), Operand("mat2", (k, n), kind, Role.PARAMETER)]
        return Placed.of([record_of("aten.mm", given, _activation((m, n), kind))])
    given = [Operand("self", (batch, m, k), kind), Operand("mat2", (batch, k, n), kind)]
    return Placed.of([record_of("aten.bmm", given, _activation((batch, m, n), kind))])


def _activation(shape: tuple[int, ...], kind: DType) -> Operand:
    return Operand("output", shape, kind, Role.ACTIVATION)


ELEMENTWISE: Mapping[str, tuple[str, int]] = {
    "add": ("aten.add", 2),
    "mul": ("aten.mul", 2),
    "div": ("aten.div", 2),
    "pow": ("aten.pow", 2),
    "addu": ("aten.add", 1),
    "mulu": ("aten.mul", 1),
    "divu": ("aten.div", 1),
    "powu": ("aten.pow", 1),
    "relu": ("aten.relu", 1),
    "tanh": ("aten.tanh", 1),
    "gelu": ("aten.gelu", 1),
}
"""Operators by the names that the source has, and how many tensors they take."""


@functools.cache
def elementwise(name: str, rows: int, width: int) -> Placed:
    """One of `ELEMENTWISE` on so many elements; with one tensor, the other operand is a number."""
    op, tensors = ELEMENTWISE[name]
    second = "exponent" if op == "aten.pow" else "other"
    given = [Operand(each, (rows, width), F32) for each in ("self", second)[:tensors]]
    number = {second: 2.0} if name.endswith("u") and name != "relu" else {}
    return Placed.of([record_of(op, given, _activation((rows, width), F32), **number)])


@functools.cache
def by_rows(name: str, rows: int, width: int) -> Placed:
    """A softmax, or a layer norm with its weight and bias, over the last dimension."""
    shape, weights = (rows, width), (width,)
    if name == "softmax":
        given = [Operand("self", shape, F32)]
        out = _activation(shape, F32)
        return Placed.of([record_of("aten._softmax", given, out, dim=-1, half_to_float=False)])

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, weights, weight, bias)

    return captured(norm, shape, weights, weights)


@functools.cache
def convolution(
    batch: int, inputs: int, outputs: int, kernel: int, size: int, stride: int, padding: int
) -> Placed:
    """A convolution of square images by a square kernel."""
    side = (size + 2 * padding - kernel) // stride + 1
    given = [
        Operand("input", (batch, inputs, size, size), F32),
        Operand("weight", (outputs, inputs, kernel, kernel), F32, Role.PARAMETER),
    ]
    out = _activation((batch, outputs, side, side), F32)
    record = record_of(
        "aten.convolution",
        given,
        out,
        stride=[stride] * 2,
        padding=[padding] * 2,
        dilation=[1, 1],
        transposed=False,
        output_padding=[0, 0],
        groups=1,
    )
    return Placed.of([record])


def captured(function: Callable[..., Any], *given: Any) -> Placed:
    """What one call of a function of tensors dispatches; they are given as `Inputs` takes them."""
    found = capture(Function(function), Inputs(*given), name="row", run=Run())
    return Placed.of(found.records)


# -- machines --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """What a device's name stands for; ``error`` says why nothing does."""

    roof: Roof | None = None
    error: str = ""


@functools.cache
def machine_of(device: str, *, tf32: bool) -> Machine:
    """The machine file that a device's name resolves to, with or without TF32 for float32."""
    if not device:
        return Machine(error="no device")
    try:
        profile = load_hardware(device)
    except RooflineError as error:
        said = str(error).partition("(see")[0].strip()
        is_unknown = said.startswith("unknown hardware")
        return Machine(error=f"no machine file for {device}" if is_unknown else said)
    if profile.has_single_memory_level:
        return Machine(error=f"machine file '{profile.name}' has no caches: no minimum time")
    return Machine(roof=_roof(profile.name, tf32=tf32))


@functools.cache
def _roof(name: str, *, tf32: bool) -> Roof:
    """One for all names of a machine, so that what was placed under it is found again."""
    profile = load_hardware(name)
    if not tf32:
        kept = tuple(each for each in profile.compute if each.unit != "tensor-core-tf32")
        profile = replace(profile, compute=kept)
    return Roof(profile, profile.threads)


@dataclass(frozen=True, slots=True)
class Minimum:
    """The least times of one row's operators on one machine, in seconds.

    ``is_rate``: the eager one is that of a lone product at the peak of its type. The fused and the
    model minimum are asked for where a row is held against one of them.
    """

    eager_s: float
    fused_s: float = math.nan
    model_s: float = math.nan
    is_rate: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether model ≤ fused ≤ eager."""
        return self.model_s <= self.fused_s <= self.eager_s


def minimum_of(placed: Placed, roof: Roof, *, is_fused: bool) -> Minimum | None:
    """The minimum times, None where a ceiling or a count is unknown.

    Args:
        placed: the operators.
        roof: the machine's.
        is_fused: whether the fused and the model minimum are asked for, too.
    """
    key = (id(roof), is_fused)
    if key not in placed.minima:
        placed.minima[key] = _minimum(placed, roof, is_fused=is_fused)
    return placed.minima[key]


def _minimum(placed: Placed, roof: Roof, *, is_fused: bool) -> Minimum | None:
    found = [
        roof.place(record, reuses)
        for record, reuses in zip(placed.records, placed.reuses, strict=True)
    ]
    if any(each.eager_min_time_s is None or each.bound is Bound.UNKNOWN for each in found):
        return None
    eager_s = sum(each.eager_min_time_s or 0.0 for each in found)
    if not is_fused:
        is_product = len(found) == 1 and found[0].record.type == "matrix product"
        return Minimum(eager_s, is_rate=is_product and found[0].bound is Bound.COMPUTE)
    times = minimum_times(found, fused_traffic(placed.records), model_work(placed.records), roof)
    if times is None:
        return None
    return Minimum(eager_s, times.fused.time_s, times.model.time_s)


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of a source, and what it came to.

    ``reason`` says why it is not compared. ``size`` is FLOP, of what is elementwise bytes.
    ``minimum_s`` is the minimum that applies, ``minima`` are all three, of compiled models.
    """

    source: str
    device: str
    kind: str
    dtype: str
    size: float = 0.0
    measured_s: float = math.nan
    minimum_s: float = math.nan
    is_rate: bool = False
    minima: Minimum | None = None
    reason: str = ""
    row: str = ""

    @property
    def explanation(self) -> str:
        """The class that explains a violation; ``""``: none does, or it is no violation."""
        if self.reason or not self.measured_s < self.minimum_s:
            return ""
        beaten = self.minimum_s / self.measured_s
        if any(0.01 <= beaten / unit <= 1 for unit in (1e3, 1e6)):
            return "wrong unit"
        return "clock above paper" if self.is_rate and beaten <= ABOVE_PAPER else ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row's minimum is of: built where its machine is known, or a reason why not.

    ``is_compiled``: by a compiler, which fuses. ``name`` is that of a whole model.
    """

    kind: str
    dtype: str
    make: Callable[[], Placed] | None = None
    reason: str = ""
    is_compiled: bool = False
    name: str = ""


TYPES = {"fp8": "float8_e4m3fn", "fp8_block": "float8_e4m3fn"}
"""Data types by the names that sources have for them."""


def has_ceiling(roof: Roof, of: str) -> bool:
    """Whether a machine computes in that very type; one that it converts to is another type's."""
    try:
        kind = dtype(of)
    except RooflineError:
        return False
    ceiling = roof.compute(kind)
    return ceiling is not None and ceiling.dtype == kind


def compared(
    source: str, device: str, subject: Subject, measured_s: float, *, tf32: bool = False
) -> Measured:
    """A row against its minimum time."""
    base = Measured(
        source, device, subject.kind, subject.dtype, measured_s=measured_s, row=subject.name
    )
    if subject.reason or subject.make is None:
        return replace(base, reason=subject.reason)
    machine = machine_of(device, tf32=tf32)
    if machine.roof is None:
        return replace(base, reason=machine.error)
    if not has_ceiling(machine.roof, TYPES.get(subject.dtype, subject.dtype)):
        return replace(base, reason=f"no ceiling for {subject.dtype} in the machine file")
    if not 0 < measured_s < math.inf:
        return replace(base, reason="no time")
    try:
        placed = subject.make()
    except OtherModelError as error:
        return replace(base, reason=str(error))
    except RooflineError:
        is_model = subject.kind == "model"
        reason = f"{'model that is not here, or' if is_model else 'operator that'} refuses the size"
        return replace(base, reason=reason)
    if not any(spec.byte for record in placed.records for spec in record.outputs):
        return replace(base, reason="row without work")
    if placed.flop is None:
        return replace(base, reason="operators of unknown FLOP")
    is_fused = subject.is_compiled or placed.has_own_kernels
    least = minimum_of(placed, machine.roof, is_fused=is_fused)
    if least is None:
        return replace(base, reason="no minimum time")
    held_s = least.fused_s if subject.is_compiled else least.eager_s
    first = f"{[each.op for each in placed.records][:3]} {placed.records[0].outputs[0].shape}"
    return replace(
        base,
        size=float(placed.byte if subject.kind == "elementwise" else placed.flop),
        minimum_s=least.model_s if placed.has_own_kernels else held_s,
        is_rate=least.is_rate,
        minima=least if subject.is_compiled and not placed.has_own_kernels else None,
        row=subject.name or first,
    )


def each_row(
    source: str, table: pandas.DataFrame, compare: Callable[[Cell], Iterable[Measured]]
) -> Iterator[Measured]:
    """All rows of a table, with "" where a cell is empty; one that cannot be read says so."""
    for row in table.astype(object).fillna("").to_dict("records"):
        try:
            yield from compare(row)
        except (TypeError, ValueError, ArithmeticError):
            reason = "cells that are no sizes, shapes or times"
            yield Measured(source, str(row.get("device", "")), "", "", reason=reason)
        except KeyError as error:
            reason = f"no column {error.args[0]}"
            yield Measured(source, str(row.get("device", "")), "", "", reason=reason)


def whole(row: Cell, *columns: str) -> list[int]:
    """Cells that are whole numbers.

    Raises:
        ValueError: one is not, or is negative.
    """
    numbers = [float(row[each]) for each in columns]
    if not all(each >= 0 and each.is_integer() for each in numbers):
        raise ValueError(f"no whole numbers: {numbers}")
    return [int(each) for each in numbers]


def seconds(row: Cell, column: str = "time_s") -> float:
    """A time; 0: there is none."""
    return float(row[column] or 0)


def gemm_row(row: Cell) -> Iterator[Measured]:
    """A product of a matrix with a weight."""
    kind = str(row["dtype"])
    make = functools.partial(product, TYPES.get(kind, kind), 1, *whole(row, "m", "n", "k"))
    yield compared("GEMM", str(row["device"]), Subject("product", kind, make), seconds(row))


def operator_row(row: Cell) -> Iterator[Measured]:
    """A single operator in float32, TF32 off."""
    name = str(row["operator"])
    if name in ("bmm", "linear"):
        make = functools.partial(product, "float32", *whole(row, "batch", "m", "n", "k"))
        subject = Subject("product", "float32", make)
    elif name in ELEMENTWISE:
        make = functools.partial(elementwise, name, *whole(row, "batch", "width"))
        subject = Subject("elementwise", "float32", make)
    elif name in ("softmax", "ln"):
        make = functools.partial(by_rows, name, *whole(row, "batch", "width"))
        subject = Subject("by rows", "float32", make)
    else:
        subject = Subject(name, "float32", reason=f"unknown operator {name}")
    yield compared("operators", str(row["device"]), subject, seconds(row))


def convolution_row(row: Cell) -> Iterator[Measured]:
    """A convolution in float32, TF32 off; which kernel ran is not looked at."""
    sizes = ("batch", "in_channels", "out_channels", "kernel_size", "input_size")
    make = functools.partial(convolution, *whole(row, *sizes, "stride", "padding"))
    subject = Subject("convolution", "float32", make)
    yield compared("convolutions", str(row["device"]), subject, seconds(row))


# -- nodes of models -------------------------------------------------------------------------------

Shape = tuple[int, ...]


def _linear_backward(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    return g @ w, g.t() @ x


def _matmul_backward(g: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    return g @ y.transpose(-1, -2), x.transpose(-1, -2) @ g


def _scaled(g: torch.Tensor, _x: torch.Tensor) -> torch.Tensor:
    return g * 2.0


def _layer_norm_backward(
    g: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor
) -> Any:
    normed = list(weight.shape)
    backward = torch.ops.aten.native_layer_norm_backward
    return backward(g, x, normed, mean, mean, weight, weight, [True, True, True])


NODES: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any] | None]] = {
    "add": ("elementwise", lambda x, y=2.0: x + y, None),
    "sub": ("elementwise", lambda x, y=2.0: x - y, None),
    "mul": ("elementwise", lambda x, y=2.0: x * y, lambda g, x, _y: g * x),
    "truediv": ("elementwise", lambda x, y=2.0: x / y, None),
    "pow": ("elementwise", lambda x: torch.pow(x, 2.0), lambda g, x: g * x),
    "relu": ("elementwise", torch.relu, lambda g, y: torch.ops.aten.threshold_backward(g, y, 0)),
    "tanh": ("elementwise", torch.tanh, torch.ops.aten.tanh_backward),
    "gelu": ("elementwise", torch.nn.functional.gelu, torch.ops.aten.gelu_backward),
    "max": ("elementwise", torch.maximum, None),
    "masked_fill": ("elementwise", lambda x, at: x.masked_fill(at, 0.0), None),
    "masked_fill_": ("elementwise", lambda x, at: x.masked_fill_(at, 0.0), None),
    "where": ("elementwise", torch.where, lambda g, at, _x, _y: torch.where(at, g, 0.0)),
    "softmax": (
        "by rows",
        lambda x: torch.softmax(x, -1),
        lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, g.dtype),
    ),
    "embedding": ("by rows", torch.nn.functional.embedding, None),
    "full": ("elementwise", lambda like: torch.ones(like.shape), None),
    "ones": ("elementwise", lambda like: torch.ones(like.shape), None),
    "matmul": ("product", torch.matmul, _matmul_backward),
    "bmm": ("product", torch.bmm, _matmul_backward),
    "addmm": ("product", torch.addmm, lambda g, _bias, x, w: (g @ w.t(), x.t() @ g)),
}
"""Functions and methods by name: what they are, what runs, and what its gradients take at least.

One kernel of several is enough, as are the gradients of one operand of `mul` and of a product's
factors, which all models train.
"""

ALONE = ("pow", "relu", "tanh", "gelu", "softmax")
"""Those whose first tensor is all that they take; other cells are numbers."""

BINARY = ("add", "sub", "mul", "truediv")

OTHERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("view", "permute", "transpose", "unsqueeze", "split", "expand", "getitem"),
        "views: no operator runs",
    ),
    **dict.fromkeys(
        ("contiguous", "to", "type", "type_as", "reshape"),
        "copies, if any: layout and type of operands are not in the row",
    ),
    "dropout": "dropout: its rate is not in the row",
    "tensor": "copies from the host",
}
"""Why other functions and methods are not compared, by name."""

TYPED: Mapping[str, Mapping[int, str]] = {
    "where": {0: "bool"},
    "masked_fill": {1: "bool"},
    "masked_fill_": {1: "bool"},
    "embedding": {0: "int64"},
}
"""Types of operands that are no float32, by position."""

_NORM = re.compile(r"(layer_?norm|ln_\w+)$", re.IGNORECASE)
_LINEAR = re.compile(
    r"(dense|query|key|value|[qkv]_proj|out_proj|fc\d|lm_head|decoder|classifier|seq_relationship)$"
)
_EMBEDDING = re.compile(r"(\w+_embeddings|wte|wpe|embed_tokens)$")
_DROPOUT = re.compile(r"(\w+_)?drop(out)?$")

GRADIENTS = "gradients: operands that want one, or other operands of it, are not in the row"


def node_subjects(row: Cell, expanded: Collection[Shape] = ()) -> tuple[Subject, Subject]:
    """What the forward and the backward time of a node are of.

    Args:
        row: the node.
        expanded: shapes of views that repeat elements in this run. Rows have no strides, so that
            operands of these shapes are taken to repeat a single one.
    """
    name = str(row["target"]).rpartition("method ")[2].rpartition("function ")[2]
    name = re.split(r" of | at |>", name)[0]
    given: list[Shape] = [tuple(each) for each in json.loads(row["input_shapes"] or "[]")]
    out = tuple(int(each) for each in re.findall(r"\d+", str(row["output_shape"])))
    backward = Subject("backward", "float32", reason=GRADIENTS)

    def unknown(reason: str) -> tuple[Subject, Subject]:
        return Subject("other", "float32", reason=reason), backward

    if not row["dtype"]:
        return unknown("numbers and sizes: no tensor comes out")
    if row["op"] == "call_module":
        name = name.rpartition(".")[2]
    name = "dropout" if _DROPOUT.match(name) else name
    if name in OTHERS:
        return unknown(OTHERS[name])
    if row["dtype"] != "torch.float32" or not given or not out:
        return unknown("integers and masks: types of operands are not in the row")
    if row["op"] == "call_module":
        rows, width = math.prod(given[0][:-1]), given[0][-1]
        if (_NORM.search(name) or _LINEAR.search(name)) and given[0] in expanded:
            return unknown("operands may be expanded views")
        if _NORM.search(name):
            make = functools.partial(by_rows, "ln", rows, width)
            shapes = (given[0], given[0], (*given[0][:-1], 1), (width,))
            both = _of(_layer_norm_backward, *shapes)
            return Subject("by rows", "float32", make), Subject("by rows", "float32", both)
        if _LINEAR.search(name):
            make = functools.partial(product, "float32", 1, rows, out[-1], width)
            both = _of(_linear_backward, (rows, out[-1]), (rows, width), (out[-1], width))
            return Subject("product", "float32", make), Subject("product", "float32", both)
        if _EMBEDDING.search(name):
            # At least one row of the table is read; how many it has is not in the row.
            name, given = "embedding", [given[0], (1, out[-1])]
        elif name in ("activation", "activation_fn"):
            # Which function of each element it is makes no difference to its bytes; relu's FLOP are
            # the fewest.
            name = "relu"
    if name not in NODES:
        return unknown(f"unknown operator {name}")
    kind, function, gradient = NODES[name]
    if name in ALONE or (name in BINARY and given[1:] == [(1,)]):
        del given[1:]
    elif name in ("full", "ones"):
        given = [out]
    elif name == "max":
        given = (given * 2)[:2]
    elif name == "masked_fill":
        del given[2:]
    if name in ("mul", "truediv") and len(given) == 1:
        gradient = _scaled
    elif name == "mul" and given[0] != given[1]:
        gradient = None
    types = TYPED.get(name, {})
    forward = Subject(kind, "float32", _of(function, *given, types=types, expanded=expanded))
    if gradient is not None:
        after = {position + 1: each for position, each in types.items()}
        both = _of(gradient, out, *given, types=after, expanded=expanded)
        backward = Subject(kind, "float32", both)
    return forward, backward


def _of(
    function: Callable[..., Any],
    *shapes: Shape,
    types: Mapping[int, str] = MappingProxyType({}),
    expanded: Collection[Shape] = (),
) -> Callable[[], Placed]:
    """What captures a function of tensors, which are in float32 but for `types`, by position."""
    kinds = tuple(types.get(place, "float32") for place in range(len(shapes)))
    return functools.partial(_called, function, shapes, kinds, tuple(s in expanded for s in shapes))


@functools.cache
def _called(
    function: Callable[..., Any],
    shapes: tuple[Shape, ...],
    kinds: tuple[str, ...],
    repeated: tuple[bool, ...],
) -> Placed:
    def call(*tensors: torch.Tensor) -> Any:
        return function(*(x.expand(shape) for x, shape in zip(tensors, shapes, strict=True)))

    given = [
        InputRequest(shape=(1,) * len(shape) if is_repeated else shape, dtype=dtype(kind))
        for shape, kind, is_repeated in zip(shapes, kinds, repeated, strict=True)
    ]
    return captured(call, *given)


def node_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Nodes of whole runs in float32, forward and, where the run trains, backward."""
    expanded: dict[Any, set[Shape]] = {}
    for row in table.to_dict("records"):
        if row.get("target") == "expand":
            shape = tuple(map(int, re.findall(r"\d+", str(row.get("output_shape")))))
            expanded.setdefault((row.get("device"), row.get("run")), set()).add(shape)

    def compare(row: Cell) -> Iterator[Measured]:
        repeated = expanded.get((row["device"], row["run"]), set())
        forward, backward = node_subjects(row, repeated)
        yield compared("model nodes", str(row["device"]), forward, seconds(row, "forward_s"))
        if seconds(row, "backward_s") > 0:
            yield compared("model nodes", str(row["device"]), backward, seconds(row, "backward_s"))

    return each_row("model nodes", table, compare)


# -- whole models ----------------------------------------------------------------------------------


class OtherModelError(Exception):
    """A row is of another model than the one that has its name."""


@functools.lru_cache(maxsize=1)
def built(name: str) -> Source:
    """A model of timm, without weights; rows of a model follow each other."""
    with quiet():
        return load_model(f"timm:{name}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what models print, and with attention in parts as torch had it before 2.5.

    From then on these parts are in float32; most rows are older.
    """
    core: Any = torch.backends.cuda
    before = core.fp16_bf16_reduction_math_sdp_allowed()
    core.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        core.allow_fp16_bf16_reduction_math_sdp(before)


@functools.lru_cache(maxsize=1)
def timm_model(
    name: str, batch: int, size: int, device: Device, amp: bool, channels_last: bool, train: bool
) -> tuple[int, Placed]:
    """The parameters of a model of timm, and one pass of it in torch's operators for a device."""
    source = built(name)
    with quiet():
        given = resolve_inputs(
            source.module,
            Inputs((batch, 3, size, size)),
            source.default_inputs,
            name=name,
            batch=None,
        )
        run = Run(
            device=device,
            train=train,
            autocast="float16" if amp else "",
            channels_last=channels_last,
        )
        found = capture(
            source.module,
            given,
            name=name,
            run=run,
            training=TrainingConfig() if train else None,
            rebuild=source.rebuild,
        )
    is_recurrent = any(isinstance(each, torch.nn.RNNBase) for each in source.module.modules())
    return found.parameters, replace(Placed.of(found.records), has_own_kernels=is_recurrent)


def published_model(parameters: float, *arguments: Any) -> Placed:
    """The pass of a model, if it has the parameters that the row has, in millions.

    Raises:
        OtherModelError: another model had that name then.
    """
    found, placed = timm_model(*arguments)
    if abs(found / 1e6 - parameters) > max(0.01, 0.005 * parameters):
        raise OtherModelError("another model has that name now: its parameters are not the row's")
    return placed


_TIMM = re.compile(
    r"benchmark-(?P<mode>infer|train)-(?P<precision>amp|fp32)-(?P<layout>nchw|nhwc)-pt\d+-(?P<build>[^-]+)-"
    r"(?P<device>.+?)(?P<compiled>-dynamo)?$"
)


NO_RUN = "file whose name says no run that is known"

CONFIGURATION = ["size", "device_type", "amp", "channels_last", "train", "batch"]
"""What rows of one capture have in common, but for the model."""


def timm_table(file: str, table: pandas.DataFrame) -> pandas.DataFrame:
    """A file of timm under the same columns for all runs; NaN: the row does not say."""
    said = _TIMM.match(file)
    mode = said["mode"] if said else ""
    columns = {
        "batch": f"{mode}_batch_size",
        "size": f"{mode}_img_size",
        "step_ms": f"{mode}_step_time",
        "parameters": "param_count",
    }
    found = table.reindex(columns=list(columns.values())).set_axis(list(columns), axis="columns")
    return found.apply(pandas.to_numeric, errors="coerce").assign(
        model=models_of(table),
        device=said["device"] if said else file,
        device_type="cpu" if said and said["build"] == "cpu" else "cuda",
        mode=mode,
        compiled=bool(said and said["compiled"]),
        amp=bool(said and said["precision"] == "amp"),
        channels_last=bool(said and said["layout"] == "nhwc"),
        train=mode == "train",
    )


def models_of(table: pandas.DataFrame) -> pandas.Series:
    """The names of models, without their weights."""
    return table.reindex(columns=["model"])["model"].map(lambda name: str(name).partition(".")[0])


def timm_rows(
    tables: Mapping[str, pandas.DataFrame], names: Sequence[str], minutes: float
) -> Iterator[Measured]:
    """The rows of timm's files, compared where they are of these models, while time is left.

    One model after the other, in the order of `names`: what the files ask of it is captured once
    for all machines.
    """
    if not tables:
        return iter(())
    table = pandas.concat([timm_table(*each) for each in tables.items()], ignore_index=True)
    place = {name: position for position, name in enumerate(names)}
    table = table.assign(place=table["model"].map(place)).sort_values(["place", *CONFIGURATION])
    until = time.monotonic() + 60 * minutes
    last = ""

    def compare(row: Cell) -> Iterator[Measured]:
        nonlocal last
        name = row["model"]
        if not row["mode"]:
            reason = NO_RUN
        elif name not in place:
            reason = "not in the sample"
        elif not all(row[each] and row[each] > 0 for each in ("parameters", "batch", "size")):
            reason = "no batch, size or number of parameters"
        elif time.monotonic() > until:
            reason = "not reached in the time given"
        else:
            reason = ""
            if name != last:
                _say(f"timm: {name}, model {place[name] + 1} of {len(names)}")
            last = name
        yield _timm_row(row, reason)

    return each_row("timm", table, compare)


def _timm_row(row: Cell, reason: str) -> Measured:
    make, said = None, row["model"]
    if not reason:
        sizes = whole(row, "batch", "size")
        of = (row["device_type"], row["amp"], row["channels_last"], row["train"])
        make = functools.partial(published_model, row["parameters"], row["model"], *sizes, *of)
        said += f" batch {sizes[0]} of {sizes[1]}"
    kind = "float16" if row["amp"] else "float32"
    source = f"timm {row['mode']}{' compiled' if row['compiled'] else ''}".strip()
    subject = Subject("model", kind, make, reason, row["compiled"], said)
    return compared(source, row["device"], subject, seconds(row, "step_ms") / 1e3, tf32=True)


# -- language models -------------------------------------------------------------------------------

CONFIGURATIONS = {"Llama-2-7B": "llama-2-7b", "Llama-3-8B": "llama-3.1-8b"}
"""Models whose sizes are published here; Llama 3 and 3.1 of 8 B parameters have the same."""

WEIGHTS = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "fp32": "float32"}


def language_row(row: Cell) -> Iterator[Measured]:
    """Tokens per second of one rank, with the shortest context: of one token."""
    base = Measured("language models", str(row["device"]), "language", str(row["weights"]))
    yield _language(base, row)


def _language(base: Measured, row: Cell) -> Measured:
    config = CONFIGURATIONS.get(row["model"]) or str(row["model"]).lower()
    stage = row["what"]
    if whole(row, "ranks") != [1]:
        return replace(base, reason="several ranks")
    try:
        (batch,) = whole(row, "batch")
    except ValueError:
        return replace(base, reason="no numeric batch")
    if stage not in ("decode", "prefill"):
        return replace(base, reason="neither prefill nor decode")
    of = WEIGHTS.get(row["weights"])
    if of is None:
        return replace(base, reason=f"which weights are {row['weights']} is not in the row")
    rate = seconds(row, "tokens_per_s")
    if not 0 < rate < math.inf:
        return replace(base, reason="no time")
    machine = machine_of(base.device, tf32=True)
    if machine.roof is None:
        return replace(base, reason=machine.error)
    if not has_ceiling(machine.roof, of):
        return replace(base, reason=f"no ceiling for {of} in the machine file")
    try:
        found = analyze_language(
            "hf:llama",
            config=config,
            stage=stage,
            context=1,
            batch=batch,
            dtype=of,
            hardware=machine.roof.profile,
        )
    except RooflineError as error:
        return replace(base, reason=str(error).partition("\n")[0][:60])
    (result,) = found.stages
    if result.asked.model_min_time_s is None:
        return replace(base, reason="no minimum")
    return replace(
        base,
        size=float(result.asked.flop),
        measured_s=result.tokens / rate,
        minimum_s=result.asked.model_min_time_s,
        row=f"{row['model']} {stage}",
    )


# -- tables ----------------------------------------------------------------------------------------

FILES: Mapping[str, Callable[[pandas.DataFrame], Iterable[Measured]]] = {
    "gpu-gemm-bf16-fp8.csv.gz": lambda table: each_row("GEMM", table, gemm_row),
    "gpu-operators-fp32.csv.gz": lambda table: each_row("operators", table, operator_row),
    "gpu-convolutions-fp32.csv.gz": lambda table: each_row("convolutions", table, convolution_row),
    "gpu-model-nodes-fp32.csv.gz": node_rows,
    "llm.csv": lambda table: each_row("language models", table, language_row),
}


def sampled(names: Iterable[str]) -> list[str]:
    """All names in an order of which every beginning has them from all families evenly."""
    families: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        families.setdefault(_FAMILY.sub(r"\1", name), []).append(name)
    return [
        members[position]
        for each in itertools.zip_longest(*families.values())
        for members in [[name for name in each if name is not None]]
        for position in _spread(len(members))
    ]


_FAMILY = re.compile(r"((?:tf_)?[a-z]*).*")


def _spread(length: int) -> list[int]:
    """Positions from 0, of which every beginning is spread evenly (bits reversed)."""
    width = length.bit_length()
    return sorted(range(length), key=lambda position: format(position, f"0{width}b")[::-1])


def table_of(path: Path) -> pandas.DataFrame | str:
    """A file, packed or plain, or why it cannot be read."""
    is_packed = path.suffix == ".gz"
    found = next(
        (
            each
            for each in (path, path.with_suffix("") if is_packed else Path(f"{path}.gz"))
            if each.is_file()
        ),
        None,
    )
    if found is None:
        return f"{path.name}: not in the folder"
    try:
        return pandas.read_csv(found, low_memory=False)
    except (OSError, EOFError, ValueError) as error:
        return f"{path.name}: not readable: {str(error).partition(chr(10))[0]}"


def measured_in(
    folder: Path, models: int | Sequence[str], minutes: float = math.inf
) -> tuple[list[Measured], list[str]]:
    """All rows of a folder, and why files of it are left out.

    Args:
        folder: the folder.
        models: which of timm's models, or how many (0: all).
        minutes: after which no further model of timm is taken.
    """
    rows: list[Measured] = []
    left_out: list[str] = []
    for name, read in FILES.items():
        table = table_of(folder / name)
        if isinstance(table, str):
            left_out.append(table)
        else:
            rows += read(table)
            _say(f"{name}: {len(rows)} rows so far")
    files = sorted((folder / "timm").glob("benchmark-*.csv*"))
    if not files:
        left_out.append("timm/benchmark-*.csv: not in the folder")
    tables: dict[str, pandas.DataFrame] = {}
    for path in files:
        table = table_of(path)
        if isinstance(table, str):
            left_out.append(table)
        else:
            tables[path.name.partition(".csv")[0]] = table
    if isinstance(models, int):
        found = sampled(name for table in tables.values() for name in models_of(table))
        models = found[:models] if models else found
    # Whatever is there stays: collections would look through it again and again.
    gc.freeze()
    rows += timm_rows(tables, models, minutes)
    return rows, left_out


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tables(rows: Sequence[Measured], left_out: Sequence[str]) -> Iterator[str]:
    """The report in Markdown, line by line."""
    frame = pandas.DataFrame(
        {
            "source": [each.source for each in rows],
            "device": [each.device for each in rows],
            "kind": [each.kind for each in rows],
            "dtype": [each.dtype for each in rows],
            "size": [each.size for each in rows],
            "ratio": [
                math.nan if each.reason else each.minimum_s / each.measured_s for each in rows
            ],
            "reason": [each.reason for each in rows],
            "explanation": [each.explanation for each in rows],
            "row": [each.row for each in rows],
            **{name: [_ratio(each, name) for each in rows] for name in ("eager", "fused", "model")},
            "is_ordered": [each.minima is None or each.minima.is_ordered for each in rows],
        }
    )
    done = frame[frame.reason == ""]
    beaten = done[done.ratio > 1]
    yield "# Does any public measurement beat our minimum times?"
    yield ""
    yield (
        f"{len(frame):,} rows, {len(done):,} compared, {len(beaten):,} below their minimum time,"
        f" {int((beaten.explanation == '').sum()):,} of them unexplained."
    )
    yield "Rerun: `python benchmarks/public_bounds.py FOLDER > benchmarks/public_bounds.md`"
    if left_out:
        yield ""
        yield from (f"* {each}" for each in left_out)
    yield ""
    yield "## Rows"
    yield ""
    yield (
        "The highest ratio is minimum ÷ measured time: above 1 a measurement is below its minimum."
    )
    yield ""
    yield "| source | device | rows | compared | violations | explained | highest ratio |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for (source, device), part in frame.groupby(["source", "device"], sort=True):
        held = part[part.reason == ""]
        over = held[held.ratio > 1]
        top = f"{held.ratio.max():.3f}" if len(held) else "–"
        explained = _counts(over.explanation[over.explanation != ""])
        yield (
            f"| {source} | {device} | {len(part):,} | {len(held):,} | {len(over):,} |"
            f" {explained or '0'} | {top} |"
        )
    yield ""
    yield "## Tightness"
    yield ""
    yield (
        "Median of minimum ÷ measured time, with the number of rows. Sizes are in FLOP, of"
        " elementwise operators in bytes."
    )
    yield ""
    labels = [label for _, label in FEWER_THAN]
    yield f"| source | device | operators | type | {' | '.join(labels)} | all |"
    yield "|---|---|---|---|---:|---:|---:|---:|"
    for names, part in done.groupby(["source", "device", "kind", "dtype"], sort=True):
        low, cells = 0.0, []
        for most, _ in FEWER_THAN:
            cells.append(_median(part[(part["size"] >= low) & (part["size"] < most)].ratio))
            low = most
        yield f"| {' | '.join(map(str, names))} | {' | '.join(cells)} | {_median(part.ratio)} |"
    models = frame[frame.kind == "model"]
    if len(models):
        models = models.assign(name=_names(models.row))
        names = sorted(models.name[models.reason == ""].unique())
        others = models[~models.name.isin(names)].drop_duplicates("name")
        yield ""
        yield "## Whole models"
        yield ""
        yield (
            f"Of {models.name.nunique():,} models {len(names):,} are compared; of the others:"
            f" {_counts(others.reason) or 'none'}."
        )
        yield ""
        yield f"Models (`--models` takes them too): {','.join(names)}"
    compiled = done[done.eager.notna()]
    if len(compiled):
        yield ""
        yield "## The three minimum times of compiled models"
        yield ""
        yield (
            "Median and highest of each minimum ÷ measured time. These runs are held against the"
            " fused minimum; out of order are rows where not model ≤ fused ≤ eager."
        )
        yield ""
        yield "| source | device | models | rows | eager | fused | model | out of order |"
        yield "|---|---|---:|---:|---:|---:|---:|---:|"
        for (source, device), part in compiled.groupby(["source", "device"], sort=True):
            cells = [
                f"{part[name].median():.2f}, {part[name].max():.2f}"
                for name in ("eager", "fused", "model")
            ]
            yield (
                f"| {source} | {device} | {_names(part.row).nunique()} | {len(part):,} |"
                f" {' | '.join(cells)} |"
                f" {int((~part.is_ordered).sum())} |"
            )
    yield ""
    yield "## Not compared"
    yield ""
    yield "| source | device | why | rows |"
    yield "|---|---|---|---:|"
    for (source, device), part in frame[frame.reason != ""].groupby(["source", "device"]):
        for reason, count in Counter(part.reason).most_common():
            yield f"| {source} | {device} | {reason} | {count:,} |"
    left = beaten[beaten.explanation == ""].nlargest(20, "ratio")
    if len(left):
        yield ""
        yield "## Unexplained violations"
        yield ""
        yield "| source | device | operators | type | size | row | ratio |"
        yield "|---|---|---|---|---:|---|---:|"
        for each in left.itertuples():
            yield (
                f"| {each.source} | {each.device} | {each.kind} | {each.dtype} | {each.size:.3g} |"
                f" {each.row} | {each.ratio:.3f} |"
            )


def _ratio(row: Measured, name: str) -> float:
    """One of the three minimum times ÷ the measured; NaN: of no whole model."""
    return getattr(row.minima, f"{name}_s") / row.measured_s if row.minima else math.nan


def _names(rows: pandas.Series) -> pandas.Series:
    """Names of models without their weights, batch and size."""
    return rows.str.extract(r"^([^. ]+)", expand=False)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in Counter(names).most_common())


def _median(ratios: pandas.Series) -> str:
    return f"{ratios.median():.2f} ({len(ratios):,})" if len(ratios) else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument(
        "--models",
        type=lambda text: int(text) if text.isdigit() else text.split(","),
        default=0,
        help="how many of timm's models, 0: all; or their names, joined by commas",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help="after which no further model of timm is taken [default: %(default)s]",
    )
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"{options.folder}: no such folder; give one with CSV files", file=sys.stderr)
        return 2
    rows, left_out = measured_in(options.folder, options.models, options.minutes)
    for line in tables(rows, left_out):
        print(line)
    left = [each for each in rows if each.minimum_s > each.measured_s and not each.explanation]
    disordered = [each for each in rows if each.minima and not each.minima.is_ordered]
    return 1 if left or disordered else 0


if __name__ == "__main__":
    raise SystemExit(main())
