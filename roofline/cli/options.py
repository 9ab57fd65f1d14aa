"""Options that commands share, and commands that take some of them as one value."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from roofline.cli import candidates
from roofline.cli.streams import present_result
from roofline.core.blocks import View
from roofline.errors import InputError
from roofline.run import RunOptions, check_choice

if TYPE_CHECKING:
    from roofline.result import Result

STDOUT_FORMATS = ("json", "csv", "md", "html", "svg")
RUN, MACHINE, REPORT, MEASURING = "How it runs", "Machine", "Report", "Measuring"
"""Titles of groups of options."""


class Option(click.Option):
    """An option under a title of its command's help."""

    def __init__(self, declarations: Sequence[str], *, title: str = "Options", **how: Any) -> None:
        super().__init__(declarations, **how)
        self.title = title


def option(*declarations: str, **how: Any) -> Option:
    """An option, declared as `click.option` takes it, with the ``title`` of its group."""
    return Option(declarations, **how)


def value(
    declared: str, description: str, *, to: str = "", choices: Sequence[str] = (), **how: Any
) -> Option:
    """An option with a value.

    Args:
        declared: its name, and what its value is called in the help: ``--alpha X``.
        description: for the help.
        to: the argument; ``""``: as the option.
        choices: the words that it may be, if not any; the help has them.
        how: as for `click.option`.
    """
    name, _, metavar = declared.partition(" ")
    if choices:
        metavar, how["callback"] = "|".join(choices), one_of(choices)
    how["metavar"] = metavar or None
    if "default" in how:
        how["show_default"] = True
    return Option((name, *filter(None, (to,))), help=description, **how)


def flag(name: str, description: str, *, to: str = "", **how: Any) -> Option:
    """An option that is given or not; the arguments as of `value`."""
    return Option((name, *filter(None, (to,))), is_flag=True, help=description, **how)


def titled(title: str, *options: Option) -> Sequence[Option]:
    """Options under a title of the help."""
    for each in options:
        each.title = title
    return options


@dataclass(frozen=True)
class Pack:
    """Parameters that a command takes as one argument `name`, which `make` makes of them."""

    name: str
    params: tuple[click.Parameter, ...]
    make: Callable[..., Any] = field(default=dict)

    def take(self, given: dict[str, Any]) -> None:
        """Put the one value in the place of the many."""
        values = {str(each.name): given.pop(str(each.name)) for each in self.params}
        given[self.name] = self.make(**values)


class Command(click.Command):
    """A command whose help has its options in titled groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None and not isinstance(each, click.Argument):
                groups.setdefault(getattr(each, "title", "Options"), []).append(record)
        # Reports and --help end the help of every command.
        for title in sorted(groups, key=lambda title: (title == REPORT, title == "Options")):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def command(name: str, *params: click.Parameter | Pack) -> Callable[..., Command]:
    """Make a command of a function that takes `params` by name."""
    packs = [each for each in params if isinstance(each, Pack)]

    def decorate(function: Callable[..., None]) -> Command:
        def called(**given: Any) -> None:
            for pack in packs:
                pack.take(given)
            function(**given)

        single = [each.params if isinstance(each, Pack) else (each,) for each in params]
        return Command(
            name,
            params=[each for some in single for each in some],
            callback=called,
            help=function.__doc__,
        )

    return decorate


def given_options(context: click.Context) -> Iterator[tuple[str, str]]:
    """Each parameter that the command line has, with how it is written there."""
    for each in context.command.params:
        name = each.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            yield name, name.upper() if isinstance(each, click.Argument) else each.opts[0]


def run_arguments(context: click.Context | None) -> str:
    """Return MODEL and the options of its run as typed, for a shell; ``""`` without a MODEL."""
    if context is None or "model" not in context.params:
        return ""
    words = [str(context.params["model"])]
    for each in context.command.params:
        name = each.name or ""
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and isinstance(each, Option) and each.title in (RUN, MACHINE):
            value = context.params[name]
            for one in value if isinstance(value, tuple) else (value,):
                words += [each.opts[0]] if each.is_flag else [each.opts[0], str(one)]
    return shlex.join(words)


def one_of(known: Sequence[str]) -> Callable[..., Any]:
    """A callback of an option that refuses other words in one line, naming the nearest."""

    def check(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            check_choice(str(parameter.name), value, known)
        return value

    return check


class FileName(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  since click 8.4
    """The path of a file; ``""`` is refused, which `Path` takes for the folder one is in."""

    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("the file name is empty", param, ctx)
        return Path(value)


# Models and how they run


def _stored(model: str | None, *, allow_pickle: bool, weights: str | None = None) -> Any:
    """The model's name, with the file of its weights where there is one."""
    if model is None or not (weights or allow_pickle):
        return model
    from roofline.workload.models.files.formats import StoredModel

    return StoredModel(model, weights=weights, allow_pickle=allow_pickle)


