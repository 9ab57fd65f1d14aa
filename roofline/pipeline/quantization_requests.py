"""What a user asks of `quantize`, checked before a model is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, cast

from roofline.errors import InputError
from roofline.foundation.reading import cut, read_json, refused
from roofline.foundation.schema import check_version
from roofline.foundation.units import parse_bytes, parse_duration
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.machines import Hardware
from roofline.pipeline.optimization_machine import is_this_machine
from roofline.quantization.policy import FLOAT_BITS, Policy, Shortcut, check_bits
from roofline.quantization.result import Quantization

MOST_ROUNDS = 1000

_MOST_BYTE, _MOST_S = 2**60, 1e9
"""No model has as many bytes, and no pass takes 30 years."""

_PAPER_BITS, _FIRST_LAST = 2, 8
_FIX = "write one as docs/quantizing.md shows, or save a result with -o FILE.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a proposed policy may need at most: bytes of a file, or seconds of a pass."""

    size_bytes: int | None = None
    time_s: float | None = None


def policy_of(
    policy: Policy | str | Path | None,
    *,
    weights: int | None,
    activations: int | None,
    first_last: int | None,
    shortcut: Shortcut | None,
    per_channel: bool,
) -> Policy:
    """The policy that is meant: given, read from a file, or put together from the others.

    Args:
        policy: a value, or the JSON file of one: a policy, or a saved result of `quantize`, of
            which the proposed policy is taken, or else the one that was asked for.
        weights, activations: bits; where only one is given the other stays float, and with neither
            both are 2.
        first_last, shortcut: as in `Policy`; None: 8, and shortcuts in full precision.
        per_channel: as in `Policy`.

    Raises:
        InputError: a width that nothing can have, no policy, or one beside other options.
        FileFormatError: the file cannot be read, or holds no policy.
    """
    if policy is None:
        neither = weights is None and activations is None
        missing = _PAPER_BITS if neither else FLOAT_BITS
        return Policy(
            weights=missing if weights is None else weights,
            activations=missing if activations is None else activations,
            first_last=_FIRST_LAST if first_last is None else first_last,
            shortcut="full" if shortcut is None else shortcut,
            per_channel=per_channel,
        )
    given = {
        "--weights": weights is not None,
        "--activations": activations is not None,
        "--first-last": first_last is not None,
        "--shortcut": shortcut is not None,
        "--per-channel": per_channel is not False,
    }
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"{option} has no effect beside --policy; write it into the policy")
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            "policy: expected a roofline.quantization.Policy or the file of one,"
            f" got {type(policy).__name__}"
        )
    return read_policy(Path(policy))


def read_policy(path: Path) -> Policy:
    """The policy of a JSON file: its own, or that of a saved result.

    Raises:
        FileFormatError: the file cannot be read, or holds none.
    """
    file, data = str(path), read_json(path, fix=_FIX)
    if not isinstance(data, Mapping):
        raise refused(file, "is no policy: it must be a table", _FIX)
    table = cast("Mapping[str, Any]", data)
    found = _policy_in(table, file) if "kind" in table else table
    try:
        return Policy.from_data(found)
    except InputError as error:
        raise refused(file, str(error), "") from None


def _policy_in(result: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """The policy of a saved result: the proposed one, where there is one.

    Raises:
        FileFormatError: there is none.
    """
    kind = result["kind"]
    if kind != Quantization.kind:
        raise refused(file, f"is no policy but a file of kind {kind!r}", _FIX)
    check_version(result, file=file, fix=_FIX)
    try:
        proposal = (result["sensitivity"] or {}).get("proposal")
        found = proposal["policy"] if proposal else result["what_ifs"][0]["policy"]
    except (KeyError, IndexError, TypeError, AttributeError):
        found = None
    if not isinstance(found, Mapping):
        raise refused(file, "holds a damaged result without a policy", _FIX)
    return cast("Mapping[str, Any]", found)


def widths_of(sweep: Iterable[int]) -> tuple[int, ...]:
    """The widths of a sweep, in the order in which they were given.

    Raises:
        InputError: one that nothing can have, or twice.
    """
    if isinstance(sweep, (str, bytes)) or not isinstance(sweep, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"--sweep {sweep!r}: expected widths in bits, such as [2, 3, 4, 8, 16]")
    widths: list[int] = []
    for width in sweep:
        check_bits("--sweep", width)
        if width in widths:
            raise InputError(f"--sweep: {width} bits are given twice; give each width once")
        widths.append(width)
    return tuple(widths)


def budget_of(
    size: int | str | None, time: float | str | None, *, sensitivity: bool
) -> Budget | None:
    """The budget of a proposed policy; None: none was given.

    Args:
        size: bytes, or as text (``"1MB"``).
        time: seconds, or as text (``"5ms"``).
        sensitivity: whether layers are ranked, without which nothing is proposed.

    Raises:
        InputError: none that can be held, both, or one without the ranking.
    """
    if size is None and time is None:
        return None
    option = "--time-budget" if size is None else "--size-budget"
    if not sensitivity:
        raise InputError(f"{option} has no effect without --sensitivity; add it")
    if size is not None and time is not None:
        raise InputError("--size-budget and --time-budget: give one of both")
    if isinstance(size, str):
        size = parse_bytes(size)
    if isinstance(time, str):
        time = parse_duration(time)
    if size is not None and (type(size) is not int or not 1 <= size < _MOST_BYTE):
        raise InputError(
            f"--size-budget {cut(str(size))}: must be a whole number of bytes from 1, or 1MB"
        )
    is_number = isinstance(time, Real) and not isinstance(time, bool)
    if time is not None and not (is_number and 0 < time < _MOST_S):
        raise InputError(
            f"--time-budget {cut(str(time))}: must be a number of seconds above 0, or 5ms"
        )
    return Budget(size_bytes=size, time_s=None if time is None else float(time))


def check_companions(hardware: Hardware | None, *, measure: bool, rounds: int | None) -> None:
    """Refuses timings that there cannot be, and rounds of none.

    Raises:
        InputError: says which, and what to leave out.
    """
    if rounds is not None:
        if type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS:
            raise InputError(f"--rounds {rounds}: must be a whole number from 1 to {MOST_ROUNDS}")
        if not measure:
            raise InputError(f"--rounds {rounds} has no effect without --measure; add it")
    if measure and not is_this_machine(hardware):
        name = hardware.name if isinstance(hardware, HardwareProfile) else hardware
        raise InputError(
            f"--measure times the model on this machine, and --hardware {name} is another:"
            " leave one of both out"
        )


def check_switches(**switches: object) -> None:
    """Refuses what only Python can give in the place of True or False.

    Raises:
        InputError: says which.
    """
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r}: must be True or False")


def check_functions(**functions: object) -> None:
    """Refuses what cannot be called where something is to be told.

    Raises:
        InputError: says which.
    """
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise InputError(f"{name}={value!r}: must be a function, or None")
