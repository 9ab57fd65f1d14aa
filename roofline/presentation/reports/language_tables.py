"""The tables of a language model: stages, their parts, the cache, experts, and weight bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis.words import sum_of_flop, sum_of_intensity
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import counted, printable
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_percent,
    format_s,
    format_si,
)
from roofline.language.cache import Cache, CacheLayers
from roofline.language.placing import PlacedPart
from roofline.language.result import Language
from roofline.language.stages import Rate, RoutedBound, StageResult
from roofline.language.verdict import bound_of, rate_number, rate_range
from roofline.language.weight_bits import BitsWhatIf, StageInBits
from roofline.presentation.reports.quantization_cells import change, times_less


def stages_grid(language: Language) -> Grid:
    """One row a stage by the operators of transformers, and one as the architecture asks for it."""
    columns = (
        Column(heading="stage"),
        Column(heading="counted", sacrifice=1),
        Column(heading="tokens", align="right", sacrifice=5),
        Column(heading="FLOP", align="right"),
        Column(heading="traffic", align="right"),
        Column(heading="FLOP/byte", align="right", sacrifice=4),
        Column(heading="bound by", sacrifice=3),
        Column(heading="bound", align="right"),
        Column(heading="tokens/s at most", align="right"),
        Column(heading="predicted", align="right", sacrifice=2),
        Column(heading="tokens/s predicted", align="right"),
    )
    several = f"{counted(language.batch, 'sequence')}"
    return Grid(
        title=f"Stages: {several} of {language.context:,} tokens",
        columns=columns,
        rows=tuple(row for each in language.stages for row in _stage_rows(each)),
    )


def _stage_rows(stage: StageResult) -> Iterable[tuple[str, ...]]:
    totals, run, asked = stage.analysis.totals, stage.analysis.prediction, stage.asked
    predicted = interval_cell(run.predicted_s, run.low_s, run.high_s) if run else MISSING
    unknown = totals.unknown_operators
    yield (
        stage.stage,
        "transformers",
        f"{stage.tokens:,}",
        sum_of_flop(totals.flop, unknown),
        format_byte(totals.traffic_byte),
        sum_of_intensity(totals.flop, totals.traffic_byte, unknown),
        bound_of(stage).value,
        format_s(stage.bound_s),
        _rate(stage.bound_rate),
        predicted,
        _rate(stage.predicted_rate),
    )
    yield (
        "",
        "architecture",
        "",
        format_flop(asked.flop),
        format_byte(asked.traffic_byte),
        format_intensity(asked.flop / asked.traffic_byte if asked.traffic_byte else None),
        asked.bound.value,
        format_s(asked.bound_s),
        _rate(stage.asked_rate),
        "",
        "",
    )
    if stage.batch > 1:
        yield (
            *("", "of each sequence", *[""] * 6),
            _rate_of_one(stage.bound_rate, stage.batch),
            "",
            _rate_of_one(stage.predicted_rate, stage.batch),
        )


def _rate(rate: Rate | None) -> str:
    return MISSING if rate is None else rate_range(rate)


def _rate_of_one(rate: Rate | None, batch: int) -> str:
    return MISSING if rate is None else _rate(rate.of_one(batch))


def parts_grid(stage: StageResult) -> Grid:
    """What the architecture asks for in a stage, the longest part first."""
    asked = stage.asked
    whole = asked.parts_s
    columns = (
        Column(heading="part"),
        Column(heading="layers", align="right", sacrifice=4),
        Column(heading="FLOP", align="right"),
        Column(heading="weights", align="right"),
        Column(heading="cache", align="right"),
        Column(heading="FLOP/byte", align="right", sacrifice=3),
        Column(heading="bound by"),
        Column(heading="ceiling", sacrifice=5),
        Column(heading="bound", align="right"),
        Column(heading="share", align="right", sacrifice=2),
    )
    ordered = sorted(asked.parts, key=lambda part: -(part.bound_s or 0.0))
    total = (
        *("all", ""),
        format_flop(asked.flop),
        format_byte(asked.weight_byte),
        format_byte(asked.cache_byte),
        *("", asked.bound.value, ""),
        format_s(asked.bound_s),
        "",
    )
    return Grid(
        title=f"{stage.stage.capitalize()}, as the architecture asks for it",
        columns=columns,
        rows=tuple(_part_row(part, whole) for part in ordered),
        sums=(total,),
    )


def _part_row(part: PlacedPart, whole_s: float | None) -> tuple[str, ...]:
    share = part.bound_s / whole_s if part.bound_s is not None and whole_s else None
    return (
        part.name,
        f"{part.count:,}",
        format_flop(part.flop),
        format_byte(part.weight_byte) if part.weight_byte else "",
        format_byte(part.cache_byte) if part.cache_byte else "",
        format_intensity(part.intensity_flop_per_byte),
        part.bound.value,
        printable(part.ceiling) or MISSING,
        format_s(part.bound_s),
        format_percent(share),
    )


def cache_grid(language: Language) -> Grid:
    """What layers keep: one row for those that keep alike, and what transformers was given."""
    cache, context, batch = language.cache, language.context, language.batch
    columns = (
        Column(heading="layers"),
        Column(heading="looks back"),
        Column(heading="key-value heads", align="right", sacrifice=2),
        Column(heading="a token in a layer", align="right"),
        Column(heading="tokens kept", align="right"),
        Column(heading="a sequence", align="right"),
        Column(heading=f"batch {batch}", align="right", sacrifice=1),
    )
    layers = sum(each.count for each in cache.layers)
    total = (
        *(f"all {layers}", "", ""),
        f"{format_byte(cache.token_byte)} in all",
        "",
        format_byte(cache.byte(context)),
        format_byte(cache.byte(context, batch)),
    )
    return Grid(
        title=f"Key-value cache in {cache.dtype} at {context:,} tokens",
        columns=columns,
        rows=tuple(_cache_row(each, cache, context, batch) for each in cache.layers),
        sums=(total, *_given_cache(language)),
    )


def _given_cache(language: Language) -> Iterable[tuple[str, ...]]:
    """What the pass of transformers was given, where that is more than windows leave or less."""
    decode = language.stage("decode")
    given = decode.given_cache_byte if decode is not None else None
    expected = language.cache.byte(language.context, language.batch)
    if given is None or format_byte(given) == format_byte(expected):
        return
    yield (
        *("transformers keeps", "", "", "", ""),
        format_byte(given / language.batch),
        format_byte(given),
    )


def _cache_row(layers: CacheLayers, cache: Cache, context: int, batch: int) -> tuple[str, ...]:
    kept = layers.tokens(context)
    byte = layers.count * kept * cache.token_byte_of_layer
    return (
        f"{layers.count}",
        "all tokens" if layers.window is None else f"{layers.window:,} tokens",
        "latent" if cache.attention == "latent" else f"{cache.key_value_heads}",
        format_byte(cache.token_byte_of_layer),
        f"{kept:,}",
        format_byte(byte),
        format_byte(batch * byte),
    )


def experts_grid(stages: Sequence[StageResult]) -> Grid:
    """How many experts a layer touches, and what that does to weights and bound."""
    columns = (
        Column(heading="stage"),
        Column(heading="routing"),
        Column(heading="experts of a layer", align="right"),
        Column(heading="weights read", align="right"),
        Column(heading="bound", align="right"),
        Column(heading="tokens/s at most", align="right"),
    )
    return Grid(
        title="Experts that one pass touches, as routing may have it",
        columns=columns,
        rows=tuple(row for each in stages for row in _expert_rows(each)),
    )


def _expert_rows(stage: StageResult) -> Iterable[tuple[str, ...]]:
    spread = stage.spread
    if spread is None:
        return
    even = f"{spread.expected:.1f} ± {spread.deviation:.1f} of {spread.count}"
    words = (
        ("all tokens alike", f"{spread.least} of {spread.count}"),
        ("even", even),
        ("as far apart as can be", f"{spread.most} of {spread.count}"),
    )
    for (routing, experts), routed in zip(words, stage.routed, strict=True):
        yield (stage.stage, routing, experts, *_routed_cells(routed))


def _routed_cells(routed: RoutedBound) -> tuple[str, ...]:
    rate = rate_number(routed.tokens_per_s)
    return format_byte(routed.weight_byte), format_s(routed.bound_s), rate


def bits_grid(bits: Sequence[BitsWhatIf]) -> Grid:
    """One row a width and stage: bytes, bounds, and the codes that must be unpacked."""
    columns = (
        Column(heading="bits"),
        Column(heading="weights", align="right"),
        Column(heading="change", align="right", sacrifice=3),
        Column(heading="stage"),
        Column(heading="architecture's bound", align="right"),
        Column(heading="tokens/s at most", align="right"),
        Column(heading="transformers' bound", align="right", sacrifice=2),
        Column(heading="unpacked a pass", align="right"),
        Column(heading="cost of that", sacrifice=1),
    )
    return Grid(
        title="Weights in fewer bits, the vocabulary's in floats: what is read, not what it takes"
        " to unpack it",
        columns=columns,
        rows=tuple(_bits_row(each, stage) for each in bits for stage in each.stages),
    )


def _bits_row(of: BitsWhatIf, stage: StageInBits) -> tuple[str, ...]:
    before, after = of.weight_byte_before, of.weight_byte_after
    was, now = stage.asked_before, stage.asked_after
    library = MISSING
    if stage.bound_after_s is not None:
        library = change(stage.bound_before_s, stage.bound_after_s, format_s)
    return (
        of.bits.words,
        change(before, after, format_byte),
        times_less(before, after),
        stage.stage,
        change(was.bound_s, now.bound_s, format_s),
        change(was.tokens_per_s, now.tokens_per_s, rate_number),
        library,
        f"{format_si(stage.unpacked_weights, '')} codes",
        "not measured",
    )
