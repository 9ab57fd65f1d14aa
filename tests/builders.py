"""Small profiles and operators that tests across the project are built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofline.core.dtypes import dtype
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    HardwareProfile,
    MemoryLevel,
    Provenance,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

SOURCE = Provenance(source="measured", reference="made up for a test", date="2026-01-01")


def ceiling(
    rate: float,
    *,
    of: str = "float32",
    unit: str = "avx2",
    kernel: str = "fma",
    threads: int = 1,
) -> ComputeCeiling:
    """A hardware ceiling of `rate` flop/s."""
    return ComputeCeiling(
        kind="hardware",
        kernel=kernel,
        dtype=dtype(of),
        unit=unit,
        threads=threads,
        peak_flop_per_s=rate,
        sustained_flop_per_s=rate,
        provenance=SOURCE,
    )


def level(
    name: str,
    capacity: int | None,
    rates: Mapping[str, Mapping[int, float]],
    scope: str = "shared",
) -> MemoryLevel:
    """A memory level; `rates` are byte/s by kernel and thread count."""
    return MemoryLevel(
        name=name,
        capacity_bytes=capacity,
        scope="private" if scope == "private" else "shared",
        bandwidth=tuple(
            Bandwidth(
                kernel=kernel,  # pyright: ignore[reportArgumentType]
                threads=threads,
                peak_bytes_per_s=rate,
                sustained_bytes_per_s=rate,
                provenance=SOURCE,
            )
            for kernel, by_threads in rates.items()
            for threads, rate in by_threads.items()
        ),
    )


def profile(
    compute: Sequence[ComputeCeiling], memory: Sequence[MemoryLevel], threads: int = 1
) -> HardwareProfile:
    """A machine with these ceilings."""
    return HardwareProfile(
        name="test", device="cpu", threads=threads, compute=tuple(compute), memory=tuple(memory)
    )


def tensor(
    storage: int,
    elements: int,
    *,
    role: Role = Role.ACTIVATION,
    of: str = "float32",
    offset_bytes: int = 0,
) -> TensorSpec:
    """A flat tensor of `elements`."""
    return TensorSpec(
        shape=(elements,),
        dtype=dtype(of),
        distinct_elements=elements,
        storage=storage,
        offset_bytes=offset_bytes,
        role=role,
    )


def record(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    flop: int | None = 0,
    macs: int = 0,
    min_flop: int | None = None,
    freed: Sequence[int] = (),
    state: State = State.COUNTED,
    index: int = 0,
    op: str = "aten.test",
) -> OperatorRecord:
    """An operator that reads `inputs` and writes `outputs`."""
    return OperatorRecord(
        index=index,
        op=op,
        type="pointwise",
        module_path="",
        phase="forward",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        state=state,
        work=Work(
            flop=flop,
            macs=None if flop is None else macs,
            min_flop=flop if min_flop is None else min_flop,
            **traffic_of(inputs, outputs),
        ),
        freed=tuple(freed),
    )
