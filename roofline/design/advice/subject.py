"""Subject of advice: operators with readers and times, and changed operators placed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from roofline.analysis import Analysis, Basis, Finding, OperatorRow
from roofline.core.units import format_percent
from roofline.latency.prediction import OperatorPredictor
from roofline.placement import Roof
from roofline.workload import formulas
from roofline.workload.dataflow import Dataflow, trace_dataflow
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An operator that could run, and the bytes of it that must come from each memory level."""

    record: OperatorRecord
    level_bytes: Mapping[str, int]


Operator = Alternative | OperatorRow
"""An operator as it ran, or another one; both have ``record`` and ``level_bytes``."""


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
) -> Alternative:
    """The first of convolutions with other sizes, its image keeping height and width.

    The bytes of all `rows`, which it would replace, tell which memory level its own come from.
    """
    row = rows[0]
    image, weight, *bias = row.inputs
    output = row.outputs[0]
    into, out = in_channels or image.shape[1], out_channels or output.shape[1]
    taps, apart = kernel or weight.shape[2:], groups or groups_of(row)
    arguments = {**row.attributes, "groups": apart}
    if kernel:
        arguments |= {"padding": [size // 2 for size in kernel], "dilation": [1, 1]}
    kept = _resized(weight, (out, into // apart, *taps))
    # As a model keeps it whose images lie so; contiguous where both layouts are one.
    if kept.shape[1] == 1 or math.prod(taps) == 1:
        kept = replace(kept, layout="contiguous")
    elif image.layout == "channels-last":
        kept = replace(kept, layout="channels-last")
    specs = {
        "input": _resized(image, (image.shape[0], into, *image.shape[2:])),
        "weight": kept,
        "bias": _resized(bias[0], (out,)) if bias else None,
    }
    written = _resized(output, (output.shape[0], out, *output.shape[2:]))
    return _counted(rows, arguments, specs, written)


def product_like(
    rows: Sequence[OperatorRow], *, in_features: int | None = None, out_features: int | None = None
) -> Alternative:
    """The first of linear layers with other sizes, as `convolution_like`."""
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


def _counted(
    rows: Sequence[OperatorRow],
    arguments: Mapping[str, Any],
    operands: Mapping[str, TensorSpec | None],
    output: TensorSpec,
) -> Alternative:
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
        row.record,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=(output,),
        attributes=dict(arguments),
        work=work,
    )
    return Alternative(record=record, level_bytes=_level_bytes(rows, record))


def _level_bytes(rows: Sequence[OperatorRow], record: OperatorRecord) -> dict[str, int]:
    """Bytes by level: what comes from far is taken to be kept, activations were just written."""
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


LEAST_SHARE = 0.01  # Of the time of a pass: what saves less is not worth a change


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Seconds of an operator, with the interval from 10 to 90 % where they are predicted."""

    s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def below_s(self) -> float:
        """How much less it may be; 0 where that is not known."""
        return self.s - self.low_s if self.low_s is not None else 0.0

    @property
    def above_s(self) -> float:
        """How much more it may be; 0 where that is not known."""
        return self.high_s - self.s if self.high_s is not None else 0.0

    def times(self, factor: float) -> Time:
        """So many times as long."""
        return Time(
            s=self.s * factor,
            low_s=None if self.low_s is None else self.low_s * factor,
            high_s=None if self.high_s is None else self.high_s * factor,
        )


NOTHING = Time(s=0.0, low_s=0.0, high_s=0.0)  # The time of what is not there any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds before and after, and the interval of their difference; None: it is not known."""

    before_s: float
    after_s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def s(self) -> float:
        """The seconds saved."""
        return self.before_s - self.after_s

    def is_worthwhile(self, pass_s: float) -> bool:
        """Whether it is at least 1 % of a pass, and its interval holds no loss."""
        return self.s >= LEAST_SHARE * pass_s and (self.low_s is None or self.low_s > 0)


def saving_of(parts: Iterable[tuple[Time, Time]], basis: Basis) -> Saving:
    """The saving of several changes, each of a time before and a time after.

    Equal parts are the same operator again, and wrong in the same way; what is wrong with others is
    taken to be independent. Bounds have no interval.
    """
    counts = Counter(parts)
    before_s = sum(before.s * count for (before, _), count in counts.items())
    after_s = sum(after.s * count for (_, after), count in counts.items())
    if basis != "prediction":
        return Saving(before_s=before_s, after_s=after_s)
    # What takes longer before, or less after, saves more; intervals are longer upwards.
    down_s = math.hypot(
        *(count * before.below_s for (before, _), count in counts.items()),
        *(count * after.above_s for (_, after), count in counts.items()),
    )
    up_s = math.hypot(
        *(count * before.above_s for (before, _), count in counts.items()),
        *(count * after.below_s for (_, after), count in counts.items()),
    )
    saved_s = before_s - after_s
    return Saving(before_s=before_s, after_s=after_s, low_s=saved_s - down_s, high_s=saved_s + up_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Operators, and those that would take their place; the latter's time counts `factor` times."""

    before: tuple[Operator, ...]
    after: tuple[Operator, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A finding, and what to time for it; ``swaps`` is empty where single operators cannot tell."""

    finding: Finding
    swaps: tuple[Swap, ...] = ()


Parts = list[tuple[Time, Time]]  # Times before and after


@dataclass(frozen=True)
class Subject:
    """A model's pass, as rules ask about it; times are predicted where all are, else bounds."""

    analysis: Analysis
    predictor: OperatorPredictor | None = None

    @property
    def rows(self) -> tuple[OperatorRow, ...]:
        """The operators in the order in which they ran."""
        return self.analysis.operators

    @cached_property
    def working(self) -> list[OperatorRow]:
        """Those that do something."""
        return [row for row in self.rows if row.state is not State.FREE]

    @cached_property
    def flow(self) -> Dataflow:
        """Who reads what whom wrote."""
        return trace_dataflow([row.record for row in self.rows])

    @cached_property
    def last_write(self) -> dict[int, int]:
        """By storage, the index of the last operator that writes to it."""
        return {spec.storage: row.index for row in self.working for spec in row.outputs}

    @cached_property
    def weight_readers(self) -> Counter[int]:
        """By storage, how many operators read a parameter that lies there."""
        return Counter(
            storage
            for row in self.working
            for storage in {each.storage for each in row.inputs if each.role is Role.PARAMETER}
        )

    @cached_property
    def basis(self) -> Basis:
        """What times are."""
        is_predicted = all(row.predicted_s is not None for row in self.working)
        return "prediction" if self.predictor and self.working and is_predicted else "bound"

    def times(self, operators: Sequence[Operator], /) -> list[Time | None]:
        """The time of each, by the predictor or the roof; None: nobody can say."""
        roof = Roof(self.analysis.hardware, self.analysis.threads)
        placements = [
            roof.place(each.record, reuses_for(each.level_bytes, roof)) for each in operators
        ]
        if self.predictor is None or self.basis == "bound":
            bounds_s = [each.eager_min_time_s for each in placements]
            return [Time(s=each) if each is not None else None for each in bounds_s]
        found = self.predictor.operators(placements, roof.threads)
        return [
            Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
            for each in found
        ]

    @cached_property
    def pass_s(self) -> float:
        """The seconds of a pass that savings are held against; 0: nobody can say."""
        if self.basis == "bound":
            return self.analysis.totals.eager_min_time_s or 0.0
        prediction = self.analysis.prediction
        return prediction.predicted_s if prediction else 0.0

    def time(self, row: OperatorRow) -> Time | None:
        """The time of an operator as it is; None: nobody can say."""
        if self.basis == "bound":
            return Time(s=row.eager_min_time_s) if row.eager_min_time_s is not None else None
        if row.predicted_s is None:
            return None
        return Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)

    def taken_s(self, rows: Iterable[OperatorRow]) -> float:
        """The seconds that operators take, as far as they are known."""
        return sum(each.s for row in rows if (each := self.time(row)))

    def saving_limit(self, rows: Sequence[OperatorRow]) -> Saving:
        """What can be saved at most: work takes at least its minimum time."""
        taken_s = self.taken_s(rows)
        return Saving(before_s=taken_s, after_s=min(taken_s, minimum_s(rows)))

    def share(self, rows: Sequence[OperatorRow]) -> str:
        """Which part of the pass operators take, in words."""
        taken_s = self.taken_s(rows)
        what = "of the predicted time" if self.basis == "prediction" else "of the bound"
        return f"{format_percent(taken_s / self.pass_s)} {what}" if self.pass_s else "of no time"

    def writer(self, row: OperatorRow, operand: int = 0) -> OperatorRow | None:
        """Who wrote an operand, where a single operator wrote all of it."""
        read = self.flow.read[row.index]
        if operand >= len(read) or read[operand].value is None:
            return None
        latest = read[operand].latest_writer
        return None if latest is None else self.rows[latest]

    def readers(self, row: OperatorRow) -> list[OperatorRow]:
        """Who reads anything that an operator wrote."""
        found = {reader for _, value in self.flow.written[row.index] for reader in value.readers}
        return [self.rows[index] for index in sorted(found)]

    def sole_source(self, row: OperatorRow) -> OperatorRow | None:
        """The operator whose result it reads, where nothing else reads that."""
        writer = self.writer(row)
        return writer if writer is not None and len(self.readers(writer)) == 1 else None

    def compared(
        self, before: Sequence[OperatorRow], after: Sequence[Alternative]
    ) -> list[tuple[Time, Time] | None]:
        """Operators and what would take the place of each, on one footing; None: nobody can say."""
        times = self.times([*before, *after])
        pairs = zip(times[: len(before)], times[len(before) :], strict=True)
        return [(one, other) if one and other else None for one, other in pairs]

    def replaced(
        self, candidates: Sequence[tuple[list[OperatorRow], Alternative]]
    ) -> list[tuple[list[OperatorRow], Parts, Swap]]:
        """Operators that one other could replace, where it takes less time: what is known of it."""
        asked = [row for rows, _ in candidates for row in rows]
        times = self.times([*asked, *(other for _, other in candidates)])
        known = iter(times[: len(asked)])
        found: list[tuple[list[OperatorRow], Parts, Swap]] = []
        for (rows, other), after in zip(candidates, times[len(asked) :], strict=True):
            before = [each for each in islice(known, len(rows)) if each]
            if after is None or len(before) < len(rows) or sum(e.s for e in before) <= after.s:
                continue
            parts = [*((each, NOTHING) for each in before), (NOTHING, after)]
            found.append((rows, parts, Swap(before=tuple(rows), after=(other,))))
        return found

    def finding(
        self,
        rule: str,
        rows: Sequence[OperatorRow],
        saving: Saving | None,
        *,
        evidence: str,
        change: str,
        basis: Basis | None = None,
        swaps: Sequence[Swap] = (),
    ) -> list[Proposal]:
        """The finding, if it is worth a word; else nothing. ``basis`` None: as of all times."""
        if saving is None or not self.pass_s or not saving.is_worthwhile(self.pass_s):
            return []
        # Of bounds there is nothing more certain, nor less.
        of = (basis or self.basis) if self.basis == "prediction" else self.basis
        is_certain = of == "prediction"
        finding = Finding(
            rule=rule,
            operators=tuple(sorted({row.index for row in rows})),
            evidence=evidence,
            change=change,
            basis=of,
            predicted_before_s=saving.before_s,
            predicted_after_s=saving.after_s,
            saving_low_s=saving.low_s if is_certain else None,
            saving_high_s=saving.high_s if is_certain else None,
        )
        return [Proposal(finding=finding, swaps=tuple(swaps))]

    def without(
        self, rule: str, rows: Sequence[OperatorRow], *, evidence: str, change: str
    ) -> list[Proposal]:
        """The finding that operators can be left out."""
        known = [(each, NOTHING) for row in rows if (each := self.time(row)) is not None]
        is_known = known and len(known) == len(rows)
        return self.finding(
            rule,
            rows,
            saving_of(known, self.basis) if is_known else None,
            evidence=evidence,
            change=change,
            swaps=[Swap(before=(row,)) for row in rows],
        )


def minimum_s(rows: Iterable[OperatorRow]) -> float:
    """The sum of eager minimum times in seconds, as far as they are known."""
    return sum(row.eager_min_time_s or 0.0 for row in rows)
