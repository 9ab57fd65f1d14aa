"""In what one model differs from another, in a sentence: work, time, and why these differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.design.model_comparison.measured_rounds import MeasuredRounds
from roofline.design.model_comparison.ratios import Ratio, ratio_of_predictions
from roofline.design.model_comparison.time_parts import Kind, kind_of_times, leading_part, whole_of
from roofline.design.pass_times import interval_s, measured_s, predicted_s

_SAME = 1.05
"""A ratio below this is 1 in as many digits as times of passes are worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One of the models compared: its name, its analysis, and how many samples a pass takes.

    ``number`` is its place among those measured. Where batches do not differ, ``samples`` is 1.
    """

    name: str
    analysis: Analysis
    number: int
    samples: int = 1


def sentence(base: Design, other: Design, rounds: MeasuredRounds | None, *, where: str) -> str:
    """What a person should take home of `other` against `base`.

    ``"8.4 × fewer FLOP, 3.4 × faster here (predicted; 8 of 10: 2.9 to 4.1): the depthwise
    convolution takes 64 % of its time and is bound by L2 read"``

    Args:
        base: the reference.
        other: what is held against it.
        rounds: what both took in turn, if they were measured so.
        where: ``"here"``, or on which machine.
    """
    work, promise = _work(base, other)
    speeds = list(_speeds(base, other, rounds, where))
    joined = ", ".join(words for words, _ in speeds)
    won = speeds[0][1] if speeds else None
    # FLOP say one thing and time the other.
    but = promise and won and (promise - 1) * (won - 1) < 0 and max(won, 1 / won) >= _SAME
    said = f"{work}, but {joined}" if but else ", ".join(filter(None, (work, joined)))
    return f"{said}{_reason(base, other, rounds)}"


def predicted_ratio(base: Design, other: Design) -> Ratio | None:
    """How many times as long `other` is predicted to take as `base`, for each sample."""
    of_base, of_other = predicted_s(base.analysis), predicted_s(other.analysis)
    if not of_base or not of_other:
        return None
    if base.number == other.number or _is_same_pass(base.analysis, other.analysis):
        return Ratio(value=1.0)
    return ratio_of_predictions(
        of_other / other.samples,
        _per_sample(interval_s(other.analysis), other.samples),
        of_base / base.samples,
        _per_sample(interval_s(base.analysis), base.samples),
    )


def _is_same_pass(base: Analysis, other: Analysis) -> bool:
    """Whether the same operators are predicted in the same way: whatever is wrong is so in both."""
    return (base.prediction, base.operators) == (other.prediction, other.operators)


def measured_ratio(base: Design, other: Design, rounds: MeasuredRounds | None) -> Ratio | None:
    """The same of measurements: of rounds in turn, with their spread, or else of other days."""
    if rounds is not None:
        return rounds.ratio(other.number, base.number, per=other.samples / base.samples)
    of_base, of_other = measured_s(base.analysis), measured_s(other.analysis)
    if not of_base or not of_other:
        return None
    return Ratio(value=of_other / other.samples / (of_base / base.samples))


def _per_sample(interval: tuple[float, float] | None, samples: int) -> tuple[float, float] | None:
    return (interval[0] / samples, interval[1] / samples) if interval else None


def _work(base: Design, other: Design) -> tuple[str, float | None]:
    """How many times fewer FLOP `other` has, in words and as a number."""
    of_base, of_other = base.analysis.totals, other.analysis.totals
    per = " per sample" if base.samples != other.samples else ""
    if of_base.unknown_operators or of_other.unknown_operators:
        return "FLOP not fully known", None
    if not of_base.flop or not of_other.flop:
        return ("as many FLOP" if of_base.flop == of_other.flop else "no FLOP on one side"), None
    ratio = of_base.flop / base.samples / (of_other.flop / other.samples)
    factor = _three(max(ratio, 1 / ratio))
    if factor == "1":
        return f"as many FLOP{per}", 1.0
    return f"{factor} × {'fewer' if ratio > 1 else 'more'} FLOP{per}", ratio


def _speeds(
    base: Design, other: Design, rounds: MeasuredRounds | None, where: str
) -> Iterable[tuple[str, float]]:
    """How many times faster `other` is: measured, predicted, or by bounds alone."""
    per = " per sample" if base.samples != other.samples else ""
    found: list[tuple[Ratio, str, str]] = []
    predicted = predicted_ratio(base, other)
    if predicted is not None:
        found.append((predicted.inverse, "predicted", "; 8 of 10"))
    measured = measured_ratio(base, other, rounds)
    if measured is not None and rounds is not None:
        found.insert(0, (measured.inverse, "measured", f"; {len(rounds.rounds)} rounds"))
    elif measured is not None:
        now = base.analysis.measurement and other.analysis.measurement
        found.append((measured.inverse, "measured" if now else "measured before", ""))
    place = f"{per} {where}"
    for ratio, how, of in found:
        yield f"{_as_fast(ratio, place)} ({how}{_ends(ratio, of)})", ratio.value
        place = ""
    bounds = (base.analysis.totals.eager_min_time_s, other.analysis.totals.eager_min_time_s)
    if not found and bounds[0] and bounds[1]:
        ratio = bounds[0] / base.samples / (bounds[1] / other.samples)
        factor = max(ratio, 1 / ratio)
        lower = "lower" if ratio > 1 else "higher"
        same = _three(factor) == "1"
        words = "the same bound time" if same else f"{_three(factor)} × {lower} bound time"
        yield f"{words}{per} {where}", ratio
    elif not found:
        yield "bound time unknown", 1.0


def _as_fast(ratio: Ratio, place: str) -> str:
    """A ratio of times, the reference's first, in words."""
    factor = max(ratio.value, 1 / ratio.value)
    if factor < _SAME:
        return f"about as fast{place}"
    toward = ratio if ratio.value > 1 else ratio.inverse
    return f"{toward.words[0]} × {'faster' if ratio.value > 1 else 'slower'}{place}"


