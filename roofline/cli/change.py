"""optimize, quantize, export: other versions of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roofline.cli.large_models import whole_numbers
from roofline.cli.options import (
    MEASURING,
    SIZES,
    STDOUT,
    FileName,
    Output,
    command,
    flag,
    model_argument,
    option,
    output_pack,
    run_pack,
    titled,
    top_option,
    value,
)
from roofline.cli.streams import present_result, print_as_tables, say_written, tell, working
from roofline.core.blocks import View
from roofline.core.text import counted
from roofline.errors import InputError

_FORMATS = ".json .csv .md .html .png .svg"
_COSTS = ("bound", "predicted", "measured")
_BASELINES = ("eager", "compile")
_SHORTCUTS = ("full", "low")


@command(
    "optimize",
    model_argument(required=False),
    run_pack(*SIZES, "hardware", "threads"),
    *titled(
        "Search",
        value(
            "--cost",
            "Time that graphs are compared by.  [default: predicted if calibrated, else bound]",
            choices=_COSTS,
        ),
        value(
            "--alpha X",
            "Expand graphs of up to X times the lowest cost (1: improvements only).",
            type=float,
            default=1.05,
        ),
        value("--budget N", "Maximum number of graphs to expand.  [default: 300]", type=int),
        value(
            "--time-limit S",
            "Maximum search time in seconds.  [default: 60]",
            to="time_limit_s",
            type=float,
        ),
        value(
            "--rules all|safe|LIST",
            "Rules, with commas; -NAME leaves one out, FILE.py registers more.",
            default="all",
        ),
        flag("--list-rules", "List the rules."),
        value(
            "--split N",
            "Search larger graphs in pieces of at most N operators.  [default: 120]",
            type=int,
        ),
        flag("--fused", "Count activations as fused into their operators."),
    ),
    *titled(
        MEASURING,
        value(
            "--baseline",
            "Time in eager torch, or under torch.compile with freezing.",
            choices=_BASELINES,
            default="eager",
        ),
        option(
            "--measure/--no-measure",
            default=None,
            help="Time original and result here.  [default: if the machine is this one]",
        ),
        value("--rounds N", "Number of rounds.  [default: 7]", type=int),
    ),
    top_option("applied and of rejected rewrites"),
    output_pack(f"{_FORMATS} .pt2", measures=True),
)
def optimize(
    model: str | None,
    run: dict[str, Any],
    list_rules: bool,
    top: int | None,
    output: Output,
    **options: Any,
) -> None:
    """Search for a faster graph of MODEL, and prove that it computes the same.

    Rules merge and fold operators and change layouts where that costs less on the machine. On this
    machine, original and result are timed alternately; without a significant speedup, the original
    is kept. Speedups that were not timed are marked as predicted. MODEL as for analyze; -o FILE.pt2
    writes the module.
    """
    if list_rules:
        _list_rules(options["rules"])
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    from roofline.substitution.result import Optimization

    output.check(Optimization)
    from roofline.pipeline.optimizing import optimize

    # Those that are not given have the defaults of the search.
    given = {name: each for name, each in {**run, **options}.items() if each is not None}
    with working("Optimizing") as progress:
        result = optimize(model, force=output.force, progress=progress, say=tell, **given)
    output.present(result, View(top=top))
    modules = [str(path) for path in output.files if path.suffix.lower() == ".pt2"]
    content = "the original, for no faster graph was found" if result.is_kept else "the result"
    for path in modules:
        tell(f"{path} holds {content}; load it with torch.export.load({path!r}).module()")
    if modules:
        tell(
            f"Its weights are those that building {model} gives: random, unless it loads trained"
            " ones; in Python, roofline.optimize(module, inputs) keeps those of a module"
        )


def _list_rules(names: str) -> None:
    from roofline.core.blocks import Report, safe, table
    from roofline.substitution.rules.rule import select_rules

    rules = select_rules(names)
    columns = {"rule": "name", "safety": "safety", "effect": "summary"}
    headline = (
        f"{counted(len(rules), 'rule')}, {sum(each.safety == 'safe' for each in rules)} of them"
        " safe: no added work, no change of layout"
    )
    blocks = (table("", rules, columns, left=columns),)
    print_as_tables(safe(Report(headline=headline, blocks=blocks)))


@command(
    "quantize",
    model_argument(weights=False),
    *titled(
        "Bit widths",
        value(
            "--weights BITS",
            "Bits of weights, 1 to 16, or 32.  [default: 2; 32 with only --activations]",
            type=int,
        ),
        value(
            "--activations BITS",
            "Bits of layer inputs.  [default: 2; 32 with only --weights]",
            type=int,
        ),
        value(
            "--first-last BITS",
            "Minimum bits of the first and the last layer.  [default: 8]",
            type=int,
        ),
        value(
            "--shortcut",
            "Shortcuts and their layers in floats, or in few bits.  [default: full]",
            choices=_SHORTCUTS,
        ),
        flag("--per-channel", "Scale weights per output channel."),
        value(
            "--policy FILE.json",
            "Read bits per layer from a policy or result (docs/how-to/quantizing.md).",
            type=FileName(),
        ),
        value(
            "--sweep LIST",
            "More bit widths of weights and activations, such as 2,3,4,8,16.",
            callback=whole_numbers,
        ),
        flag(
            "--sensitivity",
            "Quantize one layer at a time; rank layers by output error per saving.",
        ),
        value(
            "--size-budget SIZE",
            "With --sensitivity: propose bits for a model of at most SIZE (1MB).",
        ),
        value(
            "--time-budget TIME",
            "With --sensitivity: propose bits for a pass of at most TIME (5ms).",
        ),
    ),
    run_pack(*SIZES, "hardware", "threads"),
    *titled(
        MEASURING,
        flag("--measure", "Time native bfloat16 and int8 variants here, interleaved."),
        value("--rounds N", "With --measure: number of rounds.  [default: 7]", type=int),
    ),
    top_option("layers in tables, largest change first"),
    output_pack(_FORMATS, measures=True),
)
def quantize(
    model: str, run: dict[str, Any], top: int | None, output: Output, **options: Any
) -> None:
    """Estimate the gain and the cost of low-precision inference of MODEL on a machine.

    The report has bytes, ceilings and minimum times of each layer in few bits, requantization
    passes, conversions and shortcuts. Widths without a kernel on the machine are a bandwidth-only
    what-if, without a speedup. MODEL as for analyze; roofline.quantization trains such models.
    """
    from roofline.quantization.result import Quantization

    output.check(Quantization)
    from roofline.pipeline.quantizing import quantize

    with working("Quantizing") as progress:
        result = quantize(model, force=output.force, progress=progress, say=tell, **run, **options)
    output.present(result, View(top=top))


@command(
    "export",
    model_argument(),
    run_pack(*SIZES),
    value(
        "--opset N",
        "ONNX operator set version.  [default: that of torch's exporter]",
        type=click.IntRange(min=1),
    ),
    output_pack(".onnx .pt2", formats=("json", "csv", "md", "html")),
)
def export(model: str, run: dict[str, Any], opset: int | None, output: Output) -> None:
    """Write MODEL as .onnx or .pt2, and prove that the file computes the same.

    Each file is read again before it gets its name: its outputs are compared with the model's, and
    its operators counted; where FLOP differ, the reasons are listed. MODEL as for analyze, so that
    files become files: roofline export model.onnx -o model.pt2.
    """
    from roofline.pipeline.exporting import checked_paths, export

    files: tuple[Path, ...] = output.outputs
    if STDOUT in files:
        raise InputError("-o -: a model is written into a file, such as -o model.onnx")
    checked_paths(files, opset=opset, overwrite=output.force)
    with working("Exporting") as progress:
        progress(0.0, str(model))
        result = export(model, files=files, opset=opset, overwrite=output.force, **run)
    present_result(result, stdout_format=output.format, view=View(verbose=output.verbose))
    say_written(files)
