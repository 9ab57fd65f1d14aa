"""quantize: what fewer bits would be worth for a model, what they cost, and what really runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis
from roofline.errors import InputError
from roofline.foundation.progress import Progress, Say
from roofline.latency.predictor import Predictor
from roofline.pipeline.analyses import CapturedPass, captured_pass, known_machines, placed_on
from roofline.pipeline.learned import predictor_of
from roofline.pipeline.machines import Hardware
from roofline.pipeline.optimization_trials import check_bench
from roofline.pipeline.quantization_requests import (
    Budget,
    budget_of,
    check_companions,
    check_functions,
    check_switches,
    policy_of,
    widths_of,
)
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.workloads import check_counts
from roofline.quantization.policy import Policy, Shortcut
from roofline.quantization.result import Quantization, Sensitivity, WhatIf
from roofline.quantization.what_if import what_if, what_ifs

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.quantization_companions import Companions

    Model = torch.nn.Module | Callable[..., Any] | str


def quantize(
    model: Model,
    inputs: Any = None,
    *,
    policy: Policy | str | Path | None = None,
    weights: int | None = None,
    activations: int | None = None,
    first_last: int | None = None,
    shortcut: Shortcut | None = None,
    per_channel: bool = False,
    sweep: Sequence[int] = (),
    hardware: Hardware | None = None,
    sensitivity: bool = False,
    size_budget: int | str | None = None,
    time_budget: float | str | None = None,
    samples: Any = None,
    measure: bool = False,
    rounds: int | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Quantization:
    """What fewer bits would be worth for a model on a machine, and what they cost.

    The layers of the model (convolutions and linear layers) are put under the roof again with their
    weights and activations in few bits. Requantisation, conversions and shortcuts stand on their
    own. Widths for which the machine has no kernel are a bandwidth-only what-if: bytes and bounds,
    and no times. A module that is given is left as it was.

    Args:
        model, inputs, hardware, dtype, batch, seq, threads: as for `analyze`; inference only.
        policy: bits for all layers and for single ones, as a value or as the JSON file of one, or
            of a saved result; None: as the next ones say.
        weights, activations: bits from 1 to 16, or 32 for floats; where only one is given the other
            stays float, and with neither both are 2.
        first_last: bits of the first and the last layer, where all others have fewer; None: 8.
        shortcut: ``"full"`` (None): layers on shortcuts, and what shortcuts carry, stay floats;
            ``"low"``: they have the bits of the others.
        per_channel: weights have a scale for each output channel.
        sweep: further widths, each for weights and activations, with the rest of the policy.
        sensitivity: quantises one layer at a time and ranks them by the error that it makes.
        size_budget, time_budget: bytes of the model (``1_000_000`` or ``"1MB"``) or seconds of a
            pass (``0.005`` or ``"5ms"``), within which a policy with bits for each layer is
            proposed; with `sensitivity`.
        samples: what errors are computed with, as `inputs`; None: random numbers; with
            `sensitivity`.
        measure: runs the model in the types for which torch has kernels here, in turn with it.
        rounds: how often these are timed; None: 7.
        force: times although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.

    Returns:
        The result: a what-if for the policy, and one for each width of the sweep.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: an option is wrong, the model has no layers with weights, or is quantised.
        HardwareError: unknown hardware.
        MeasurementError: something is to be timed, and others compute.
    """
    check_switches(per_channel=per_channel, sensitivity=sensitivity, measure=measure, force=force)
    check_functions(progress=progress, say=say)
    check_counts(batch=batch, seq=seq, threads=threads, inputs=inputs)
    wanted = policy_of(
        policy,
        weights=weights,
        activations=activations,
        first_last=first_last,
        shortcut=shortcut,
        per_channel=per_channel,
    )
    widths = widths_of(sweep)
    budget = budget_of(size_budget, time_budget, sensitivity=sensitivity)
    if samples is not None and not sensitivity:
        raise InputError("samples have no effect without sensitivity=True; add it")
    check_companions(hardware, measure=measure, rounds=rounds)
    options = RunOptions(dtype=dtype)
    (known,) = known_machines([hardware], threads)
    run = options.run(known.device)
    tell = _onwards(progress)
    captured = captured_pass(model, inputs, options, run=run, batch=batch, seq=seq)
    _check_model(captured, wanted)
    analysis = placed_on(captured, known, threads=threads, cold=False, progress=tell)
    predictor = predictor_of(analysis.hardware, hardware, run)
    asked = what_ifs(analysis, wanted, widths, predictor)
    if measure:
        # Before minutes go into errors of layers beside which nothing could be timed.
        check_bench(force=force, say=say)
    steps = _Steps(captured=captured, analysis=analysis, predictor=predictor, tell=tell, say=say)
    ranking = None
    if sensitivity:
        ranking = steps.sensitivity(asked[0], samples, budget, end=0.5 if measure else 1.0)
    found, conditions = (), ()
    if measure:
        timed = steps.companions(
            model,
            inputs,
            batch=batch,
            seq=seq,
            rounds=rounds,
            force=force,
            begin=0.5 if sensitivity else 0.0,
        )
        found, conditions = timed.found, timed.conditions
    return Quantization(
        model=analysis.model,
        analysis=analysis,
        what_ifs=asked,
        native_variants=found,
        sensitivity=ranking,
        warnings=(*analysis.warnings, *conditions),
    )


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """One model on one machine, and what is done with it beside the what-if."""

    captured: CapturedPass
    analysis: Analysis
    predictor: Predictor | None
    tell: Progress
    say: Say | None

    def what_if(self, policy: Policy) -> WhatIf:
        """The model in the bits of another policy."""
        return what_if(self.analysis, policy, self.predictor)

    def sensitivity(
        self, asked: WhatIf, samples: Any, budget: Budget | None, *, end: float
    ) -> Sensitivity:
        """Layers in few bits one at a time; progress ends at `end`."""
        from roofline.pipeline.quantization_sensitivity import sensitivity_of

        return sensitivity_of(
            self.captured.workload,
            self.captured.run,
            asked,
            ask=self.what_if,
            samples=samples,
            budget=budget,
            progress=lambda done, what: self.tell(end * done, what),
        )

    def companions(
        self,
        model: Model,
        inputs: Any,
        *,
        batch: int | None,
        seq: int | None,
        rounds: int | None,
        force: bool,
        begin: float,
    ) -> Companions:
        """The model run here in lower precision; progress begins at `begin`."""
        from roofline.pipeline.quantization_companions import companions

        return companions(
            model,
            inputs,
            analysis=self.analysis,
            what_if_of=self.what_if,
            batch=batch,
            seq=seq,
            rounds=rounds,
            force=force,
            progress=lambda done, what: self.tell(begin + (1 - begin) * done, what),
            say=self.say,
        )


def _check_model(captured: CapturedPass, policy: Policy) -> None:
    """Refuses modules that are quantised already, of which a pass may not tell.

    Raises:
        InputError: says which.
    """
    from roofline.quantization.modules.refusals import check_model

    check_model(captured.workload.source.module, policy)


def _onwards(progress: Progress | None) -> Progress:
    """Progress that never goes back: several things report theirs."""
    most = 0.0

    def told(done: float, what: str) -> None:
        nonlocal most
        most = max(most, done)
        if progress is not None:
            progress(most, what)

    return told