def _ends(ratio: Ratio, of: str) -> str:
    """The interval of a ratio, in the direction that it is told in."""
    toward = ratio if ratio.value >= 1 else ratio.inverse
    ends = toward.words[1]
    if ends is None:
        return ""
    either = ", so either may be the faster" if ratio.may_be_either else ""
    return f"{of}: {ends[0]} to {ends[1]}{either}"


def _reason(base: Design, other: Design, rounds: MeasuredRounds | None) -> str:
    """Which part takes the time, and what binds it, as the end of a sentence; ``""`` if unknown.

    It is a part of the design that gets through fewer FLOP in a second: there FLOP did not turn
    into time. Where both get through as many, it is the longest part of the second. What parts take
    is predicted, or a bound where nothing was measured either; a prediction is no reason of a
    measurement that says otherwise.
    """
    kind = kind_of_times((base.analysis, other.analysis))
    if kind is None:
        return ""
    measured = measured_ratio(base, other, rounds)
    if measured is not None and kind == "bound":
        # What bounds are made of is no reason of times that are several times as long.
        return ""
    if measured is not None and _is_other_way(predicted_ratio(base, other), measured):
        return "; prediction and measurement disagree on which is faster"
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
    whose = "its time" if subject is other else f"the time of {subject.name}"
    if kind == "bound":
        whose = whose.replace("time", "bound", 1)
    return f": {part.words(whose)}"


def _is_other_way(predicted: Ratio | None, measured: Ratio) -> bool:
    """Whether one of two ratios of the same times says faster, and the other slower."""
    if (
        predicted is None
        or min(max(each.value, 1 / each.value) for each in (predicted, measured)) < _SAME
    ):
        return False
    return (predicted.value - 1) * (measured.value - 1) < 0


def _slower_by_measurement(base: Design, other: Design, measured: Ratio) -> Design | None:
    """The design that was measured to do fewer FLOP in a second; None: both do as many."""
    flop = other.analysis.totals.flop / other.samples / (base.analysis.totals.flop / base.samples)
    rate = flop / measured.value
    ends = measured.interval
    if max(rate, 1 / rate) < _SAME or (ends and ends[0] < flop < ends[1]):
        return None
    return other if rate < 1 else base


def _slower_of(base: Design, other: Design, kind: Kind) -> tuple[Design, Design | None]:
    """Which of both does fewer FLOP in a second, and the other of them; None: neither does."""
    of_base, of_other = (_flop_per_s(each.analysis, kind) for each in (base, other))
    if not of_base or not of_other or max(of_base / of_other, of_other / of_base) < _SAME:
        return other, None
    return (other, base) if of_other < of_base else (base, other)


def _flop_per_s(analysis: Analysis, kind: Kind) -> float | None:
    whole_s = whole_of(analysis, kind)
    if analysis.totals.unknown_operators or not whole_s:
        return None
    return analysis.totals.flop / whole_s


def _three(ratio: float) -> str:
    """A ratio of counts in three digits, without an exponent."""
    return f"{float(f'{ratio:.3g}'):g}" if ratio < 1e4 else f"{ratio:.0f}"
