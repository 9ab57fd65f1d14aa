"""What a language model comes to, in a sentence: tokens/s of each stage, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_byte, format_si
from roofline.placement import Bound

if TYPE_CHECKING:
    from roofline.language.footprint import Footprint
    from roofline.language.result import Language
    from roofline.language.stages import Rate, StageResult

_SAID = {Bound.COMPUTE: "compute-bound", Bound.MEMORY: "memory-bound"}


def verdict(language: Language) -> str:
    """The model, each stage with its tokens per second, and the memory."""
    stages = ", ".join(map(_stage, language.stages))
    parts = [f"as transformers runs it, {stages}", *_fit(language.footprint)]
    return f"{printable(language.model)} on {printable(language.hardware.name)}: {'; '.join(parts)}"


def _stage(stage: StageResult) -> str:
    bound, predicted = stage.bound_rate, stage.predicted_rate
    if bound is None:
        return f"{stage.stage} has no known rate (the machine has no ceilings)"
    limits = _SAID.get(bound_of(stage))
    words = f"{stage.stage} {f'is {limits}, ' if limits else ''}at most {rate_words(bound)}"
    return f"{words} ({rate_words(predicted)} predicted)" if predicted else words


def bound_of(stage: StageResult) -> Bound:
    """What binds most of a stage's operators, by the time of their bounds."""
    times = {Bound.COMPUTE: 0.0, Bound.MEMORY: 0.0, Bound.UNKNOWN: 0.0}
    for row in stage.analysis.operators:
        if row.bound in times:
            times[row.bound] += row.bound_s or 0.0
    return max(times, key=lambda bound: times[bound]) if any(times.values()) else Bound.UNKNOWN


def rate_words(rate: Rate) -> str:
    """``"12.3 tokens/s"``; a prediction as its range: ``"8.1 to 10 tokens/s"``."""
    return f"{rate_range(rate)} tokens/s"


def rate_range(rate: Rate) -> str:
    """The same without the unit."""
    if rate.low_per_s is None or rate.high_per_s is None:
        return rate_number(rate.tokens_per_s)
    return f"{rate_number(rate.low_per_s, 2)} to {rate_number(rate.high_per_s, 2)}"


def rate_number(per_s: float | None, digits: int = 3) -> str:
    """Tokens per second without prefix: ``"21,900"``, ``"8.13"``."""
    if per_s is None:
        return MISSING
    rounded = float(f"{per_s:.{digits - 1}e}")
    if rounded >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    return format_si(per_s, "", digits) if per_s >= 1 else f"{rounded:g}"


def _fit(footprint: Footprint) -> Iterable[str]:
    takes = format_byte(footprint.byte)
    memory = format_byte(footprint.memory.byte)
    match footprint.fit:
        case "fits":
            yield f"its {takes} fit into {memory}"
        case "fits at the least":
            yield f"the {takes} that it takes at the least fit into {memory}"
        case "only without copies":
            peak = format_byte(footprint.peak_byte)
            yield f"its {takes} fit into {memory}, but not the {peak} that transformers holds"
        case "does not fit":
            yield f"its {takes} do not fit into {memory}"
        case "unknown":
            yield f"it takes {takes}"
