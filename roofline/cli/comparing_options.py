"""The options of ``roofline compare``: ways to run a model, machines, rows, sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from roofline.cli import candidates
from roofline.cli.options import run_options, together

F = TypeVar("F", bound=Callable[..., Any])


ways_options = together(
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="SHAPE",
        help="An input: 1x3x224x224, 1x128:int64, name=1x128:int64 for a keyword, [3x8x8, 3x9x9],"
        " {key=1x8}, name=true; repeatable: each is one more input of every model.",
    ),
    click.option(
        "--batch",
        "batches",
        multiple=True,
        type=int,
        metavar="N",
        help="The first size of every input; repeatable, to compare several.",
    ),
    click.option(
        "--seq",
        type=int,
        metavar="N",
        help="How many tokens a transformers model is given; default: 128.",
    ),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        metavar="TYPE",
        shell_complete=candidates.dtypes,
        help="Of parameters, buffers and inputs: float32, bfloat16, float16; repeatable, to compare"
        " several.",
    ),
    click.option(
        "--layout",
        "layouts",
        multiple=True,
        type=click.Choice(["contiguous", "channels-last"]),
        help="How images and weights of convolutions are laid out; repeatable, to compare both.",
    ),
    run_options,
)

machines_compared_options = together(
    click.option(
        "--hardware",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=candidates.machines,
        help="A machine: a name (`roofline hardware list`), a .toml file, or host; repeatable, to"
        " see who wins where; default: this one.",
    ),
    click.option(
        "--threads",
        "teams",
        multiple=True,
        type=int,
        metavar="N",
        help="Threads that compute; default: all it has; repeatable, to compare several.",
    ),
    click.option(
        "--cold", is_flag=True, help="Bounds of a first pass, with nothing in the caches."
    ),
)

measure_options = together(
    click.option(
        "--measure",
        is_flag=True,
        help="Time all of them here too, in turn, each time in a process of its own.",
    ),
    click.option(
        "--rounds",
        type=int,
        metavar="N",
        help="With --measure: how many times each; default: 5.",
    ),
)

side_by_side_options = together(
    click.option(
        "--by",
        type=click.Choice(["module", "type"]),
        help="What stands side by side, all of it: modules, or types of operators; default: the"
        " largest differences between modules the models share, else between types.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many rows stand side by side, the largest differences first; default: 8.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(min=0, max=100),
        metavar="N",
        help="How far down the tree of modules goes; default: 2.",
    ),
)

sweep_options = together(
    click.option(
        "--sweep",
        metavar="SPEC",
        help="Compare at many sizes: channels=16:1024:x2,size=7:224:x2,batch=1:64:x2.",
    ),
    click.option(
        "--executor",
        metavar="WHERE",
        help="With --sweep: where its points are worked out, such as dask:ADDRESS; default:"
        " processes here.",
    ),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --sweep: how many processes here.",
    ),
    click.option("--yes", is_flag=True, help="With --sweep: do not ask before a long one."),
)
