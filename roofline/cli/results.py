"""Progress of commands, and how their results get to the terminal and into files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.cli.streams import put, tell

if TYPE_CHECKING:
    from rich.console import Console

    from roofline.foundation.blocks import Report, View
    from roofline.result import Result


def plain_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr, as wide as the terminal, that colors nothing by itself."""
    import shutil

    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if console.width < 1:
        # COLUMNS=0 says that the width is not known; rich would print lines of no characters.
        console.width = shutil.get_terminal_size().columns
    return console


@contextmanager
def working(what: str = "", *, redraw: bool = True) -> Generator[Callable[[float, str], None]]:
    """A progress bar on stderr from the first report on, a plain line in a file.

    What the user's models print goes to stderr as well: it is not the result.

    Args:
        what: what is done; ``""``: a first measurement of this machine, where one is needed.
        redraw: from time to time; else only at reports, by the thread that measures: drawing next
            to it would disturb.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from roofline.machine.catalog import host_file

    measures_first = not what and not host_file().exists()
    what = what or "Measuring this machine, once"
    is_terminal = sys.stderr.isatty()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        console=plain_console(stderr=True),
        transient=True,
        auto_refresh=redraw,
        disable=not is_terminal,
    )
    task = bar.add_task(what, total=1.0, now="")
    started = False

    def report(fraction: float, now: str) -> None:
        nonlocal started
        if not started:
            started = True
            if is_terminal:
                bar.start()
            else:
                tell(f"{what} …")
        bar.update(task, completed=fraction, now=now, refresh=not redraw)

    try:
        with redirect_stdout(sys.stderr):
            yield report
    finally:
        bar.stop()
    if measures_first and host_file().exists():
        tell(
            f"Measured this machine and kept the result in {host_file()};"
            " `roofline measure` does it again"
        )


def say_written(paths: Sequence[Path]) -> None:
    """The last lines: the files that were written."""
    for path in paths:
        tell(f"Wrote {path}")


def print_as_tables(report: Report) -> None:
    """Print a report on stdout."""
    from roofline.render.console import print_report

    print_report(report, plain_console())


def present_result(
    result: Result,
    files: Sequence[Path] = (),
    *,
    stdout_format: str | None = None,
    view: View,
    force: bool = False,
    **picture: Any,
) -> None:
    """Write a result's files, print it, or write it to stdout in a format, and name the files.

    Args:
        result: of any kind.
        files: names with suffixes that its kind is written as.
        stdout_format: of what goes to stdout; None: the report.
        view: how report and rows look at it.
        force: whether existing files are replaced.
        picture: options of its drawing.
    """
    # Files first: what is printed may end early, in a pipe that closes.
    result.write(files, view, overwrite=force, **picture)
    if stdout_format is not None:
        put(result.render(stdout_format, view, **picture))
    else:
        print_as_tables(result.report(replace(view, today=date.today())))
    say_written(files)
