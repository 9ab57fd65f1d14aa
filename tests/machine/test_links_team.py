"""Processes that talk to each other: what they return, and what becomes of those that fail."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import distributed

from roofline.errors import InputError, MeasurementError, RooflineError
from roofline.machine.links import in_ranks

LIMIT_S = 240.0


def sum_of_ranks(rank: int, ranks: int, more: int) -> tuple[int, int, float, int]:
    value = torch.tensor([float(rank + more)])
    distributed.all_reduce(value)
    return rank, ranks, value.item(), torch.get_num_threads()


def dies(rank: int, ranks: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.barrier()


def fails(rank: int, ranks: int) -> None:
    if rank == 0:
        raise InputError("--what: is wrong; write it otherwise")
    distributed.barrier()


def breaks(rank: int, ranks: int) -> None:
    if rank == 0:
        raise KeyError("gone")
    distributed.barrier()


def never_ends(rank: int, ranks: int, file: str) -> None:
    Path(f"{file}-{rank}").write_text(str(os.getpid()))
    while True:
        signal.pause()


def test_each_process_has_its_rank_and_talks_to_the_others() -> None:
    found = in_ranks(sum_of_ranks, 10, ranks=3, threads=1, limit_s=LIMIT_S)
    assert found == [(0, 3, 33.0, 1), (1, 3, 33.0, 1), (2, 3, 33.0, 1)]


def test_one_that_is_killed_is_noticed_and_ends_all() -> None:
    begin = time.monotonic()
    with pytest.raises(MeasurementError, match=r"rank 1 .* was ended by SIGKILL"):
        in_ranks(dies, ranks=2, limit_s=LIMIT_S)
    assert time.monotonic() - begin < LIMIT_S


def test_what_the_user_did_wrong_is_said_as_it_is() -> None:
    with pytest.raises(InputError, match=r"^--what: is wrong; write it otherwise$"):
        in_ranks(fails, ranks=2, limit_s=LIMIT_S)


def test_what_breaks_is_one_line() -> None:
    with pytest.raises(RooflineError, match=r"^KeyError: 'gone'$"):
        in_ranks(breaks, ranks=1, limit_s=LIMIT_S)


def test_what_takes_too_long_is_ended_and_no_process_is_left(tmp_path: object) -> None:
    file = f"{tmp_path}/process"
    with pytest.raises(MeasurementError, match="took longer than"):
        in_ranks(never_ends, file, ranks=2, limit_s=8.0)
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
from roofline.machine.links import in_ranks
in_ranks(tells_and_never_ends, sys.argv[2], ranks=2, limit_s=600.0)
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
    with pytest.raises(MeasurementError, match="could not be started: Resource temporarily"):
        in_ranks(sum_of_ranks, 10, ranks=2, limit_s=LIMIT_S)
    assert len(list(Path("/dev/fd").iterdir())) == before
