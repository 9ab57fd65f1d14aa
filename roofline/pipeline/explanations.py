"""How this machine would be measured, put together from what it is now."""

from __future__ import annotations

from roofline.errors import MeasurementError, RooflineError
from roofline.machine import catalog
from roofline.machine.hardware import Host
from roofline.machine.measuring.explanation import KernelPlan, Section, explain
from roofline.machine.system.situation import read_situation


def explain_measurement() -> tuple[Section, ...]:
    """What `measure_hardware` will do on this machine and why, in words; measures nothing."""
    from roofline.machine.hierarchy.cache_sizes import find_levels
    from roofline.machine.hierarchy.working_sets import DRAM, plan_working_sets
    from roofline.machine.kernels.compiler import host_features

    situation = read_situation(compiler_features=host_features)
    count = situation.topology.available_cpus
    # What all threads together will go over in DRAM, as far as caches are what is reported.
    levels = find_levels(None, situation.topology).levels
    sets, _ = plan_working_sets(levels, situation.topology, (count,), situation.available_bytes)
    in_memory = (each.bytes_per_thread * count for each in sets if each.level == DRAM)
    last, problem = None, ""
    if catalog.host_file().exists():
        try:
            last = catalog.load_hardware(catalog.HOST)
        except RooflineError as error:
            problem = f"It cannot be read, and the next measurement takes its place: {error}"
    sections = explain(
        situation,
        _kernels(situation.host),
        threads=count,
        array_bytes=next(in_memory, None),
        profile_file=catalog.host_file(),
        last=last,
    )
    return (*sections, Section(title="What is kept", lines=(problem,))) if problem else sections


def _kernels(host: Host) -> KernelPlan:
    from roofline.machine.kernels import register_loop
    from roofline.machine.kernels.compute import COMPUTE_KERNELS, compute_kernels

    sets = frozenset(host.instruction_sets)
    here = [each for each in COMPUTE_KERNELS if each.unit.architecture == host.architecture]
    refused: dict[str, str] = {}
    if any(each.unit.name == "amx" for each in compute_kernels(host.architecture, sets)):
        try:
            register_loop.request_permission()
        except MeasurementError as error:
            refused["amx"] = str(error)
    able: dict[str, dict[str, list[str]]] = {}
    lacking: dict[str, set[str]] = {}
    for each in here:
        if not each.unit.instruction_sets <= sets:
            lacking.setdefault(each.unit.name, set()).update(each.unit.instruction_sets - sets)
        elif each.unit.name not in refused:
            able.setdefault(str(each.dtype), {}).setdefault(each.name, []).append(each.unit.name)
    return KernelPlan(
        measured=tuple(
            f"{element} ({', '.join(f'{name} on {_words(on)}' for name, on in by_kernel.items())})"
            for element, by_kernel in able.items()
        ),
        lacking={unit: ", ".join(sorted(missing)) for unit, missing in lacking.items()},
        refused=refused,
        used_sets=frozenset(name for each in here for name in each.unit.instruction_sets),
    )


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
