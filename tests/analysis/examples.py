"""Small machines and models that tests of reports share; all numbers are made up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from roofline.analysis import (
    SUMMED,
    Analysis,
    InputSpec,
    MemoryPeak,
    Module,
    OperatorRow,
    Run,
    Totals,
    coverage_of,
    known_work,
    row_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
)
from roofline.core.dtypes import dtype
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    Duration,
    HardwareProfile,
    Host,
    MemoryKernel,
    MemoryLevel,
    Overhead,
    Provenance,
)
from roofline.placement import Pass, Roof, place, roof_notes
from roofline.workload.fusion import FusedOperator, fused_traffic
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.residency import Residency, trace_residency
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import FLOP_PER_MAC, Work, traffic_of

T = TypeVar("T")


class Made(Mapping[str, T], Generic[T]):
    """Examples by name, each made once, when it is first asked for.

    Tests are collected by their names alone, in every process that runs some of them.
    """

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


MEASURED = Provenance(
    source="measured",
    reference="roofline measure: bursts of 0.5 ms, 95 % quantile",
    date="2026-03-04",
    tool_version="0.1.0",
)
DATASHEET = Provenance(
    source="datasheet", reference="Example Corp. data sheet 7", date="2020-01-02"
)


def ceiling(
    rate: float,
    *,
    of: str = "float32",
    unit: str = "avx512",
    kernel: str = "fma",
    threads: int = 2,
    kind: Literal["hardware", "library"] = "hardware",
    provenance: Provenance = MEASURED,
) -> ComputeCeiling:
    """A compute ceiling of `rate` FLOP/s, sustained at 95 % of it."""
    return ComputeCeiling(
        kind=kind,
        kernel=kernel,
        dtype=dtype(of),
        unit=unit,
        threads=threads,
        peak_flop_per_s=rate,
        sustained_flop_per_s=0.95 * rate,
        spread=0.013 if provenance.source == "measured" else None,
        provenance=provenance,
    )


def level(
    name: str,
    capacity_bytes: int | None,
    rates: dict[MemoryKernel, float],
    *,
    threads: int = 2,
    provenance: Provenance = MEASURED,
) -> MemoryLevel:
    """A memory level with byte/s by kernel; L1 and L2 are private."""
    return MemoryLevel(
        name=name,
        capacity_bytes=capacity_bytes,
        scope="private" if name in ("L1", "L2") else "shared",
        bandwidth=tuple(
            Bandwidth(
                kernel=kernel,
                threads=threads,
                peak_bytes_per_s=rate,
                sustained_bytes_per_s=0.9 * rate,
                spread=0.02 if provenance.source == "measured" else None,
                provenance=provenance,
            )
            for kernel, rate in rates.items()
        ),
    )


def full_profile() -> HardwareProfile:
    """A measured two-core machine: four units in two data types, bfloat16, library, four levels."""
    rates = {"scalar": 32.4e9, "sse": 131e9, "avx2": 262e9, "avx512": 523e9}
    compute = [ceiling(rate, unit=unit) for unit, rate in rates.items()]
    compute += [ceiling(rate / 2, unit=unit, of="float64") for unit, rate in rates.items()]
    compute.append(ceiling(1046e9, unit="avx512-bf16", of="bfloat16", kernel="dot"))
    compute.append(ceiling(208e9, unit="torch", kernel="gemm", kind="library"))
    compute.append(ceiling(454e9, unit="torch", kernel="conv", kind="library"))
    return HardwareProfile(
        name="example-2core",
        device="cpu",
        threads=2,
        description="Two cores for examples",
        host=Host(
            cpu_model="Example CPU 9000 @ 2.60GHz",
            architecture="x86_64",
            operating_system="Linux 6.1",
            instruction_sets=("sse4_2", "avx2", "avx512f", "avx512_bf16"),
            available_cpus=2,
            versions={"torch": "2.13.0"},
        ),
        compute=tuple(compute),
        memory=(
            level("L1", 32 * 1024, {"read": 640e9, "write": 320e9, "copy": 610e9}),
            level("L2", 1024 * 1024, {"read": 210e9, "copy": 232e9}),
            level("L3", 32 * 1024 * 1024, {"read": 92e9, "copy": 60e9}),
            level("DRAM", None, {"read": 41.3e9, "copy-nt": 38.8e9, "update": 39.1e9}),
        ),
        overheads=(
            Overhead(
                name="torch dispatch",
                threads=1,
                time=Duration(fast_s=1.3e-6, median_s=1.4e-6, spread=0.03, provenance=MEASURED),
            ),
        ),
        conditions=("another process took 3 % of the CPU",),
    )


def dram_profile() -> HardwareProfile:
    """A data sheet with 100 GFLOP/s and 10 GB/s, so the ridge is at 10 FLOP/byte."""
    return sheet("sheet", 100e9, 10e9)


def sheet(
    name: str, flop_per_s: float, bytes_per_s: float, *, description: str = ""
) -> HardwareProfile:
    """A machine of one float32 ceiling and one memory level."""
    compute = ceiling(
        flop_per_s, unit="core", kernel="unspecified", threads=4, provenance=DATASHEET
    )
    rates: dict[MemoryKernel, float] = {"unspecified": bytes_per_s}
    return HardwareProfile(
        name=name,
        device="cpu",
        threads=4,
        description=description,
        compute=(compute,),
        memory=(level("DRAM", None, rates, threads=4, provenance=DATASHEET),),
    )


def bare_profile() -> HardwareProfile:
    """A machine of which only library ceilings are known: no bounds."""
    return HardwareProfile(
        name="bare",
        device="cpu",
        threads=1,
        compute=(ceiling(100e9, unit="torch", kernel="gemm", kind="library", threads=1),),
    )


@dataclass
class Network:
    """Records operators one after another; every method returns the tensor it makes."""

    records: list[OperatorRecord] = field(default_factory=list[OperatorRecord])
    phase: Phase = "forward"
    storages: int = 0
    persistent: dict[int, TensorSpec] = field(default_factory=dict[int, TensorSpec])
    _flows: tuple[tuple[OperatorRecord, ...], Residency, tuple[FusedOperator, ...]] | None = None

    def flows(self) -> tuple[Residency, tuple[FusedOperator, ...]]:
        """Reuses and fused traffic, which no machine changes: found once for several machines."""
        records = tuple(self.records)
        if self._flows is None or self._flows[0] != records:
            self._flows = (records, trace_residency(records), fused_traffic(records))
        return self._flows[1:]

    def tensor(self, *shape: int, role: Role = Role.ACTIVATION, of: str = "float32") -> TensorSpec:
        """A new tensor in a storage of its own."""
        elements = 1
        for size in shape:
            elements *= size
        spec = TensorSpec(
            shape=shape,
            dtype=dtype(of),
            distinct_elements=elements,
            storage=self.storages,
            role=role,
        )
        self.storages += 1
        if role.persists:
            self.persistent[spec.storage] = spec
        return spec

    def call(
        self,
        op: str,
        kind: str,
        module: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        *,
        flop: int | None,
        macs: int = 0,
        min_flop: int | None = None,
        state: State | None = None,
    ) -> TensorSpec:
        """Records a call; ``flop=None`` is an operator without a formula."""
        known = state or (State.UNKNOWN if flop is None else State.COUNTED)
        self.records.append(
            OperatorRecord(
                index=len(self.records),
                op=op,
                type=kind,
                module_path=module,
                phase=self.phase,
                inputs=tuple(inputs),
                outputs=(output,),
                state=known,
                work=Work()
                if known is State.FREE
                else Work(
                    flop=flop,
                    macs=None if flop is None else macs,
                    min_flop=flop if min_flop is None else min_flop,
                    **traffic_of(inputs, (output,)),
                ),
                formula=op if flop is not None else "",
            )
        )
        return output

    def convolution(
        self, x: TensorSpec, channels: int, kernel: int, module: str, *, stride: int = 1
    ) -> TensorSpec:
        """A convolution of the same size, or half of it with ``stride=2``."""
        batch, depth, height, width = x.shape
        out = self.tensor(batch, channels, height // stride, width // stride)
        weight = self.tensor(channels, depth, kernel, kernel, role=Role.PARAMETER)
        taps = out.elements * depth * kernel * kernel
        return self.call(
            "aten.convolution",
            "convolution",
            module,
            (x, weight),
            out,
            flop=FLOP_PER_MAC * taps,
            macs=taps,
        )

    def norm(self, x: TensorSpec, module: str) -> TensorSpec:
        """A batch normalization in inference."""
        scale = self.tensor(2, x.shape[1], role=Role.PARAMETER)
        return self.call(
            "aten.native_batch_norm",
            "normalization",
            module,
            (x, scale),
            self.tensor(*x.shape),
            flop=2 * x.elements,
        )

    def relu(self, x: TensorSpec, module: str) -> TensorSpec:
        """A ReLU in place."""
        return self.call("aten.relu_", "pointwise", module, (x,), x, flop=x.elements)

    def linear(self, x: TensorSpec, features: int, module: str) -> TensorSpec:
        """A linear layer with bias."""
        batch, depth = x.shape
        weight = self.tensor(features, depth, role=Role.PARAMETER)
        bias = self.tensor(features, role=Role.PARAMETER)
        taps = batch * depth * features
        out = self.tensor(batch, features)
        return self.call(
            "aten.addmm",
            "matrix product",
            module,
            (bias, x, weight),
            out,
            flop=FLOP_PER_MAC * taps + out.elements,
            macs=taps,
        )


def resnet_like(stages: Sequence[int] = (3, 4, 6, 3)) -> Network:
    """Bottleneck blocks like ResNet-50's, with a concatenation, an unknown operator and views."""
    net = Network()
    x = net.convolution(net.tensor(1, 3, 224, 224, role=Role.INPUT), 64, 7, "conv1", stride=2)
    x = net.relu(net.norm(x, "bn1"), "relu")
    pooled = net.tensor(1, 64, 56, 56)
    x = net.call("aten.max_pool2d", "pooling", "maxpool", (x,), pooled, flop=9 * pooled.elements)
    for stage, blocks in enumerate(stages):
        width = 64 * 2**stage
        for block in range(blocks):
            name = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            y = net.convolution(x, width, 1, f"{name}.conv1")
            y = net.relu(net.norm(y, f"{name}.bn1"), f"{name}.relu")
            y = net.convolution(y, width, 3, f"{name}.conv2", stride=stride)
            y = net.relu(net.norm(y, f"{name}.bn2"), f"{name}.relu")
            y = net.norm(net.convolution(y, 4 * width, 1, f"{name}.conv3"), f"{name}.bn3")
            if not block:
                x = net.convolution(x, 4 * width, 1, f"{name}.downsample.0", stride=stride)
                x = net.norm(x, f"{name}.downsample.1")
            y = net.call("aten.add_", "pointwise", name, (y, x), y, flop=y.elements)
            x = net.relu(y, f"{name}.relu")
    both = net.tensor(1, 2 * x.shape[1], *x.shape[2:])
    net.call("aten.cat", "data movement", "", (x, x), both, flop=0)
    net.call("custom.shuffle", "unknown", "shuffle", (both,), net.tensor(*both.shape), flop=None)
    mean = net.tensor(1, x.shape[1])
    mean = net.call("aten.mean", "reduction", "avgpool", (x,), mean, flop=x.elements)
    mean = net.call("aten.view", "data movement", "", (mean,), mean, flop=0, state=State.FREE)
    net.linear(mean, 1000, "fc")
    return net


