"""Findings measured on this machine, interleaved with the unchanged model."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis, Finding
from roofline.core.progress import Progress, Say, silent
from roofline.core.sampling import quantile
from roofline.core.units import format_s
from roofline.design.advice.convolutions import FOLDABLE, fold_pairs
from roofline.design.advice.subject import Operator, Proposal, Subject, Swap
from roofline.design.advice.transformers import COMPILED
from roofline.design.advice.whole_model import Outcome
from roofline.design.comparison.ratios import RoundTime
from roofline.errors import MeasurementError, RooflineError
from roofline.latency.measuring.rounds import Effort, Gauges, run_rounds
from roofline.pipeline.fresh_processes import RunFunction, fresh_processes
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.predictions import last_level_bytes
from roofline.pipeline.timing import Bench, bench, gauged, materialize_model, remeasure
from roofline.run import RunOptions
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec

if TYPE_CHECKING:
    import torch

    from roofline.latency.measuring.calls import Call, TensorArgument


_MOST_PAIRS = 40
"""Maximum number of different operators timed per finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapTimes:
    """Times of a swap before and after by round, in seconds."""

    before_s: tuple[float, ...]
    after_s: tuple[float, ...]

    @property
    def savings_s(self) -> tuple[float, ...]:
        """Savings by round in seconds."""
        pairs = zip(self.before_s, self.after_s, strict=True)
        return tuple(before - after for before, after in pairs)


def times_of_swaps(
    here: Bench, swaps: Sequence[Swap], threads: int, last_level_bytes: int, effort: Effort
) -> list[SwapTimes]:
    """Return the interleaved times of every swap; runs in a fresh process.

    Equal swaps are timed once.
    """
    import torch

    from roofline.machine.library.default_settings import default_settings

    known: dict[object, SwapTimes] = {}
    found: list[SwapTimes] = []
    with torch.no_grad(), default_settings(), gauged(here, threads) as gauges:
        for swap in swaps:
            before = [call_of(each) for each in swap.before]
            after = [call_of(each) for each in swap.after]
            key = (
                *(tuple(each.key(threads) for each in calls) for calls in (before, after)),
                swap.factor,
            )
            if key not in known:
                if len(known) == _MOST_PAIRS:
                    raise MeasurementError(f"more than {_MOST_PAIRS} different operators")
                known[key] = _timed(before, after, swap.factor, gauges, last_level_bytes, effort)
            found.append(known[key])
    return found


def _timed(
    before: Sequence[Call],
    after: Sequence[Call],
    factor: float,
    gauges: Gauges,
    last_level_bytes: int,
    effort: Effort,
) -> SwapTimes:
    from roofline.latency.measuring.calls import RotatedCall, plan_copies
    from roofline.latency.measuring.isolated import cycle_size

    turns: list[RotatedCall] = []
    for call in (*before, *after):
        plan = plan_copies(
            call.storages,
            cycle_bytes=cycle_size(last_level_bytes),
            turns=effort.warm_ups + effort.max_rounds,
        )
        turns.append(RotatedCall(call, plan, sweep=None, clock=gauges.wall))
    rounds = run_rounds(
        [subject for each in turns for subject in (each.prepare, each.call)], gauges, effort
    )
    kept = [[each.seconds[effort.warm_ups + number] for each in turns] for number in rounds.kept]
    return SwapTimes(
        before_s=tuple(sum(times[: len(before)]) for times in kept),
        after_s=tuple(factor * sum(times[len(before) :]) for times in kept),
    )


