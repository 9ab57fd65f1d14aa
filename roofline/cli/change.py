"""Commands optimize, quantize and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roofline.cli.options import (
    MEASURING,
    SIZES,
    STDOUT,
    FileName,
    Output,
    command,
    flag,
    in_section,
    model_argument,
    option,
    output_pack,
    run_pack,
    top_option,
    value,
)
from roofline.cli.streams import (
    present_result,
    print_as_tables,
    print_stderr,
    print_written,
    progress_bar,
)
from roofline.core.blocks import View
from roofline.core.text import counted
from roofline.errors import InputError

_FORMATS = ".json .csv .md .html .png .svg"
_COSTS = ("bound", "predicted", "measured")
_BASELINES = ("eager", "compile")
_SHORTCUTS = ("full", "low")


def _whole_numbers(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...]:
    """Return comma-separated whole numbers."""
    if text is None:
        return ()
    words = [each.strip() for each in text.split(",")]
    # Python refuses numbers of thousands of digits.
    if not all(each.isdecimal() and len(each) <= 9 for each in words):
        raise InputError(
            f"{parameter.opts[0]} {text[:60]}: must be comma-separated whole numbers, such as 2,4,8"
        )
    return tuple(map(int, words))


@command(
    "optimize",
    model_argument(required=False),
    run_pack(*SIZES, "hardware", "threads"),
    *in_section(
        "Search",
        value(
            "--cost",
            "Cost of graphs.  [default: predicted if calibrated, else bound]",
            choices=_COSTS,
        ),
        value(
            "--alpha X",
            "Expand graphs up to X × the lowest cost.",
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
            "Comma-separated rules; -NAME excludes, FILE.py adds.",
            default="all",
        ),
        flag("--list-rules", "List the rules."),
        value(
            "--split N",
            "Partition graphs into at most N operators.  [default: 120]",
            type=int,
        ),
        flag("--fused", "Assume that activations are fused into their operators."),
        flag("--fullgraph", "Refuse partly captured models, as -o FILE.pt2 does."),
    ),
    *in_section(
        MEASURING,
        value(
            "--baseline",
            "Baseline: eager torch, or torch.compile with freezing.",
            choices=_BASELINES,
            default="eager",
        ),
        option(
            "--measure/--no-measure",
            default=None,
            help="Time original and result here.  [default: on this machine]",
        ),
        value("--rounds N", "Number of rounds.  [default: 7]", type=int),
    ),
    top_option("applied and rejected rewrites"),
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
    """Search for a faster equivalent graph of MODEL.

    Rules merge and fold operators and change layouts if the cost on the machine is lower; outputs
    are compared with the original's. On this machine, original and result are timed interleaved;
    without a significant speedup, the original is kept. MODEL as for analyze; -o FILE.pt2 writes
    the module.
    """
    if list_rules:
        _list_rules(options["rules"])
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    from roofline.substitution.result import Optimization

    output.check(Optimization)
    from roofline.pipeline.optimizing import optimize

    # Options that are not given take the defaults of the search.
    given = {name: each for name, each in {**run, **options}.items() if each is not None}
    modules = [str(path) for path in output.files if path.suffix.lower() == ".pt2"]
    given["fullgraph"] |= bool(modules)
    with progress_bar("Optimizing") as progress:
        result = optimize(model, force=output.force, progress=progress, say=print_stderr, **given)
    output.present(result, View(top=top))
    content = "the original (no faster graph was found)" if result.is_kept else "the result"
    for path in modules:
        print_stderr(
            f"{path} contains {content}; load it with torch.export.load({path!r}).module()"
        )
    own = {row.op for row in result.after.operators if not row.op.startswith(_OF_TORCH)}
    if modules and own:
        print_stderr(f"First import the module that defines {', '.join(sorted(own))}")
    if modules:
        print_stderr(
            f"Its weights are those of {model} as built: random, unless it loads trained ones; in"
            " Python, roofline.optimize(module, inputs) keeps the weights of a module"
        )


_OF_TORCH = ("aten.", "prims.", "quantized.")
"""Name spaces of operators that come with torch."""


def _list_rules(names: str) -> None:
    from roofline.core.blocks import Report, escape_report, table
    from roofline.substitution.rules.rule import select_rules

    rules = select_rules(names)
    columns = {"rule": "name", "safety": "safety", "effect": "summary"}
    headline = (
        f"{counted(len(rules), 'rule')}, {sum(each.safety == 'safe' for each in rules)} of them"
        " safe: no added work, no change of layout"
    )
    blocks = (table("", rules, columns, left=columns),)
    print_as_tables(escape_report(Report(headline=headline, blocks=blocks)))


@command(
    "quantize",
    model_argument(weights=False),
    *in_section(
        "Bit widths",
        value(
            "--weights BITS",
            "Bit width of weights, 1 to 16 or 32.  [default: 2; 32 with only --activations]",
            type=int,
        ),
        value(
            "--activations BITS",
            "Bit width of layer inputs.  [default: 2; 32 with only --weights]",
            type=int,
        ),
        value(
            "--first-last BITS",
            "Minimum bit width of first and last layer.  [default: 8]",
            type=int,
        ),
        value(
            "--shortcut",
            "Precision of shortcuts and their layers.  [default: full]",
            choices=_SHORTCUTS,
        ),
        flag("--per-channel", "Scale weights per output channel."),
        value(
            "--policy FILE.json",
            "Bit widths per layer (docs/how-to/quantizing.md).",
            type=FileName(),
        ),
        value(
            "--sweep LIST",
            "Bit widths to sweep, such as 2,3,4,8,16.",
            callback=_whole_numbers,
        ),
        flag(
            "--sensitivity",
            "Rank layers by output error per saving.",
        ),
        value(
            "--size-budget SIZE",
            "With --sensitivity: maximum size of the model, such as 1MB.",
        ),
        value(
            "--time-budget TIME",
            "With --sensitivity: maximum time of a pass, such as 5ms.",
        ),
    ),
    run_pack(*SIZES, "hardware", "threads"),
    *in_section(
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
    """Estimate speed and size of MODEL in lower bit widths.

    The report lists bytes, ceilings and minimum times per layer, requantization, conversions and
    shortcuts. Bit widths without a kernel on the machine save bandwidth only; no speedup is
    estimated. MODEL as for analyze; roofline.quantization trains such models.
    """
    from roofline.quantization.result import Quantization

    output.check(Quantization)
    from roofline.pipeline.quantizing import quantize

    with progress_bar("Quantizing") as progress:
        result = quantize(
            model, force=output.force, progress=progress, say=print_stderr, **run, **options
        )
    output.present(result, View(top=top))


@command(
    "export",
    model_argument(),
    run_pack(*SIZES),
    value(
        "--opset N",
        "ONNX operator set version.  [default: torch's]",
        type=click.IntRange(min=1),
    ),
    output_pack(".onnx .pt2", formats=("json", "csv", "md", "html")),
)
def export(model: str, run: dict[str, Any], opset: int | None, output: Output) -> None:
    """Write MODEL as .onnx or .pt2, and verify the file.

    Each file is read back: outputs and FLOP are compared with the model's. MODEL as for analyze;
    files can be converted: roofline export model.onnx -o model.pt2.
    """
    from roofline.pipeline.exporting import checked_paths, export

    files: tuple[Path, ...] = output.outputs
    if STDOUT in files:
        raise InputError(
            "-o -: a model cannot be written to stdout; name a file, such as -o model.onnx"
        )
    checked_paths(files, opset=opset, overwrite=output.force)
    with progress_bar("Exporting") as progress:
        progress(0.0, str(model))
        result = export(model, files=files, opset=opset, overwrite=output.force, **run)
    present_result(result, stdout_format=output.format, view=View(verbose=output.verbose))
    print_written(files)
