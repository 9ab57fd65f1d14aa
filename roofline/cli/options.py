"""Options shared by commands, and groups of options passed to a command as one argument."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
RUN, MACHINE, REPORT, MEASURING = "Run", "Machine", "Report", "Measurement"
"""Titles of option groups in help texts."""


class Option(click.Option):
    """An option in a titled group of its command's help."""

    def __init__(self, declarations: Sequence[str], *, title: str = "Options", **how: Any) -> None:
        super().__init__(declarations, **how)
        self.title = title


def option(*declarations: str, **how: Any) -> Option:
    """Return an option, declared as for `click.option`, with the ``title`` of its group."""
    return Option(declarations, **how)


def value(
    declared: str, description: str, *, to: str = "", choices: Sequence[str] = (), **how: Any
) -> Option:
    """Return an option with a value.

    Args:
        declared: name and metavar: ``--alpha X``.
        description: help text.
        to: name of the argument; ``""``: that of the option.
        choices: allowed words; none: any.
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
    """Return a flag; arguments as for `value`."""
    return Option((name, *filter(None, (to,))), is_flag=True, help=description, **how)


def in_section(title: str, *options: Option) -> Sequence[Option]:
    """Set the help group of options, and return them."""
    for each in options:
        each.title = title
    return options


@dataclass(frozen=True)
class OptionGroup:
    """Parameters that `make` combines into the argument `name` of a command."""

    name: str
    params: tuple[click.Parameter, ...]
    make: Callable[..., Any] = field(default=dict)

    def take(self, given: dict[str, Any]) -> None:
        """Replace the parameters in `given` by the one value."""
        values = {str(each.name): given.pop(str(each.name)) for each in self.params}
        given[self.name] = self.make(**values)


class Command(click.Command):
    """A command whose help lists options in titled groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None and not isinstance(each, click.Argument):
                groups.setdefault(getattr(each, "title", "Options"), []).append(record)
        for title in sorted(groups, key=lambda title: (title == "Options", title == REPORT)):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def command(name: str, *params: click.Parameter | OptionGroup) -> Callable[..., Command]:
    """Return a decorator that makes a command of a function with the keywords `params`."""
    packs = [each for each in params if isinstance(each, OptionGroup)]

    def decorate(function: Callable[..., None]) -> Command:
        def called(**given: Any) -> None:
            for pack in packs:
                pack.take(given)
            function(**given)

        single = [each.params if isinstance(each, OptionGroup) else (each,) for each in params]
        return Command(
            name,
            params=[each for some in single for each in some],
            callback=called,
            help=function.__doc__,
        )

    return decorate