def call_of(operator: Operator) -> Call:
    """Return the operator call of a record, for tensors of equal shape and type."""
    import torch

    from roofline.latency.measuring.calls import Call

    record = operator.record
    space, _, name = record.op.partition(".")
    packet: Any = getattr(getattr(torch.ops, space), name, None)
    overloads: list[str] = packet.overloads() if packet is not None else []
    overload = next((each for each in ("default", "Tensor") if each in overloads), None)
    if overload is None:
        raise MeasurementError(f"{record.op} cannot be called on its own")
    tensors = [_need(spec, number) for number, spec in enumerate(record.inputs)]
    args: list[Any] = []
    kwargs: list[tuple[str, Any]] = []
    for argument in getattr(packet, overload)._schema.arguments:
        value = _argument(record, argument, tensors)
        if argument.kwarg_only:
            kwargs.append((argument.name, value))
        else:
            args.append(value)
    if tensors:
        raise MeasurementError(f"{record.op} has operands that its record does not distinguish")
    return Call(op=record.op, overload=overload, args=tuple(args), kwargs=tuple(kwargs))


def _argument(record: OperatorRecord, argument: Any, tensors: list[TensorArgument]) -> Any:
    """Return an argument: the next tensor, or the attribute of the record."""
    kind = str(argument.type)
    if kind == "Tensor" or (kind == "Optional[Tensor]" and tensors):
        if not tensors:
            raise MeasurementError(f"{record.op} expects more tensors than its record has")
        return tensors.pop(0)
    if "Device" in kind or argument.name in ("device", "layout", "pin_memory"):
        return None
    value = record.attributes.get(argument.name, argument.default_value)
    if isinstance(value, str) and value.startswith("torch."):
        import torch

        return getattr(torch, value.removeprefix("torch."))
    return tuple(value) if isinstance(value, list) else value


