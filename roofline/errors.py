"""Errors for the user, with exit codes of the command line.

::

    RooflineError            1  runtime error
    ├── InputError           2  wrong input: model, shape, option, file
    │   ├── ModelError       2  unknown model, or one that cannot be built or rejects its inputs
    │   ├── HardwareError    2  unknown or invalid hardware profile
    │   └── FileFormatError  2  damaged file, other format, or newer version
    ├── MeasurementError     1  measurement failed
    ├── IncompleteError      3  coverage below ``--min-coverage``, no predicted time
    └── ThresholdError       4  condition of ``--fail-if`` failed

An interrupt (Ctrl-C) ends with 130. Every message is one line: what is wrong, and the fix; a
`core.source_errors.PlacedError` adds the text with a caret.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches


class RooflineError(Exception):
    """Runtime error; exit code 1."""

    exit_code = 1


class InputError(RooflineError):
    """Wrong input; exit code 2."""

    exit_code = 2


class ModelError(InputError):
    """Unknown model, or one that cannot be built or rejects its inputs."""


class HardwareError(InputError):
    """Unknown or invalid hardware profile."""


class FileFormatError(InputError):
    """Damaged file, other format, or newer version."""


class MeasurementError(RooflineError):
    """Measurement that failed on this host."""


class IncompleteError(RooflineError):
    """Coverage below the required one, or no predicted time; exit code 3."""

    exit_code = 3


class ThresholdError(RooflineError):
    """Condition failed; exit code 4."""

    exit_code = 4


_options: dict[str, str] | None = None
"""Option names by argument, if not the argument with dashes; None: called from Python."""


@contextmanager
def command_line(options: dict[str, str]) -> Generator[None]:
    """Use option names instead of argument names in messages."""
    global _options
    before, _options = _options, options
    try:
        yield
    finally:
        _options = before


def argument(name: str, value: object = None) -> str:
    """Return an argument as typed: ``seq=5`` in Python, ``--seq 5`` on the command line."""
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
