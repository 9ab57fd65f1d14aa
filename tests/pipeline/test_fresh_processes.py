"""Functions that run in processes of their own, forked from one that computed nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from roofline.errors import InputError, MeasurementError, RooflineError
from roofline.machine.system.exclusive import exclusive_measurement
from roofline.pipeline import fresh_processes as fresh
from roofline.pipeline.fresh_processes import RunFunction, fresh_processes, run_here


def process() -> tuple[int, int]:
    return os.getpid(), os.getppid()


def product(rows: int) -> tuple[float, int]:
    """A product on all threads, which a process whose threads were forked away cannot compute."""
    import torch

    torch.set_num_threads(2)
    ones = torch.ones(rows, rows)
    return float((ones @ ones).sum()), torch.get_num_threads()


def print_and_add(one: int, other: int) -> int:
    print("models print")
    return one + other


def refuse(what: str) -> None:
    raise InputError(what)


def refuse_with_what_cannot_be_pickled() -> None:
    raise ValueError(lambda: None)


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def leave() -> None:
    os._exit(7)


def modules() -> list[str]:
    return [name for name in ("torch", "roofline.pipeline.validations") if name in sys.modules]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFunction]:
    """Run in processes whose server began where a file has the name of a standard module."""
    folder = tmp_path_factory.mktemp("hiding")
    (folder / "random.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with fresh_processes() as runs:
            patch.undo()
            yield runs


def test_each_runs_in_a_process_of_its_own_and_all_come_from_one(run: RunFunction) -> None:
    first, server = run(process)
    second, same = run(process)
    assert len({first, second, server, os.getpid()}) == 4
    assert server == same
    # They have imported what measuring takes, and threads work in each of them.
    assert run(modules) == ["torch", "roofline.pipeline.validations"]
    assert [run(product, rows) for rows in (512, 500)] == [(512.0**3, 2), (500.0**3, 2)]
    assert run(print_and_add, 2, 3) == 5
    with pytest.raises(InputError, match=r"^no good$"):
        run(refuse, "no good")
    with pytest.raises(RooflineError, match=r"^ValueError: .*lambda"):
        run(refuse_with_what_cannot_be_pickled)
    with pytest.raises(InputError, match="must be picklable"):
        run(print_and_add, 1, lambda: None)
    # A process that dies takes no other one along.
    with pytest.raises(MeasurementError, match="ended by SIGKILL, as when memory runs out"):
        run(die, signal.SIGKILL)
    with pytest.raises(MeasurementError, match=r"ended by SIGSEGV$"):
        run(die, signal.SIGSEGV)
    with pytest.raises(MeasurementError, match="exit code 7"):
        run(leave)
    assert run(print_and_add, 1, 1) == 2


# What a server imports beforehand takes seconds, and is nothing to how it ends.
UNPREPARED = fresh.__dict__["_SERVER"].replace(
    "serve(asked", "import roofline.pipeline.fresh_processes as fresh\n"
    "fresh._prepare = lambda: None\nserve(asked"
)  # fmt: skip


def test_a_server_that_is_killed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "_SERVER", UNPREPARED)
    with fresh_processes() as run:
        _, server = run(process)
        assert run(print_and_add, 1, 1) == 2
        os.kill(server, signal.SIGKILL)
        with pytest.raises(MeasurementError, match="measuring process ended"):
            run(process)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


_INTERRUPTED = """
import signal, sys
# Shells start what runs in the background with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.pipeline.test_fresh_processes import UNPREPARED, wait_for_ever
from roofline.pipeline import fresh_processes as fresh
from roofline.pipeline.fresh_processes import fresh_processes
fresh._SERVER = UNPREPARED
try:
    with fresh_processes() as run:
        run(wait_for_ever, sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


def wait_for_ever(told: str) -> None:
    Path(told).write_text(str(os.getpid()), encoding="utf-8")
    signal.pause()


def test_an_interrupt_ends_what_runs(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    asked = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(told)], stdout=subprocess.PIPE, text=True
    )
    # Returns when the other end was written.
    process_id = int(told.read_text(encoding="utf-8"))
    asked.send_signal(signal.SIGINT)
    assert asked.communicate()[0] == "interrupted\n"
    # Where nobody asks how a process ended, it stays as a zombie.
    assert not psutil.pid_exists(process_id) or (
        psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    )


