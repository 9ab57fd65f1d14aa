"""How many threads compute, and where: afterwards it is as before."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch

from roofline.latency.measuring import rounds as module
from roofline.latency.measuring.rounds import torch_threads

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="the system has no such thing"
)


def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def affinities() -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for each in Path("/proc/self/task").iterdir():
        try:
            found[int(each.name)] = os.sched_getaffinity(int(each.name))
        except OSError:
            continue
    return found


@needs_affinity
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_threads_and_places_are_restored_after_anything(error: type[BaseException]) -> None:
    threads, before = torch.get_num_threads(), affinities()
    with pytest.raises(error), torch_threads(1, cpus()):
        assert torch.get_num_threads() == 1
        raise error
    assert torch.get_num_threads() == threads
    after = affinities()
    assert {each: after[each] for each in before if each in after} == {
        each: before[each] for each in before if each in after
    }


@needs_affinity
def test_fewer_threads_than_cores_are_kept_on_the_first_of_them() -> None:
    allowed = cpus()
    if len(allowed) < 2:
        pytest.skip("there is one CPU")
    # The fastest come first, whatever their numbers.
    with torch_threads(1, (allowed[1], allowed[0])):
        assert os.sched_getaffinity(0) == {allowed[1]}
    assert cpus() == allowed


@needs_affinity
def test_as_many_threads_as_cores_may_run_anywhere() -> None:
    before = affinities()
    with torch_threads(len(cpus()), cpus()):
        assert affinities() == before
    with torch_threads(2, ()):
        assert affinities() == before


@needs_affinity
def test_threads_that_began_meanwhile_are_set_free() -> None:
    allowed = cpus()
    if len(allowed) < 2:
        pytest.skip("there is one CPU")
    go, seen = threading.Event(), list[set[int]]()

    def work() -> None:
        seen.append(os.sched_getaffinity(0))
        go.wait(10)
        seen.append(os.sched_getaffinity(0))

    with torch_threads(1, allowed):
        thread = threading.Thread(target=work)
        thread.start()
        while not seen:
            pass
    go.set()
    thread.join()
    assert seen == [{allowed[0]}, set(allowed)]


@needs_affinity
def test_a_core_that_may_not_be_used_is_left_alone() -> None:
    before, threads = affinities(), torch.get_num_threads()
    with torch_threads(1, (9999, 9998)):
        assert affinities() == before
    assert affinities() == before
    assert torch.get_num_threads() == threads


def test_systems_without_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_TASKS", tmp_path / "none")
    threads = torch.get_num_threads()
    with torch_threads(1, (0, 1)):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads


def test_no_threads_at_all_change_nothing() -> None:
    threads = torch.get_num_threads()
    with pytest.raises(RuntimeError), torch_threads(0, (0,)):
        pass
    assert torch.get_num_threads() == threads
