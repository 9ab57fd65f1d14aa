"""What a validation draws: a point for each run, or for each pair of designs, and its look.

Colours tell data types, threads and layouts apart, and markers sizes of batches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from roofline.foundation.text import counted, printable
from roofline.latency.validation import ModelValidation, RatioValidation, Setting, Validation
from roofline.plots.style import (
    BLACK,
    BLUE,
    DARK_RED,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Style,
)

T = TypeVar("T", bound=Hashable)

Drawn = Literal["predictions", "bounds", "speed-ups", "nothing"]
"""What stands against the measurements: bounds where nothing was predicted."""

_COLOURS = (BLUE, VERMILION, SKY, ORANGE, GREEN, PURPLE, BLACK, DARK_RED)
"""The last is that of all others, where these are too few."""
_MARKERS = ("o", "s", "^", "D", "v")
_REST = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPoint:
    """A run or a pair of designs: ``said`` of it, and ``measured``, both in s or both ratios.

    ``group`` is the family of the model, or the kind of the designs.
    """

    name: str
    group: str
    style: Style
    measured: float
    said: float
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """(said - measured) / measured."""
        return (self.said - self.measured) / self.measured

    @property
    def factor_off(self) -> float:
        """How many times too much or too little was said, at least 1."""
        return max(self.said / self.measured, self.measured / self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPoints:
    """All points, and what their colours and markers stand for (nothing, where all are alike)."""

    drawn: Drawn
    points: tuple[JudgedPoint, ...]
    key: tuple[tuple[str, Style], ...]


def judged_points(validation: Validation) -> JudgedPoints:
    """The runs that were predicted; else the runs under their bounds; else the pairs of designs."""
    if runs := [each for each in validation.models if _predicted(each)]:
        return _of_runs("predictions", runs, _predicted)
    if runs := [each for each in validation.models if _bound(each)]:
        return _of_runs("bounds", runs, _bound)
    ratios = [] if validation.models else [each for each in validation.ratios if each.predicted]
    return JudgedPoints(
        drawn="speed-ups" if ratios else "nothing",
        points=tuple(_of_ratio(each, each.predicted) for each in ratios if each.predicted),
        key=(),
    )


def _predicted(run: ModelValidation) -> float | None:
    return run.predicted_s


def _bound(run: ModelValidation) -> float | None:
    return run.bound_s


def _of_runs(
    drawn: Literal["predictions", "bounds"],
    runs: Sequence[ModelValidation],
    said: Callable[[ModelValidation], float | None],
) -> JudgedPoints:
    colours = _ranks(sorted(_kind_of(each.setting) for each in runs), len(_COLOURS))
    batches = sorted((each.batch for each in runs), key=lambda each: each or math.inf)
    markers = _ranks(batches, len(_MARKERS))
    points: list[JudgedPoint] = []
    for run in runs:
        colour = _COLOURS[colours[_kind_of(run.setting)]]
        points.append(
            JudgedPoint(
                name=printable(run.model),
                group=printable(run.family),
                style=Style(colour, _MARKERS[markers[run.batch]]),
                measured=run.measured_s,
                said=said(run) or 0.0,
                low=run.predicted_low_s if drawn == "predictions" else None,
                high=run.predicted_high_s if drawn == "predictions" else None,
            )
        )
    return JudgedPoints(
        drawn=drawn, points=tuple(points), key=(*_colour_key(colours), *_marker_key(markers))
    )


def _of_ratio(ratio: RatioValidation, predicted: float) -> JudgedPoint:
    name = printable(ratio.name.removeprefix("design "))
    return JudgedPoint(
        name=name,
        group=name.partition(", ")[0],
        style=Style(BLUE, "o"),
        measured=ratio.measured,
        said=predicted,
        low=None,
        high=None,
    )


_Kind = tuple[int, str, bool]


def _kind_of(setting: Setting) -> _Kind:
    """What the colour of a run stands for."""
    return (setting.threads, setting.dtype, setting.channels_last)


def _ranks(in_order: Sequence[T], most: int) -> dict[T, int]:
    """A number from 0 for each value, in the order given; beyond `most` the rare share the last."""
    counts = Counter(in_order)
    kept = len(counts) if len(counts) <= most else most - 1
    own = {value for value, _ in counts.most_common(kept)}
    found = {value: i for i, value in enumerate(each for each in counts if each in own)}
    return {value: found.get(value, most - 1) for value in counts}


def _colour_key(colours: dict[_Kind, int]) -> list[tuple[str, Style]]:
    """What the colours mean, in words that leave out what all runs share."""
    if len(colours) < 2:
        return []
    threads, dtypes, layouts = ({each[i] for each in colours} for i in range(3))
    found: dict[int, str] = {}
    for kind, rank in sorted(colours.items(), key=lambda each: each[1]):
        words = [kind[1]] if len(dtypes) > 1 else []
        words += [counted(kind[0], "thread")] if len(threads) > 1 else []
        if len(layouts) > 1:
            words += ["channels last" if kind[2] else "channels first"]
        found[rank] = _REST if rank in found else printable(", ".join(words))
    return [(text, Style(_COLOURS[rank], "o")) for rank, text in found.items()]


def _marker_key(markers: dict[int | None, int]) -> list[tuple[str, Style]]:
    """What the markers mean."""
    if len(markers) < 2:
        return []
    found: dict[int, str] = {}
    for batch, rank in sorted(markers.items(), key=lambda each: each[1]):
        text = "own batch" if batch is None else f"batch {batch}"
        found[rank] = _REST if rank in found else text
    return [(text, Style(GREY, _MARKERS[rank])) for rank, text in found.items()]


def mean_error(points: Sequence[JudgedPoint]) -> float:
    """The mean of |said - measured| / measured."""
    return math.fsum(abs(each.error) for each in points) / len(points)
