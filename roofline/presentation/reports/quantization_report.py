"""What the report on a quantisation says: the verdict, parts, layers, passes, widths, findings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from roofline.analysis import fit_warnings
from roofline.analysis.facts import model_fact, run_fact
from roofline.analysis.words import hardware_fact
from roofline.foundation.blocks import Block, Facts, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_byte
from roofline.presentation.reports.quantization_cells import (
    bits_words,
    change,
    time_cell,
    times_faster,
    times_less,
)
from roofline.presentation.reports.quantization_findings import (
    companions_grid,
    not_run_lines,
    proposal_grid,
    sensitivity_facts,
    sensitivity_grid,
)
from roofline.presentation.reports.quantization_tables import (
    layers_grid,
    parts_grid,
    passes_grid,
    sweep_grid,
    widths_of,
)
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf, Quantization, WhatIf
from roofline.render.pages import report_html

DEFAULT_TOP = 10

_Line = tuple[str, str]


def quantization_report(
    quantization: Quantization, *, top: int | None = None, today: date | None = None
) -> Report:
    """The report on a quantisation.

    Args:
        quantisation: what lower precision is worth for a model.
        top: how many layers are shown; None: 10.
        today: for the hardware's age; None gives dates alone.
    """
    most = top or DEFAULT_TOP
    what_if = quantization.what_if
    blocks: list[Block] = [Facts(lines=tuple(_facts(quantization, today)))]
    blocks.append(parts_grid(what_if))
    if what_if.layers:
        blocks.append(layers_grid(what_if, most))
    if what_if.passes:
        blocks.append(passes_grid(what_if.passes))
    if len(widths_of(quantization)) > 1:
        blocks.append(sweep_grid(quantization))
    blocks += _companions(quantization)
    blocks += _sensitivity(quantization, most)
    blocks += _notes(quantization)
    return Report(headline=quantization.summary, blocks=tuple(blocks))


def _facts(quantization: Quantization, today: date | None) -> Iterable[_Line]:
    analysis, what_if = quantization.analysis, quantization.what_if
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield hardware_fact(analysis, today)
    yield "Policy", _policy_words(what_if)
    yield "Computed in", _computed_in(what_if, analysis.hardware.name)
    if predicted := _predicted(what_if):
        yield "Predicted", predicted
    yield "Model size", _sizes(what_if.model_byte_before, what_if.model_byte_after)
    yield (
        "Layers' traffic",
        f"{_sizes(what_if.layer_byte_before, what_if.layer_byte_after)}: each weight once, each"
        " result written and read, at the bits of its layer",
    )
    if shortcuts := _shortcuts(what_if):
        yield "Shortcuts", shortcuts


def _policy_words(what_if: WhatIf) -> str:
    scales = "a scale for each output channel" if what_if.policy.per_channel else "a scale a layer"
    return f"{what_if.policy.words} · {scales}"


def _sizes(before: int, after: int) -> str:
    return f"{change(before, after, format_byte)}, {times_less(before, after)}"


def _computed_in(what_if: WhatIf, hardware: str) -> str:
    """Each executable type with its layers, and for which widths there is no kernel."""
    by_type: dict[tuple[str, bool], list[LayerWhatIf]] = {}
    for each in what_if.layers:
        by_type.setdefault((each.executable, each.has_kernel), []).append(each)
    parts: list[str] = []
    for (executable, has_kernel), layers in by_type.items():
        widths = ", ".join(dict.fromkeys(bits_words(each.bits) for each in layers))
        why = "" if has_kernel else f": {BANDWIDTH_ONLY}, {printable(hardware)} has no kernel"
        said = f"{printable(executable)}: {counted(len(layers), 'layer')}"
        is_float = all(each.bits.is_float for each in layers)
        parts.append(said if is_float else f"{said} ({widths}{why})")
    return " · ".join(parts) or "nothing: no layer has weights"


def _predicted(what_if: WhatIf) -> str:
    """The pass as it is and in few bits, with intervals; `""` where nothing is predicted."""
    before, after = what_if.before, what_if.after
    if before is None:
        return ""
    if not what_if.has_kernels:
        return f"{time_cell(before)} as it is; none in few bits: {BANDWIDTH_ONLY}"
    if after is None:
        return f"{time_cell(before)} as it is; none in few bits"
    faster = times_faster(before.s, after.s)
    return f"{time_cell(before)} → {time_cell(after)}, {faster}"


def _shortcuts(what_if: WhatIf) -> str:
    """What the additions at the ends of shortcuts move, and the layers on them."""
    additions = next((each for each in what_if.parts if each.name == "shortcuts"), None)
    layers = [each for each in what_if.layers if each.layer.place == "shortcut"]
    parts: list[str] = []
    if additions is not None and additions.count:
        byte = _sizes(additions.before_byte, additions.after_byte)
        parts.append(f"{counted(additions.count, 'addition')} {byte}")
    if layers:
        before = sum(each.before.traffic_byte for each in layers)
        after = sum(each.after.traffic_byte for each in layers)
        parts.append(f"{counted(len(layers), 'layer')} on them {_sizes(before, after)}")
    if not parts:
        return ""
    kept = "kept in floats" if what_if.policy.shortcut == "full" else "in few bits"
    return " · ".join([kept, *parts])


def _companions(quantization: Quantization) -> Iterable[Block]:
    companions = quantization.companions
    if any(not each.why_not for each in companions):
        yield companions_grid(companions)
    if lines := not_run_lines(companions):
        yield Notes(title="Not timed", lines=lines, urgent=False)


def _sensitivity(quantization: Quantization, most: int) -> Iterable[Block]:
    sensitivity = quantization.sensitivity
    if sensitivity is None:
        return
    yield sensitivity_grid(sensitivity, most)
    yield sensitivity_facts(sensitivity)
    if sensitivity.left:
        lines = tuple(map(printable, sensitivity.left))
        yield Notes(title="Not ranked", lines=lines, urgent=False)
    if sensitivity.proposal is not None:
        yield proposal_grid(sensitivity.proposal, quantization.what_if.layers)


def _warnings_of(quantization: Quantization) -> Iterable[str]:
    analysis = quantization.analysis
    return (*quantization.warnings, *fit_warnings(analysis), *analysis.warnings)


def _notes(quantization: Quantization) -> Iterable[Block]:
    what_if = quantization.what_if
    for title, said, urgent in (
        ("Left in floats", what_if.left, False),
        ("Notes", _notes_of(quantization), False),
        ("Warnings", _warnings_of(quantization), True),
    ):
        lines = tuple(dict.fromkeys(map(printable, said)))
        if lines:
            yield Notes(title=title, lines=lines, urgent=urgent)


def _notes_of(quantization: Quantization) -> tuple[str, ...]:
    """Those of what was asked for, then those that only other widths have."""
    return tuple(line for each in quantization.what_ifs for line in each.notes)


def quantization_html(quantization: Quantization) -> str:
    """The report as one HTML element for notebooks; everything is escaped."""
    return report_html(quantization_report(quantization))
