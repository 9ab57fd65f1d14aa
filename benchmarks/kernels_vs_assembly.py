"""Compares roofline's kernels with hand-written assembly and with compiled C, on this host.

Usage: ``python benchmarks/kernels_vs_assembly.py [--seconds 20] [--output FILE.md]``

Needs gcc and an x86-64 CPU with AVX2. Both sides run in the same timing harness, on the same
threads, over the same memory, in interleaved rounds; what differs is the kernel alone.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llvmlite.binding as llvm

from roofline.core.dtypes import dtype
from roofline.machine.hierarchy.cache_sizes import find_levels
from roofline.machine.hierarchy.working_sets import DRAM, plan_working_sets
from roofline.machine.kernels import assembly
from roofline.machine.kernels.assembly import Kernel
from roofline.machine.kernels.compiler import CompiledKernel, compile_kernel, harness_ir
from roofline.machine.kernels.compute import fma_kernel
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring import workers as memory
from roofline.machine.measuring.estimation import Burst, bursts_per_call, estimate, interleave
from roofline.machine.measuring.pinned_threads import PinnedThreads
from roofline.machine.measuring.trials import Trial, compute_trial, stream_trial
from roofline.machine.system.host import available_memory_bytes, describe_host
from roofline.machine.system.topology import describe_topology

CFLAGS = ["-O3", "-funroll-loops", "-march=native", "-mprefer-vector-width=512", "-shared", "-fPIC"]
# Without this gcc turns the copy loop into a call of memcpy, which is another kernel.
CFLAGS += ["-fno-tree-loop-distribute-patterns", "-ffp-contract=fast"]

FMA_C = r"""
#include <stdint.h>
/* The state: a multiplier, a multiplicand, then the sums, in slots of 64 bytes. */
void {name}(char *state, int64_t offset, int64_t length) {{
    __asm__ volatile(
        ".irp n, {sums}\n vmovups 128+64*\\n(%[state]), %%{register}\\n\n .endr\n"
        "vmovups (%[state]), %%{register}{m}\n vmovups 64(%[state]), %%{register}{a}\n"
        ".p2align 6\n"
        "1:\n"
        ".rept 4\n .irp n, {sums}\n"
        "{instruction} %%{register}{m}, %%{register}{a}, %%{register}\\n\n"
        ".endr\n .endr\n"
        "dec %[length]\n jnz 1b\n"
        ".irp n, {sums}\n vmovups %%{register}\\n, 128+64*\\n(%[state])\n .endr\n"
        "vzeroupper\n"
        : [length] "+r"(length) : [state] "r"(state) : "memory", "cc", {clobbers});
}}
"""

STREAM_C = r"""
struct streams { float *a, *b, *c; float s; };
#define PART(p) (float *)__builtin_assume_aligned((char *)(p) + offset, 64)
void c_copy(struct streams *state, int64_t offset, int64_t length) {
    float *restrict a = PART(state->a), *restrict b = PART(state->b);
    for (int64_t i = 0; i < length / 4; i++) a[i] = b[i];
}
void c_triad(struct streams *state, int64_t offset, int64_t length) {
    float *restrict a = PART(state->a), *restrict b = PART(state->b), *restrict c = PART(state->c);
    const float s = state->s;
    for (int64_t i = 0; i < length / 4; i++) a[i] = b[i] + s * c[i];
}
"""


def fma_source(name: str, unit: assembly.VectorUnit, element: str) -> str:
    """Hand-written assembly of the same loop: as many sums, unrolled as often."""
    count, _ = unit.accumulators
    used = range(count + 2)
    return FMA_C.format(
        name=name,
        sums=",".join(map(str, range(count))),
        register="zmm" if unit.bits == 512 else "ymm",
        m=count,
        a=count + 1,
        instruction="vfmadd231ps" if element == "float32" else "vfmadd231pd",
        clobbers=", ".join(f'"xmm{i}"' for i in used),
    )


def build(source: str, folder: Path) -> ctypes.CDLL:
    """The C source as a library loaded into this process."""
    file, library = folder / "kernels.c", folder / "kernels.so"
    file.write_text(source, encoding="utf-8")
    subprocess.run(["gcc", *CFLAGS, str(file), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def foreign(kernel: Kernel, library: ctypes.CDLL, name: str) -> CompiledKernel:
    """A C function in roofline's timing harness, in the place of `kernel`."""
    function = getattr(library, name)
    address = ctypes.cast(function, ctypes.c_void_p).value
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = llvm.get_process_triple()
    module = llvm.parse_assembly(
        f'target triple = "{triple}"\ndeclare void @kernel(ptr, i64, i64)\n'
        f"{harness_ir(kernel.unit.architecture)}"
    )
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=3, jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.add_global_mapping(module.get_function("kernel"), address)
    engine.finalize_object()
    bench = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    return CompiledKernel(kernel, function, bench(engine.get_function_address("bench")), engine)


