"""Difference of two models in a sentence: FLOP, time, and the dominant operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from roofline.analysis import Analysis, OperatorRow, sum_eager_min_time_s, working
from roofline.analysis.library_times import times_by_type
from roofline.analysis.words import sum_s, time_of
from roofline.design.comparison.cells import Cell
from roofline.design.comparison.ratios import MeasuredRounds, Ratio, ratio_of_predictions
from roofline.machine.roof import ceiling_text

_SAME = 1.05  # Ratios below this count as 1


class Design(NamedTuple):
    """Compared model; ``cell`` is per sample if batches differ."""

    name: str
    analysis: Analysis
    cell: Cell
    number: int
    samples: int


def sentence(base: Design, other: Design, rounds: MeasuredRounds | None, *, where: str) -> str:
    """Return FLOP and time ratios with the dominant operators; `where` is ``"on NAME"``."""
    per = " per sample" if base.samples != other.samples else ""
    work, promise = _work(base.cell, other.cell, per)
    speeds = list(_speeds(base, other, rounds, f"{per} {where}"))
    joined = ", ".join(words for words, _ in speeds)
    won = speeds[0][1] if speeds else None
    # FLOP and time ratios point in opposite directions.
    but = promise and won and (promise - 1) * (won - 1) < 0 and max(won, 1 / won) >= _SAME
    said = f"{work}, but {joined}" if but else ", ".join(filter(None, (work, joined)))
    return f"{said}{_reason(base, other, rounds)}"


def predicted_ratio(base: Design, other: Design) -> Ratio | None:
    """Return the predicted time of `other` over that of `base`, per sample."""
    if not base.cell.predicted_s or not other.cell.predicted_s:
        return None
    one, two = base.analysis, other.analysis
    # Errors of equal passes cancel.
    is_same_pass = (one.prediction, one.operators) == (two.prediction, two.operators)
    if base.number == other.number or is_same_pass:
        return Ratio(value=1.0)
    return ratio_of_predictions(
        other.cell.predicted_s, other.cell.interval_s, base.cell.predicted_s, base.cell.interval_s
    )


def measured_ratio(base: Design, other: Design, rounds: MeasuredRounds | None) -> Ratio | None:
    """Return the measured ratio: of interleaved rounds with spread, else of earlier runs."""
    if rounds is not None:
        return rounds.ratio(other.number, base.number, per=other.samples / base.samples)
    if not base.cell.measured_s or not other.cell.measured_s:
        return None
    return Ratio(value=other.cell.measured_s / base.cell.measured_s)


def _work(base: Cell, other: Cell, per: str) -> tuple[str, float | None]:
    if base.flop is None or other.flop is None:
        return "FLOP unknown", None
    if not base.flop or not other.flop:
        return ("equal FLOP" if base.flop == other.flop else "FLOP in one model only"), None
    ratio = base.flop / other.flop
    factor = _three_digits(max(ratio, 1 / ratio))
    if factor == "1":
        return f"equal FLOP{per}", 1.0
    return f"{factor}× {'fewer' if ratio > 1 else 'more'} FLOP{per}", ratio


def _speeds(
    base: Design, other: Design, rounds: MeasuredRounds | None, place: str
) -> Iterator[tuple[str, float]]:
    """Yield the speedups of `other`: measured and predicted, else from minimum times."""
    found: list[tuple[Ratio, str, str]] = []
    predicted = predicted_ratio(base, other)
    if predicted is not None:
        found.append((predicted.inverse, "predicted", ", 80 % interval"))
    measured = measured_ratio(base, other, rounds)
    if measured is not None and rounds is not None:
        found.insert(0, (measured.inverse, "measured", f", {len(rounds.rounds)} rounds:"))
    elif measured is not None:
        now = base.analysis.measurement and other.analysis.measurement
        found.append((measured.inverse, "measured" if now else "measured earlier", ""))
    for ratio, how, of in found:
        toward = ratio if ratio.value >= 1 else ratio.inverse
        value, ends = toward.words
        said = f"{value}× {'faster' if ratio.value > 1 else 'slower'}{place}"
        if toward.value < _SAME:
            said = f"equally fast{place}"
        either = ", not significant" if ratio.may_be_either else ""
        span = f"{of} {ends[0]} to {ends[1]}{either}" if ends else ""
        yield f"{said} ({how}{span})", ratio.value
        place = ""
    bounds = (base.cell.eager_min_time_s, other.cell.eager_min_time_s)
    if not found and bounds[0] and bounds[1]:
        ratio = bounds[0] / bounds[1]
        factor = _three_digits(max(ratio, 1 / ratio))
        words = f"{factor}× {'shorter' if ratio > 1 else 'longer'} minimum time"
        reached = _library_ratio(base, other)
        here = base.analysis.hardware.host and other.analysis.hardware.host
        fix = ": calibrate or --measure" if here else ""
        hedge = f" (measured ratios can differ{fix})"
        yield f"{'equal minimum time' if factor == '1' else words}{reached}{place}{hedge}", ratio
    elif not found:
        yield "minimum time unknown", 1.0


def _library_ratio(base: Design, other: Design) -> str:
    """Return the ratio of minimum times at the rates of the library, for other data types."""
    if base.analysis.run.dtype == other.analysis.run.dtype:
        return ""
    parts = [times_by_type(each.analysis, "library") for each in (base, other)]
    times_s = [sum(each.values()) for each in parts if each]
    if len(times_s) < len(parts):
        return ""
    ratio = times_s[0] / base.samples / (times_s[1] / other.samples)
    factor = _three_digits(max(ratio, 1 / ratio))
    return f" ({factor}× {'shorter' if ratio > 1 else 'longer'} at the measured rates of torch)"


def _reason(base: Design, other: Design, rounds: MeasuredRounds | None) -> str:
    """Return the dominant operators with their limiter; ``""`` if unknown.

    They belong to the design with fewer FLOP/s; with equal FLOP/s to the second design. A
    prediction does not explain a measurement that contradicts it.
    """
    kind = kind_of_times((base.analysis, other.analysis))
    measured = measured_ratio(base, other, rounds)
    # Minimum times do not explain measured ones, which are several times longer.
    if kind is None or (measured is not None and kind == "bound"):
        return ""
    predicted = predicted_ratio(base, other)
    if measured is not None and predicted is not None:
        is_clear = min(max(e.value, 1 / e.value) for e in (predicted, measured)) >= _SAME
        if is_clear and (predicted.value - 1) * (measured.value - 1) < 0:
            return "; prediction and measurement disagree"
    subject, against = _slower_of(base, other, kind)
    if against is not None and measured is not None:
        by_measured = _slower_by_measurement(base, other, measured)
        if by_measured is None:
            subject, against = other, None
        elif by_measured is not subject:
            return ""
    part = leading_part(subject.analysis, kind, against.analysis if against else None)
    if part is None:
        return ""
    what = "minimum time" if kind == "bound" else "predicted time"
    return f"; {part.words(f'its {what}' if subject is other else f'the {what} of {subject.name}')}"


def _slower_by_measurement(base: Design, other: Design, measured: Ratio) -> Design | None:
    """Return the design with fewer measured FLOP/s; None if equal."""
    flop = other.analysis.totals.flop / other.samples / (base.analysis.totals.flop / base.samples)
    rate = flop / measured.value
    ends = measured.interval
    if max(rate, 1 / rate) < _SAME or (ends and ends[0] < flop < ends[1]):
        return None
    return other if rate < 1 else base


def _slower_of(base: Design, other: Design, kind: Kind) -> tuple[Design, Design | None]:
    """Return the design with fewer FLOP/s, and the other one (None: equal FLOP/s)."""
    rates: list[float] = []
    for each in (base, other):
        whole_s = pass_time_s(each.analysis, kind)
        if not whole_s or not each.cell.flop:
            return other, None
        rates.append(each.analysis.totals.flop / whole_s)
    if max(rates[0] / rates[1], rates[1] / rates[0]) < _SAME:
        return other, None
    return (other, base) if rates[1] < rates[0] else (base, other)


def _three_digits(ratio: float) -> str:
    return f"{float(f'{ratio:.3g}'):g}" if ratio < 1e4 else f"{ratio:.0f}"


# -- time by operator type -------------------------------------------------------------------------

Kind = Literal["predicted", "bound"]
"""Kinds of time that need no machine at hand; they are never mixed."""

_NEAR_ITS_ROOF = 0.5
"""Below this share of its ceiling, a part is not limited by it."""

_WHOLE = 0.995
_NOUNS = ("convolution", "matrix product")
"""Ends of type names that need no word "operator"."""


def kind_of_times(analyses: Sequence[Analysis]) -> Kind | None:
    """Return "predicted" if every operator has a prediction, else "bound"; None without times."""
    rows = [row for each in analyses for row in working(each.operators)]
    kinds: tuple[Kind, ...] = ("predicted", "bound")
    for kind in kinds:
        if rows and all(time_of(row, kind) is not None for row in rows):
            return kind
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Operators of one type; ``type`` empty: overhead between operators.

    ``share`` is that of the pass; ``ceiling`` limits ``ceiling_share`` of their time, the most.
    """

    type: str
    calls: int
    time_s: float
    share: float
    eager_min_time_s: float | None = None
    ceiling: str = ""
    ceiling_share: float = 0.0

    def words(self, whose: str) -> str:
        """Return the share of ``whose`` time, and its limiter or the share of that reached."""
        name = "overhead between operators"
        if self.type:
            one = self.type if self.type.endswith(_NOUNS) else f"{self.type} operator"
            name = one if self.calls == 1 else f"{self.calls} {one}s"
        said = f"{name}: {whole_percent(self.share)} of {whose}"
        if not self.ceiling or self.eager_min_time_s is None:
            return said
        ceiling = ceiling_text(self.ceiling)
        reached = self.eager_min_time_s / self.time_s if self.time_s else 1.0
        if reached < _NEAR_ITS_ROOF:
            return f"{said}, at {whole_percent(reached)} of {ceiling}"
        if self.ceiling_share >= _WHOLE:
            return f"{said}, limited by {ceiling}"
        return f"{said}, {whole_percent(self.ceiling_share)} of that limited by {ceiling}"


