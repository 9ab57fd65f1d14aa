"""Predictions of operators and passes on GPUs that are not at hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from roofline.core.text import counted
from roofline.latency.gpu.chips import Chip
from roofline.latency.gpu.kernels import Kernel, fused_kernel_of, has_formula, kernel_of
from roofline.latency.gpu.learned import Group, Learned, shipped
from roofline.latency.gpu.times import product_type, seconds
from roofline.latency.learning import Z_80
from roofline.latency.prediction import Predicted, Prediction, RunPrediction
from roofline.latency.samples import EarlierRun
from roofline.placement import Placement, Roof
from roofline.run import Run
from roofline.workload.fusion import FusedOperator, fused_records
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import trace_residency

_HOST_DEVIATION = 0.4
"""Deviation of the logarithm of the time of dispatch: hosts differ by twice and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPredictor:
    """Predictor of one GPU from its data sheet; a `MachinePredictor`."""

    chip: Chip
    learned: Learned = field(default_factory=shipped)
    notes: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Description of the measurements behind predictions."""
        return "public measurements of GPUs"

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
            names = sorted({each.record.op for each, found in at_work if found is None})
            left = len(at_work) - len(known)
            notes.append(
                f"{left} of {counted(len(at_work), 'operator')} are not predicted (no measurements"
                f" of their type on such a GPU): {', '.join(names[:4])}"
            )
        run = self._run(known, len(placements)) if at_work and len(known) == len(at_work) else None
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
            if not is_counted or self._group(found) is None:
                return None
            kernels.append(found)
            written_bytes = sum(each.byte for each in kernel.outputs)
            least_s.append(roof.memory_bound(level_bytes, written_bytes)[0] or 0.0)
        if not kernels or not self.learned.compiled:
            return None
        times = seconds(kernels, self.chip, self.learned, compiled=True)
        known = [
            self._prediction(kernel, max(float(time_s), least))
            for kernel, time_s, least in zip(kernels, times, least_s, strict=True)
        ]
        return self._run(known, len(kernels))

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
            if self._group(each) and has_formula(placements[place].record, each)
        }
        times = seconds(list(known.values()), self.chip, self.learned)
        found: list[Prediction | None] = [None] * len(placements)
        for (place, kernel), time_s in zip(known.items(), times, strict=True):
            # Formulas know DRAM and arithmetic; L2 and boost clocks can make the minimum longer.
            least_s = placements[place].eager_min_time_s or 0.0
            found[place] = self._prediction(kernel, max(float(time_s), least_s))
        return tuple(found)

    def _group(self, kernel: Kernel) -> Group | None:
        """Return the measurements of a kernel's kind and type; None: no prediction is justified."""
        of_type = product_type(kernel.kind, kernel.dtype, self.chip)
        if kernel.is_product and self.chip.gemm_flop_per_s(of_type) is None:
            return None
        return self.learned.group(kernel.kind, of_type, self.chip.architecture)

    def _prediction(self, kernel: Kernel, time_s: float) -> Prediction:
        group = self._group(kernel)
        assert group is not None
        is_extrapolated = self.chip.architecture not in group.architectures
        deviation = group.far_deviation if is_extrapolated else group.deviation
        if self.chip.assumed:
            deviation *= math.sqrt(1 + len(self.chip.assumed))
        factor = math.exp(Z_80 * deviation)
        return Prediction(
            predicted_s=time_s,
            low_s=time_s / factor,
            high_s=time_s * factor,
            samples=group.rows,
            distance=0.0,
            is_extrapolated=is_extrapolated,
            deviation=deviation,
            learned_from=group.words,
        )

    def _notes(self, at_work: Sequence[tuple[Placement, Prediction | None]]) -> Iterable[str]:
        """Yield what predictions lack."""
        if self.chip.assumed:
            yield (
                f"the machine file lacks {', '.join(self.chip.assumed)}: predictions assume usual"
                " figures, in wider intervals"
            )
        if left := [found.learned_from for _, found in at_work if found and found.is_extrapolated]:
            subjects = ", ".join(dict.fromkeys(left))
            yield f"extrapolated to this architecture: {subjects}; intervals are wider"

    def _run(self, known: Sequence[Prediction], calls: int) -> RunPrediction:
        """Return the prediction of a pass; the host dispatches while the GPU computes.

        Its deviation is that of whole runs on chips left out, of similar and other architectures.
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
        if host_s > operators_s:
            deviation = math.hypot(deviation, _HOST_DEVIATION)
        factor = math.exp(Z_80 * deviation)
        return RunPrediction(
            predicted_s=predicted_s,
            low_s=predicted_s / factor,
            high_s=predicted_s * factor,
            operators_s=operators_s,
            overhead_s=predicted_s - operators_s,
            calibration="; ".join(dict.fromkeys(each.learned_from for each in known)),
        )