def pairs(
    library: ctypes.CDLL, threads: int, workers: PinnedThreads
) -> list[tuple[str, Trial, Trial]]:
    """Rows: a label, roofline's trial, the C or assembly trial."""
    host, topology = describe_host(), describe_topology()
    teams = (1, threads) if threads > 1 else (1,)
    rows: list[tuple[str, Trial, Trial]] = []
    for unit in fma_units(host.instruction_sets):
        for element in ("float32", "float64"):
            kernel = fma_kernel(dtype(element), unit)
            own = compile_kernel(kernel)
            other = foreign(kernel, library, f"fma_{unit.name}_{element}")
            rows += [
                (
                    f"fma {element} {unit.name}, {team} thr.",
                    compute_trial(own, team),
                    compute_trial(other, team),
                )
                for team in teams
            ]
    levels = find_levels(None, topology).levels
    sets, _ = plan_working_sets(levels, topology, teams, available_memory_bytes())
    most = max(each.bytes_per_thread for each in sets)
    buffers = [memory.allocate(memory.extent_bytes(most, 3)) for _ in range(threads)]
    workers.each(lambda i: memory.fill(buffers[i], lambda: workers.stopped))
    unit = assembly.stream_unit(host.architecture, host.instruction_sets)
    assert unit is not None
    for kernel in stream_kernels(unit):
        if kernel.name not in ("copy", "triad"):
            continue
        own, other = compile_kernel(kernel), foreign(kernel, library, f"c_{kernel.name}")
        rows += [
            (
                f"{kernel.name} {each.level}, {each.threads} thr.",
                stream_trial(own, each, buffers),
                stream_trial(other, each, buffers),
            )
            for each in sets
        ]
    return rows


def fma_units(instruction_sets: tuple[str, ...]) -> list[assembly.VectorUnit]:
    """The units to compare that this host has."""
    return [
        unit
        for unit in (assembly.AVX512, assembly.AVX2)
        if assembly.can_run(unit, "x86_64", instruction_sets)
    ]


def compare(
    rows: list[tuple[str, Trial, Trial]], workers: PinnedThreads, seconds: float
) -> list[str]:
    """Runs all trials in interleaved rounds; the rows of the table."""
    # Within a round one side comes after the other: back to back over the same memory, the second
    # of a pair would find one or two per cent of it in the last cache.
    trials = [own for _, own, _ in rows] + [other for _, _, other in rows]
    for _, own, other in rows:
        own.calibrate(workers)
        # The same work per burst on both sides.
        other.repeats, other.burst_s = own.repeats, own.burst_s

    def run(trial: Trial) -> list[Burst]:
        bursts = bursts_per_call(seconds, len(trials), trial.burst_s)
        return trial.run(workers, min(bursts, trial.most_bursts or bursts))

    results = interleave(
        trials,
        run,
        deadline=time.perf_counter() + seconds,
        clock=time.perf_counter,
        progress=lambda done, trial: None,
    )
    table: list[str] = []
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for i, (label, own, _) in enumerate(rows):
        mine, theirs = (estimate(own.work_per_burst, bursts) for bursts in results[i :: len(rows)])
        ratio = mine.sustained / theirs.sustained
        in_memory = own.working_set is not None and own.working_set.level == DRAM
        ratios[in_memory].append(ratio)
        table.append(
            f"| {label} | {mine.sustained / 1e9:.1f} ± {mine.spread:.1%} | {mine.peak / 1e9:.1f} "
            f"| {theirs.sustained / 1e9:.1f} ± {theirs.spread:.1%} | {theirs.peak / 1e9:.1f} "
            f"| {ratio:.3f} | {mine.peak / theirs.peak:.3f} |"
        )
    table.append("")
    for in_memory, name in ((False, "registers and caches"), (True, "DRAM")):
        each = ratios[in_memory]
        table.append(
            f"Sustained, {name}: median ratio {statistics.median(each):.3f},"
            f" {min(each):.3f} to {max(each):.3f}."
        )
    return table


def main() -> None:
    """Builds, runs and prints or writes the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    host, topology = describe_host(), describe_topology()
    if shutil.which("gcc") is None or not fma_units(host.instruction_sets):
        sys.exit("needs gcc and an x86-64 CPU with AVX2")
    source = "".join(
        fma_source(f"fma_{unit.name}_{element}", unit, element)
        for unit in fma_units(host.instruction_sets)
        for element in ("float32", "float64")
    )
    load = Path("/proc/loadavg").read_text(encoding="utf-8").split()[0]
    threads = topology.available_cpus
    with tempfile.TemporaryDirectory() as folder, PinnedThreads(threads, topology.cores) as workers:
        library = build(source + STREAM_C, Path(folder))
        table = compare(pairs(library, threads, workers), workers, options.seconds)
    version = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    text = "\n".join(
        [
            "# roofline's kernels against hand-written assembly and C",
            "",
            "Rates in GFLOP/s (fma) and GB/s (copy, triad); ± is the interquartile range. The FMA"
            " loops stand against inline assembly with as many sums and the same unrolling, the"
            " streams against plain C loops. Both sides run in the same harness, in interleaved"
            " rounds over the same memory.",
            "",
            f"* {datetime.date.today().isoformat()}, {host.cpu_model}, {threads} CPUs,"
            f" {host.operating_system}; load {load} at the start",
            f"* llvmlite {host.versions['llvmlite']}; {version.stdout.splitlines()[0]}"
            f" {' '.join(CFLAGS)}",
            f"* again: `python benchmarks/kernels_vs_assembly.py --seconds {options.seconds:g}"
            " --output benchmarks/kernels_vs_assembly.md`",
            "",
            "| kernel | roofline | peak | C / assembly | peak | ratio | ratio of peaks |",
            "|---|---|---|---|---|---|---|",
            *table,
            "",
        ]
    )
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
