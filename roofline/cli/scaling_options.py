"""``roofline analyze MODEL --train --data-parallel N``: the options, and what they start."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import click

from roofline.cli.options import files_among, one_of, together
from roofline.cli.results import measuring_if_needed, present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError

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
