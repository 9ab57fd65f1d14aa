"""Compares roofline's ceilings with those of specialised tools, calm and busy, and with themselves.

Usage: ``python benchmarks/machine_vs_peers.py --peers FOLDER [--part all] [--rounds 7]
[--output FILE.md]``

FOLDER holds executables built outside this repository, under these names; what is missing is left
out, and the table says so:

* ``cpufp``: pigirons/cpufp. Its loops, a second a row, are best cut to about 30 ms.
* ``clpeak``: krrishnarraj/clpeak 2.1 or newer, with its CPU backend.
* ``likwid-bench``: RRZE-HPC/likwid. Where CPUID names no frequency it prints no rates unless its
  clock is measured.
* ``stream``: STREAM 5.10 with OpenMP, arrays of at least four times the last cache.
* ``bwbench``, ``bwbench-nt``: RRZE-HPC/TheBandwidthBenchmark with arrays as large, with plain and
  with non-temporal stores; average times printed to the microsecond.

``versions.txt`` beside them, where there is one, is quoted: commits and compilers, a line each.

Parts: ``peers`` runs them and roofline's own kernels in interleaved rounds; ``competitor`` puts a
busy process on every core; ``repeatability`` measures this machine twice, and times the command.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roofline.core.sampling import quantile
from roofline.machine.hardware import HardwareProfile
from roofline.machine.hierarchy.cache_sizes import find_levels
from roofline.machine.hierarchy.working_sets import plan_working_sets
from roofline.machine.kernels.assembly import stream_unit
from roofline.machine.kernels.compiler import compile_kernel
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring import workers as memory
from roofline.machine.measuring.benchmark import measure_hardware
from roofline.machine.measuring.estimation import BUSY, Burst, estimate
from roofline.machine.measuring.pinned_threads import PinnedThreads
from roofline.machine.measuring.trials import Trial, compute_trial, stream_trial
from roofline.machine.system.host import available_memory_bytes, describe_host
from roofline.machine.system.topology import describe_topology

RUN_S = 0.04
"""How long roofline's kernels, likwid's and clpeak's run for a row of a round; cpufp's about so."""

BUSY_RUN_S = 0.4
"""Beside a competitor: much longer than the scheduler's slices, in which threads rarely meet."""

ALONE = "roofline"
AGREE = 0.03
LEAST_AGREEING = 0.95
LEAST_BUSY = 0.95
WALL_S = 10.0
COMMAND_RUNS = 3

MEASUREMENTS = 8

MOVED = 0.5
"""Two hops further apart are those of CPUs near each other, and of CPUs on two dies."""


Row = tuple[str, int]
"""What is measured, ``"float32, 512 bits"`` or ``"L1 read"``, and on how many threads."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Operations or bytes per second in one run: a mean or median, and the best. None: not told."""

    typical: float | None = None
    best: float | None = None


Figures = dict[Row, Figure]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one tool: its name, and what it finds."""

    source: str
    run: Callable[[], Figures]


Results = dict[Row, dict[str, list[Figure]]]
"""Per row and tool a figure per round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the report: its rows, the tools, and the least ratio to the best of them."""

    title: str
    note: str
    names: tuple[str, ...]
    peers: tuple[str, ...]
    least: float


COMPUTE = Table(
    title="Compute, GFLOP/s (int8: GOP/s)",
    note="cpufp and clpeak print the mean of one run.",
    names=(
        "float32, 512 bits",
        "float64, 512 bits",
        "float32, 256 bits",
        "float64, 256 bits",
        "bfloat16, 512 bits",
        "int8, 512 bits",
        "int8, 256 bits",
    ),
    peers=("cpufp", "clpeak"),
    least=0.99,
)
CACHES = Table(
    title="Caches, GB/s",
    note="likwid-bench goes over as many bytes per thread as roofline; clpeak over half of the"
    " level (of L3 more than roofline and likwid-bench take), and a quarter of L1 to copy. Both"
    " print the mean of one run.",
    names=tuple(f"{level} {kernel}" for level in ("L1", "L2", "L3") for kernel in ("read", "copy")),
    peers=("likwid-bench", "clpeak"),
    least=0.97,
)
MEMORY = Table(
    title="DRAM, GB/s",
    note="Bytes as STREAM counts them: those loaded and stored, without write-allocate. STREAM and"
    " TheBandwidthBenchmark print the mean time of all passes over the arrays, and the best.",
    names=tuple(f"DRAM {kernel}" for kernel in ("copy", "triad", "copy-nt", "triad-nt")),
    peers=("stream", "bwbench", "bwbench-nt"),
    least=0.98,
)
TABLES = (COMPUTE, CACHES, MEMORY)


def output_of(command: Sequence[str], **environment: str) -> str:
    """What a peer prints."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{command[0]}: {error}; {getattr(error, 'stderr', '') or ''}".rstrip("; "))


