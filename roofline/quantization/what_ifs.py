"""Estimates of lower precision: the quantized pass under the roofline, next to the analysis."""

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
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound, Placement, Roof
from roofline.quantization.policy import FLOAT_BITS, RECURRENT, Layer, Policy, check_bits
from roofline.quantization.quantized_pass import QuantizedPass, Step
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    LayerWhatIf,
    Part,
    PartName,
    QuantizationOverhead,
    Side,
    WhatIf,
)
from roofline.quantization.torch_calls import torch_calls
from roofline.quantization.weight_storage import (
    layer_bytes,
    model_bytes,
    shared_weights,
    unquantized,
)
from roofline.quantization.widths import INT8, Widths
from roofline.workload.formulas.quantized import QUANTIZE_FLOP
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_QUANTIZED = ("quantized.", "aten.quantize_", "onednn.q")
"""Operator prefixes of models with quantized weights."""

_SHOWN = 5
"""Number of layer names in error messages."""

_ACCUMULATOR = dtype("int32")


def evaluate_policies(
    analysis: Analysis,
    policy: Policy,
    widths: Sequence[int] = (),
    predictor: OperatorPredictor | None = None,
) -> tuple[WhatIf, ...]:
    """Return the what-if of a policy, then one per distinct width of weights and activations."""
    for width in widths:
        check_bits("sweep", width)
    others = (replace(policy, weights=width, activations=width) for width in dict.fromkeys(widths))
    return tuple(evaluate_policy(analysis, each, predictor) for each in (policy, *others))


def evaluate_policy(
    analysis: Analysis, policy: Policy, predictor: OperatorPredictor | None = None
) -> WhatIf:
    """Return the what-if of a policy on the machine and threads of an analysis; without a
    predictor, minimum times only.

    Raises:
        InputError: the analysis is of training, or of a model without layers or already quantized;
            or the policy names unknown layers.
    """
    changed = _quantized_pass(analysis, policy)
    placed = _PlacedPass(analysis, changed, predictor)
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
    """Return the operators that torch would run for a policy with kernels, including free ones."""
    calls = torch_calls(_quantized_pass(analysis, policy))
    if not all(calls):
        raise InputError(f"{analysis.hardware.name} has no kernels for {policy.words}")
    return tuple(record for each in calls for record in each)


def _quantized_pass(analysis: Analysis, policy: Policy) -> QuantizedPass:
    records = [row.record for row in analysis.operators]
    if any(each.phase != "forward" for each in records):
        raise InputError(
            f"{analysis.model} was analyzed in training, but quantization requires inference;"
            " analyze it without train"
        )
    if any(each.op.startswith(_QUANTIZED) for each in records):
        raise InputError(f"{analysis.model} is already quantized; give the float model")
    apart = {each.path for each in analysis.modules if each.kind in RECURRENT}
    changed = QuantizedPass(records, policy, Widths(analysis.hardware, analysis.threads), apart)
    layers = changed.structure.layers
    if not layers:
        if any(0 in each.shape for each in analysis.inputs):
            raise InputError(f"{analysis.model}: empty input, a size is 0")
        raise InputError(
            f"{analysis.model} has no layer to quantize: no convolution or linear layer with float"
            " weights"
        )
    known = dict.fromkeys(
        name for each in layers for name in (records[each.index].module_path, each.name)
    )
    for name in policy.layers:
        if name not in known:
            names = ", ".join(list(known)[:_SHOWN])
            hint = did_you_mean(name, known) or f"; layers: {names}{' …' * (len(known) > _SHOWN)}"
            raise InputError(f"{analysis.model} has no layer '{printable(name)}'{hint}")
    return changed


_ExtraTraffic = Mapping[str, float]
"""Bytes per byte moved that cross each memory level beyond the traffic of minimum lifetimes.

An analysis does not contain lifetimes, so every value is assumed to end with its last reader. The
excess of the actual traffic of the unchanged operators is added again, so that an unchanged
operator keeps its position.
"""


