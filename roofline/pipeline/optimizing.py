"""optimize: a graph that computes the same in less time, searched, proven, and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.errors import InputError
from roofline.foundation.progress import Progress, Say, silent
from roofline.pipeline.machines import Hardware
from roofline.pipeline.optimization_machine import check_costs, machine_for
from roofline.pipeline.optimization_steps import Baseline, Optimizing
from roofline.pipeline.optimization_trials import check_bench
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.workloads import check_counts, workload_of
from roofline.substitution.costs.cost import CostBasis
from roofline.substitution.result import Optimization
from roofline.substitution.rules.registry import rules_named
from roofline.substitution.search.backtracking import DEFAULT_ALPHA, DEFAULT_BUDGET, check

if TYPE_CHECKING:
    import torch

    Model = torch.nn.Module | Callable[..., Any] | str

DEFAULT_TIME_LIMIT_S = 60.0
"""A search among torchvision's models takes seconds; what takes longer is cut off here with the
best so far, and the result says so."""

_MOST_ROUNDS = 1000


def optimize(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Hardware | None = None,
    cost: CostBasis | None = None,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    rules: str | Path | Sequence[str | Path] = "all",
    split: int | None = None,
    baseline: Baseline = "eager",
    fused: bool = False,
    measure: bool | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    rounds: int | None = None,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Optimization:
    """Searches for a graph that computes what a model computes in less time (MetaFlow).

    The model's operators become a graph, rules rewrite it, and those graphs are followed that cost
    less, or little more, on the machine. The best are compared with the model, output by output,
    and on this machine timed against it. Where none is significantly faster the module that was
    given is the result. A module that is given is left as it was.

    Args:
        model, inputs, dtype, batch, seq, threads: as for `analyze`; inference only.
        hardware: as for `analyze`; on another machine than this nothing is timed.
        cost: what graphs are held against: ``"bound"`` (the roofline, and launches),
            ``"predicted"`` (what was learned by `calibrate`) or ``"measured"`` (every operator is
            timed once on this machine, and remembered). None: predicted where the machine was
            calibrated, else bound.
        alpha: graphs are followed that cost less than `alpha` times the best; 1: only better ones.
        budget: how many graphs are looked through for rewrites at most.
        rules: ``"all"``, ``"safe"`` (no added work, no changed layouts), or names of rules, as text
            with commas between or as a sequence; ``-name`` leaves one out, a path of a Python file
            adds the rules that it registers.
        split: models of more operators than this are searched in pieces of no more; None: 120.
        baseline: what the result must beat: ``"eager"`` torch, or ``"compile"``: both under
            `torch.compile` with freezing.
        fused: bounds of kernels with what follows them in one, as compilers run them.
        measure: times the result end to end; None: where the machine is this one.
        rounds: how often all are timed; None: 7.
        time_limit_s: how long a search may take in seconds; None: as long as it does.
        force: times although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.

    Returns:
        The result: ``module`` ready to run, every rewrite with its saving, and what speaks for it.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: an option is wrong, or asks for another machine than the one named.
        HardwareError: unknown hardware, or nothing is known of it that costs can go by.
        MeasurementError: something is to be timed, and others compute.
    """
    _check_switches(fused=fused, measure=measure, force=force, progress=progress, say=say)
    check_counts(batch=batch, seq=seq, threads=threads, inputs=inputs)
    check_costs(hardware, cost=cost, fused=fused, measure=measure)
    check(alpha, budget, 1)
    _check(baseline=baseline, rounds=rounds, split=split, time_limit_s=time_limit_s)
    run = RunOptions(dtype=dtype).run()
    chosen = rules_named(rules)
    machine = machine_for(
        hardware, cost=cost, fused=fused, threads=threads, run=run, progress=progress
    )
    asked = workload_of(model, inputs, run=run, batch=batch, seq=seq)
    is_timed = machine.is_host if measure is None else measure
    if is_timed:
        # Before minutes go into a search whose result could not be timed.
        check_bench(force=force, say=say)
    optimizing = Optimizing(
        asked=asked,
        run=run,
        machine=machine,
        rules=chosen,
        alpha=alpha,
        budget=budget,
        split=split,
        time_limit_s=time_limit_s,
        baseline=baseline,
        is_timed=is_timed,
        not_timed="another machine" if not machine.is_host else "it was not asked for",
        rounds=rounds,
        force=force,
        progress=_onwards(progress),
        say=say or silent,
    )
    return optimizing.result()


def _check(
    *, baseline: str, rounds: int | None, split: int | None, time_limit_s: float | None
) -> None:
    if baseline not in ("eager", "compile"):
        raise InputError(f"--baseline {baseline}: choose eager or compile")
    if rounds is not None and (type(rounds) is not int or not 1 <= rounds <= _MOST_ROUNDS):
        raise InputError(f"--rounds {rounds}: must be a whole number from 1 to {_MOST_ROUNDS}")
    if split is not None and (type(split) is not int or split < 2):
        raise InputError(f"--split {split}: must be a whole number of operators from 2")
    is_number = isinstance(time_limit_s, Real) and not isinstance(time_limit_s, bool)
    if time_limit_s is not None and not (is_number and time_limit_s > 0):
        raise InputError(f"--time-limit {time_limit_s}: must be a number of seconds above 0")


def _check_switches(
    *, fused: object, measure: object, force: object, progress: object, say: object
) -> None:
    for option, value in (("fused", fused), ("measure", measure), ("force", force)):
        if not isinstance(value, bool) and not (option == "measure" and value is None):
            raise InputError(f"{option}={value!r}: must be True or False")
    for option, value in (("progress", progress), ("say", say)):
        if value is not None and not callable(value):
            raise InputError(f"{option}={value!r}: must be a function, or None")


def _onwards(progress: Progress | None) -> Progress:
    """Progress that never goes back: there may be several searches."""
    most = 0.0

    def told(done: float, what: str) -> None:
        nonlocal most
        most = max(most, done)
        if progress is not None:
            progress(most, what)

    return told
