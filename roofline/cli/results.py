"""What commands tell while they work, and how their results get to the terminal and into files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.cli.streams import put, tell
from roofline.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from roofline.foundation.blocks import Report, View
    from roofline.result import Result


def plain_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr, as wide as the terminal, that colours nothing by itself."""
    import shutil

    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if console.width < 1:
        # COLUMNS=0 says that the width is not known; rich would print lines of no characters.
        console.width = shutil.get_terminal_size().columns
    return console


def result_console() -> Console:
    """The console on stdout that results are printed to."""
    return plain_console()


@contextmanager
def progress_bar(what: str) -> Generator[Callable[[float, str], None]]:
    """A progress bar on stderr, shown from the first report on; a plain line in a file."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        console=plain_console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    task = bar.add_task(what, total=1.0, now="")
    started = False

    def report(fraction: float, now: str) -> None:
        nonlocal started
        if not started:
            started = True
            if sys.stderr.isatty():
                bar.start()
            else:
                tell(f"{what} …")
        bar.update(task, completed=fraction, now=now)

    try:
        yield report
    finally:
        bar.stop()


@contextmanager
def measuring_if_needed() -> Generator[Callable[[float, str], None]]:
    """A progress bar for a first measurement of this machine, and where its result was kept."""
    from roofline.machine.catalog import host_file

    known = host_file().exists()
    with progress_bar("Measuring this machine, once") as progress:
        yield progress
    if not known and host_file().exists():
        tell(
            f"Measured this machine and kept the result in {host_file()};"
            " `roofline measure` does it anew"
        )


def print_or_put(shown: Report | str | bytes) -> None:
    """Prints a report as tables; what is a file's content goes to stdout as it is."""
    if isinstance(shown, (str, bytes)):
        put(shown)
        return
    from roofline.render.console import print_report

    print_report(shown, result_console())


def say_written(paths: tuple[Path, ...]) -> None:
    """The last line: what was written."""
    for path in paths:
        tell(f"Wrote {path}")


def present_result(
    result: Result,
    files: Sequence[Path],
    *,
    stdout_format: str | None,
    view: View,
    force: bool,
    **picture: Any,
) -> None:
    """Print a result, or write it to stdout in a format, and write its files.

    Args:
        result: of any kind.
        files: names with suffixes that its kind is written as.
        stdout_format: of what goes to stdout; None: the report.
        view: how report and rows look at it.
        force: whether existing files are replaced.
        picture: options of its drawing.
    """
    from datetime import date

    # Files first: what is printed may end early, in a pipe that closes.
    result.write(files, view, overwrite=force, **picture)
    if stdout_format is not None:
        put(result.render(stdout_format, view, **picture))
    else:
        from roofline.render.console import print_report

        print_report(result.report(replace(view, today=date.today())), result_console())
    say_written(tuple(files))


def check_analysis_files(
    files: Sequence[Path], *, overwrite: bool, is_measured: bool = True
) -> None:
    """Refuse, before any work is done, files of an analysis that could not be written in the end.

    Raises:
        InputError: as `Result.check_files`, a trace of what is not measured, or an event file
            without its library.
    """
    from roofline.analysis import Analysis
    from roofline.analysis.chrome_trace import NOT_MEASURED
    from roofline.analysis.event_file import check_event_file

    Analysis.check_files(files, overwrite=overwrite)
    for path in files:
        if path.name.lower().endswith(".trace.json") and not is_measured:
            raise InputError(f"{path}: {NOT_MEASURED}")
        if path.name.lower().endswith(".tfevents"):
            check_event_file(path)