def _all_stored(models: tuple[str, ...], *, allow_pickle: bool, weights: str | None) -> Any:
    """Several models: one may have the file of its weights, all may be trusted."""
    if len(models) < 2:
        return tuple(_stored(each, allow_pickle=allow_pickle, weights=weights) for each in models)
    if weights:
        raise InputError(
            f"--weights {weights}: goes with one model, and {len(models)} are named; name a"
            " function that loads them, as in file.py:make"
        )
    from roofline.workload.models.files.formats import is_model_file

    files = [each for each in models if is_model_file(each)]
    return tuple(
        _stored(each, allow_pickle=allow_pickle) if each in files or not files else each
        for each in models
    )


_TRUST = flag(
    "--allow-pickle", "Unpickle model or weights files, which runs their code.", title=RUN
)
_WEIGHTS = value("--weights FILE", "State dict of the model (docs/how-to/files.md).", title=RUN)


def model_argument(
    *, required: bool = True, weights: bool = True, complete: Any = candidates.models
) -> Pack:
    """MODEL, with the file of its weights."""
    argument = click.Argument(["model"], required=required, shell_complete=complete)
    return Pack("model", (argument, *((_WEIGHTS,) if weights else ()), _TRUST), _stored)


def models_argument(metavar: str, *, required: bool, complete: Any = candidates.models) -> Pack:
    """MODELS, with the file of the weights of one."""
    argument = click.Argument(
        ["models"], nargs=-1, required=required, metavar=metavar, shell_complete=complete
    )
    return Pack("models", (argument, _WEIGHTS, _TRUST), _all_stored)


INPUT = value(
    "--input SHAPE",
    "Input: 1x3x224x224, 1x128:int64, name=1x128:int64 or [3x8x8, 3x9x9]; repeatable.",
    to="inputs",
    title=RUN,
    multiple=True,
)
SIZES = ("batch", "seq", "dtype")
PASS = (*SIZES, "train", "optimizer", "autocast", "channels_last", "device")


