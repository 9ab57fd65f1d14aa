"""The what-if of fewer bits: changed records under the roof, beside the analysis of the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from roofline.analysis import (
    Analysis,
    MinTimes,
    OperatorRow,
    minimum_times_of,
    row_of,
    sum_eager_min_time_s,
    working,
)
from roofline.core.dtypes import DType, dtype
from roofline.core.text import counted, printable
from roofline.core.units import sum_known
from roofline.design.advice.subject import NOTHING, Time, reuses_for
from roofline.errors import InputError, did_you_mean
from roofline.latency.prediction import OperatorPredictor
from roofline.placement import Bound, Placement, Roof
from roofline.quantization.changed_records import ChangedPass, Step
from roofline.quantization.kept_weights import (
    layer_bytes,
    model_bytes,
    unquantized,
    weights_of_others,
)
from roofline.quantization.policy import FLOAT_BITS, RECURRENT, Layer, Policy, check_bits
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    LayerWhatIf,
    Part,
    PartName,
    QuantizationPass,
    Side,
    WhatIf,
)
from roofline.quantization.torch_calls import torch_calls
from roofline.quantization.widths import INT8, Widths
from roofline.workload.formulas.quantized import QUANTIZE_FLOP
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_QUANTISED = ("quantized.", "aten.quantize_", "onednn.q")
"""What operators are called of models whose weights are codes."""

_SHOWN = 5
"""How many layers are named to one who named none of them."""

_ACCUMULATOR = dtype("int32")


def what_ifs(
    analysis: Analysis,
    policy: Policy,
    widths: Sequence[int] = (),
    predictor: OperatorPredictor | None = None,
) -> tuple[WhatIf, ...]:
    """The what-if of a policy, then one for each width of weights and activations, all else as it
    is asked; a width that is named twice is taken once.
    """
    for width in widths:
        check_bits("sweep", width)
    others = (replace(policy, weights=width, activations=width) for width in dict.fromkeys(widths))
    return tuple(what_if(analysis, each, predictor) for each in (policy, *others))


def what_if(
    analysis: Analysis, policy: Policy, predictor: OperatorPredictor | None = None
) -> WhatIf:
    """A model in the bits of a policy, on the machine and threads of its analysis; without what was
    learned of that machine there are only bounds.

    An InputError: an analysis of a step of training, of a model that has no layers or that is
    quantized already, or a policy with names that no layers have.
    """
    changed = _changed(analysis, policy)
    placed = _PlacedChange(analysis, changed, predictor)
    layers, passes = placed.layers(), placed.passes()
    parts = placed.parts(passes)
    eager_min_time_after_s = sum_known(
        each.after_eager_min_time_s for each in parts if each.name != "requantization"
    )
    requantized_s = next(
        each.after_eager_min_time_s for each in parts if each.name == "requantization"
    )
    layer_before, layer_after = layer_bytes(changed)
    model_before, model_after = model_bytes(analysis, changed)
    run = analysis.prediction
    return WhatIf(
        policy=policy,
        layers=layers,
        passes=passes,
        parts=parts,
        layer_bytes_before=layer_before,
        layer_bytes_after=layer_after,
        model_bytes_before=model_before,
        model_bytes_after=model_after,
        eager_min_time_before_s=analysis.totals.eager_min_time_s,
        eager_min_time_after_s=eager_min_time_after_s,
        separate_eager_min_time_s=sum_known((eager_min_time_after_s, requantized_s)),
        minimum_before=MinTimes(**minimum_times_of(analysis.totals)),
        before=Time(s=run.predicted_s, low_s=run.low_s, high_s=run.high_s) if run else None,
        after=placed.time if all(each.has_kernel for each in layers) else None,
        unquantized=unquantized(analysis, changed),
        notes=tuple(_notes(placed, layers, predictor)),
    )


def records_of_torch(analysis: Analysis, policy: Policy) -> tuple[OperatorRecord, ...]:
    """The operators that torch would run for a policy that it has kernels for, free ones too."""
    calls = torch_calls(_changed(analysis, policy))
    if not all(calls):
        raise InputError(f"{analysis.hardware.name} has no kernels for {policy.words}")
    return tuple(record for each in calls for record in each)


def _changed(analysis: Analysis, policy: Policy) -> ChangedPass:
    records = [row.record for row in analysis.operators]
    if any(each.phase != "forward" for each in records):
        raise InputError(
            f"{analysis.model} was analyzed in training; quantization is asked of inference:"
            " analyze it without train"
        )
    if any(each.op.startswith(_QUANTISED) for each in records):
        raise InputError(f"{analysis.model} is quantized already; give the model in floats")
    apart = {each.path for each in analysis.modules if each.kind in RECURRENT}
    changed = ChangedPass(records, policy, Widths(analysis.hardware, analysis.threads), apart)
    layers = changed.structure.layers
    if not layers:
        if any(0 in each.shape for each in analysis.inputs):
            raise InputError(f"{analysis.model} was given no elements: a size is 0")
        raise InputError(
            f"{analysis.model} has no layer that could be quantized: no convolution and no linear"
            " layer with weights of floats"
        )
    known = dict.fromkeys(
        name for each in layers for name in (records[each.index].module_path, each.name)
    )
    for name in policy.layers:
        if name not in known:
            names = ", ".join(list(known)[:_SHOWN])
            hint = (
                did_you_mean(name, known)
                or f"; its layers are {names}{' …' * (len(known) > _SHOWN)}"
            )
            raise InputError(f"'{printable(name)}' is no layer of {analysis.model}{hint}")
    return changed


_Farther = Mapping[str, float]
"""Bytes that must come from each memory level beyond those of short lives, for each byte moved.

