"""What the report on a language model says: the verdict, memory, stages, parts, experts, bits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from roofline.analysis.tables import operator_grid
from roofline.analysis.words import hardware_fact
from roofline.foundation.blocks import Block, Facts, Grid, Notes, Report, View
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_byte, format_si
from roofline.language.architecture import Architecture
from roofline.language.footprint import Footprint
from roofline.language.result import Language
from roofline.presentation.reports.language_sweep_tables import crossover_grid, sweep_grids
from roofline.presentation.reports.language_tables import (
    bits_grid,
    cache_grid,
    experts_grid,
    parts_grid,
    stages_grid,
)
from roofline.render.pages import report_html

_Line = tuple[str, str]

_KINDS = {
    "multi-head": "multi-head attention",
    "grouped-query": "grouped-query attention",
    "multi-query": "multi-query attention",
    "latent": "latent attention",
}


def language_report(
    language: Language, *, top: int | None = None, today: date | None = None
) -> Report:
    """The report on a language model.

    Args:
        language: what to tell of.
        top: how many operators of each stage are shown; None: none.
        today: for the hardware's age; None gives dates alone.
    """
    blocks: list[Block] = [
        Facts(lines=tuple(_facts(language, today))),
        stages_grid(language),
        *(parts_grid(each) for each in language.stages),
        cache_grid(language),
    ]
    if any(each.spread is not None for each in language.stages):
        blocks.append(experts_grid(language.stages))
    if language.bits:
        blocks.append(bits_grid(language.bits))
    if language.sweep is not None:
        blocks += [*sweep_grids(language.sweep), crossover_grid(language.sweep)]
    blocks += _operators(language, top)
    blocks += _notes(language)
    return Report(headline=language.summary, blocks=tuple(blocks))


def _facts(language: Language, today: date | None) -> Iterable[_Line]:
    architecture, analysis = language.architecture, language.stages[0].analysis
    weights = language.footprint.weight_byte
    elements = 8 * weights // language.dtype.bits
    yield (
        "Model",
        f"{printable(language.model)} · about {format_si(elements, '')} weights in"
        f" {language.dtype} ({format_byte(weights)})",
    )
    yield "Architecture", _architecture(architecture)
    yield "Attention", _attention(architecture)
    if architecture.experts is not None:
        yield "Experts", _experts(architecture)
    yield hardware_fact(analysis, today)
    yield "Memory", _memory(language.footprint)
    yield "Fits", _fits(language.footprint)


def _architecture(architecture: Architecture) -> str:
    products = "three products (gated)" if architecture.is_gated else "two products"
    tied = ", shared with the embedding" if architecture.is_tied else ""
    return (
        f"{architecture.layers} layers of width {architecture.width:,} · inner width"
        f" {architecture.inner_width:,}, {products} · vocabulary {architecture.vocabulary:,}{tied}"
    )


def _attention(architecture: Architecture) -> str:
    kind = _KINDS[architecture.attention]
    heads = f"{architecture.heads} heads"
    latent = architecture.latent
    if latent is not None:
        parts = [
            kind,
            f"{heads}, keys and values out of {latent.key_value_rank} + {latent.rotary_size}"
            " elements a token",
        ]
    else:
        shared = f"{architecture.key_value_heads} key-value heads of {architecture.head_size}"
        parts = [kind, f"{heads}, {shared}"]
    windows = {each for each in architecture.windows if each is not None}
    if windows:
        counted = sum(each is not None for each in architecture.windows)
        sizes = ", ".join(f"{each:,}" for each in sorted(windows))
        parts.append(f"{counted} of {architecture.layers} layers see {sizes} tokens at most")
    return " · ".join(parts)


def _experts(architecture: Architecture) -> str:
    sizes = architecture.experts
    assert sizes is not None
    shared = f", {sizes.shared_width:,} shared" if sizes.shared_width else ""
    return (
        f"{sum(architecture.sparse)} layers with {sizes.count} experts of inner width"
        f" {sizes.width:,}{shared}; each token takes {sizes.per_token}"
    )


def _memory(footprint: Footprint) -> str:
    parts = (
        f"weights {format_byte(footprint.weight_byte)}",
        f"cache {format_byte(footprint.cache_byte)}",
        f"activations at least {format_byte(footprint.activation_byte)}",
    )
    peak = ""
    if footprint.peak_byte is not None:
        peak = f" · {format_byte(footprint.peak_byte)} at the peak of transformers' passes"
    return f"{format_byte(footprint.byte)} = {' + '.join(parts)}{peak}"


def _fits(footprint: Footprint) -> str:
    if footprint.memory.byte is None:
        return f"not known: {printable(footprint.memory.source)}"
    there = f"{format_byte(footprint.memory.byte)} ({printable(footprint.memory.source)})"
    words = {
        "fits": "yes",
        "fits at the least": "yes, without the copies that transformers may hold",
        "only without copies": "only without the copies that transformers holds",
        "does not fit": "no",
    }
    parts = [f"{words[footprint.fit]}: {there}"]
    if footprint.weight_byte > footprint.memory.byte:
        return f"{parts[0]} · the weights alone take more"
    if footprint.most_sequences is not None:
        count = footprint.most_sequences
        parts.append(f"room for {counted(count, 'sequence')} of {footprint.context:,} tokens")
    if footprint.most_context is None:
        parts.append("and for any context, as all windows end")
    else:
        parts.append(f"or for {footprint.most_context:,} tokens at batch {footprint.batch}")
    return " · ".join(parts)


def _operators(language: Language, top: int | None) -> Iterable[Grid]:
    for each in language.stages if top is not None else ():
        grid = operator_grid(each.analysis, View(top=top))
        yield Grid(
            title=f"{each.stage.capitalize()}: {grid.title[:1].lower()}{grid.title[1:]}",
            columns=grid.columns,
            rows=grid.rows,
            sums=grid.sums,
        )


def _notes(language: Language) -> Iterable[Block]:
    in_bits = [note for each in language.bits for note in each.notes]
    in_bits += [note for each in language.bits for stage in each.stages for note in stage.notes]
    for title, said, urgent in (
        ("Notes", (*language.notes, *_reading(language), *in_bits), False),
        ("Warnings", language.warnings, True),
    ):
        lines = tuple(dict.fromkeys(map(printable, said)))
        if lines:
            yield Notes(title=title, lines=lines, urgent=urgent)


def _reading(language: Language) -> Iterable[str]:
    """How the numbers are to be read."""
    yield (
        "bounds of transformers are those of the operators that it calls; bounds of the"
        " architecture hold for every implementation: weights and cache once a pass, norms,"
        " rotations and activations left out"
    )
    if any(each.predicted_rate is None for each in language.stages):
        yield (
            "nothing is predicted for this machine and type: `roofline calibrate` learns it, on"
            " the machine itself"
        )
    if any(each.spread is not None for each in language.stages):
        yield (
            "which experts are touched depends on the text; even routing is the most spread that"
            " independent tokens give on the average, real routers prefer some experts"
        )
    if language.bits:
        yield (
            "unpacking codes into floats was measured nowhere here: it is in none of these bounds,"
            " and a kernel that does it badly is slower than the model as it is"
        )


def language_html(language: Language) -> str:
    """The report as one HTML element for notebooks; everything is escaped."""
    return report_html(language_report(language))
