"""What whole passes are predicted to take, and why some are not, where analyses are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis import Analysis, working
from roofline.latency.prediction import BOUND_ONLY

DIGITS = 2
"""Significant digits of predicted and measured times, and of their ratios, in sentences."""


def predicted_s(analysis: Analysis) -> float | None:
    """The seconds that the pass is predicted to take, end to end; None: only its bound is known."""
    return analysis.prediction.predicted_s if analysis.prediction else None


def measured_s(analysis: Analysis) -> float | None:
    """The seconds that the pass took, end to end, now or before; None: it was not measured."""
    known = analysis.measurement or analysis.earlier
    return known.measured_s if known else None


def interval_s(analysis: Analysis) -> tuple[float, float] | None:
    """The 10-90 % interval of the prediction in seconds; None: there is no prediction."""
    found = analysis.prediction
    return (found.low_s, found.high_s) if found else None


def lines_on_bounds_alone(
    names: Sequence[str], analyses: Sequence[Analysis], *, place: str
) -> Iterable[str]:
    """What is not predicted, a line for each reason: ``"bound only on a, b: …"``.

    Args:
        names: what the analyses are called.
        analyses: what is compared.
        place: what stands before names: ``"on"`` a machine, ``"for"`` a model.
    """
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, each in zip(names, analyses, strict=True):
        if each.prediction is None:
            known = "neither bound nor prediction"
            if each.totals.eager_min_time_s is not None:
                known = BOUND_ONLY
            by_reason.setdefault((known, _why_not(each)), []).append(name)
    for (known, reason), found in by_reason.items():
        yield f"{known} {place} {', '.join(found)}: {reason}"


def lines_on_earlier(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[str]:
    """Of which measurements were not made now, when and by what they were; a line, or none."""
    found = [
        f"{name} ({each.earlier.date[:10] or 'no date'} by {each.earlier.origin})"
        for name, each in zip(names, analyses, strict=True)
        if each.earlier and not each.measurement
    ]
    if found:
        yield f"measured before: {', '.join(found)}"


def _why_not(analysis: Analysis) -> str:
    run, device = analysis.run, analysis.hardware.device
    at_work = working(analysis.operators)
    known = sum(row.predicted_s is not None for row in at_work)
    if not at_work:
        return "there is nothing to predict"
    if known:
        return f"{len(at_work) - known} of {len(at_work)} operators are not predicted"
    if run.train or run.autocast:
        return f"{'training' if run.train else 'autocast'} is not predicted"
    if run.device != device:
        return f"operators for {run.device} are not predicted on {device}"
    if analysis.cache == "cold":
        return "a first pass, with cold caches, is not predicted"
    return "nothing was learned there of such a run (`roofline calibrate`, run there, learns it)"
