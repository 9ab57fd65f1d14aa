"""``roofline``: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import importlib
import sys

import click

from roofline.cli.streams import (
    INTERRUPTED,
    MESSAGE,
    Interrupts,
    Streams,
    columns,
    end_on_interrupt,
    forget_interrupts,
    spelled,
    tell,
)
from roofline.core.source_errors import PlacedError, caret_lines
from roofline.errors import RooflineError, command_line, did_you_mean

OPTIONS = {
    "algorithm": "--all-reduce",
    "axes": "--sweep",
    "inputs": "--input",
    "sharded": "--sharded-optimizer",
    "time_limit_s": "--time-limit",
    "verbose": "-v",
}
"""Options that are not called like the arguments that they set."""

COMPLETE = "_ROOFLINE_COMPLETE"
"""The environment variable by which a shell asks for completions, as click names it."""

_GROUPS = {
    "Analysis": {
        "analyze": "Count a model's operators and place them under a machine's ceilings.",
        "profile": "Run a model here and time every operator in place.",
        "predict": "Predict how long a model takes, without running it.",
        "compare": "Compare models, designs and settings on one or several machines.",
        "advise": "List changes of a model that save time, and try them here.",
        "show": "Show a saved result; needs no torch.",
    },
    "Machine": {
        "measure": "Measure the ceilings of this machine.",
        "calibrate": "Calibrate predictions on this machine.",
        "validate": "Compare predicted with measured times of models.",
        "hardware": "List, show, compare and write machine profiles.",
    },
    "Change": {
        "optimize": "Search for a faster graph of a model, and prove that it computes the same.",
        "quantize": "Estimate gain and cost of low-precision inference on a machine.",
        "export": "Write a model as .onnx or .pt2, and prove that it computes the same.",
    },
    "Large models": {
        "llm": "Analyze prefill and decode of a language model: tokens/s, KV cache, memory.",
        "scale": "Analyze data-parallel training: buckets, all-reduces, efficiency.",
        "compile": "List the kernels that torch.compile generates for a model.",
    },
    "Project": {
        "check": "Compare the cost of a model with a baseline; fail above limits.",
        "crosscheck": "Count a model with other counters, and explain the differences.",
        "operators": "List operators with a formula, or those of a model without one.",
        "completion": "Print the completion script of a shell.",
    },
}
_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}
_MODULES = {
    "Analysis": "analysis",
    "Machine": "machine",
    "Change": "change",
    "Large models": "large_models",
    "Project": "project",
}
"""The module of each group; ``compare`` has its own."""

_OBJECTS_BETWEEN_COLLECTIONS = 50_000


class _Commands(click.Group):
    """Imports a command's module only when that command runs, so that ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        group = next(title for title, names in _GROUPS.items() if cmd_name in names)
        home = "compare" if cmd_name == "compare" else _MODULES[group]
        module = importlib.import_module(f"roofline.cli.{home}")
        found: click.Command = getattr(module, "compile_" if cmd_name == "compile" else cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            raise click.UsageError(f"no command '{args[0]}'{did_you_mean(args[0], _COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The summaries stand here, because reading them from the commands would import them all.
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"roofline {version('roofline')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """How fast a PyTorch model can run on a machine, what limits it, and what to change.

    Start with: roofline analyze resnet50

    Results go to stdout, progress and errors to stderr. Exit codes: 0 fine, 1 failed while
    running, 2 bad input, 3 incomplete, 4 a condition of --fail-if, 130 interrupted.
    """


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    with Interrupts() as interrupts, Streams() as streams, command_line(OPTIONS):
        try:
            code, *said = _outcome(arguments)
        except BaseException:
            # Code that loses the KeyboardInterrupt may well fail in some other way for it.
            if not interrupts.seen:
                raise
            code, said = INTERRUPTED, [MESSAGE]
        interrupts.over = True
        unwritten = streams.failure()
        if interrupts.seen:
            code, said = INTERRUPTED, [MESSAGE]
        elif unwritten:
            code, said = 1, [f"roofline: error: stdout cannot be written: {unwritten}"]
        for line in filter(None, said):
            tell(line)
        return code


def _outcome(arguments: list[str] | None) -> tuple[int, str, *tuple[str, ...]]:
    """Runs the command line: its exit code, and what stderr ends with, ``""`` for nothing."""
    try:
        code = cli.main(args=arguments, prog_name="roofline", standalone_mode=False)
        return (code if isinstance(code, int) else 0), ""
    except PlacedError as error:
        where = caret_lines(error.text, error.at, columns=columns(), spelled=spelled)
        return error.exit_code, f"roofline: error: {error.message}", *where
    except RooflineError as error:
        return error.exit_code, f"roofline: error: {error}"
    except click.exceptions.NoArgsIsHelpError as nothing:
        click.echo(nothing.format_message())
        return 0, ""
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        # Choices that are missing stand on lines of their own, behind tabs.
        message = error.format_message().replace("\n\t", " ").rstrip(".")
        return 2, f"roofline: error: {message}{where}"
    except click.exceptions.Exit as stop:
        return stop.exit_code, ""
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED, MESSAGE
    except (MemoryError, ImportError) as error:
        # Where address space is short, libraries cannot be loaded.
        if isinstance(error, ImportError) and _NO_ROOM not in str(error):
            raise
        return 1, f"roofline: error: out of memory: {_memory_limit()}"
    except OSError as error:
        # Where there is a name, it is that of a file that the user gave or keeps.
        if error.filename is None:
            raise
        return 2, f"roofline: error: {_shown(error.filename)}: {error.strerror}"


_NO_ROOM = "failed to map segment"


def _memory_limit() -> str:
    """What limits the memory of this process, and what to do about it."""
    usual = "take a smaller batch, or stop other processes"
    try:
        import resource
    except ImportError:  # on Windows
        return usual
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return usual
    return f"this process is limited to {limit_bytes // 1024} KiB (ulimit -v); raise the limit"


def _shown(name: object) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def main() -> None:
    """The entry point of the ``roofline`` command."""
    end_on_interrupt()
    # Importing torch makes a million objects that stay: looking through them again and again for
    # garbage, and a last time at the end, took a quarter of a command's time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = run()
    gc.freeze()
    forget_interrupts()
    sys.exit(code)
