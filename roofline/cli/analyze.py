"""``roofline analyze MODEL``."""

from __future__ import annotations

import functools
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from roofline.cli import candidates
from roofline.cli.compiling import check_compiled, run_compiled
from roofline.cli.language_options import language_options
from roofline.cli.options import (
    file_options,
    files_among,
    format_option,
    layers_options,
    machines_options,
    named_model,
    output_options,
    picture_of,
    run_options,
    view_options,
    workload_options,
)
from roofline.cli.results import check_analysis_files, measuring_if_needed, present_result
from roofline.cli.scaling_options import scaling_options
from roofline.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from roofline.foundation.blocks import By


def _fraction(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"--min-coverage '{text}': write a percentage from 0 to 100, such as 95%")
    return value


@click.command("analyze")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@language_options
@workload_options
@file_options
@run_options
@machines_options
@view_options
@layers_options
@click.option(
    "--compiled",
    is_flag=True,
    help="The kernels that torch.compile generates (launches, bytes, buffers) beside eager torch.",
)
@click.option(
    "--min-coverage",
    callback=_fraction,
    metavar="PERCENT",
    help="Exit with 3 if fewer of the operator calls have a formula.",
)
@output_options(".json .csv .md .html .png .svg .tfevents")
@format_option
@scaling_options
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    train: bool,
    optimizer: str | None,
    autocast: str | None,
    channels_last: bool,
    device: str | None,
    hardware: tuple[str, ...],
    threads: int | None,
    cold: bool,
    by: By,
    top: int | None,
    depth: int | None,
    fused: bool,
    layers: bool,
    paper: str | None,
    compiled: bool,
    min_coverage: float | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Count MODEL's operators and place them under a machine's ceilings.

    MODEL is the name of a model of torchvision, timm or transformers, taken from the first that
    has it (resnet50); timm:NAME and torchvision:NAME choose. hf:TYPE (hf:bert) is the transformers
    model of that type with its default sizes, hf:CLASS (hf:BertForMaskedLM) that class. Models of
    your own are package.module:factory or file.py:Model. A design of a few layers is written out:
    'conv2d(64,64,3,groups=64)+conv2d(64,64,1)@56x56'. Nothing is downloaded and no weights are
    allocated.

    The machine is this one, measured on first use, or --hardware. Several --hardware show which
    operators are compute-bound on one machine and memory-bound on another, in one table and one
    picture.

    Of a language model (hf:llama), --config gives sizes, and --stage and --context tell prefill
    from decode: tokens/s, the key-value cache, and whether it fits into memory.

    With --compiled, what torch.compile makes of the model: the kernels that Inductor generates,
    their bytes and buffers, beside the operators of eager torch (docs/compiled.md).
    """
    from roofline.design.machine_comparison import MachineComparison
    from roofline.foundation.blocks import View

    view = View(by=by, top=top, depth=depth, fused=fused)
    files = files_among(outputs, stdout_format)
    if compiled:
        check_compiled(
            hardware=hardware, view=view, layers=layers, paper=paper, min_coverage=min_coverage
        )
        run_compiled(
            model,
            list(inputs) or None,
            files=files,
            stdout_format=stdout_format,
            top=top,
            force=force,
            hardware=hardware[0] if hardware else None,
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
            batch=batch,
            seq=seq,
            threads=threads,
            cold=cold,
        )
        return
    several = len(hardware) > 1
    if several:
        MachineComparison.check_files(files, overwrite=force)
    else:
        check_analysis_files(files, overwrite=force, is_measured=False)
    picture = picture_of(layers=layers, paper=paper, files=files, stdout_format=stdout_format)
    if layers and several:
        raise InputError(
            f"--layers draws one machine on paper and measured, and --hardware names"
            f" {len(hardware)}; give one"
        )
    from roofline.pipeline import analyze, compare_machines

    if several:
        run = functools.partial(compare_machines, hardware=hardware)
    else:
        run = functools.partial(analyze, hardware=hardware[0] if hardware else None)
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        result = run(
            model,
            list(inputs) or None,
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
            batch=batch,
            seq=seq,
            threads=threads,
            cold=cold,
            progress=progress,
        )
    present_result(result, files, stdout_format=stdout_format, view=view, force=force, **picture)
    # Coverage is the model's, whatever the machine.
    analysis = result.analyses[0] if isinstance(result, MachineComparison) else result
    if min_coverage is not None and analysis.coverage.calls < min_coverage:
        raise IncompleteError(
            f"coverage is {analysis.coverage.calls:.1%} of the operator calls, below"
            f" --min-coverage {min_coverage:.1%}; add formulas with @roofline.formula"
        )
