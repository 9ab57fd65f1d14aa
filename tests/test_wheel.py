"""The wheel holds what an installed roofline needs, and the sdist what a wheel needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the unpacked sdist."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")

    def build(kind: str, root: Path, out: Path) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        (built,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
        return built

    with tarfile.open(build("sdist", ROOT, folder)) as sdist:
        sdist.extractall(source, filter="data")
    (root,) = source.iterdir()
    assert (root / "tests" / Path(__file__).name).exists()
    assert (root / "scripts" / "test").exists()
    return build("wheel", root, folder)


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = [each for each in (ROOT / "roofline").rglob("*") if each.is_file()]
    data = [each for name in ("hwprofiles", "modelconfigs") for each in (ROOT / name).iterdir()]
    expected = {each.relative_to(ROOT).as_posix() for each in package if each.suffix != ".pyc"}
    expected |= {f"roofline/{each.relative_to(ROOT).as_posix()}" for each in data}
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_version_has_one_place(wheel: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert wheel.name.split("-")[1] == tomllib.loads(text)["project"]["version"]
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


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
