"""Whether axes, designs and options of a sweep fit together; said before any work is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline.design.sweeps.axes import (
    BALANCE,
    LAYOUTS,
    OPTION_AXES,
    Axis,
    Grid,
    Value,
    text_of,
)
from roofline.errors import InputError, nearest
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.sweeps.jobs import Design


def with_hardware(grid: Grid, hardware: object) -> Grid:
    """Several machines are an axis like any other."""
    if isinstance(hardware, (list, tuple)) and len(hardware) > 1:
        names = [each.name if isinstance(each, HardwareProfile) else str(each) for each in hardware]
        if len(set(names)) < len(names):
            raise InputError("--hardware: a machine is given twice; name it once")
        return replace(grid, axes=(*grid.axes, Axis(name="hardware", values=tuple(names))))
    return grid


def check_axes(grid: Grid, designs: Sequence[Design], fixed: Mapping[str, Any]) -> None:
    """Refuses axes that nothing uses, variables without an axis, and what is said twice."""
    given = [axis.name for axis in grid.axes]
    variables = list(dict.fromkeys(name for each in designs for name in each.variables))
    if BALANCE in given and BALANCE not in variables:
        raise InputError("the axis balance stands alone: it varies machines, not designs")
    for name in given:
        if name not in variables and name not in OPTION_AXES:
            known = (*variables, *OPTION_AXES)
            raise grid.refusal(
                name,
                f"--sweep: no design has a variable '{name}'{nearest(name, known)}"
                f" (variables: {', '.join(variables) or 'none'};"
                f" options: {', '.join(OPTION_AXES)})",
            )
        if name not in variables and fixed.get(name) is not None:
            option = "--channels-last" if name == "layout" else f"--{name}"
            raise grid.refusal(name, f"{option} is also an axis of --sweep; say it once")
    for name in variables:
        if name not in given:
            raise InputError(
                f"--sweep: the variable '{name}' of"
                f" {next(each.name for each in designs if name in each.variables)} has no axis"
                f"{nearest(name, given)} (write {name}=16:1024:x2)"
            )


def _option_values(grid: Grid, designs: Sequence[Design]) -> Iterator[tuple[str, Sequence[Value]]]:
    for axis in grid.axes:
        # A design may call one of its own variables so.
        is_option = not all(axis.name in each.variables for each in designs)
        if is_option and axis.name in OPTION_AXES:
            yield axis.name, axis.values


def _check_values(name: str, values: Sequence[Value]) -> None:
    """Refuses values that the option of that name cannot have."""
    if name in ("batch", "seq", "threads"):
        ends = values if isinstance(values, tuple) else (values[0], values[-1])
        for each in ends:
            if not isinstance(each, int) or each < 1:
                raise InputError(f"--sweep: {name} {text_of(each)}: takes whole numbers from 1")
    for each in values if name in ("dtype", "layout") else ():
        if name == "dtype" and dtype_called(str(each)).kind != "float":
            raise InputError(f"--sweep: dtype {each}: parameters take a floating type")
        if name == "layout" and each not in LAYOUTS:
            raise InputError(
                f"--sweep: layout {text_of(each)}: there are {' and '.join(LAYOUTS)}"
                f"{nearest(str(each), LAYOUTS)}"
            )


def check_option_values(grid: Grid, designs: Sequence[Design]) -> None:
    """Refuses values that an option cannot have, on axes that are options.

    Raises:
        InputError: says which.
    """
    for name, values in _option_values(grid, designs):
        _check_values(name, values)
