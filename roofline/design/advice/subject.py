"""Subject of advice: operators with data flow and times, and alternatives to them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from roofline.analysis import Analysis, Basis, Finding, OperatorRow
from roofline.analysis.words import kind_of_time, whole_s
from roofline.core.dtypes import dtype
from roofline.core.units import format_percent
from roofline.latency.prediction import OperatorPredictor
from roofline.placement import Placement, Roof
from roofline.workload import formulas
from roofline.workload.dataflow import Dataflow, trace_dataflow
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Alternative operator, with the bytes that cross each memory level."""

    record: OperatorRecord
    level_bytes: Mapping[str, int]


Operator = Alternative | OperatorRow
"""Operator of the pass or an alternative; both have ``record`` and ``level_bytes``."""


def is_plain_convolution(row: OperatorRow) -> bool:
    """Return True for a 2D forward convolution that is not transposed."""
    return (
        row.op == "aten.convolution"
        and row.state is State.COUNTED
        and len(row.inputs) >= 2
        and len(row.inputs[0].shape) == len(row.inputs[1].shape) == 4
        and row.attributes.get("transposed") is False
    )


def is_linear(row: OperatorRow) -> bool:
    """Return True for the matrix product of a linear layer."""
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
    """Return the groups of a convolution."""
    return int(row.attributes.get("groups") or 1)


def convolution_like(
    rows: Sequence[OperatorRow],
    *,
    in_channels: int | None = None,
    out_channels: int | None = None,
    kernel: tuple[int, int] | None = None,
    groups: int | None = None,
) -> Alternative:
    """Return the first convolution with other sizes, of the same height and width.

    Its bytes by memory level follow from those of all `rows`, which it replaces.
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
    # Weights have the layout of the images; contiguous if both layouts are equal.
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
    """Return the first linear layer with other sizes, as `convolution_like`."""
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


def attention_like(
    rows: Sequence[OperatorRow], scores: OperatorRow, values: OperatorRow, device: str
) -> Alternative:
    """Return the fused attention for two products with a softmax between them."""
    query, key = scores.inputs[-2:]
    value, output = values.inputs[-1], values.outputs[0]

    def four(spec: TensorSpec, *last: int) -> TensorSpec:
        return _resized(spec, (1,) * (4 - len(spec.shape)) + (*spec.shape[:-2], *last))

    queries, inner = query.shape[-2:]
    keys, out = value.shape[-2:]
    logarithms = replace(
        _resized(output, (*four(output, queries, out).shape[:-1],)), dtype=dtype("float32")
    )
    operands: dict[str, TensorSpec | None] = {
        "query": four(query, queries, inner),
        "key": replace(four(key, keys, inner), layout="contiguous"),
        "value": four(value, keys, out),
    }
    op = "aten._scaled_dot_product_flash_attention" + "_for_cpu" * (device == "cpu")
    return _counted(
        rows,
        {"dropout_p": 0.0, "is_causal": False},
        operands,
        four(output, queries, out),
        logarithms,
        op=op,
    )


def fused_like(flow: Dataflow, rows: Sequence[OperatorRow]) -> Alternative:
    """Return operators as one kernel, which neither writes nor reads what only they read."""
    inside = {row.index for row in rows}
    read: dict[object, TensorSpec] = {}
    written: list[TensorSpec] = []
    for row in rows:
        for each in flow.read[row.index]:
            if each.latest_writer not in inside:
                # Parts of one value may overlap: the largest is a lower bound.
                key = each.spec.storage, each.latest_writer
                read[key] = max(read.get(key, each.spec), each.spec, key=lambda spec: spec.byte)
        for spec, value in flow.written[row.index]:
            if not (value.readers and inside.issuperset(value.readers)):
                written.append(spec)
    total = sum((row.work for row in rows), Work())
    work = Work(
        **{name: getattr(total, name) for name in COUNTS}, **traffic_of(read.values(), written)
    )
    record = replace(
        rows[-1].record, inputs=tuple(read.values()), outputs=tuple(written), work=work
    )
    return Alternative(record=record, level_bytes=_level_bytes(rows, record))


def _counted(
    rows: Sequence[OperatorRow],
    arguments: Mapping[str, Any],
    operands: Mapping[str, TensorSpec | None],
    *outputs: TensorSpec,
    op: str = "",
) -> Alternative:
    row = rows[0]
    op = op or row.op
    formula = formulas.find(op)
    if formula is None:
        raise ValueError(f"{op} has no formula, and no alternative")
    written = outputs[0] if len(outputs) == 1 else outputs
    count = formula.count({**arguments, **operands, "output": written})
    inputs: tuple[TensorSpec, ...] = ()
    for name, each in operands.items():
        if each is not None:
            least = count.min_elements.get(name)
            is_fewer = least is not None and least < each.distinct_elements
            inputs += (replace(each, min_elements=least if is_fewer else None),)
    work = Work(
        **{name: getattr(count, name) for name in COUNTS},
        internal_bytes=count.internal_bytes,
        **traffic_of(inputs, outputs),
    )
    record = replace(
        row.record,
        op=op,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=outputs,
        attributes=dict(arguments),
        work=work,
    )
    return Alternative(record=record, level_bytes=_level_bytes(rows, record))


def _level_bytes(rows: Sequence[OperatorRow], record: OperatorRecord) -> dict[str, int]:
    """Return bytes by level: parameters first cross the farther levels, then activations."""
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
    """Return reuse distances that reproduce these bytes by level, nearest level first."""
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
        # Bytes touched together cross a level only beyond its capacity: pieces that fit between
        # two levels cross it completely.
        pieces = math.ceil(stays / max(1, capacity - inner))
        for piece in range(pieces):
            size = stays // pieces + (piece < stays % pieces)
            reuses.append(Reuse(size, (inner + size) if place else 0))
        inner = capacity
    return reuses


LEAST_SHARE = 0.01  # Minimum saving as a share of the pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Time of an operator in seconds, with an 80 % interval if predicted."""

    s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def below_s(self) -> float:
        """Width of the lower half of the interval; 0 if unknown."""
        return self.s - self.low_s if self.low_s is not None else 0.0

    @property
    def above_s(self) -> float:
        """Width of the upper half of the interval; 0 if unknown."""
        return self.high_s - self.s if self.high_s is not None else 0.0

    def times(self, factor: float) -> Time:
        """Return the time multiplied by a factor."""
        return Time(
            s=self.s * factor,
            low_s=None if self.low_s is None else self.low_s * factor,
            high_s=None if self.high_s is None else self.high_s * factor,
        )


