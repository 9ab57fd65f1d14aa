"""``roofline analyze`` of language models: options of prefill and decode."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from roofline.cli.options import files_among, together
from roofline.cli.results import measuring_if_needed, present_result
from roofline.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from roofline.language.result import Language

_STAGES = ("prefill", "decode")


def _sizes(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...]:
    """Return sizes with commas between them."""
    if text is None:
        return ()
    words = [each.strip() for each in text.split(",")]
    # No size has more digits, and Python reads no number of thousands of them.
    if not all(each.isdecimal() and len(each) <= 9 for each in words):
        raise InputError(
            f"{parameter.opts[0]} {text[:60]}: must be whole numbers with commas between them,"
            " such as 1,2,4,8"
        )
    return tuple(map(int, words))


def _words(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[str, ...]:
    return () if text is None else tuple(each.strip() for each in text.split(","))


_OPTIONS = (
    click.option(
        "--config",
        metavar="SIZES|NAME|FILE",
        help="Sizes (hidden_size=4096,num_hidden_layers=32), bundled name, or config.json (language"
        " models).",
    ),
    click.option(
        "--stage",
        metavar="|".join(_STAGES),
        help="Stage to analyze (language models)  [default: both]",
    ),
    click.option(
        "--context",
        type=int,
        metavar="N",
        help="Tokens per sequence (language models)  [default: 128]",
    ),
    click.option(
        "--weight-bits",
        callback=_words,
        metavar="LIST",
        help="Weight-only quantization to compare, such as w8a16,w4a16 (language models).",
    ),
    click.option(
        "--sweep-batch",
        callback=_sizes,
        metavar="LIST",
        help="Batch sizes to sweep, such as 1,2,4,8 (language models).",
    ),
    click.option(
        "--sweep-context",
        callback=_sizes,
        metavar="LIST",
        help="Contexts to sweep, such as 512,4096 (language models).",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Available memory, such as 80GiB (language models)  [default: that of the machine]",
    ),
)

_NAMES = (
    *("config", "stage", "context", "weight_bits"),
    *("sweep_batch", "sweep_context", "memory"),
)

_TAKEN = frozenset(
    (
        *("model", "batch", "dtype", "hardware", "threads", "cold", "top"),
        *("outputs", "force", "stdout_format", "min_coverage"),
    )
)
"""Options of the command that apply to stages; all others are refused."""

_USUAL = {"by": "operator"}
"""Defaults of options, where they are not None."""


def language_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options; a command with one of them analyzes stages instead."""

    @functools.wraps(function)
    def chosen(**given: Any) -> None:
        asked = {name: given.pop(name) for name in _NAMES}
        if any(value not in (None, ()) for value in asked.values()):
            _analyze_stages(asked, given)
        else:
            function(**given)

    return together(*_OPTIONS)(chosen)


def _analyze_stages(asked: dict[str, Any], given: dict[str, Any]) -> None:
    """Analyze the stages of a language model, print the report, and write files."""
    _check(asked, given)
    from roofline.foundation.blocks import View
    from roofline.language.result import Language

    files = files_among(given["outputs"], given["stdout_format"])
    Language.check_files(files, overwrite=given["force"])
    from roofline.pipeline.language import analyze_language

    hardware = given["hardware"]
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        result = analyze_language(
            given["model"],
            **asked,
            batch=given["batch"],
            dtype=given["dtype"],
            hardware=hardware[0] if hardware else None,
            threads=given["threads"],
            cold=given["cold"],
            progress=progress,
        )
    present_result(
        result,
        files,
        stdout_format=given["stdout_format"],
        view=View(top=given["top"]),
        force=given["force"],
    )
    _check_coverage(result, given["min_coverage"])


def _check(asked: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse options that do not apply to stages.

    Raises:
        InputError: names the first of them.
    """
    name = next(each for each, value in asked.items() if value not in (None, ()))
    because = f"--{name.replace('_', '-')}"
    for option, value in given.items():
        if option not in _TAKEN and not _is_usual(option, value):
            written = "input" if option == "inputs" else option.replace("_", "-")
            fix = "give --context" if option == "seq" else "leave it out"
            raise InputError(
                f"--{written} has no effect on the stages of a language model ({because}); {fix}"
            )
    if len(given["hardware"]) > 1:
        raise InputError(
            f"--hardware is given {len(given['hardware'])} times, and stages ({because}) are"
            " placed on one machine; give one"
        )


def _is_usual(option: str, value: object) -> bool:
    return value is None or value is False or value in ((), _USUAL.get(option))


def _check_coverage(result: Language, least: float | None) -> None:
    for each in result.stages:
        calls = each.analysis.coverage.calls
        if least is not None and calls < least:
            raise IncompleteError(
                f"coverage of {each.stage} is {calls:.1%} of the operator calls, below"
                f" --min-coverage {least:.1%}; add formulas with @roofline.formula"
            )
