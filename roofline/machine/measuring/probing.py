"""Whether kernels can run here at all, tried in a child process that may die of it.

What the operating system lists as instruction sets need not be what the CPU runs: emulators show
the host's list, and a hypervisor may mask what it does not list. An illegal instruction ends the
process that meets it, so a child meets it first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable, Sequence


def failures(attempts: Sequence[Callable[[], object]]) -> dict[int, str]:
    """Why attempts fail that end their process, by their number; those that work are not in it.

    Each is made in order in a forked child, which reports what it has behind it; after one that
    killed the child, another child goes on with the next. Nothing can be said where processes
    cannot be forked: then all are held to work. So is an attempt that a child fails at without
    dying of it (no memory, no files): that says nothing of the instructions.
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
            found[first + done] = _reason(os.WTERMSIG(status))
        first += done + 1
    return found


def _child(attempts: Sequence[Callable[[], object]], first: int) -> tuple[int, int] | None:
    """How many attempts from `first` on a child got through, and its status; None: no child."""
    if not hasattr(os, "fork"):
        return None
    try:
        # Here, as the child may have no file left to import it from.
        import resource

        reader, writer = os.pipe()
    except (ImportError, OSError):
        return None
    try:
        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside other threads; this child only runs machine code.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return None
    if child == 0:
        _attempt(attempts[first:], writer, lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
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


def _attempt(
    attempts: Sequence[Callable[[], object]], writer: int, leave_no_core: Callable[[], None]
) -> None:
    """Makes the attempts and leaves without a trace: no handlers, no output, no core file."""
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


def _reason(number: int) -> str:
    if number == signal.SIGILL:
        return "the CPU or the operating system refuses its instructions"
    return f"running it ends in {signal.Signals(number).name}"
