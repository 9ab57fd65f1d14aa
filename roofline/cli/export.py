"""``roofline export MODEL -o model.onnx``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from roofline.cli import candidates
from roofline.cli.options import (
    STDOUT,
    file_options,
    named_model,
    output_options,
    workload_options,
)
from roofline.cli.results import present_result, progress_bar, say_written
from roofline.errors import InputError


@click.command("export")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@workload_options
@file_options
@click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of .onnx: the version of ONNX's operators; default: that of torch's exporter.",
)
@output_options(".onnx .pt2")
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md", "html"]),
    help="Write what came of it to stdout as this, in place of tables.",
)
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    opset: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: str | None,
) -> None:
    """Write MODEL as .onnx or .pt2, and prove that the file computes the same.

    Each file is read again before it gets its name: its outputs are compared with the model's, and
    its operators counted; where FLOP differ, the reasons are listed. MODEL is what analyze takes,
    so that files become files: roofline export model.onnx -o model.pt2.
    """
    from roofline.foundation.blocks import View
    from roofline.pipeline.exporting import checked_paths, export

    if STDOUT in outputs:
        raise InputError("-o -: a model is written into a file, such as -o model.onnx")
    checked_paths(outputs, opset=opset, overwrite=force)
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Exporting") as progress:
        progress(0.0, model)
        result = export(
            model,
            list(inputs) or None,
            files=outputs,
            dtype=dtype,
            batch=batch,
            seq=seq,
            opset=opset,
            overwrite=force,
        )
    present_result(result, (), stdout_format=stdout_format, view=View(), force=force)
    say_written(outputs)