def _single(context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> Any:
    if len(names) > 1:
        raise InputError(
            f"--hardware is given {len(names)} times, but `{context.command_path}` takes one"
            " machine; for one model on several: roofline analyze MODEL --hardware A --hardware B"
        )
    return names[0] if names else None


def run_option(name: str, *declarations: str, several: bool = False, **how: Any) -> Option:
    """The option of a field of the declaration of a run.

    Args:
        declarations: names of the option and the argument; none: those of the field.
        several: whether it is repeatable.
        how: what is other than declared.
    """
    declared = next(each for each in fields(RunOptions) if each.name == name)
    description, default, usual = str(declared.metadata["help"]).partition("  [default")
    if several:
        description = f"{description.removesuffix('.').removesuffix(' ..')}; repeatable."
    settings: dict[str, Any] = {"title": RUN, "help": f"{description}{default}{usual}"}
    if declared.type == "bool":
        settings["is_flag"] = True
    else:
        settings["metavar"] = declared.metadata["metavar"]
        settings["type"] = int if str(declared.type).startswith("int") else str
        settings["multiple"] = several
    if name in ("hardware", "threads", "cold"):
        settings["title"] = MACHINE
    if name == "hardware":
        settings["shell_complete"] = candidates.machines
        if not several:
            # A second one is refused, where click would drop the first without a word.
            settings |= {"multiple": True, "callback": _single}
    if name == "dtype":
        settings["shell_complete"] = candidates.dtypes
    return Option(declarations or (f"--{name.replace('_', '-')}", name), **{**settings, **how})


def run_pack(*names: str | Option, several: Sequence[str] = (), takes_inputs: bool = True) -> Pack:
    """Fields of the declaration of a run, and inputs, as keywords of a function.

    Args:
        several: fields that are repeatable: one value is given as such, more as a list.
    """
    found = [
        each if isinstance(each, Option) else run_option(each, several=each in several)
        for each in names
    ]

    def make(**given: Any) -> dict[str, Any]:
        for name in several:
            given[name] = one_or_all(given[name])
        return {**given, "inputs": list(given["inputs"]) or None} if takes_inputs else given

    return Pack("run", (INPUT, *found) if takes_inputs else tuple(found), make)


def one_or_all(given: tuple[Any, ...]) -> Any:
    """The one value of a repeatable option, or the list of several; None where it is not given."""
    return list(given) if len(given) > 1 else next(iter(given), None)


QUICK = flag("--quick", "Fewer passes: faster, noisier.", title=MEASURING)


# Reports and files


def top_option(of: str, default: int = 10) -> Option:
    """``--top``, the number of rows of a table."""
    return value(
        "--top N",
        f"Number of {of}.  [default: {default}]",
        title=REPORT,
        type=click.IntRange(min=1),
    )


VIEW = Pack(
    "view",
    (
        value(
            "--by",
            "Rows of the table.",
            title=REPORT,
            type=click.Choice(["operator", "module", "type", "phase"]),
            default="operator",
        ),
        value(
            "--top N",
            "Number of rows.  [default: 10; of a tree of modules, all]",
            title=REPORT,
            type=click.IntRange(min=1),
        ),
        value(
            "--depth N",
            "Levels of the tree of --by module.  [default: 2]",
            title=REPORT,
            type=click.IntRange(min=0, max=100),
        ),
        flag("--fused", "Add the traffic of fused kernels.", title=REPORT),
    ),
    View,
)


@dataclass(frozen=True)
class Layers:
    """Options of pictures of one machine: theoretical over measured roof."""

    layers: bool
    paper: str | None

    def picture(self, output: Output) -> dict[str, Any]:
        """Options of the picture."""
        if self.paper is not None and not self.layers:
            raise InputError(f"--paper {self.paper} has no effect without --layers; add it")
        if not self.layers:
            return {}
        is_drawn = any(path.suffix.lower() in (".png", ".svg") for path in output.files)
        if not is_drawn and output.format != "svg":
            raise InputError(
                "--layers has no effect without a picture; add -o FILE.png or -o FILE.svg"
            )
        from roofline.machine.catalog import load_hardware

        return {"layers": True, "paper": load_hardware(self.paper) if self.paper else None}


LAYERS = Pack(
    "layers",
    (
        flag(
            "--layers",
            "Pictures: theoretical roof over the measured one, losses shaded.",
            title=REPORT,
        ),
        value(
            "--paper NAME|FILE",
            "With --layers: machine whose data sheet is drawn.  [default: the same]",
            title=REPORT,
            shell_complete=candidates.machines,
        ),
    ),
    Layers,
)

STDOUT = Path("-")


@dataclass(frozen=True)
class Output:
    """Where a result goes: files, and stdout in a format (None: as a report)."""

    outputs: tuple[Path, ...]
    force: bool
    format: str | None = None
    verbose: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The outputs that are no stdout."""
        if STDOUT in self.outputs and self.format is None:
            raise InputError("-o - takes --format as well, such as --format json")
        return tuple(path for path in self.outputs if path != STDOUT)

    def check(self, kind: type[Result]) -> None:
        """Refuse, before any work is done, files that could not be written in the end."""
        kind.check_files(self.files, overwrite=self.force)

    def present(self, result: Result, view: View | None = None, **picture: Any) -> None:
        """Write the files, print the result, and name the files."""
        arguments = run_arguments(click.get_current_context(silent=True))
        present_result(
            result,
            self.files,
            stdout_format=self.format,
            view=replace(view or View(), verbose=self.verbose, arguments=arguments),
            force=self.force,
            **picture,
        )


def output_pack(suffixes: str, *, measures: bool = False, formats: Sequence[str] = ()) -> Pack:
    """``-o``, ``--force`` and ``--format``.

    Args:
        suffixes: of the files that are written.
        measures: ``--force`` also measures on a busy machine.
        formats: of stdout; none: those of the suffixes.
    """
    known = formats or [each for each in STDOUT_FORMATS if f".{each}" in suffixes.split()]
    return Pack(
        "output",
        (
            option(
                "-o",
                "--output",
                "outputs",
                multiple=True,
                type=FileName(),
                metavar="FILE",
                title=REPORT,
                help=f"Write FILE, by suffix: {suffixes}; repeatable.",
            ),
            flag(
                "--force",
                "Overwrite files; measure on a busy machine." if measures else "Overwrite files.",
                title=REPORT,
            ),
            value(
                "--format",
                "Format of stdout, in place of tables.",
                to="format",
                title=REPORT,
                type=click.Choice(known),
            ),
            option(
                "-v",
                "--verbose",
                is_flag=True,
                title=REPORT,
                help="Add details and minor notes to the report.",
            ),
        ),
        Output,
    )
