"""Candidates of a measurement: kernels tested in a child process, by variant and level."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable, Sequence

from roofline.errors import MeasurementError
from roofline.machine.hierarchy.working_sets import DRAM, WorkingSet
from roofline.machine.kernels import compiler
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring.pinned_threads import Array, PinnedThreads, allocate, extent_bytes
from roofline.machine.measuring.rounds import Candidate
from roofline.machine.measuring.trials import (
    Cursor,
    Trial,
    compute_trial,
    memory_trial,
    stream_trial,
)

# Listed instruction sets may not run: emulators show the host's list, and hypervisors mask some. An
# illegal instruction ends the process, so kernels are first run in a child.


def failures(attempts: Sequence[Callable[[], object]]) -> dict[int, str]:
    """Return the failures of attempts that end their process, by index.

    Attempts run in order in a forked child; after a crash, a new child continues with the next.
    Without fork, or if a child fails without a crash (memory, files), attempts count as successful.
    """
    found: dict[int, str] = {}
    first = 0
    while first < len(attempts):
        outcome = _child(attempts, first)
        if outcome is None:
            break
        done, status = outcome
        if done >= len(attempts) - first:
            break
        if os.WIFSIGNALED(status):
            number = signal.Signals(os.WTERMSIG(status))
            found[first + done] = (
                "instructions not supported by CPU or operating system"
                if number == signal.SIGILL
                else f"ended by {number.name}"
            )
        first += done + 1
    return found


def _child(attempts: Sequence[Callable[[], object]], first: int) -> tuple[int, int] | None:
    """Return the number of successful attempts of a child, and its status; None: no child."""
    if not hasattr(os, "fork"):
        return None
    try:
        # Imported here: the child may have no free file descriptor.
        import resource

        reader, writer = os.pipe()
    except (ImportError, OSError):
        return None
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns about forks with threads; this child only runs machine code.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return None
    if child == 0:
        _probe(attempts[first:], writer, lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    os.close(writer)
    try:
        done = 0
        while read := os.read(reader, 4096):
            done += len(read)
        return done, os.waitpid(child, 0)[1]
    except BaseException:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise
    finally:
        os.close(reader)


def _probe(
    attempts: Sequence[Callable[[], object]], writer: int, leave_no_core: Callable[[], None]
) -> None:
    """Run the attempts and exit silently: no handlers, output or core file."""
    try:
        leave_no_core()
        for number in (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
            signal.signal(number, signal.SIG_DFL)
        for attempt in attempts:
            attempt()
            os.write(writer, b".")
        os._exit(0)
    except BaseException:
        os._exit(1)


Variants = tuple[CompiledKernel, ...]
"""Compiled variants of one kernel: the first, and possibly the second."""


def compile_variants(
    kernels: Sequence[ComputeKernel | StreamKernel],
    second_variants: bool,
    report: Callable[[str], None],
) -> tuple[list[Variants], list[str]]:
    """Return the compiled kernels, and a note on each that failed."""
    compiled: list[Variants] = []
    conditions: list[str] = []
    for kernel in kernels:
        report(f"compiling {kernel.label}")
        forms: list[CompiledKernel] = []
        for form in (kernel, kernel.second_variant()) if second_variants else (kernel,):
            try:
                forms.append(compiler.compile_kernel(form))
            except MeasurementError as error:
                conditions.append(f"not measured: {error}")
                break
        if forms:
            compiled.append(tuple(forms))
    report("testing compiled kernels")
    flat = [(i, form) for i, forms in enumerate(compiled) for form in forms]
    failed = {
        flat[number][0]: reason
        for number, reason in failures([_attempt(form) for _, form in flat]).items()
    }
    conditions += [
        f"not measured: kernel '{compiled[i][0].kernel.label}': {reason}"
        for i, reason in failed.items()
    ]
    return [forms for i, forms in enumerate(compiled) if i not in failed], conditions


def _attempt(compiled: CompiledKernel) -> Callable[[], object]:
    kernel, length = compiled.kernel, 1
    if isinstance(kernel, StreamKernel):
        byte, length = kernel.block_bytes * kernel.streams, kernel.block_bytes
        memory = [allocate(extent_bytes(byte, kernel.streams))]
        trial = memory_trial(compiled, byte, memory, again=True)
    else:
        trial = compute_trial(compiled, 1)
    return lambda: compiled.call(trial.states[0].ctypes.data, 0, length)


def compute_candidates(
    compiled: Sequence[Variants], teams: Sequence[int]
) -> list[Candidate[Trial]]:
    return [
        Candidate(
            trials=tuple(compute_trial(form, team) for form in forms), kind=forms[0].kernel.label
        )
        for forms in compiled
        for team in teams
    ]


def stream_candidates(
    compiled: Sequence[Variants],
    sets: Sequence[WorkingSet],
    memory: list[Array],
    initial_doubts: dict[str, str],
) -> list[Candidate[Trial]]:
    """Return every stream kernel at every working set; `initial_doubts` are by level."""
    shared = Cursor()

    def trial(form: CompiledKernel, each: WorkingSet) -> Trial:
        return stream_trial(form, each, memory, shared if each.level == DRAM else None)

    return [
        Candidate(
            trials=tuple(trial(form, each) for form in forms),
            kind=f"{each.level} {forms[0].kernel.label}",
            initial_doubt=initial_doubts.get(each.level, ""),
        )
        for forms in compiled
        for each in sets
    ]


def calibrate(
    candidates: Sequence[Candidate[Trial]], workers: PinnedThreads, report: Callable[[str], None]
) -> None:
    """Calibrate the burst size of each candidate, once per kind."""
    known: dict[str, Trial] = {}
    for candidate in candidates:
        for trial in candidate.trials:
            if candidate.kind in known:
                trial.calibrate_like(known[candidate.kind])
            else:
                report(f"calibrating {trial.label}")
                trial.calibrate(workers)
                known[candidate.kind] = trial