def kept_best(figures: Figures, row: Row, figure: Figure) -> None:
    """Keeps the better of two ways to do the same."""
    if (figures.get(row, Figure()).typical or 0.0) < (figure.typical or 0.0):
        figures[row] = figure


CPUFP_TYPES = {
    "FMA(f32,f32,f32)": "float32",
    "FMA(f64,f64,f64)": "float64",
    "DP2A(f32,bf16,bf16)": "bfloat16",
    "DP4A(s32,u8,s8)": "int8",
}
PREFIX = {"G": 1e9, "T": 1e12}


def cpufp(binary: Path, cpus: Sequence[int]) -> Figures:
    """One run of cpufp on these CPUs: ``| FMA | 256b | FMA(f32,f32,f32) | 126.69 GFLOPS |``."""
    found: Figures = {}
    for line in output_of(
        [str(binary), f"--thread_pool=[{','.join(map(str, cpus))}]"]
    ).splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 4 or cells[2] not in CPUFP_TYPES:
            continue
        value, unit = cells[3].split()
        row = (f"{CPUFP_TYPES[cells[2]]}, {cells[1].removesuffix('b')} bits", len(cpus))
        kept_best(found, row, Figure(float(value) * PREFIX[unit[0]]))
    return found


CLPEAK_TESTS = {
    "single_precision_compute_avx_512": "float32, 512 bits",
    "double_precision_compute_avx_512": "float64, 512 bits",
    "single_precision_compute_avx2_fma": "float32, 256 bits",
    "double_precision_compute_avx2_fma": "float64, 256 bits",
    "bfloat16_compute_avx_512_bf16": "bfloat16, 512 bits",
    "int8_dot_product_compute_avx_512_vnni": "int8, 512 bits",
    "int8_dot_product_compute_avx_vnni": "int8, 256 bits",
    "cache_bandwidth": "{} read",
    "l1_write_bandwidth": "L1 {}",
}
CLPEAK_OPTIONS = (
    "--single-precision-compute",
    "--double-precision-compute",
    "--bfloat16-compute",
    "--int8-dot-product-compute",
    "--cache-bandwidth",
)


def clpeak(binary: Path, threads: int) -> Figures:
    """One run of clpeak's CPU tests, on one thread (ST) and on all of them (MT)."""
    found: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clpeak.json"
        budget = ["--max-time-cpu", str(round(RUN_S * 1e3))]
        output_of([str(binary), "--cpu", *budget, *CLPEAK_OPTIONS, "--json-file", str(file)])
        entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
    for entry in entries:
        name, value = CLPEAK_TESTS.get(entry["test"]), entry.get("value")
        metric, _, team = entry["metric"].rpartition(" ")
        if name and value:
            row = (name.format(metric), 1 if team == "ST" else threads)
            found[row] = Figure(value * 1e9)
    return found


def likwid(binary: Path, row: Row, trial: Trial, wide: bool) -> Figures:
    """One run of the kernel of likwid-bench that does what `trial` does, over as many bytes."""
    assert trial.working_set is not None
    name = {"read": "load", "copy": "copy"}[row[0].split()[1]]
    test = f"{name}_{'avx512' if wide else 'avx'}"
    byte = trial.working_set.bytes_per_thread * trial.threads
    passes = max(1, round(trial.repeats * RUN_S / trial.burst_s))
    text = output_of(
        [str(binary), "-t", test, "-i", str(passes), "-w", f"N:{byte}B:{trial.threads}"]
    )
    rate = re.search(r"^MByte/s:\s+([\d.]+)$", text, re.MULTILINE)
    if rate is None or not float(rate[1]):
        sys.exit(f"{binary} prints no rate: {text}")
    return {row: Figure(float(rate[1]) * 1e6)}


