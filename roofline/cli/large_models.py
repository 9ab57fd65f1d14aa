"""llm, scale, compile: language models, training on several ranks, torch.compile."""

from __future__ import annotations

from typing import Any

import click

from roofline.cli.analysis import MIN_COVERAGE, check_coverage
from roofline.cli.options import (
    MACHINE,
    PASS,
    Output,
    command,
    flag,
    model_argument,
    output_pack,
    run_option,
    run_pack,
    titled,
    top_option,
    value,
)
from roofline.cli.streams import tell, working
from roofline.core.blocks import View
from roofline.errors import InputError

_FORMATS = ".json .csv .md .html .png .svg"
_ON_MACHINE = ("hardware", "threads", "cold")
_ALGORITHMS = ("ring", "tree", "halving")


def whole_numbers(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    if text is None:
        return ()
    words = [each.strip() for each in text.split(",")]
    # No size has more digits, and Python reads no number of thousands of them.
    if not all(each.isdecimal() and len(each) <= 9 for each in words):
        raise InputError(
            f"{parameter.opts[0]} {text[:60]}: must be whole numbers with commas between them,"
            " such as 2,4,8"
        )
    return tuple(map(int, words))


def _words(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[str, ...]:
    return () if text is None else tuple(each.strip() for each in text.split(","))


@command(
    "llm",
    click.Argument(["model"]),
    *titled(
        "Stages",
        value(
            "--config SIZES|NAME|FILE",
            "hidden_size=4096,num_hidden_layers=32, a bundled name, or config.json.",
        ),
        value("--stage prefill|decode", "Stage.  [default: both]"),
        value("--context N", "Tokens per sequence.  [default: 128]", type=int),
    ),
    run_pack(
        run_option("batch", help="Number of sequences.  [default: 1]"),
        run_option("dtype", help="Type of weights and cache.  [default: the configuration's]"),
        *_ON_MACHINE,
        takes_inputs=False,
    ),
    *titled(
        "What-ifs",
        value(
            "--weight-bits LIST",
            "Weight-only quantization to compare, such as w8a16,w4a16.",
            callback=_words,
        ),
        value(
            "--sweep-batch LIST", "Batch sizes to sweep, such as 1,2,4,8.", callback=whole_numbers
        ),
        value(
            "--sweep-context LIST", "Contexts to sweep, such as 512,4096.", callback=whole_numbers
        ),
    ),
    *titled(
        MACHINE,
        value("--memory SIZE", "Available memory, such as 80GiB.  [default: that of the machine]"),
    ),
    top_option("rows"),
    MIN_COVERAGE,
    output_pack(_FORMATS),
)
def llm(
    model: str,
    run: dict[str, Any],
    top: int | None,
    min_coverage: float | None,
    output: Output,
    **options: Any,
) -> None:
    """Analyze prefill and decode of a language model: tokens/s, KV cache, memory.

    MODEL is a model of transformers that continues text (hf:llama, hf:LlamaForCausalLM) with sizes
    of --config, or file.py:function that makes one.
    """
    from roofline.llm.result import Language

    output.check(Language)
    from roofline.pipeline.language import analyze_language

    with working() as progress:
        result = analyze_language(model, progress=progress, **run, **options)
    output.present(result, View(top=top))
    for each in result.stages:
        check_coverage(each.analysis, min_coverage, f" of {each.stage}")


@command(
    "scale",
    model_argument(),
    *titled(
        "Links",
        value(
            "--data-parallel N",
            "Number of ranks, each with a copy of the model.",
            type=int,
            required=True,
        ),
        value(
            "--link-bandwidth RATE",
            "Bandwidth each way, such as 25GB/s.  [default: that of the machine]",
        ),
        value(
            "--link-latency TIME",
            "With --link-bandwidth: latency of the smallest message, such as 5us.",
        ),
        value(
            "--all-reduce",
            "Algorithm of all-reduce.",
            to="algorithm",
            choices=_ALGORITHMS,
            default="ring",
        ),
    ),
    *titled(
        "Training step",
        value(
            "--accumulate K",
            "Passes whose gradients are added before the all-reduce.",
            type=int,
            default=1,
        ),
        value(
            "--bucket SIZE",
            "Bucket size, such as 10MiB.  [default: 1MiB for the first, then 25MiB]",
        ),
        flag(
            "--sharded-optimizer",
            "Each rank keeps and updates a part of the optimizer states.",
            to="sharded",
        ),
        value(
            "--checkpoint MODULES",
            "Activation checkpointing: blocks, or a path such as 'layer*.*'.",
        ),
        flag("--measured", "Run the step here; use measured times."),
    ),
    run_pack(*(each for each in PASS if each != "train"), "scale_gradients", *_ON_MACHINE),
    output_pack(_FORMATS, measures=True),
)
def scale(model: str, measured: bool, run: dict[str, Any], output: Output, **options: Any) -> None:
    """Analyze a training step of MODEL with DistributedDataParallel on several ranks.

    Buckets, all-reduces, their overlap with the backward pass, scaling efficiency and memory
    (docs/how-to/scaling.md). Every rank is one machine. MODEL as for analyze.
    """
    from roofline.scaling.result import Scaling

    output.check(Scaling)
    from roofline.pipeline.scaling import scale

    with working("Timing a step" if measured else "") as progress:
        result = scale(
            model,
            measured=measured,
            force=output.force,
            progress=progress,
            say=tell,
            **run,
            **options,
        )
    output.present(result)


@command(
    "compile",
    model_argument(),
    run_pack(*PASS, *_ON_MACHINE),
    top_option("kernels"),
    output_pack(".json .csv .md .html"),
)
def compile_(model: str, run: dict[str, Any], top: int | None, output: Output) -> None:
    """List the kernels that torch.compile generates for MODEL: launches, bytes, buffers.

    They stand next to the operators of eager torch (docs/how-to/compiled.md). MODEL as for analyze.
    """
    from roofline.design.compilation import Compilation

    output.check(Compilation)
    from roofline.pipeline.analyses import analyze_compiled

    with working() as progress:
        result = analyze_compiled(model, progress=progress, **run)
    output.present(result, View(top=top))
