"""Predictions of operators and passes on GPUs that are not at hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofline.core.rows import grouped
from roofline.core.text import counted
from roofline.latency.gpu.chips import Chip
from roofline.latency.gpu.corrections import Correction, cell_of
from roofline.latency.gpu.kernels import Kernel, fused_kernel_of, has_formula, kernel_of
from roofline.latency.gpu.learned import Learned, shipped
from roofline.latency.gpu.times import group_of, prior_deviation, seconds, start_s
from roofline.latency.learning import Z_80
from roofline.latency.prediction import NOT_PREDICTED, Predicted, Prediction, RunPrediction
from roofline.latency.samples import EarlierRun
from roofline.placement import Placement, Roof
from roofline.run import Run
from roofline.workload.fusion import FusedOperator, fused_records
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import trace_residency

_OWN = "on this machine"
"""End of the words on measurements of the predicted machine itself."""

_NAMED = 4
"""Operators named in a note."""

_HOST_DEVIATION = 0.4
"""Deviation of the logarithm of the time of dispatch: hosts differ by twice and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPredictor:
    """Predictor of one GPU from its data sheet; a `MachinePredictor`."""

    chip: Chip
    learned: Learned = field(default_factory=shipped)
    corrections: Mapping[tuple[str, str], Correction] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Description of the measurements behind predictions."""
        times = sum(each.times for each in self.corrections.values())
        own = f"; {counted(times, 'measurement')} {_OWN}" if self.corrections else ""
        return f"public measurements of GPUs{own}"

    def earlier_run(
        self, placements: Sequence[Placement], run: Run, threads: int
    ) -> EarlierRun | None:
        """Return None: nothing was measured on this GPU."""
        del placements, run, threads

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Return predictions of operators, and of their pass."""
        found = self.operators(placements, threads)
        at_work = [
            (each, prediction)
            for each, prediction in zip(placements, found, strict=True)
            if each.record.state is not State.FREE
        ]
        known = [prediction for _, prediction in at_work if prediction is not None]
        notes = list(self._notes(at_work))
        if len(known) < len(at_work):
            left = [each.record for each, found in at_work if found is None]
            names = ", ".join(sorted({each.op for each in left})[:_NAMED])
            reason = f"no measurements of their type on such a GPU: {names}"
            if all(each.state is State.UNKNOWN for each in left):
                reason = f"unknown FLOP of {names}; add a formula (docs/how-to/formulas.md)"
            notes.append(f"{len(left)} of {len(at_work)}{NOT_PREDICTED}{reason}")
        run = None
        if known and len(known) == len(at_work):
            least_s = sum(each.eager_min_time_s or 0.0 for each, _ in at_work)
            run = self.whole(known, len(placements), least_s)
        return Predicted(operators=found, run=run, notes=tuple(notes))

    def predict_compiled(
        self, records: Sequence[OperatorRecord], fused: Sequence[FusedOperator], roof: Roof
    ) -> RunPrediction | None:
        """Return the prediction of a pass that a compiler fused; None where one is missing."""
        pairs = fused_records(records, fused)
        steady = trace_residency([kernel for _, kernel in pairs]).steady
        kernels: list[Kernel] = []
        least_s: list[float] = []
        for (members, kernel), reuses in zip(pairs, steady, strict=True):
            level_bytes = roof.level_bytes(reuses)
            done = [records[each] for each in members]
            found = fused_kernel_of(done, float(list(level_bytes.values())[-1]))
            if found is None:
                continue
            is_counted = all(each.state is not State.UNKNOWN for each in done)
            if not is_counted or group_of(found, self.chip, self.learned) is None:
                return None
            kernels.append(found)
            written_bytes = sum(each.byte for each in kernel.outputs)
            least_s.append(roof.memory_bound(level_bytes, written_bytes)[0] or 0.0)
        if not kernels or not self.learned.compiled:
            return None
        known = self.kernels(kernels, least_s, compiled=True)
        return self.whole(known, len(kernels), sum(least_s))

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """Return predictions of operators alone; None: free, or of a type without measurements."""
        del threads
        at_work = [
            place for place, each in enumerate(placements) if each.record.state is not State.FREE
        ]
        kernels = {place: kernel_of(placements[place]) for place in at_work}
        known = {
            place: each
            for place, each in kernels.items()
            if group_of(each, self.chip, self.learned)
            and has_formula(placements[place].record, each)
        }
        least_s = [placements[place].eager_min_time_s or 0.0 for place in known]
        found = dict(zip(known, self.kernels(list(known.values()), least_s), strict=True))
        return tuple(found.get(place) for place in range(len(placements)))

    def kernels(
        self, kernels: Sequence[Kernel], least_s: Sequence[float], *, compiled: bool = False
    ) -> list[Prediction]:
        """Return predictions of kernels of known groups, each at least its minimum time.

        Formulas know DRAM and arithmetic; L2 and boost clocks can make the minimum longer.
        """
        times = seconds(kernels, self.chip, self.learned, compiled=compiled)
        return [
            self._prediction(kernel, float(time_s), least, compiled=compiled)
            for kernel, time_s, least in zip(kernels, times, least_s, strict=True)
        ]

    def _prediction(
        self, kernel: Kernel, time_s: float, least_s: float, *, compiled: bool
    ) -> Prediction:
        group = group_of(kernel, self.chip, self.learned)
        assert group is not None
        deviation, is_extrapolated = prior_deviation(kernel, self.chip, self.learned)
        samples, learned_from = group.rows, group.words
        if (known := self.corrections.get(cell_of(kernel, self.chip))) is not None:
            start = start_s(kernel, self.chip, self.learned, compiled=compiled)
            time_s, deviation, is_extrapolated = known.apply(time_s, start)
            kind = " ".join(filter(None, cell_of(kernel, self.chip)))
            samples = known.times
            learned_from = f"{counted(samples, 'measurement')} of {kind} {_OWN}"
        predicted_s = max(time_s, least_s)
        factor = math.exp(Z_80 * deviation)
        return Prediction(
            predicted_s=predicted_s,
            low_s=max(predicted_s / factor, least_s),
            high_s=predicted_s * factor,
            samples=samples,
            distance=0.0,
            is_extrapolated=is_extrapolated,
            deviation=deviation,
            learned_from=learned_from,
        )

    def _notes(self, at_work: Sequence[tuple[Placement, Prediction | None]]) -> Iterable[str]:
        """Yield what predictions lack."""
        if self.chip.assumed:
            yield (
                f"the machine file lacks {', '.join(self.chip.assumed)}: predictions assume usual"
                " figures, in wider intervals"
            )
        left = (found.learned_from for _, found in at_work if found and found.is_extrapolated)
        if subjects := ", ".join(dict.fromkeys(left)):
            yield f"extrapolated from {subjects}; intervals are wider"

    def whole(self, known: Sequence[Prediction], calls: int, least_s: float = 0.0) -> RunPrediction:
        """Return the prediction of a pass; the host dispatches while the GPU computes.

        `least_s` is its minimum time.
        Its deviation is that of whole runs on chips left out, of similar and other architectures.
        Operators that this machine's own times correct err by kind: in sum at most as runs on other
        architectures.
        """
        operators_s = sum(each.predicted_s for each in known)
        host_s = calls * self.learned.dispatch_s
        predicted_s = max(operators_s, host_s)
        far_s = sum(each.predicted_s for each in known if each.is_extrapolated)
        far = far_s / operators_s if operators_s else 0.0
        near_deviation, far_deviation = (
            self.learned.pass_deviation,
            self.learned.pass_far_deviation,
        )
        deviation = near_deviation + far * (far_deviation - near_deviation)
        deviation *= math.sqrt(1 + len(self.chip.assumed))
        own = grouped(
            (each for each in known if each.learned_from.endswith(_OWN)),
            lambda each: each.learned_from,
        )
        shares = (
            sum(each.predicted_s * min(each.deviation, far_deviation) for each in of_kind)
            for of_kind in own.values()
        )
        deviation = math.hypot(deviation, *(each / operators_s for each in shares))
        learned_from = [each.learned_from for each in known if each.learned_from not in own]
        if own:
            times = sum(first.samples for first, *_ in own.values())
            learned_from.append(f"{counted(times, 'measurement')} {_OWN}")
        if host_s > operators_s:
            deviation = math.hypot(deviation, _HOST_DEVIATION)
        factor = math.exp(Z_80 * deviation)
        return RunPrediction(
            predicted_s=predicted_s,
            low_s=max(predicted_s / factor, least_s),
            high_s=predicted_s * factor,
            operators_s=operators_s,
            overhead_s=predicted_s - operators_s,
            calibration="; ".join(dict.fromkeys(learned_from)),
        )
