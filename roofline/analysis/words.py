"""Operators, sums and the machine of an analysis in words, as all reports have them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_flop,
    format_intensity,
    format_shape,
    format_si,
)
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.origin import origin

MODEL_ITSELF = "(model)"
"""How an operator that runs in no submodule is named."""


def fit_cell(fits: bool | None) -> str:
    """Return the cell of a table that says whether something fits into memory."""
    return MISSING if fits is None else "yes" if fits else "does not fit"


def hardware_fact(analysis: Analysis, today: date | None, *, caches: str = "") -> tuple[str, str]:
    """The machine, its threads, in which state its caches were, and whence its numbers are."""
    profile = analysis.hardware
    threads = describe_threads(profile, analysis.threads)
    clock_hz = profile.ceilings_clock_hz
    clock = f"ceilings at {format_si(clock_hz, 'Hz')}" if clock_hz else ""
    parts = (printable(profile.name), threads, caches, clock, origin(profile, today))
    return "Hardware", " · ".join(filter(None, parts))


def short_op(row: OperatorRow) -> str:
    """The operator without aten's name space: ``"convolution"``."""
    return printable(row.op.removeprefix("aten."))


def module_of(row: OperatorRow) -> str:
    """The module an operator runs in, or that it is the model's own."""
    return printable(row.module_path) or MODEL_ITSELF


def shape_of(row: OperatorRow) -> str:
    """The shape that tells calls of one operator apart: that of its first output, else input."""
    specs = row.outputs or row.inputs
    return format_shape(specs[0].shape) if specs else MISSING


def sum_of_flop(count: int, unknown: int, form: Callable[[float], str] = format_flop) -> str:
    """A sum of FLOP that says when it is not complete; never 0 for what is unknown."""
    if not unknown:
        return form(count)
    return f"≥ {form(count)}" if count else MISSING


def sum_of_intensity(flop: int, byte: int, unknown: int) -> str:
    """FLOP per byte of sums, in the words of `sum_of_flop`."""
    return (
        sum_of_flop(flop, unknown, lambda each: format_intensity(each / byte)) if byte else MISSING
    )


def saved_words(saved: float | None, form: Callable[[float], str]) -> str:
    """What is saved; what is added is said to be."""
    if saved is None:
        return MISSING
    return form(saved) if saved >= 0 else f"adds {form(-saved)}"


def provenance_words(profile: HardwareProfile) -> str:
    """Where the ceilings come from, in a line."""
    how = "; `roofline hardware show` says how each was" if profile.host else ""
    return f"Ceilings: {origin(profile, None)}{how}"


def machine_words(analysis: Analysis, *more: str) -> str:
    """The machine and its threads in a line, and what else stands in it."""
    profile = analysis.hardware
    cpu = printable(profile.host.cpu_model) if profile.host else ""
    threads = describe_threads(profile, analysis.threads)
    return " · ".join(filter(None, (cpu, printable(profile.name), threads, *more)))
