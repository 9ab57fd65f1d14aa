"""Functions run in fresh processes, so that measured times do not depend on earlier work.

In a process that had run ten models, small operators took 8 % longer than in a fresh one. A server
that has imported everything and computed nothing forks a process for each function: a fork takes
milliseconds, imports take seconds, and threads that had computed would not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from roofline.errors import InputError, MeasurementError, RooflineError, error_text
from roofline.machine.system.exclusive import exit_with_parent, held_locks

T = TypeVar("T")

_PATIENCE_S = 5.0
"""Longest wait for the end of a server."""

_KEPT_BYTE = 2**25 - 2**16
"""Nearly the largest freed block that raises the thresholds of glibc's malloc."""


class RunFunction(Protocol):
    """Run a function in some process, and raise what it raises."""

    def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return the result of `function`."""
        ...


def run_here(function: Callable[..., T], /, *args: Any) -> T:
    """Run a function in this process."""
    return function(*args)


@contextmanager
def fresh_processes(
    *, settled: bool = False, environment: Mapping[str, str] | None = None
) -> Generator[RunFunction]:
    """Run functions each in its own process, or in this one without fork.

    Their allocator is that of a fresh process, or ``settled``: a large block was freed, so glibc
    keeps nearly all memory that a pass frees. ``environment`` are additional variables.

    Functions are those of modules, and picklable with arguments and results. A process that dies
    raises MeasurementError. Processes end with the context and with this process.
    """
    if not hasattr(os, "fork"):
        yield run_here
        return
    ask_here, ask_there = os.pipe()[::-1]
    answer_here, answer_there = os.pipe()
    server = subprocess.Popen(
        # -P: files in the user's folder may shadow the standard library.
        [
            *(sys.executable, "-P", "-c", _SERVER),
            *map(str, (ask_there, answer_there, int(settled))),
        ],
        # The server holds the lock of measurements until it ends.
        pass_fds=(ask_there, answer_there, *held_locks()),
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        # Output of models is not part of a result.
        stdout=subprocess.DEVNULL,
        # Ctrl-C reaches this process only, which then ends the others.
        start_new_session=True,
    )
    os.close(ask_there)
    os.close(answer_there)
    ask, answers = Connection(ask_here, readable=False), Connection(answer_here, writable=False)

    def run(function: Callable[..., T], /, *args: Any) -> T:
        try:
            request = pickle.dumps((function, args))
        # Inputs may raise anything when they are pickled.
        except Exception as error:
            raise InputError(
                "models and inputs measured in fresh processes must be picklable:"
                f" {error_text(error)}"
            ) from error
        try:
            ask.send_bytes(pickle.dumps((_files_in(request), request)))
            succeeded, found = pickle.loads(answers.recv_bytes())
        except KeyboardInterrupt:
            _kill(server)
            raise
        except (EOFError, OSError) as error:
            why = error_text(error) or "it was killed, or could not start"
            raise MeasurementError(f"measuring process ended: {why}") from None
        except Exception as error:
            raise RooflineError(
                f"result of the measuring process cannot be read: {error_text(error)}"
            ) from error
        if not succeeded:
            raise found
        return found

    try:
        with ask, answers:
            ask.send_bytes(pickle.dumps(sys.path))
            yield run
    except BaseException:
        _kill(server)
        raise
    finally:
        try:
            server.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            _kill(server)
            server.wait()


def _files_in(request: bytes) -> list[str]:
    """Return users' files with classes in a request, which no import finds by name."""
    from roofline.workload.models.building import FILE_MODULE

    return [
        file
        for name, module in tuple(sys.modules.items())
        if name.startswith(FILE_MODULE)
        and name.encode() in request
        and (file := getattr(module, "__file__", None))
    ]


def _kill(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)


# Garbage collection of imported modules takes long and frees nothing.
_SERVER = """
import gc, sys
gc.set_threshold(50_000)
from multiprocessing.connection import Connection
requests = Connection(int(sys.argv[1]), writable=False)
answers = Connection(int(sys.argv[2]), readable=False)
import pickle
sys.path[:] = pickle.loads(requests.recv_bytes())
from roofline.pipeline.fresh_processes import serve
serve(requests, answers, settled=bool(int(sys.argv[3])))
"""


def serve(requests: Connection, answers: Connection, *, settled: bool) -> None:
    """Answer each request from a fork, until the connection closes."""
    exit_with_parent(requests.fileno())
    _prepare()
    if settled:
        import torch

        torch.empty(_KEPT_BYTE, dtype=torch.uint8)
    while True:
        try:
            request = requests.recv_bytes()
        except EOFError:
            # Skip garbage collection of imported modules.
            gc.freeze()
            return
        try:
            answers.send_bytes(_forked(request, (requests, answers)))
        except OSError:
            # The client has ended.
            return


def _prepare() -> None:
    """Import everything that functions will need, without computing."""
    from roofline.machine.measuring.core_state_reader import compile_core_state_kernels
    from roofline.pipeline import calibrations, validations
    from roofline.workload.capture import passes
    from roofline.workload.models.libraries import availability

    assert calibrations and validations and passes
    for library in ("torchvision", "timm", "transformers"):
        availability.library_or_reason(library)
    compile_core_state_kernels()


def _forked(request: bytes, shared: tuple[Connection, Connection]) -> bytes:
    """Return the answer of a forked process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks with threads; those of numpy handle forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        for each in shared:
            each.close()
        os.close(reader)
        exit_with_parent(writer)
        with os.fdopen(writer, "wb") as file:
            file.write(_answer(request))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    if status or not answer:
        # A partial answer is discarded.
        return pickle.dumps((False, MeasurementError(f"measuring process {_end(status)}")))
    return answer


def _answer(request: bytes) -> bytes:
    from roofline.workload.models.building import import_home

    try:
        files, call = pickle.loads(request)
        for file in files:
            import_home(file, file)
        function, args = pickle.loads(call)
        return pickle.dumps((True, function(*args)))
    except BaseException as error:
        try:
            raised = pickle.dumps((False, error))
            pickle.loads(raised)
        # An error may contain anything, and be of a class that only this process has.
        except Exception:
            return pickle.dumps((False, _as_own(error)))
        own = isinstance(error, (RooflineError, MemoryError))
        return raised if own else pickle.dumps((False, _as_own(error)))


def _as_own(error: BaseException) -> RooflineError:
    name = type(error).__name__
    said = error_text(error)
    return RooflineError(f"{name}: {said}" if said else name)


def _end(status: int) -> str:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"was ended by {name}" + (", as when memory runs out" if name == "SIGKILL" else "")
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
