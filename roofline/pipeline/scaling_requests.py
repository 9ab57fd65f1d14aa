"""What a user asks of training on several ranks, checked, and made settings."""

from __future__ import annotations

from roofline.errors import InputError, nearest
from roofline.foundation.units import parse_byte
from roofline.scaling.collectives import ALGORITHMS, Algorithm
from roofline.scaling.settings import Settings

_MOST = 2**20
"""More ranks than any machine has; a larger number is a mistake."""


def settings_of(
    ranks: int,
    *,
    algorithm: Algorithm,
    accumulate: int,
    bucket: int | str | None,
    sharded: bool,
) -> Settings:
    """The settings, from what `roofline.scale` is given.

    Raises:
        InputError: says which is wrong.
    """
    for option, value in (("--data-parallel", ranks), ("--accumulate", accumulate)):
        # True is a whole number to Python.
        if type(value) is not int or not 1 <= value <= _MOST:
            raise InputError(f"{option} {value}: must be a whole number from 1 to {_MOST}")
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"--algorithm {algorithm}: there are {', '.join(ALGORITHMS)}"
            f"{nearest(str(algorithm), ALGORITHMS)}"
        )
    if type(sharded) is not bool:
        raise InputError(f"sharded: expected True or False, got {sharded!r}")
    byte = parse_byte(bucket) if isinstance(bucket, str) else bucket
    if byte is not None and (type(byte) is not int or byte < 1):
        raise InputError(f"--bucket {bucket}: must be a size such as 25MiB")
    return Settings(
        ranks=ranks,
        algorithm=algorithm,
        accumulate=accumulate,
        bucket_byte=byte,
        sharded=sharded,
    )
