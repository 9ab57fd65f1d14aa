"""The same sweep here, in processes, in executors of other kinds, and on a Dask cluster."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import roofline
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError, MeasurementError
from roofline.latency.calibration import Calibration
from roofline.latency.features import features_of
from roofline.latency.predictor import Predictor
from roofline.latency.samples import OperatorSample, RunSample
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.sweeps import jobs, planning
from roofline.placement import Roof, place
from roofline.run import RunOptions
from tests.builders import ceiling, level, profile

DESIGNS = (
    "conv2d({channels},{channels},3,padding=1)@{size}x{size}",
    "conv2d({channels},{channels},3,padding=1,groups={channels})"
    "+conv2d({channels},{channels},1)@{size}x{size}",
)
AXES = "channels=8:64:x2,size=7|14|28,threads=1|2"
NAMES = ("standard", "separable")


@pytest.fixture(scope="module")
def machine() -> HardwareProfile:
    return profile(
        [ceiling(1e11), ceiling(2e11, threads=2)],
        [level("DRAM", None, {"read": {1: 1e10, 2: 2e10}})],
        threads=2,
    )


@pytest.fixture(scope="module")
def learned(machine: HardwareProfile) -> Predictor:
    """What would be learned of convolutions that take three times their bound and 20 us."""
    runs: list[RunSample] = []
    for threads in (1, 2):
        for family in range(6):
            context = jobs.Context(
                designs=tuple(
                    jobs.Design(name=each, model=each, variables=("channels", "size"))
                    for each in DESIGNS
                ),
                machines=(jobs.Machine(profile=machine, threads=threads),),
                options=RunOptions(),
            )
            samples: list[OperatorSample] = []
            for size in range(5 + family, 40, 4):
                job = jobs.Job(
                    design=family % 2, values=(("channels", 8 + 5 * family), ("size", size))
                )
                found = context.captured(job)
                placed = place(found.capture.records, found.reuse, Roof(machine, threads))
                for each in placed:
                    facts = features_of(each, threads)
                    time_s = 3 * facts.eager_min_time_s + 2e-5
                    samples.append(
                        OperatorSample(
                            facts=facts, calls=1, time_s=time_s, iqr_s=0.0, page_faults=0.0
                        )
                    )
            total_s = sum(each.time_s for each in samples)
            runs.append(
                RunSample(
                    model=f"m{family}", family=f"f{family}", origin="calibrate", date="2026-01-01",
                    batch=1, dtype="float32", threads=threads, channels_last=False, train=False,
                    end_to_end_s=total_s + len(samples) * 3e-6, end_to_end_iqr_s=0.0,
                    operators_s=total_s, free_s=0.0, free_calls=0, calls=len(samples),
                    page_faults=0.0, operators=tuple(samples),
                )
            )  # fmt: skip
    return Predictor(calibration=Calibration(runs))


@pytest.fixture
def predicted(learned: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is one of which something was learned."""
    monkeypatch.setattr(planning, "load_predictor", lambda *_, **__: learned)


def swept(machine: HardwareProfile, **how: Any) -> Comparison:
    return roofline.sweep(*DESIGNS, axes=AXES, hardware=machine, names=NAMES, **how)


class Elsewhere(Executor):
    """Runs everything here, as if it were elsewhere: all that goes in or out is pickled."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        function, there = pickle.loads(pickle.dumps((fn, args)))
        future.set_result(pickle.loads(pickle.dumps(function(*there))))
        return future


@pytest.mark.usefixtures("predicted")
def test_the_same_digits_wherever_it_runs(machine: HardwareProfile) -> None:
    here = swept(machine, executor="local")
    assert {each.basis for each in here.verdicts} == {"predicted"}
    assert here.calibration.endswith("measured 2026-01-01")
    assert swept(machine, executor=Elsewhere()).cells == here.cells
    with ThreadPoolExecutor(3) as threads:
        assert swept(machine, executor=threads).cells == here.cells
    told: list[float] = []
    done = swept(machine, jobs=2, progress=lambda fraction, _: told.append(fraction))
    assert done.cells == here.cells
    assert told == sorted(told) and told[-1] == 1.0
    assert done.to_json() == here.to_json()


# -- workers that die ------------------------------------------------------------------------------

_MORTAL = """
import os, signal
from pathlib import Path
from torch import nn

def _worker_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def Block(n):
    mark = Path({mark!r})
    is_mortal = n == {always} or (n == 9 and not mark.exists())
    if os.getpid() != {parent} and is_mortal:
        mark.touch()
        _worker_dies()
    return nn.Conv2d(n, n, 1)
