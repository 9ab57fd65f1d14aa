"""Standard streams: progress, results, interrupts."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import errno
import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from roofline.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from roofline.core.blocks import Report, View
    from roofline.result import Result


INTERRUPTED = 130
"""Exit code of an interrupt: 128 + SIGINT."""

MESSAGE = "roofline: interrupted"


def end_on_interrupt() -> None:
    """End the process at once on an interrupt during startup and shutdown.

    There is nothing to clean up then, and a traceback from an import is useless. During shutdown of
    Python, interrupts are ignored.
    """
    if _is_ours():
        signal.signal(signal.SIGINT, _end)
        # Registered first, called last. (Python would restore the system's handler, which ends the
        # process without message and exit code.)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def forget_interrupts() -> None:
    """Keep the exit code after a caught interrupt.

    If a KeyboardInterrupt passes an ``exec`` of text (as in dataclasses), Python takes it for
    uncaught and kills itself by the signal in the end; a successful ``exec`` avoids this.
    """
    exec("")


def _end(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def _is_ours() -> bool:
    """Return whether this thread receives interrupts, and the process does not ignore them."""
    return (
        threading.current_thread() is threading.main_thread()
        # None: a handler that was not installed from Python and cannot be restored.
        and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None)
    )


class Interrupts:
    """Record of an interrupt, also if its KeyboardInterrupt is lost.

    C code that runs Python (imports of extension modules, callbacks) may clear the exception.
    """

    def __init__(self) -> None:
        self.seen = False
        self.over = False
        """True after the command ended."""
        self._before: object = None

    def __enter__(self) -> Interrupts:
        if _is_ours():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # pyright: ignore[reportArgumentType]  as it was given

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        if not self.over:
            raise KeyboardInterrupt


Name = Literal["stdout", "stderr"]

_SPELLING = {
    "×": "x",
    "–": "-",
    "—": "-",
    "·": "|",
    "•": "*",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "µ": "u",
    "σ": "sigma",
    "α": "alpha",
}


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks: known signs by similar ones, others by escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return (
        "".join(
            _SPELLING.get(each) or each.encode("ascii", "backslashreplace").decode()
            for each in found
        ),
        error.end,
    )


_ERRORS = "roofline.spelled"
codecs.register_error(_ERRORS, _spelled)


class _Sink(io.RawIOBase):
    """Raw stream that remembers its first write error and drops all later output.

    Without `raw`, it drops everything.
    """

    def __init__(self, name: Name, raw: Any = None) -> None:
        super().__init__()
        self.name = f"<{name}>"
        self.failure: OSError | None = None
        self._number = {"stdout": 1, "stderr": 2}[name]
        self._raw = raw

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno() if self._raw else self._number

    def isatty(self) -> bool:
        return self._raw.isatty() if self._raw else False

    def write(self, data: Any, /) -> int | None:
        if self._raw and self.failure is None:
            try:
                return self._raw.write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


class Streams:
    """Context in which ``sys.stdout`` and ``sys.stderr`` accept all text.

    Replaced streams (in tests or notebooks) are kept.
    """

    def __init__(self) -> None:
        self._stdout: _Sink | None = None
        self._restore = contextlib.ExitStack()

    def __enter__(self) -> Streams:
        _fill_descriptors()
        self._stdout = self._make_tolerant("stdout")
        self._make_tolerant("stderr")
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    def failure(self) -> str:
        """Return the write error of stdout; ``""`` if there is none, or its reader closed the
        pipe."""
        sys.stdout.flush()
        failed = self._stdout.failure if self._stdout else None
        return failed.strerror or str(failed) if failed and failed.errno != errno.EPIPE else ""

    def _make_tolerant(self, name: Name) -> _Sink | None:
        stream: Any = getattr(sys, name)
        if stream is None or stream.closed:
            sink = _Sink(name)
            self._replace(name, sink)
        elif not _encodes(stream):
            sink = None
        elif stream is not getattr(sys, f"__{name}__"):
            sink = None
            self._restore.callback(stream.reconfigure, errors=stream.errors)
            stream.reconfigure(errors=_ERRORS)
        else:
            with contextlib.suppress(OSError):
                stream.flush()
            # With `python -u`, the buffer is the raw stream.
            sink = _Sink(name, getattr(stream.buffer, "raw", stream.buffer))
            self._replace(
                name,
                sink,
                encoding=stream.encoding,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
        return sink

    def _replace(self, name: Name, sink: _Sink, *, encoding: str = "utf-8", **options: Any) -> None:
        # Not closed: loggers may continue writing to it.
        tolerant = io.TextIOWrapper(
            io.BufferedWriter(sink), encoding=encoding, errors=_ERRORS, **options
        )
        self._restore.callback(setattr, sys, name, getattr(sys, name))
        self._restore.callback(tolerant.flush)
        setattr(sys, name, tolerant)


def _encodes(stream: Any) -> bool:
    return isinstance(stream, io.TextIOWrapper)


def _fill_descriptors() -> None:
    """Open the null device for closed stdin, stdout or stderr.

    Otherwise the next opened file would get that number, and its output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # open() returns the lowest free number.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def print_stderr(text: str) -> None:
    """Print one line on stderr."""
    _write(sys.stderr, f"{printable(text)}\n")


