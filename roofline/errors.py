"""The errors that roofline raises for its user, each with the exit code of the command line.

::

    RooflineError            1  something failed while running
    ├── InputError           2  what the user gave is wrong: model, shape, option, file
    │   ├── ModelError       2  a model that is not found, cannot be built, or rejects its inputs
    │   ├── HardwareError    2  a hardware profile that is not found or not valid
    │   └── FileFormatError  2  a file that is not ours, is cut short or of a newer version
    ├── MeasurementError     1  a measurement that could not be made
    ├── IncompleteError      3  the result covers less than was asked for (``--min-coverage``)
    └── ThresholdError       4  a figure is beyond what the user allows (``--fail-if``)

An interrupt (Ctrl-C) ends with 130. Every message is one line: what is wrong, where, and the fix;
under that of a `core.source_errors.PlacedError` stand the text and a caret.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches


class RooflineError(Exception):
    """Something failed while running; exit code 1."""

    exit_code = 1


class InputError(RooflineError):
    """What the user gave is wrong; exit code 2."""

    exit_code = 2


class ModelError(InputError):
    """A model that is not found, cannot be built, or rejects its inputs."""


class HardwareError(InputError):
    """A hardware profile that is not found or not valid."""


class FileFormatError(InputError):
    """A file that is not ours, is cut short, or was written by a newer version."""


class MeasurementError(RooflineError):
    """A measurement that could not be made on this host."""


class IncompleteError(RooflineError):
    """The result covers less than was asked for; exit code 3."""

    exit_code = 3


class ThresholdError(RooflineError):
    """A figure is beyond what the user allows; exit code 4."""

    exit_code = 4


_options: dict[str, str] | None = None
"""Options of the command line by argument, where they are not the argument's name with dashes;
None: the caller is Python."""


@contextmanager
def command_line(options: dict[str, str]) -> Generator[None]:
    """Let messages name options in place of arguments."""
    global _options
    before, _options = _options, options
    try:
        yield
    finally:
        _options = before


def argument(name: str, value: object = None) -> str:
    """An argument as its caller writes it: ``seq=5`` in Python, ``--seq 5`` as an option."""
    if _options is None:
        return name if value is None else f"{name}={value!r}"
    option = _options.get(name) or f"--{name.replace('_', '-')}"
    return option if value is None or value is True else f"{option} {value}"


def error_text(error: BaseException) -> str:
    """Return the message of an exception on one line; ``""`` if it has none or fails to give it."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return ""


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return the clause ``"; did you mean 'x'?"`` for the closest known word, or ``""``.

    `prefix` is prepended to that word.
    """
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{prefix}{matches[0]}'?" if matches else ""
