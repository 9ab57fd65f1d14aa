"""Commands llm, scale and compile."""

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
    in_section,
    model_argument,
    output_pack,
    run_option,
    run_pack,
    top_option,
    value,
)
from roofline.cli.streams import print_stderr, progress_bar
from roofline.core.blocks import View

_FORMATS = ".json .csv .md .html .png .svg"
_ENGINES = ("paged", "transformers")
_ON_MACHINE = ("hardware", "threads", "cold")
_ALGORITHMS = ("ring", "tree", "halving")


@command(
    "llm",
    click.Argument(["model"]),
    *in_section(
        "Model",
        value(
            "--config SIZES|NAME|FILE",
            "Sizes (hidden_size=4096,...), a bundled name, or config.json.",
        ),
        value("--stage prefill|decode", "Stage.  [default: both]"),
        value("--engine ENGINE", "Engine of the headline.", choices=_ENGINES, default="paged"),
    ),
    *in_section(
        "Serving runs (lists: all combinations)",
        value("--batch LIST", "Sequences: 8, 1,4,16 or 1..64.  [default: 1]"),
        value("--context LIST", "Tokens per sequence: 4096, or 4k,32k.  [default: 4k]"),
        value("--weights LIST", "bf16, fp8, int8, w4a16 ...  [default: the configuration's]"),
        value("--kv LIST", "KV cache: bf16, fp8, int8.  [default: as activations]"),
        flag("--quantized-head", "Quantized weights include embedding and head."),
        value("--tensor-parallel LIST", "Ranks, such as 1,2,4,8.  [default: 1]"),
        value("--link-bandwidth RATE|NAME", "Link of ranks: 25GB/s, nvlink4, pcie5, ..."),
        value("--link-latency TIME", "With --link-bandwidth: latency, such as 5us."),
        value("--prefix SHARE", "Common share of all contexts, such as 50%.", default="0"),
    ),
    *in_section(
        "What-ifs",
        value("--speculate N", "Speculative decoding with N draft tokens.", type=int),
        value("--acceptance SHARE", "With --speculate: accepted drafts, such as 70%."),
        value("--pipeline-parallel N", "Layers divided over N groups of ranks.", type=int),
    ),
    run_pack(
        run_option("dtype", help="Type of weights in floats.  [default: the configuration's]"),
        *_ON_MACHINE,
        several=("hardware",),
        takes_inputs=False,
    ),
    *in_section(
        MACHINE,
        value("--memory SIZE", "Available memory, such as 80GiB.  [default: the machine's]"),
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

    MODEL is a bundled configuration (llama-3.1-8b), a config.json, or a causal language model of
    transformers (hf:llama, file.py:function) with the sizes of --config.
    """
    from roofline.llm.result import Language, check_engine

    output.check(Language)
    check_engine(options["engine"], top=top, min_coverage=min_coverage)
    from roofline.pipeline.language import analyze_language

    with progress_bar() as progress:
        result = analyze_language(model, progress=progress, **run, **options)
    output.present(result, View(top=top))
    for each in result.stages:
        if each.analysis is not None:
            check_coverage(each.analysis, min_coverage, f" of {each.stage}")


@command(
    "scale",
    model_argument(),
    *in_section(
        "Links",
        value(
            "--data-parallel N",
            "Number of ranks.",
            type=int,
            required=True,
        ),
        value(
            "--link-bandwidth RATE|NAME",
            "Bandwidth per direction, such as 25GB/s.  [default: the machine's]",
        ),
        value(
            "--link-latency TIME",
            "With --link-bandwidth: latency, such as 5us.",
        ),
        value(
            "--all-reduce",
            "All-reduce algorithm.",
            to="algorithm",
            choices=_ALGORITHMS,
            default="ring",
        ),
    ),
    *in_section(
        "Training step",
        value(
            "--accumulate K",
            "Gradient accumulation steps per all-reduce.",
            type=int,
            default=1,
        ),
        value(
            "--bucket SIZE",
            "DDP bucket size, such as 10MiB.  [default: 1MiB, then 25MiB]",
        ),
        flag(
            "--sharded-optimizer",
            "Shard optimizer states over ranks.",
            to="sharded",
        ),
        value(
            "--checkpoint MODULES",
            "Modules with activation checkpointing: blocks, or a path ('layer*.*').",
        ),
        flag("--measured", "Use measured times of a step run here."),
    ),
    run_pack(*(each for each in PASS if each != "train"), "scale_gradients", *_ON_MACHINE),
    output_pack(_FORMATS, measures=True),
)
def scale(model: str, measured: bool, run: dict[str, Any], output: Output, **options: Any) -> None:
    """Analyze data-parallel training of MODEL (DistributedDataParallel).

    Buckets, all-reduces, communication/computation overlap, scaling efficiency and memory
    (docs/how-to/scaling.md). Each rank is one machine. MODEL as for analyze.
    """
    from roofline.scaling.result import Scaling

    output.check(Scaling)
    from roofline.pipeline.scaling import scale

    with progress_bar("Timing a step" if measured else "") as progress:
        result = scale(
            model,
            measured=measured,
            force=output.force,
            progress=progress,
            say=print_stderr,
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

    Compared with the operators of eager torch (docs/how-to/compiled.md). MODEL as for analyze.
    """
    from roofline.design.compilation import Compilation

    output.check(Compilation)
    from roofline.pipeline.analyses import analyze_compiled

    with progress_bar() as progress:
        result = analyze_compiled(model, progress=progress, **run)
    output.present(result, View(top=top))
