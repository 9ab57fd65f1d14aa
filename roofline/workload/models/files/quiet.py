"""torch reading a file: what it logs and warns of is not for the user, what it raises is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from roofline.errors import FileFormatError, RooflineError, said_by
from roofline.foundation.quiet import quiet
from roofline.foundation.text import printable

_LONGEST = 200


@contextlib.contextmanager
def reading(path: Path, how: str) -> Iterator[None]:
    """While torch reads `path` by `how`: silent, and what it raises is one line about the file.

    Raises:
        FileFormatError: whatever was raised.
    """
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            yield
    except RooflineError:
        raise
    # What is damaged may fail anywhere in torch, and with anything.
    except Exception as error:
        # What it points to was logged, and is not shown.
        said = printable(said_by(error)).partition(" Please check the warnings above")[0]
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
        raise FileFormatError(
            f"{path}: {how} cannot read it: {type(error).__name__}: {said}"
        ) from error