def analysis_of(
    net: Network,
    profile: HardwareProfile,
    *,
    threads: int | None = None,
    model: str = "example",
    cache: Pass = "steady",
    run: Run | None = None,
    modules: Sequence[Module] = (),
    warnings: Sequence[str] = (),
) -> Analysis:
    """The analysis of what `net` recorded on `profile`, as the pipeline makes it."""
    reuse, fused = net.flows()
    roof = Roof(profile, threads or profile.threads)
    placements = place(net.records, reuse, roof, cache=cache)
    rows = tuple(map(row_of, placements, fused))
    inputs = [spec for spec in net.persistent.values() if spec.role is Role.INPUT]
    parameters = [spec for spec in net.persistent.values() if spec.role is Role.PARAMETER]
    lasting = {
        role: sum(spec.byte for spec in net.persistent.values() if spec.role is role)
        for role in Role
    }
    peak = MemoryPeak(
        operator=reuse.peak_index,
        parameter_bytes=lasting[Role.PARAMETER],
        buffer_bytes=0,
        input_bytes=lasting[Role.INPUT],
        optimizer_bytes=lasting[Role.OPTIMIZER_STATE],
        activation_bytes=reuse.peak_activation_bytes,
        gradient_bytes=reuse.peak_gradient_bytes,
    )
    return Analysis(
        model=model,
        inputs=tuple(InputSpec(shape=spec.shape, dtype=spec.dtype) for spec in inputs),
        threads=roof.threads,
        cache=cache,
        hardware=profile,
        coverage=coverage_of(rows),
        totals=totals_of(
            rows,
            parameters=sum(spec.elements for spec in parameters),
            parameter_size_bytes=sum(spec.byte for spec in parameters),
            optimizer_state_bytes=peak.optimizer_bytes,
            peak_memory_bytes=peak.byte,
            all_tensors_bytes=sum(lasting.values()) + reuse.all_activation_bytes,
        ),
        run=run or Run(),
        peak=peak,
        modules=tuple(modules),
        operators=rows,
        warnings=(*warnings, *roof_notes(placements, roof, run.device if run else "cpu")),
    )


