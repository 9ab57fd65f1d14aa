"""What a language model comes to, in a sentence: tokens/s of each stage, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofline.foundation.text import printable
from roofline.foundation.units import format_byte, format_si
from roofline.placement import Bound

if TYPE_CHECKING:
    from roofline.language.footprint import Footprint
    from roofline.language.result import Language
    from roofline.language.stages import Rate, StageResult

_SAID = {Bound.COMPUTE: "compute-bound", Bound.MEMORY: "memory-bound"}


def verdict(language: Language) -> str:
    """The model, each stage with its tokens per second, and the memory."""
    parts = [*map(_stage, language.stages), *_fit(language.footprint)]
    return f"{printable(language.model)} on {printable(language.hardware.name)}: {'; '.join(parts)}"


def _stage(stage: StageResult) -> str:
    bound, predicted = stage.bound_rate, stage.predicted_rate
    if bound is None:
        return f"{stage.stage}: the machine has no ceilings, so no rate is known"
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


def rate_words(rate: Rate, digits: int = 3) -> str:
    """``"12.3 tokens/s"``; a prediction as its range: ``"8.1 to 10.2 tokens/s"``."""
    if rate.low_per_s is None or rate.high_per_s is None:
        return format_si(rate.tokens_per_s, "tokens/s", digits)
    low = format_si(rate.low_per_s, "", 2)
    return f"{low} to {format_si(rate.high_per_s, 'tokens/s', 2)}"


def _fit(footprint: Footprint) -> Iterable[str]:
    takes = format_byte(footprint.byte)
    memory = format_byte(footprint.memory.byte)
    match footprint.fit:
        case "fits":
            yield f"its {takes} fit into {memory}"
        case "only without copies":
            peak = format_byte(footprint.peak_byte)
            yield f"its {takes} fit into {memory}, but not the {peak} that transformers holds"
        case "does not fit":
            yield f"its {takes} do not fit into {memory}"
        case "unknown":
            yield f"it takes {takes}"
