"""Command compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    MEASURING,
    PASS,
    RUN,
    Output,
    command,
    flag,
    given_options,
    models_argument,
    output_pack,
    run_pack,
    top_option,
    value,
)
from roofline.cli.streams import print_stderr, progress_bar
from roofline.core.blocks import View
from roofline.errors import InputError
from roofline.run import VARIED, each_of

LAYOUTS = ("contiguous", "channels-last")
_SWEEP = "Sweep"
_COMPARED = "Comparison"


@command(
    "compare",
    models_argument("A B [C ...]", required=True, complete=candidates.models_and_saved),
    value(
        "--reference MODEL",
        "Denominator of ratios: a model or variant ('resnet50 bfloat16').",
        title=_COMPARED,
        shell_complete=candidates.models_given,
    ),
    value(
        "--by",
        "Rows.  [default: largest differences of shared modules]",
        title=_COMPARED,
        type=click.Choice(["module", "type"]),
    ),
    top_option("rows, largest differences first", 8),
    value(
        "--depth N",
        "Levels of the tree of modules.  [default: 2]",
        title=_COMPARED,
        type=click.IntRange(min=0, max=100),
    ),
    run_pack(
        *PASS,
        value(
            "--layout",
            "Memory format of images and convolution weights; repeatable.",
            to="layouts",
            title=RUN,
            multiple=True,
            type=click.Choice(LAYOUTS),
        ),
        *("hardware", "threads", "cold", "no_cache"),
        several=("batch", "dtype", "hardware", "threads"),
    ),
    flag(
        "--measure",
        "Time all models here, interleaved, each in a fresh process.",
        title=MEASURING,
    ),
    value(
        "--rounds N", "With --measure: number of rounds.  [default: 5]", title=MEASURING, type=int
    ),
    value(
        "--sweep SPEC",
        "Compare designs over sizes: channels=16:1024:x2,batch=1:64:x2.",
        title=_SWEEP,
    ),
    value(
        "--executor WHERE",
        "Executor of points, such as dask:ADDRESS.  [default: local processes]",
        title=_SWEEP,
    ),
    value("--jobs N", "Number of local processes.", title=_SWEEP, type=int),
    flag("--yes", "Run a long sweep without confirmation.", title=_SWEEP),
    output_pack(".json .csv .md .html .png .svg", measures=True),
)
def compare(
    models: tuple[str, ...],
    reference: str | None,
    by: Literal["module", "type"] | None,
    top: int | None,
    depth: int | None,
    run: dict[str, Any],
    measure: bool,
    rounds: int | None,
    sweep: str | None,
    executor: str | None,
    jobs: int | None,
    yes: bool,
    output: Output,
) -> None:
    """Compare models: FLOP, bytes, memory, ceilings, minimum, predicted and measured times.

    Each is a MODEL as for analyze or a saved analysis (.json). Repeated --dtype, --batch, --threads
    and --layout make variants of every model; several --hardware compare machines. --measure times
    all of them here, interleaved. --sweep compares designs over ranges of sizes.
    """
    from roofline.traces.reading import is_trace

    if any(map(is_trace, models)):
        for name, written in given_options(click.get_current_context()):
            if name not in ("models", "hardware", "top", "outputs", "force", "format", "verbose"):
                raise InputError(f"{written} has no effect on traces; leave it out")
        _compare_traces(models, run["hardware"], top, output)
        return
    run["channels_last"] = _layouts(run.pop("layouts"), channels_last=run["channels_last"])
    from roofline.design.comparison.result import Comparison

    output.check(Comparison)
    of_sweep: dict[str, Any] = {"executor": executor, "jobs": jobs}
    reference_or_first = 0 if reference is None else reference
    if sweep is not None:
        others = {"measure": measure, "rounds": rounds, "by": by, "top": top, "depth": depth}
        for name, given in others.items():
            if given is not None and given is not False:
                raise InputError(f"--{name}: has no effect with --sweep; leave out one of them")
        for name in VARIED:
            if isinstance(run[name], list):
                option = "--layout" if name == "channels_last" else f"--{name}"
                raise InputError(
                    f"{option}: given more than once with --sweep; give one, or sweep over it"
                )

        def ask(long: str) -> None:
            if not yes:
                raise InputError(f"--sweep has {long}; add --yes to run it, or use larger steps")

        from roofline.pipeline.sweeps.sweeping import sweep as sweep_over

        with progress_bar("Sweeping") as progress:
            result = sweep_over(
                *models,
                axes=sweep,
                reference=reference_or_first,
                progress=progress,
                ask=ask,
                **of_sweep,
                **run,
            )
        output.present(result)
        return
    for name, given in {**of_sweep, "yes": yes}.items():
        if given:
            raise InputError(f"--{name}: has no effect without --sweep; leave it out")
    # --depth implies modules.
    view = View(by=by or ("module" if depth is not None else "operator"), top=top, depth=depth)
    from roofline.pipeline.comparisons import compare

    with progress_bar("Measuring" if measure else "") as progress:
        result = compare(
            *models,
            reference=reference_or_first,
            measure=measure,
            rounds=rounds,
            force=output.force,
            progress=progress,
            say=print_stderr,
            **run,
        )
    output.present(result, view)


def _compare_traces(files: tuple[str, ...], hardware: Any, top: int | None, output: Output) -> None:
    from roofline.traces.comparison import TraceComparison
    from roofline.traces.reading import is_trace

    for each in files:
        if not Path(each).exists():
            raise InputError(f"{each}: no such file")
    if len(files) != 2 or not all(map(is_trace, files)):
        raise InputError(f"traces are compared in pairs, before and after; got {', '.join(files)}")
    output.check(TraceComparison)
    from roofline.pipeline.traces import read_trace

    machines: list[Any] = [*hardware] if isinstance(hardware, list) else [hardware] * 2  # pyright: ignore[reportUnknownArgumentType]
    if len(machines) != 2:
        raise InputError(f"--hardware is given {len(machines)} times: give one, or one per trace")
    with progress_bar("Reading") as progress:
        before, after = (
            read_trace(file, hardware=machine, progress=progress)
            for file, machine in zip(files, machines, strict=True)
        )
    output.present(TraceComparison.of(before, after), View(top=top))


def _layouts(layouts: tuple[str, ...], *, channels_last: bool) -> bool | list[bool]:
    """Return ``channels_last``: one value, or a list of variants."""
    if channels_last and layouts:
        raise InputError("--channels-last with --layout: write --layout channels-last")
    found = [each == "channels-last" for each in each_of("layout", layouts)] if layouts else []
    return found if len(found) > 1 else found[0] if found else channels_last
