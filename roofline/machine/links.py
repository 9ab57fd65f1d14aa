"""Bandwidth and latency between processes of this host over gloo, one rank per process."""

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

# Ranks find each other through a file, so no free port is needed. If one dies or exceeds the time
# limit, all are ended.

T = TypeVar("T")

LIMIT_S = 120.0
"""Time limit of a team of processes."""

_ENDING_S = 5.0  # time limit for a process to exit after its result

# A high threshold: collecting garbage during the import of torch is slow and frees nothing.
_RANK = """
import gc, sys
gc.set_threshold(50_000)
from multiprocessing.connection import Connection
requests = Connection(int(sys.argv[1]), writable=False)
answers = Connection(int(sys.argv[2]), readable=False)
import pickle
sys.path[:] = pickle.loads(requests.recv_bytes())
from roofline.machine.links import run_rank
run_rank(requests.recv_bytes(), requests, answers)
"""


def run_in_ranks(
    function: Callable[..., T],
    *args: Any,
    ranks: int,
    threads: int | None = None,
    limit_s: float = LIMIT_S,
) -> list[T]:
    """Return the result of `function` in each of `ranks` processes, in rank order.

    `function(rank, ranks, *args)` runs in a gloo process group on the loopback device. It must be a
    module-level function; it, its arguments and results are pickled. ``threads`` compute in each
    process (None: torch's default). Errors of a rank are raised here; raise MeasurementError if a
    process dies or the time limit `limit_s` is exceeded.
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
            started.callback(processes[-1].end)
        for rank, each in enumerate(processes):
            place = rank, ranks, meeting, threads, limit_s
            each.send(pickle.dumps((place, function, args)))
        return _answers(processes, deadline, limit_s)


class _Process:
    def __init__(self) -> None:
        ask_there, ask_here = os.pipe()
        answer_here, answer_there = os.pipe()
        # A process exits once this pipe is closed.
        self._ask = Connection(ask_here, readable=False)
        self.answers = Connection(answer_here, writable=False)
        try:
            self.running = subprocess.Popen(
                [sys.executable, "-P", "-c", _RANK, str(ask_there), str(answer_there)],
                pass_fds=(ask_there, answer_there, *held_locks()),
                stdin=subprocess.DEVNULL,
                # Models may print.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "GLOO_SOCKET_IFNAME": _loopback()},
                # Ctrl-C reaches the parent only, which then ends the ranks.
                start_new_session=True,
            )
        except OSError as error:
            self._ask.close()
            self.answers.close()
            raise MeasurementError(
                f"cannot start a process: {error.strerror or error}; end other processes"
            ) from None
        finally:
            os.close(ask_there)
            os.close(answer_there)

    def send(self, request: bytes) -> None:
        """Send the request; a dead process is noticed when its answer is read."""
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
                f"{len(processes)} communicating processes exceeded {format_s(limit_s)}; stop other"
                " processes and try again"
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
                succeeded = False
                answer = MeasurementError(f"the process of rank {rank} {how} before its result")
            if succeeded:
                found[rank] = answer
            else:
                failures.append(answer)
        if failures:
            # The failure of one rank makes others fail with generic errors.
            raise min(failures, key=lambda each: type(each) is RooflineError)
    return [found[rank] for rank in range(len(processes))]


def run_rank(request: bytes, requests: Connection, answers: Connection) -> None:
    """Join the process group, run the function and send its result; exit with the parent."""
    exit_with_parent(requests.fileno())
    try:
        place, function, args = pickle.loads(request)
        _join(*place)
        result = True, function(*place[:2], *args)
    except BaseException as error:
        own = isinstance(error, RooflineError)
        text = f"{type(error).__name__}: {error_text(error)}"
        result = False, error if own else RooflineError(text.partition("\n")[0][:300])
    answers.send_bytes(pickle.dumps(result))
    # The parent ends ranks that failed.
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
        # gloo messages start with a source location.
        reason = re.sub(r"\[[^]]*\]", "", error_text(error)).strip(" .:;")[:150]
        raise MeasurementError(
            f"processes of this host cannot communicate over {_loopback()}"
            f"{f' ({reason})' if reason else ''}; bring this device up"
        ) from None


def _loopback() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"


_WARM_UPS = 3
_Times = dict[int, list[float]]  # seconds of every exchange, by bytes of data per rank


def _collectives() -> Any:
    # torch does not type its collectives.
    from torch import distributed

    return distributed


def _timed_all_reduces(rank: int, ranks: int, sizes_bytes: tuple[int, ...], rounds: int) -> _Times:
    """Return the seconds of each float32 all-reduce, by size, on one rank.

    Sizes are interleaved, so that drift affects all of them.
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
    """Return the seconds of each round trip between the first two ranks, by size."""
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
    """Return the link for exchanges that took ``times_s``, by bytes of data per rank.

    The smallest size gives the latency of each of ``messages`` sequential messages. The largest
    size gives the rate, without that latency: ``share`` bytes are sent one way per byte of data.
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
            f"{kernel}: {largest} bytes took no longer than {smallest}; stop other processes"
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
_SIZES_BYTE = (4, 25 * 2**20)  # one float32, and a DistributedDataParallel bucket

_ROUNDS = 30
_HOW = "two processes on this host, gloo over the loopback device, one thread each"


def measure_links(*, rounds: int = _ROUNDS) -> tuple[Link, ...]:
    """Measure bandwidth, in byte/s each way, and latency between two processes over gloo.

    Returns two links, of all-reduces (data moved by a ring) and of round trips, each timed `rounds`
    times.
    """
    sums = run_in_ranks(_timed_all_reduces, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    messages = run_in_ranks(_timed_messages, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    return (
        # An exchange ends with its last rank.
        link_of(
            {byte: list(map(max, *(each[byte] for each in sums))) for byte in _SIZES_BYTE},
            kernel="gloo all-reduce",
            messages=2 * (_RANKS - 1),
            share=2 * (_RANKS - 1) / _RANKS,
            provenance=provenance("interleaved all-reduces of float32", _HOW),
        ),
        link_of(
            messages[0],
            kernel="gloo send",
            messages=2,
            share=2.0,
            provenance=provenance("round trips", _HOW),
        ),
    )
