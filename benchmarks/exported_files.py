"""What models ask for when they are read from files, beside what their modules ask for.

    python -m benchmarks.exported_files > benchmarks/exported_files.md      # a few minutes
    python -m benchmarks.exported_files gpt2 lstm                           # these alone

The models are those that the tests hold to the same (`tests/exported_models.py`). Each is written
by ``roofline.export`` as .pt2 and .onnx, and traced into a TorchScript file by torch; each file is
counted as ``roofline analyze FILE`` counts it. Multiply-adds must be those of the module to the
last one; other differences of FLOP are listed with the reasons that ``roofline export`` prints.

Exits with 1 where multiply-adds differ, an operator is unknown, or a difference has no reason.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import roofline
from roofline.analysis import Analysis
from roofline.design.export import OperatorChange
from tests.exported_models import MODELS, made

MACHINE = "10980xe"


@dataclass(frozen=True)
class Row:
    """A file beside its module; ``error`` is that of its outputs, None where nobody compared."""

    model: str
    format: str
    found: Analysis
    module: Analysis
    error: float | None
    changes: tuple[OperatorChange, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing is left to explain."""
        is_same = self.found.totals.macs == self.module.totals.macs
        unknown = any(each.state == "unknown" for each in self.found.operators)
        return is_same and not unknown and all(each.reason for each in self.changes)

    def __str__(self) -> str:
        flop = self.found.totals.flop - self.module.totals.flop
        error = "–" if self.error is None else f"{self.error:.1e}" if self.error else "0"
        counts = (self.module.totals.macs, self.found.totals.macs)
        return (
            f"| {self.model} | {self.format} | {counts[0]:,} | {counts[1]:,} | {flop:+,}"
            f" | {error} | {'yes' if self.is_right else '**no**'} |"
        )


def rows(name: str, folder: Path) -> Iterator[Row]:
    """A model's three files."""
    model, inputs = made(name)
    module = roofline.analyze(model, inputs, hardware=MACHINE)
    paths = [folder / "model.pt2", folder / "model.onnx"]
    export = roofline.export(model, inputs, files=paths)
    for path, written in zip(paths, export.files, strict=True):
        found = roofline.analyze(str(path), hardware=MACHINE)
        yield Row(name, path.suffix, found, module, written.largest_error, written.changes)
    shape = inputs[0].rpartition("=")[2]
    traced(model, shape, folder / "model.pt")
    found = roofline.analyze(str(folder / "model.pt"), shape, hardware=MACHINE)
    yield Row(name, ".pt", found, module, None, ())


def traced(model: torch.nn.Module, shape: str, path: Path) -> None:
    """Writes a TorchScript file, as torch makes it of one pass."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "use_cache", None):
        config.use_cache = False
    numbers, _, kind = shape.partition(":")
    sizes = [int(each) for each in numbers.split("x")]
    example = torch.zeros(sizes, dtype=torch.int64 if kind else torch.float32)
    jit: Any = torch.jit
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        jit.save(jit.trace(model, example, strict=False), str(path))


def main() -> None:
    """Prints the table as it grows, and the reasons below it."""
    print("# Models in files beside their modules\n")
    print(f"torch {torch.__version__}. Rerun: `python -m benchmarks.exported_files`\n")
    print("The error is the largest of the outputs, as a fraction of their largest value, as")
    print("`roofline export` measures it; TorchScript is written by torch alone.\n")
    print("| model | file | multiply-adds: module | of the file | FLOP more | error | right |")
    print("|---|---|---:|---:|---:|---:|---|", flush=True)
    found: list[Row] = []
    for name in sys.argv[1:] or list(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(name, Path(folder)):
                print(row, flush=True)
                found.append(row)
    print("\n## Why FLOP differ\n")
    for row in found:
        for each in row.changes:
            more = (each.flop_after or 0) - (each.flop_before or 0)
            print(f"* {row.model} {row.format}, {each.op}: {more:+,}: {each.reason}")
    sys.exit(0 if all(row.is_right for row in found) else 1)


if __name__ == "__main__":
    main()
