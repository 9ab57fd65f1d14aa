"""Work in processes of its own: how long a model takes there does not depend on what ran before.

In a process that has run ten models small operators took 8 % longer than in a fresh one, and who
runs a model runs that one. A server that has imported
everything, and computed nothing, forks a process for each piece of work: a fork costs
milliseconds, importing seconds, and threads that had computed would not survive it.
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
"""How long a server that was told to end may take."""


_KEPT_BYTE = 2**25 - 2**16
"""Nearly the largest block that glibc, once it was freed, takes as the measure of what it keeps."""


class Runs(Protocol):
    """Runs a function on arguments, somewhere; raises what it raises."""

    def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """What `function` returns."""
        ...


def here(function: Callable[..., T], /, *args: Any) -> T:
    """Runs it in this process."""
    return function(*args)


@contextmanager
def fresh_processes(
    *, settled: bool = False, environment: Mapping[str, str] | None = None
) -> Generator[Runs]:
    """Run functions each in its own process; where there is no fork, in this one.

    Their allocator is as in any fresh process, or ``settled``: it has freed a large block, and
    glibc keeps from then on nearly all memory that a pass gives back. ``environment`` are variables
    that they have besides those of this process.

    Functions are those of modules; they, their arguments and results can be pickled. A process that
    dies raises MeasurementError. Leaving the context, also by an interrupt, ends what runs; so does
    the end of this process.
    """
    if not hasattr(os, "fork"):
        yield here
        return
    ask_here, ask_there = os.pipe()[::-1]
    answer_here, answer_there = os.pipe()
    server = subprocess.Popen(
        # -P: what lies in the user's folder may have names of the standard library.
        [
            *(sys.executable, "-P", "-c", _SERVER),
            *map(str, (ask_there, answer_there, int(settled))),
        ],
        # What runs there measures: until it ends, nothing else shall.
        pass_fds=(ask_there, answer_there, *held_locks()),
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        # What models print is no part of a result.
        stdout=subprocess.DEVNULL,
        # Ctrl-C reaches this process alone, which then ends the others.
        start_new_session=True,
    )
    os.close(ask_there)
    os.close(answer_there)
    ask, answers = Connection(ask_here, readable=False), Connection(answer_here, writable=False)

    def run(function: Callable[..., T], /, *args: Any) -> T:
        try:
            request = pickle.dumps((function, args))
        # Inputs may be anything, and say in any way that they cannot be pickled.
        except Exception as error:
            raise InputError(
                f"what is measured in a process of its own must be picklable: {error_text(error)}"
            ) from error
        try:
            ask.send_bytes(pickle.dumps((_files_in(request), request)))
            succeeded, found = pickle.loads(answers.recv_bytes())
        except KeyboardInterrupt:
            _kill(server)
            raise
        except (EOFError, OSError) as error:
            why = error_text(error) or "it was killed, or could not start"
            raise MeasurementError(f"the process that measures ended: {why}") from None
        except Exception as error:
            raise RooflineError(f"its result cannot be read: {error_text(error)}") from error
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
    """The users' files that have classes of what is asked: no import finds them by name."""
    from roofline.workload.models.building import FILE_MODULE

    return [
        file
        for name, module in tuple(sys.modules.items())
        if name.startswith(FILE_MODULE)
        and name.encode() in request
        and (file := getattr(module, "__file__", None))
    ]


def _kill(server: subprocess.Popen[bytes]) -> None:
    """Ends the server and what it forked."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)


# Looking through what is imported for garbage takes long; all of it stays.
_SERVER = """
import gc, sys
gc.set_threshold(50_000)
from multiprocessing.connection import Connection
asked = Connection(int(sys.argv[1]), writable=False)
answers = Connection(int(sys.argv[2]), readable=False)
import pickle
sys.path[:] = pickle.loads(asked.recv_bytes())
from roofline.pipeline.fresh_processes import serve
serve(asked, answers, settled=bool(int(sys.argv[3])))
"""


def serve(asked: Connection, answers: Connection, *, settled: bool) -> None:
    """Answers what is asked, each from a fork, until nobody asks any more."""
    exit_with_parent(asked.fileno())
    _prepare()
    if settled:
        import torch

        torch.empty(_KEPT_BYTE, dtype=torch.uint8)
    while True:
        try:
            request = asked.recv_bytes()
        except EOFError:
            # All that was imported would be looked through for garbage, to no end.
            gc.freeze()
            return
        try:
            answers.send_bytes(_forked(request, (asked, answers)))
        except OSError:
            # Who asked is gone.
            return


def _prepare() -> None:
    """Imports what work will need, and computes nothing."""
    from roofline.machine.measuring.core_state_reader import compile_core_state_kernels
    from roofline.pipeline import calibrations, validations
    from roofline.workload.capture import passes
    from roofline.workload.models.libraries import availability

    assert calibrations and validations and passes
    for library in ("torchvision", "timm", "transformers"):
        availability.library_or_reason(library)
    compile_core_state_kernels()


def _forked(request: bytes, shared: tuple[Connection, Connection]) -> bytes:
    """The answer of a process that is made for it."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside other threads; those of numpy know of forks.
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
        # What it had begun to write is cut short.
        return pickle.dumps((False, MeasurementError(f"its process {_end(status)}")))
    return answer


def _answer(request: bytes) -> bytes:
    from roofline.workload.models.building import import_home

    try:
        files, asked = pickle.loads(request)
        for file in files:
            import_home(file, file)
        function, args = pickle.loads(asked)
        return pickle.dumps((True, function(*args)))
    except BaseException as error:
        try:
            raised = pickle.dumps((False, error))
            pickle.loads(raised)
        # An error may hold anything, and be of a class that only this process has.
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