_OF_MODELS = (
    *("parameters", "parameter_size_bytes", "optimizer_state_bytes", "peak_memory_bytes"),
    *("all_tensors_bytes", "predicted_s", "predicted_low_s", "predicted_high_s"),
)
"""Totals that do not follow from rows."""


def totals_of(rows: Sequence[OperatorRow], **of_model: Any) -> Totals:
    """The sums over `rows`, with what the model takes in memory as given."""
    work = known_work(rows)
    measured = [row.measured_s for row in rows if row.state is not State.FREE]
    known = [time for time in measured if time is not None]
    return Totals(
        **{name: getattr(work, name) for name in SUMMED},
        unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
        traffic_bytes=work.traffic_bytes,
        fused_bytes=sum_fused_bytes(rows),
        buffer_size_bytes=0,
        eager_min_time_s=sum_eager_min_time_s(rows),
        measured_s=sum(known) if known and len(known) == len(measured) else None,
        **of_model,
    )


def measured(analysis: Analysis, factor: float = 2.0, iqr: float = 0.02) -> Analysis:
    """`analysis` with every operator measured at `factor` times its bound, and so large an IQR."""
    rows = [
        row
        if row.state is State.FREE or (bound := row.eager_min_time_s) is None
        else replace(row, measured_s=factor * bound, measured_iqr_s=iqr * bound)
        for row in analysis.operators
    ]
    return with_rows(analysis, rows)


