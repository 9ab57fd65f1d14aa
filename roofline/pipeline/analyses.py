"""analyze, compare_machines and analyze_compiled: a model counted and placed on machines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis
from roofline.design.comparison.result import Comparison
from roofline.design.compilation import Compilation
from roofline.errors import HardwareError, InputError, argument
from roofline.foundation.progress import Progress
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.advising import with_findings
from roofline.pipeline.assembly import assemble
from roofline.pipeline.machines import (
    Hardware,
    hardware_for,
    host_hardware,
    means_host,
    predictor_of,
    threads_on,
)
from roofline.pipeline.measuring import check_threads_of_host
from roofline.pipeline.runs import CapturedPass, captured_pass
from roofline.placement import Roof
from roofline.run import OnMachinesKeywords, PlacedKeywords, RunOptions, takes

if TYPE_CHECKING:
    import torch

    Model = torch.nn.Module | Callable[..., Any] | str


@takes(PlacedKeywords)
def analyze(
    model: Model,
    inputs: Any = None,
    *,
    progress: Progress | None = None,
    **run: Unpack[PlacedKeywords],
) -> Analysis:
    """Every operator of one pass, counted, and placed under a machine's ceilings.

    The model runs once on fake tensors, in eval mode and without gradients, or with ``train`` one
    step of training: no weights are allocated, and a module that is given is left as it was. What
    needs values to run (control flow that depends on them) runs for real, on copies, and
    ``warnings`` say so.

    Args:
        model: a module, a function, or a name: ``"resnet50"`` (torchvision's, else timm's, else
            transformers'), ``"timm:resnet50"``, ``"hf:bert"``, ``"hf:BertForMaskedLM"``,
            ``"package.module:factory"``, ``"file.py:Model"``, or a design with the shape that goes
            in: ``"conv2d(64,64,3)+relu()@56x56"`` (docs/designs.md).
        inputs: a tensor, a shape such as ``(1, 3, 224, 224)`` or ``"1x3x224x224"``, a sequence of
            these for several positional inputs, a mapping for keyword inputs, or both as
            ``roofline.Inputs(x, mask=m)``; each may be nested as the model takes it. Only shapes
            and data types matter. None: what the model is known to take.
        progress: told how far the measurement of this machine is, where one is needed.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs, data type or batch are wrong.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    options = RunOptions.of(inputs, **run)
    (known,) = known_machines([options.hardware], options.threads)
    captured = captured_pass(model, inputs, options, on=known.device)
    analysis = placed_on(
        captured, known, threads=options.threads, cold=options.cold, progress=progress
    )
    return with_findings(analysis, options.hardware)


@takes(PlacedKeywords)
def compare_machines(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Sequence[Hardware],
    progress: Progress | None = None,
    **run: Unpack[OnMachinesKeywords],
) -> Comparison:
    """One model on several machines: which operators are compute-bound here, memory-bound there.

    The model runs once for CPUs and once for GPUs, where there are such, and its operators are
    placed under the ceilings of each machine.

    Args:
        model, inputs, progress: as for `analyze`.
        hardware: at least two machines, as `analyze` takes them; ``"host"`` is this one. `threads`
            are those of each CPU; other devices compute with all of theirs.

    Raises:
        InputError: fewer than two machines, or one of them twice; and whatever `analyze` raises.
    """
    if not isinstance(hardware, Sequence) or isinstance(hardware, str):
        raise InputError(
            f"hardware: expected a list of at least two machines, got {hardware!r};"
            " for one of them there is roofline.analyze"
        )
    machines = list(hardware)
    if len(machines) < 2:
        raise InputError("several machines are compared: for one of them there is roofline.analyze")
    for position, each in enumerate(machines):
        if each in machines[:position]:
            name = each.name if isinstance(each, HardwareProfile) else each
            raise InputError(f"{argument('hardware', name)} is given twice; name it once")
    options = RunOptions.of(inputs, **run)
    known = known_machines(machines, options.threads)

    @functools.cache
    def passed(device: str) -> CapturedPass:
        return captured_pass(model, inputs, options, on=device)

    analyses = placed_on_each(
        passed, known, threads=options.threads, cold=options.cold, progress=progress
    )
    return Comparison.of_machines(list(map(with_findings, analyses, machines)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMachine:
    """A machine as it was asked for, and its profile with notes; None: it must be measured."""

    asked: Hardware | None
    found: tuple[HardwareProfile, tuple[str, ...]] | None

    @property
    def device(self) -> str:
        """Its device; what must be measured is a CPU."""
        return self.found[0].device if self.found else "cpu"


def known_machines(
    machines: Sequence[Hardware | None], threads: int | None
) -> tuple[KnownMachine, ...]:
    """The machines that are meant, all checked before ten seconds go into measuring this one.

    Raises:
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    known: list[KnownMachine] = []
    for hardware in machines:
        found = None
        if not means_host(hardware) or catalog.host_file().exists():
            found = hardware_for(hardware)
            threads_on(found[0], threads, alone=len(machines) == 1)
        elif threads is not None:
            check_threads_of_host(threads)
        known.append(KnownMachine(asked=hardware, found=found))
    none_is_cpu = all(each.device != "cpu" for each in known)
    if threads is not None and len(machines) > 1 and none_is_cpu:
        raise HardwareError(
            f"{argument('threads', threads)}: none of these machines is a CPU; leave it out"
        )
    return tuple(known)


def placed_on_each(
    passed: Callable[[str], CapturedPass],
    machines: Sequence[KnownMachine],
    *,
    threads: int | None,
    cold: bool,
    progress: Progress | None,
) -> list[Analysis]:
    """A pass under the ceilings of each machine, with so many threads of each CPU."""
    return [
        placed_on(
            passed(machine.device),
            machine,
            threads=threads,
            cold=cold,
            progress=progress,
            alone=len(machines) == 1,
        )
        for machine in machines
    ]


def placed_on(
    captured: CapturedPass,
    machine: KnownMachine,
    *,
    threads: int | None,
    cold: bool,
    progress: Progress | None,
    predict: bool = True,
    alone: bool = True,
) -> Analysis:
    """The pass under the ceilings of a machine, with so many of its threads.

    Args:
        alone: whether it is the only machine; beside others, `threads` are those of CPUs.
    """
    profile, hardware_notes = machine.found or host_hardware(progress)
    # What was learned is of passes whose caches the pass before had filled.
    asks_learned = predict and not cold
    predictor = predictor_of(profile, machine.asked, captured.capture.run) if asks_learned else None
    return assemble(
        captured.name,
        captured.inputs,
        captured.capture,
        captured.reuse,
        Roof(profile, threads_on(profile, threads, alone=alone)),
        cold=cold,
        notes=(*captured.notes, *hardware_notes),
        predictor=predictor,
        runs=predictor.runs_here if predictor else (),
    )


@takes(PlacedKeywords)
def analyze_compiled(
    model: Model,
    inputs: Any = None,
    *,
    progress: Progress | None = None,
    **run: Unpack[PlacedKeywords],
) -> Compilation:
    """The kernels that Inductor generates for a model, beside the operators that eager torch calls.

    Dynamo, Inductor's scheduler and its code generator run as `torch.compile(model)` runs them; the
    generated C++ is not built, and no weights are needed where fake tensors do. Bytes, launches and
    buffers are Inductor's own. Where they cannot be had, ``compiled.why_not`` says why.

    Args:
        model, inputs, progress: as for `analyze`.

    Raises:
        ModelError: the model is unknown, cannot be built, rejects its inputs, or is compiled
            already.
        InputError: inputs, data type or batch are wrong.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    options = RunOptions.of(inputs, **run)
    (known,) = known_machines([options.hardware], options.threads)
    captured = captured_pass(model, inputs, options, on=known.device, with_model=True)
    from roofline.workload.capture.inductor import compiled_pass

    source = captured.model.source
    compiled = compiled_pass(
        source.module,
        captured.model.given,
        run=options.run(known.device),
        teaching=options.teaching(),
        rebuild=source.rebuild,
    )
    analysis = placed_on(
        captured, known, threads=options.threads, cold=options.cold, progress=progress
    )
    return Compilation(analysis=with_findings(analysis, options.hardware), compiled=compiled)
