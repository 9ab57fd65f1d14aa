"""Public measurements of GPUs: kernels with their times, to learn from and to judge.

A row that cannot be used is left out and counted in `REFUSED`, with its reason. Captures of timm's
models are kept in `build/gpu-captures-…`, by what defines kernels: one takes half a second.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Memory
from public_bounds import node_subjects, sampled, timm_model, timm_table

from roofline.errors import RooflineError
from roofline.latency.gpu.chips import FLOAT8_BLOCK, Chip, chip_of
from roofline.latency.gpu.kernels import Kernel, fused_kernel_of, has_formula, kernel_of
from roofline.latency.gpu.times import Table
from roofline.machine.catalog import bundled_folder, load_hardware, read_profile
from roofline.pipeline.traces import read_trace
from roofline.placement import Bound, Placement, Roof
from roofline.workload.fusion import fused_records, fused_traffic
from roofline.workload.operators import State
from roofline.workload.residency import Reuse, trace_residency

ROOT = Path(__file__).parents[1]
FOLDER = ROOT.parent / "shared" / "measurements"
REFUSED: Counter[str] = Counter()
"""Rows that were left out, by reason."""

FASTEST_S = 1e-7
"""Times below are no times of kernels."""

SHORT_S = 2e-5


@functools.cache
def chip(device: str) -> tuple[str, Chip]:
    """Return the name of a device's chip, equal for all its boards, and its data sheet.

    Raises:
        RooflineError: there is no machine file.
        ValueError: it is no NVIDIA GPU.
    """
    profile = load_hardware(device)
    found = chip_of(profile)
    if found is None:
        raise ValueError(f"{device}: no NVIDIA GPU")
    return re.sub(r"^rtx-?", "rtx", profile.name).partition("-")[0], found


@dataclass(frozen=True)
class Whole:
    """A whole run: kernels of its pass with their numbers of calls, and its time in seconds."""

    device: str
    name: str
    family: str
    kernels: tuple[Kernel, ...]
    calls: tuple[int, ...]
    time_s: float


def rows_of(table: pd.DataFrame) -> Iterable[Any]:
    """Return the rows of a table as named tuples."""
    return table.itertuples()


def is_chip(device: str, name: str) -> bool:
    """Return True if a device is a board of a chip."""
    return not _problem(device) and chip(device)[0] == name


@dataclass(frozen=True)
class Measured:
    """Kernels of one device and kind with their times in seconds."""

    device: str
    kind: str
    type: str
    kernels: tuple[Kernel, ...]
    time_s: np.ndarray
    is_learned: np.ndarray

    @property
    def chip(self) -> str:
        return chip(self.device)[0]

    @functools.cached_property
    def table(self) -> Table:
        return Table(self.kernels)

    def sample(self, rows: int) -> Measured:
        """Return at most so many rows to learn from, the same for every call."""
        places = np.flatnonzero(self.is_learned)
        if len(places) > rows:
            places = np.sort(np.random.default_rng(0).choice(places, rows, replace=False))
        return self.at(places)

    def at(self, places: np.ndarray) -> Measured:
        """Return the rows at positions."""
        kept = tuple(self.kernels[place] for place in places)
        return replace(
            self, kernels=kept, time_s=self.time_s[places], is_learned=self.is_learned[places]
        )


def read(folder: Path, name: str) -> pd.DataFrame:
    """Return a CSV file without rows that are no times of known GPUs; empty without the file."""
    path = folder / name
    if not path.exists():
        REFUSED[f"{name}: no such file"] += 1
        return pd.DataFrame({"device": [], "time_s": []})
    table = pd.read_csv(path, low_memory=False)
    missing = {"device", "time_s"} - set(table.columns)
    if missing:
        REFUSED[f"{name}: no column {', '.join(sorted(missing))}"] += len(table)
        return pd.DataFrame({"device": [], "time_s": []})
    times = pd.to_numeric(table.time_s, errors="coerce")
    is_time = np.isfinite(times) & (times >= FASTEST_S) & (times < 1e3)
    REFUSED[f"{name}: no time in seconds"] += int((~is_time).sum())
    table = table.assign(time_s=times)[is_time]
    known = {device: _problem(device) for device in table.device.unique()}
    for device, problem in known.items():
        if problem:
            REFUSED[f"{name}: {problem}"] += int((table.device == device).sum())
    return table[[not known[device] for device in table.device]]


def _problem(device: str) -> str:
    try:
        chip(device)
    except (RooflineError, ValueError) as error:
        return str(error).partition(" (")[0]
    return ""


_OTHER_LIBRARY = re.compile(r"^sgemm_128x128x8_NT")
"""Kernels of another version of the library, in a part of the P4's rows: judged, not learned."""


