"""Learning from measured times of one GPU: traces and tables of its user."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from roofline.core.blocks import KeyValueBlock, Report, escape_report, notes, table
from roofline.core.dtypes import dtype
from roofline.core.files import refused, write_atomically
from roofline.core.progress import Progress
from roofline.core.schema import to_data
from roofline.core.text import counted
from roofline.errors import HardwareError, InputError, argument, error_text
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
from roofline.pipeline.machines import (
    Hardware,
    names_host,
    read_times,
    resolve_hardware,
    times_file,
)
from roofline.pipeline.traces import read_trace
from roofline.placement import Roof
from roofline.traces.result import HOST_TRANSFER, TraceAnalysis
from roofline.workload.operators import State
from roofline.workload.residency import trace_residency

Rows = Iterator[tuple[Kernel, float]]

_UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}

_SIZES = ("batch", "m", "n", "k", "taps", "elements", "dram_bytes")


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
        reasons = _words(self.refused)
        return f"{self.machine}: learned {learned}; {rows}{f' ({reasons})' if reasons else ''}"

    def report(self) -> Report:
        """Return the summary, and the factors of predicted times by kind of kernel."""

        def interval(mean: float, *deviations: float) -> str:
            return "–".join(
                f"{math.exp(mean + side * Z_80 * math.hypot(*deviations)):.2f}" for side in (-1, 1)
            )

        grid = table(
            "Measured ÷ predicted time of new shapes, without the start of kernels",
            sorted(self.corrections.items(), key=lambda each: -each[1].shapes),
            {
                "Kind": lambda each: " ".join(filter(None, each[0])),
                "Shapes": lambda each: f"{each[1].shapes:,}",
                "Times": lambda each: f"{each[1].times:,}",
                "80 % interval before": lambda each: interval(0.0, each[1].prior),
                "Factor": lambda each: f"{math.exp(each[1].mean):.2f}",
                "80 % interval": lambda each: interval(
                    each[1].mean, each[1].deviation, each[1].scatter
                ),
            },
            left=("Kind",),
        )
        facts = KeyValueBlock(lines=(("File", f"{self.file} (remove it to forget)"),))
        reasons = [f"{number:,}: {reason}" for reason, number in self.refused.items()]
        blocks = (facts, grid, *notes("Refused rows", reasons))
        return escape_report(Report(headline=self.summary.partition(" (")[0], blocks=blocks))


def _words(refused_rows: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in refused_rows.items())


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
    name = source.name if isinstance(source, Path) else source.trace
    is_table = name.lower().endswith((".csv", ".csv.gz"))
    fix = f"name its GPU with {argument('hardware')}"
    # Otherwise a missing profile of this machine, a CPU, would be measured first.
    if names_host(hardware) and (is_table or hardware is not None):
        raise HardwareError(f"{name}: {fix}")
    refused_rows: Counter[str] = Counter()
    if isinstance(source, Path) and is_table:
        profile = resolve_hardware(hardware)[0]
        rows = _rows_of_table(source, profile, refused_rows)
    else:
        if isinstance(source, Path):
            source = read_trace(source, hardware=hardware, progress=progress)
        profile, rows = source.hardware, rows_of_trace(source)
        given = profile if hardware is None else resolve_hardware(hardware)[0]
        if given.name != profile.name:
            raise HardwareError(f"{name}: was read as a trace of {profile.name}, not {given.name}")
        if source.is_of_other_machine:
            raise HardwareError(f"{name}: {profile.name} is {source.machine_source}; {fix}")
    chip, learned = chip_of(profile) if profile.device == "cuda" else None, shipped()
    if chip is None:
        raise HardwareError(f"{profile.name}: only times of NVIDIA GPUs are learned from files")
    kernels, more = measured_kernels(rows, chip, learned)
    refused_rows += more
    if not kernels:
        raise InputError(
            f"{name}: no measurement to learn from"
            f" ({_words(refused_rows) or 'no operator with a time'}); give one time a row in"
            f" {', '.join(_UNITS)}, or a trace with shapes"
        )
    named = profile if hardware is None else hardware
    earlier = None if fresh else read_times(profile, named)
    merged = (earlier or MachineTimes(machine=profile.name)).merged(name, kernels)
    file = times_file(profile, named)
    if file.parent == catalog.user_folder():
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
    fix = f"separate columns by commas; give one column of {', '.join(_UNITS)}"
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(
            path, "rt", encoding="utf-8-sig", newline=""
        ) as text:
            reader = csv.DictReader(text)
            columns = [each for each in reader.fieldnames or () if each in _UNITS]
            if len(columns) != 1:
                given = ", ".join(reader.fieldnames or ()) or "none"
                raise refused(str(path), f"no column of times (columns: {given})", fix)
            for row in reader:
                try:
                    if None in row:
                        raise InputError("more cells than columns")
                    if (row.get("device") or profile.name) != profile.name:
                        raise InputError("of another machine")
                    kernel = _kernel(row)
                    time_s = float(row[columns[0]] or "nan") * _UNITS[columns[0]]
                except InputError as error:
                    refused_rows[error_text(error)] += 1
                except ValueError:
                    refused_rows["unreadable number"] += 1
                else:
                    yield kernel, time_s
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        what = getattr(error, "strerror", None) or error_text(error)
        raise refused(str(path), f"cannot be read: {what}", "save it as text in UTF-8") from None


def _kernel(row: Mapping[str, str | None]) -> Kernel:
    """Return the kernel of a row; bytes that a row lacks are those of its operands, read once.

    Raises:
        InputError: unknown kind or type, or sizes out of range.
    """
    sizes = {name: float(cell) for name in _SIZES if (cell := row.get(name))}
    if not all(0 <= each < 1e18 for each in sizes.values()):
        raise InputError("a size is out of range")
    kind, given = row.get("kind") or "gemm", row.get("dtype") or ""
    if kind not in {*GEMMS, *ATTENTION, *shipped().kinds}.difference(DEPTHWISE, ("other",)):
        raise InputError(f"unknown kind '{kind}'")
    of_type = given if given == FLOAT8_BLOCK else dtype(given).name
    byte = 1.0 if of_type.startswith("float8") else dtype(of_type).bits / 8
    found = Kernel(kind=kind, dtype=of_type, **sizes)
    if "dram_bytes" in sizes:
        return found
    if kind in ATTENTION:
        moved = 2 * found.batch * (found.m + found.n) * found.k * byte
    elif found.is_product:
        operands = (found.m + found.n * found.taps) * found.k * byte
        moved = found.batch * (operands + found.m * found.n * max(byte, 2.0))
    else:
        moved = (3 if kind in ("add", "multiply") else 2) * byte * found.elements
    return replace(found, dram_bytes=moved)
