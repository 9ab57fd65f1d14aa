"""Calls of torch's operators that no model made, counted by their formulas as captured ones are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roofline.errors import RooflineError
from roofline.foundation.dtypes import DType
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Layout, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

Specs = tuple[TensorSpec, ...]


def plain(record: OperatorRecord) -> str:
    """The operator's name, that of its like that does not work in place."""
    return record.op.removesuffix("_")


def images_layout(spec: TensorSpec) -> Layout:
    """How images lie that an int8 convolution writes; contiguous, where both ways are one."""
    sizes = spec.shape
    is_either = len(sizes) < 4 or sizes[1] == 1 or all(size == 1 for size in sizes[2:])
    return "contiguous" if is_either else "channels-last"


def narrowed(spec: TensorSpec, to: DType, renamed: Mapping[int, int]) -> TensorSpec:
    """The operand in other floats, in a storage of another number where `renamed` has one."""
    if spec.dtype.kind != "float":
        return spec
    return replace(spec, dtype=to, storage=renamed.get(spec.storage, spec.storage))


def retyped(record: OperatorRecord, inputs: Specs, outputs: Specs) -> OperatorRecord:
    """The operator on other operands of the same sizes."""
    counts: dict[str, Any] = {
        name: getattr(record.work, name) for name in (*COUNTS, "internal_byte")
    }
    work = Work(**counts, **traffic_of(inputs, outputs))
    return replace(record, inputs=inputs, outputs=outputs, work=work, freed=())


def recounted(record: OperatorRecord, op: str, inputs: Specs, outputs: Specs) -> OperatorRecord:
    """The operator under another name on other types: what is done with codes is no FLOP."""
    formula = formulas.find(op)
    other = replace(retyped(record, inputs, outputs), op=op)
    if formula is None or len(inputs) != 1:
        return other
    try:
        count = formula.count({**record.attributes, "self": inputs[0], "output": outputs[0]})
    except RooflineError:
        return other
    work = replace(other.work, **{name: getattr(count, name) for name in COUNTS})
    return replace(other, type=count.type or formula.type, formula=formula.key, work=work)


def call(op: str, like: OperatorRecord, inputs: Specs, output: TensorSpec) -> OperatorRecord:
    """A call of an operator of torch's quantisation.

    Args:
        op: its name.
        like: in whose place it runs.
        inputs: its operands, packed ones among them.
        output: what it writes.
    """
    formula = formulas.find(op)
    if formula is None:
        raise ValueError(f"{op} has no formula, so it cannot be counted")
    count = formula.count({**_arguments(op, inputs), "output": output})
    return replace(
        like,
        op=op,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=(output,),
        attributes={},
        state=State.COUNTED,
        formula=formula.key,
        freed=(),
        work=Work(
            **{name: getattr(count, name) for name in COUNTS},
            **traffic_of(inputs, (output,)),
        ),
    )


def _arguments(op: str, inputs: Specs) -> dict[str, Any]:
    """Operands by the names that torch gives them."""
    if op.startswith("quantized.linear"):
        return {"X": inputs[0], "W_prepack": list(inputs[1:])}
    if op.startswith("quantized.conv"):
        return {"qx": inputs[0], "packed_weight": list(inputs[1:])}
    if op.startswith("quantized.add"):
        return {"qa": inputs[0], "qb": inputs[1]}
    return {"self": inputs[0]}