def _by_device(
    table: pd.DataFrame,
    name: str,
    kinds: Sequence[str],
    types: Sequence[str],
    kernels: Sequence[Kernel],
) -> list[Measured]:
    found: dict[tuple[str, str, str], list[int]] = {}
    labels = zip(table.device, kinds, types, strict=True)
    for place, label in enumerate(labels):
        found.setdefault(label, []).append(place)
    times = table.time_s.to_numpy()
    names = table.get("kernel", pd.Series([""] * len(table))).to_numpy()
    out: list[Measured] = []
    for (device, kind, dtype), places in found.items():
        # A product cannot be ten times faster than its peak: wrong units.
        each, time_s = [kernels[place] for place in places], times[places]
        peak = chip(device)[1].gemm_flop_per_s(dtype) or math.inf
        of_library = np.array([not _OTHER_LIBRARY.search(str(names[place])) for place in places])
        flop = np.array([2 * k.batch * k.m * k.n * k.k for k in each])
        is_real = flop / time_s < 10 * peak
        REFUSED[f"{name}: faster than ten times the peak"] += int((~is_real).sum())
        kept = tuple(itertools.compress(each, is_real))
        out.append(Measured(device, kind, dtype, kept, time_s[is_real], of_library[is_real]))
    return out


_TWO = ("add", "mul", "div", "pow")
"""Operators of two tensors in the source; others take one."""

_BY_NAME = {"softmax": "softmax", "ln": "layer norm", "gelu": "gelu"}


def operators(folder: Path) -> list[Measured]:
    """Return the operators in float32, TF32 off, by device and kind."""
    name = "gpu-operators-fp32.csv.gz"
    table = read(folder, name)
    kernels, kinds = [], []
    for row in rows_of(table):
        if row.operator in ("bmm", "linear"):
            kernels.append(_product(row.batch, row.m, row.n, row.k, "float32", 4, row.operator))
            kinds.append(kernels[-1].kind)
            continue
        elements = float(row.batch * row.width)
        byte = 4.0 * elements * (3 if row.operator in _TWO else 2)
        kind = _BY_NAME.get(row.operator, "pointwise")
        kernels.append(
            Kernel(
                kind=kind,
                dtype="float32",
                k=float(row.width),
                elements=elements,
                dram_bytes=byte,
            )
        )
        kinds.append(kind if kind in ("softmax", "layer norm") else "elementwise")
    return _by_device(table, name, kinds, ["float32"] * len(table), kernels)


def _product(
    batch: float, m: float, n: float, k: float, dtype: str, size: float, operator: str
) -> Kernel:
    byte = batch * ((m * k + k * n) * size + m * n * (2 if size < 2 else size))
    return Kernel(
        kind="gemm" if operator == "linear" else "batched gemm",
        dtype=dtype,
        batch=float(batch),
        m=float(m),
        n=float(n),
        k=float(k),
        dram_bytes=float(byte),
    )


_TYPES = {"fp8": "float8_e4m3fn", "fp8_block": FLOAT8_BLOCK}


def gemms(folder: Path) -> list[Measured]:
    """Return products in narrow types, by device and type."""
    name = "gpu-gemm-bf16-fp8.csv.gz"
    table = read(folder, name)
    if "m" in table:
        table = table[table.m > 0]
    types = [_TYPES.get(each, str(each)) for each in table.get("dtype", ())]
    sizes = [1.0 if each.startswith("float8") else 2.0 for each in types]
    kernels = [
        _product(1, row.m, row.n, row.k, dtype, size, "linear")
        for row, dtype, size in zip(rows_of(table), types, sizes, strict=True)
    ]
    return _by_device(table, name, ["gemm"] * len(table), types, kernels)


def convolutions(folder: Path) -> list[Measured]:
    """Return the convolutions in float32, TF32 off, by device."""
    name = "gpu-convolutions-fp32.csv.gz"
    table = read(folder, name)
    kernels: list[Kernel] = []
    for row in rows_of(table):
        side = (row.input_size + 2 * row.padding - row.kernel_size) // row.stride + 1
        m, taps = row.batch * side**2, row.kernel_size**2
        image = row.batch * row.in_channels * row.input_size**2
        weight = row.out_channels * row.in_channels * taps
        byte = 4.0 * (image + weight + m * row.out_channels)
        kernels.append(
            Kernel(
                kind="first convolution" if row.in_channels <= 4 else "convolution",
                dtype="float32",
                m=float(m),
                n=float(row.out_channels),
                k=float(row.in_channels),
                taps=float(taps),
                dram_bytes=byte,
            )
        )
    kinds, types = ["convolution"] * len(table), ["float32"] * len(table)
    return _by_device(table, name, kinds, types, kernels)


# -- traces ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """Operators of a profiler trace by kind and type, and their sum."""

    rows: tuple[Measured, ...]
    whole: Whole


