"""What tests of machines share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline.machine.measuring.pinned_threads import PinnedThreads
from tests.machine.fake_machine import FakeMachine, install
from tests.machine.host_trees import Tree


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine on paper in the place of this host."""
    return install(monkeypatch)


@pytest.fixture
def workers(machine: FakeMachine) -> Iterator[PinnedThreads]:
    """Two threads of the machine on paper."""
    with PinnedThreads(2, (0, 1)) as workers:
        yield workers


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A fake root folder."""
    return Tree(tmp_path)