How long the model keeps what it makes is not in an analysis, so that everything is taken to end
with its last reader. What memory then seems nearer than it was, by the operators as they are, is
put back: an operator that does not change stands where it stood.
"""


# -- under the roof --------------------------------------------------------------------------------


class _PlacedChange:
    """A changed pass, placed and timed: what all figures of a what-if are taken from.

    ``rows`` are one for each step of the changed pass; with predictions, where torch has kernels
    and something was learned of them. ``time`` is the prediction of the pass; None where a step has
    none.
    """

    def __init__(
        self, analysis: Analysis, changed: ChangedPass, predictor: OperatorPredictor | None
    ) -> None:
        self.analysis, self.changed = analysis, changed
        self.roof = Roof(analysis.hardware, analysis.threads)
        self.time: Time | None = None
        before = self._level_bytes([row.record for row in analysis.operators])
        beyond = [
            {name: crossing - byte.get(name, 0) for name, crossing in row.level_bytes.items()}
            for row, byte in zip(analysis.operators, before, strict=True)
        ]
        # What operators have that become one, for each byte that they move.
        farther: list[_Farther] = []
        for step in changed.steps:
            operators = step.kernel.operators if step.kernel is not None else ()
            moved = sum(analysis.operators[each].traffic_bytes for each in operators)
            found: dict[str, float] = {}
            for each in operators if moved else ():
                for name, byte in beyond[each].items():
                    found[name] = found.get(name, 0.0) + byte / moved
            farther.append(found)
        records = [step.record for step in changed.steps]
        types = [step.compute_as for step in changed.steps]
        rows = tuple(map(row_of, self._placed(records, farther, types)))
        if predictor is not None:
            times = self._times(farther, predictor)
            rows = tuple(
                row
                if time is None
                else replace(
                    row,
                    predicted_s=time.s,
                    predicted_low_s=time.low_s,
                    predicted_high_s=time.high_s,
                )
                for row, time in zip(rows, times, strict=True)
            )
        self.rows = rows
        self.is_timed = any(row.predicted_s is not None for row in rows)
        self._row_of = {
            step.kernel.operators[0]: row
            for step, row in zip(changed.steps, rows, strict=True)
            if step.kernel is not None
        }

    def _level_bytes(self, records: Sequence[OperatorRecord]) -> list[Mapping[str, int]]:
        reuse = trace_residency(_with_ends(records))
        by_pass = reuse.steady if self.analysis.cache == "steady" else reuse.cold
        return [
            {} if record.state is State.FREE else self.roof.level_bytes(reuses)
            for record, reuses in zip(records, by_pass, strict=True)
        ]

    def _placed(
        self,
        records: Sequence[OperatorRecord],
        farther: Sequence[_Farther],
        types: Sequence[DType | None],
    ) -> list[Placement]:
        """Where each operator stands, its operands being reused as the others leave them."""
        placements: list[Placement] = []
        crossing = self._level_bytes(records)
        for record, byte, more, of in zip(records, crossing, farther, types, strict=True):
            moved: dict[str, int] = {}
            most: int | None = None
            for name, near in byte.items():
                far = near + round(more.get(name, 0.0) * record.work.traffic_bytes)
                # The nearest gives all there is, and no level more than one nearer.
                most = near if most is None else max(0, min(most, far))
                moved[name] = most
            reuses = reuses_for(moved, self.roof)
            placements.append(self.roof.place(record, reuses, compute_as=of))
        return placements

    def _times(
        self, farther: Sequence[_Farther], predictor: OperatorPredictor
    ) -> list[Time | None]:
        """Predictions of what torch would run for each step; None where it has no kernel."""
        calls = torch_calls(self.changed)
        # What has no kernel stands for itself: others find the caches as it leaves them.
        run = [each or (step.record,) for each, step in zip(calls, self.changed.steps, strict=True)]
        records = [record for each in run for record in each]
        more = [one for each, one in zip(run, farther, strict=True) for _ in each]
        placements = iter(self._placed(records, more, [None] * len(records)))
        by_step = [[next(placements) for _ in each] for each in run]
        asked = [one for each, known in zip(by_step, calls, strict=True) if known for one in each]
        predicted = predictor.predict(asked, self.roof.threads)
        found = iter(predicted.operators or (None,) * len(asked))
        times: list[Time | None] = []
        for each in calls:
            known = [(record, next(found)) for record in each]
            time = _total(
                Time(s=one.predicted_s, low_s=one.low_s, high_s=one.high_s) if one else None
                for record, one in known
                if record.state is not State.FREE
            )
            times.append(time if each else None)
        whole = predicted.run
        if whole is not None and all(calls) and None not in times:
            self.time = Time(s=whole.predicted_s, low_s=whole.low_s, high_s=whole.high_s)
        return times

    # -- what is shown -----------------------------------------------------------------------------

    def layers(self) -> tuple[LayerWhatIf, ...]:
        """Each layer before and after, in the order in which they run."""
        kernels = {each.operators[0]: each for each in self.changed.kernels}
        found: list[LayerWhatIf] = []
        for layer in self.changed.structure.layers:
            operators, kernel = self.changed.groups[layer.index], kernels[layer.index]
            rows = [self.analysis.operators[each] for each in operators]
            executable = self.changed.executable(layer)
            assert rows[0].macs is not None
            is_quantized = kernel.handling == "layer"
            found.append(
                LayerWhatIf(
                    layer=layer,
                    bits=self.changed.bits[layer.index],
                    operators=operators,
                    output_bits=self.changed.written(kernel) if is_quantized else FLOAT_BITS,
                    executable=executable.dtype.name,
                    has_kernel=executable.has_kernel,
                    parameters=self.changed.weight(layer).elements,
                    macs=rows[0].macs,
                    before=_side(rows),
                    after=_side([self._row_of[each] for each in operators if each in self._row_of]),
                )
            )
        return tuple(found)

    def passes(self) -> tuple[QuantizationPass, ...]:
        """Conversions, and requantization by layers' kernels, in the order in which they run."""
        found: list[QuantizationPass] = []
        for step, row in zip(self.changed.steps, self.rows, strict=True):
            if step.kernel is None:
                found.append(self._conversion(step, row))
            elif step.kernel.handling == "layer" and step.kernel.layer is not None:
                (codes,) = step.record.outputs
                if codes.dtype.kind != "float":
                    found.append(self._requantization(step.record, codes, step.kernel.layer))
        return tuple(found)

    def _conversion(self, step: Step, row: OperatorRow) -> QuantizationPass:
        (before,), (after,) = row.inputs, row.outputs
        assert row.flop is not None
        names = {each.index: each.name for each in self.changed.structure.layers}
        reader = self.changed.records[row.index]
        op = reader.op.removeprefix("aten.")
        where = f"{reader.module_path} ({op})" if reader.module_path else op
        return QuantizationPass(
            kind="quantize" if step.is_down else "dequantize",
            where=names.get(row.index, where),
            operator=row.index,
            elements=before.elements,
            # What is left as it is has the bits of its type.
            from_bits=before.dtype.bits if step.from_bits == FLOAT_BITS else step.from_bits,
            to_bits=after.dtype.bits if step.to_bits == FLOAT_BITS else step.to_bits,
            read_bytes=before.byte,
            written_bytes=after.byte,
            flop=row.flop,
            is_separate=True,
            eager_min_time_s=row.eager_min_time_s,
            time=_time_of([row]),
        )

    def _requantization(
        self, record: OperatorRecord, codes: TensorSpec, layer: Layer
    ) -> QuantizationPass:
        """Sums are read, scaled, shifted, clipped, rounded and written as codes."""
        elements = math.prod(codes.shape)
        flop = QUANTIZE_FLOP * elements
        sums = replace(
            codes,
            dtype=_ACCUMULATOR,
            storage=codes.storage + 1,
            offset_bytes=0,
            distinct_elements=elements,
            role=Role.ACTIVATION,
        )
        walk = replace(
            record,
            op="quantized.requantize",
            type="quantization",
            inputs=(sums,),
            outputs=(codes,),
            work=Work(flop=flop, min_flop=0, **traffic_of((sums,), (codes,))),
        )
        # The sums were just written: they are as near as so many bytes can be.
        near = (Reuse(sums.byte, sums.byte), Reuse(codes.byte, sums.byte + codes.byte))
        return QuantizationPass(
            kind="requantize",
            where=layer.name,
            operator=layer.index,
            elements=codes.elements,
            from_bits=_ACCUMULATOR.bits,
            to_bits=codes.dtype.bits,
            read_bytes=sums.byte,
            written_bytes=codes.byte,
            flop=flop,
            is_separate=False,
            eager_min_time_s=self.roof.place(walk, near).eager_min_time_s,
            time=None,
        )

    def parts(self, passes: Sequence[QuantizationPass]) -> tuple[Part, ...]:
        """Layers, requantization, conversions, shortcuts, and all others.

        The bytes, bounds and times before are those of the whole pass, and so are those after
        without requantization, which kernels do before they write.
        """
        layers = {each.index for each in self.changed.structure.layers}
        part_of: dict[int, PartName] = {
            place: "layers" if start in layers else "shortcuts"
            for start, operators in self.changed.groups.items()
            for place in operators
        }
        additions = {each.addition for each in self.changed.structure.shortcuts}
        counts = {"layers": len(layers), "shortcuts": len(additions)}
        is_timed_before = self.analysis.prediction is not None

        def part(name: PartName) -> Part:
            before = [
                row
                for place, row in enumerate(self.analysis.operators)
                if part_of.get(place, "others") == name
            ]
            after = [
                row for place, row in self._row_of.items() if part_of.get(place, "others") == name
            ]
            return Part(
                name=name,
                count=counts.get(name, len(working(before))),
                before_bytes=sum(row.traffic_bytes for row in before),
                after_bytes=sum(row.traffic_bytes for row in after),
                before_eager_min_time_s=sum_eager_min_time_s(before),
                after_eager_min_time_s=sum_eager_min_time_s(after),
                before_time=_time_of(before) if is_timed_before else None,
                after_time=_time_of(after) if self.is_timed else None,
            )

        def added(name: PartName, of: Sequence[QuantizationPass]) -> Part:
            return Part(
                name=name,
                count=len(of),
                before_bytes=0,
                after_bytes=sum(each.traffic_bytes for each in of),
                before_eager_min_time_s=0.0,
                after_eager_min_time_s=sum_known(each.eager_min_time_s for each in of),
                before_time=NOTHING if is_timed_before else None,
                after_time=_total(each.time for each in of) if self.is_timed else None,
            )

        return (
            part("layers"),
            added("requantization", [each for each in passes if not each.is_separate]),
            added("conversions", [each for each in passes if each.is_separate]),
            part("shortcuts"),
            part("others"),
        )


