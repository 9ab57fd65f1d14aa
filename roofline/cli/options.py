"""Options that several commands share, and what stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from roofline.cli import candidates
from roofline.errors import InputError, nearest

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help lists them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def one_of(known: Sequence[str]) -> Callable[..., Any]:
    """A callback of an option that refuses other words in one line, naming the nearest."""

    def check(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and value not in known:
            raise InputError(
                f"{parameter.opts[0]} {value}: choose {', '.join(known[:-1])} or {known[-1]}"
                f"{nearest(value, known)}"
            )
        return value

    return check


def _remembered(name: str) -> Callable[..., Any]:
    """A callback that keeps what was said for `named_model`, which reads it with the model."""

    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        context.meta[f"roofline.{name}"] = value

    return keep


def named_model(context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    """The callback of a model's argument: its name, with the file of its weights if given."""
    weights = context.meta.get("roofline.weights")
    is_trusted = bool(context.meta.get("roofline.allow_pickle"))
    if value is None or not (weights or is_trusted):
        return value
    from roofline.workload.models.files.formats import StoredModel

    return StoredModel(value, weights=weights, allow_pickle=is_trusted)


def named_models(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Any, ...]:
    """The callback of several models: one may have the file of its weights, all may be trusted."""
    if len(values) < 2:
        return tuple(named_model(context, parameter, each) for each in values)
    weights = context.meta.get("roofline.weights")
    if weights:
        raise InputError(
            f"--weights {weights}: goes with one model, and {len(values)} are named; name a"
            " function that loads them, as in file.py:make"
        )
    from roofline.workload.models.files.formats import is_model_file

    files = [each for each in values if is_model_file(each)]
    return tuple(
        named_model(context, parameter, each) if each in files or not files else each
        for each in values
    )


workload_options = together(
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="SHAPE",
        help="An input: 1x3x224x224, 1x128:int64, name=1x128:int64 for a keyword, [3x8x8, 3x9x9],"
        " {key=1x8}, name=true; repeatable.",
    ),
    click.option("--batch", type=int, metavar="N", help="The first size of every input."),
    click.option(
        "--seq",
        type=int,
        metavar="N",
        help="How many tokens a transformers model is given; default: 128.",
    ),
    click.option(
        "--dtype",
        metavar="TYPE",
        shell_complete=candidates.dtypes,
        help="Of parameters, buffers and inputs: float32, bfloat16, float16.",
    ),
)

trust_option = click.option(
    "--allow-pickle",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_remembered("allow_pickle"),
    help="Unpickle a model or weights that can be had no other way: that runs the file's code.",
)

file_options = together(
    click.option(
        "--weights",
        is_eager=True,
        expose_value=False,
        callback=_remembered("weights"),
        metavar="FILE",
        help="A state_dict with the weights of the model (docs/files.md).",
    ),
    trust_option,
)
"""Of a model that is a file, or has its weights in one; they go with `named_model`."""

run_options = together(
    click.option(
        "--train",
        is_flag=True,
        help="A step of training: forward pass, loss, backward pass, update.",
    ),
    click.option(
        "--optimizer",
        metavar="NAME",
        help="What updates the parameters: sgd, adam, adamw (the default) or none.",
    ),
    click.option(
        "--autocast",
        metavar="TYPE",
        help="Mixed precision, as torch.autocast has it: bfloat16 or float16.",
    ),
    click.option(
        "--channels-last",
        is_flag=True,
        help="Images, and weights of convolutions, with their channels last.",
    ),
    click.option(
        "--device",
        metavar="DEVICE",
        help="Device whose operators are captured [default: the machine's].",
    ),
)


def _single(
    context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]
) -> str | None:
    if len(names) > 1:
        raise InputError(
            f"--hardware is given {len(names)} times, but `{context.command_path}` takes one"
            " machine; for one model on several: roofline analyze MODEL --hardware A --hardware B"
        )
    return names[0] if names else None


