"""Does any measurement that others published beat our minimum times?

    python benchmarks/public_bounds.py [FOLDER] [--models N] > benchmarks/public_bounds.md

FOLDER has public measurements as CSV files, `../shared/measurements` unless given: products of
matrices (gpu-gemm-bf16-fp8.csv.gz), single operators (gpu-operators-fp32.csv.gz), convolutions
(gpu-convolutions-fp32.csv.gz), the nodes of models (gpu-model-nodes-fp32.csv.gz), whole models of
timm (timm/benchmark-*.csv) and tokens per second of language models (llm.csv). Files that are not
there are said. Each row is held against the minimum time on the machine file that its device's name
stands for: the operator is counted by the formula that counts it in every analysis, its operands
are where two passes of it leave them, and no ceiling is fitted to any row. Eager runs are held
against the eager minimum, those of torch.compile (timm's files whose names end in -dynamo) against
the fused one.

Of timm's models N are taken (all: 0), in every file that has them, from all families in turn: a
family has the names that begin with the same letters (and `tf_`), in their order; the first of each
family are taken, then the second, and of the last round names evenly spaced. Where the parameters
of a row are not those of the model, it is another of that name. Each model runs in torch's
operators for a CPU, but for attention: in one kernel, as GPUs have it. A row takes about half a
second of one core, nearly all of it the capture of that pass.

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
import io
import itertools
import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pandas
import torch

from roofline.errors import RooflineError
from roofline.foundation.dtypes import DType, dtype
from roofline.machine.catalog import load_hardware
from roofline.minimum import minimum_times
from roofline.pipeline.language import analyze_language
from roofline.placement import Bound, Roof
from roofline.workload import formulas
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import Teaching
from roofline.workload.fusion import fused_traffic
from roofline.workload.inputs import Inputs, inputs_for
from roofline.workload.models.functions import Function
from roofline.workload.models.sources import load
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, residency
from roofline.workload.rewritings import model_work
from roofline.workload.runs import Run
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

FOLDER = Path(__file__).parents[1].parent / "shared" / "measurements"
MODELS = 60
"""How many of timm's models are taken by default: some ten minutes on one core."""

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

    ``minima`` keeps what `minimum_of` found, by the machine's `id`.
    """

    records: tuple[OperatorRecord, ...]
    reuses: tuple[tuple[Reuse, ...], ...]
    minima: dict[int, Minimum | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, records: Sequence[OperatorRecord]) -> Placed:
        """In the steady state: what the pass before left in a cache is still there."""
        return cls(tuple(records), tuple(residency(records).steady))

    @property
    def flop(self) -> int | None:
        """FLOP of all of them; None: unknown of one."""
        return sum((each.work for each in self.records), start=Work()).flop

    @property
    def byte(self) -> int:
        """Bytes of all operands."""
        return sum(each.work.traffic_byte for each in self.records)


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
        replace(spec, least_elements=least if least < spec.distinct_elements else None)
        for name, spec in named.items()
        for least in [count.least_elements.get(name, spec.distinct_elements)]
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
            multiply_add=count.multiply_add,
            least_flop=count.least_flop,
            internal_byte=count.internal_byte,
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


def captured(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Placed:
    """What one call of a function of tensors dispatches."""
    found = capture(Function(function), Inputs(*shapes), name="row", run=Run())
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
    try:
        profile = load_hardware(device)
    except RooflineError as error:
        return Machine(error=str(error).partition("(see")[0].strip())
    if profile.knows_only_dram:
        return Machine(error=f"machine file '{profile.name}' has no caches: no minimum time")
    if not tf32:
        kept = tuple(each for each in profile.compute if each.unit != "tensor-core-tf32")
        profile = replace(profile, compute=kept)
    return Machine(roof=Roof(profile, profile.threads))


@dataclass(frozen=True, slots=True)
class Minimum:
    """The least times of one row's operators on one machine, in seconds.

    ``is_rate``: the eager one is that of a lone product at the peak of its type. The fused and the
    model minimum are those of whole models alone.
    """

    eager_s: float
    fused_s: float = math.nan
    model_s: float = math.nan
    is_rate: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether model ≤ fused ≤ eager."""
        return self.model_s <= self.fused_s <= self.eager_s


