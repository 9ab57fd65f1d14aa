"""What every test gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The first pass of a process takes torch half a second; how long an example takes says nothing.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def no_user_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the user's data folder where no real profile is, and none is written."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    if sys.platform == "darwin":
        monkeypatch.setenv("HOME", str(home))
    return home
