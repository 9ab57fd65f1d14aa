"""What a search goes by: the machine that is meant, and what graphs cost on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.errors import HardwareError, InputError, ModelError, said_by
from roofline.foundation.progress import Progress, Say
from roofline.foundation.text import printable
from roofline.latency.measuring.gauges import Gauges
from roofline.latency.predictor import Predictor
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.machine.catalog import name_of_host
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring.pace_gauge import pace_gauge
from roofline.pipeline.isolation import last_level_bytes
from roofline.pipeline.machines import (
    Hardware,
    hardware_for,
    host_environment,
    host_latency_file,
    means_host,
    predictor_of,
    threads_on,
)
from roofline.pipeline.timing import bench
from roofline.placement import Roof
from roofline.substitution.costs.bounds import BoundCosts, FusedCosts
from roofline.substitution.costs.cost import CostBasis, Costs
from roofline.substitution.costs.counted import CountGraph
from roofline.substitution.costs.launches import launches_on
from roofline.substitution.costs.measurements import MeasuredCosts, TimeCalls
from roofline.substitution.costs.predictions import PredictedCosts
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.latency.measuring.calls import Call
    from roofline.workload.inputs import Inputs


def arguments_of(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: given tensors, else noise, or zeros as indices."""
    import torch

    from roofline.workload.capture.reals import Reals
    from roofline.workload.torch_dtypes import dtype_for, torch_dtype

    reals = Reals(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return given.made(lambda request: reals.given(request, dtype_for(request, change)).detach())


def in_type_of(run: Run, original: torch.nn.Module, *, name: str) -> torch.nn.Module:
    """The model itself, or a copy of it in the type that it is to be run in.

    Raises:
        ModelError: it cannot be copied.
    """
    if not run.dtype:
        return original
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        return copy.deepcopy(original).to(torch_dtype(run.dtype))
    # Locks, generators and tensors that were computed cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{name} cannot be copied, which another type takes:"
            f" {type(error).__name__}: {printable(said_by(error)[:200])};"
            " cast it before, and leave --dtype out"
        ) from error


_BASES: tuple[CostBasis, ...] = ("bound", "predicted", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that a model is to be fast on, and what graphs are held against there.

    ``is_host`` says that it is this one; ``predictor`` is what was learned of it, ``basis`` what
    costs are.
    """

    profile: HardwareProfile
    roof: Roof
    predictor: Predictor | None
    basis: CostBasis
    is_fused: bool
    is_host: bool
    notes: tuple[str, ...] = ()

    @property
    def launches_said(self) -> str:
        """What launches were taken to cost; ``""`` where costs are no bounds."""
        return launches_on(self.profile).said if self.basis == "bound" else ""


def is_this_machine(hardware: Hardware | None) -> bool:
    """Whether the host is meant."""
    if isinstance(hardware, HardwareProfile):
        return hardware.name == name_of_host()
    return hardware is None or means_host(hardware)


def check_costs(
    hardware: Hardware | None, *, cost: str | None, fused: bool, measure: bool | None
) -> None:
    """Refuses costs that there cannot be, before anything is captured.

    Raises:
        InputError: no such cost, or one that asks for another machine than `hardware`.
    """
    if cost is not None and cost not in _BASES:
        raise InputError(f"--cost {cost}: choose {', '.join(_BASES[:-1])} or {_BASES[-1]}")
    if fused and cost not in (None, "bound"):
        raise InputError(
            f"--fused --cost {cost}: only bounds are known of fused kernels; take --cost bound, or"
            " leave --fused out"
        )
    if is_this_machine(hardware):
        return
    name = hardware.name if isinstance(hardware, HardwareProfile) else hardware
    if cost == "measured":
        raise InputError(
            f"--cost measured times operators on this machine, and --hardware {name} is another:"
            " take --cost bound (or predicted, where that machine was calibrated), or leave"
            " --hardware out"
        )
    if measure:
        raise InputError(
            f"--measure times the models on this machine, and --hardware {name} is another:"
            " leave one of both out"
        )


def machine_for(
    hardware: Hardware | None,
    *,
    cost: CostBasis | None,
    fused: bool,
    threads: int | None,
    run: Run,
    progress: Progress | None,
) -> Machine:
    """The machine that is meant, and by what its costs are known.

    Raises:
        HardwareError: unknown, without ceilings, not calibrated where predictions are asked for, or
            it does not have so many threads.
    """
    profile, notes = hardware_for(hardware, progress)
    roof = Roof(profile, threads_on(profile, threads, alone=True))
    predictor = predictor_of(profile, hardware, run)
    is_calibrated = predictor is not None and bool(predictor.calibration.runs)
    is_host = is_this_machine(hardware)
    basis: CostBasis = cost or ("predicted" if is_calibrated and not fused else "bound")
    if basis == "predicted" and not is_calibrated:
        fix = (
            "run `roofline calibrate` first, or take --cost bound"
            if is_host
            else "take --cost bound, or put the .latency.sqlite of its calibration beside its file"
        )
        raise HardwareError(
            f"--cost predicted: nothing was learned of hardware '{profile.name}' that can be used"
            f" here; {fix}"
        )
    if basis == "bound" and not profile.memory:
        raise HardwareError(
            f"--cost bound: hardware '{profile.name}' has no ceilings; run `roofline measure`"
            " there, or take other --hardware"
        )
    return Machine(
        profile=profile,
        roof=roof,
        predictor=predictor,
        basis=basis,
        is_fused=fused,
        is_host=is_host,
        notes=notes,
    )


@contextmanager
def costs_on(
    machine: Machine,
    count: CountGraph,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[Costs]:
    """What graphs cost on a machine; while operators may be timed, nothing else is measured there.

    Raises:
        MeasurementError: operators are to be timed, and others compute.
    """
    match machine.basis:
        case "bound":
            kind = FusedCosts if machine.is_fused else BoundCosts
            yield kind(count, machine.roof, launches_on(machine.profile))
        case "predicted":
            assert machine.predictor is not None
            yield PredictedCosts(count, machine.roof, machine.predictor)
        case "measured":
            with _timed_calls(
                machine, pass_bytes=pass_bytes, force=force, progress=progress, say=say
            ) as time:
                yield MeasuredCosts(count, machine.roof, time, machine.predictor)


@contextmanager
def _timed_calls(
    machine: Machine,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[TimeCalls]:
    """Times calls on this machine, none that it timed before."""
    from roofline.latency.measuring.isolated import measure_unique

    threads = machine.roof.threads
    with (
        bench(force=force, say=say) as here,
        Store.open(host_latency_file(), host_environment(), say=say) as store,
        pace_gauge(here.topology.cores[:threads]) as pace,
    ):
        gauges = replace(Gauges(), pace=pace)

        def time(calls: Sequence[Call]) -> list[IsolatedSample | None]:
            return measure_unique(
                calls,
                store=store,
                threads=threads,
                last_level_bytes=last_level_bytes(machine.profile),
                pass_bytes=pass_bytes,
                cores=here.topology.cores,
                gauges=gauges,
                progress=lambda _, what: progress(what),
                say=say,
            )

        yield time
