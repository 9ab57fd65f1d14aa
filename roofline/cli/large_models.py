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
    model_argument,
    one_of,
    option,
    output_pack,
    run_option,
    run_pack,
    top_option,
)
from roofline.cli.streams import tell, working
from roofline.errors import InputError
from roofline.foundation.blocks import View

_FORMATS = ".json .csv .md .html .png .svg"
_ALGORITHMS = ("ring", "tree", "halving")
_STAGES, _BITS, _LINKS, _STEP = "Stages", "What-ifs", "Links", "Training step"


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
    option(
        "--config",
        metavar="SIZES|NAME|FILE",
        title=_STAGES,
        help="hidden_size=4096,num_hidden_layers=32, a bundled name, or config.json.",
    ),
    option("--stage", metavar="prefill|decode", title=_STAGES, help="Stage.  [default: both]"),
    option(
        "--context",
        type=int,
        metavar="N",
        title=_STAGES,
        help="Tokens per sequence.  [default: 128]",
    ),
    run_option("batch", help="Number of sequences.  [default: 1]", title=_STAGES),
    run_option("dtype", help="Type of weights and cache.  [default: that of the configuration]"),
    option(
        "--weight-bits",
        callback=_words,
        metavar="LIST",
        title=_BITS,
        help="Weight-only quantization to compare, such as w8a16,w4a16.",
    ),
    option(
        "--sweep-batch",
        callback=whole_numbers,
        metavar="LIST",
        title=_BITS,
        help="Batch sizes to sweep, such as 1,2,4,8.",
    ),
    option(
        "--sweep-context",
        callback=whole_numbers,
        metavar="LIST",
        title=_BITS,
        help="Contexts to sweep, such as 512,4096.",
    ),
    run_option("hardware"),
    run_option("threads"),
    run_option("cold"),
    option(
        "--memory",
        metavar="SIZE",
        title=MACHINE,
        help="Available memory, such as 80GiB.  [default: that of the machine]",
    ),
    top_option("rows"),
    MIN_COVERAGE,
    output_pack(_FORMATS),
)
def llm(
    model: str, top: int | None, min_coverage: float | None, output: Output, **options: Any
) -> None:
    """Analyze prefill and decode of a language model: tokens/s, KV cache, memory.

    MODEL is a model of transformers that continues text (hf:llama, hf:LlamaForCausalLM) with sizes
    of --config, or file.py:function that makes one.
    """
    from roofline.language.result import Language

    output.check(Language)
    from roofline.pipeline.language import analyze_language

    with working() as progress:
        result = analyze_language(model, progress=progress, **options)
    output.present(result, View(top=top))
    for each in result.stages:
        check_coverage(each.analysis, min_coverage, f" of {each.stage}")


@command(
    "scale",
    model_argument(),
    option(
        "--data-parallel",
        type=int,
        required=True,
        metavar="N",
        title=_LINKS,
        help="Number of ranks, each with a copy of the model.",
    ),
    option(
        "--link-bandwidth",
        metavar="RATE",
        title=_LINKS,
        help="Bandwidth each way, such as 25GB/s.  [default: that of the machine]",
    ),
    option(
        "--link-latency",
        metavar="TIME",
        title=_LINKS,
        help="With --link-bandwidth: latency of the smallest message, such as 5us.",
    ),
    option(
        "--all-reduce",
        "algorithm",
        default="ring",
        show_default=True,
        metavar="|".join(_ALGORITHMS),
        callback=one_of(_ALGORITHMS),
        title=_LINKS,
        help="Algorithm of all-reduce.",
    ),
    option(
        "--accumulate",
        type=int,
        default=1,
        show_default=True,
        metavar="K",
        title=_STEP,
        help="Passes whose gradients are added before the all-reduce.",
    ),
    option(
        "--bucket",
        metavar="SIZE",
        title=_STEP,
        help="Bucket size, such as 10MiB.  [default: 1MiB for the first, then 25MiB]",
    ),
    option(
        "--sharded-optimizer",
        "sharded",
        is_flag=True,
        title=_STEP,
        help="Each rank keeps and updates a part of the optimizer states.",
    ),
    option(
        "--checkpoint",
        metavar="MODULES",
        title=_STEP,
        help="Activation checkpointing: blocks, or a path such as 'layer*.*'.",
    ),
    option("--measured", is_flag=True, title=_STEP, help="Run the step here; use measured times."),
    run_pack(
        *(each for each in PASS if each != "train"),
        "scale_gradients",
        "hardware",
        "threads",
        "cold",
    ),
    output_pack(_FORMATS, measures=True),
)
def scale(model: str, measured: bool, run: dict[str, Any], output: Output, **options: Any) -> None:
    """Analyze a training step of MODEL with DistributedDataParallel on several ranks.

    Buckets, all-reduces, their overlap with the backward pass, scaling efficiency and memory
    (docs/scaling.md). Every rank is one machine. MODEL as for analyze.
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
    run_pack(*PASS, "hardware", "threads", "cold"),
    top_option("kernels"),
    output_pack(".json .csv .md .html"),
)
def compile_(model: str, run: dict[str, Any], top: int | None, output: Output) -> None:
    """List the kernels that torch.compile generates for MODEL: launches, bytes, buffers.

    They stand next to the operators of eager torch (docs/compiled.md). MODEL as for analyze.
    """
    from roofline.design.compilation import Compilation

    output.check(Compilation)
    from roofline.pipeline.analyses import analyze_compiled

    with working() as progress:
        result = analyze_compiled(model, progress=progress, **run)
    output.present(result, View(top=top))