def with_rows(analysis: Analysis, rows: Sequence[OperatorRow]) -> Analysis:
    """`analysis` with other rows, and the sums that belong to them."""
    kept = {name: getattr(analysis.totals, name) for name in _OF_MODELS}
    totals = totals_of(rows, **kept)
    return replace(analysis, operators=tuple(rows), coverage=coverage_of(rows), totals=totals)


@functools.cache
def resnet() -> Analysis:
    """The ResNet-like model on the measured machine."""
    return analysis_of(resnet_like(), full_profile(), model="resnet-like")


@functools.cache
def small() -> Analysis:
    """Two operators on the data sheet: a linear layer of 640 FLOP + 10 and a ReLU of 10."""
    net = Network()
    x = net.linear(net.tensor(1, 32, role=Role.INPUT), 10, "fc")
    net.relu(x, "act")
    return analysis_of(net, dram_profile(), model="small")


@functools.cache
def trained() -> Analysis:
    """A step of a linear layer of 32 x 10 that is called once, with a gradient and an update.

    The layer is `small`'s; its backward product is 640 FLOP, the update 2 for each of 320 weights.
    """
    net = Network()
    x = net.tensor(1, 32, role=Role.INPUT)
    y = net.linear(x, 10, "body.fc")
    weight = net.records[0].inputs[2]
    net.phase = "backward"
    gradient = net.tensor(10, 32, role=Role.GRADIENT)
    net.call("aten.mm", "matrix product", "body.fc", (y, x), gradient, flop=640, macs=320)
    net.phase = "optimizer"
    state = net.tensor(10, 32, role=Role.OPTIMIZER_STATE)
    operands = (weight, gradient, state)
    net.call("aten.add_", "pointwise", "body.fc", operands, weight, flop=640)
    return analysis_of(
        net,
        dram_profile(),
        model="lesson",
        run=Run(train=True, optimizer="sgd", loss="the output", autocast="bfloat16"),
        modules=(
            Module(path="", kind="Net", calls=1, parameters=0),
            Module(path="body", kind="Sequential", calls=1, parameters=0),
            Module(path="body.fc", kind="Linear", calls=1, parameters=330),
        ),
    )


@functools.cache
def one_operator() -> Analysis:
    """A single ReLU."""
    net = Network()
    net.relu(net.tensor(4, 8, role=Role.INPUT), "act")
    return analysis_of(net, full_profile(), model="one")


@functools.cache
def unknown_only() -> Analysis:
    """A single operator without a formula: its FLOP is unknown, its bytes are not."""
    net = Network()
    x = net.tensor(1000, 1000, role=Role.INPUT)
    net.call("custom.mystery", "unknown", "odd", (x,), net.tensor(1000, 1000), flop=None)
    return analysis_of(net, full_profile(), model="unknown-only")


@functools.cache
def hostile() -> Analysis:
    """Names that break out of HTML, Markdown, rich markup, mathtext and terminals if let."""
    net = Network()
    x = net.tensor(64, 64, role=Role.INPUT)
    net.relu(x, "<script>alert('x')</script>|[bold]`$a_b$`\x1b[31m\nnext")
    return analysis_of(
        net,
        full_profile(),
        model="<img src=x onerror=alert(1)>|pipe",
        warnings=("beware of <b>this</b> | and `that`",),
    )


@functools.cache
def examples() -> Mapping[str, Analysis]:
    """The analyses that every renderer must manage, by name."""
    return Made(
        {
            "empty model": lambda: analysis_of(Network(), full_profile(), model="empty"),
            "empty model, bare machine": lambda: analysis_of(
                Network(), bare_profile(), model="empty"
            ),
            "one operator": one_operator,
            "unknown operator": unknown_only,
            "no ceilings": lambda: analysis_of(
                resnet_like((1,)), bare_profile(), model="unbounded"
            ),
            "DRAM only": small,
            "hostile names": hostile,
            "measured": lambda: measured(resnet()),
            "resnet": resnet,
            "training step": trained,
        }
    )
