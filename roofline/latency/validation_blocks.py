"""What a report on a validation says: verdict, figures, settings, runs and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from roofline.foundation.blocks import Block, Column, Facts, Grid, View, notes
from roofline.foundation.text import counted
from roofline.foundation.units import MISSING, format_percent, format_s
from roofline.latency.accuracy import ValidationTotals
from roofline.latency.judged_runs import BOUND_MARGIN, ModelValidation, Setting
from roofline.latency.prediction import FAULTS_MATTER
from roofline.latency.validation import Validation

T = TypeVar("T")

_ROWS = 20
"""Number of runs, and of ratios, where no view sets one."""

_NAMED = 5
"""How many models a warning names."""


def validation_blocks(validation: Validation, view: View) -> Iterable[Block]:
    """Return facts, figures, settings, the worst runs and ratios, and warnings."""
    top = view.rows(_ROWS)
    yield Facts(lines=_facts(validation))
    yield totals_grid(validation)
    if len({each.setting for each in validation.models}) > 1:
        yield settings_grid(validation)
    if validation.models:
        yield runs_grid(validation, top)
    if validation.ratios:
        yield ratios_grid(validation, top)
    skipped = (
        f"{each.model} ({setting_words(each.batch, each.dtype, each.threads)}): {each.problem}"
        for each in validation.skipped
    )
    yield from notes("Skipped", skipped, urgent=True)
    yield from notes("Warnings", (*_warnings(validation), *validation.warnings), urgent=True)


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
    return tuple(lines)


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


def setting_words(batch: int | None, dtype: str, threads: int, channels_last: bool = False) -> str:
    """How a model was run: ``"batch 8, bfloat16, 2 threads, channels last"``."""
    words = [] if batch is None else [f"batch {batch}"]
    words += [dtype, counted(threads, "thread")]
    return ", ".join([*words, "channels last"] if channels_last else words)


def _words_of(setting: Setting) -> str:
    return setting_words(setting.batch, setting.dtype, setting.threads, setting.channels_last)


def _signed(fraction: float | None) -> str:
    return MISSING if fraction is None else f"{100 * fraction:+.1f} %"


def _right(*headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading=each, align="right") for each in headings)


_TITLES = {
    "mape": "mean error",
    "median_error": "median error",
    "bias": "bias",
    "within_10_percent": "within ±10 %",
    "within_20_percent": "within ±20 %",
    "interval_coverage": "inside the interval (10–90 %)",
    "close_pairs_right": "close pairs in the right order",
    "operator_error": "error of operators, by time",
    "bound_validity": "operators that keep their bound",
    "ratio_error": "mean error of designs' speed-ups",
    "measured_operators_mape": "mean error, operators timed alone",
    "usual_pace_mape": "mean error, for the usual pace",
}
"""The figures in the order they are read; the noise floor is a column."""


def totals_grid(validation: Validation) -> Grid:
    """All figures, each with what a second measurement comes to where a prediction stood."""
    totals, noise = validation.totals, _noise(validation)
    asked_for = {
        "ratio_error": bool(validation.ratios),
        "measured_operators_mape": totals.timed_alone_runs > 0,
        "usual_pace_mape": totals.usual_pace_mape is not None,
    }
    rows: list[tuple[str, ...]] = []
    for name, title in _TITLES.items():
        if asked_for.get(name, True):
            form = _signed if name == "bias" else format_percent
            value: float | None = getattr(totals, name)
            rows.append((title, name, form(value), form(noise.get(name)), _over(name, totals)))
    return Grid(
        title="How far off, and how far off a second measurement is (noise floor)",
        columns=(
            Column(heading="figure"),
            Column(heading="in --fail-if", sacrifice=2),
            *_right("value", "noise floor"),
            Column(heading="over", align="right", sacrifice=1),
        ),
        rows=tuple(rows),
    )


def _over(figure: str, totals: ValidationTotals) -> str:
    """What a figure is a mean or a share of: ``"24 runs"``."""
    match figure:
        case "interval_coverage":
            return counted(totals.intervals, "run")
        case "close_pairs_right":
            return counted(totals.close_pairs, "pair")
        case "operator_error":
            return counted(totals.operator_runs, "run")
        case "bound_validity":
            return counted(totals.operators, "operator")
        case "ratio_error":
            return counted(totals.ratios, "pair")
        case "measured_operators_mape":
            return counted(totals.timed_alone_runs, "run")
        case _:
            return counted(totals.predicted_runs, "run")


def _noise(validation: Validation) -> dict[str, float | None]:
    """The figures of the second measurement, where there are such."""
    noise = validation.noise
    ratios = [each.remeasured_difference for each in validation.ratios]
    again = [abs(each) for each in ratios if each is not None]
    return {
        "mape": noise.mape,
        "median_error": noise.median_error,
        "bias": noise.bias,
        "within_10_percent": noise.within_10_percent,
        "within_20_percent": noise.within_20_percent,
        "close_pairs_right": noise.close_pairs_right,
        "measured_operators_mape": noise.mape,
        "usual_pace_mape": noise.mape,
        "ratio_error": statistics.fmean(again) if again else None,
    }


def settings_grid(validation: Validation) -> Grid:
    """A row for each way in which models were run."""
    found = validation.by(lambda each: each.setting)
    return Grid(
        title="By setting",
        columns=(
            Column(heading="setting"),
            *_right("runs", "mean error"),
            Column(heading="median", align="right", sacrifice=3),
            Column(heading="bias", align="right"),
            *_right("±10 %"),
            Column(heading="±20 %", align="right", sacrifice=4),
            Column(heading="interval", align="right", sacrifice=5),
            Column(heading="operators", align="right", sacrifice=2),
            Column(heading="close pairs", align="right", sacrifice=1),
            *_right("noise floor"),
        ),
        rows=tuple(
            (
                _words_of(setting),
                str(totals.runs),
                format_percent(totals.mape),
                format_percent(totals.median_error),
                _signed(totals.bias),
                format_percent(totals.within_10_percent),
                format_percent(totals.within_20_percent),
                format_percent(totals.interval_coverage),
                format_percent(totals.operator_error),
                format_percent(totals.close_pairs_right),
                format_percent(totals.noise_floor),
            )
            for setting, totals in sorted(found.items(), key=lambda each: _order(each[0]))
        ),
    )


def _order(setting: Setting) -> tuple[int, str, bool, int, bool]:
    batch = setting.batch
    return (setting.threads, setting.dtype, batch is None, batch or 0, setting.channels_last)


def runs_grid(validation: Validation, top: int) -> Grid:
    """The runs, those with the largest errors first, those without a prediction last."""
    several = len({each.setting for each in validation.models}) > 1
    alone = any(each.operators_measured_s is not None for each in validation.models)
    faulty = any(map(_has_faults, validation.models))

    def cells(run: ModelValidation) -> tuple[str, ...]:
        return (
            (run.model),
            *([_words_of(run.setting)] if several else []),
            format_s(run.predicted_s),
            _interval(run),
            format_s(run.measured_s),
            _signed(run.error),
            *([_signed(run.operators_measured_error)] if alone else []),
            *([_settled(run), _faults(run)] if faulty else []),
            _signed(run.remeasured_difference),
            format_s(run.bound_s),
        )

    rows, left_out = _worst(validation.models, top, lambda each: each.error)
    columns = (
        Column(heading="model", least=16, cut="start"),
        *([Column(heading="setting")] if several else []),
        *_right("predicted"),
        Column(heading="10–90 %", align="right", sacrifice=2),
        *_right("measured", "error"),
        *(_right("operators alone") if alone else ()),
        *(
            (
                Column(heading="settled", align="right", sacrifice=2),
                Column(heading="page faults", align="right", sacrifice=3),
            )
            if faulty
            else ()
        ),
        Column(heading="again", align="right", sacrifice=1),
        Column(heading="bound", align="right", sacrifice=3),
    )
    return Grid(
        title="Runs, the worst predicted first (again: the second measurement against the first)",
        columns=columns,
        rows=tuple(map(cells, rows)),
        sums=_rest(columns, left_out, [each.error for each in left_out]),
    )


def _interval(run: ModelValidation) -> str:
    if run.predicted_low_s is None or run.predicted_high_s is None:
        return MISSING
    return f"{format_s(run.predicted_low_s)} – {format_s(run.predicted_high_s)}"


def _has_faults(run: ModelValidation) -> bool:
    """Whether page faults add to the prediction what is worth a word."""
    if run.predicted_s is None or run.predicted_settled_s is None:
        return False
    return run.predicted_s > (1 + FAULTS_MATTER) * run.predicted_settled_s


def _settled(run: ModelValidation) -> str:
    """The predicted time without page faults, where it differs."""
    return format_s(run.predicted_settled_s) if _has_faults(run) else MISSING


def _faults(run: ModelValidation) -> str:
    """Page faults of a pass: predicted, then counted."""
    if run.predicted_faults is None or run.faults is None:
        return MISSING
    return f"{run.predicted_faults:,}, counted {run.faults:,}"


def ratios_grid(validation: Validation, top: int) -> Grid:
    """The speed-ups of designs, those with the largest errors first."""
    rows, left_out = _worst(validation.ratios, top, lambda each: each.error)
    columns = (
        Column(heading="speed-up of"),
        *_right("predicted", "measured", "error"),
        Column(heading="again", align="right", sacrifice=1),
    )
    return Grid(
        title="Speed-ups of designs, the worst predicted first",
        columns=columns,
        rows=tuple(
            (
                (each.name),
                MISSING if each.predicted is None else f"{each.predicted:.2f} ×",
                f"{each.measured:.2f} ×",
                _signed(each.error),
                _signed(each.remeasured_difference),
            )
            for each in rows
        ),
        sums=_rest(columns, left_out, [each.error for each in left_out]),
    )


def _worst(
    found: Sequence[T], top: int, error: Callable[[T], float | None]
) -> tuple[list[T], list[T]]:
    """The `top` of the largest errors, and the others; unknown errors come last."""

    def rank(each: T) -> float:
        off = error(each)
        return 1.0 if off is None else -abs(off)

    in_order = sorted(found, key=rank)
    return in_order[:top], in_order[top:]


def _rest(
    columns: Sequence[Column], left_out: Sequence[object], errors: Sequence[float | None]
) -> tuple[tuple[str, ...], ...]:
    """What stands for the rows that were left out: how many, and how far off at most."""
    if not left_out:
        return ()
    off = [abs(each) for each in errors if each is not None]
    most = f"≤ {100 * max(off):.1f} %" if off else MISSING
    cells = {columns[0].heading: f"… {len(left_out)} more", "error": most}
    return (tuple(cells.get(column.heading, "") for column in columns),)
