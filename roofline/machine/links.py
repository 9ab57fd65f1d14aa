"""Links between processes of this host over gloo, each process one rank of a team."""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from roofline.core.sampling import Sample, quantile
from roofline.core.units import format_s
from roofline.errors import MeasurementError, RooflineError, error_text
from roofline.machine.hardware import Duration, Link, Provenance
from roofline.machine.measuring.estimation import FAST_QUANTILE, provenance
from roofline.machine.system.exclusive import exit_with_parent, held_locks

# Each has one rank of a process group of gloo, which finds the others through a file: no port has
# to be free. What dies, or takes too long, ends all of them.

T = TypeVar("T")

LIMIT_S = 120.0
"""How long a team may take, all in all."""

_ENDING_S = 5.0  # how long a process whose result is there may take to end

# Looking through what torch makes while it is imported, all of which stays, takes long.
_RANK = """
import gc, sys
gc.set_threshold(50_000)
from multiprocessing.connection import Connection
told = Connection(int(sys.argv[1]), writable=False)
answers = Connection(int(sys.argv[2]), readable=False)
import pickle
sys.path[:] = pickle.loads(told.recv_bytes())
from roofline.machine.links import run_rank
run_rank(told.recv_bytes(), told, answers)
"""


def run_in_ranks(
    function: Callable[..., T],
    *args: Any,
    ranks: int,
    threads: int | None = None,
    limit_s: float = LIMIT_S,
) -> list[T]:
    """What `function` returns in each of so many processes, in the order of ranks.

    It is called with its rank, the number of ranks and `args`, in a process group of gloo on the
    loopback device; it is one of a module, and all can be pickled. ``threads`` compute in each
    (None: as torch has it). Whatever one of them raises is raised; a MeasurementError if one dies,
    or all take longer than `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    with (
        tempfile.TemporaryDirectory(prefix="roofline-ranks-") as folder,
        contextlib.ExitStack() as started,
    ):
        meeting = str(Path(folder) / "meeting")
        processes: list[_Process] = []
        for _ in range(ranks):
            processes.append(_Process())
            # None is left when this closes.
            started.callback(processes[-1].end)
        for rank, each in enumerate(processes):
            place = rank, ranks, meeting, threads, limit_s
            each.tell(pickle.dumps((place, function, args)))
        return _answers(processes, deadline, limit_s)


class _Process:
    def __init__(self) -> None:
        ask_there, ask_here = os.pipe()
        answer_here, answer_there = os.pipe()
        # Open as long as the team is: a process whose asker is gone ends by itself.
        self._ask = Connection(ask_here, readable=False)
        self.answers = Connection(answer_here, writable=False)
        try:
            self.running = subprocess.Popen(
                [sys.executable, "-P", "-c", _RANK, str(ask_there), str(answer_there)],
                pass_fds=(ask_there, answer_there, *held_locks()),
                stdin=subprocess.DEVNULL,
                # What models print is no part of a result.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "GLOO_SOCKET_IFNAME": _loopback()},
                # Ctrl-C reaches the process that asked, which then ends the others.
                start_new_session=True,
            )
        except OSError as error:
            self._ask.close()
            self.answers.close()
            raise MeasurementError(
                f"a process could not be started: {error.strerror or error}; end some others"
            ) from None
        finally:
            os.close(ask_there)
            os.close(answer_there)

    def tell(self, request: bytes) -> None:
        """Sends it what to do; one that has died is noticed where its answer is waited for."""
        with contextlib.suppress(BrokenPipeError):
            self._ask.send_bytes(pickle.dumps(sys.path))
            self._ask.send_bytes(request)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()
        self._ask.close()
        self.answers.close()


def _answers(processes: Sequence[_Process], deadline: float, limit_s: float) -> list[Any]:
    waiting = {each.answers: rank for rank, each in enumerate(processes)}
    found: dict[int, Any] = {}
    while waiting:
        ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise MeasurementError(
                f"{len(processes)} processes that talk to each other took longer than"
                f" {format_s(limit_s)}; is something else computing?"
            )
        failures: list[BaseException] = []
        for connection in ready:
            assert isinstance(connection, Connection)
            rank = waiting.pop(connection)
            try:
                succeeded, answer = pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                running = processes[rank].running
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(_ENDING_S)
                code, how = running.returncode, "ended"
                if code and code < 0:
                    how = f"was ended by {signal.Signals(-code).name}"
                said = f"rank {rank} of the processes that talk to each other {how}"
                succeeded, answer = False, MeasurementError(f"{said} before it was done")
            if succeeded:
                found[rank] = answer
            else:
                failures.append(answer)
        if failures:
            # Where one fails the others lose it, and may say so at the same moment.
            raise min(failures, key=lambda each: type(each) is RooflineError)
    return [found[rank] for rank in range(len(processes))]


def run_rank(request: bytes, told: Connection, answers: Connection) -> None:
    """Joins the others, runs the function, and answers; ends once ``told`` is closed."""
    exit_with_parent(told.fileno())
    try:
        place, function, args = pickle.loads(request)
        _join(*place)
        result = True, function(*place[:2], *args)
    except BaseException as error:
        own = isinstance(error, RooflineError)
        said = f"{type(error).__name__}: {error_text(error)}"
        result = False, error if own else RooflineError(said.partition("\n")[0][:300])
    answers.send_bytes(pickle.dumps(result))
    # Who failed has told, and is ended.
    if result[0]:
        from torch import distributed

        distributed.destroy_process_group()


def _join(rank: int, ranks: int, meeting: str, threads: int | None, limit_s: float) -> None:
    import torch
    from torch import distributed

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=limit_s),
        )
    except RuntimeError as error:
        # gloo begins with the place in its own code.
        said = re.sub(r"\[[^]]*\]", "", error_text(error)).strip(" .:;")[:150]
        raise MeasurementError(
            f"processes of this host cannot talk to each other over {_loopback()}"
            f"{f' ({said})' if said else ''}: gloo needs this device to be up"
        ) from None


def _loopback() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"


_WARM_UPS = 3
_Times = dict[int, list[float]]  # seconds of every exchange, by bytes of the data of one rank


def _collectives() -> Any:
    # torch leaves the types of its collectives open, which strict checking takes for unknown.
    from torch import distributed

    return distributed


def _timed_all_reduces(rank: int, ranks: int, sizes_bytes: tuple[int, ...], rounds: int) -> _Times:
    """The seconds of every all-reduce of float32, by size, as one rank sees them.

    Sizes take turns, so that drift meets all of them.
    """
    import torch

    distributed = _collectives()
    data = {byte: torch.zeros(max(1, byte // 4)) for byte in sizes_bytes}
    for each in data.values():
        for _ in range(_WARM_UPS):
            distributed.all_reduce(each)
    times: _Times = {byte: [] for byte in sizes_bytes}
    for _ in range(rounds):
        for byte, each in data.items():
            distributed.barrier()
            begin = time.perf_counter()
            distributed.all_reduce(each)
            times[byte].append(time.perf_counter() - begin)
    return times


def _timed_messages(rank: int, ranks: int, sizes_bytes: tuple[int, ...], rounds: int) -> _Times:
    """The seconds of a message there and back, by size, between the first two ranks."""
    import torch

    distributed = _collectives()
    times: _Times = {byte: [] for byte in sizes_bytes}
    for byte in sizes_bytes:
        data = torch.zeros(max(1, byte // 4))
        for each in range(_WARM_UPS + rounds):
            distributed.barrier()
            begin = time.perf_counter()
            if rank == 0:
                distributed.send(data, 1)
                distributed.recv(data, 1)
            elif rank == 1:
                distributed.recv(data, 0)
                distributed.send(data, 0)
            if each >= _WARM_UPS:
                times[byte].append(time.perf_counter() - begin)
    return times


def link_of(
    times_s: Mapping[int, Sequence[float]],
    *,
    kernel: str,
    messages: int,
    share: float,
    provenance: Provenance,
) -> Link:
    """The link of exchanges that took ``times_s``, by bytes of the data of one rank.

    The smallest tells the latency, that of ``messages`` one after the other; the largest the rate
    once its latency is taken off: ``share`` bytes go one way for each byte of data.
    """
    smallest, largest = min(times_s), max(times_s)
    small, large = Sample(times_s=tuple(times_s[smallest])), Sample(times_s=tuple(times_s[largest]))
    fast_small_s, fast_large_s = (quantile(each.times_s, FAST_QUANTILE) for each in (small, large))
    latency = Duration(
        fast_s=fast_small_s / messages,
        median_s=small.median_s / messages,
        spread=small.spread,
        provenance=provenance,
    )
    moved = share * (largest - smallest)
    usual_s, best_s = large.median_s - small.median_s, fast_large_s - fast_small_s
    if min(usual_s, best_s) <= 0:
        raise MeasurementError(
            f"{kernel}: {largest} bytes were as quick as {smallest}; measure on a quieter machine"
        )
    usual, best = moved / usual_s, moved / best_s
    return Link(
        source="process",
        target="process",
        kernel=kernel,
        threads=1,
        peak_bytes_per_s=max(usual, best),
        sustained_bytes_per_s=usual,
        spread=large.spread,
        latency=latency,
        provenance=provenance,
    )


_RANKS = 2
_SIZES_BYTE = (4, 25 * 2**20)  # the least that goes, and a bucket of DistributedDataParallel

_ROUNDS = 30
_HOW = "two processes on this host, gloo over the loopback device, one thread each"


def measure_links(*, rounds: int = _ROUNDS) -> tuple[Link, ...]:
    """Bandwidth of this host's gloo between two processes, in byte/s each way, and its latency.

    Two links: found with all-reduces, which move what a ring moves and add up, and with messages
    there and back, each timed `rounds` times.
    """
    sums = run_in_ranks(_timed_all_reduces, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    messages = run_in_ranks(_timed_messages, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    return (
        # An exchange is over when it is for the last rank.
        link_of(
            {byte: list(map(max, *(each[byte] for each in sums))) for byte in _SIZES_BYTE},
            kernel="gloo all-reduce",
            messages=2 * (_RANKS - 1),
            share=2 * (_RANKS - 1) / _RANKS,
            provenance=provenance("all-reduces of float32, in turn", _HOW),
        ),
        link_of(
            messages[0],
            kernel="gloo send",
            messages=2,
            share=2.0,
            provenance=provenance("messages there and back", _HOW),
        ),
    )