threads_option = click.option(
    "--threads", type=int, metavar="N", help="Threads that compute; default: all it has."
)

_cold_option = click.option(
    "--cold", is_flag=True, help="Bounds of a first pass, with nothing in the caches."
)

hardware_option = click.option(
    "--hardware",
    # A second one is refused, where click would drop the first without a word.
    multiple=True,
    callback=_single,
    metavar="NAME|FILE",
    shell_complete=candidates.machines,
    help="The machine: a name (`roofline hardware list`) or a .toml file; default: this one.",
)

machine_options = together(hardware_option, threads_option, _cold_option)

machines_options = together(
    click.option(
        "--hardware",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=candidates.machines,
        help="A machine: a name (`roofline hardware list`), a .toml file, or host; repeatable, to"
        " hold machines against each other; default: this one.",
    ),
    threads_option,
    _cold_option,
)


class FileName(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  since click 8.4
    """The path of a file; ``""`` is refused, which `Path` takes for the folder one is in."""

    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return candidates.files(incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("the file name is empty", param, ctx)
        return Path(value)


OVERWRITE_OR_MEASURE = "Overwrite files that exist; measure although the machine is busy."
"""What ``--force`` does in a command that measures."""


def output_options(formats: str, *, force: str = "Overwrite files that exist.") -> Callable[[F], F]:
    """``-o`` and ``--force``, for a command that writes these `formats`; what `force` does."""
    return together(
        click.option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            type=FileName(),
            metavar="FILE",
            help=f"Write to FILE as well; the suffix says what: {formats}. Repeatable.",
        ),
        click.option("--force", is_flag=True, help=force),
    )


format_option = click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md", "html", "svg"]),
    help="Write this to stdout in place of the table (with or without -o -).",
)

view_options = together(
    click.option(
        "--by",
        type=click.Choice(["operator", "module", "type", "phase"]),
        default="operator",
        show_default=True,
        help="What the rows of the table are.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many rows, of a tree in each module; default: 10, of a tree all.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(min=0, max=100),
        metavar="N",
        help="With --by module: how far down the tree of modules goes; default: 2.",
    ),
    click.option(
        "--fused",
        is_flag=True,
        help="Also the traffic that is left where chains of operators stay on chip.",
    ),
)


layers_options = together(
    click.option(
        "--layers",
        is_flag=True,
        help="In pictures (.png, .svg): the roof on paper above the measured one, and shaded what"
        " the hardware loses between them and what software loses below.",
    ),
    click.option(
        "--paper",
        metavar="NAME|FILE",
        shell_complete=candidates.machines,
        help="With --layers: the profile of this machine whose figures are those on paper; default:"
        " what the machine's own profile knows.",
    ),
)


def picture_of(
    *, layers: bool, paper: str | None, files: tuple[Path, ...], stdout_format: str | None
) -> dict[str, Any]:
    """Return options of the picture: with `layers`, on paper (of the machine `paper`) and measured.

    Raises:
        InputError: options that have no effect.
        HardwareError: `paper` is not known.
    """
    from roofline.machine.catalog import load_hardware

    if paper is not None and not layers:
        raise InputError(f"--paper {paper} has no effect without --layers; add it")
    if not layers:
        return {}
    is_drawn = any(path.suffix.lower() in (".png", ".svg") for path in files)
    if not is_drawn and stdout_format != "svg":
        raise InputError("--layers has no effect without a picture; add -o FILE.png or -o FILE.svg")
    return {"layers": True, "paper": load_hardware(paper) if paper is not None else None}


STDOUT = Path("-")


def files_among(outputs: tuple[Path, ...], stdout_format: str | None) -> tuple[Path, ...]:
    """The `outputs` that are files and not stdout.

    Raises:
        InputError: ``-o -`` without ``--format``.
    """
    if STDOUT in outputs and stdout_format is None:
        raise InputError("-o - takes --format as well, such as --format json")
    return tuple(path for path in outputs if path != STDOUT)