def spelled(text: str) -> str:
    """Return `text` as stderr shows it, with replaced characters."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)


def columns() -> int:
    """Return the width of stderr in columns: that of the terminal, else 100."""
    if not sys.stderr.isatty():
        return 100
    return shutil.get_terminal_size((100, 24)).columns


def write_stdout(content: str | bytes) -> None:
    """Write the content of a file to stdout, byte for byte."""
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    binary: Any = getattr(sys.stdout, "buffer", None)
    if binary is None:
        _write(sys.stdout, content.decode("utf-8"))
        return
    sys.stdout.flush()
    binary.write(content)
    binary.flush()


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr, without automatic colors."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if console.width < 1:
        # COLUMNS=0: unknown width; rich would print empty lines.
        console.width = shutil.get_terminal_size().columns
    return console


_LINES_APART_S = 30.0


@contextmanager
def progress_bar(what: str = "", *, redraw: bool = True) -> Generator[Callable[[float, str], None]]:
    """Show progress on stderr: a bar on a terminal, a line at the start and every 30 s in a file.

    Output of the user's models goes to stderr as well.

    Args:
        what: current work; ``""``: first measurement of this machine, if needed.
        redraw: refresh periodically; else only on reports, so that drawing does not disturb a
            measurement.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from roofline.machine.catalog import host_file

    measures_first = redraw and not host_file().exists()
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
    started, printed_s = False, 0.0

    def report(fraction: float, now: str) -> None:
        nonlocal started, printed_s
        if not started:
            started, printed_s = True, time.monotonic()
            if is_terminal:
                bar.start()
            else:
                print_stderr(f"{what} …")
        elif not is_terminal and time.monotonic() - printed_s >= _LINES_APART_S:
            printed_s = time.monotonic()
            print_stderr(f"{what}: {fraction:.0%}".replace("%", " %") + f", {now}" * bool(now))
        bar.update(task, completed=fraction, now=now, refresh=not redraw)

    try:
        with redirect_stdout(sys.stderr):
            yield report
    finally:
        bar.stop()
    if measures_first and host_file().exists():
        print_stderr(
            f"Measured this machine and kept the result in {host_file()};"
            " `roofline measure` does it again"
        )


def print_written(paths: Sequence[Path]) -> None:
    """Print the names of the written files."""
    for path in paths:
        print_stderr(f"Wrote {path}")


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
    """Write a result's files, print it or write it to stdout in a format, and name the files."""
    # Files first: printing may end early in a closed pipe.
    result.write(files, view, overwrite=force, **picture)
    if stdout_format is not None:
        write_stdout(result.render(stdout_format, view, **picture))
    else:
        print_as_tables(result.report(replace(view, today=date.today())))
    print_written(files)
