"""Operators that are not there, with other channels, kernels or partners, and their times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.analysis import Analysis, Basis, OperatorRow, working
from roofline.design.advice.times import Time
from roofline.latency.prediction import Predicts
from roofline.placement import Placement, Roof
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An operator that could run, and the bytes of it that must come from each memory level."""

    record: OperatorRecord
    level_bytes: Mapping[str, int]


def as_it_is(row: OperatorRow) -> Alternative:
    """The operator of a row, to be asked after like any other."""
    return Alternative(record=row.record, level_bytes=row.level_bytes)


def is_plain_convolution(row: OperatorRow) -> bool:
    """Whether it is a convolution forwards, of an image and a weight that is no other operand."""
    return (
        row.op == "aten.convolution"
        and row.state is State.COUNTED
        and len(row.inputs) >= 2
        and len(row.inputs[0].shape) == len(row.inputs[1].shape) == 4
        and row.attributes.get("transposed") is False
    )


def is_linear(row: OperatorRow) -> bool:
    """Whether it is a layer's product of a matrix with a weight that the model keeps."""
    return (
        row.op in ("aten.addmm", "aten.mm")
        and row.state is State.COUNTED
        and len(row.inputs) == _OPERANDS[row.op]
        and all(len(each.shape) == 2 for each in row.inputs[-2:])
        and row.inputs[-1].role in _WEIGHTS
        and row.inputs[-2].role not in _WEIGHTS
    )


_OPERANDS = {"aten.addmm": 3, "aten.mm": 2}
_WEIGHTS = (Role.PARAMETER, Role.BUFFER)


def groups_of(row: OperatorRow) -> int:
    """How many groups a convolution has."""
    return int(row.attributes.get("groups") or 1)


