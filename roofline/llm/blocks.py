"""Report of `llm`: facts, stages, parts, KV cache, experts, weight bits, sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.analysis.tables import operator_grid
from roofline.analysis.words import machine_fact, sum_of_flop, sum_of_intensity
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, table, warning_notes
from roofline.core.sampling import interval_cell
from roofline.core.text import NOTE, counted
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_intensity,
    format_memory,
    format_percent,
    format_ratio,
    format_s,
    format_si,
)
from roofline.llm.bounds import PlacedPart, PlacedStage
from roofline.llm.memory import Footprint
from roofline.llm.parts import Stage
from roofline.llm.stages import Rate, StageResult, rate_text
from roofline.llm.sweep import MOST_BATCH, StageSweep, SweepCell
from roofline.llm.weight_bits import BitsWhatIf, StageInBits
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound

if TYPE_CHECKING:
    from roofline.llm.result import Language

_FITS = {
    "fits": "yes",
    "minimum fits": "yes, without copies in transformers",
    "only without copies": "only without copies in transformers",
    "does not fit": "no",
}

_AI, _LIMITING_AI = "operand AI (FLOP/B)", "limiting AI (FLOP/B)"

_Row = dict[str, str]
"""Cells by heading."""


def language_blocks(language: Language, view: View) -> Iterable[Block]:
    """Return the blocks of the report; ``view.top`` adds operators of each stage."""
    yield KeyValueBlock(lines=tuple(_facts(language, view)))
    yield _table(
        f"Stages: {counted(language.batch, 'sequence')} of {language.context:,} tokens",
        (row for each in language.stages for row in _stage_rows(each)),
        left=("stage", "basis", "limiter"),
        narrow=("tokens", _AI, "predicted time", "limiter", "FLOP", "traffic"),
    )
    yield from map(_parts, language.stages)
    if view.verbose or language.architecture.windows.count(None) != language.architecture.layers:
        yield _cache(language)
    if any(each.spread for each in language.stages):
        yield _table(
            "Distinct experts per pass",
            (row for each in language.stages for row in _expert_rows(each)),
            left=("stage", "routing"),
        )
    if language.weight_bits:
        yield _table(
            "Weight-only quantization (vocabulary in floats, without dequantization time)",
            (_bits_row(of, each) for of in language.weight_bits for each in of.stages),
            left=("bits", "stage", "dequantization time"),
            narrow=("reduction", "minimum of transformers", "dequantization time"),
        )
    if sweep := language.sweep:
        for stage in sweep.stages:
            yield _rates(sweep, stage)
        yield _crossovers(sweep)
    for each in language.stages if view.top is not None else ():
        grid = operator_grid(each.analysis, View(top=view.top))
        yield replace(
            grid, title=f"{each.stage.capitalize()}: {grid.title[:1].lower()}{grid.title[1:]}"
        )
    minor = (f"{NOTE}{each}" for each in _notes(language))
    yield from warning_notes((*language.warnings, *minor), view)


def _facts(language: Language, view: View) -> Iterable[tuple[str, str]]:
    of, weight_bytes = language.architecture, language.footprint.weight_bytes
    elements = 8 * weight_bytes // language.dtype.bits
    yield (
        "Model",
        f"{language.model} · {format_si(elements, '')} parameters in {language.dtype}"
        f" ({format_bytes(weight_bytes)})",
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
            f"{sum(of.sparse)} layers with {sizes.count} experts, {sizes.per_token} per token ·"
            f" inner width {sizes.width:,}{shared}",
        )
    yield machine_fact(language.stages[0].analysis, view)
    footprint = language.footprint
    memory = (
        f"{format_bytes(footprint.total_bytes)} = weights {format_bytes(weight_bytes)} + KV cache"
        f" {format_bytes(footprint.cache_bytes)} + activations ≥"
        f" {format_bytes(footprint.activation_bytes)}"
    )
    if footprint.peak_bytes is not None:
        memory += f" · peak of transformers {format_bytes(footprint.peak_bytes)}"
    yield "Memory", memory
    yield "Fits", _fits(footprint)


def _fits(footprint: Footprint) -> str:
    memory = footprint.memory
    if memory.size_bytes is None:
        return f"unknown: {memory.source}"
    verdict = f"{_FITS[footprint.fit]}: {format_memory(memory.size_bytes)} ({memory.source})"
    if footprint.weight_bytes > memory.size_bytes:
        return f"{verdict} · weights alone exceed it"
    room = f"up to {counted(footprint.max_sequences or 0, 'sequence')} of"
    longest = "any context (all layers have windows)"
    if footprint.max_context is not None:
        longest = f"or {footprint.max_context:,} tokens at batch {footprint.batch}"
    return f"{verdict} · {room} {footprint.context:,} tokens · {longest}"


def _table(
    title: str,
    rows: Iterable[_Row],
    *,
    left: Sequence[str] = (),
    narrow: Sequence[str] = (),
    sums: Iterable[_Row] = (),
) -> Grid:
    """Return a table of rows by heading; headings are those of the first row."""
    items = list(rows)
    columns = {heading: lambda row, of=heading: row.get(of, "") for heading in items[0]}
    cells = (tuple(row.get(heading, "") for heading in columns) for row in sums)
    return table(title, items, columns, left=left, narrow=narrow, sums=cells)


def _stage_rows(stage: StageResult) -> Iterable[_Row]:
    totals, run, asked = stage.analysis.totals, stage.analysis.prediction, stage.asked
    unknown = totals.unknown_operators
    bound, predicted = stage.bound_rate, stage.predicted_rate
    yield {
        "stage": stage.stage,
        "basis": "transformers",
        "tokens": f"{stage.tokens:,}",
        "FLOP": sum_of_flop(totals.flop, unknown),
        "traffic": format_bytes(totals.traffic_bytes),
        _AI: sum_of_intensity(totals.flop, totals.traffic_bytes, unknown),
        "limiter": stage.limiter.value,
        "minimum time": format_s(stage.eager_min_time_s),
        "max tokens/s": _words(bound),
        "predicted time": interval_cell(run.predicted_s, run.low_s, run.high_s) if run else MISSING,
        "predicted tokens/s": _words(predicted),
    }
    yield {
        "basis": "architecture",
        "FLOP": format_flop(asked.flop),
        "traffic": format_bytes(asked.traffic_bytes),
        _AI: format_intensity(asked.flop / asked.traffic_bytes if asked.traffic_bytes else None),
        "limiter": asked.bound.value,
        "minimum time": format_s(asked.model_min_time_s),
        "max tokens/s": _words(stage.asked_rate),
    }
    if stage.batch > 1:
        yield {
            "basis": "per sequence",
            "max tokens/s": _words(bound and bound.of_one(stage.batch)),
            "predicted tokens/s": _words(predicted and predicted.of_one(stage.batch)),
        }


def _words(rate: Rate | None) -> str:
    return rate.words if rate else MISSING


def _parts(stage: StageResult) -> Grid:
    asked, whole_s = stage.asked, stage.asked.parts_s

    def cells(
        of: PlacedPart | PlacedStage, time_s: float | None, intensity: str = "", ceiling: str = ""
    ) -> _Row:
        return {
            "FLOP": format_flop(of.flop),
            "weights": format_bytes(of.weight_bytes) if of.weight_bytes else "",
            "KV cache": format_bytes(of.cache_bytes) if of.cache_bytes else "",
            _LIMITING_AI: intensity,
            "limiter": of.bound.value,
            "ceiling": ceiling,
            "time at ceiling": format_s(time_s),
        }

    def row(part: PlacedPart) -> _Row:
        share = part.min_time_s / whole_s if part.min_time_s is not None and whole_s else None
        return {
            "part": part.name,
            "layers": f"{part.count:,}",
            **cells(
                part,
                part.min_time_s,
                format_intensity(part.intensity_flop_per_byte),
                ceiling_text(part.ceiling) or MISSING,
            ),
            "share": format_percent(share),
        }

    return _table(
        f"{stage.stage.capitalize()}: parts of the architecture",
        map(row, sorted(asked.parts, key=lambda part: -(part.min_time_s or 0.0))),
        left=("part", "limiter", "ceiling"),
        narrow=("ceiling", "layers", _LIMITING_AI, "share"),
        sums=[{"part": "model minimum", **cells(asked, asked.model_min_time_s)}],
    )


def _cache(language: Language) -> Grid:
    """Return a row per attention window, and the cache of transformers if it differs."""
    cache, context, batch = language.cache, language.context, language.batch

    def sizes(byte: float) -> _Row:
        return {"per sequence": format_bytes(byte), f"batch {batch}": format_bytes(batch * byte)}

    rows = (
        {
            "layers": f"{each.count}",
            "window": "all" if each.window is None else f"{each.window:,}",
            "KV heads": "latent" if cache.attention == "latent" else f"{cache.key_value_heads}",
            "per token and layer": format_bytes(cache.token_bytes_of_layer),
            "tokens kept": f"{each.tokens(context):,}",
            **sizes(each.count * each.tokens(context) * cache.token_bytes_of_layer),
        }
        for each in cache.layers
    )
    layers, whole = sum(each.count for each in cache.layers), sizes(cache.byte(context))
    token = f"{format_bytes(cache.token_bytes)} (all layers)"
    sums = [{"layers": f"all {layers}", "per token and layer": token, **whole}]
    decode = language.stage("decode")
    given = decode.given_cache_bytes if decode else None
    if given is not None and sizes(given / batch) != whole:
        sums.append({"layers": "transformers", **sizes(given / batch)})
    return _table(
        f"KV cache in {cache.dtype} at {context:,} tokens",
        rows,
        left=("layers",),
        narrow=("KV heads", f"batch {batch}"),
        sums=sums,
    )


def _expert_rows(stage: StageResult) -> Iterable[_Row]:
    if (spread := stage.spread) is None:
        return
    counts = {
        "identical": f"{spread.least}",
        "uniform": f"{spread.expected:.1f} ± {spread.deviation:.1f}",
        "disjoint": f"{spread.most}",
    }
    for (routing, count), each in zip(counts.items(), stage.routed, strict=True):
        yield {
            "stage": stage.stage,
            "routing": routing,
            "experts per layer": f"{count} of {spread.count}",
            "weights read": format_bytes(each.weight_bytes),
            "minimum time": format_s(each.model_min_time_s),
            "max tokens/s": rate_text(each.tokens_per_s),
        }


def _bits_row(of: BitsWhatIf, stage: StageInBits) -> _Row:
    before, after = of.weight_bytes_before, of.weight_bytes_after
    was, now = stage.asked_before, stage.asked_after
    library = MISSING
    if stage.eager_min_time_after_s is not None:
        library = _change(stage.eager_min_time_before_s, stage.eager_min_time_after_s, format_s)
    return {
        "bits": of.bits.words,
        "weights": _change(before, after, format_bytes),
        "reduction": f"{format_ratio(before / after)}×" if after else MISSING,
        "stage": stage.stage,
        "minimum time": _change(was.model_min_time_s, now.model_min_time_s, format_s),
        "max tokens/s": _change(was.tokens_per_s, now.tokens_per_s, rate_text),
        "minimum of transformers": library,
        "dequantized per pass": f"{format_si(stage.unpacked_weights, '')} weights",
        "dequantization time": "not measured",
    }


def _change(before: float | None, after: float | None, form: Callable[[float | None], str]) -> str:
    """Return ``"2.69 MB → 295 kB"``, or one number if both look the same."""
    return " → ".join(dict.fromkeys((form(before), form(after))))


def _rates(sweep: StageSweep, stage: Stage) -> Grid:
    def cell(of: SweepCell) -> str:
        mark = {Bound.COMPUTE: " *", Bound.MEMORY: "  "}.get(of.bound, " ?")
        beyond = "!" * (of.fit == "does not fit")
        return MISSING if of.tokens_per_s is None else f"{rate_text(of.tokens_per_s)}{beyond}{mark}"

    rows = (
        {"context": f"{context:,}"}
        | {f"batch {each:,}": cell(sweep.cell(stage, each, context)) for each in sweep.batches}
        for context in sweep.contexts
    )
    legend = "* compute-bound, else memory-bound; ! does not fit"
    of = "max tokens/s of all sequences (architecture)"
    return _table(f"{stage.capitalize()}: {of} ({legend})", rows)


def _crossovers(sweep: StageSweep) -> Grid:
    intensity, ends = "AI of attention (FLOP/B of KV cache)", (sweep.batches[0], sweep.batches[-1])

    def batch(least: int | None) -> str:
        return f"> {MOST_BATCH:,}" if least is None else f"{least:,}"

    rows = (
        {
            "stage": each.stage,
            "context": f"{each.context:,}",
            "all parts": batch(each.batch) + " (does not fit)" * (each.fits is False),
            "products with weights": batch(each.weights_batch),
            intensity: format_intensity(each.cache_flop_per_byte),
            "memory": " to ".join(
                dict.fromkeys(
                    format_bytes(sweep.cell(each.stage, end, each.context).footprint_bytes)
                    for end in ends
                )
            ),
        }
        for each in sweep.crossovers
    )
    title = "Memory-to-compute-bound crossover: smallest compute-bound batch"
    return _table(title, rows, left=("stage",), narrow=("memory", intensity))


def _notes(language: Language) -> Iterable[str]:
    yield from language.notes
    yield (
        "transformers: eager minimum time of its operators. architecture: model minimum time"
        " (weights and KV cache once per pass, without norms, rotary embeddings and activations)."
        " Prefill gives the minimum TTFT, decode the minimum TPOT."
    )
    if any(each.predicted_rate is None for each in language.stages):
        yield "no prediction for this machine and data type; run `roofline calibrate` on it"
    if any(each.spread for each in language.stages):
        yield (
            "distinct experts depend on the text: uniform routing is an upper limit of the mean,"
            " real routers prefer some experts"
        )
    if language.weight_bits:
        yield (
            "times do not include dequantization, which was not measured: slow dequantization can"
            " cost more than it saves"
        )
    for each in language.weight_bits:
        yield from each.notes
        for stage in each.stages:
            yield from stage.notes