def _with_ends(records: Sequence[OperatorRecord]) -> tuple[OperatorRecord, ...]:
    """The records, each with the storages that nobody touches after it.

    What is written and never read is the result, which stays.
    """
    last: dict[int, int] = {}
    for place, record in enumerate(records):
        if record.state is not State.FREE:
            for spec in (*record.inputs, *record.outputs):
                if not spec.role.persists:
                    last[spec.storage] = place
    ends: dict[int, list[int]] = {}
    for storage, place in last.items():
        if any(spec.storage == storage for spec in records[place].inputs):
            ends.setdefault(place, []).append(storage)
    return tuple(
        replace(record, freed=tuple(ends.get(place, ()))) for place, record in enumerate(records)
    )


def _total(times: Iterable[Time | None]) -> Time | None:
    """One after the other; None if one of them is unknown. The ends of intervals add up, too."""
    found = tuple(times)
    known = [each for each in found if each is not None]
    if len(known) != len(found):
        return None
    return Time(
        s=sum(each.s for each in known),
        low_s=sum_known(each.low_s for each in known),
        high_s=sum_known(each.high_s for each in known),
    )


def _time_of(rows: Iterable[OperatorRow]) -> Time | None:
    """The predictions of operators, added up; None if one of them has none."""
    return _total(
        None
        if row.predicted_s is None
        else Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)
        for row in working(rows)
    )