def open_mp(cpus: Sequence[int]) -> dict[str, str]:
    """The environment that pins OpenMP threads to these CPUs."""
    return {
        "OMP_NUM_THREADS": str(len(cpus)),
        "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in cpus),
        "OMP_PROC_BIND": "true",
    }


def stream(binary: Path, cpus: Sequence[int]) -> Figures:
    """One run of STREAM: ``Copy:  40851.2  0.006852  0.006571  0.007346`` (MB/s, avg, min, max)."""
    return bandwidths(output_of([str(binary)], **open_mp(cpus)), len(cpus), scale=1e6, suffix="")


def bwbench(binary: Path, cpus: Sequence[int], suffix: str) -> Figures:
    """One run of TheBandwidthBenchmark: ``Copy  41.40  -  0.006700  0.006500  0.007300``."""
    return bandwidths(
        output_of([str(binary)], **open_mp(cpus)), len(cpus), scale=1e9, suffix=suffix
    )


def bandwidths(text: str, threads: int, *, scale: float, suffix: str) -> Figures:
    """The best rates, and from them and the times the mean ones, of STREAM and its relative."""
    found: Figures = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if words and words[0] in ("Copy", "Triad") and len(words) >= 5:
            best, mean_s, least_s = float(words[1]) * scale, words[-3], words[-2]
            told = len(mean_s.partition(".")[2]) >= 6  # fewer digits are no measurement
            typical = best * float(least_s) / float(mean_s) if told else None
            found[(f"DRAM {words[0].lower()}{suffix}", threads)] = Figure(typical, best)
    return found


@dataclass(slots=True, kw_only=True)
class Own:
    """roofline's side: a workers, and per row the trials that may find its ceiling."""

    workers: PinnedThreads
    cpus: tuple[int, ...]
    wide: bool
    rows: dict[Row, list[Trial]] = field(default_factory=dict[Row, list[Trial]])

    def jobs(self, names: Sequence[str], threads: int) -> list[Job]:
        """A job per form of the rows of these names and this many threads."""
        chosen = {(name, threads): self.rows.get((name, threads), []) for name in names}
        return [
            Job(f"{ALONE} {trial.compiled.kernel.label}", lambda r=row, t=trial: {r: self.run(t)})
            for row, trials in chosen.items()
            for trial in trials
        ]

    def run(self, trial: Trial) -> Figure:
        """Median and peak of the bursts of about `RUN_S`."""
        bursts = self.bursts(trial, RUN_S)
        rate = estimate(trial.work_per_burst, bursts)
        return Figure(rate.sustained, rate.peak)

    def bursts(self, trial: Trial, seconds: float) -> list[Burst]:
        """Bursts of a trial, in as many calls as `seconds` need."""
        found: list[Burst] = []
        deadline = time.perf_counter() + seconds
        while not found or time.perf_counter() < deadline:
            count = max(4, round((deadline - time.perf_counter()) / trial.burst_s))
            found += trial.run(self.workers, min(count, trial.most_bursts or count))
        return found


def prepare(workers: PinnedThreads) -> Own:
    """Compiles and sizes roofline's kernels for all rows, on one thread and on all."""
    host, topology = describe_host(), describe_topology()
    teams = sorted({1, workers.threads})
    own = Own(workers=workers, cpus=topology.cores, wide="avx512f" in host.instruction_sets)
    for kernel in compute_kernels(host.architecture, host.instruction_sets):
        name = f"{kernel.dtype}, {kernel.unit.bits} bits"
        if kernel.name in ("fma", "dot") and name in COMPUTE.names:
            for form in (kernel, kernel.second_form()):
                compiled = compile_kernel(form)
                for team in teams:
                    trials = own.rows.setdefault((name, team), [])
                    trials.append(compute_trial(compiled, team))
    free = available_memory_bytes()
    sets, _ = plan_working_sets(find_levels(None, topology).levels, topology, teams, free)
    most = max(each.bytes_per_thread for each in sets)
    buffers = [memory.allocate(memory.extent_bytes(most, 3)) for _ in range(workers.threads)]
    workers.each(lambda i: memory.fill(buffers[i], lambda: workers.stopped))
    unit = stream_unit(host.architecture, host.instruction_sets)
    for kernel in stream_kernels(unit) if unit else ():
        for form in (kernel, kernel.second_form()):
            wanted = [
                each
                for each in sets
                if f"{each.level} {kernel.name}" in (*CACHES.names, *MEMORY.names)
            ]
            compiled = compile_kernel(form) if wanted else None
            for each in wanted:
                assert compiled is not None
                trials = own.rows.setdefault((f"{each.level} {kernel.name}", each.threads), [])
                trials.append(stream_trial(compiled, each, buffers))
    for trials in own.rows.values():
        for trial in trials:
            trial.calibrate(workers)
    return own