def minimum_of(placed: Placed, roof: Roof, *, is_model: bool) -> Minimum | None:
    """The minimum times, None where a ceiling or a count is unknown."""
    if id(roof) not in placed.minima:
        placed.minima[id(roof)] = _minimum(placed, roof, is_model=is_model)
    return placed.minima[id(roof)]


def _minimum(placed: Placed, roof: Roof, *, is_model: bool) -> Minimum | None:
    found = [
        roof.place(record, reuses)
        for record, reuses in zip(placed.records, placed.reuses, strict=True)
    ]
    if any(each.bound_s is None or each.bound is Bound.UNKNOWN for each in found):
        return None
    eager_s = sum(each.bound_s or 0.0 for each in found)
    if not is_model:
        is_product = len(found) == 1 and found[0].record.type == "matrix product"
        return Minimum(eager_s, is_rate=is_product and found[0].bound is Bound.COMPUTE)
    records = placed.records
    times = minimum_times(found, fused_traffic(records), model_work(records), roof)
    if times is None:
        return None
    return Minimum(eager_s, times.fused.time_s, times.model.time_s)


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of a source, and what it came to.

    ``reason`` says why it is not compared. ``size`` is FLOP, of what is elementwise bytes.
    ``minimum_s`` is the minimum that applies, ``minima`` are all three, of whole models.
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
    base = Measured(source, device, subject.kind, subject.dtype, measured_s=measured_s)
    if subject.reason or subject.make is None:
        return replace(base, reason=subject.reason)
    machine = machine_of(device, tf32=tf32)
    if machine.roof is None:
        return replace(base, reason=machine.error)
    if not has_ceiling(machine.roof, TYPES.get(subject.dtype, subject.dtype)):
        return replace(base, reason=f"no ceiling for {subject.dtype} in the machine file")
    if not measured_s > 0:
        return replace(base, reason="no time")
    try:
        placed = subject.make()
    except LookupError as error:
        return replace(base, reason=str(error))
    except RooflineError:
        return replace(base, reason="model that is not here, or refuses the size")
    if not placed.byte:
        return replace(base, reason="row without work")
    if placed.flop is None:
        return replace(base, reason="operators of unknown FLOP")
    least = minimum_of(placed, machine.roof, is_model=subject.kind == "model")
    if least is None:
        return replace(base, reason="no minimum time")
    first = f"{[each.op for each in placed.records][:3]} {placed.records[0].outputs[0].shape}"
    return replace(
        base,
        size=float(placed.byte if subject.kind == "elementwise" else placed.flop),
        minimum_s=least.fused_s if subject.is_compiled else least.eager_s,
        is_rate=least.is_rate,
        minima=least if subject.kind == "model" else None,
        row=subject.name or first,
    )


def gemm_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Products of a matrix with a weight."""
    for device, kind, m, n, k, time_s in table[
        ["device", "dtype", "m", "n", "k", "time_s"]
    ].itertuples(index=False):
        of = TYPES.get(kind, kind)
        make = functools.partial(product, of, 1, int(m), int(n), int(k))
        yield compared("GEMM", device, Subject("product", kind, make), time_s)


def operator_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Single operators in float32, TF32 off."""
    columns = ["device", "operator", "batch", "m", "n", "k", "width", "time_s"]
    for device, name, batch, m, n, k, width, time_s in table[columns].itertuples(index=False):
        if name in ("bmm", "linear"):
            make = functools.partial(product, "float32", int(batch), int(m), int(n), int(k))
            subject = Subject("product", "float32", make)
        elif name in ELEMENTWISE:
            make = functools.partial(elementwise, name, int(batch), int(width))
            subject = Subject("elementwise", "float32", make)
        elif name in ("softmax", "ln"):
            make = functools.partial(by_rows, name, int(batch), int(width))
            subject = Subject("by rows", "float32", make)
        else:
            subject = Subject(name, "float32", reason=f"unknown operator {name}")
        yield compared("operators", device, subject, time_s)