# -- under the roof --------------------------------------------------------------------------------


class _PlacedPass:
    """Quantized pass with placements and times: source of all figures of a what-if.

    ``rows`` has one entry per step, with predictions where torch has calibrated kernels. ``time``
    is the prediction of the whole pass; None if a step has none.
    """

    def __init__(
        self, analysis: Analysis, changed: QuantizedPass, predictor: OperatorPredictor | None
    ) -> None:
        self.analysis, self.changed = analysis, changed
        self.roof = Roof(analysis.hardware, analysis.threads)
        self.time: Time | None = None
        before = self._level_bytes([row.record for row in analysis.operators])
        beyond = [
            {name: crossing - byte.get(name, 0) for name, crossing in row.level_bytes.items()}
            for row, byte in zip(analysis.operators, before, strict=True)
        ]
        # Extra traffic of fused operators, per byte moved.
        farther: list[_ExtraTraffic] = []
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
        reuse = trace_residency(_with_last_uses(records))
        by_pass = reuse.steady if self.analysis.cache == "steady" else reuse.cold
        return [
            {} if record.state is State.FREE else self.roof.level_bytes(reuses)
            for record, reuses in zip(records, by_pass, strict=True)
        ]

    def _placed(
        self,
        records: Sequence[OperatorRecord],
        farther: Sequence[_ExtraTraffic],
        types: Sequence[DType | None],
    ) -> list[Placement]:
        """Return the placements of operators, with reuse distances of the quantized pass."""
        placements: list[Placement] = []
        crossing = self._level_bytes(records)
        for record, byte, more, of in zip(records, crossing, farther, types, strict=True):
            moved: dict[str, int] = {}
            most: int | None = None
            for name, near in byte.items():
                far = near + round(more.get(name, 0.0) * record.work.traffic_bytes)
                # Traffic decreases with distance; the nearest level serves all of it.
                most = near if most is None else max(0, min(most, far))
                moved[name] = most
            reuses = reuses_for(moved, self.roof)
            placements.append(self.roof.place(record, reuses, compute_as=of))
        return placements

    def _times(
        self, farther: Sequence[_ExtraTraffic], predictor: OperatorPredictor
    ) -> list[Time | None]:
        """Return the predictions of torch's kernels for each step; None: no kernel."""
        calls = torch_calls(self.changed)
        # Steps without a kernel still affect the caches.
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

    # -- results -----------------------------------------------------------------------------------

    def layers(self) -> tuple[LayerWhatIf, ...]:
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
                    output_bits=self.changed.written_bits(kernel) if is_quantized else FLOAT_BITS,
                    executable=executable.dtype.name,
                    has_kernel=executable.has_kernel,
                    parameters=self.changed.weight(layer).elements,
                    macs=rows[0].macs,
                    before=_combine_rows(rows),
                    after=_combine_rows(
                        [self._row_of[each] for each in operators if each in self._row_of]
                    ),
                )
            )
        return tuple(found)

    def passes(self) -> tuple[QuantizationOverhead, ...]:
        """Return conversions, and requantization in layer kernels, in execution order."""
        found: list[QuantizationOverhead] = []
        for step, row in zip(self.changed.steps, self.rows, strict=True):
            if step.kernel is None:
                found.append(self._conversion(step, row))
            elif step.kernel.handling == "layer" and step.kernel.layer is not None:
                (codes,) = step.record.outputs
                if codes.dtype.kind != "float":
                    found.append(self._requantization(step.record, codes, step.kernel.layer))
        return tuple(found)

    def _conversion(self, step: Step, row: OperatorRow) -> QuantizationOverhead:
        (before,), (after,) = row.inputs, row.outputs
        assert row.flop is not None
        names = {each.index: each.name for each in self.changed.structure.layers}
        reader = self.changed.records[row.index]
        op = reader.op.removeprefix("aten.")
        where = f"{reader.module_path} ({op})" if reader.module_path else op
        return QuantizationOverhead(
            kind="quantize" if step.is_quantize else "dequantize",
            where=names.get(row.index, where),
            operator=row.index,
            elements=before.elements,
            # Unquantized values have the bits of their type.
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
    ) -> QuantizationOverhead:
        """Return the requantization of a layer: sums are read, scaled, shifted, clipped,
        rounded, written.
        """
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
        # The sums were just written: minimum reuse distances.
        near = (Reuse(sums.byte, sums.byte), Reuse(codes.byte, sums.byte + codes.byte))
        return QuantizationOverhead(
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

    def parts(self, passes: Sequence[QuantizationOverhead]) -> tuple[Part, ...]:
        """Return layers, requantization, conversions, shortcuts, and other operators.

        They add up to the whole pass, after without requantization, which is part of the kernels.
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

        def added(name: PartName, of: Sequence[QuantizationOverhead]) -> Part:
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


def _with_last_uses(records: Sequence[OperatorRecord]) -> tuple[OperatorRecord, ...]:
    """Return the records, each with the storages that are not used after it.

    Values that are never read are results, which stay.
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
    """Return the sum of times and interval ends; None if one is unknown."""
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
    """Return the summed predictions of operators; None if one has none."""
    return _total(
        None
        if row.predicted_s is None
        else Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)
        for row in working(rows)
    )


