"""What tests of machines share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline.machine.measuring.crew import Crew
from tests.machine.fake_machine import FakeMachine, install
from tests.machine.host_trees import Tree


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine on paper in the place of this host."""
    return install(monkeypatch)


@pytest.fixture
def crew(machine: FakeMachine) -> Iterator[Crew]:
    """Two threads of the machine on paper."""
    with Crew(2, (0, 1)) as crew:
        yield crew


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A fake root folder."""
    return Tree(tmp_path)
