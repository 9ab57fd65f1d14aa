"""Report of `llm`: facts, serving runs, stages, parts, KV cache, experts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.analysis.tables import operator_grid
from roofline.analysis.words import machine_words, sum_of_flop, sum_of_intensity, why_not_predicted
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
from roofline.errors import argument
from roofline.llm.bounds import PlacedPart, PlacedStage
from roofline.llm.formats import SHORT, WeightFormat
from roofline.llm.memory import Cache, CacheLayers
from roofline.llm.parts import weights_of
from roofline.llm.result import fit_words
from roofline.llm.serving import MOST_BATCH, ServingCell, WhatIf
from roofline.llm.stages import Rate, StageResult, rate_text
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound
from roofline.scaling.settings import RankLink

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
    yield _runs(language)
    if language.what_ifs:
        yield _what_ifs(language)
    if any(each.analysis for each in language.stages):
        yield _table(
            f"Stages: {counted(language.batch, 'sequence')} of {language.context:,} tokens",
            (row for each in language.stages for row in _stage_rows(each)),
            left=("stage", "basis", "limiter"),
            narrow=("tokens", _AI, "predicted time", "limiter", "FLOP", "traffic"),
        )
    ranks = language.cells[0].run.ranks
    share = f" on one of {ranks} ranks" if ranks > 1 else ""
    for each in language.stages:
        yield _parts(each, share)
    if view.verbose or language.architecture.windows.count(None) != language.architecture.layers:
        yield _cache(language, share)
    if any(each.spread for each in language.stages):
        yield _table(
            f"Distinct experts per pass{share}",
            (row for each in language.stages for row in _expert_rows(each)),
            left=("stage", "routing"),
        )
    for each in language.stages if view.top is not None else ():
        if each.analysis is None:
            continue
        grid = operator_grid(each.analysis, View(top=view.top))
        yield replace(
            grid, title=f"{each.stage.capitalize()}: {grid.title[:1].lower()}{grid.title[1:]}"
        )
    minor = (f"{NOTE}{each}" for each in _notes(language))
    yield from warning_notes((*language.warnings, *minor), view)


def _facts(language: Language, view: View) -> Iterable[tuple[str, str]]:
    of, run, footprint = language.architecture, language.cells[0].run, language.footprint
    elements, weight_bytes = weights_of(of), footprint.weight_bytes
    ranks = f" on each of {run.ranks} ranks" if run.ranks > 1 else ""
    small = "" if of.small_weights is not None or language.engine == "transformers" else "≥ "
    head = "too" if language.quantized_head else f"in {SHORT.get(language.dtype.name)}"
    is_quantized = WeightFormat.parse(run.weights).floats is None
    yield (
        "Model",
        f"{language.model} · {small}{format_si(elements, '')} parameters · {run.weights} weights"
        f"{f', embedding and head {head}' if is_quantized else ''}:"
        f" {format_bytes(weight_bytes)}{ranks}",
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
    for profile in language.machines:
        threads = language.threads if profile == language.hardware else profile.threads
        yield "Machine", machine_words(profile, threads, view)
    divided = (each for each in language.cells if each.run.ranks > 1)
    if (cell := next(divided, None)) and language.link is not None:
        yield "Tensor parallel", _ranks(language.architecture.layers, cell, language.link)
    if language.prefix_share:
        yield (
            "Prefix",
            f"{format_percent(language.prefix_share)} of the context is the same in all sequences,"
            " cached once and before prefill",
        )
    memory = (
        f"{format_bytes(footprint.total_bytes)}{' per rank' * (run.ranks > 1)} = weights"
        f" {format_bytes(weight_bytes)} + KV cache"
        f" {format_bytes(footprint.cache_bytes)} + activations ≥"
        f" {format_bytes(footprint.activation_bytes)}"
    )
    if footprint.peak_bytes is not None:
        memory += f" · peak of transformers {format_bytes(footprint.peak_bytes)}"
    yield "Memory", memory
    yield "Fits", _fits(language)
    if language.engine == "paged":
        only = argument("engine", "transformers")
        yield "Prediction", f"none for paged engines (not learned); of transformers with {only}"
    for each in language.stages:
        if each.analysis and each.predicted_rate is None:
            yield "Prediction", f"none of {each.stage}: {why_not_predicted(each.analysis)}"


def _ranks(layers: int, cell: ServingCell, link: RankLink) -> str:
    times = [
        f"{each.stage} {format_bytes(each.link_bytes)} in {format_s(each.link_s)} (without overlap"
        f" {format_s(each.serial_s)} in all)"
        for each in cell.stages
    ]
    return (
        f"{2 * layers} all-reduces per pass over {link.description} · {cell.run.ranks} ranks:"
        f" {' · '.join(times)} · minimum times overlap them with compute"
    )


def _fits(language: Language) -> str:
    footprint, memory = language.footprint, language.footprint.memory
    if memory.size_bytes is None:
        return f"unknown: {memory.source}"
    size, source = format_memory(memory.size_bytes), memory.source
    if language.engine == "transformers":
        verdict = f"{_FITS[footprint.fit]}: {size} ({source})"
        if footprint.weight_bytes > memory.size_bytes:
            return f"{verdict} · weights alone exceed it"
        verdict += f" · without copies up to {counted(footprint.max_sequences or 0, 'sequence')}"
    else:
        verdict = fit_words(footprint)
        if footprint.weight_bytes > memory.size_bytes:
            return f"{verdict} · {size} ({source})"
    longest = "any context (all layers have windows)"
    if footprint.max_context is not None:
        longest = f"{footprint.max_context:,} tokens at batch {footprint.batch}"
    verdict += f" of {footprint.context:,} tokens"
    verdict += f" · or {longest}" * (not language.prefix_share)
    return verdict if language.engine == "transformers" else f"{verdict} · {size} ({source})"


_AXES = ("machine", "ranks", "weights", "KV", "context", "batch")


def _axis_cells(cell: ServingCell) -> _Row:
    run = cell.run
    texts = (run.machine, f"{run.ranks}", run.weights, run.cache, f"{run.context:,}")
    return dict(zip(_AXES, (*texts, f"{run.batch:,}"), strict=True))


def _runs(language: Language) -> Grid:
    """Return a row per serving run; values that all share are in the title."""
    axes = [_axis_cells(each) for each in language.cells]
    varied = [name for name in _AXES if len({each[name] for each in axes}) > 1]
    seen: set[tuple[str, ...]] = set()
    memory = "memory per rank" if any(each.run.ranks > 1 for each in language.cells) else "memory"

    def row(cell: ServingCell, names: _Row) -> _Row:
        decode, prefill = cell.stage("decode"), cell.stage("prefill")
        group = tuple(names[name] for name in _AXES if name != "batch")
        is_first = group not in seen
        seen.add(group)
        found = {name: names[name] for name in varied}
        if decode is not None:
            rate, batch = decode.tokens_per_s, cell.run.batch
            found |= {
                "tokens/s each": rate_text(rate and rate / batch),
                "tokens/s": rate_text(rate),
                "TPOT": format_s(decode.model_min_time_s),
            }
        if prefill is not None:
            found["TTFT"] = format_s(prefill.model_min_time_s)
            if decode is None:
                found["prompt tokens/s"] = rate_text(prefill.tokens_per_s)
        limits = dict.fromkeys(each.bound.value for each in (decode, prefill) if each)
        found |= {
            "limiter": " / ".join(limits),
            memory: format_bytes(cell.footprint_bytes),
            "fits": {"unknown": MISSING, "does not fit": "no"}.get(cell.fit, "yes"),
        }
        room = MISSING if cell.max_sequences is None else f"{cell.max_sequences:,}"
        found["max batch"] = room if is_first else ""
        if decode is not None:
            found["compute from"] = _crossover(cell) if is_first else ""
        return found

    title = ", ".join(
        f"{name} {axes[0][name]}" if name not in ("machine", "weights") else axes[0][name]
        for name in _AXES
        if name not in varied
    )
    return _table(
        f"Paged engine, minimum times{language.routing}: {title}",
        list(map(row, language.cells, axes)),
        left=("machine", "weights", "KV", "limiter"),
        narrow=("compute from", "limiter", memory, "max batch", "tokens/s each"),
    )


def _crossover(cell: ServingCell) -> str:
    decode = cell.stage("decode")
    if decode is None or decode.bound is Bound.UNKNOWN:
        return MISSING
    if cell.crossover is None:
        return f"> {MOST_BATCH:,}"
    beyond = cell.max_sequences is not None and cell.crossover > cell.max_sequences
    return f"{cell.crossover:,}{'!' * beyond}"


def _what_ifs(language: Language) -> Grid:
    cell = language.cells[0]
    decode = cell.stage("decode")
    now_s = decode.model_min_time_s if decode else None
    now = WhatIf(
        name="as above",
        tpot_s=now_s,
        tokens_per_s=decode.tokens_per_s if decode else None,
        footprint_bytes=cell.footprint_bytes,
        fit=cell.fit,
    )

    def row(each: WhatIf) -> _Row:
        return {
            "what-if": each.name,
            "TPOT": format_s(each.tpot_s),
            "tokens/s": rate_text(each.tokens_per_s),
            "speedup": f"{format_ratio(now_s / each.tpot_s)}×"
            if now_s and each.tpot_s
            else MISSING,
            "memory per rank": format_bytes(each.footprint_bytes),
            "fits": {"unknown": MISSING, "does not fit": "no"}.get(each.fit, "yes"),
        }

    return _table(
        f"What-ifs at batch {cell.run.batch:,}, {cell.run.context:,} tokens: decode",
        map(row, (now, *language.what_ifs)),
        left=("what-if",),
        narrow=("memory per rank",),
    )


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
    asked = stage.asked
    if stage.analysis is None:
        return
    totals, run = stage.analysis.totals, stage.analysis.prediction
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


def _parts(stage: StageResult, share: str) -> Grid:
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
        f"{stage.stage.capitalize()}: parts of the architecture{share}",
        map(row, sorted(asked.parts, key=lambda part: -(part.min_time_s or 0.0))),
        left=("part", "limiter", "ceiling"),
        narrow=("ceiling", "layers", _LIMITING_AI, "share"),
        sums=[{"part": "model minimum", **cells(asked, asked.model_min_time_s)}],
    )


def _cache(language: Language, share: str) -> Grid:
    """Return a row per attention window, and the cache of transformers if it differs."""
    cache, context, batch = language.cache, language.context, language.batch
    shared = language.stages[0].asked.size.shared

    def sizes(one: float, whole: float) -> _Row:
        return {"per sequence": format_bytes(one), f"batch {batch}": format_bytes(whole)}

    def sizes_of(of: Cache) -> _Row:
        return sizes(of.byte(context), of.byte(context, batch, shared))

    rows = (
        {
            "layers": f"{each.count}",
            "window": "all" if each.window is None else f"{each.window:,}",
            "KV heads": _cached_heads(cache, each),
            "per token and layer": format_bytes(cache.dtype.byte(each.elements)),
            "tokens kept": f"{each.tokens(context):,}",
            **sizes_of(replace(cache, layers=(each,))),
        }
        for each in cache.layers
    )
    layers, whole = sum(each.count for each in cache.layers), sizes_of(cache)
    token = f"{format_bytes(cache.token_bytes)} (all layers)"
    sums = [{"layers": f"all {layers}", "per token and layer": token, **whole}]
    decode = language.stage("decode")
    given = decode.given_cache_bytes if decode else None
    if given is not None and (captured := sizes(given / batch, given)) != whole:
        sums.append({"layers": "transformers", **captured})
    return _table(
        f"KV cache in {cache.dtype} at {context:,} tokens{share}",
        rows,
        left=("layers",),
        narrow=("KV heads", f"batch {batch}"),
        sums=sums,
    )


def _cached_heads(cache: Cache, layers: CacheLayers) -> str:
    if not layers.elements:
        return "cache of other layers"
    return "latent" if cache.attention == "latent" else f"{cache.key_value_heads}"


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


def _notes(language: Language) -> Iterable[str]:
    yield from language.notes
    yield (
        "minimum times: weights and KV cache once per pass, without norms, rotary embeddings,"
        " activations and sampling; compute, memory and link overlap. TTFT is that of the last"
        " sequence of the batch: an engine may serve others earlier"
    )
    if any(each.analysis for each in language.stages):
        yield "transformers: eager minimum time of its operators, for the first batch and context"
    if any(each.stage == "prefill" for each in language.stages):
        yield "prefill: FLOP of the whole attention rectangle, minimum times of its causal half"
    if any(each.spread for each in language.stages):
        yield (
            "distinct experts depend on the text: uniform routing is an upper limit of the mean,"
            " real routers prefer some experts"
        )
    if any(each.crossover for each in language.cells):
        yield "compute from: smallest compute-bound batch of decode; ! does not fit"
