"""What `roofline validate` says, the verdict first, and the formats it is written in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from roofline.foundation.blocks import Block, Facts, Notes, Report
from roofline.foundation.rows import cells_of, csv_text
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_percent
from roofline.latency.validation import BOUND_MARGIN, ModelValidation, Validation
from roofline.presentation.formats import check_suffix_among
from roofline.presentation.reports.validation_tables import (
    ratios_grid,
    runs_grid,
    setting_words,
    settings_grid,
    totals_grid,
)
from roofline.render.markdown import report_markdown
from roofline.render.pages import page_html, report_html

VALIDATION_FORMATS = (".json", ".csv", ".md", ".html", ".png", ".svg")

ROWS = 20
"""How many runs, and how many ratios, are shown where nobody says."""

_NAMED = 5
"""How many models a warning names."""


def validation_report(validation: Validation, *, top: int = ROWS) -> Report:
    """The report on a validation: how far off, in which setting, and where most.

    Args:
        validation: what to report.
        top: how many runs and how many ratios stand in their tables, the worst first.
    """
    blocks: list[Block] = [Facts(lines=_facts(validation)), totals_grid(validation)]
    if len({each.setting for each in validation.models}) > 1:
        blocks.append(settings_grid(validation))
    if validation.models:
        blocks.append(runs_grid(validation, top))
    if validation.ratios:
        blocks.append(ratios_grid(validation, top))
    if validation.skipped:
        lines = (
            f"{each.model} ({setting_words(each.batch, each.dtype, each.threads)}): {each.problem}"
            for each in validation.skipped
        )
        blocks.append(Notes(title="Skipped", lines=tuple(map(printable, lines))))
    warnings = tuple(map(printable, (*_warnings(validation), *validation.warnings)))
    if warnings:
        blocks.append(Notes(title="Warnings", lines=warnings))
    return Report(headline=verdict(validation), blocks=tuple(blocks))


def verdict(validation: Validation) -> str:
    """How far off predictions are, in one sentence."""
    totals = validation.totals
    again = totals.noise_floor
    noise = "" if again is None else f" (noise floor {format_percent(again)})"
    if totals.mape is not None:
        predicted = [each for each in validation.models if each.predicted_s is not None]
        return (
            f"Predictions are off by {format_percent(totals.mape)} on the average over"
            f" {_runs(predicted)}; {format_percent(totals.within_10_percent)} are within ±10 %"
            f"{noise}"
        )
    if validation.models:
        runs = _runs(validation.models)
        return f"Nothing was predicted: there are only bounds for {runs}{noise}"
    if totals.ratio_error is not None:
        return (
            f"Predicted speed-ups are off by {format_percent(totals.ratio_error)} on the average"
            f" over {counted(totals.ratios, 'pair')} of designs"
        )
    return "Nothing was judged"


def _runs(models: list[ModelValidation] | tuple[ModelValidation, ...]) -> str:
    different = len({each.model for each in models})
    return f"{counted(len(models), 'run')} of {counted(different, 'model')}"


def _facts(validation: Validation) -> tuple[tuple[str, str], ...]:
    lines = [
        ("hardware", validation.hardware),
        ("torch", validation.torch_version),
        ("measured", f"on {validation.date[:10]}"),
    ]
    if validation.allocator:
        lines.append(("allocator", validation.allocator))
    settings = list({each.setting: None for each in validation.models})
    if len(settings) == 1:
        (only,) = settings
        said = setting_words(only.batch, only.dtype, only.threads, only.channels_last)
        lines.append(("every run", said))
    samples = [each.samples for each in validation.models if each.predicted_s is not None]
    if samples:
        few, many = min(samples), max(samples)
        number = counted(few, "sample") if few == many else f"{few:,} to {many:,} samples"
        lines.append(("learned from", f"{number}, none of them of the family that is predicted"))
    return tuple((name, printable(text)) for name, text in lines)


def _warnings(validation: Validation) -> list[str]:
    totals, lines = validation.totals, list[str]()
    below = {each: each.below_bound for each in validation.models if each.below_bound}
    if below:
        number = sum(below.values())
        lines.append(
            f"{number:,} of {counted(totals.operators, 'operator')} took less than {BOUND_MARGIN}"
            f" of {'its' if number == 1 else 'their'} bound ({_named(list(below))}): a count, a"
            " data type or a ceiling is wrong there; please report it"
        )
    bound_only = [each for each in validation.models if each.predicted_s is None]
    if bound_only:
        lines.append(
            f"{len(bound_only)} of {counted(totals.runs, 'run')} could not be predicted"
            f" ({_named(bound_only)}): too little was learned for them; run `roofline calibrate`"
        )
    if validation.models and totals.noise_floor is None:
        lines.append("nothing was measured twice: how much of an error is noise is not known")
    if (
        totals.mape is not None
        and totals.noise_floor is not None
        and totals.noise_floor >= totals.mape
    ):
        lines.append(
            "the second measurements are as far off the first as the predictions are: only a"
            " quieter machine can tell how good these are"
        )
    return lines


def _named(runs: list[ModelValidation]) -> str:
    names = list(dict.fromkeys(each.model for each in runs))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def validation_html(validation: Validation, *, top: int = ROWS) -> str:
    """The validation as a self-contained HTML fragment for notebooks."""
    return report_html(validation_report(validation, top=top))


def validation_csv(validation: Validation) -> str:
    """One line a run, in SI units; unknown is empty. Runs that were skipped have a ``problem``."""
    fields = [each.name for each in dataclasses.fields(ModelValidation)]
    columns = [*fields, "error", "problem"]
    rows = [{**dataclasses.asdict(run), "error": run.error} for run in validation.models]
    rows += [dataclasses.asdict(each) for each in validation.skipped]
    return csv_text(columns, cells_of(columns, (dict.fromkeys(columns) | row for row in rows)))


def check_suffix(path: Path) -> None:
    """Refuses a file whose suffix is none of `VALIDATION_FORMATS`.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    check_suffix_among(path, VALIDATION_FORMATS, "a validation")


def render_validation(validation: Validation, suffix: str, *, top: int = ROWS) -> str | bytes:
    """The validation in the format of `suffix`, one of `VALIDATION_FORMATS`; bytes for ``.png``.

    ``.json`` and ``.csv`` hold all runs, ``.md`` and ``.html`` the worst `top` of them in their
    tables; pictures show all.
    """
    match suffix.lower():
        case ".json":
            return validation.to_json()
        case ".csv":
            return validation_csv(validation)
        case ".html":
            picture = _picture(validation, "svg").decode("utf-8")
            return page_html(validation_report(validation, top=top), picture)
        case ".png":
            return _picture(validation, "png")
        case ".svg":
            return _picture(validation, "svg").decode("utf-8")
        case _:
            return report_markdown(validation_report(validation, top=top))


def _picture(validation: Validation, format: Literal["png", "svg"]) -> bytes:
    from roofline.presentation.drawing import savefig_bytes
    from roofline.presentation.validation_figure import plot_validation

    return savefig_bytes(plot_validation(validation), format)
