"""Calls of the driver against a library that records them."""

from __future__ import annotations

import ctypes

import pytest
from fake_nvidia import Library

from roofline.machine.gpu.device import DeviceError, DeviceLostError, DeviceMemoryError
from roofline.machine.gpu.ptx import empty_program
from roofline.machine.gpu.torch_device import Driver


def test_arguments_arrive_with_their_size() -> None:
    library = Library()
    driver = Driver(library)
    function = driver.load(empty_program())
    call = driver.launch(function, 528, [(1 << 40, 8), (7, 4)], 5)
    call()
    call()
    assert library.launched == [(528, 32, [1 << 40, 7])] * 2
    driver.unload(function)
    assert library.unloaded == 1


def test_what_the_driver_knows_of_a_device() -> None:
    driver = Driver(Library())
    assert driver.version() == "13.1"
    assert driver.attributes() == {
        "clock_khz": 1_980_000,
        "integrated": 0,
        "memory_clock_khz": 2_619_000,
        "bus_bit": 0,
    }


def test_the_compiler_s_words_are_told_in_one_line() -> None:
    with pytest.raises(DeviceError) as it:
        Driver(Library(load=218)).load(empty_program())
    assert str(it.value) == (
        "compiling nothing failed: words of the driver (CUDA driver error 218):"
        " ptxas error : Unknown modifier"
    )


@pytest.mark.parametrize(
    ("result", "error"), [(2, DeviceMemoryError), (1, DeviceError), (700, DeviceLostError)]
)
def test_errors_are_told_apart(result: int, error: type[Exception]) -> None:
    driver = Driver(Library(launch=result))
    call = driver.launch(driver.load(empty_program()), 1, [(1, 8), (1, 4)], 5)
    with pytest.raises(error) as it:
        call()
    assert it.type is error


def test_no_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"libcuda\.so\.1: cannot open"):
        Driver()
