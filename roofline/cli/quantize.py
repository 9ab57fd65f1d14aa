"""``roofline quantize MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    FileName,
    files_among,
    format_option,
    hardware_option,
    named_model,
    one_of,
    output_options,
    threads_option,
    together,
    trust_option,
    workload_options,
)
from roofline.cli.results import present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError

_SHORTCUTS = ("full", "low")


def _widths(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, ...]:
    """Widths with commas between them."""
    if value is None:
        return ()
    words = [each.strip() for each in value.split(",")]
    # Python reads no number of thousands of digits.
    if not all(each.isdecimal() and len(each) <= 4 for each in words):
        raise InputError(
            f"--sweep {value[:60]}: must be widths in bits with commas between them, such as"
            " 2,3,4,8,16"
        )
    return tuple(map(int, words))


_policy_options = together(
    click.option(
        "--weights",
        type=int,
        metavar="BITS",
        help="Bits of weights, 1 to 16, or 32: floats.  [default: 2; 32 with only --activations]",
    ),
    click.option(
        "--activations",
        type=int,
        metavar="BITS",
        help="Bits of layer inputs.  [default: 2; 32 with only --weights]",
    ),
    click.option(
        "--first-last",
        type=int,
        metavar="BITS",
        help="Minimum bits of the first and the last layer.  [default: 8]",
    ),
    click.option(
        "--shortcut",
        metavar="|".join(_SHORTCUTS),
        callback=one_of(_SHORTCUTS),
        help="Shortcuts and their layers in floats, or in few bits.  [default: full]",
    ),
    click.option("--per-channel", is_flag=True, help="Scale weights per output channel."),
    click.option(
        "--policy",
        type=FileName(),
        metavar="FILE.json",
        help="Read bits per layer from a policy or a saved result (docs/quantizing.md).",
    ),
    click.option(
        "--sweep",
        metavar="LIST",
        callback=_widths,
        help="More bit widths of weights and activations, such as 2,3,4,8,16.",
    ),
    click.option(
        "--sensitivity",
        is_flag=True,
        help="Quantize one layer at a time; rank layers by output error per saving.",
    ),
    click.option(
        "--size-budget",
        metavar="SIZE",
        help="With --sensitivity: propose bits for a model of at most SIZE (1MB).",
    ),
    click.option(
        "--time-budget",
        metavar="TIME",
        help="With --sensitivity: propose bits for a pass of at most TIME (5ms).",
    ),
    click.option(
        "--measure",
        is_flag=True,
        help="Measure native bfloat16 and int8 variants here, interleaved with the original.",
    ),
    click.option(
        "--rounds",
        type=int,
        metavar="N",
        help="With --measure: number of rounds.  [default: 7]",
    ),
)


@click.command("quantize")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@trust_option
@_policy_options
@workload_options
@hardware_option
@threads_option
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of layers in tables, largest change first.  [default: 10]",
)
@output_options(".json .csv .md .html .png .svg", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    model: str,
    inputs: tuple[str, ...],
    top: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
    **options: Any,
) -> None:
    """Estimate the gain and the cost of low-precision inference of MODEL on a machine.

    The report has bytes, ceilings and minimum times of each layer in few bits, requantization
    passes, conversions and shortcuts. Widths without a kernel on the machine are a bandwidth-only
    what-if, without a speedup. MODEL as for analyze; roofline.quantization trains such models.
    """
    from roofline.foundation.blocks import View
    from roofline.quantization.result import Quantization

    files = files_among(outputs, stdout_format)
    Quantization.check_files(files, overwrite=force)
    from roofline.pipeline.quantizing import quantize

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Quantizing") as progress:
        result = quantize(
            model, list(inputs) or None, force=force, progress=progress, say=tell, **options
        )
    present_result(result, files, stdout_format=stdout_format, view=View(top=top), force=force)
