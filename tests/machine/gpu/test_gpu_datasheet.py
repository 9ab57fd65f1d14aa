"""Which data sheet a device has by its name, and what follows from units and clock without one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_gpu import H200

from roofline.core.dtypes import dtype
from roofline.machine.gpu.datasheet import DataSheet
from roofline.machine.gpu.device import DeviceProperties, Gemm

GB = 10**9


def named(name: str, **facts: object) -> DataSheet:
    return DataSheet(replace(H200, name=name, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Orin", "orin"),
        # Other clocks, other memories: not these data sheets.
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Tesla V100-PCIE-16GB", None),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_only_the_very_device_has_the_data_sheet(name: str, sheet: str | None) -> None:
    profile = named(name).profile
    assert (profile.name if profile else None) == sheet


def test_a_smaller_orin_and_a_part_of_a_device_have_none() -> None:
    assert named("Orin", memory_bytes=16 * GB).profile is None
    assert named("NVIDIA H200", mig=True).profile is None


def test_memory_has_the_data_sheet_s_name() -> None:
    assert named("NVIDIA GeForce RTX 4090").memory_name == "GDDR6X"
    assert named("NVIDIA H100 NVL").memory_name == "DRAM"


@pytest.mark.parametrize(
    ("facts", "element", "rate"),
    [
        # The white papers' figures, rounded there.
        ({"capability": (8, 0), "multiprocessors": 108, "clock_hz": 1.41e9}, "float32", 19.5e12),
        ({"capability": (8, 0), "multiprocessors": 108, "clock_hz": 1.41e9}, "float64", 9.7e12),
        ({"capability": (8, 0), "multiprocessors": 108, "clock_hz": 1.41e9}, "float16", 78e12),
        ({"capability": (8, 0), "multiprocessors": 108, "clock_hz": 1.41e9}, "bfloat16", 39e12),
        ({"capability": (9, 0), "multiprocessors": 132, "clock_hz": 1.98e9}, "float64", 33.5e12),
        ({"capability": (8, 9), "multiprocessors": 128, "clock_hz": 2.52e9}, "float32", 82.6e12),
        ({"capability": (8, 9), "multiprocessors": 128, "clock_hz": 2.52e9}, "float64", 1.29e12),
        ({"capability": (7, 0), "multiprocessors": 80, "clock_hz": 1.53e9}, "float32", 15.7e12),
    ],
)
def test_units_times_clock_gives_the_vendor_s_figures(
    facts: dict[str, object], element: str, rate: float
) -> None:
    found = named("of no data sheet", **facts).compute(element, "cuda-core", "fma")
    assert found is not None and found.per_s == pytest.approx(rate, rel=0.006)
    assert found.provenance.source == "derived"


@pytest.mark.parametrize(
    ("clock_hz", "bus_bit", "rate"),
    [(2.619e9, 5120, 3.35e12), (10.501e9, 384, 1.008e12), (0.877e9, 4096, 0.9e12)],
)
def test_memory_clock_times_bus_gives_the_vendor_s_figures(
    clock_hz: float, bus_bit: int, rate: float
) -> None:
    found = named("of no data sheet", memory_clock_hz=clock_hz, bus_bit=bus_bit).memory()
    assert found is not None and found.per_s == pytest.approx(rate, rel=0.01)


def test_what_is_not_known_is_none() -> None:
    new = named("of the future", capability=(15, 0))
    assert new.compute("float32", "cuda-core", "fma") is None
    assert new.compute("bfloat16", "tensor-core", "mma") is None
    unknown = DeviceProperties(
        name="?", capability=(8, 0), multiprocessors=1, memory_bytes=GB, l2_bytes=GB
    )
    assert DataSheet(unknown).memory() is None
    assert DataSheet(unknown).compute("float32", "cuda-core", "fma") is None


@pytest.mark.parametrize(
    ("product", "rate"),
    [
        (Gemm(dtype=dtype("float32")), 67e12),
        (Gemm(dtype=dtype("float32"), tf32=True), 494.5e12),
        (Gemm(dtype=dtype("float64")), 67e12),
        (Gemm(dtype=dtype("int8")), 1979e12),
    ],
)
def test_a_product_is_held_against_the_unit_it_runs_on(product: Gemm, rate: float) -> None:
    found = named("NVIDIA H200").product(product)
    assert found is not None and found.per_s == rate
