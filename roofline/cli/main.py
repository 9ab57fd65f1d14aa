"""Command line ``roofline``: commands, error messages and exit codes."""

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
    print_stderr,
    spelled,
)
from roofline.core.source_errors import PlacedError, caret_lines
from roofline.errors import RooflineError, command_line, did_you_mean

OPTIONS = {
    "algorithm": "--all-reduce",
    "axes": "--sweep",
    "inputs": "--input",
    "operators_measured": "--operators measured",
    "overwrite": "--force",
    "sharded": "--sharded-optimizer",
    "time_limit_s": "--time-limit",
    "verbose": "-v",
}
"""Options whose names differ from their arguments."""

COMPLETE = "_ROOFLINE_COMPLETE"
"""Environment variable with which a shell requests completions (name set by click)."""

_GROUPS = {
    "Analysis": {
        "analyze": "Compute minimum time, limiters and memory of a model on a machine.",
        "profile": "Run a model here; time every operator in place.",
        "predict": "Predict the time of a model without running it.",
        "compare": "Compare models, designs and settings on one or several machines.",
        "advise": "Show the longest layers, and changes that save time.",
        "trace": "Place the operators of a profiler trace under ceilings.",
        "show": "Show a saved result; needs no torch.",
    },
    "Machine": {
        "measure": "Measure the ceilings of this machine.",
        "calibrate": "Calibrate predictions on this machine.",
        "validate": "Compare predicted with measured times of models.",
        "hardware": "List, show, compare and write machine profiles.",
    },
    "Change": {
        "optimize": "Search for a faster equivalent graph of a model.",
        "quantize": "Estimate speed and size of a model in lower bit widths.",
        "export": "Write a model as .onnx or .pt2; verify the file.",
    },
    "Large models": {
        "llm": "Analyze prefill and decode: tokens/s, KV cache, memory.",
        "scale": "Analyze data-parallel training: all-reduces, scaling efficiency.",
        "compile": "List the kernels that torch.compile generates for a model.",
    },
    "Project": {
        "check": "Compare the cost of a model with a baseline; fail above limits.",
        "crosscheck": "Compare FLOP and MACs with those of other counters.",
        "operators": "List operators with a formula, or missing ones of a model.",
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
"""Module of each group; ``compare`` has its own."""

_OBJECTS_BETWEEN_COLLECTIONS = 50_000


class _Commands(click.Group):
    """Commands whose modules are imported on use, so that ``--help`` stays fast."""

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
        # Reading the summaries from the commands would import all of them.
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
    """Roofline analysis of PyTorch models: minimum, predicted and measured times.

    Start with: roofline analyze resnet50

    Results go to stdout, progress and errors to stderr. Exit codes: 0 success, 1 runtime error,
    2 bad input, 3 incomplete (no prediction, --min-coverage), 4 failed condition (--fail-if),
    130 interrupted.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    with Interrupts() as interrupts, Streams() as streams, command_line(OPTIONS):
        try:
            code, *said = _outcome(arguments)
        except BaseException:
            # Code that swallows a KeyboardInterrupt often fails in another way.
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
            print_stderr(line)
        return code


def _outcome(arguments: list[str] | None) -> tuple[int, str, *tuple[str, ...]]:
    """Run the command line; return its exit code and the last lines for stderr."""
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
        # click lists missing choices on lines of their own.
        message = error.format_message().replace("\n\t", " ").rstrip(".")
        return 2, f"roofline: error: {message}{where}"
    except click.exceptions.Exit as stop:
        return stop.exit_code, ""
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED, MESSAGE
    except (MemoryError, ImportError) as error:
        # With little address space, libraries fail to load.
        if isinstance(error, ImportError) and _NO_ROOM not in str(error):
            raise
        return 1, f"roofline: error: out of memory: {_memory_limit()}"
    except OSError as error:
        # A file name in the error is one that the user gave or keeps.
        if error.filename is None:
            raise
        return 2, f"roofline: error: {_shown(error.filename)}: {error.strerror}"


_NO_ROOM = "failed to map segment"


def _memory_limit() -> str:
    """Return the memory limit of this process and a remedy."""
    usual = "use a smaller batch, or stop other processes"
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
    """Run the ``roofline`` command and exit."""
    end_on_interrupt()
    # Importing torch makes a million permanent objects; collecting garbage among them took a
    # quarter of a command's time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = run()
    gc.freeze()
    forget_interrupts()
    sys.exit(code)