def convolution_like(
    rows: Sequence[OperatorRow],
    *,
    in_channels: int | None = None,
    out_channels: int | None = None,
    kernel: tuple[int, int] | None = None,
    groups: int | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Alternative:
    """The first of convolutions with other sizes; what is None is as it was.

    Its image and its output keep their height and width: with another kernel, the padding is the
    one that does.

    Args:
        rows: those that it would replace; their bytes tell which memory level its own come from.
        in_channels, out_channels, kernel, groups: its sizes.
        attributes: other arguments that change, by their names in the aten schema.
    """
    row = rows[0]
    image, weight, *bias = row.inputs
    output = row.outputs[0]
    into = in_channels or image.shape[1]
    out = out_channels or output.shape[1]
    taps = kernel or weight.shape[2:]
    apart = groups or groups_of(row)
    changed = dict(attributes or {})
    if kernel:
        changed["padding"] = [size // 2 for size in kernel]
        changed["dilation"] = [1, 1]
    arguments = {**row.attributes, "groups": apart, **changed}
    specs = {
        "input": _resized(image, (image.shape[0], into, *image.shape[2:])),
        "weight": _laid_out_as(image, _resized(weight, (out, into // apart, *taps))),
        "bias": _resized(bias[0], (out,)) if bias else None,
    }
    written = _resized(output, (output.shape[0], out, *output.shape[2:]))
    return _counted(rows, arguments, specs, written)


def product_like(
    rows: Sequence[OperatorRow], *, in_features: int | None = None, out_features: int | None = None
) -> Alternative:
    """The first of linear layers with other sizes; what is None is as it was.

    Args:
        rows: those that it would replace; their bytes tell which memory level its own come from.
        in_features, out_features: its sizes.
    """
    row = rows[0]
    *bias, left, right = row.inputs
    inner, out = in_features or right.shape[0], out_features or right.shape[1]
    # addmm: `self` is the bias; mm: the matrix on the left.
    names = ("self", "mat1", "mat2") if bias else ("self", "mat2")
    sizes = ((out,), (left.shape[0], inner), (inner, out))[-len(names) :]
    given: dict[str, TensorSpec | None] = dict(
        zip(names, map(_resized, row.inputs, sizes), strict=True)
    )
    written = _resized(row.outputs[0], (left.shape[0], out))
    return _counted(rows, {"beta": 1, "alpha": 1, **row.attributes}, given, written)


def _resized(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    if shape == spec.shape:
        return spec
    return replace(spec, shape=shape, distinct_elements=math.prod(shape), min_elements=None)


def _laid_out_as(image: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """The weight as a model keeps it whose images lie so; it is contiguous where both are one."""
    is_either = weight.shape[1] == 1 or math.prod(weight.shape[2:]) == 1
    if is_either or image.layout != "channels-last":
        return replace(weight, layout="contiguous") if is_either else weight
    return replace(weight, layout="channels-last")


def _counted(
    rows: Sequence[OperatorRow],
    arguments: Mapping[str, Any],
    operands: Mapping[str, TensorSpec | None],
    output: TensorSpec,
) -> Alternative:
    """The operator of `rows` with other operands, counted by its formula."""
    row = rows[0]
    formula = formulas.find(row.op)
    if formula is None:
        raise ValueError(f"{row.op} has no formula, so no alternative to it can be counted")
    count = formula.count({**arguments, **operands, "output": output})
    inputs: tuple[TensorSpec, ...] = ()
    for name, each in operands.items():
        if each is not None:
            least = count.min_elements.get(name)
            is_fewer = least is not None and least < each.distinct_elements
            inputs += (replace(each, min_elements=least if is_fewer else None),)
    work = Work(
        **{name: getattr(count, name) for name in COUNTS},
        internal_bytes=count.internal_bytes,
        **traffic_of(inputs, (output,)),
    )
    record = replace(
        as_it_is(row).record,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=(output,),
        attributes=dict(arguments),
        work=work,
    )
    return Alternative(record=record, level_bytes=_level_bytes(rows, record))


def _level_bytes(rows: Sequence[OperatorRow], record: OperatorRecord) -> dict[str, int]:
    """Bytes of a new operator by level: shares of what it keeps and of what is made, as before.

    What comes from far is taken to be what the model keeps: activations were just written.
    """
    kept = sum(map(_kept_bytes, rows))
    made = sum(row.traffic_bytes for row in rows) - kept
    new_kept = _kept_bytes(record)
    new_made = record.work.traffic_bytes - new_kept
    byte: dict[str, int] = {}
    for name in rows[0].level_bytes:
        crossing = sum(row.level_bytes.get(name, 0) for row in rows)
        of_kept = min(crossing, kept)
        byte[name] = round(
            (new_kept * of_kept / kept if kept else 0)
            + (new_made * (crossing - of_kept) / made if made else 0)
        )
    return byte


def _kept_bytes(operator: OperatorRow | OperatorRecord) -> int:
    return sum(each.byte for each in operator.inputs if each.role.persists)


class OnMachine:
    """Times on the machine and threads of an analysis: predicted where it is, else bounds.

    Args:
        analysis: of the model as it is.
        predictor: what was learned on its machine; None: nothing.
    """

    def __init__(self, analysis: Analysis, predictor: Predicts | None) -> None:
        self._roof = Roof(analysis.hardware, analysis.threads)
        at_work = working(analysis.operators)
        is_predicted = bool(at_work) and all(row.predicted_s is not None for row in at_work)
        self._predictor = predictor if is_predicted else None

    @property
    def basis(self) -> Basis:
        """Predictions where the whole model has them."""
        return "bound" if self._predictor is None else "prediction"

    def times(self, operators: Sequence[Alternative], /) -> list[Time | None]:
        """The time of each, by the predictor or the roof."""
        placements = [self._placed(each) for each in operators]
        if self._predictor is None:
            bounds_s = [each.eager_min_time_s for each in placements]
            return [Time(s=each) if each is not None else None for each in bounds_s]
        found = self._predictor.predict(placements, self._roof.threads).operators
        return [
            Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
            for each in found or (None,) * len(placements)
        ]

    def _placed(self, operator: Alternative) -> Placement:
        reuses = reuses_for(operator.level_bytes, self._roof)
        return self._roof.place(operator.record, reuses)


def reuses_for(level_bytes: Mapping[str, int], roof: Roof) -> list[Reuse]:
    """Reuses by which a roof finds these bytes at its levels again, nearest level first."""
    levels = roof.profile.memory
    byte = [level_bytes.get(level.name, 0) for level in levels]
    reuses: list[Reuse] = []
    inner = 0
    for place, capacity in enumerate(roof.held_bytes):
        farther = byte[place + 1] if place + 1 < len(levels) else 0
        stays = max(0, byte[place] - farther)
        if place + 1 == len(levels) or capacity is None:
            reuses.append(Reuse(stays, None))
            break
        # Of bytes that were last touched together, only what a nearer level has no room for comes
        # from beyond it: in pieces that fit between two levels, all of them do.
        pieces = math.ceil(stays / max(1, capacity - inner))
        for piece in range(pieces):
            size = stays // pieces + (piece < stays % pieces)
            reuses.append(Reuse(size, (inner + size) if place else 0))
        inner = capacity
    return reuses
