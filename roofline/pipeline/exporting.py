"""export: a model written into files that hold what it computes, read again and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.design.export import Export, ExportedFile, changes_between, sums_of
from roofline.errors import InputError, ModelError, RooflineError, nearest
from roofline.foundation.files import check_writable, write_together
from roofline.foundation.units import format_bytes
from roofline.pipeline.export_files import ExportedModel, file_of
from roofline.pipeline.optimization_machine import arguments_of, in_type_of
from roofline.pipeline.runs import RunOptions, Workload, check_counts, workload_of
from roofline.workload.operators import OperatorRecord
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.analyses import Model

FORMATS = (".onnx", ".pt2")
"""Suffixes of what can be written."""

LIMIT = 1e-5
"""What outputs may differ by, as a fraction of the largest of them."""

_OWN_ERRORS = 4.0
"""Where the model's own rounding is larger than the limit, how many times that is allowed: both
round, in another order."""


def export(
    model: Model,
    inputs: Any = None,
    *,
    files: str | Path | Sequence[str | Path],
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    opset: int | None = None,
    overwrite: bool = False,
) -> Export:
    """A model for inference, written as ``.onnx`` or ``.pt2``, and what the files hold.

    Each file is read again before it gets its name: its outputs are held against the model's, and
    its operators are counted. A file whose outputs differ by more than 1e-5 of the largest value
    (or, where float32 itself is farther from float64, four times that) is not written.

    Args:
        model, inputs, dtype, batch, seq: as for `analyze`. Inputs set the shapes that files are
            fixed to, and are compared on; without values they are noise, and zeros as indices.
        files: where to write; the suffix says what, ``.onnx`` or ``.pt2``.
        opset: which version of ONNX's operators; None: that of torch's exporter.
        overwrite: whether files that exist are replaced.

    Raises:
        ModelError: the model is unknown, rejects its inputs, or torch cannot export it.
        InputError: files, inputs, data type or batch are wrong.
        RooflineError: what was read again gives something else.
    """
    paths = checked_paths(files, opset=opset, overwrite=overwrite)
    options = RunOptions(dtype=dtype)
    run = options.run()
    check_counts(batch=batch, seq=seq, threads=None, inputs=inputs)
    asked = workload_of(model, inputs, run=run, batch=batch, seq=seq)
    records, notes = _records(asked, run)
    subject = _subject(asked, run)
    contents: dict[Path, bytes] = {}
    found: list[ExportedFile] = []
    for path in paths:
        made = file_of(subject, path.suffix.lower(), opset=opset, name=path.name)
        contents[path] = made.content
        found.append(_judged(path, made, asked, run, records, subject))
    write_together(contents, overwrite=overwrite)
    macs, flop, unknown = sums_of(records)
    return Export(
        model=asked.source.name,
        inputs=asked.specs,
        macs=macs,
        flop=flop,
        unknown_operators=unknown,
        files=tuple(found),
        warnings=tuple(dict.fromkeys((*asked.notes, *notes, *subject.notes))),
    )


def checked_paths(
    files: str | Path | Sequence[str | Path], *, opset: int | None, overwrite: bool
) -> tuple[Path, ...]:
    """The files to write, all checked before any work is done.

    Raises:
        InputError: none, one that is none of `FORMATS`, is named twice or cannot be written, or an
            opset that has no effect.
    """
    several = [files] if isinstance(files, (str, Path)) else list(files)
    paths = tuple(map(Path, several))
    if not paths:
        raise InputError("name a file to write: -o model.onnx or -o model.pt2")
    for number, path in enumerate(paths):
        if (suffix := path.suffix.lower()) not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(f"{path}: a model is written as {known}{nearest(suffix, FORMATS)}")
        check_writable(path, overwrite=overwrite)
        if path.resolve() in (each.resolve() for each in paths[:number]):
            raise InputError(f"{path}: is named twice; give each file once")
    if opset is not None and all(path.suffix.lower() != ".onnx" for path in paths):
        raise InputError(f"--opset {opset} is about .onnx files, and none is to be written")
    return paths


def _records(asked: Workload, run: Run) -> tuple[tuple[OperatorRecord, ...], tuple[str, ...]]:
    """One pass of a model's operators, and how it was captured."""
    from roofline.workload.capture.passes import capture

    source = asked.source
    captured = capture(
        source.module, asked.given, name=source.name, run=run, rebuild=source.rebuild
    )
    return captured.records, captured.notes


def _subject(asked: Workload, run: Run) -> ExportedModel:
    """The model with its weights, and what it gives.

    Raises:
        ModelError: it has none, or too many.
    """
    import torch

    from roofline.workload.capture.passes import has_room_for, with_weights

    source = asked.source
    byte = sum(each.nbytes for each in (*source.module.parameters(), *source.module.buffers()))
    if not has_room_for(byte):
        raise ModelError(
            f"{source.name}: its {format_bytes(byte)} of weights are too many to export it here"
        )
    with torch.random.fork_rng(devices=[]):
        # Weights that are random are the same every time.
        torch.manual_seed(0)
        module = with_weights(source.module, source.rebuild)
    if module is None:
        raise ModelError(f"{source.name}: it was given without weights, and cannot be exported")
    module = in_type_of(run, module, name=source.name)
    return ExportedModel.of(
        module,
        arguments_of(asked.given, run),
        name=source.name,
        is_random=source.rebuild is not None,
    )


def _reason(subject: ExportedModel, path: Path) -> str:
    if subject.expected_again is None:
        return f"this is torch's exporter for {path.suffix}, so try the other format"
    return (
        "the model gives something else at every call, as it keeps something; keep that in a buffer"
        " and write .pt2, or take it out of forward"
    )


def _judged(
    path: Path,
    made: Any,
    asked: Workload,
    run: Run,
    records: tuple[OperatorRecord, ...],
    subject: ExportedModel,
) -> ExportedFile:
    """What a file gives and asks for when it is read again.

    Raises:
        RooflineError: it gives something else than the model.
    """
    error = subject.error_of(made.module)
    limit = LIMIT
    if error > limit:
        limit = max(LIMIT, _OWN_ERRORS * subject.own_error())
    if not error <= limit:
        raise RooflineError(
            f"{path}: not written: what it gives differs from what {subject.name} gives by"
            f" {error:.1e} of the largest value, more than {limit:.0e}; {_reason(subject, path)}"
        )
    after, _ = _records(made.workload(asked), run)
    macs, flop, unknown = sums_of(after)
    return ExportedFile(
        path=str(path),
        format=path.suffix.lower().removeprefix("."),
        opset=made.opset,
        size_bytes=len(made.content),
        largest_error=error,
        limit=limit,
        macs=macs,
        flop=flop,
        unknown_operators=unknown,
        changes=changes_between(records, after),
    )
