"""Learning from measured times of one GPU: traces and tables of its user."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofline.core.blocks import KeyValueBlock, Report, escape_report, notes, table
from roofline.core.dtypes import dtype
from roofline.core.files import refused, write_atomically
from roofline.core.progress import Progress
from roofline.core.schema import to_data
from roofline.core.text import counted
from roofline.core.units import format_percent
from roofline.errors import HardwareError, InputError, RooflineError, argument, error_text
from roofline.latency.gpu.chips import FLOAT8_BLOCK, chip_of
from roofline.latency.gpu.corrections import (
    Correction,
    MachineTimes,
    corrections_of,
    measured_kernels,
)
from roofline.latency.gpu.kernels import ATTENTION, DEPTHWISE, GEMMS, Kernel, has_formula, kernel_of
from roofline.latency.gpu.learned import shipped
from roofline.latency.learning import Z_80
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.machines import Hardware, read_times, resolve_hardware, times_file
from roofline.pipeline.traces import read_trace
from roofline.placement import Roof
from roofline.traces.result import HOST_TRANSFER, TraceAnalysis
from roofline.workload.operators import State
from roofline.workload.residency import trace_residency

Rows = Iterator[tuple[Kernel, float]]

_UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}

_TYPES = {"fp8": "float8_e4m3fn", "fp8_block": FLOAT8_BLOCK}

_OPERATORS = {
    **dict.fromkeys(("linear", "mm", "addmm", "matmul"), "gemm"),
    "bmm": "batched gemm",
    "ln": "layer norm",
    "cat": "concatenation",
    **dict.fromkeys(("add", "sub", "addu"), "add"),
    **dict.fromkeys(("mul", "div", "mulu", "divu"), "multiply"),
    **dict.fromkeys(("pow", "powu", "relu", "tanh", "sigmoid", "silu", "exp"), "pointwise"),
}
"""Kinds of kernels by names of operators; those with u have a scalar as their second operand."""

_TWO_TENSORS = ("add", "sub", "mul", "div", "pow", "multiply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Kernels of a machine after learning from ``source``, with numbers of new and refused rows."""

    machine: str
    file: Path
    source: str
    times: int
    shapes: int
    refused: Mapping[str, int]
    corrections: Mapping[tuple[str, str], Correction]

    @property
    def summary(self) -> str:
        """Numbers of measurements, shapes and refused rows."""
        shapes = counted(self.shapes, "shape")
        learned = f"{counted(self.times, 'measurement')} of {shapes} from {self.source}"
        rows = f"{counted(sum(self.refused.values()), 'row')} refused"
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.refused.items())
        return f"{self.machine}: learned {learned}; {rows}{f' ({reasons})' if reasons else ''}"

    def report(self) -> Report:
        """Return the summary, and the factors of predicted times by kind of kernel."""

        def interval(deviation: float) -> str:
            return f"±{format_percent(math.expm1(Z_80 * deviation))}"

        grid = table(
            "Measured ÷ predicted time without the start of kernels, shrunk by its uncertainty",
            sorted(self.corrections.items(), key=lambda each: -each[1].shapes),
            {
                "Kind": lambda each: " ".join(filter(None, each[0])),
                "Shapes": lambda each: f"{each[1].shapes:,}",
                "Times": lambda each: f"{each[1].times:,}",
                "Factor": lambda each: f"{math.exp(each[1].mean):.2f}",
                "80 % interval before": lambda each: interval(each[1].prior),
                "Now": lambda each: interval(math.hypot(each[1].deviation, each[1].scatter)),
            },
            left=("Kind",),
        )
        facts = KeyValueBlock(lines=(("File", f"{self.file} (remove it to forget)"),))
        reasons = [f"{number:,}: {reason}" for reason, number in self.refused.items()]
        blocks = (facts, grid, *notes("Refused rows", reasons))
        return escape_report(Report(headline=self.summary.partition(" (")[0], blocks=blocks))


def learn_times(
    source: str | Path | TraceAnalysis,
    hardware: Hardware | None = None,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Learning:
    """Learn the times of kernels of one GPU, for predictions of that GPU alone.

    Args:
        source: a table (``.csv``, ``.csv.gz``), a trace, or a trace that was read.
        hardware: the GPU; None: that of the trace.
        fresh: forget its earlier measurements.
        progress: called with the fraction of a trace that was read.

    Raises:
        HardwareError: it is no NVIDIA GPU with peak and bandwidth, or not named.
        InputError: the source has no usable row.
        FileFormatError: it cannot be read.
    """
    source = Path(source) if isinstance(source, str) else source
    is_table = isinstance(source, Path) and source.name.endswith((".csv", ".csv.gz"))
    if is_table and hardware is None:
        raise HardwareError(f"{source}: name the GPU of a table with {argument('hardware')}")
    if isinstance(source, Path) and not is_table:
        source = read_trace(source, hardware=hardware, progress=progress)
    refused_rows: Counter[str] = Counter()
    if isinstance(source, TraceAnalysis):
        profile, name, rows = source.hardware, source.trace, rows_of_trace(source)
    else:
        profile, name = resolve_hardware(hardware)[0], source.name
        rows = _rows_of_table(source, profile, refused_rows)
    named = profile if hardware is None else hardware
    chip, learned = chip_of(profile) if profile.device == "cuda" else None, shipped()
    if chip is None:
        raise HardwareError(f"{profile.name}: only times of NVIDIA GPUs are learned from files")
    kernels, more = measured_kernels(rows, chip, learned)
    refused_rows += more
    if not kernels:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in refused_rows.items())
        raise InputError(
            f"{name}: no measurement to learn from ({reasons or 'no operator with a time'}); give"
            " one time a row in time_s, time_ms or time_us, or a trace with shapes"
        )
    earlier = None if fresh else read_times(profile, named)
    none = MachineTimes(machine=profile.name, sources=(), kernels=())
    now = MachineTimes(machine=profile.name, sources=(name,), kernels=kernels)
    merged = (earlier or none).merged(now)
    file = times_file(profile, named)
    catalog.check_user_folder()
    write_atomically(file, json.dumps(to_data(merged)), overwrite=True)
    return Learning(
        machine=profile.name,
        file=file,
        source=name,
        times=sum(each.times for each in kernels),
        shapes=len(kernels),
        refused=refused_rows,
        corrections=corrections_of(merged.kernels, chip, learned),
    )


