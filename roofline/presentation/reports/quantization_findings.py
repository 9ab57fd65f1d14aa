"""What was run beside a what-if: companions under the clock, and how much each layer suffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from roofline.analysis.words import MODEL_ITSELF, saved_words
from roofline.foundation.blocks import Column, Facts, Grid
from roofline.foundation.spreads import rounds_title
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_byte, format_s
from roofline.presentation.reports.quantization_cells import (
    bits_words,
    change,
    seconds_words,
    shown_words,
)
from roofline.quantization.findings import Companion, LayerSensitivity, Proposal, Sensitivity
from roofline.quantization.policy import LayerBits
from roofline.quantization.result import LayerWhatIf

_BASIS = {"prediction": "saves, predicted", "bound": "saves, by bound"}

_NAMED = 4
"""How many layers of a width are named in a proposal."""


def companions_grid(companions: Sequence[Companion]) -> Grid:
    """Lower precisions that ran here, in turn with the original, beside what was predicted."""
    columns = (
        Column(heading="way", least=10),
        Column(heading="bits", sacrifice=4),
        Column(heading="original", align="right"),
        Column(heading="it", align="right"),
        Column(heading="times as fast", align="right"),
        Column(heading="rounds", align="right", sacrifice=5),
        Column(heading="predicted", align="right", sacrifice=1),
        Column(heading="prediction is off by", align="right", sacrifice=2),
        Column(heading="error of outputs", align="right", sacrifice=3),
    )
    return Grid(
        title=rounds_title(
            "Timed here in turn with the original", (each.allocator for each in companions)
        ),
        columns=columns,
        rows=tuple(_companion_row(each) for each in companions if not each.why_not),
    )


def not_run_lines(companions: Sequence[Companion]) -> tuple[str, ...]:
    """What was not timed, and why."""
    return tuple(
        f"{printable(each.way)} ({bits_words(each.bits)}): {printable(each.why_not)}"
        for each in companions
        if each.why_not
    )


def _companion_row(companion: Companion) -> tuple[str, ...]:
    predicted = change(companion.predicted_before_s, companion.predicted_s, seconds_words)
    return (
        printable(companion.way),
        bits_words(companion.bits),
        format_s(companion.before_s),
        format_s(companion.after_s),
        _speedup(companion),
        str(companion.rounds) if companion.rounds else MISSING,
        predicted,
        _off_by(companion),
        error_words(companion.error),
    )


def _speedup(companion: Companion) -> str:
    speedup, low, high = companion.speedup, companion.speedup_low, companion.speedup_high
    if speedup is None:
        return MISSING
    within = "" if low is None or high is None else f" ({low:.2f}–{high:.2f})"
    return f"{speedup:.2f}{within}"


def _off_by(companion: Companion) -> str:
    """How far the prediction lies from the clock: ``"+12 %"``, where it is too long."""
    if companion.predicted_s is None or not companion.after_s:
        return MISSING
    return signed_percent(companion.predicted_s / companion.after_s - 1)


def signed_percent(fraction: float) -> str:
    """A difference as percent, in whole numbers: ``"+12 %"``, ``"-3 %"``."""
    return f"{round(100 * fraction):+d} %"


def error_words(error: float | None) -> str:
    """A relative error in two digits; ``"0"`` where outputs are equal."""
    if error is None:
        return MISSING
    return f"{error:.2g}" if 1e-3 <= error < 100 or not error else f"{error:.1e}"


def sensitivity_grid(sensitivity: Sensitivity, most: int) -> Grid:
    """Layers quantised one at a time; those that do most harm for what they save first."""
    ranked = list(reversed(sensitivity.layers))
    shown, rest = ranked[:most], ranked[most:]
    in_time = any(each.saved_s is not None for each in ranked)
    columns = (
        Column(heading="layer alone", least=12, cut="start"),
        Column(heading="bits"),
        Column(heading="error of outputs", align="right"),
        Column(heading=_BASIS[sensitivity.basis], align="right"),
        Column(heading="saves, bytes", align="right", sacrifice=1),
        Column(heading=f"error per {'µs' if in_time else 'kB'} saved", align="right", sacrifice=2),
    )
    sums: list[tuple[str, ...]] = []
    if rest:
        worst = error_words(max(each.error for each in rest))
        sums.append((f"{len(rest)} more", "", f"≤ {worst}", "", "", ""))
    return Grid(
        title=f"Sensitivity, one layer at a time: {shown_words(len(shown), len(ranked))}the worst"
        " bargain first",
        columns=columns,
        rows=tuple(_sensitivity_row(each, in_time=in_time) for each in shown),
        sums=tuple(sums),
    )


def _sensitivity_row(layer: LayerSensitivity, *, in_time: bool) -> tuple[str, ...]:
    saved = layer.saved_s if in_time else layer.saved_byte
    unit = 1e-6 if in_time else 1e3
    per = MISSING if saved is None or saved <= 0 else error_words(layer.error / (saved / unit))
    return (
        printable(layer.name) or MODEL_ITSELF,
        bits_words(layer.bits),
        error_words(layer.error),
        saved_words(layer.saved_s, format_s),
        saved_words(layer.saved_byte, format_byte),
        per,
    )


def sensitivity_facts(sensitivity: Sensitivity) -> Facts:
    """What the errors are of, and what is proposed."""
    errors = f"{printable(sensitivity.inputs)} · weights: {printable(sensitivity.weights)}"
    lines = [("Errors on", errors)]
    if sensitivity.proposal is not None:
        lines.append(("Proposal", _proposal_words(sensitivity.proposal, sensitivity.basis)))
    return Facts(lines=tuple(lines))


def _proposal_words(proposal: Proposal, basis: Literal["prediction", "bound"]) -> str:
    budget = printable(proposal.budget)
    held = f"within {budget}" if proposal.is_within else f"{budget} cannot be held; the nearest"
    parts = [held, f"model {format_byte(proposal.model_byte)}"]
    if proposal.time_s is not None:
        # A bound is no time that anybody would wait.
        said = f"bound {format_s(proposal.time_s)}"
        is_bound = basis == "bound"
        parts.append(said if is_bound else f"predicted {seconds_words(proposal.time_s)}")
    parts.append(f"error of outputs with all of it {error_words(proposal.error)}")
    return " · ".join(parts)


def proposal_grid(proposal: Proposal, layers: Sequence[LayerWhatIf]) -> Grid:
    """The bits that a proposal gives to layers, fewest first, and whose they are."""
    by_bits: dict[LayerBits, list[str]] = {}
    for each in layers:
        # A policy names modules; one that runs several times is several layers.
        name = each.layer.name.partition("#")[0]
        names = by_bits.setdefault(proposal.policy.bits_of(name, each.layer.place), [])
        if (shown := printable(name) or MODEL_ITSELF) not in names:
            names.append(shown)
    ordered = sorted(by_bits, key=lambda each: (each.weights, each.activations))
    columns = (
        Column(heading="bits"),
        Column(heading="layers", align="right"),
        Column(heading="which", least=16),
    )
    return Grid(
        title="Proposed bits (--policy takes them from a saved .json)",
        columns=columns,
        rows=tuple(
            (bits_words(each), f"{len(by_bits[each]):,}", _names(by_bits[each])) for each in ordered
        ),
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {counted(more, 'other')}" if more > 0 else shown
