"""Processes that talk to each other: what they return, and what becomes of those that fail."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from roofline.errors import InputError, MeasurementError, RooflineError
from roofline.machine.hardware import Link
from roofline.machine.links import link_of, measure_links, run_in_ranks
from tests.builders import SOURCE

LIMIT_S = 240.0


def sum_of_ranks(rank: int, ranks: int, more: int) -> tuple[int, int, float, int]:
    value = torch.tensor([float(rank + more)])
    distributed.all_reduce(value)
    return rank, ranks, value.item(), torch.get_num_threads()


def fails(rank: int, ranks: int, error: Exception | None) -> None:
    if rank == ranks - 1:
        if error is not None:
            raise error
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.barrier()


def never_ends(rank: int, ranks: int, file: str) -> None:
    Path(f"{file}-{rank}").write_text(str(os.getpid()))
    while True:
        signal.pause()


def test_each_process_has_its_rank_and_talks_to_the_others() -> None:
    found = run_in_ranks(sum_of_ranks, 10, ranks=3, threads=1, limit_s=LIMIT_S)
    assert found == [(0, 3, 33.0, 1), (1, 3, 33.0, 1), (2, 3, 33.0, 1)]


@pytest.mark.parametrize(
    ("ranks", "error", "kind", "said"),
    [
        (2, None, MeasurementError, r"rank 1 was ended by SIGKILL"),
        (2, InputError("--what: is wrong; fix it"), InputError, r"^--what: is wrong; fix it$"),
        (1, KeyError("gone"), RooflineError, r"^KeyError: 'gone'$"),
    ],
)
def test_one_that_fails_ends_all_with_one_line(
    ranks: int, error: Exception | None, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        run_in_ranks(fails, error, ranks=ranks, limit_s=LIMIT_S)


def test_what_takes_too_long_is_ended_and_no_process_is_left(tmp_path: object) -> None:
    file = f"{tmp_path}/process"
    with pytest.raises(MeasurementError, match="exceeded"):
        run_in_ranks(never_ends, file, ranks=2, limit_s=5.0)
    for rank in range(2):
        noted = Path(f"{file}-{rank}")
        if noted.exists():
            with pytest.raises(ProcessLookupError):
                os.kill(int(noted.read_text()), 0)


FOREVER = """
import os, signal

def tells_and_never_ends(rank, ranks, pipe):
    with open(pipe, "w") as told:
        told.write(f"{os.getpid()}\\n")
    while True:
        signal.pause()
"""

ASKER = """
import sys
sys.path.append(sys.argv[1])
from forever import tells_and_never_ends
from roofline.machine.hardware import Link
from roofline.machine.links import run_in_ranks, link_of, measure_links
from tests.builders import SOURCE
run_in_ranks(tells_and_never_ends, sys.argv[2], ranks=2, limit_s=600.0)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells when others end")
def test_processes_whose_asker_is_killed_end_by_themselves(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told = os.open(pipe, os.O_RDWR)
    (tmp_path / "forever.py").write_text(FOREVER)
    root = Path(__file__).parent.parent.parent
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path), str(pipe)], cwd=root)
    try:
        said = b""
        while said.count(b"\n") < 2:
            assert select.select([told], [], [], LIMIT_S)[0], "no process began"
            said += os.read(told, 100)
        watched = [os.pidfd_open(int(each)) for each in said.split()]
    finally:
        asker.kill()
        asker.wait()
        os.close(told)
    for each in watched:
        ended, _, _ = select.select([each], [], [], LIMIT_S)
        os.close(each)
        assert ended


def test_a_process_that_cannot_be_started_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(MeasurementError, match="cannot start a process: Resource temporarily"):
        run_in_ranks(sum_of_ranks, 10, ranks=2, limit_s=LIMIT_S)
    assert len(list(Path("/dev/fd").iterdir())) == before


# --- what they measure ---------------------------------------------------------------------------


def link(times: dict[int, list[float]]) -> Link:
    return link_of(times, kernel="gloo send", messages=2, share=1.0, provenance=SOURCE)


def test_a_latency_and_a_rate_come_back() -> None:
    # Two messages of 5 us each, and a byte each way for each byte of data at 2 GB/s.
    times = {byte: [10e-6 + byte / 2e9] * 9 for byte in (4, 25_000_000)}
    found = link(times)
    assert found.sustained_bytes_per_s == pytest.approx(2e9)
    assert found.peak_bytes_per_s == pytest.approx(2e9)
    assert found.latency is not None
    assert found.latency.median_s == pytest.approx(5e-6, rel=1e-3)
    assert found.spread == pytest.approx(0)


def test_the_best_bursts_are_the_peak_and_the_middle_is_sustained() -> None:
    times = {4: [1e-6] * 21, 10_000_000: [5e-3] * 2 + [1e-2] * 19}
    found = link(times)
    assert found.sustained_bytes_per_s == pytest.approx(1e9, rel=1e-3)
    assert found.peak_bytes_per_s == pytest.approx(2e9, rel=1e-3)


def test_times_that_tell_no_rate_are_refused() -> None:
    with pytest.raises(MeasurementError, match="no longer than 4"):
        link({4: [1e-3], 1000: [1e-3]})


def test_two_processes_of_this_host_have_a_link() -> None:
    summed, sent = measure_links(rounds=2)
    assert (summed.kernel, sent.kernel) == ("gloo all-reduce", "gloo send")
    for each in (summed, sent):
        assert each.source == each.target == "process"
        assert each.peak_bytes_per_s >= each.sustained_bytes_per_s > 0
        assert each.latency is not None and each.latency.median_s > 0
        assert each.provenance.source == "measured"