def parts_of(analysis: Analysis, kind: Kind) -> tuple[Part, ...]:
    """Return the parts of a pass, longest first; every operator has a time of that `kind`."""
    by_type: dict[str, list[OperatorRow]] = {}
    for row in working(analysis.operators):
        by_type.setdefault(row.type, []).append(row)
    whole_s = pass_time_s(analysis, kind)
    found = [_part(name, rows, kind, whole_s) for name, rows in by_type.items()]
    between_s = analysis.prediction.overhead_s if analysis.prediction else None
    if kind == "predicted" and between_s and whole_s:
        found.append(Part(type="", calls=0, time_s=between_s, share=between_s / whole_s))
    return tuple(sorted(found, key=lambda part: -part.time_s))


def _part(name: str, rows: Sequence[OperatorRow], kind: Kind, whole_s: float) -> Part:
    time_s = sum_s(rows, kind)
    by_ceiling: dict[str, float] = {}
    for row in rows:
        if row.ceiling:
            by_ceiling[row.ceiling] = by_ceiling.get(row.ceiling, 0.0) + (time_of(row, kind) or 0.0)
    ceiling = max(by_ceiling, key=lambda each: by_ceiling[each], default="")
    return Part(
        type=name,
        calls=len(rows),
        time_s=time_s,
        share=min(1.0, time_s / whole_s) if whole_s else 0.0,
        eager_min_time_s=sum_eager_min_time_s(rows),
        ceiling=ceiling,
        ceiling_share=by_ceiling[ceiling] / time_s if ceiling and time_s else 0.0,
    )


def pass_time_s(analysis: Analysis, kind: Kind) -> float:
    """Return the predicted time of a pass in seconds, or the sum of minimum times."""
    if kind == "predicted" and analysis.prediction:
        return analysis.prediction.predicted_s
    return sum_s(working(analysis.operators), kind)


def leading_part(analysis: Analysis, kind: Kind, against: Analysis | None = None) -> Part | None:
    """Return the part that explains most of the time.

    With `against`, it is the type with the most seconds above the other design's seconds scaled by
    the ratio of FLOP. Without, it is the longest part.
    """
    parts = parts_of(analysis, kind)
    if not parts or against is None:
        return next(iter(parts), None)
    ratio = analysis.totals.flop / against.totals.flop
    there_s = {part.type: part.time_s for part in parts_of(against, kind)}
    return max(parts, key=lambda part: part.time_s - ratio * there_s.get(part.type, 0.0))


def whole_percent(share: float) -> str:
    """Return a share of time in whole percent: ``"64 %"``."""
    return "< 1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")