def _side(rows: Sequence[OperatorRow]) -> Side:
    """Operators taken together; level and ceiling are those of the one with the longest bound."""
    decisive = max(rows, key=lambda row: row.eager_min_time_s or 0.0)
    flop = sum_known(row.flop for row in rows)
    eager_min_time_s = sum_eager_min_time_s(rows)
    crossing = sum(row.level_bytes.get(decisive.level, 0) for row in rows)
    attainable = None
    if eager_min_time_s is not None and decisive.bound is not Bound.UNKNOWN:
        # The rate of all where each runs at the rate that its ceiling allows. A bound leaves out
        # FLOP that a kernel may leave out (padding taps), so that all FLOP by the sum of bounds
        # would lie above the roof.
        taken_s = sum_known(
            row.flop / row.attainable_flop_per_s
            if row.flop and row.attainable_flop_per_s
            else row.eager_min_time_s
            for row in rows
        )
        attainable = flop / taken_s if flop is not None and taken_s else None
    return Side(
        weight_bytes=sum(row.parameter_bytes for row in rows),
        input_bytes=sum(row.input_bytes for row in rows),
        output_bytes=sum(row.output_bytes for row in rows),
        flop=flop,
        level=decisive.level,
        ceiling=decisive.ceiling,
        bound=decisive.bound,
        eager_min_time_s=eager_min_time_s,
        intensity_flop_per_byte=flop / crossing if flop is not None and crossing else None,
        attainable_flop_per_s=attainable,
        time=_time_of(rows),
    )


