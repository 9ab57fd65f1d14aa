"""Opening a device with a torch that has none; torch's settings; and one that is there, if any."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_nvidia import Library, Nvml

torch = pytest.importorskip("torch")

from roofline.core.dtypes import dtype  # noqa: E402
from roofline.errors import HardwareError  # noqa: E402
from roofline.machine.gpu.device import (  # noqa: E402
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    Gemm,
)
from roofline.machine.gpu.measurement import measure_gpu  # noqa: E402
from roofline.machine.gpu.ptx import empty_program  # noqa: E402
from roofline.machine.gpu.sensors import Telemetry  # noqa: E402
from roofline.machine.gpu.torch_device import (  # noqa: E402
    Driver,
    TorchDevice,
    _guarded,
    float32_gemm_precision,
    open_device,
)


@pytest.mark.parametrize(
    ("cuda", "hip", "said"),
    [
        (None, None, "device='cuda': torch .* is a CPU build; install one with CUDA"),
        (None, "6.4", "device='cuda': torch .* is built for ROCm"),
        ("13.0", None, "device='cuda': torch finds no NVIDIA device"),
    ],
)
def test_a_device_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, said: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(HardwareError, match=said) as it:
        measure_gpu()
    assert "\n" not in str(it.value)


def test_a_driver_that_is_too_old_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old() -> int:
        raise RuntimeError("The NVIDIA driver on your system is too old\n(found version 11040).")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", too_old)
    with pytest.raises(HardwareError, match="system is too old") as it:
        open_device()
    assert "\n" not in str(it.value)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"), DeviceMemoryError),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), DeviceLostError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling"), DeviceError),
        (NotImplementedError('"addmm" not implemented for this'), DeviceError),
    ],
)
def test_torch_s_errors_become_ours(raised: Exception, error: type[Exception]) -> None:
    with pytest.raises(error) as it, _guarded():
        raise raised
    assert it.type is error


@pytest.mark.parametrize("tf32", [True, False])
def test_the_precision_of_products_is_put_back(tf32: bool) -> None:
    products = torch.backends.cuda.matmul
    before = (products.fp32_precision, products.allow_tf32, torch.get_float32_matmul_precision())
    with pytest.raises(KeyboardInterrupt), float32_gemm_precision(tf32=tf32):
        assert products.fp32_precision == ("tf32" if tf32 else "ieee")
        raise KeyboardInterrupt
    # Also the old setting can still be read: torch refuses that after a mix of both.
    after = (products.fp32_precision, products.allow_tf32, torch.get_float32_matmul_precision())
    assert after == before


class Clock:
    """Events that read a clock which goes on by a millisecond whenever it is read."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Clock.now += 1.0
        self.at = Clock.now

    def elapsed_time(self, end: Clock) -> float:
        return end.at - self.at


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch, library: Library) -> TorchDevice:
    """The real device's code, its memory and products on the host, its driver a fake."""
    current = [3]
    properties = SimpleNamespace(
        name="NVIDIA H200 MIG 1g.18gb",
        major=9,
        minor=0,
        multi_processor_count=16,
        total_memory=1 << 34,
        L2_cache_size=1 << 23,
        uuid="1",
    )
    stream = SimpleNamespace(cuda_stream=5)
    for name, stand_in in {
        "current_device": lambda: current[-1],
        "set_device": current.append,
        "get_device_properties": lambda index: properties,
        "mem_get_info": lambda device: (7, 9),
        "current_stream": lambda device: stream,
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
        "Event": Clock,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    telemetry = Telemetry("GPU-1", Nvml())
    device = TorchDevice(
        device=torch.device("cpu"), driver=Driver(library), telemetry=lambda uuid: telemetry
    )
    assert current[-1] == 0
    return device


def test_the_facts_are_those_of_torch_and_the_driver(on_host: TorchDevice) -> None:
    facts = on_host.facts
    assert (facts.capability, facts.multiprocessors, facts.l2_bytes) == ((9, 0), 16, 1 << 23)
    assert (facts.clock_hz, facts.memory_clock_hz, facts.bus_bit) == (1.98e9, 2.619e9, None)
    assert facts.mig and facts.driver == "580.1" and torch.__version__ in facts.library
    assert on_host.free_bytes() == 7


def test_bursts_are_timed_by_events(on_host: TorchDevice) -> None:
    ran: list[int] = []
    assert on_host.times(lambda: ran.append(1), 3, 2) == pytest.approx([1e-3, 1e-3])
    assert len(ran) == 6
    assert on_host.queue_time(lambda: ran.append(1), 4) > 0
    reading = on_host.watch(lambda: ran.append(1), 1)
    assert reading is not None and reading.clock_hz == 1.98e9
    assert len(ran) == 11
    assert on_host.reading() == reading and on_host.reading_obstacle() == ""


def test_programs_go_through_the_driver(on_host: TorchDevice, library: Library) -> None:
    address = on_host.allocate(4096)
    assert address > 0
    on_host.load(empty_program())
    call = on_host.launch(empty_program(), 64, [(address, 8), (9, 4)])
    on_host.times(call, 1, 2)
    assert library.launched == [(64, 32, [address, 9])] * 2


def test_closing_puts_torch_s_device_back_and_unloads(
    on_host: TorchDevice, library: Library
) -> None:
    on_host.load(empty_program())
    on_host.close()
    on_host.close()
    assert library.unloaded == 1
    assert torch.cuda.current_device() == 3
    assert on_host.reading_obstacle() == "NVML was closed"


@pytest.mark.parametrize(
    "product",
    [
        *(Gemm(dtype=dtype(name)) for name in ("float64", "float32", "bfloat16", "int8")),
        Gemm(dtype=dtype("float32"), tf32=True),
        *(Gemm(dtype=dtype(name)) for name in ("float8_e4m3fn", "float8_e5m2")),
    ],
    ids=lambda each: each.label,
)
def test_products_can_be_called(on_host: TorchDevice, product: Gemm) -> None:
    on_host.times(on_host.product(product, 32), 2, 1)


def test_small_calls_and_copies_can_be_called(on_host: TorchDevice) -> None:
    for call in on_host.small_calls().values():
        on_host.queue_time(call, 2)
    for direction in ("to device", "to host"):
        on_host.times(on_host.transfer(direction, "pageable", 64), 1, 1)


@pytest.mark.hardware
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA device")
def test_a_real_device() -> None:
    products = torch.backends.cuda.matmul
    before = products.allow_tf32, torch.cuda.current_device()
    profile, _ = measure_gpu(effort="quick")
    assert (products.allow_tf32, torch.cuda.current_device()) == before
    print(*profile.conditions, sep="\n")
    kinds = {each.kind for each in profile.compute}
    assert kinds == {"hardware", "library"}
    assert profile.memory[0].name == "L2"
    assert len(profile.links) == 4
    left_out = [each for each in profile.conditions if each.startswith("not measured")]
    assert left_out == []
