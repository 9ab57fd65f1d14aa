"""AMX: what its kernels compile to, and what is said when the system refuses its tiles."""

from __future__ import annotations

import errno
import re

import pytest

from roofline.errors import MeasurementError
from roofline.machine.kernels import compiler, register_loop
from roofline.machine.kernels.compute import COMPUTE_KERNELS, ComputeKernel

pytest.importorskip("llvmlite.binding")

KERNELS = [k for k in COMPUTE_KERNELS if k.unit.name == "amx"]


def text_of(kernel: ComputeKernel) -> str:
    return compiler.assembly(kernel, triple="x86_64-unknown-linux-gnu")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.label)
def test_tiles_are_configured_loaded_stored_and_released(kernel: ComputeKernel) -> None:
    for form in (kernel, kernel.second_variant()):
        text = text_of(form)
        names = re.findall(r"^\s+(ldtilecfg|tile\w+|tdp\w+)\s", text, re.MULTILINE)
        assert names[0] == "ldtilecfg"
        assert names[-1] == "tilerelease"
        assert names.count("tileloadd") == 8
        assert names.count("tilestored") == form.accumulators
        products = set(re.findall(r"tdp\w+\s+%tmm(\d), %tmm(\d), %tmm(\d)", text))
        sources = {tile for right, left, _ in products for tile in (right, left)}
        sums = {total for *_, total in products}
        assert not sources & sums
        assert len(products) == len(sums) == form.accumulators


def test_the_configuration_is_eight_full_tiles() -> None:
    config = bytes(register_loop._CONFIG)
    assert len(config) == 64
    assert config[0] == 1
    assert config[1:16] == bytes(15)
    assert config[16:32] == (64).to_bytes(2, "little") * 8
    assert config[32:48] == bytes(16)
    assert config[48:56] == bytes([16] * 8)
    assert config[56:] == bytes(8)


class _System:
    def __init__(self, code: int) -> None:
        self.code, self.calls = code, list[tuple[int, ...]]()

    def syscall(self, *arguments: int) -> int:
        self.calls.append(arguments)
        return -1 if self.code else 0


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> _System:
    fake = _System(request.param)
    monkeypatch.setattr(register_loop.sys, "platform", "linux")
    monkeypatch.setattr(register_loop.ctypes, "CDLL", lambda *_, **__: fake)
    monkeypatch.setattr(register_loop.ctypes, "get_errno", lambda: fake.code)
    return fake


@pytest.mark.parametrize("system", [0], indirect=True)
def test_linux_is_asked_for_the_tiles(system: _System) -> None:
    register_loop.request_permission.__wrapped__()
    assert system.calls == [(158, 0x1023, 18)]


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (errno.EINVAL, "not supported by kernel or hypervisor"),
        (errno.EOPNOTSUPP, "not supported by kernel or hypervisor"),
        (errno.EPERM, "Operation not permitted"),
    ],
    indirect=["system"],
)
def test_a_refusal_says_why(system: _System, reason: str) -> None:
    with pytest.raises(MeasurementError, match=f"no AMX tiles: {reason}"):
        register_loop.request_permission.__wrapped__()


def test_other_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_loop.sys, "platform", "darwin")
    with pytest.raises(MeasurementError, match="needs Linux"):
        register_loop.request_permission.__wrapped__()


def test_a_kernel_without_permission_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise MeasurementError("no AMX tiles: no")

    monkeypatch.setattr(register_loop, "request_permission", refuse)
    with pytest.raises(MeasurementError, match="no AMX tiles"):
        compiler.compile_kernel(KERNELS[0])
