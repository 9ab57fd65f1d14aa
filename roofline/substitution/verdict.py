"""What a search came to, in a sentence that never takes a prediction for a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_ratio, format_s
from roofline.substitution.costs.launches import launches_on

if TYPE_CHECKING:
    from roofline.substitution.costs.cost import CostBasis
    from roofline.substitution.result import Optimization, Rounds

PREDICTED: dict[CostBasis, str] = {
    "bound": "predicted under bounds",
    "predicted": "predicted from the calibration",
    "measured": "predicted from operators that were timed one by one",
}
"""What a saving by each cost is."""


def verdict(optimization: Optimization) -> str:
    """The model, how much faster it is and how that is known, or that its original is kept."""
    model = printable(optimization.model)
    match optimization.decision:
        case "measured faster":
            return f"{model}: {_measured(optimization)}"
        case "predicted faster":
            return f"{model}: {_predicted(optimization)}"
        case "not faster":
            return f"{model}: the original is kept: {_lost(optimization)}"
        case "nothing found":
            return f"{model}: the original is kept: {_nothing(optimization)}"


def decisive(optimization: Optimization) -> Rounds | None:
    """The timing that the decision rests on; None where nothing was timed.

    That of the result, or where the original is kept of the candidate that came nearest; under
    torch.compile where that was asked for.
    """
    rounds, measured_s = optimization.rounds, optimization.figures_after.measured_s
    names = {each.candidate for each in rounds if each.after_s == measured_s}
    among = [each for each in rounds if each.baseline == "compile"] or rounds
    own = [each for each in among if each.candidate in names]
    return max(own or among, key=lambda each: each.speedup, default=None)


def speedup_words(rounds: Rounds) -> tuple[str, str]:
    """How many times as fast, and the interval: ``"1.31"``, ``"1.28 to 1.34"``.

    Of a single round there is no interval: ``""``.
    """
    return _rounded(rounds.speedup, rounds.speedup_low, rounds.speedup_high)


def slowdown_words(rounds: Rounds) -> tuple[str, str]:
    """Time after over time before, in the same words."""
    low = rounds.speedup_low
    # Of a single round nothing is known but its ratio: no interval.
    ends = (1 / rounds.speedup_high, 1 / low) if low > 0 else (0.0, 0.0)
    return _rounded(1 / rounds.speedup, *ends)


def _rounded(value: float, low: float, high: float) -> tuple[str, str]:
    # Near 1 the second decimal decides which of the two is faster.
    is_near_1 = low < 1.3 and high > 0.7
    decimals = 2 if is_near_1 or high - low < 0.3 else 1

    def said(ratio: float) -> str:
        if ratio < 0.1:
            return f"{ratio:.2g}"
        return f"{ratio:.{decimals}f}" if ratio < 100 else f"{ratio:.0f}"

    return said(value), f"{said(low)} to {said(high)}" if low > 0 else ""


def predicted_speedup(optimization: Optimization) -> float | None:
    """Cost before over cost after; None where one of them is 0."""
    before, after = optimization.figures_before.cost_s, optimization.figures_after.cost_s
    return before / after if before > 0 and after > 0 else None


def launch_words(optimization: Optimization) -> str:
    """What a launch was charged beside bounds: ``" (8.00 µs a launch)"``; ``""`` if nothing."""
    profile = optimization.before.hardware
    launches = launches_on(profile)
    if optimization.cost != "bound" or not launches.usual_s:
        return ""
    # On a CPU kinds of operators differ in it, and the report says each.
    about = "about " if launches.by_kind_s else ""
    return f" ({about}{format_s(launches.usual_s, 2)} a launch)"


def bounds_words(optimization: Optimization) -> str:
    """What seconds of bounds hold: launches, too, where it is known what they cost."""
    is_known = launches_on(optimization.before.hardware).usual_s > 0
    return "bounds and launches" if is_known else "bounds"


def rewrites_words(count: int) -> str:
    """``"8 rewrites"``."""
    return f"{counted(count, 'rewrite')}"


def _measured(optimization: Optimization) -> str:
    rounds = decisive(optimization)
    made = rewrites_words(len(optimization.substitutions))
    if rounds is None:
        return f"faster when it was timed: {made}"
    return f"{_timed(rounds)}: {made}"


def _timed(rounds: Rounds) -> str:
    """``"measured 1.8 × faster in eager torch (5 rounds: 1.7 to 1.9)"``."""
    how = {"eager": "in eager torch", "compile": "under torch.compile"}[rounds.baseline]
    value, within = speedup_words(rounds)
    count = f"{counted(rounds.rounds, 'round')}"
    words = f"measured {value} × faster" if rounds.is_faster else f"{value} × as fast"
    return f"{words} {how} ({count}{f': {within}' * bool(within)})"


def _predicted(optimization: Optimization) -> str:
    ratio = predicted_speedup(optimization)
    times = f"{format_ratio(ratio)} × faster" if ratio else "faster"
    where = printable(optimization.before.hardware.name)
    why = f": {printable(optimization.not_timed)}" if optimization.not_timed else ""
    return (
        f"{times}, {PREDICTED[optimization.cost]} on {where}{launch_words(optimization)}:"
        f" {rewrites_words(len(optimization.substitutions))}; not timed{why}"
    )


def _lost(optimization: Optimization) -> str:
    rounds = decisive(optimization)
    if rounds is None:
        return "what was found is not faster when it is timed"
    if rounds.speedup_high < 1:
        return f"what was found loses when it is timed: {_timed(rounds)}"
    return f"what was found gains nothing that the clock can tell from noise: {_timed(rounds)}"


def _nothing(optimization: Optimization) -> str:
    within = {
        "exhausted": "",
        "budget": f" among {optimization.statistics.evaluated:,} graphs, where the budget ended",
        "time": f" in the {format_s(optimization.statistics.seconds, 2)} that the search had",
    }[optimization.statistics.ended]
    by = {
        "bound": f"by bounds{launch_words(optimization)} ",
        "predicted": "by prediction ",
        "measured": "by operators' measured times ",
    }[optimization.cost]
    where = printable(optimization.before.hardware.name)
    return f"nothing found costs less {by}on {where}{within}"