def jobs_of_a_round(own: Own, peers: dict[str, Path]) -> list[Job]:
    """Every tool once: what is compared with one another follows one another."""
    jobs: list[Job] = []
    teams = sorted({1, own.workers.threads})

    def add(source: str, run: Callable[[Path], Figures]) -> None:
        if source in peers:
            jobs.append(Job(source, lambda: run(peers[source])))

    for team in teams:
        cpus = own.cpus[:team]
        add("cpufp", lambda binary, cpus=cpus: cpufp(binary, cpus))
        jobs += own.jobs(COMPUTE.names, team)
    add("clpeak", lambda binary: clpeak(binary, own.workers.threads))
    for team in teams:
        for name in CACHES.names:
            row = (name, team)
            for trial in own.rows.get(row, [])[:1]:
                add(
                    "likwid-bench",
                    lambda binary, row=row, trial=trial: likwid(binary, row, trial, own.wide),
                )
            jobs += own.jobs([name], team)
    for team in teams:
        cpus = own.cpus[:team]
        add("stream", lambda binary, cpus=cpus: stream(binary, cpus))
        jobs += own.jobs(MEMORY.names[:2], team)
        add("bwbench", lambda binary, cpus=cpus: bwbench(binary, cpus, ""))
        add("bwbench-nt", lambda binary, cpus=cpus: bwbench(binary, cpus, "-nt"))
        jobs += own.jobs(MEMORY.names[2:], team)
    return jobs


def interleaved(jobs: Sequence[Job], rounds: int) -> Results:
    """All jobs once a round, every other round backwards, so that none profits from its place."""
    results: Results = {}
    for i in range(rounds):
        for job in jobs if i % 2 == 0 else reversed(jobs):
            for row, figure in job.run().items():
                results.setdefault(row, {}).setdefault(job.source, []).append(figure)
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
    return results


def middle(figures: Sequence[Figure], which: str) -> float | None:
    """The median over rounds of one of a figure's values."""
    values = [value for figure in figures if (value := getattr(figure, which)) is not None]
    return statistics.median(values) if values else None


def best_source(of: dict[str, list[Figure]], which: str) -> str | None:
    """The tool with the highest median."""
    medians = {source: middle(figures, which) for source, figures in of.items()}
    told = {source: value for source, value in medians.items() if value is not None}
    return max(told, key=lambda source: told[source], default=None)


def ratios(own: list[Figure], peer: list[Figure], which: str) -> list[float]:
    """roofline's figure over the peer's, round by round."""
    return [
        getattr(mine, which) / getattr(theirs, which)
        for mine, theirs in zip(own, peer, strict=True)
    ]


def cell(figures: list[Figure] | None) -> str:
    """``"263.1 (266.0)"``: median over rounds of the typical figure, and of the best."""
    if figures is None:
        return "–"
    typical, best = middle(figures, "typical"), middle(figures, "best")
    parts = [f"{typical / 1e9:.1f}" if typical else "–"]
    return " ".join([*parts, f"({best / 1e9:.1f})"] if best else parts)


