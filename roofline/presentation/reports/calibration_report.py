"""What `roofline calibrate` says: what was learned, and how far off predictions from it are."""

from __future__ import annotations

from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_percent
from roofline.latency.calibrated import Calibrated, HeldOutError


def calibration_report(calibrated: Calibrated) -> Report:
    """The report on a calibration: the error on models that it has not seen, first."""
    blocks: list[Block] = [Facts(lines=_facts(calibrated))]
    if calibrated.held_out:
        blocks.append(_held_out(calibrated.held_out))
    if calibrated.skipped:
        lines = tuple(printable(f"{model}: {why}") for model, why in calibrated.skipped)
        blocks.append(Notes(title="Skipped", lines=lines))
    warnings = list(calibrated.warnings)
    if calibrated.interrupted:
        warnings.append(
            "interrupted: what was measured is kept, and `roofline calibrate` goes on from there"
        )
    if warnings:
        blocks.append(Notes(title="Warnings", lines=tuple(map(printable, warnings))))
    return Report(headline=_headline(calibrated), blocks=tuple(blocks))


def _headline(calibrated: Calibrated) -> str:
    if not calibrated.runs:
        return "Nothing was learned: no model could be measured"
    learned = (
        f"Learned from {counted(calibrated.operators, 'operator')} of"
        f" {counted(calibrated.models, 'model')}"
    )
    if calibrated.mape is None:
        return f"{learned}; too few families to say how far off predictions are"
    return (
        f"{learned}: predictions are off by {_percent(calibrated.mape)} on the average, for models"
        " of families that were left out"
    )


def _facts(calibrated: Calibrated) -> tuple[tuple[str, str], ...]:
    lines = [
        (
            "Known",
            f"{counted(calibrated.runs, 'run')} of {counted(calibrated.models, 'model')} of"
            f" {counted(calibrated.families, 'family', 'families')}",
        ),
        ("New", f"{counted(calibrated.new_runs, 'run')} in {_duration(calibrated.seconds)}"),
    ]
    if calibrated.file:
        lines.append(("Kept in", printable(calibrated.file)))
    return tuple(lines)


def _held_out(settings: tuple[HeldOutError, ...]) -> Grid:
    headings = ("runs", "mean error", "median error", "within ±10 %", "in 10–90 % interval")
    sacrifices = (3, 0, 1, 0, 2)
    return Grid(
        title="Models predicted from other families than their own",
        columns=(
            Column(heading="threads"),
            Column(heading="type"),
            *(
                Column(heading=heading, align="right", sacrifice=sacrifice)
                for heading, sacrifice in zip(headings, sacrifices, strict=True)
            ),
        ),
        rows=tuple(
            (
                counted(each.threads, "thread"),
                printable(each.dtype),
                f"{each.runs:,}",
                _percent(each.mape),
                _percent(each.median_error),
                format_percent(each.within_10_percent),
                format_percent(each.interval_coverage),
            )
            for each in sorted(settings, key=lambda each: (each.threads, each.dtype))
        ),
    )


def _percent(error: float | None) -> str:
    return MISSING if error is None else f"{100 * error:.1f} %"


def _duration(seconds: float) -> str:
    """A wait in minutes and seconds: ``"4 min 3 s"``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
