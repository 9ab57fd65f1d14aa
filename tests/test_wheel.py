"""The wheel holds what an installed roofline needs: every module, and the machines."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_every_module_and_machine_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "roofline").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    for suffix in ("js", "css", "html"):
        found = list((ROOT / "roofline").rglob(f"*.{suffix}"))
        assert found
        for path in found:
            assert path.relative_to(ROOT).as_posix() in names
    for path in (ROOT / "hwprofiles").glob("*.toml"):
        assert f"roofline/hwprofiles/{path.name}" in names
    for path in (ROOT / "modelconfigs").glob("*.json"):
        assert f"roofline/modelconfigs/{path.name}" in names
    assert "roofline/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "hwprofiles/"))]


def test_it_runs_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere and found first, it knows its machines and analyses a model."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    code = (
        "import roofline; print(roofline.__file__, flush=True)\n"
        "from roofline.cli.main import main; main()"
    )
    found, _, listed = run("-c", code, "hardware", "list").partition("\n")
    assert found.startswith(str(site))
    assert "10980xe-measured" in listed
    analysed = run("-m", "roofline", "analyze", "resnet18", "--hardware", "10980xe")
    assert analysed.startswith("resnet18: minimum ")