def line(row: Row, found: dict[str, list[Figure]], table: Table) -> str:
    """A row of a table, with its ratios and whether they suffice."""
    mine = {source: each for source, each in found.items() if source.startswith(ALONE)}
    peers = {source: each for source, each in found.items() if source in table.peers}
    texts: list[str] = []
    least: list[float] = []
    shown: list[Figure] | None = None
    for which in ("typical", "best"):
        own, peer = best_source(mine, which), best_source(peers, which)
        if own and which == "typical":
            shown = mine[own]
        if own is None or peer is None:
            texts.append("–")
            continue
        each = ratios(mine[own], peers[peer], which)
        least.append(statistics.median(each))
        quarters = f"{quantile(each, 0.25):.3f} … {quantile(each, 0.75):.3f}"
        texts.append(f"{least[-1]:.3f} ({quarters}) of {peer}")
    verdict = "not measured" if shown is None else "no peer" if not least else "ok"
    if least and min(least) < table.least:
        verdict = "**short**"
    cells = [cell(shown), *(cell(peers.get(peer)) for peer in table.peers), *texts]
    return f"| {row[0]}, {row[1]} thr. | {' | '.join(cells)} | {table.least} | {verdict} |"


def cpu_seconds() -> tuple[float, float]:
    """CPU time that all processes took so far, and this one with its ended children."""
    ticks = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0].split()[1:]
    busy = sum(int(tick) for i, tick in enumerate(ticks[:8]) if i not in (3, 4))  # idle, iowait
    return busy / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def compare_with_peers(own: Own, peers: dict[str, Path], rounds: int) -> list[str]:
    """The first part of the report."""
    jobs = jobs_of_a_round(own, peers)
    begin, all_before, own_before = time.perf_counter(), *cpu_seconds()
    results = interleaved(jobs, rounds)
    end, all_after, own_after = time.perf_counter(), *cpu_seconds()
    others_s = all_after - all_before - (own_after - own_before)
    others = max(0.0, others_s) / (end - begin) / (os.cpu_count() or 1)
    teams = sorted({1, own.workers.threads})
    lines = [
        "## Against specialised tools",
        "",
        f"Medians of {rounds} interleaved rounds. roofline: the median of its bursts and, in"
        " brackets, their 95th percentile, of the better of a kernel's forms; tools: their mean"
        " and, in brackets, their best, where they print them. A ratio is the median of the rounds'"
        " own ratios (quartiles) to the best tool: medians against means, 95th percentiles against"
        " bests. Each must reach the least. A tool that times once, by the wall clock, loses what"
        f" others take of the CPUs: {others:.1%} of their time during these rounds.",
        "",
    ]
    for table in TABLES:
        heads = ["", ALONE, *table.peers, "ratio", "ratio of bests", "least", ""]
        lines += [f"### {table.title}", "", table.note, "", f"| {' | '.join(heads)} |"]
        lines.append("|---" * len(heads) + "|")
        rows = [(name, team) for team in teams for name in table.names]
        lines += [*(line(row, results.get(row, {}), table) for row in rows), ""]
    return lines


