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
from roofline.cli.results import print_or_put, progress_bar, say_written
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
    # No width has more digits, and Python reads no number of thousands of them.
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
        help="Bits of weights, 1 to 16, or 32 for floats; default: 2, or floats where only"
        " --activations is given.",
    ),
    click.option(
        "--activations",
        type=int,
        metavar="BITS",
        help="Bits of the activations that layers read; default: 2, or floats where only --weights"
        " is given.",
    ),
    click.option(
        "--first-last",
        type=int,
        metavar="BITS",
        help="Bits of the first and the last layer, where all others have fewer; default: 8.",
    ),
    click.option(
        "--shortcut",
        metavar="|".join(_SHORTCUTS),
        callback=one_of(_SHORTCUTS),
        help="Shortcuts around layers, and the layers on them, in floats (full) or in the bits of"
        " the others (low); default: full.",
    ),
    click.option(
        "--per-channel", is_flag=True, help="Weights have a scale for each output channel."
    ),
    click.option(
        "--policy",
        type=FileName(),
        metavar="FILE.json",
        help="Take the bits from a file: a policy with bits for single layers, or a saved result,"
        " of which the proposed policy is taken (docs/quantizing.md).",
    ),
    click.option(
        "--sweep",
        metavar="LIST",
        callback=_widths,
        help="Also with these widths for weights and activations, such as 2,3,4,8,16.",
    ),
)

_sensitivity_options = together(
    click.option(
        "--sensitivity",
        is_flag=True,
        help="Quantise one layer at a time, and rank layers by the error that it makes against what"
        " it saves.",
    ),
    click.option(
        "--size-budget",
        metavar="SIZE",
        help="With --sensitivity: propose bits for each layer so that the model has at most so many"
        " bytes, such as 1MB.",
    ),
    click.option(
        "--time-budget",
        metavar="TIME",
        help="With --sensitivity: propose bits for each layer so that a pass takes at most so long,"
        " such as 5ms.",
    ),
)

_timing_options = together(
    click.option(
        "--measure",
        is_flag=True,
        help="Run the model here in what torch has kernels for (bfloat16, int8), timed in turn with"
        " the original, beside the what-if.",
    ),
    click.option(
        "--rounds",
        type=int,
        metavar="N",
        help="With --measure: how often all are timed in turn; default: 7.",
    ),
)


@click.command("quantize")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@trust_option
@_policy_options
@_sensitivity_options
@_timing_options
@workload_options
@hardware_option
@threads_option
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many layers are shown, those that change most; default: 10.",
)
@output_options(".json .csv .md .html .png .svg", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    hardware: str | None,
    threads: int | None,
    weights: int | None,
    activations: int | None,
    first_last: int | None,
    shortcut: Literal["full", "low"] | None,
    per_channel: bool,
    policy: Path | None,
    sweep: tuple[int, ...],
    sensitivity: bool,
    size_budget: str | None,
    time_budget: str | None,
    measure: bool,
    rounds: int | None,
    top: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Say what fewer bits would be worth for MODEL on a machine, and what they cost.

    Every layer is put under the roof again with its weights and activations in few bits: bytes,
    ceilings, bounds, passes that requantise, conversions, and what shortcuts carry. Where the
    machine has no kernel for a width it is a bandwidth-only what-if, and no speed is claimed. MODEL
    is what analyze takes; roofline.quantization trains models to such bits.
    """
    from datetime import date

    from roofline.presentation.quantization_output import (
        check_quantization_targets,
        render_quantization,
        write_quantization,
    )

    files = files_among(outputs, stdout_format)
    check_quantization_targets(files, overwrite=force)
    from roofline.pipeline.quantizing import quantize
    from roofline.presentation.reports.quantization_report import quantization_report

    # Those that are not given are the policy's own.
    of_policy = {"first_last": first_last, "shortcut": shortcut}
    options: dict[str, Any] = {name: each for name, each in of_policy.items() if each is not None}
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Quantizing") as progress:
        result = quantize(
            model,
            list(inputs) or None,
            policy=policy,
            weights=weights,
            activations=activations,
            per_channel=per_channel,
            sweep=sweep,
            hardware=hardware,
            sensitivity=sensitivity,
            size_budget=size_budget,
            time_budget=time_budget,
            measure=measure,
            rounds=rounds,
            dtype=dtype,
            batch=batch,
            seq=seq,
            threads=threads,
            force=force,
            progress=progress,
            say=tell,
            **options,
        )
        shown = (
            render_quantization(result, stdout_format, top=top)
            if stdout_format
            else quantization_report(result, top=top, today=date.today())
        )
    print_or_put(shown)
    write_quantization(result, files, top=top, overwrite=force)
    say_written(files)
