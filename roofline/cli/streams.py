"""stdout and stderr that take whatever is written to them.

Characters that their encoding lacks are spelled with those it has; a stream that is closed is one
that nobody reads; and a disk that is full or a pipe that is closed is found out at the end, by
`Streams.failure`, so that files still get written when nobody reads the table.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import shutil
import sys
from typing import Any, Literal, TextIO

from roofline.foundation.text import printable

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