def standard_random() -> tuple[str, str]:
    import random

    return str(Path.cwd()), str(random.__file__)


def test_files_of_the_user_hide_no_modules(run: RunFunction) -> None:
    stood_in, taken = run(standard_random)
    assert (Path(stood_in) / "random.py").exists()
    assert Path(taken).parent != Path(stood_in)
    assert run(print_and_add, 2, 3) == 5


def test_without_forks_it_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with fresh_processes() as run:
        assert run is run_here
        assert run(os.getpid) == os.getpid()


def parameters_of(model: Any) -> tuple[str, int]:
    return type(model).__name__, sum(each.numel() for each in model.parameters())


def test_models_of_files_are_known_there(run: RunFunction, tmp_path: Path) -> None:
    from roofline.workload.models.sources import load_model

    (tmp_path / "beside_mine.py").write_text("WIDTH = 3\n")
    (tmp_path / "mine.py").write_text(
        "import torch, beside_mine\n"
        "class Mine(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(2, beside_mine.WIDTH)\n"
    )
    model = load_model(f"{tmp_path / 'mine.py'}:Mine").rebuild
    assert model is not None
    assert run(parameters_of, model()) == ("Mine", 9)


_MEASURING = """
import sys
from pathlib import Path
from tests.pipeline.test_fresh_processes import UNPREPARED, compute_for_ever
from roofline.machine.system.exclusive import exclusive_measurement
from roofline.pipeline import fresh_processes as fresh
fresh._SERVER = UNPREPARED
with exclusive_measurement(print, folder=Path(sys.argv[1])), fresh.fresh_processes() as run:
    run(compute_for_ever, sys.argv[2])
"""


def compute_for_ever(told: str) -> None:
    Path(told).write_text(f"{os.getpid()} {os.getppid()}", encoding="utf-8")
    while True:
        pass


def runs(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def impatient(_seconds: float) -> None:
    raise TimeoutError


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_measures_ends_with_who_asked_and_holds_the_lock_until_then(
    tmp_path: Path, number: int
) -> None:
    told = tmp_path / "pids"
    os.mkfifo(told)
    asked = subprocess.Popen([sys.executable, "-c", _MEASURING, str(tmp_path), str(told)])
    left = tuple(map(int, told.read_text(encoding="utf-8").split()))
    try:
        # Stopped, they cannot notice, and live on for as long as the test wants them to.
        for each in left:
            os.kill(each, signal.SIGSTOP)
            while psutil.Process(each).status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
        asked.send_signal(number)
        assert asked.wait() == -number
        assert all(map(runs, left))
        said: list[str] = []
        with (
            pytest.raises(TimeoutError),
            exclusive_measurement(said.append, folder=tmp_path, sleep=impatient),
        ):
            pass
        assert f"roofline measurement (process {asked.pid}" in said[0]
        for each in left:
            os.kill(each, signal.SIGCONT)
        deadline = time.monotonic() + 60.0
        while any(map(runs, left)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(runs, left))
        with exclusive_measurement(lambda _: None, folder=tmp_path):
            pass
    finally:
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def test_what_measures_ends_with_its_server_too(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    os.mkfifo(told)
    asked = subprocess.Popen([sys.executable, "-c", _MEASURING, str(tmp_path), str(told)])
    worker, server = map(int, told.read_text(encoding="utf-8").split())
    # As where memory runs out, or somebody ends all that has the name.
    asked.kill()
    os.kill(server, signal.SIGKILL)
    asked.wait()
    deadline = time.monotonic() + 60.0
    while runs(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not runs(worker)