def traces(folder: Path) -> list[Trace]:
    """Return profiler traces of GPUs.

    Each operator is placed as if the same call had run before it; times are means of equal calls.
    Copies are left out, which may come from the host. So are single operators below `SHORT_S`:
    traces show kernels without their start.
    """
    found: list[Trace] = []
    for path in sorted((folder / "traces").glob("*.json.gz")):
        try:
            trace = read_trace(path)
            device = trace.hardware.name
            chip(device)
        except (RooflineError, ValueError) as error:
            reason = str(error).removeprefix(f"{path}: ").partition("; ")[0]
            REFUSED[f"traces/{path.name}: {reason}"] += 1
            continue
        roof = Roof(trace.hardware, 1)
        times: dict[Kernel, list[float]] = {}
        for row in trace.operators:
            if row.state is State.COUNTED and row.measured_s:
                record = row.record
                placed = roof.place(record, trace_residency([record]).steady[0])
                kernel = kernel_of(placed)
                if kernel.kind != "copy" and has_formula(record, kernel):
                    times.setdefault(kernel, []).append(row.measured_s)
        if not times:
            continue
        by_kind: dict[tuple[str, str], dict[Kernel, float]] = {}
        for kernel, each in times.items():
            if (mean_s := float(np.mean(each))) >= SHORT_S:
                by_kind.setdefault((kernel.kind, kernel.dtype), {})[kernel] = mean_s
        rows = tuple(
            Measured(
                device,
                *label,
                tuple(of),
                np.array(list(of.values())),
                np.ones(len(of), dtype=bool),
            )
            for label, of in by_kind.items()
        )
        name, total_s = path.name.partition("__")[0], sum(sum(each) for each in times.values())
        calls = tuple(len(each) for each in times.values())
        found.append(Trace(rows, Whole(device, name, name, tuple(times), calls, total_s)))
    return found


# -- whole language models -------------------------------------------------------------------------


_LAYER = re.compile(r"(?:layer|h|layers)\.0\.")


def graphs(folder: Path) -> dict[str, list[tuple[Placement, int]]]:
    """Return the operators of the forward pass of each run, with their calls.

    The source has one layer of each model, from any device, whose operators run once per layer.
    """
    path = next(
        (each for each in (folder, FOLDER) if (each / "gpu-model-nodes-fp32.csv.gz").exists()), None
    )
    if path is None:
        return {}
    nodes = pd.read_csv(path / "gpu-model-nodes-fp32.csv.gz").astype(object).fillna("")
    found: dict[str, list[tuple[Placement, int]]] = {}
    for run, table in nodes.groupby("run", sort=False):
        rows = table[table.device == table.device.iloc[0]].to_dict("records")
        is_module = [row["op"] == "call_module" for row in rows]
        layer = [
            place
            for place, row in enumerate(rows)
            if is_module[place] and _LAYER.search(str(row["target"]))
        ]
        after = (place for place in range(layer[-1] + 1, len(rows)) if is_module[place])
        end = next(after, len(rows))
        expanded = {_shape(row) for row in rows if row["target"] == "expand"}
        operators: list[tuple[Placement, int]] = []
        for place, row in enumerate(rows):
            in_layer = -1 if layer[0] <= place < end else 1
            operators += [(each, in_layer) for each in _placed(row, expanded)]
        found[str(run)] = operators
    return found


def _shape(row: Mapping[str, object]) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", str(row["output_shape"]))))


def _placed(row: Mapping[str, object], expanded: set[tuple[int, ...]]) -> list[Placement]:
    if row["target"] == "contiguous":
        # After a permutation: a copy.
        row = {**row, "op": "call_function", "target": "<built-in function mul>"}
        row["input_shapes"] = f"[{list(_shape(row))}, [1]]"
    forward, _ = node_subjects(row, expanded)
    if forward.make is None:
        return []
    placed = forward.make()
    return [
        Placement(
            record=record,
            bound=Bound.MEMORY,
            eager_min_time_s=None,
            level_bytes={"DRAM": record.work.traffic_bytes},
        )
        for record in placed.records
        if record.state is not State.FREE
    ]


def language_models(folder: Path) -> list[Whole]:
    """Return end-to-end inference runs in float32 whose operators the source has."""
    name = "gpu-models-fp32.csv"
    path = next(iter(folder.glob(f"{name}*")), None)
    if path is None:
        return []
    table = pd.read_csv(path)
    table = table[table.variant.isna()]
    known, found = graphs(folder), []
    for row in rows_of(table):
        run = f"{row.model}-{row.mode}-{row.sequence}-{row.batch}"
        if _problem(row.device):
            REFUSED[f"{name}: {_problem(row.device)}"] += 1
        elif row.mode != "inf" or run not in known or not row.layers > 0:
            what = "training" if row.mode != "inf" else "no operators in the source"
            REFUSED[f"{name}: {what} ({row.model})"] += 1
        else:
            kernels = tuple(kernel_of(each) for each, _ in known[run])
            calls = tuple(int(row.layers) if n < 0 else n for _, n in known[run])
            found.append(Whole(row.device, run, row.model, kernels, calls, row.measured_s))
    return found