def _need(spec: TensorSpec, number: int) -> TensorArgument:
    """Return the tensor of an operand, with its own storage."""
    from roofline.latency.measuring.calls import TensorArgument
    from roofline.workload.torch_dtypes import torch_dtype

    return TensorArgument(
        shape=spec.shape,
        stride=strides_of(spec),
        dtype=torch_dtype(spec.dtype.name),
        storage=number,
        offset_bytes=0,
        is_kept=spec.role.persists,
    )


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """Return strides in elements by layout; other layouts swap the last two dimensions."""
    order = list(range(len(spec.shape)))
    if spec.layout == "channels-last":
        order = [order[0], *order[2:], order[1]]
    elif spec.layout == "strided" and len(order) > 1:
        # The record does not keep strides: mostly a transposed matrix.
        order[-1], order[-2] = order[-2], order[-1]
    strides, step = [0] * len(order), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(1, spec.shape[dimension])
    return tuple(strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCandidate(Candidate):
    """Model with ``folds``: modules of convolutions and of batch norms to fold; or compiled."""

    folds: tuple[tuple[str, str], ...] = ()
    is_compiled: bool = False


def time_round(here: Bench, whole: ChangedCandidate, effort: Effort) -> RoundTime:
    """Measure passes of a model; runs in a fresh process."""
    asked = whole.workload()
    model = materialize_model(asked)
    if whole.folds:
        model = fold_batch_norms(model, whole.folds)
    found = remeasure(
        here, asked, model, threads=whole.threads, effort=effort, compiled=whole.is_compiled
    )
    return RoundTime(times_s=found.sample.times_s, clock_hz=found.core_state.clock_hz)


def fold_batch_norms(model: torch.nn.Module, pairs: Sequence[tuple[str, str]]) -> torch.nn.Module:
    """Return a copy of a model with batch norms folded into convolutions."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    changed = copy.deepcopy(model).eval()
    # Before any is replaced: one norm may follow several convolutions.
    found = [tuple(map(changed.get_submodule, pair)) for pair in pairs]
    for (first, second), (convolution, norm) in zip(pairs, found, strict=True):
        is_pair = isinstance(convolution, torch.nn.Conv2d)
        if not (is_pair and isinstance(norm, torch.nn.BatchNorm2d)):
            kinds = f"{type(convolution).__name__} and {type(norm).__name__}"
            raise MeasurementError(f"{kinds} cannot be folded by torch.nn.utils.fusion")
        _put(changed, first, fuse_conv_bn_eval(convolution, norm))
        _put(changed, second, torch.nn.Identity())
    return changed


def _put(model: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


_PASSES = Effort(warm_ups=2, min_rounds=3, max_rounds=15, budget_s=0.5)
_QUICK_PASSES = Effort(warm_ups=1, min_rounds=3, max_rounds=5, budget_s=0.1)
_CALLS = Effort(warm_ups=2, min_rounds=7, max_rounds=30, budget_s=0.2)
_QUICK_CALLS = Effort(warm_ups=1, min_rounds=5, max_rounds=7, budget_s=0.05)
_ROUNDS, _QUICK_ROUNDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSaving:
    """Seconds before and after, and the interval of the saving."""

    before_s: float
    after_s: float
    low_s: float
    high_s: float

    @property
    def verdict(self) -> Literal["confirmed", "not confirmed"]:
        """Confirmed if the interval of the saving (10 % to 90 % of rounds) is above zero."""
        return "confirmed" if self.low_s > 0 else "not confirmed"


def try_findings(
    model: Any,
    inputs: Any,
    options: RunOptions,
    *,
    analysis: Analysis,
    proposals: Sequence[Proposal],
    outcomes: Sequence[Outcome],
    top: int,
    quick: bool,
    force: bool,
    progress: Progress | None,
    say: Say | None,
) -> tuple[list[Proposal], list[Outcome], tuple[str, ...]]:
    """Measure the first `top` findings and open outcomes; return them with machine conditions."""
    savings = [each.finding.saving_s or 0.0 for each in (*proposals, *outcomes) if each.finding]
    least_s = sorted(savings, reverse=True)[:top][-1] if savings else 0.0

    def is_asked(finding: Finding | None) -> bool:
        return finding is not None and (finding.saving_s or 0.0) >= least_s

    with (
        bench(force=force, say=say or silent, progress=progress) as here,
        fresh_processes() as process,
    ):
        whole = ChangedCandidate(
            name=analysis.model,
            model=model,
            inputs=inputs,
            options=replace(options, threads=analysis.threads),
        )
        trial = Trial(process, here, whole, analysis, is_quick=quick)
        steps = [each.finding.rule for each in proposals] + [e.variant.name for e in outcomes]
        pending = iter(enumerate(steps))

        def report() -> None:
            done, what = next(pending)
            if progress is not None:
                progress(done / len(steps), what)

        found: list[Proposal] = []
        for each in proposals:
            report()
            found.append(trial.of_operators(each) if is_asked(each.finding) else each)
        others: list[Outcome] = []
        for each in outcomes:
            report()
            others.append(trial.of_model(each) if is_asked(each.finding) or each.is_open else each)
        return found, others, here.conditions


@dataclass(frozen=True, slots=True)
class Trial:
    """Measures changes of one model."""

    process: RunFunction
    here: Bench
    as_it_is: ChangedCandidate
    analysis: Analysis
    is_quick: bool

    def of_operators(self, proposal: Proposal) -> Proposal:
        """Return the measured proposal: in the whole model if possible, else by operators."""
        finding = proposal.finding
        is_foldable, is_compiled = finding.rule == FOLDABLE, finding.rule == COMPILED
        if not (is_foldable or is_compiled or proposal.swaps):
            found = replace(finding, note="not measurable by single operators")
            return replace(proposal, finding=found)
        try:
            if is_compiled:
                measured = self._whole(replace(self.as_it_is, is_compiled=True))
                return replace(proposal, finding=with_measured(finding, measured))
            if is_foldable:
                # Norms alone, replaced by nothing, would always save their time.
                folds = fold_pairs(Subject(self.analysis))
                measured = self._whole(replace(self.as_it_is, folds=tuple(folds)))
                return replace(proposal, finding=with_measured(finding, measured))
            times = self.process(
                times_of_swaps,
                self.here,
                proposal.swaps,
                self.analysis.threads,
                last_level_bytes(self.here.profile),
                _QUICK_CALLS if self.is_quick else _CALLS,
            )
        except (RooflineError, MemoryError) as error:
            words = str(error) or "out of memory"
            return replace(proposal, finding=replace(finding, note=f"not measured: {words}"))
        note = "operators timed alone"
        if not any(each.after for each in proposal.swaps):
            note += ", without replacement"
        found = replace(with_measured(finding, combine_swaps(times)), note=note)
        return replace(proposal, finding=found)

    def of_model(self, outcome: Outcome) -> Outcome:
        """Return the measured outcome, with a new finding if only the measurement confirms it."""
        variant, finding = outcome.variant, outcome.finding
        other = replace(self.as_it_is, options=replace(self.as_it_is.options, **variant.options))
        try:
            measured = self._whole(other, samples=variant.samples, environment=variant.environment)
        except (RooflineError, MemoryError) as error:
            words = str(error) or "out of memory"
            if finding is None:
                return replace(outcome, words=f"{outcome.words}; not measured: {words}")
            return replace(outcome, finding=replace(finding, note=f"not measured: {words}"))
        if finding is not None:
            return replace(outcome, finding=with_measured(finding, measured))
        times = f"{format_s(measured.after_s)} instead of {format_s(measured.before_s)}"
        words = f"{outcome.words}; measured {times}"
        if measured.verdict != "confirmed":
            return replace(outcome, words=words)
        found = Finding(
            rule=variant.rule,
            evidence=f"{outcome.words}, but measured {times}",
            change=variant.change,
        )
        return replace(outcome, finding=with_measured(found, measured), words="")

    def _whole(
        self,
        other: ChangedCandidate,
        *,
        samples: float = 1.0,
        environment: Mapping[str, str] | None = None,
    ) -> MeasuredSaving:
        """Measure the unchanged and the changed model, interleaved in fresh processes."""
        effort = _QUICK_PASSES if self.is_quick else _PASSES
        pairs: list[tuple[RoundTime, RoundTime]] = []
        with contextlib.ExitStack() as stack:
            process = self.process
            if environment:
                process = stack.enter_context(fresh_processes(environment=environment))
            for _ in range(_QUICK_ROUNDS if self.is_quick else _ROUNDS):
                before = self.process(time_round, self.here, self.as_it_is, effort)
                pairs.append((before, process(time_round, self.here, other, effort)))
        return saving_of_rounds(pairs, samples=samples)


def saving_of_rounds(
    pairs: Sequence[tuple[RoundTime, RoundTime]], *, samples: float = 1.0
) -> MeasuredSaving:
    """Return the saving from rounds before and after, at one clock per round."""
    before_s = [before.measured_s for before, _ in pairs]
    after_s = [after.at_clock_of(before) / samples for before, after in pairs]
    saved_s = [one - other for one, other in zip(before_s, after_s, strict=True)]
    before, saved = median(before_s), median(saved_s)
    return MeasuredSaving(
        before_s=before,
        # Their difference is the median saving.
        after_s=max(0.0, before - saved),
        low_s=quantile(saved_s, 0.1),
        high_s=quantile(saved_s, 0.9),
    )


def combine_swaps(times: Sequence[SwapTimes]) -> MeasuredSaving:
    """Return the joint saving of several swaps; errors of equal ones add."""
    before_s = saved_s = 0.0
    below: list[float] = []
    above: list[float] = []
    for each, count in Counter(times).items():
        saving_s = median(each.savings_s)
        before_s += median(each.before_s) * count
        saved_s += saving_s * count
        below.append(count * (saving_s - quantile(each.savings_s, 0.1)))
        above.append(count * (quantile(each.savings_s, 0.9) - saving_s))
    return MeasuredSaving(
        before_s=before_s,
        after_s=max(0.0, before_s - saved_s),
        low_s=saved_s - math.hypot(*below),
        high_s=saved_s + math.hypot(*above),
    )


def with_measured(finding: Finding, measured: MeasuredSaving) -> Finding:
    """Return the finding with its measurement."""
    return replace(
        finding,
        measured_before_s=measured.before_s,
        measured_after_s=measured.after_s,
        measured_low_s=measured.low_s,
        measured_high_s=measured.high_s,
        verdict=measured.verdict,
    )
