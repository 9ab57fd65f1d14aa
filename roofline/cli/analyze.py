"""``roofline analyze MODEL``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from roofline.cli import candidates
from roofline.cli.language_options import language_options
from roofline.cli.options import (
    file_options,
    files_among,
    format_option,
    layers_options,
    machines_options,
    named_model,
    one_of,
    output_options,
    picture_of,
    run_options,
    together,
    view_options,
    workload_options,
)
from roofline.cli.results import (
    check_analysis_files,
    measuring_if_needed,
    present_result,
    progress_bar,
)
from roofline.cli.streams import tell
from roofline.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from roofline.foundation.blocks import By, View


_ALGORITHMS = ("ring", "tree", "halving")

_OPTIONS = together(
    click.option(
        "--data-parallel",
        type=int,
        metavar="N",
        help="With --train: a copy of the model on each of N ranks, as DistributedDataParallel"
        " trains: buckets, all-reduces, overlap, efficiency, memory (docs/scaling.md).",
    ),
    click.option(
        "--link-bandwidth",
        metavar="RATE",
        help="With --data-parallel: what a link carries each way, such as 25GB/s or 100Gbit/s;"
        " default: what the hardware's profile knows (`roofline measure --links`).",
    ),
    click.option(
        "--link-latency",
        metavar="TIME",
        help="With --link-bandwidth: how long the smallest message takes, such as 5us.",
    ),
    click.option(
        "--all-reduce",
        "algorithm",
        metavar="|".join(_ALGORITHMS),
        callback=one_of(_ALGORITHMS),
        help="With --data-parallel: how ranks add up; default: ring.",
    ),
    click.option(
        "--accumulate",
        type=int,
        metavar="K",
        help="With --data-parallel: add up the gradients of K passes before they are sent.",
    ),
    click.option(
        "--bucket",
        metavar="SIZE",
        help="With --data-parallel: from which size on a bucket is full, such as 10MiB; default:"
        " 1MiB for the first, then 25MiB.",
    ),
    click.option(
        "--sharded-optimizer",
        "sharded",
        is_flag=True,
        help="With --data-parallel: each rank keeps, and updates, a part of the states.",
    ),
    click.option(
        "--checkpoint",
        metavar="MODULES",
        help="With --data-parallel: these keep nothing for the backward pass and run again for it:"
        " blocks, or a path such as 'layer*.*'.",
    ),
    click.option(
        "--scale-gradients",
        is_flag=True,
        help="With --data-parallel: scale the loss, and unscale and check gradients, as GradScaler"
        " does.",
    ),
    click.option(
        "--measured",
        is_flag=True,
        help="With --data-parallel: run the step here, and take the times that its operators took.",
    ),
)

_NAMES = {
    "data_parallel": "--data-parallel",
    "link_bandwidth": "--link-bandwidth",
    "link_latency": "--link-latency",
    "algorithm": "--all-reduce",
    "accumulate": "--accumulate",
    "bucket": "--bucket",
    "sharded": "--sharded-optimizer",
    "checkpoint": "--checkpoint",
    "scale_gradients": "--scale-gradients",
    "measured": "--measured",
}

_VIEWS = {
    "by": "--by",
    "top": "--top",
    "depth": "--depth",
    "fused": "--fused",
    "layers": "--layers",
    "paper": "--paper",
    "min_coverage": "--min-coverage",
    "compiled": "--compiled",
}
"""Options of an analysis that say nothing of several ranks."""


def scaling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of training on several ranks to a command, which they then take over."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in _NAMES}
        if own["data_parallel"] is not None:
            _scale(own, given)
            return
        for name, value in own.items():
            if value is not None and value is not False:
                raise InputError(f"{_NAMES[name]} has no effect without --data-parallel N; add it")
        command(**given)

    return _OPTIONS(run)


def _scale(own: dict[str, Any], given: dict[str, Any]) -> None:
    """Runs it in place of an analysis.

    Raises:
        InputError: options that have no effect together.
    """
    if not given["train"]:
        raise InputError(f"--data-parallel {own['data_parallel']} is about training; add --train")
    for name, option in _VIEWS.items():
        if given.pop(name) not in (None, False, "operator"):
            raise InputError(f"{option} has no effect with --data-parallel; leave it out")
    machines = given.pop("hardware")
    if len(machines) > 1:
        raise InputError(
            f"--data-parallel takes one machine, which every rank is, and --hardware names"
            f" {len(machines)}; give one"
        )
    _present(own, given, machines[0] if machines else None)


def _present(own: dict[str, Any], given: dict[str, Any], hardware: str | None) -> None:
    from roofline.foundation.blocks import View
    from roofline.scaling.result import Scaling

    outputs: tuple[Path, ...] = given.pop("outputs")
    force: bool = given.pop("force")
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None = given.pop("stdout_format")
    files = files_among(outputs, stdout_format)
    Scaling.check_files(files, overwrite=force)
    from roofline.pipeline.scaling import scale

    # Those that are not given are those of the function.
    asked = {name: each for name, each in own.items() if each is not None}
    model, inputs = given.pop("model"), given.pop("inputs")
    given.pop("train")
    # What the user's model prints is not the result.
    bar = progress_bar("Timing a step") if own["measured"] else measuring_if_needed()
    with redirect_stdout(sys.stderr), bar as progress:
        result = scale(
            model,
            list(inputs) or None,
            hardware=hardware,
            force=force,
            progress=progress,
            say=tell,
            **asked,
            **given,
        )
    present_result(result, files, stdout_format=stdout_format, view=View(), force=force)


def check_compiled(
    *,
    hardware: tuple[str, ...],
    view: View,
    layers: bool,
    paper: str | None,
    min_coverage: float | None,
) -> None:
    """Refuses options that have no effect beside ``--compiled``.

    Raises:
        InputError: naming the option.
    """
    if len(hardware) > 1:
        raise InputError(
            f"--compiled takes one machine, and --hardware names {len(hardware)}: what Inductor"
            " generates is the same for all of them"
        )
    for option, is_given in (
        (f"--by {view.by}", view.by != "operator"),
        ("--fused", view.fused),
        ("--layers", layers),
        ("--paper", paper is not None),
        ("--min-coverage", min_coverage is not None),
    ):
        if is_given:
            raise InputError(f"{option} has no effect beside --compiled; leave one of them out")


def run_compiled(
    model: str,
    inputs: list[str] | None,
    *,
    files: tuple[Path, ...],
    stdout_format: str | None,
    top: int | None,
    force: bool,
    **options: Any,
) -> None:
    """Prints what torch.compile makes of a model, and writes its files."""
    from roofline.design.compilation import Compilation
    from roofline.foundation.blocks import View

    Compilation.check_files(files, overwrite=force)
    if stdout_format not in (None, *Compilation.formats()):
        raise InputError(
            f"--format {stdout_format}: --compiled has no picture; there are"
            f" {', '.join(Compilation.formats())}"
        )
    from roofline.pipeline.analyses import analyze_compiled

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        result = analyze_compiled(model, inputs, progress=progress, **options)
    view = View(top=top)
    present_result(result, files, stdout_format=stdout_format, view=view, force=force)


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