def convolution_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Convolutions in float32, TF32 off; which kernel ran is not looked at."""
    sizes = ["batch", "in_channels", "out_channels", "kernel_size", "input_size"]
    for device, time_s, *rest in table[
        ["device", "time_s", *sizes, "stride", "padding"]
    ].itertuples(index=False):
        make = functools.partial(convolution, *map(int, rest))
        subject = Subject("convolution", "float32", make)
        yield compared("convolutions", device, subject, time_s)


# -- nodes of models -------------------------------------------------------------------------------

Shapes = list[tuple[int, ...]]


def _linear_backward(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    return g @ w, g.t() @ x


def _matmul_backward(g: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    return g @ y.transpose(-1, -2), x.transpose(-1, -2) @ g


NODES: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any] | None]] = {
    "add": ("elementwise", torch.add, None),
    "sub": ("elementwise", torch.sub, None),
    "mul": ("elementwise", torch.mul, None),
    "truediv": ("elementwise", torch.div, None),
    "pow": ("elementwise", lambda x, *_: torch.pow(x, 2.0), None),
    "tanh": ("elementwise", torch.tanh, None),
    "gelu": ("elementwise", torch.nn.functional.gelu, None),
    "max": ("elementwise", torch.maximum, None),
    "softmax": ("by rows", lambda x, *_: torch.softmax(x, -1), None),
    "matmul": ("product", torch.matmul, _matmul_backward),
    "bmm": ("product", torch.bmm, _matmul_backward),
    "addmm": ("product", torch.addmm, None),
}
"""Functions and methods by name: what they are, what runs, and what its gradients are."""

_NORM = re.compile(r"(layer_?norm|ln_\w+)$", re.IGNORECASE)
_LINEAR = re.compile(
    r"(dense|query|key|value|[qkv]_proj|out_proj|fc\d|lm_head|decoder|classifier|seq_relationship)$"
)


def node_subjects(row: Cell) -> tuple[Subject, Subject]:
    """What the forward and the backward time of a node are of."""
    name = str(row["target"]).rpartition("method ")[2].rpartition("function ")[2]
    name = re.split(r" of | at |>", name)[0]
    shapes: Shapes = [tuple(each) for each in json.loads(row["input_shapes"] or "[]")]
    out = tuple(int(each) for each in re.findall(r"\d+", str(row["output_shape"])))
    backward = Subject("backward", "float32", reason="gradients of other operators")
    unknown = Subject("other", "float32", reason="views, masks, tables and integers")
    if row["dtype"] != "torch.float32" or not shapes or not out:
        return unknown, backward
    if row["op"] == "call_module":
        last = name.rpartition(".")[2]
        if _NORM.search(last):
            width = shapes[0][-1:]
            rows = math.prod(shapes[0][:-1])
            make = functools.partial(by_rows, "ln", rows, width[0])
            return Subject("by rows", "float32", make), backward
        if _LINEAR.search(last):
            m, k, n = math.prod(shapes[0][:-1]), shapes[0][-1], out[-1]
            make = functools.partial(product, "float32", 1, m, n, k)
            both = functools.partial(_called, _linear_backward, ((m, n), (m, k), (n, k)))
            return Subject("product", "float32", make), Subject("product", "float32", both)
        if last in ("activation", "activation_fn"):
            make = functools.partial(elementwise, "relu", math.prod(out[:-1]), out[-1])
            return Subject("elementwise", "float32", make), backward
        return unknown, backward
    known = NODES.get(name)
    if known is None:
        return unknown, backward
    kind, function, gradient = known
    binary = {"add", "sub", "mul", "truediv"}
    given = (shapes * 2)[:2] if name == "max" and len(shapes) < 2 else shapes
    if name in binary and len(given) == 1:
        make = functools.partial(elementwise, "addu", math.prod(out[:-1]), out[-1])
    else:
        make = functools.partial(_called, function, tuple(given))
    if gradient is not None and kind == "product" and len(given) == 2:
        both = functools.partial(_called, gradient, (out, *given))
        backward = Subject(kind, "float32", both)
    return Subject(kind, "float32", make), backward


@functools.cache
def _called(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> Placed:
    return captured(function, *shapes)


def _plain(table: pandas.DataFrame) -> list[dict[Any, Any]]:
    """Rows with "" where a cell is empty."""
    return table.astype(object).fillna("").to_dict("records")


def node_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Nodes of whole runs in float32, forward and, where the run trains, backward."""
    expanded = {
        (row["device"], row["run"], row["output_shape"].replace("(", "[").replace(")", "]"))
        for row in table[table["target"] == "expand"].to_dict("records")
    }
    for row in _plain(table):
        forward, backward = node_subjects(row)
        shapes = map(str, json.loads(row["input_shapes"] or "[]"))
        if any((row["device"], row["run"], each) in expanded for each in shapes):
            # Rows have no strides: how few elements such a view repeats is not known.
            forward = replace(forward, reason="operands may be expanded views")
        yield compared("model nodes", row["device"], forward, float(row["forward_s"] or 0))
        if float(row["backward_s"] or 0) > 0:
            yield compared("model nodes", row["device"], backward, float(row["backward_s"]))


