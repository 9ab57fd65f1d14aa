"""What models ask for when they are read from files, beside what their modules ask for.

    python benchmarks/exported_files.py > benchmarks/exported_files.md          # all, half an hour
    python benchmarks/exported_files.py resnet18 hf:gpt2                        # these alone

Each model is written by ``roofline export`` as .pt2 and as .onnx, and traced into a TorchScript
file by torch. Each file is counted as ``roofline analyze`` counts it, and the module by its name.
Multiply-adds must be the same to the last one; other
differences of FLOP are listed with the reasons that ``roofline export`` prints.

Exits with 1 where multiply-adds differ, an operator is unknown, or a difference has no reason.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import roofline
from roofline.analysis import Analysis
from roofline.workload.exports import OperatorChange
from roofline.workload.models.sources import load

MODELS: Mapping[str, str] = {
    "resnet18": "1x3x64x64",
    "mobilenet_v3_small": "1x3x64x64",
    "squeezenet1_1": "1x3x64x64",
    "shufflenet_v2_x0_5": "1x3x64x64",
    "densenet121": "1x3x64x64",
    "efficientnet_b0": "1x3x64x64",
    "convnext_tiny": "1x3x64x64",
    "regnet_y_400mf": "1x3x64x64",
    "vit_b_32": "1x3x224x224",
    "hf:bert": "input_ids=1x32:int64",
    "hf:distilbert": "input_ids=1x32:int64",
    "hf:gpt2": "input_ids=1x32:int64",
}
"""With small inputs: shapes are others with larger ones, and operators are the same."""

MACHINE = "10980xe"


@dataclass(frozen=True)
class Row:
    """A file beside its module; ``error`` is that of its outputs, None where nobody compared."""

    model: str
    format: str
    multiply_add: int
    expected: int
    flop: int
    expected_flop: int
    unknown: int
    error: float | None
    changes: tuple[OperatorChange, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether nothing is left to explain."""
        is_explained = all(each.reason for each in self.changes)
        return self.multiply_add == self.expected and not self.unknown and is_explained


def counted(name: str, given: str | None = None) -> Any:
    """The analysis of a model or of a file."""
    return roofline.analyze(name, given, hardware=MACHINE)


def rows(model: str, given: str, folder: Path) -> Iterator[Row]:
    """A model's three files."""
    module = counted(model, given)
    paths = [folder / "model.pt2", folder / "model.onnx"]
    export = roofline.export(model, given, files=paths)
    for path, written in zip(paths, export.files, strict=True):
        found = counted(str(path))
        yield _row(model, path, found, module, written.largest_error, written.changes)
    traced(model, given, folder / "model.pt")
    found = counted(str(folder / "model.pt"), given.rpartition("=")[2])
    yield _row(model, folder / "model.pt", found, module, None, ())


def _row(
    model: str,
    path: Path,
    found: Analysis,
    module: Analysis,
    error: float | None,
    changes: tuple[OperatorChange, ...],
) -> Row:
    return Row(
        model=model,
        format=path.suffix,
        multiply_add=found.totals.multiply_add,
        expected=module.totals.multiply_add,
        flop=found.totals.flop,
        expected_flop=module.totals.flop,
        unknown=sum(each.state == "unknown" for each in found.operators),
        error=error,
        changes=changes,
    )


def traced(model: str, given: str, path: Path) -> None:
    """Writes a TorchScript file, as torch makes it of one pass."""
    source = load(model)
    module = (source.rebuild or (lambda: source.module))().eval()
    if getattr(getattr(module, "config", None), "use_cache", None):
        module.config.use_cache = False  # pyright: ignore
    shape, _, kind = given.rpartition("=")[2].partition(":")
    sizes = [int(each) for each in shape.split("x")]
    example = torch.zeros(sizes, dtype=torch.int64) if kind else torch.zeros(sizes)
    jit: Any = torch.jit
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        jit.save(jit.trace(module, example, strict=False), str(path))


def report(found: list[Row]) -> Iterator[str]:
    """The table, and the reasons below it."""
    yield "# Models in files beside their modules\n"
    yield f"torch {torch.__version__}, on a CPU. Rerun: `python benchmarks/exported_files.py`\n"
    yield (
        "More FLOP are those of the file less those of the module. The error is the largest's, as a"
        " fraction of the largest value; TorchScript is written by torch alone, and not compared.\n"
    )
    yield "| model | file | multiply-adds of the module | of the file | more FLOP | error |"
    yield "|---|---|---:|---:|---:|---:|"
    for each in found:
        error = "–" if each.error is None else f"{each.error:.1e}" if each.error else "0"
        yield (
            f"| {each.model} | {each.format} | {each.expected:,} | {each.multiply_add:,}"
            f" | {each.flop - each.expected_flop:+,} | {error} |"
        )
    yield "\n## Why FLOP differ\n"
    for each in found:
        for change in each.changes:
            before, after = change.flop_before, change.flop_after
            reason = change.reason or "NO REASON"
            yield f"* {each.model} {each.format}, {change.op}: {before:,} → {after:,}: {reason}"


def main() -> None:
    chosen = sys.argv[1:] or list(MODELS)
    found: list[Row] = []
    for model in chosen:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(model, MODELS[model], Path(folder)):
                said = "right" if row.is_right else "WRONG"
                print(row.model, row.format, said, file=sys.stderr, flush=True)
                found.append(row)
    print("\n".join(report(found)))
    sys.exit(0 if all(each.is_right for each in found) else 1)


if __name__ == "__main__":
    main()