# -- notes -----------------------------------------------------------------------------------------


def _notes(
    placed: _PlacedChange, layers: Sequence[LayerWhatIf], predictor: OperatorPredictor | None
) -> Iterable[str]:
    """What to know of the figures of a what-if, one line each."""
    analysis = placed.analysis
    # Widths that the machine cannot compute with.
    missing = Counter((each.bits.words, each.executable) for each in layers if not each.has_kernel)
    for (words, executable), count in missing.items():
        ceiling = placed.roof.compute(dtype(executable))
        under = f" under {ceiling.label}" if ceiling is not None else ""
        yield (
            f"{analysis.hardware.name} has no kernel for {words}: {counted(count, 'layer')}"
            f" {'is' if count == 1 else 'are'} a {BANDWIDTH_ONLY}, computed as {executable}{under}"
        )
    # Widths that the machine computes with, and of which nothing was learned.
    untimed = [
        each
        for each in layers
        if each.has_kernel and each.after.time is None and not each.bits.is_float
    ]
    if untimed and analysis.hardware.host is not None:
        types = ", ".join(dict.fromkeys(each.executable for each in untimed))
        learned = "nothing" if predictor is None else "too little"
        yield (
            f"{counted(len(untimed), 'layer')} in {types} {'has' if len(untimed) == 1 else 'have'}"
            f" no predicted time: {learned} of {types} on {counted(analysis.threads, 'thread')} was"
            " measured (`roofline calibrate` measures it)"
        )
    # Its own time need not be known for that: what reads it is predicted by the layout.
    writes_images = any(
        each.has_kernel
        and each.executable == INT8
        and analysis.operators[each.operators[0]].op.endswith("convolution")
        for each in layers
    )
    if placed.is_timed and not analysis.run.channels_last and writes_images:
        yield (
            "torch's int8 convolutions write images channels-last: what reads them is predicted so"
        )
    shared = weights_of_others(placed.changed)
    if shared:
        yield (
            f"{counted(len(shared), 'layer')} share{'s' * (len(shared) == 1)} weights with"
            " operators that stay in floats: the size counts them twice, as codes and as floats"
        )