"""


def mortal(folder: Path, *, always: int = 0) -> Path:
    """A file of a design that ends its worker once at n = 9, and at `always` every time."""
    path = folder / "mortal.py"
    mark = str(folder / "died")
    path.write_text(_MORTAL.format(mark=mark, always=always, parent=os.getpid()))
    return path


def test_the_jobs_of_a_dead_process_run_again(machine: HardwareProfile, tmp_path: Path) -> None:
    designs = (f"{mortal(tmp_path)}:Block({{n}})@1x{{n}}x6x6", "conv2d({n},{n},3)@6x6")
    how: dict[str, Any] = {"axes": "n=7:10:+1", "hardware": machine, "names": ("once", "other")}
    here = roofline.sweep(*designs, executor="local", **how)
    there = roofline.sweep(*designs, executor="processes", jobs=1, **how)
    assert (tmp_path / "died").exists()
    assert there.cells == here.cells


def test_a_design_that_ends_every_worker_is_named(machine: HardwareProfile, tmp_path: Path) -> None:
    file = mortal(tmp_path, always=8)
    designs = (f"{file}:Block({{n}})@1x{{n}}x6x6", "conv2d({n},{n},3)@6x6")
    how: dict[str, Any] = {"axes": "n=7:10:+1", "hardware": machine, "names": ("deadly", "other")}
    with pytest.raises(MeasurementError, match="deadly at n 8 crashes every process"):
        roofline.sweep(*designs, executor="processes", jobs=2, **how)


def test_an_executor_that_is_shut_down_is_refused(machine: HardwareProfile) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(InputError, match="accepts no jobs"):
        swept(machine, executor=executor)


# -- Dask ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers, each a process of its own."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as found:
            yield found


@pytest.mark.usefixtures("predicted")
@pytest.mark.filterwarnings("ignore")
def test_the_same_digits_on_a_dask_cluster(machine: HardwareProfile, cluster: Any) -> None:
    told: list[float] = []
    there = swept(
        machine,
        executor=f"dask:{cluster.scheduler_address}",
        progress=lambda fraction, _: told.append(fraction),
    )
    assert there.cells == swept(machine, executor="local").cells
    assert told == sorted(told) and told[-1] == 1.0


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_is_killed_midway_loses_nothing(
    machine: HardwareProfile, cluster: Any
) -> None:
    killed: list[int] = []

    def kill_one(fraction: float, _: str) -> None:
        if fraction > 0.3 and not killed:
            process = cluster.workers[0].process.process
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    there = swept(machine, executor=f"dask:{cluster.scheduler_address}", progress=kill_one)
    assert killed
    assert there.cells == swept(machine, executor="local").cells


@pytest.mark.filterwarnings("ignore")
def test_files_are_shipped_to_a_cluster(
    machine: HardwareProfile, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path means something in this folder only: workers were started in another.
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef Block(n): return nn.Conv2d(n, n, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    designs = ("mine.py:Block({n})@1x{n}x6x6", "conv2d({n},{n},3)@6x6")
    how: dict[str, Any] = {"axes": "n=3|4", "hardware": machine}
    there = roofline.sweep(*designs, executor=f"dask:{cluster.scheduler_address}", **how)
    assert there.cells == roofline.sweep(*designs, executor="local", **how).cells
    assert not there.problems


@pytest.mark.parametrize(
    ("address", "words"),
    [("", "no address"), ("127.0.0.1:9", "scheduler"), ("no address at all", "scheduler")],
)
@pytest.mark.filterwarnings("ignore")
def test_a_dask_address_that_does_not_answer(
    machine: HardwareProfile, address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    from roofline.pipeline.sweeps import execution

    monkeypatch.setattr(execution, "_PATIENCE_S", 0.2)
    with pytest.raises(InputError, match=words) as caught:
        swept(machine, executor=f"dask:{address}")
    assert "\n" not in str(caught.value)


def test_without_distributed_it_is_said_how_to_get_it(
    machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'roofline\[dask\]'"):
        swept(machine, executor="dask:127.0.0.1:8786")


# -- products of matrices on one thread ------------------------------------------------------------


def blas_threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_within_and_as_many_as_before_after() -> None:
    before = blas_threads()
    if not before:
        pytest.skip("numpy has no OpenBLAS of its own here")
    with pytest.raises(KeyError), jobs.one_thread():
        assert set(blas_threads()) == {1}
        with jobs.one_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
        raise KeyError
    assert blas_threads() == before


def test_products_have_the_same_digits_every_time() -> None:
    left = np.random.default_rng(1).random((3, 1200))
    right = np.random.default_rng(2).random((1200, 1200))
    with jobs.one_thread():
        first = left @ right
        assert all(((left @ right) == first).all() for _ in range(5))
