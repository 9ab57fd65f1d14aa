"""Standard streams as a terminal or a pipe has them: progress, results, interrupts."""

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
"""The exit code: 128 and the number of SIGINT, as shells have it."""

MESSAGE = "roofline: interrupted"


def end_on_interrupt() -> None:
    """Makes an interrupt end the process at once, while it starts and while it ends.

    There is nothing to clean up then, and a traceback out of an import helps nobody. When all is
    said and Python takes itself down, interrupts have no effect any more.
    """
    if _is_ours():
        signal.signal(signal.SIGINT, _end)
        # What is registered first is called last. (Python would put back the system's handler,
        # which ends the process without a word and without an exit code.)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def forget_interrupts() -> None:
    """Makes Python end with the exit code that it is given, after an interrupt that was caught.

    Where the KeyboardInterrupt passed an ``exec`` of text (dataclasses and named tuples make their
    methods so), Python takes it for one that nobody caught, and kills itself by the signal in the
    end; unless another ``exec`` goes well.
    """
    exec("")


def _end(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def _is_ours() -> bool:
    """Whether an interrupt comes to this thread, and the process was not started to ignore it."""
    return (
        threading.current_thread() is threading.main_thread()
        # None is a handler that was not installed from Python, and could not be put back.
        and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None)
    )


class Interrupts:
    """Remembers an interrupt, also where the KeyboardInterrupt that it raises never arrives.

    C code that runs Python (the import of an extension module, a callback) may take the exception
    for a failure of its own and clear it.
    """

    def __init__(self) -> None:
        self.seen = False
        self.over = False
        """The command has ended; there is nothing left to interrupt."""
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
    """Replaces what an encoding lacks: our own signs by their like, all else by its escape."""
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
    """The bytes of a stream; remembers its first failure to take them, and drops what follows.

    Without a `raw` stream under it, it drops all.
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
    """While it is entered, ``sys.stdout`` and ``sys.stderr`` take everything.

    Streams that somebody else put there (a test, a notebook) are not replaced.
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
        """Why stdout did not take all of it; ``""`` if it did, or its reader had enough of it."""
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
            # With `python -u` there is no buffer: it is the raw stream itself.
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
        # Not closed in the end: loggers that the command set up may go on writing to it.
        tolerant = io.TextIOWrapper(
            io.BufferedWriter(sink), encoding=encoding, errors=_ERRORS, **options
        )
        self._restore.callback(setattr, sys, name, getattr(sys, name))
        self._restore.callback(tolerant.flush)
        setattr(sys, name, tolerant)


def _encodes(stream: Any) -> bool:
    return isinstance(stream, io.TextIOWrapper)


def _fill_descriptors() -> None:
    """Opens the null device where stdin, stdout or stderr is closed.

    The next file that is opened would get its number, and with it what others write there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is the one that is given.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def tell(text: str) -> None:
    """One line on stderr, whatever `text` holds."""
    _write(sys.stderr, f"{printable(text)}\n")


def spelled(text: str) -> str:
    """`text` as stderr will show it, whose encoding may lack characters of it."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)


def columns() -> int:
    """How wide a line on stderr may be: as the terminal is, or 100 where there is none."""
    if not sys.stderr.isatty():
        return 100
    return shutil.get_terminal_size((100, 24)).columns


def put(content: str | bytes) -> None:
    """A file's content on stdout: the same bytes that would be written to the file."""
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
    """A console on stdout or stderr, as wide as the terminal, that colors nothing by itself."""
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
        redraw: from time to time; else only at reports, by the thread that measures this machine:
            drawing next to it would disturb.
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
    """Write a result's files, print it or write it to stdout in a format, and name the files."""
    # Files first: what is printed may end early, in a pipe that closes.
    result.write(files, view, overwrite=force, **picture)
    if stdout_format is not None:
        put(result.render(stdout_format, view, **picture))
    else:
        print_as_tables(result.report(replace(view, today=date.today())))
    say_written(files)
