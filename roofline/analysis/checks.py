"""What no row and no total can hold: the checks that their types make of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields


def names_of_numbers(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that hold a number, or null."""
    kinds = ("int", "float", "int | None", "float | None")
    return tuple(each.name for each in fields(cls) if each.type in kinds)


def check_numbers(instance: object, names: Iterable[str]) -> None:
    """Refuses a number of `instance`, among its fields `names`, that is negative or infinite."""
    for name in names:
        value = getattr(instance, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number from 0, got {value}")


def check_interval(low: float | None, middle: float | None, high: float | None) -> None:
    """Refuses a predicted time that does not lie in its interval, and half an interval."""
    if low is None and high is None:
        return
    if low is None or middle is None or high is None or not low <= middle <= high:
        raise ValueError(f"predicted_s is {middle}, not between {low} and {high}")