@contextlib.contextmanager
def competitors(cpus: Sequence[int]) -> Iterator[None]:
    """A process on each of these CPUs that does nothing but count."""
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    children = [subprocess.Popen([sys.executable, "-c", code, str(cpu)]) for cpu in cpus]
    try:
        time.sleep(0.2)  # until they are past their start
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def compare_with_busy(own: Own, peers: dict[str, Path], rounds: int) -> list[str]:
    """The second part: the same ceiling with a competitor on every core."""
    name = COMPUTE.names[0]
    teams = sorted({1, own.workers.threads})
    found: dict[str, dict[bool, list[float]]] = {}
    lost: dict[str, list[float]] = {}

    def keep(label: str, busy: bool, value: float) -> None:
        found.setdefault(label, {False: [], True: []})[busy].append(value)

    for i in range(rounds):
        for busy in (False, True):
            with competitors(own.cpus[: own.workers.threads]) if busy else contextlib.nullcontext():
                for team in teams:
                    for trial in own.rows.get((name, team), [])[:1]:
                        bursts = own.bursts(trial, BUSY_RUN_S)
                        rate = estimate(trial.work_per_burst, bursts)
                        for which, value in (("peak", rate.peak), ("sustained", rate.sustained)):
                            label = f"{ALONE} {which}, {team} thr."
                            keep(label, busy, value)
                            if busy:
                                left_out = rate.disturbed / rate.bursts
                                lost.setdefault(label, []).append(left_out)
                    if "cpufp" in peers:
                        figures = cpufp(peers["cpufp"], own.cpus[:team])
                        if (value := figures.get((name, team), Figure()).typical) is not None:
                            keep(f"cpufp, {team} thr.", busy, value)
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
    lines = [
        "## With a busy process on every core",
        "",
        f"FMA {name}, GFLOP/s: medians of {rounds} rounds, each calm and then with a process that"
        " does nothing but count pinned to every core. roofline leaves out bursts during which a"
        f" thread had its core for less than {BUSY:.0%} of the time; cpufp times once, by the wall"
        " clock.",
        "",
        "| | calm | busy | ratio | bursts left out, busy | least | |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, states in found.items():
        calm, busy = statistics.median(states[False]), statistics.median(states[True])
        cells = [label, f"{calm / 1e9:.1f}", f"{busy / 1e9:.1f}", f"{busy / calm:.3f}"]
        if label in lost:
            verdict = "ok" if busy / calm >= LEAST_BUSY else "**short**"
            cells += [f"{statistics.median(lost[label]):.1%}", f"{LEAST_BUSY}", verdict]
        else:
            cells += ["", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def ceilings(profile: HardwareProfile) -> dict[str, tuple[float, float, str]]:
    """Peak and sustained of every ceiling of a profile by name, and what it doubts itself."""
    found: dict[str, tuple[float, float, str]] = {}
    for each in profile.compute:
        name = f"{each.kind} {each.kernel} {each.dtype} {each.unit}, {each.threads} thr."
        found[name] = (each.peak_flop_per_s, each.sustained_flop_per_s, each.doubt)
    for level in profile.memory:
        for each in level.bandwidth:
            name = f"{each.kind} {level.name} {each.kernel}, {each.threads} thr."
            found[name] = (each.peak_bytes_per_s, each.sustained_bytes_per_s, each.doubt)
    return found


def apart(a: float, b: float) -> float:
    """By what fraction the larger exceeds the smaller."""
    return max(a, b) / min(a, b) - 1


PER_CYCLE = ("compute", "L1", "L2")
"""What runs at the core's clock; what lies beyond belongs to the chip and its other tenants."""


def group(name: str) -> str:
    """What a ceiling is of, for the table."""
    kind, what = name.split()[:2]
    if kind == "library":
        return "library"
    if not what.startswith(("L1", "L2", "L3", "DRAM")):
        return "compute"
    return "stores past the caches" if "-nt," in name else what


def core_to_core_latency_s(profile: HardwareProfile) -> float:
    """Seconds that a cache line takes from core to core."""
    hops = [each for each in profile.overheads if each.name == "core-to-core latency"]
    return hops[0].time.median_s if hops else 1.0


def clock_hz(profile: HardwareProfile) -> float:
    """The measured clock."""
    return profile.clock.median_hz if profile.clock else 1.0


def shares(first: HardwareProfile, second: HardwareProfile) -> dict[str, tuple[float, ...]]:
    """By group the share of ceilings that agree: sustained, peak, sustained per cycle."""
    old, new = ceilings(first), ceilings(second)
    drift = clock_hz(second) / clock_hz(first)
    found: dict[str, list[tuple[bool, ...]]] = {}
    for name in old.keys() & new.keys():
        of = group(name)
        cycle = drift if of in PER_CYCLE else 1.0
        agree = (
            apart(old[name][1], new[name][1]) <= AGREE,
            apart(old[name][0], new[name][0]) <= AGREE,
            apart(old[name][1] * cycle, new[name][1]) <= AGREE,
        )
        found.setdefault(of, []).append(agree)
        found.setdefault("all", []).append(agree)
    return {of: tuple(map(statistics.mean, zip(*each, strict=True))) for of, each in found.items()}


def repeat_measurement() -> list[str]:
    """The third part: measurements against the ones before them, and the command's wall time."""
    profiles = [measure_hardware()[0] for _ in range(MEASUREMENTS)]
    pairs = list(itertools.pairwise(profiles))
    stayed = [pair for pair in pairs if apart(*map(core_to_core_latency_s, pair)) < MOVED]
    walls: list[float] = []
    for _ in range(COMMAND_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            output_of([sys.executable, "-m", "roofline", "measure"], XDG_DATA_HOME=folder)
            walls.append(time.perf_counter() - begin)
    lines = [
        "## Twice the same",
        "",
        f"{MEASUREMENTS} measurements one after the other. What this host did meanwhile:",
        "",
        f"| | {' | '.join(str(i) for i in range(1, len(profiles) + 1))} |",
        f"|---|{'---|' * len(profiles)}",
        f"| clock, GHz | {' | '.join(f'{clock_hz(each) / 1e9:.2f}' for each in profiles)} |",
        f"| hop from core to core, ns"
        f" | {' | '.join(f'{core_to_core_latency_s(each) * 1e9:.0f}' for each in profiles)} |",
        "",
        f"The share of ceilings that agree within {AGREE:.0%} with the measurement before, medians"
        f" of the {len(stayed)} pairs in which the host left the CPUs where they were, by the hop."
        f" Per cycle: those of {', '.join(PER_CYCLE)} over the clock that was measured beside them."
        f" At least {LEAST_AGREEING:.0%} must.",
        "",
        "| ceilings | sustained | peak | sustained, per cycle | |",
        "|---|---|---|---|---|",
    ]
    found = [shares(*pair) for pair in stayed]
    for of in dict.fromkeys(of for each in found for of in each):
        medians = [statistics.median(each[of][column] for each in found) for column in range(3)]
        verdict = "ok" if medians[2] >= LEAST_AGREEING else "**short**"
        lines.append(f"| {of} | {' | '.join(f'{each:.1%}' for each in medians)} | {verdict} |")
    return [
        *lines,
        "",
        f"`roofline measure`, the whole command: {statistics.median(walls):.1f} s wall time (median"
        f" of {len(walls)}, {min(walls):.1f} to {max(walls):.1f}); at most {WALL_S:g} s:"
        f" {'ok' if statistics.median(walls) <= WALL_S else '**short**'}.",
        "",
    ]


def head(options: argparse.Namespace, peers: dict[str, Path], load: str) -> list[str]:
    """Title, host, tools and how to run it again."""
    host = describe_host()
    known = dict.fromkeys(peer for table in TABLES for peer in table.peers)
    missing = [name for name in known if name not in peers]
    versions = options.peers / "versions.txt" if options.peers else None
    told = (
        versions.read_text(encoding="utf-8").splitlines() if versions and versions.exists() else []
    )
    uses_peers = options.part != "repeatability"
    return [
        "# roofline's ceilings against specialised tools, a busy machine and themselves",
        "",
        f"* {datetime.date.today().isoformat()}, {host.cpu_model}, {host.available_cpus} CPUs,"
        f" {host.operating_system}; load {load} at the start",
        f"* roofline {host.versions['roofline']}, llvmlite {host.versions['llvmlite']}",
        *(f"* {each}" for each in told if uses_peers and each.strip()),
        *([f"* left out, not found: {', '.join(missing)}"] if missing and uses_peers else []),
        f"* again: `python benchmarks/machine_vs_peers.py --peers FOLDER --part {options.part}"
        f" --rounds {options.rounds} --output benchmarks/machine_vs_peers.md`",
        "",
    ]


def main() -> None:
    """Runs the chosen parts and prints or writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, help="folder of the peers' executables")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--part", choices=("peers", "competitor", "repeatability", "all"), default="all"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    names = dict.fromkeys(peer for table in TABLES for peer in table.peers)
    folder = options.peers.resolve() if options.peers else None
    peers = {name: folder / name for name in names if folder and (folder / name).is_file()}
    load = Path("/proc/loadavg").read_text(encoding="utf-8").split()[0]
    lines = head(options, peers, load)
    topology = describe_topology()
    if options.part != "repeatability":
        with PinnedThreads(topology.available_cpus, topology.cores) as workers:
            own = prepare(workers)
            if options.part in ("peers", "all"):
                lines += compare_with_peers(own, peers, options.rounds)
            if options.part in ("competitor", "all"):
                lines += compare_with_busy(own, peers, options.rounds)
    if options.part in ("repeatability", "all"):
        lines += repeat_measurement()
    text = "\n".join(lines)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