# -- whole models ----------------------------------------------------------------------------------


def one_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_named: Any,
) -> torch.Tensor:
    """Attention in one kernel, as GPUs run it at best; on a CPU it may come as its parts."""
    if torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu")
        query, key, value = (each.to(half) for each in (query, key, value))
        attn_mask = attn_mask.to(half) if attn_mask is not None else None
    *leading, tokens, _ = query.shape
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*leading, tokens, key.shape[-2]).reshape(
            -1, leading[-1], tokens, key.shape[-2]
        )
    query, key, value = (
        each.reshape(-1, each.shape[-3], *each.shape[-2:]) for each in (query, key, value)
    )
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    out = kernel(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
    return out.reshape(*leading, tokens, value.shape[-1])


@functools.lru_cache(maxsize=100)
def timm_model(
    name: str, batch: int, size: int, amp: bool, channels_last: bool, train: bool
) -> tuple[int, Placed]:
    """The parameters of a model of timm, and one pass of it in torch's operators for a CPU.

    Raises:
        LookupError: a GPU runs other operators.
    """
    with (
        mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", one_kernel),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        source = load(f"timm:{name}")
        if amp and any(isinstance(each, torch.nn.RNNBase) for each in source.module.modules()):
            raise LookupError("recurrent layers: one kernel of cuDNN, here every step's operators")
        given = inputs_for(
            source.module,
            Inputs((batch, 3, size, size)),
            source.default_inputs,
            name=name,
            batch=None,
        )
        run = Run(train=train, autocast="float16" if amp else "", channels_last=channels_last)
        found = capture(
            source.module,
            given,
            name=name,
            run=run,
            teaching=Teaching() if train else None,
            rebuild=source.rebuild,
        )
    return found.parameters, Placed.of(found.records)


def published_model(parameters: float, *arguments: Any) -> Placed:
    """The pass of a model, if it has the parameters that the row has, in millions.

    Raises:
        LookupError: another model had that name then.
    """
    found, placed = timm_model(*arguments)
    if abs(found / 1e6 - parameters) > max(0.01, 0.005 * parameters):
        raise LookupError("another model has that name now: its parameters are not the row's")
    return placed


_TIMM = re.compile(
    r"benchmark-(?P<mode>infer|train)-(?P<precision>amp|fp32)-(?P<layout>nchw|nhwc)-pt\d+-[^-]+-"
    r"(?P<device>.+?)(?P<compiled>-dynamo)?$"
)


NO_RUN = "file whose name says no run that is known"


def timm_rows(paths: Iterable[Path], names: Collection[str]) -> Iterator[Measured]:
    """The rows of timm's files, compared where they are of these models.

    One model after the other: what the files ask of it is captured once for all machines.
    """
    asked: list[tuple[str, Callable[[], Measured]]] = []
    for path in paths:
        said = _TIMM.match(path.stem)
        table = pandas.read_csv(path)
        if said is None:
            unknown = Measured("timm", path.stem, "model", "", reason=NO_RUN)
            yield from [unknown] * len(table)
            continue
        for row in table.to_dict("records"):
            name = str(row["model"]).partition(".")[0]
            asked.append((name, functools.partial(_timm_row, said, name, row, names)))
    asked.sort(key=lambda each: each[0])
    last = ""
    for name, compare in asked:
        if name != last and name in names:
            _say(f"timm: {name}")
        last = name
        yield compare()


def _timm_row(said: re.Match[str], name: str, row: Cell, names: Collection[str]) -> Measured:
    mode = said["mode"]
    is_compiled = bool(said["compiled"])
    parameters, *sizes = (
        float(row[each]) for each in ("param_count", f"{mode}_batch_size", f"{mode}_img_size")
    )
    reason = "" if name in names else "not in the sample"
    make = None
    if not all(each > 0 for each in (parameters, *sizes)):
        reason = "no batch, size or number of parameters"
    else:
        batch, size = map(int, sizes)
        of = (said["precision"] == "amp", said["layout"] == "nhwc", mode == "train")
        make = functools.partial(published_model, parameters, name, batch, size, *of)
    subject = Subject(
        "model",
        "float16" if said["precision"] == "amp" else "float32",
        make,
        reason,
        is_compiled,
        f"{row['model']} batch {sizes[0]:.0f} of {sizes[1]:.0f}",
    )
    source = f"timm {mode}{' compiled' if is_compiled else ''}"
    measured_s = float(row[f"{mode}_step_time"]) / 1e3
    return compared(source, said["device"], subject, measured_s, tf32=True)


# -- language models -------------------------------------------------------------------------------

CONFIGURATIONS = {"Llama-2-7B": "llama-2-7b", "Llama-3-8B": "llama-3.1-8b"}
"""Models whose sizes are published here; Llama 3 and 3.1 of 8 B parameters have the same."""

WEIGHTS = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "fp32": "float32"}


def language_rows(table: pandas.DataFrame) -> Iterator[Measured]:
    """Tokens per second of one rank, with the shortest context: of one token."""
    for row in _plain(table):
        base = Measured("language models", row["device"], "language", str(row["weights"]))
        yield _language(base, row)


def _language(base: Measured, row: Cell) -> Measured:
    config = CONFIGURATIONS.get(row["model"]) or str(row["model"]).lower()
    stage = row["what"]
    if str(row["ranks"]) != "1":
        return replace(base, reason="several ranks")
    if not str(row["batch"]).isdigit():
        return replace(base, reason="no numeric batch")
    if stage not in ("decode", "prefill"):
        return replace(base, reason="neither prefill nor decode")
    of = WEIGHTS.get(row["weights"])
    if of is None:
        return replace(base, reason=f"which weights are {row['weights']} is not in the row")
    machine = machine_of(row["device"], tf32=True)
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
            batch=int(row["batch"]),
            dtype=of,
            hardware=machine.roof.profile,
        )
    except RooflineError as error:
        return replace(base, reason=str(error).partition("\n")[0][:60])
    (result,) = found.stages
    if result.asked.bound_s is None:
        return replace(base, reason="no minimum")
    return replace(
        base,
        size=float(result.asked.flop),
        measured_s=result.tokens / float(row["tokens_per_s"]),
        minimum_s=result.asked.bound_s,
        row=f"{row['model']} {stage}",
    )


