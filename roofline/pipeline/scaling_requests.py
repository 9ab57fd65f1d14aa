"""What a user asks of training on several ranks, checked, and made settings and a link."""

from __future__ import annotations

import re
from typing import Any

from roofline.errors import InputError, nearest
from roofline.foundation.units import parse_byte, parse_byte_per_s, parse_duration
from roofline.pipeline.analyses import KnownMachine
from roofline.scaling.collectives import ALGORITHMS, Algorithm
from roofline.scaling.links import Wire, wire_of
from roofline.scaling.settings import Settings

_MOST = 2**20
"""More ranks than any machine has; a larger number is a mistake."""

_NO_TIME = re.compile(r"0+(\.0+)?\s*(s|ms|us|µs|μs|ns)?")
"""A latency of 0, which as a duration would be none."""


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
            f"--all-reduce {algorithm}: there are {', '.join(ALGORITHMS)}"
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


def check_measured(*, checkpoint: str | None, scale_gradients: bool, cold: bool) -> None:
    """Refuses what a step that is run for real does not do.

    Raises:
        InputError: says which.
    """
    for option, is_given in (
        ("--checkpoint", checkpoint is not None),
        ("--scale-gradients", scale_gradients),
        ("--cold", cold),
    ):
        if is_given:
            raise InputError(
                f"{option} has no effect on a step that is --measured, which torch runs as it is,"
                " again and again; leave one of them out"
            )


def given_wire(bandwidth: float | str | None, latency: float | str | None) -> Wire | None:
    """The link that a user describes; None: none.

    Raises:
        InputError: it is none.
    """
    if bandwidth is None:
        if latency is not None:
            raise InputError(f"--link-latency {latency} has no effect without --link-bandwidth")
        return None
    rate: Any = parse_byte_per_s(bandwidth) if isinstance(bandwidth, str) else bandwidth
    wait: Any = 0.0 if latency is None else latency
    if isinstance(latency, str):
        wait = 0.0 if _NO_TIME.fullmatch(latency.strip()) else parse_duration(latency)
    try:
        if isinstance(rate, bool) or isinstance(wait, bool):
            raise TypeError
        return Wire(name="given", byte_per_s=float(rate), latency_s=float(wait))
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "a link has byte/s above 0 and a latency from 0, both finite, got"
            f" {bandwidth!r} and {latency!r}; write --link-bandwidth 25GB/s --link-latency 5us"
        ) from None


def check_links(machine: KnownMachine) -> None:
    """Refuses a machine whose links are not known, before anything is run or measured.

    Raises:
        InputError: says how to get them.
    """
    if machine.found is None:
        raise InputError(
            "this machine was not measured yet, and its links are not known: run `roofline measure`"
            " and `roofline measure --links`, or give --link-bandwidth 25GB/s --link-latency 5us"
        )
    wire_of(machine.found[0], at_best=True)