# -- vision models ---------------------------------------------------------------------------------

_CAPACITIES = sorted(
    {
        float(found.l2_bytes)
        for path in bundled_folder().glob("*.toml")
        if (found := chip_of(read_profile(path)))
    }
)
"""L2 capacities of bundled GPUs, for which captures keep the bytes that miss."""

_FAMILY = re.compile(r"((?:tf_)?[a-z]*).*")

Kept = list[tuple[Kernel, int, tuple[float, ...]]]
"""Kernels, their calls, and the bytes that miss each of `_CAPACITIES`."""

_KERNELS = (ROOT / "roofline" / "latency" / "gpu" / "kernels.py").read_bytes()
_memory = Memory(
    ROOT / "build" / f"gpu-captures-{hashlib.sha256(_KERNELS).hexdigest()[:8]}", verbose=0
)


@_memory.cache
def vision_kernels(model: str, batch: int, size: int, *, is_last: bool) -> tuple[int, Kept, Kept]:
    """Return parameters, eager kernels and fused kernels of a model of timm under AMP."""
    parameters, placed = timm_model(model, batch, size, "cuda", True, is_last, False)
    if placed.has_own_kernels:
        return parameters, [], []
    eager: Counter[tuple[Kernel, tuple[float, ...]]] = Counter()
    for record, reuses in zip(placed.records, placed.reuses, strict=True):
        if record.state is not State.FREE:
            eager[kernel_of(_without_levels(record)), _missing(reuses)] += 1
    fused: Counter[tuple[Kernel, tuple[float, ...]]] = Counter()
    pairs = fused_records(placed.records, fused_traffic(placed.records))
    steady = trace_residency([record for _, record in pairs]).steady
    for (members, _), reuses in zip(pairs, steady, strict=True):
        one = fused_kernel_of([placed.records[each] for each in members], 0.0)
        if one is not None:
            fused[one, _missing(reuses)] += 1
    flat = [[(each, n, byte) for (each, byte), n in of.items()] for of in (eager, fused)]
    return parameters, flat[0], flat[1]


def _without_levels(record: object) -> Placement:
    return Placement(record=record, bound=Bound.MEMORY, eager_min_time_s=None)  # pyright: ignore


def _missing(reuses: Sequence[Reuse]) -> tuple[float, ...]:
    return tuple(
        float(sum(each.bytes_beyond(int(capacity)) for each in reuses)) for capacity in _CAPACITIES
    )


def vision_rows(folder: Path, file: str) -> pd.DataFrame:
    """Return the rows of one of timm's files, in an order that spreads families evenly."""
    path = folder / "timm" / f"{file}.csv"
    if not path.exists():
        REFUSED[f"timm/{file}: no such file"] += 1
        return pd.DataFrame()
    table = timm_table(file, pd.read_csv(path)).dropna(subset=["batch", "size", "step_ms"])
    order = {name: place for place, name in enumerate(sampled(table.model))}
    table = table.assign(order=table.model.map(order), time_s=table.step_ms / 1e3)
    return table.sort_values("order").assign(
        family=[_FAMILY.sub(r"\1", name) for name in table.sort_values("order").model]
    )


def vision_models(
    table: pd.DataFrame, device: str, *, is_fused: bool = False, is_last: bool = False
) -> list[Whole]:
    """Return rows of timm as whole runs on a device; other models of that name are left out."""
    place = _CAPACITIES.index(float(chip(device)[1].l2_bytes))
    found: list[Whole] = []
    for row in rows_of(table):
        try:
            parameters, *kept = vision_kernels(
                row.model, int(row.batch), int(row.size), is_last=is_last
            )
        except RooflineError:
            REFUSED["timm: model that is not here, or refuses the size"] += 1
            continue
        kernels = kept[is_fused]
        if abs(parameters / 1e6 - row.parameters) > max(0.01, 0.005 * row.parameters):
            REFUSED["timm: another model has that name now"] += 1
        elif not kernels:
            REFUSED["timm: recurrent layers, one kernel of cuDNN"] += 1
        else:
            found.append(
                Whole(
                    device,
                    f"{row.model} {row.size} x {row.batch}",
                    row.family,
                    tuple(replace(each, dram_bytes=byte[place]) for each, _, byte in kernels),
                    tuple(n for _, n, _ in kernels),
                    row.time_s,
                )
            )
    return found
