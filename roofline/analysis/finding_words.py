"""Findings in words, as reports on analyses, several machines and advice say them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis import Analysis, Finding
from roofline.analysis.words import module_of, short_op
from roofline.foundation.blocks import Notes, notes
from roofline.foundation.units import MISSING, format_percent, format_s

_BASIS = {
    "prediction": "predicted",
    "estimate": "estimated from the prediction",
    "at most": "the most there is, predicted",
    "bound": "of the bound",
}
_SHOWN = 3


def pass_s(analysis: Analysis) -> float | None:
    """The seconds that savings are part of: predicted, else the bound."""
    return (
        analysis.prediction.predicted_s if analysis.prediction else analysis.totals.eager_min_time_s
    )


def basis_words(finding: Finding) -> str:
    """What the seconds of a finding are, in words."""
    return _BASIS[finding.basis] if finding.saving_s is not None else "found by trying it"


def saving_text(finding: Finding) -> str:
    """What it saves, with its interval; ``"~ 1 ms"`` of an estimate, ``"≤ 1 ms"`` of the most."""
    if finding.saving_s is None:
        return MISSING
    hedge = {"at most": "≤ ", "estimate": "~ "}.get(finding.basis, "")
    text = f"{hedge}{format_s(finding.saving_s)}"
    if finding.saving_low_s is None or finding.saving_high_s is None:
        return text
    return f"{text} ({format_s(finding.saving_low_s)} … {format_s(finding.saving_high_s)})"


def names_of(analysis: Analysis, finding: Finding) -> str:
    """Where it is: the operator that costs most, with its module, and how many more there are."""
    rows = [analysis.operators[index] for index in finding.operators]
    if not rows:
        return "the whole model"
    first = max(rows, key=lambda row: row.predicted_s or row.eager_min_time_s or 0.0)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{short_op(first)} in {module_of(first)}{more}"


def machines_advice_notes(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[Notes]:
    """The section that reports on several machines have: a line a rule, with what it saves where.

    Args:
        names: the machines.
        analyses: of one model on each of them.
    """
    shares: dict[str, float] = {}
    first: dict[str, Finding] = {}
    saved: dict[str, dict[str, str]] = {}
    for name, analysis in zip(names, analyses, strict=True):
        whole_s = pass_s(analysis)
        for each in analysis.findings:
            share = (each.saving_s or 0.0) / whole_s if whole_s else 0.0
            if share > shares.get(each.rule, -1.0):
                shares[each.rule], first[each.rule] = share, each
            # Of a rule with several findings on a machine the first is the one that saves most.
            words = f"{name} {saving_text(each)}, {format_percent(share)} ({basis_words(each)})"
            saved.setdefault(each.rule, {}).setdefault(name, words)
    if not shares:
        return
    largest = sorted(shares, key=lambda rule: -shares[rule])
    lines = [
        f"{rule} · {'; '.join(saved[rule].values())} ⇒ {first[rule].change}"
        for rule in largest[:_SHOWN]
    ]
    more = len(largest) - _SHOWN
    others = f"{more} more, and evidence" if more > 0 else "the evidence"
    lines.append(f"{others}: roofline advise {analyses[0].model} --hardware NAME")
    yield from notes("What could be changed", lines)


def advice_notes(analysis: Analysis) -> Iterable[Notes]:
    """The section that reports on analyses have where something was found."""
    if not analysis.findings:
        return
    lines = [
        f"{each.rule}, {saving_text(each)} {basis_words(each)} · {names_of(analysis, each)} ·"
        f" {each.evidence} ⇒ {each.change}"
        for each in analysis.findings[:_SHOWN]
    ]
    more = len(analysis.findings) - _SHOWN
    others = f"{more} more, " if more > 0 else ""
    lines.append(
        f"{others}other layouts, types, batches and threads: roofline advise {analysis.model}"
    )
    yield from notes("What could be changed", lines)
