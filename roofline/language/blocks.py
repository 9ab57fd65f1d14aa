"""The report on a language model: facts, stages, parts, KV cache, experts, weight bits, sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.analysis.tables import operator_grid
from roofline.analysis.words import hardware_fact, sum_of_flop, sum_of_intensity
from roofline.foundation.blocks import Block, Facts, Grid, View, notes, table
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import counted
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_percent,
    format_ratio,
    format_s,
    format_si,
)
from roofline.language.memory import CacheLayers, Footprint
from roofline.language.parts import Stage
from roofline.language.placing import PlacedPart
from roofline.language.stages import Rate, RoutedBound, StageResult, rate_text
from roofline.language.sweep import MOST_BATCH, Crossover, StageSweep, SweepCell
from roofline.language.weight_bits import BitsWhatIf, StageInBits
from roofline.placement import Bound

if TYPE_CHECKING:
    from roofline.language.result import Language

_FITS = {
    "fits": "yes",
    "fits at the least": "yes, without copies that transformers may make",
    "only without copies": "only without the copies that transformers makes",
    "does not fit": "no",
}

_Row = tuple[str, ...]


def language_blocks(language: Language, view: View) -> Iterable[Block]:
    """Return what the report says below the summary; ``view.top`` adds operators of each stage."""
    yield Facts(lines=tuple(_facts(language, view)))
    yield _stages(language)
    yield from map(_parts, language.stages)
    yield _cache(language)
    if any(each.spread for each in language.stages):
        yield _experts(language.stages)
    if language.weight_bits:
        yield _weight_bits(language.weight_bits)
    if sweep := language.sweep:
        for stage in dict.fromkeys(each.stage for each in sweep.cells):
            yield _rates(sweep, stage)
        yield _crossovers(sweep)
    for each in language.stages if view.top is not None else ():
        grid = operator_grid(each.analysis, View(top=view.top))
        yield replace(
            grid, title=f"{each.stage.capitalize()}: {grid.title[:1].lower()}{grid.title[1:]}"
        )
    yield from notes("Notes", dict.fromkeys(_notes(language)))
    yield from notes("Warnings", dict.fromkeys(language.warnings), urgent=True)


def _facts(language: Language, view: View) -> Iterable[tuple[str, str]]:
    of, weight_byte = language.architecture, language.footprint.weight_byte
    elements = 8 * weight_byte // language.dtype.bits
    yield (
        "Model",
        f"{language.model} · about {format_si(elements, '')} parameters in {language.dtype}"
        f" ({format_byte(weight_byte)})",
    )
    products = "3 products (gated)" if of.is_gated else "2 products"
    tied = ", shared with the embedding" if of.is_tied else ""
    yield (
        "Architecture",
        f"{of.layers} layers of width {of.width:,} · feed-forward width {of.inner_width:,},"
        f" {products} · vocabulary {of.vocabulary:,}{tied}",
    )
    shared = f"{of.key_value_heads} KV heads of {of.head_size}"
    if of.latent is not None:
        shared = f"{of.latent.key_value_rank} + {of.latent.rotary_size} latent elements per token"
    attention = [f"{of.attention} attention", f"{of.heads} heads, {shared}"]
    windows = [each for each in of.windows if each is not None]
    if windows:
        sizes = ", ".join(f"{each:,}" for each in sorted(set(windows)))
        attention.append(f"{len(windows)} of {of.layers} layers with a window of {sizes} tokens")
    yield "Attention", " · ".join(attention)
    if sizes := of.experts:
        shared = f", {sizes.shared_width:,} shared" if sizes.shared_width else ""
        yield (
            "Experts",
            f"{sum(of.sparse)} layers with {sizes.count} experts of inner width"
            f" {sizes.width:,}{shared}; {sizes.per_token} per token",
        )
    yield hardware_fact(language.stages[0].analysis, view.today)
    yield "Memory", _memory(language.footprint)
    yield "Fits", _fits(language.footprint)


def _memory(footprint: Footprint) -> str:
    peak = ""
    if footprint.peak_byte is not None:
        peak = f" · peak of transformers {format_byte(footprint.peak_byte)}"
    return (
        f"{format_byte(footprint.byte)} = weights {format_byte(footprint.weight_byte)} + KV cache"
        f" {format_byte(footprint.cache_byte)} + activations at least"
        f" {format_byte(footprint.activation_byte)}{peak}"
    )


def _fits(footprint: Footprint) -> str:
    memory = footprint.memory
    if memory.byte is None:
        return f"not known: {memory.source}"
    verdict = f"{_FITS[footprint.fit]}: {format_byte(memory.byte)} ({memory.source})"
    if footprint.weight_byte > memory.byte:
        return f"{verdict} · the weights alone take more"
    parts = [verdict]
    if (count := footprint.most_sequences) is not None:
        parts.append(f"room for {counted(count, 'sequence')} of {footprint.context:,} tokens")
    if footprint.most_context is None:
        parts.append("and for any context, as all layers have windows")
    else:
        parts.append(f"or for {footprint.most_context:,} tokens at batch {footprint.batch}")
    return " · ".join(parts)


def _grid(title: str, headings: Iterable[str], rows: Iterable[_Row], **options: Any) -> Grid:
    """Return a table of cells that are made row by row."""
    columns: dict[str, Callable[[Any], str]] = {
        heading: lambda row, place=place: row[place] for place, heading in enumerate(headings)
    }
    return table(title, rows, columns, **options)


def _stages(language: Language) -> Grid:
    """Two rows for each stage: the operators of transformers, and the architecture."""
    narrow = ("tokens", "AI (FLOP/B)", "limiter", "predicted time", "basis")
    return _grid(
        f"Stages: {counted(language.batch, 'sequence')} of {language.context:,} tokens",
        (
            *("stage", "basis", "tokens", "FLOP", "traffic", "AI (FLOP/B)", "limiter"),
            *("minimum time", "max tokens/s", "predicted time", "predicted tokens/s"),
        ),
        (row for each in language.stages for row in _stage_rows(each)),
        left=("stage", "basis", "limiter"),
        narrow=narrow,
    )


def _stage_rows(stage: StageResult) -> Iterable[_Row]:
    totals, run, asked = stage.analysis.totals, stage.analysis.prediction, stage.asked
    unknown = totals.unknown_operators
    bound, predicted = stage.bound_rate, stage.predicted_rate
    yield (
        stage.stage,
        "transformers",
        f"{stage.tokens:,}",
        sum_of_flop(totals.flop, unknown),
        format_byte(totals.traffic_byte),
        sum_of_intensity(totals.flop, totals.traffic_byte, unknown),
        stage.limiter.value,
        format_s(stage.bound_s),
        _words(bound),
        interval_cell(run.predicted_s, run.low_s, run.high_s) if run else MISSING,
        _words(predicted),
    )
    yield (
        *("", "architecture", ""),
        format_flop(asked.flop),
        format_byte(asked.traffic_byte),
        format_intensity(asked.flop / asked.traffic_byte if asked.traffic_byte else None),
        asked.bound.value,
        format_s(asked.bound_s),
        _words(stage.asked_rate),
        *("", ""),
    )
    if stage.batch > 1:
        one = [_words(each and each.of_one(stage.batch)) for each in (bound, predicted)]
        yield ("", "per sequence", *[""] * 6, one[0], "", one[1])


def _words(rate: Rate | None) -> str:
    return rate.words if rate else MISSING


def _parts(stage: StageResult) -> Grid:
    """The parts of the architecture in a stage, the longest first."""
    asked = stage.asked

    def share(part: PlacedPart) -> str:
        whole_s = asked.parts_s
        known = part.bound_s is not None and whole_s
        return format_percent(part.bound_s / whole_s if known else None)

    def size(byte: int) -> str:
        return format_byte(byte) if byte else ""

    total = (
        *("model minimum", ""),
        format_flop(asked.flop),
        format_byte(asked.weight_byte),
        format_byte(asked.cache_byte),
        *("", asked.bound.value, ""),
        format_s(asked.bound_s),
        "",
    )
    return table(
        f"{stage.stage.capitalize()}: parts of the architecture",
        sorted(asked.parts, key=lambda part: -(part.bound_s or 0.0)),
        {
            "part": "name",
            "layers": "count",
            "FLOP": lambda part: format_flop(part.flop),
            "weights": lambda part: size(part.weight_byte),
            "KV cache": lambda part: size(part.cache_byte),
            "AI (FLOP/B)": lambda part: format_intensity(part.intensity_flop_per_byte),
            "limiter": lambda part: part.bound.value,
            "ceiling": lambda part: part.ceiling or MISSING,
            "time at ceiling": "bound_s",
            "share": share,
        },
        left=("part", "limiter", "ceiling"),
        narrow=("ceiling", "layers", "AI (FLOP/B)", "share"),
        sums=(total,),
    )


def _cache(language: Language) -> Grid:
    """What layers keep, and what transformers was given where that differs."""
    cache, context, batch = language.cache, language.context, language.batch

    def byte(layers: CacheLayers) -> int:
        return layers.count * layers.tokens(context) * cache.token_byte_of_layer

    expected = cache.byte(context, batch)
    sums = [
        (
            *(f"all {sum(each.count for each in cache.layers)}", "", ""),
            f"{format_byte(cache.token_byte)} (all layers)",
            "",
            format_byte(cache.byte(context)),
            format_byte(expected),
        )
    ]
    decode = language.stage("decode")
    given = decode.given_cache_byte if decode else None
    if given is not None and format_byte(given) != format_byte(expected):
        given_cells = format_byte(given / batch), format_byte(given)
        sums.append(("transformers", *("",) * 4, *given_cells))
    return table(
        f"KV cache in {cache.dtype} at {context:,} tokens",
        cache.layers,
        {
            "layers": "count",
            "window": lambda each: "all" if each.window is None else f"{each.window:,}",
            "KV heads": lambda _: (
                "latent" if cache.attention == "latent" else f"{cache.key_value_heads}"
            ),
            "per token and layer": lambda _: format_byte(cache.token_byte_of_layer),
            "tokens kept": lambda each: f"{each.tokens(context):,}",
            "per sequence": lambda each: format_byte(byte(each)),
            f"batch {batch}": lambda each: format_byte(batch * byte(each)),
        },
        left=("layers",),
        narrow=("KV heads", f"batch {batch}"),
        sums=sums,
    )


def _experts(stages: Iterable[StageResult]) -> Grid:
    """Distinct experts by routing, with their weights and times."""

    def rows(stage: StageResult) -> Iterable[_Row]:
        if (spread := stage.spread) is None:
            return
        counts = {
            "identical": f"{spread.least}",
            "uniform": f"{spread.expected:.1f} ± {spread.deviation:.1f}",
            "disjoint": f"{spread.most}",
        }
        for (routing, count), each in zip(counts.items(), stage.routed, strict=True):
            yield stage.stage, routing, f"{count} of {spread.count}", *_routed(each)

    return _grid(
        "Distinct experts per pass",
        ("stage", "routing", "experts per layer", "weights read", "minimum time", "max tokens/s"),
        (row for each in stages for row in rows(each)),
        left=("stage", "routing"),
    )


def _routed(each: RoutedBound) -> _Row:
    rate = rate_text(each.tokens_per_s)
    return format_byte(each.weight_byte), format_s(each.bound_s), rate


def _weight_bits(found: Iterable[BitsWhatIf]) -> Grid:
    """A row for each bit width and stage."""
    return _grid(
        "Weight-only quantization (vocabulary in floats; dequantization not included)",
        (
            *("bits", "weights", "reduction", "stage", "minimum time", "max tokens/s"),
            *("minimum of transformers", "dequantized per pass", "dequantization time"),
        ),
        (_bits_row(of, each) for of in found for each in of.stages),
        left=("bits", "stage", "dequantization time"),
        narrow=("reduction", "minimum of transformers", "dequantization time"),
    )


def _bits_row(of: BitsWhatIf, stage: StageInBits) -> _Row:
    before, after = of.weight_byte_before, of.weight_byte_after
    was, now = stage.asked_before, stage.asked_after
    library = MISSING
    if stage.bound_after_s is not None:
        library = _change(stage.bound_before_s, stage.bound_after_s, format_s)
    return (
        of.bits.words,
        _change(before, after, format_byte),
        f"{format_ratio(before / after)}×" if after else MISSING,
        stage.stage,
        _change(was.bound_s, now.bound_s, format_s),
        _change(was.tokens_per_s, now.tokens_per_s, rate_text),
        library,
        f"{format_si(stage.unpacked_weights, '')} weights",
        "not measured",
    )


def _change(before: float | None, after: float | None, form: Callable[[float | None], str]) -> str:
    """Return ``"2.69 MB → 295 kB"``, or one of both where they read the same."""
    return " → ".join(dict.fromkeys((form(before), form(after))))


def _rates(sweep: StageSweep, stage: Stage) -> Grid:
    def cell(of: SweepCell) -> str:
        if of.tokens_per_s is None:
            return MISSING
        mark = {Bound.COMPUTE: " *", Bound.MEMORY: "  "}.get(of.bound, " ?")
        return f"{rate_text(of.tokens_per_s)}{'!' * (of.fit == 'does not fit')}{mark}"

    return _grid(
        f"{stage.capitalize()}: max tokens/s of all sequences, by the architecture"
        " (* compute-bound, others memory-bound; ! does not fit)",
        ("context", *(f"batch {each:,}" for each in sweep.batches)),
        (
            (f"{context:,}", *(cell(sweep.cell(stage, batch, context)) for batch in sweep.batches))
            for context in sweep.contexts
        ),
    )


def _crossovers(sweep: StageSweep) -> Grid:
    def memory(of: Crossover) -> str:
        ends = sweep.batches[0], sweep.batches[-1]
        byte = (sweep.cell(of.stage, batch, of.context).footprint_byte for batch in ends)
        return " to ".join(dict.fromkeys(map(format_byte, byte)))

    intensity, beyond = "AI of attention (FLOP/B of KV cache)", " (does not fit)"
    return table(
        "Batch from which stages are compute-bound",
        sweep.crossovers,
        {
            "stage": "stage",
            "context": "context",
            "all parts": lambda of: f"{_batch(of.batch)}{beyond * (of.fits is False)}",
            "products with weights": lambda of: _batch(of.weights_batch),
            intensity: lambda of: format_intensity(of.cache_flop_per_byte),
            "memory": memory,
        },
        left=("stage",),
        narrow=("memory", intensity),
    )


def _batch(batch: int | None) -> str:
    return f"none up to {MOST_BATCH:,}" if batch is None else f"{batch:,}"


def _notes(language: Language) -> Iterable[str]:
    yield from language.notes
    yield (
        "transformers: eager minimum time of its operators; architecture: model minimum time of any"
        " implementation (weights and KV cache once per pass, without norms, rotary embeddings and"
        " activations); minimum times of prefill and decode are those of TTFT and TPOT"
    )
    if any(each.predicted_rate is None for each in language.stages):
        yield "no prediction for this machine and data type: run `roofline calibrate` on it"
    if any(each.spread for each in language.stages):
        yield (
            "distinct experts depend on the text: uniform routing gives the largest mean of"
            " independent tokens, real routers prefer some experts"
        )
    if language.weight_bits:
        yield (
            "dequantization was not measured and is in none of these times: a kernel with slow"
            " dequantization is slower than the model in floats"
        )
    for each in language.weight_bits:
        yield from each.notes
        for stage in each.stages:
            yield from stage.notes
