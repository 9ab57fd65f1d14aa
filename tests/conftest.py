"""What every test gets."""

from __future__ import annotations

import gc
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Modules of tests, and torch, are objects that stay: looking for garbage among them takes long.
gc.set_threshold(50_000)

# The first pass of a process takes torch half a second; how long an example takes says nothing.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session", autouse=True)
def own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for temporary files that no other process has.

    The lock on measurements lies there: tests that run at once do not wait for one another.
    """
    tmp_path_factory.getbasetemp()  # Made first, pytest's own folder is not in this one.
    with (
        tempfile.TemporaryDirectory(prefix="roofline-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Tests of what a user may not read become another user.
        Path(folder).chmod(0o711)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session")
def new_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that nobody has; pytest's own way looks at all folders before it makes one."""
    parent = tmp_path_factory.mktemp("homes")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture
def a_registry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers as a formula is gone after it."""
    from roofline.workload.formulas import known, registry

    monkeypatch.setattr(registry, "_formulas", dict(known()))


@pytest.fixture(params=[True, False], ids=["fast path", "taken apart"])
def fast(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether layers of attention take torch's fast path, and they do so."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(request.param)
    yield request.param
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """Closes the figures that `.plot()` left to `matplotlib.pyplot.show`."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(autouse=True)
def no_user_data(new_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the user's data folder where no real profile is, and none is written."""
    home = next(new_folders)
    home.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    # Numbers are those of this code: captures that were kept are read in one test of their own.
    monkeypatch.setenv("ROOFLINE_NO_CACHE", "1")
    if sys.platform == "darwin":
        monkeypatch.setenv("HOME", str(home))
    return home