# -- tables ----------------------------------------------------------------------------------------

FILES: Mapping[str, Callable[[pandas.DataFrame], Iterable[Measured]]] = {
    "gpu-gemm-bf16-fp8.csv.gz": gemm_rows,
    "gpu-operators-fp32.csv.gz": operator_rows,
    "gpu-convolutions-fp32.csv.gz": convolution_rows,
    "gpu-model-nodes-fp32.csv.gz": node_rows,
    "llm.csv": language_rows,
}


def sampled(files: Iterable[Path], models: int) -> set[str]:
    """So many of the models that files have, from all families in turn; 0: all."""
    names = sorted({str(name).partition(".")[0] for path in files for name in _column(path)})
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(_FAMILY.sub(r"\1", name), []).append(name)
    rounds = itertools.zip_longest(*families.values())
    chosen: list[str] = []
    for each in rounds:
        left = models - len(chosen) if models else len(names)
        members = [name for name in each if name is not None]
        if left < len(members):
            members = [members[i * len(members) // left] for i in range(left)]
        chosen += members
    return set(chosen)


_FAMILY = re.compile(r"((?:tf_)?[a-z]*).*")


def _column(path: Path) -> Iterable[Any]:
    return pandas.read_csv(path)["model"]


def measured_in(folder: Path, models: int | Collection[str]) -> tuple[list[Measured], list[str]]:
    """All rows of a folder, and the files that it lacks."""
    rows: list[Measured] = []
    missing: list[str] = []
    for name, read in FILES.items():
        if (folder / name).is_file():
            rows += read(pandas.read_csv(folder / name, low_memory=False))
            _say(f"{name}: {len(rows)} rows so far")
        else:
            missing.append(name)
    files = sorted((folder / "timm").glob("benchmark-*.csv"))
    chosen = sampled(files, models) if isinstance(models, int) else models
    rows += timm_rows(files, chosen)
    return rows, missing if files else [*missing, "timm/benchmark-*.csv"]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tables(rows: Sequence[Measured], missing: Sequence[str]) -> Iterator[str]:
    """The report in Markdown, line by line."""
    frame = pandas.DataFrame(
        {
            "source": [each.source for each in rows],
            "device": [each.device for each in rows],
            "kind": [each.kind for each in rows],
            "dtype": [each.dtype for each in rows],
            "size": [each.size for each in rows],
            "ratio": [each.minimum_s / each.measured_s for each in rows],
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
    if missing:
        yield ""
        yield f"Not in the folder: {', '.join(missing)}."
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
    models = done[done.eager.notna()]
    if len(models):
        yield ""
        yield "## The three minimum times of whole models"
        yield ""
        yield (
            "Median and highest of each minimum ÷ measured time. Eager runs are held against the"
            " eager minimum, compiled ones against the fused; out of order are rows where not"
            " model ≤ fused ≤ eager."
        )
        yield ""
        yield (
            "| source | device | models | rows | held against | eager | fused | model |"
            " out of order |"
        )
        yield "|---|---|---:|---:|---|---:|---:|---:|---:|"
        for (source, device), part in models.groupby(["source", "device"], sort=True):
            held = "fused" if str(source).endswith("compiled") else "eager"
            cells = [
                f"{part[name].median():.2f}, {part[name].max():.2f}"
                for name in ("eager", "fused", "model")
            ]
            yield (
                f"| {source} | {device} | {_names(part.row).nunique()} | {len(part):,} | {held} |"
                f" {' | '.join(cells)} |"
                f" {int((~part.is_ordered).sum())} |"
            )
        yield ""
        yield f"Models (`--models` takes them too): {','.join(sorted(set(_names(models.row))))}"
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
        type=lambda text: int(text) if text.isdigit() else set(text.split(",")),
        default=MODELS,
        help="how many of timm's models, 0: all; or their names, joined by commas",
    )
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"{options.folder}: no such folder; give one with CSV files", file=sys.stderr)
        return 2
    rows, missing = measured_in(options.folder, options.models)
    for line in tables(rows, missing):
        print(line)
    left = [each for each in rows if each.minimum_s > each.measured_s and not each.explanation]
    disordered = [each for each in rows if each.minima and not each.minima.is_ordered]
    return 1 if left or disordered else 0


if __name__ == "__main__":
    raise SystemExit(main())
