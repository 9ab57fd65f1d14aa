"""analyze, compare, compare_machines, measure: where models (torch) and the pure side meet.

torch is imported inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import (
    Analysis,
    InputSpec,
    Totals,
    coverage_of,
    known_work,
    read_analysis,
    row_of,
    sum_bound_s,
)
from roofline.design.comparison import Comparison
from roofline.design.machine_comparison import MachineComparison
from roofline.errors import HardwareError, InputError
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.foundation.units import format_byte
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof, place, roof_notes
from roofline.workload.operators import State
from roofline.workload.residency import Residency, residency
from roofline.workload.work import Work

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.passes import Capture

    Model = torch.nn.Module | Callable[..., Any] | str

Progress = Callable[[float, str], None]
"""Told how far a measurement is (0 to 1) and what it is doing."""

Hardware = HardwareProfile | str | Path

_MOST = 2**40
"""More than any batch or thread count; a larger number is a mistake."""


def measure_hardware(
    *, threads: int | None = None, progress: Progress | None = None, save: bool = True
) -> HardwareProfile:
    """Measures this machine's ceilings, in flop/s and byte/s; takes about ten seconds.

    Args:
        threads: how many threads "all" means; by default one for each available core.
        progress: told how far it is.
        save: keep the profile in the user's folder, where `analyze` finds it.

    Raises:
        MeasurementError: nothing could be measured here.
        HardwareError: more threads than this machine has.
        InputError: the profile could not be kept; said before anything is measured.
    """
    from roofline.machine.benchmark import measure_hardware as measure

    if save:
        catalog.check_user_folder()
    profile = measure(threads=threads, progress=progress)
    if save:
        catalog.save_host_profile(profile)
    return profile


def host_hardware(progress: Progress | None = None) -> tuple[HardwareProfile, tuple[str, ...]]:
    """This machine's profile, measured first if it never was, and what to know about it."""
    from roofline.machine.host import describe_host

    if not catalog.host_file().exists():
        try:
            catalog.check_user_folder()
        except InputError as error:
            # Ten seconds of measuring are not thrown away because they cannot be kept.
            profile = measure_hardware(progress=progress, save=False)
            return profile, (f"this machine's profile could not be kept: {error}",)
        return measure_hardware(progress=progress), ()
    return catalog.still_valid(catalog.load_hardware(catalog.HOST), describe_host())


def hardware_for(
    hardware: Hardware | None, progress: Progress | None = None
) -> tuple[HardwareProfile, tuple[str, ...]]:
    """The profile that is meant: given, named, or (None, ``"host"``) that of this machine."""
    if isinstance(hardware, HardwareProfile):
        return hardware, ()
    if hardware is None or _means_host(hardware):
        return host_hardware(progress)
    return catalog.load_hardware(hardware), ()


def _means_host(hardware: str | Path) -> bool:
    """Whether the name is that of this machine: ``"host"``, or the one in its profile."""
    return str(hardware) in (catalog.HOST, catalog.name_of_host())


