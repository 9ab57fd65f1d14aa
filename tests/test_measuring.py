"""`measure_hardware` of the package: alone on the machine, and kept where it is found again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import roofline
from roofline.errors import HardwareError, InputError, MeasurementError
from roofline.machine.catalog import host_file, load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring import benchmark
from roofline.machine.measuring.estimation import Finding, Series
from roofline.machine.system.exclusive import lock_file
from roofline.pipeline.measuring import measure_hardware, measure_with_samples
from tests.builders import ceiling, level, profile

FOUND = profile([ceiling(1e11)], [level("DRAM", None, {"read": {1: 1e10}})])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What a measurement that takes no time was asked for."""
    calls: list[dict[str, Any]] = []

    def measure(**options: Any) -> tuple[HardwareProfile, tuple[Series, ...]]:
        # The lock is held, and says by whom.
        assert lock_file(tmp_path).read_text(encoding="utf-8").startswith("process ")
        calls.append(options)
        return FOUND, (Series(label="x", quantity="flop", work=1.0, bursts=()),)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(benchmark, "measure_hardware", measure)
    return calls


def test_the_profile_is_kept_with_its_samples(asked: list[dict[str, Any]]) -> None:
    measured = measure_with_samples(effort="quick", threads=2)
    assert (measured.profile, measured.file) == (FOUND, host_file())
    assert [each.label for each in measured.series] == ["x"]
    assert load_hardware("host") == FOUND
    samples = json.loads(host_file().with_suffix(".samples.json").read_text(encoding="utf-8"))
    assert samples["profile"] == FOUND.name
    (options,) = asked
    assert (options["effort"], options["threads"]) == ("quick", 2)


def test_unless_it_shall_not_be(asked: list[dict[str, Any]]) -> None:
    def progress(done: float, what: str) -> None:
        pass

    def found(finding: Finding) -> None:
        pass

    measured = measure_with_samples(save=False)
    assert (measured.profile, measured.file) == (FOUND, None)
    assert not host_file().parent.exists()
    assert roofline.measure_hardware is measure_hardware
    assert measure_hardware(progress=progress, found=found, save=False) == FOUND
    assert len(asked) == 2
    assert (asked[1]["progress"], asked[1]["found"]) == (progress, found)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": "tpu"}, InputError, "cannot measure device 'tpu'; choose cpu or cuda"),
        ({"device": "cuda", "threads": 2}, HardwareError, "has no effect on a cuda device"),
        ({"effort": "fast"}, InputError, "unknown effort 'fast'; choose quick, default or"),
        ({"threads": "2"}, InputError, "threads must be a whole number, got '2'"),
        ({"threads": True}, InputError, "threads must be a whole number, got True"),
        ({"threads": 0}, HardwareError, "threads=0 does not fit this host: choose 1 to "),
        ({"threads": 1 << 20}, HardwareError, "threads=1048576 does not fit this host: choose 1"),
    ],
)
def test_wrong_options_measure_nothing(
    asked: list[dict[str, Any]], options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        measure_hardware(**options)
    assert asked == []
    assert not host_file().exists()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_measured(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "data"))
    with pytest.raises(InputError, match="cannot create folder"):
        measure_hardware()
    assert asked == []
    assert measure_hardware(save=False) == FOUND


def test_a_measurement_that_fails_gives_the_lock_back_and_keeps_what_was_there(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_hardware()
    before = host_file().read_bytes()
    working = benchmark.measure_hardware

    def fail(**_: object) -> None:
        raise MeasurementError("nothing could be measured")

    monkeypatch.setattr(benchmark, "measure_hardware", fail)
    with pytest.raises(MeasurementError):
        measure_hardware()
    assert host_file().read_bytes() == before
    monkeypatch.setattr(benchmark, "measure_hardware", working)
    said: list[str] = []
    measure_hardware(waiting=said.append)
    assert said == []


def test_what_cannot_be_kept_is_measured_all_the_same(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise InputError("host.toml: cannot be written: No space left on device")

    monkeypatch.setattr("roofline.machine.catalog.save_measured_profile", full)
    measured = measure_with_samples()
    assert (measured.profile, measured.file) == (FOUND, None)
    assert "cannot save the profile: host.toml: cannot be written: No space" in measured.problem
    with pytest.raises(InputError, match="No space left"):
        measure_hardware()