def rows_of_trace(trace: TraceAnalysis) -> Rows:
    """Yield the operators of a trace, each placed as if the same call had run before it."""
    roof = Roof(trace.hardware, trace.threads)
    for row in trace.operators:
        if row.state is State.COUNTED and row.measured_s and row.type != HOST_TRANSFER:
            record = row.record
            kernel = kernel_of(roof.place(record, trace_residency([record]).steady[0]))
            if has_formula(record, kernel):
                yield kernel, row.measured_s


def _rows_of_table(path: Path, profile: HardwareProfile, refused_rows: Counter[str]) -> Rows:
    """Yield the rows of a table with kind, type, sizes and time; others are counted."""

    @functools.cache
    def is_machine(device: str) -> bool:
        try:
            return catalog.load_hardware(device).name == profile.name
        except RooflineError:
            return False

    fix = f"give one column of {', '.join(_UNITS)}"
    try:
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8-sig", newline=""
        ) as text:
            reader = csv.DictReader(text)
            columns = [each for each in reader.fieldnames or () if each in _UNITS]
            if len(columns) != 1:
                given = ", ".join(reader.fieldnames or ()) or "none"
                raise refused(str(path), f"no column of times (columns: {given})", fix)
            for row in reader:
                cells = {name: each for name, each in row.items() if isinstance(each, str)}
                if not is_machine(cells.get("device") or profile.name):
                    refused_rows["of another machine"] += 1
                    continue
                try:
                    kernel = _kernel(cells)
                    time_s = float(cells.get(columns[0], "")) * _UNITS[columns[0]]
                except InputError as error:
                    refused_rows[error_text(error)] += 1
                except ValueError:
                    refused_rows["unreadable number"] += 1
                else:
                    yield kernel, time_s
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        what = getattr(error, "strerror", None) or error_text(error)
        raise refused(str(path), f"cannot be read: {what}", fix) from None


_SIZES = ("batch", "m", "n", "k", "taps", "elements", "dram_bytes", "layout_bytes", "width")
_IMAGES = ("in_channels", "out_channels", "kernel_size", "input_size", "stride", "padding")
_USUAL = (1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0)
"""Number of images, and the sizes of `_IMAGES`, that a row lacks."""


def _kernel(row: Mapping[str, str]) -> Kernel:
    """Return the kernel of a row; bytes that a row lacks are those of its operands, read once.

    Raises:
        InputError: unknown kind or type, or sizes that are missing or out of range.
    """
    sizes = {name: float(row[name]) for name in (*_SIZES, *_IMAGES) if row.get(name)}
    if not all(0 <= each < 1e18 for each in sizes.values()):
        raise InputError("a size is out of range")
    usual = "convolution" if "in_channels" in sizes else "gemm"
    name = (row.get("kind") or row.get("operator") or usual).replace("_", " ")
    kind = _OPERATORS.get(name, name)
    if kind not in {*GEMMS, *ATTENTION, *shipped().kinds}.difference(DEPTHWISE, ("other",)):
        raise InputError(f"unknown kind '{kind}'")
    given = row.get("dtype") or "float32"
    of_type = _TYPES.get(given) or dtype(given).name
    size = 1.0 if of_type.startswith("float8") else dtype(of_type).bits / 8
    if "in_channels" in sizes:
        _take_images(sizes, size)
        is_point = sizes["taps"] == 1
        kind = "first convolution" if sizes["k"] <= 4 else "convolution" + " 1x1" * is_point
    batch = sizes.setdefault("batch", 1.0)
    m, n, k = (sizes.get(each, 0.0) for each in ("m", "n", "k"))
    if "width" in sizes:
        sizes |= {"k": sizes["width"], "elements": batch * sizes.pop("width"), "batch": 1.0}
    byte = (3 if name in _TWO_TENSORS else 2) * size * sizes.get("elements", 0.0)
    if kind in ATTENTION:
        byte = 2 * batch * (m + n) * k * size
    elif kind in GEMMS:
        byte = batch * ((m + n) * k * size + m * n * max(size, 2.0))
    found = Kernel(kind=kind, dtype=of_type, **{"dram_bytes": byte, **sizes})
    needed = (batch, m, n, k) if found.is_product else (found.elements,)
    if min(needed) < 1:
        raise InputError(f"sizes of {kind} are missing")
    return found


def _take_images(sizes: dict[str, float], size: float) -> None:
    """Replace the sizes of a convolution of images by those of its product."""
    images, inner, outer, window, edge, stride, padding = (
        sizes.pop(each, usual) for each, usual in zip(("batch", *_IMAGES), _USUAL, strict=True)
    )
    output = (edge + 2 * padding - window) // max(stride, 1.0) + 1
    taps, m = window**2, images * output**2
    byte = size * (images * inner * edge**2 + outer * inner * taps + m * outer)
    sizes |= {"dram_bytes": byte, **sizes, "m": m, "n": outer, "k": inner, "taps": taps}