def analyze(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    progress: Progress | None = None,
) -> Analysis:
    """Every operator of one inference pass, counted, and placed under a machine's ceilings.

    The model runs once on fake tensors, in eval mode and without gradients: no weights are
    allocated, and a module that is given is left as it was. What needs values to run (control flow
    that depends on them) runs for real, on copies, and ``warnings`` say so.

    Args:
        model: a module, a function, or a name: ``"resnet50"`` (torchvision's, else timm's, else
            transformers'), ``"timm:resnet50"``, ``"hf:bert"``, ``"hf:BertForMaskedLM"``,
            ``"package.module:factory"``, ``"file.py:Model"``.
        inputs: a tensor, a shape such as ``(1, 3, 224, 224)`` or ``"1x3x224x224"``, a sequence of
            these for several positional inputs, a mapping for keyword inputs, or both as
            ``roofline.Inputs(x, mask=m)``; each may be nested as the model takes it. Only shapes
            and data types matter. None: what the model is known to take.
        hardware: a profile, the name of one, or a TOML file; None: this machine, measured on first
            use (about ten seconds) and remembered.
        dtype: floating parameters and inputs are taken to have this type, e.g. ``"bfloat16"``.
        batch: replaces the first size of every input.
        seq: how many tokens a transformers model is given; None: 128.
        threads: how many threads the bounds are for; None: all that the hardware has.
        cold: bounds of a first pass, nothing in the caches; else of a repeated one.
        progress: told how far the measurement of this machine is, where one is needed.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs, data type or batch are wrong.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    (analysis,) = _analyses(
        model,
        inputs,
        [hardware],
        dtype=dtype,
        batch=batch,
        seq=seq,
        threads=threads,
        cold=cold,
        progress=progress,
    )
    return analysis


def compare_machines(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Sequence[Hardware],
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    progress: Progress | None = None,
) -> MachineComparison:
    """One model on several machines: which operators are compute-bound here, memory-bound there.

    The model runs once, and its operators are placed under the ceilings of each machine.

    Args:
        hardware: at least two of what `analyze` takes as hardware; ``"host"`` is this machine.
        threads: how many threads of each CPU; None: all that each machine has. Devices that are no
            CPUs always compute with all of theirs.
        model, inputs, dtype, batch, seq, cold, progress: as for `analyze`.

    Raises:
        InputError: fewer than two machines, or one of them twice; and whatever `analyze` raises.
    """
    machines = list(hardware)
    if len(machines) < 2:
        raise InputError("several machines are compared: for one of them there is roofline.analyze")
    for position, each in enumerate(machines):
        if each in machines[:position]:
            name = each.name if isinstance(each, HardwareProfile) else each
            raise InputError(f"--hardware {name} is given twice; name it once")
    analyses = _analyses(
        model,
        inputs,
        machines,
        dtype=dtype,
        batch=batch,
        seq=seq,
        threads=threads,
        cold=cold,
        progress=progress,
    )
    return MachineComparison.of(analyses)


def _analyses(
    model: Model,
    inputs: Any,
    machines: Sequence[Hardware | None],
    *,
    dtype: str | torch.dtype | None,
    batch: int | None,
    seq: int | None,
    threads: int | None,
    cold: bool,
    progress: Progress | None,
) -> list[Analysis]:
    """One capture of the model, placed under the ceilings of each machine."""
    change = dtype_called(str(dtype)) if dtype is not None else None
    if change is not None and change.kind != "float":
        raise InputError(
            f"--dtype {dtype}: parameters take a floating type; try bfloat16, float16 or float64"
        )
    for option, value in (("--batch", batch), ("--seq", seq), ("--threads", threads)):
        if value is not None and (not isinstance(value, int) or not 1 <= value < _MOST):
            raise InputError(f"{option} {value}: must be a whole number from 1")
    if seq is not None and inputs is not None:
        raise InputError(f"--seq {seq} has no effect beside --input; write {seq} into its shape")
    # Whatever can be wrong is found first, before ten seconds go into measuring this machine.
    known: list[tuple[HardwareProfile, tuple[str, ...]] | None] = []
    for hardware in machines:
        is_host = hardware is None or (isinstance(hardware, str) and _means_host(hardware))
        found = None
        if not is_host or catalog.host_file().exists():
            found = hardware_for(hardware)
            _threads_on(found[0], threads, alone=len(machines) == 1)
        elif threads is not None:
            _check_threads_of_host(threads)
        known.append(found)
    several = len(machines) > 1
    if several and threads is not None and all(each and each[0].device != "cpu" for each in known):
        raise HardwareError(f"--threads {threads}: none of these machines is a CPU; leave it out")

    from roofline.workload.capture.passes import capture
    from roofline.workload.inputs import inputs_for, inputs_of
    from roofline.workload.models import sources
    from roofline.workload.torch_dtypes import input_specs, torch_dtype

    given = inputs_of(inputs)
    source = (
        sources.load(model, seq=seq) if isinstance(model, str) else sources.given(model, seq=seq)
    )
    given = inputs_for(source.module, given, source.default_inputs, name=source.name, batch=batch)
    input_notes = source.input_notes if inputs is None else ()
    wanted = torch_dtype(change.name) if change else None
    specs = input_specs(given, wanted)
    captured = capture(
        source.module, given, name=source.name, change=wanted, rebuild=source.rebuild
    )
    reuse = residency(captured.records)
    analyses: list[Analysis] = []
    for found in known:
        profile, hardware_notes = found or host_hardware(progress)
        analysis = _assemble(
            source.name,
            specs,
            captured,
            reuse,
            Roof(profile, _threads_on(profile, threads, alone=len(machines) == 1)),
            cold=cold,
            notes=(*source.notes, *input_notes, *captured.notes, *hardware_notes),
        )
        analyses.append(analysis)
    return analyses


def _threads_on(profile: HardwareProfile, threads: int | None, *, alone: bool) -> int:
    """How many threads of a machine compute; beside others, `threads` means those of CPUs.

    Raises:
        HardwareError: the machine does not have so many.
    """
    if threads is None or (not alone and profile.device != "cpu"):
        return profile.threads
    if not alone and threads > profile.threads:
        raise HardwareError(
            f"--threads {threads} is for every CPU, and '{profile.name}' has {profile.threads}:"
            " leave it out, and each machine uses all of its threads"
        )
    return profile.check_threads(threads)


def _check_threads_of_host(threads: int) -> None:
    from roofline.machine.host import describe_host

    available = describe_host().available_cpus
    if threads > available:
        raise HardwareError(f"--threads {threads}: this machine has {available} CPUs available")


def _assemble(
    name: str,
    inputs: tuple[InputSpec, ...],
    capture: Capture,
    reuse: Residency,
    roof: Roof,
    *,
    cold: bool,
    notes: Sequence[str],
) -> Analysis:
    placements = place(capture.records, reuse, roof, cache="cold" if cold else "steady")
    rows = tuple(row_of(each) for each in placements)
    work = known_work(rows)
    kept = capture.parameter_bytes + capture.buffer_bytes + capture.input_bytes
    unknown = [row for row in rows if row.state is State.UNKNOWN]
    totals = Totals(
        **{each.name: getattr(work, each.name) for each in fields(Work)},
        traffic_byte=work.traffic_byte,
        unknown_operators=len(unknown),
        parameters=capture.parameters,
        parameter_bytes=capture.parameter_bytes,
        buffer_bytes=capture.buffer_bytes,
        peak_memory_byte=kept + reuse.peak_activation_byte,
        all_tensors_byte=kept + reuse.all_activation_byte,
        bound_s=sum_bound_s(rows),
    )
    warnings = [*notes, *roof_notes(placements, roof)]
    warnings += [
        f"when '{roof.profile.name}' was measured: {each}" for each in roof.profile.conditions
    ]
    if unknown:
        names = ", ".join(sorted({row.op for row in unknown}))
        traffic = format_byte(sum(row.traffic_byte for row in unknown))
        warnings.append(
            f"operators without a formula: {len(unknown)} calls of {names}; their FLOP is unknown"
            f" and missing from the totals, their {traffic} count (add one: @roofline.formula)"
        )
    return Analysis(
        model=name,
        inputs=inputs,
        threads=roof.threads,
        cache="cold" if cold else "steady",
        hardware=roof.profile,
        coverage=coverage_of(rows),
        totals=totals,
        operators=rows,
        warnings=tuple(warnings),
    )


def _is_saved(model: object) -> bool:
    return isinstance(model, Analysis) or (isinstance(model, str) and model.endswith(".json"))


def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int = 0,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Models side by side: work, memory, intensity, ceiling and bound, with ratios to one of them.

    Args:
        models: at least two modules, names, saved analyses (``.json``) or `Analysis` values.
        inputs: as for `analyze`, the same for all that are analysed here.
        reference: the index of the model that ratios refer to.
        names: what to call them; by default what they are called.
        hardware, dtype, batch, seq, threads, cold, progress: as for `analyze`.

    Raises:
        InputError: fewer than two models, or analyses of different hardware or threads; and
            whatever `analyze` raises.
    """
    if len(models) < 2:
        raise InputError("a comparison takes at least two models; write roofline compare A B")
    saved = [each for each in models if _is_saved(each)]
    changes = {"--input": inputs, "--dtype": dtype, "--batch": batch, "--seq": seq}
    for option, given in changes.items():
        if saved and given is not None:
            raise InputError(
                f"{option} cannot change an analysis that is saved ({saved[0]}): name its model"
            )
    if len(saved) == len(models):
        for option, given in {"--hardware": hardware, "--threads": threads}.items():
            if given is not None:
                raise InputError(f"{option} has no effect: all of these are saved analyses")
    analyses: list[Analysis] = []
    for model in models:
        if isinstance(model, Analysis):
            analyses.append(model)
        elif isinstance(model, str) and _is_saved(model):
            analyses.append(read_analysis(model))
        else:
            analysis = analyze(
                model,
                inputs,
                hardware=hardware,
                dtype=dtype,
                batch=batch,
                seq=seq,
                threads=threads,
                cold=cold,
                progress=progress,
            )
            analyses.append(analysis)
    return Comparison.of(analyses, reference=reference, names=names)
