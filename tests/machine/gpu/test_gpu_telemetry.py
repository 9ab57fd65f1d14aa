"""The sensors, read through an NVML that is not there."""

from __future__ import annotations

import sys

import pytest
from fake_nvidia import Nvml

from roofline.machine.gpu.sensors import Telemetry


def test_a_reading_is_in_si_units() -> None:
    telemetry = Telemetry("GPU-1", Nvml(limits=0x1 | 0x4 | 0x40))
    reading = telemetry.reading()
    assert reading is not None and telemetry.obstacle == ""
    assert (reading.clock_hz, reading.memory_clock_hz) == (1.98e9, 3.201e9)
    assert (reading.power_w, reading.temperature_c, reading.busy) == (512.0, 61.0, 0.37)
    assert (reading.other_processes, reading.ecc, reading.ecc_errors) == (1, True, 2)
    # Idle is no throttling.
    assert reading.limits == {"the power cap", "temperature"}
    assert telemetry.driver() == "580.1"


def test_what_a_device_does_not_tell_is_none() -> None:
    reading = Telemetry("GPU-1", Nvml(no_power=True)).reading()
    assert reading is not None
    assert reading.power_w is None and reading.clock_hz == 1.98e9


def test_a_driver_that_does_not_answer_is_said() -> None:
    telemetry = Telemetry("GPU-1", Nvml(broken=True))
    assert telemetry.obstacle == "NVML failed (Driver/library version mismatch)"
    assert telemetry.reading() is None
    assert telemetry.driver() == ""


def test_without_pynvml_the_fix_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = Telemetry("GPU-1")
    assert telemetry.obstacle == "pynvml is not installed (`pip install nvidia-ml-py`)"
    assert telemetry.reading() is None


def test_closing_twice_ends_it_once() -> None:
    nvml = Nvml()
    telemetry = Telemetry("GPU-1", nvml)
    telemetry.close()
    telemetry.close()
    assert nvml.ended == 1
    assert telemetry.reading() is None