def given_options(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the parameters given on the command line, each with its spelling."""
    for each in context.command.params:
        name = each.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            yield name, name.upper() if isinstance(each, click.Argument) else each.opts[0]


def run_arguments(context: click.Context | None) -> str:
    """Return models and options of the run as typed, for a shell; ``""`` without a model to run."""
    if context is None or str(context.params.get("model")).endswith(".json"):
        return ""
    models: tuple[Any, ...] = context.params.get("models") or (context.params.get("model"),)
    words = [str(each) for each in models if each is not None]
    if not words:
        return ""
    for each in context.command.params:
        name = each.name or ""
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and isinstance(each, Option) and each.title in (RUN, MACHINE):
            value: Any = context.params[name]
            values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            for one in values:
                words += [each.opts[0]] if each.is_flag else [each.opts[0], str(one)]
    return shlex.join(words)


def one_of(known: Sequence[str]) -> Callable[..., Any]:
    """Return a callback that refuses unknown words of an option and suggests the closest."""

    def check(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            check_choice(str(parameter.name), value, known)
        return value

    return check


class FileName(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  since click 8.4
    """Path of a file; ``""`` is refused (`Path` takes it for the current folder)."""

    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("the file name is empty", param, ctx)
        return Path(value)


# Models and runs


def _stored(model: str | None, *, allow_pickle: bool, weights: str | None = None) -> Any:
    """Return the model, with the file of its weights if there is one."""
    if model is None or not (weights or allow_pickle):
        return model
    from roofline.workload.models.files.formats import StoredModel

    return StoredModel(model, weights=weights, allow_pickle=allow_pickle)


def _all_stored(models: tuple[str, ...], *, allow_pickle: bool, weights: str | None) -> Any:
    """Return models; a weights file goes with one model only."""
    if len(models) < 2:
        return tuple(_stored(each, allow_pickle=allow_pickle, weights=weights) for each in models)
    if weights:
        raise InputError(
            f"--weights {weights}: takes one model, got {len(models)}; name functions that load"
            " weights, such as file.py:make"
        )
    from roofline.workload.models.files.formats import is_model_file

    files = [each for each in models if is_model_file(each)]
    return tuple(
        _stored(each, allow_pickle=allow_pickle) if each in files or not files else each
        for each in models
    )


_TRUST = flag("--allow-pickle", "Unpickle model and weights files (runs their code).", title=RUN)
_WEIGHTS = value("--weights FILE", "State dict of the model (docs/how-to/files.md).", title=RUN)


def model_argument(
    *, required: bool = True, weights: bool = True, complete: Any = candidates.models
) -> OptionGroup:
    """Return MODEL with its options."""
    argument = click.Argument(["model"], required=required, shell_complete=complete)
    return OptionGroup("model", (argument, *((_WEIGHTS,) if weights else ()), _TRUST), _stored)


def models_argument(
    metavar: str, *, required: bool, complete: Any = candidates.models
) -> OptionGroup:
    """Return MODELS with their options."""
    argument = click.Argument(
        ["models"], nargs=-1, required=required, metavar=metavar, shell_complete=complete
    )
    return OptionGroup("models", (argument, _WEIGHTS, _TRUST), _all_stored)


INPUT = value(
    "--input SHAPE",
    "Input: 1x3x224x224, 1x128:int64, name=1x128 or [3x8x8, 3x9x9]; repeatable.",
    to="inputs",
    title=RUN,
    multiple=True,
)
SIZES = ("batch", "seq", "dtype")
PASS = (*SIZES, "train", "optimizer", "autocast", "channels_last", "device")


def _single(context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> Any:
    if len(names) > 1:
        raise InputError(
            f"--hardware: `{context.command_path}` takes one machine, got {len(names)};"
            " for several: roofline analyze MODEL --hardware A --hardware B"
        )
    return names[0] if names else None


def run_option(name: str, *declarations: str, several: bool = False, **how: Any) -> Option:
    """Return the option of a field of `RunOptions`.

    Args:
        name: the field.
        declarations: names of option and argument; none: those of the field.
        several: repeatable.
        how: settings that replace the declared ones.
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
            # click would silently drop the first of two.
            settings |= {"multiple": True, "callback": _single}
    if name == "dtype":
        settings["shell_complete"] = candidates.dtypes
    return Option(declarations or (f"--{name.replace('_', '-')}", name), **{**settings, **how})


def run_pack(
    *names: str | Option, several: Sequence[str] = (), takes_inputs: bool = True
) -> OptionGroup:
    """Return options of a run as one dictionary of keywords.

    Args:
        names: fields of `RunOptions`, or options.
        several: repeatable fields: one value as such, several as a list.
        takes_inputs: add ``--input``.
    """
    found = [
        each if isinstance(each, Option) else run_option(each, several=each in several)
        for each in names
    ]

    def make(**given: Any) -> dict[str, Any]:
        for name in several:
            given[name] = one_or_all(given[name])
        return {**given, "inputs": list(given["inputs"]) or None} if takes_inputs else given

    return OptionGroup("run", (INPUT, *found) if takes_inputs else tuple(found), make)


def one_or_all(given: tuple[Any, ...]) -> Any:
    """Return the value of a repeatable option, a list of several, or None."""
    return list(given) if len(given) > 1 else next(iter(given), None)


QUICK = flag("--quick", "Fewer passes: faster, wider intervals.", title=MEASURING)


# Reports and files


def top_option(of: str, default: int = 10) -> Option:
    """Return ``--top``, the number of rows of a table."""
    return value(
        "--top N",
        f"Number of {of}.  [default: {default}]",
        title=REPORT,
        type=click.IntRange(min=1),
    )


def view_by(*rows: str) -> OptionGroup:
    """Return the options that select rows and detail of a report."""
    return OptionGroup(
        "view",
        (
            value(
                "--by",
                "Rows of the table.",
                title=REPORT,
                type=click.Choice(rows),
                default="operator",
            ),
            value(
                "--top N",
                "Number of rows.  [default: 5; with -v 10; modules: all]",
                title=REPORT,
                type=click.IntRange(min=1),
            ),
            value(
                "--depth N",
                "With --by module: levels of the tree.  [default: 2]",
                title=REPORT,
                type=click.IntRange(min=0, max=100),
            ),
            flag("--fused", "Add traffic after operator fusion.", title=REPORT),
        ),
        View,
    )


VIEW = view_by("operator", "module", "type", "phase")
VIEW_WITH_KERNELS = view_by("operator", "module", "type", "phase", "kernel")


@dataclass(frozen=True)
class Layers:
    """Options of plots with theoretical and measured roofline."""

    layers: bool
    paper: str | None

    def picture(self, output: Output) -> dict[str, Any]:
        """Return options of the plot."""
        if self.paper is not None and not self.layers:
            raise InputError(f"--paper {self.paper}: has no effect without --layers; add --layers")
        if not self.layers:
            return {}
        is_drawn = any(path.suffix.lower() in (".png", ".svg") for path in output.files)
        if not is_drawn and output.format != "svg":
            raise InputError(
                "--layers: has no effect without a plot; add -o FILE.png or -o FILE.svg"
            )
        from roofline.machine.catalog import load_hardware

        return {"layers": True, "paper": load_hardware(self.paper) if self.paper else None}


LAYERS = OptionGroup(
    "layers",
    (
        flag(
            "--layers",
            "Plots: theoretical over measured roofline, losses shaded.",
            title=REPORT,
        ),
        value(
            "--paper NAME|FILE",
            "With --layers: machine of the theoretical roofline.  [default: the same]",
            title=REPORT,
            shell_complete=candidates.machines,
        ),
    ),
    Layers,
)

STDOUT = Path("-")


@dataclass(frozen=True)
class Output:
    """Output options: files, format of stdout (None: report), detail."""

    outputs: tuple[Path, ...]
    force: bool
    format: str | None = None
    verbose: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Outputs other than stdout."""
        if STDOUT in self.outputs and self.format is None:
            raise InputError("-o -: add the format of stdout, such as --format json")
        return tuple(path for path in self.outputs if path != STDOUT)

    def check(self, kind: type[Result]) -> None:
        """Refuse files that cannot be written, before any work is done."""
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


def output_pack(
    suffixes: str, *, measures: bool = False, formats: Sequence[str] = ()
) -> OptionGroup:
    """Return ``-o``, ``--force``, ``--format`` and ``--verbose``.

    Args:
        suffixes: suffixes of output files.
        measures: ``--force`` also measures on a busy machine.
        formats: formats of stdout; none: those of the suffixes.
    """
    known = formats or [each for each in STDOUT_FORMATS if f".{each}" in suffixes.split()]
    return OptionGroup(
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
                help=f"Output file, format by suffix: {suffixes}; repeatable.",
            ),
            flag(
                "--force",
                "Overwrite files; measure on a busy machine." if measures else "Overwrite files.",
                title=REPORT,
            ),
            value(
                "--format",
                "Format of stdout.  [default: report]",
                to="format",
                title=REPORT,
                type=click.Choice(known),
            ),
            option(
                "-v",
                "--verbose",
                is_flag=True,
                title=REPORT,
                help="Report with details and minor notes.",
            ),
        ),
        Output,
    )