def _combine_rows(rows: Sequence[OperatorRow]) -> Side:
    """Return the combined figures of operators, with level and ceiling of the slowest one."""
    decisive = max(rows, key=lambda row: row.eager_min_time_s or 0.0)
    flop = sum_known(row.flop for row in rows)
    eager_min_time_s = sum_eager_min_time_s(rows)
    crossing = sum(row.level_bytes.get(decisive.level, 0) for row in rows)
    attainable = None
    if eager_min_time_s is not None and decisive.bound is not Bound.UNKNOWN:
        # Combined rate with each operator at its own ceiling. Minimum times omit avoidable FLOP
        # (padding taps), so all FLOP over their sum could exceed the roofline.
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
    placed: _PlacedPass, layers: Sequence[LayerWhatIf], predictor: OperatorPredictor | None
) -> Iterable[str]:
    analysis = placed.analysis
    # Widths without a kernel.
    missing = Counter((each.bits.words, each.executable) for each in layers if not each.has_kernel)
    for (words, executable), count in missing.items():
        ceiling = placed.roof.compute(dtype(executable))
        under = f" under {ceiling_text(ceiling.label)}" if ceiling is not None else ""
        yield (
            f"{analysis.hardware.name} has no kernel for {words}: {counted(count, 'layer')}"
            f" {'is' if count == 1 else 'are'} a {BANDWIDTH_ONLY}, computed as {executable}{under}"
        )
    # Widths with a kernel, but without calibration.
    untimed = [
        each
        for each in layers
        if each.has_kernel and each.after.time is None and not each.bits.is_float
    ]
    if untimed and analysis.hardware.host is not None:
        types = ", ".join(dict.fromkeys(each.executable for each in untimed))
        has = "has" if len(untimed) == 1 else "have"
        calibrated = "no" if predictor is None else "insufficient"
        yield (
            f"{counted(len(untimed), 'layer')} in {types} {has} no predicted time: {calibrated}"
            f" calibration of {types} on {counted(analysis.threads, 'thread')}"
            " (run `roofline calibrate`)"
        )
    # The layout affects predictions of readers, even without a predicted time here.
    writes_images = any(
        each.has_kernel
        and each.executable == INT8
        and analysis.operators[each.operators[0]].op.endswith("convolution")
        for each in layers
    )
    if placed.is_timed and not analysis.run.channels_last and writes_images:
        yield (
            "torch's int8 convolutions write channels-last images; predictions of readers assume it"
        )
    shared = shared_weights(placed.changed)
    if shared:
        yield (
            f"{counted(len(shared), 'layer')} share{'s' * (len(shared) == 1)} weights with"
            " float operators: the model size counts them twice, as codes and as floats"
        )
