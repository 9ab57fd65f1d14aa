"""What models are compared by: one quantity of each, as numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.design.model_comparison.measured_rounds import MeasuredRounds
from roofline.design.pass_times import DIGITS, measured_s, predicted_s
from roofline.foundation.units import (
    format_bytes,
    format_flop,
    format_intensity,
    format_s,
    format_si,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity of every model: ``values`` in the unit its name carries, None where unknown.

    ``of`` is the name without ``_per_sample``, which stands where batches differ.
    """

    name: str
    title: str
    values: tuple[float | None, ...]
    text: tuple[str, ...]
    of: str


def quantities_of(
    analyses: Sequence[Analysis],
    *,
    samples: Sequence[int] | None = None,
    rounds: MeasuredRounds | None = None,
    only: str | None = None,
) -> tuple[Quantity, ...]:
    """FLOP, parameters, bytes, memory, intensity, bound and times of every model.

    Args:
        analyses: the models.
        samples: how many each takes in a pass, where work and times are told for one of them.
        rounds: what they took in turn, which goes before what they took on other days.
        only: the one quantity to tell, by what it is `Quantity.of`; None: all of them.
    """
    found: list[Quantity] = []
    for each in (kind for kind in _QUANTITIES if only in (None, kind.name)):
        values: list[float | None] = []
        text: list[str] = []
        by_sample = samples is not None and each.grows
        for number, analysis in enumerate(analyses):
            value = each.value(analysis)
            if each.name == "measured_s" and rounds is not None:
                value = rounds.sample(number).median_s
            if by_sample and samples is not None and value is not None:
                value /= samples[number]
            partial = each.is_flop and analysis.totals.unknown_operators > 0
            # What is only known in part is shown as a least, and compared with nothing.
            values.append(None if partial else value)
            text.append(("≥ " if partial else "") + each.form(value))
        found.append(
            Quantity(
                name=f"{each.name}_per_sample" if by_sample else each.name,
                title=f"{each.title} per sample" if by_sample else each.title,
                values=tuple(values),
                text=tuple(text),
                of=each.name,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A quantity of an analysis, its form, and whether it grows with the batch."""

    name: str
    title: str
    value: Callable[[Analysis], float | None]
    form: Callable[[float | None], str]
    is_flop: bool = False
    grows: bool = False


def _time(value_s: float | None) -> str:
    return format_s(value_s, DIGITS)


def _count(value: float | None) -> str:
    return format_si(value, "")


_QUANTITIES = (
    _Kind(
        name="flop",
        title="FLOP",
        value=lambda each: each.totals.flop,
        form=format_flop,
        is_flop=True,
        grows=True,
    ),
    _Kind(
        name="macs",
        title="multiply-adds",
        value=lambda each: each.totals.macs,
        form=_count,
        is_flop=True,
        grows=True,
    ),
    _Kind(
        name="parameters",
        title="parameters",
        value=lambda each: each.totals.parameters,
        form=_count,
    ),
    _Kind(
        name="parameter_size_bytes",
        title="parameter size",
        value=lambda each: each.totals.parameter_size_bytes,
        form=format_bytes,
    ),
    _Kind(
        name="traffic_bytes",
        title="traffic",
        value=lambda each: each.totals.traffic_bytes,
        form=format_bytes,
        grows=True,
    ),
    _Kind(
        name="peak_memory_bytes",
        title="peak memory",
        value=lambda each: each.totals.peak_memory_bytes,
        form=format_bytes,
    ),
    _Kind(
        name="intensity_flop_per_byte",
        title="intensity (FLOP/B)",
        value=lambda each: each.totals.intensity_flop_per_byte,
        form=format_intensity,
    ),
    _Kind(
        name="eager_min_time_s",
        title="minimum, eager",
        value=lambda each: each.totals.eager_min_time_s,
        form=format_s,
        grows=True,
    ),
    _Kind(
        name="fused_min_time_s",
        title="minimum, fused",
        value=lambda each: each.totals.fused_min_time_s,
        form=format_s,
        grows=True,
    ),
    _Kind(
        name="model_min_time_s",
        title="minimum, model",
        value=lambda each: each.totals.model_min_time_s,
        form=format_s,
        grows=True,
    ),
    _Kind(name="predicted_s", title="predicted", value=predicted_s, form=_time, grows=True),
    _Kind(name="measured_s", title="measured", value=measured_s, form=_time, grows=True),
)