NOTHING = Time(s=0.0, low_s=0.0, high_s=0.0)  # Time of a removed operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds before and after, with the interval of the saving (None: unknown)."""

    before_s: float
    after_s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def s(self) -> float:
        """Saving in seconds."""
        return self.before_s - self.after_s

    def is_worthwhile(self, pass_s: float) -> bool:
        """Return True for at least 1 % of a pass and an interval above 0."""
        return self.s >= LEAST_SHARE * pass_s and (self.low_s is None or self.low_s > 0)


def saving_of(parts: Iterable[tuple[Time, Time]], basis: Basis) -> Saving:
    """Return the saving of several changes, each with a time before and after.

    Errors of equal parts add, errors of others are taken as independent. Minimum times have no
    interval.
    """
    counts = Counter(parts)
    before_s = sum(before.s * count for (before, _), count in counts.items())
    after_s = sum(after.s * count for (_, after), count in counts.items())
    if basis != "prediction":
        return Saving(before_s=before_s, after_s=after_s)
    # Longer before and shorter after mean a larger saving; intervals are asymmetric.
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
    """Operators and their replacements, whose time counts `factor` times."""

    before: tuple[Operator, ...]
    after: tuple[Operator, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Finding, and the operators to time for it (empty: not testable by single operators)."""

    finding: Finding
    swaps: tuple[Swap, ...] = ()


Parts = list[tuple[Time, Time]]  # Times before and after


@dataclass(frozen=True)
class Subject:
    """Pass of a model for rules; times are measured or predicted if all are, else minimum times."""

    analysis: Analysis
    predictor: OperatorPredictor | None = None

    @property
    def rows(self) -> tuple[OperatorRow, ...]:
        """Operators in execution order."""
        return self.analysis.operators

    @cached_property
    def working(self) -> list[OperatorRow]:
        """Operators that are not free."""
        return [row for row in self.rows if row.state is not State.FREE]

    @cached_property
    def flow(self) -> Dataflow:
        """Data flow between operators."""
        return trace_dataflow([row.record for row in self.rows])

    @cached_property
    def last_write(self) -> dict[int, int]:
        """Index of the last writer by storage."""
        return {spec.storage: row.index for row in self.working for spec in row.outputs}

    @cached_property
    def weight_readers(self) -> Counter[int]:
        """Number of readers of parameters by storage."""
        return Counter(
            storage
            for row in self.working
            for storage in {each.storage for each in row.inputs if each.role is Role.PARAMETER}
        )

    @cached_property
    def basis(self) -> Basis:
        """Kind of times."""
        is_predicted = all(row.predicted_s is not None for row in self.working)
        return "prediction" if self.predictor and self.working and is_predicted else "bound"

    @cached_property
    def is_measured(self) -> bool:
        """True if all operators have measured times, those of the pass; alternatives have none."""
        return kind_of_time(self.analysis) == "measured"

    @property
    def kind(self) -> str:
        """Kind of the times of the pass."""
        of_model = "predicted" if self.basis == "prediction" else "minimum"
        return "measured" if self.is_measured else of_model

    def times(self, operators: Sequence[Operator], /) -> list[Time | None]:
        """Return predicted times, or minimum times; None if unknown."""
        if self.predictor is None or self.basis == "bound":
            return self._least_times(operators)
        found = self.predictor.operators(self._placed(operators), self.analysis.threads)
        return [
            Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
            for each in found
        ]

    def _placed(self, operators: Sequence[Operator]) -> list[Placement]:
        roof = Roof(self.analysis.hardware, self.analysis.threads)
        return [roof.place(each.record, reuses_for(each.level_bytes, roof)) for each in operators]

    def _least_times(self, operators: Sequence[Operator]) -> list[Time | None]:
        """Return minimum times; None if unknown."""
        least = [each.eager_min_time_s for each in self._placed(operators)]
        return [Time(s=each) if each is not None else None for each in least]

    @cached_property
    def pass_s(self) -> float:
        """Time of a pass in seconds, the base of savings; 0 if unknown."""
        if self.is_measured:
            analysis = self.analysis
            return whole_s(analysis, "measured") or analysis.totals.measured_s or 0.0
        return self._modeled_s

    @cached_property
    def _modeled_s(self) -> float:
        """Predicted or minimum time of a pass in seconds, the base of alternatives."""
        kind = "predicted" if self.basis == "prediction" else "bound"
        return whole_s(self.analysis, kind) or 0.0

    def time(self, row: OperatorRow) -> Time | None:
        """Return the time of an operator of the pass; None if unknown."""
        if self.is_measured:
            return Time(s=row.measured_s) if row.measured_s is not None else None
        if self.basis == "bound":
            return Time(s=row.eager_min_time_s) if row.eager_min_time_s is not None else None
        if row.predicted_s is None:
            return None
        return Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)

    def taken_s(self, rows: Iterable[OperatorRow]) -> float:
        """Return the sum of known operator times in seconds."""
        return sum(each.s for row in rows if (each := self.time(row)))

    def saving_limit(self, rows: Sequence[OperatorRow]) -> Saving:
        """Return the maximum saving, down to the minimum times."""
        taken_s = self.taken_s(rows)
        return Saving(before_s=taken_s, after_s=min(taken_s, minimum_s(rows)))

    def share(self, rows: Sequence[OperatorRow]) -> str:
        """Return the operators' share of the pass as text."""
        if not self.pass_s:
            return "of no time"
        return f"{format_percent(self.taken_s(rows) / self.pass_s)} of {self.kind} time"

    def writer(self, row: OperatorRow, operand: int = 0) -> OperatorRow | None:
        """Return the writer of an operand; None unless a single operator wrote all of it."""
        read = self.flow.read[row.index]
        if operand >= len(read) or read[operand].value is None:
            return None
        latest = read[operand].latest_writer
        return None if latest is None else self.rows[latest]

    def readers(self, row: OperatorRow) -> list[OperatorRow]:
        """Return the readers of an operator's results."""
        found = {reader for _, value in self.flow.written[row.index] for reader in value.readers}
        return [self.rows[index] for index in sorted(found)]

    def sole_source(self, row: OperatorRow) -> OperatorRow | None:
        """Return the operator whose result only this one reads; None without one."""
        writer = self.writer(row)
        return writer if writer is not None and len(self.readers(writer)) == 1 else None

    def compared(
        self, before: Sequence[OperatorRow], after: Sequence[Alternative]
    ) -> list[tuple[Time, Time] | None]:
        """Return the times of operators and of their alternatives; None if unknown."""
        times = self.times([*before, *after])
        pairs = zip(times[: len(before)], times[len(before) :], strict=True)
        return [(one, other) if one and other else None for one, other in pairs]

    def replaced(
        self, candidates: Sequence[tuple[list[OperatorRow], Alternative]]
    ) -> list[tuple[list[OperatorRow], Parts, Swap]]:
        """Return the candidates whose alternative is faster, with times."""
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
        """Return the finding if its saving is worthwhile; `basis` None: that of alternatives."""
        # Minimum times have one basis.
        of, pass_s = (
            (basis or self.basis) if self.basis == "prediction" else "bound",
            self._modeled_s,
        )
        if basis is not None and self.is_measured:
            of, pass_s = "measured at most", self.pass_s
        if saving is None or not pass_s or not saving.is_worthwhile(pass_s):
            return []
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
        """Return the finding that operators can be removed."""
        known = [(each, NOTHING) for row in rows if (each := self.time(row)) is not None]
        is_known = known and len(known) == len(rows)
        basis = "measured at most" if self.is_measured else self.basis
        return self.finding(
            rule,
            rows,
            saving_of(known, basis) if is_known else None,
            basis=basis,
            evidence=evidence,
            change=change,
            swaps=[Swap(before=(row,)) for row in rows],
        )

    def instead(
        self,
        rule: str,
        groups: Sequence[tuple[Sequence[OperatorRow], Alternative]],
        *,
        evidence: Callable[[list[list[OperatorRow]]], str],
        change: str,
        is_timed: bool = False,
    ) -> list[Proposal]:
        """Return the finding that one operator can replace each group, at its minimum time.

        ``is_timed``: the operator exists, so it can be predicted, and tried.
        """
        others = [other for _, other in groups]
        choices: list[tuple[Basis, list[Time | None]]] = [("at most", self._least_times(others))]
        if is_timed and self.basis == "prediction" and not self.is_measured:
            # If no saving is certain, that to the minimum time is an upper limit.
            choices.insert(0, ("prediction", self.times(others)))
        for basis, after in choices:
            parts: Parts = []
            kept: list[tuple[Sequence[OperatorRow], Alternative]] = []
            for (rows, other), time in zip(groups, after, strict=True):
                before = [each for row in rows if (each := self.time(row))]
                if time and len(before) == len(rows) and sum(each.s for each in before) > time.s:
                    parts += [*((each, NOTHING) for each in before), (NOTHING, time)]
                    kept.append((rows, other))
            if kept and (
                found := self.finding(
                    rule,
                    [row for rows, _ in kept for row in rows],
                    saving_of(parts, basis),
                    basis=basis,
                    evidence=evidence([list(rows) for rows, _ in kept]),
                    change=change,
                    swaps=[
                        Swap(before=tuple(rows), after=(other,)) for rows, other in kept * is_timed
                    ],
                )
            ):
                return found
        return []


def minimum_s(rows: Iterable[OperatorRow]) -> float:
    """Return the sum of known eager minimum times in seconds."""
    return sum(row.eager_min_time_s or 0.0 for row in rows)
