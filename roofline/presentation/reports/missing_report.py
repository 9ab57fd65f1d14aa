"""What `roofline operators --missing` says: the operators of a model that no formula counts."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis.words import MODEL_ITSELF
from roofline.foundation.blocks import Column, Grid, Notes, Report
from roofline.foundation.rows import csv_text, json_text
from roofline.foundation.schema import to_data
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_bytes
from roofline.presentation.reports.operators_report import (
    SCHEMA_VERSION,
)
from roofline.render.markdown import report_markdown
from roofline.workload.formulas.missing import Missing, MissingOperator


def missing_report(found: Missing) -> Report:
    """The operators of a model that no formula counts, those that move most first."""
    notes: list[Notes] = []
    if found.warnings:
        notes.append(Notes(title="Warnings", lines=tuple(map(printable, found.warnings))))
    return Report(
        headline=f"{printable(found.model)}: {_verdict(found)}",
        blocks=(*([_missing_grid(found.missing)] if found.missing else []), *notes),
    )


def _verdict(found: Missing) -> str:
    if not found.calls:
        return "nothing is missing: it calls no operator that computes or moves anything"
    if not found.missing:
        return (
            f"nothing is missing: {counted(found.calls, 'operator call')} of"
            f" {counted(found.operators, 'operator')} all have formulas"
        )
    calls = sum(each.calls for each in found.missing)
    return (
        f"FLOP are unknown of {calls} of {counted(found.calls, 'operator call')} and of"
        f" {len(found.missing)} of {counted(found.operators, 'operator')}"
    )


def _missing_grid(missing: Sequence[MissingOperator]) -> Grid:
    return Grid(
        title="Operators of unknown FLOP (their bytes are counted)",
        columns=(
            Column(heading="operator"),
            Column(heading="calls", align="right"),
            Column(heading="bytes", align="right"),
            Column(heading="reads -> writes", sacrifice=2, least=24),
            Column(heading="in", sacrifice=1, least=16, cut="start"),
            Column(heading="why"),
        ),
        rows=tuple(
            (
                printable(each.op),
                str(each.calls),
                format_bytes(each.traffic_bytes),
                printable(each.examples[0]) + _more(each.examples),
                (printable(each.modules[0]) or MODEL_ITSELF) + _more(each.modules),
                "complex numbers" if each.formula else "no formula",
            )
            for each in missing
        ),
    )


def _more(values: Sequence[str]) -> str:
    return f" and {len(values) - 1} more" if len(values) > 1 else ""


def stubs_of(found: Missing) -> str:
    """The beginnings of the formulas that are missing, as Python; ``""`` where none is."""
    stubs = [f"# {printable(each.examples[0])}\n{each.stub}" for each in found.missing if each.stub]
    return "\n\n".join(["import roofline\n", *stubs]) if stubs else ""


def render_missing(found: Missing, suffix: str) -> str:
    """The list in the format of `suffix`, one of `OPERATORS_FORMATS`."""
    match suffix.lower():
        case ".json":
            data = {"schema_version": SCHEMA_VERSION, "kind": "missing operators"}
            return json_text({**data, **to_data(found)})
        case ".csv":
            columns = ("op", "formula", "calls", "traffic_bytes")
            lists = ("phases", "modules", "examples")
            return csv_text(
                (*columns, *lists),
                (
                    [
                        *(getattr(each, name) for name in columns),
                        *("; ".join(getattr(each, name)) for name in lists),
                    ]
                    for each in found.missing
                ),
            )
        case _:
            stubs = stubs_of(found)
            fence = f"\n```python\n{stubs}```\n" if stubs else ""
            return report_markdown(missing_report(found)) + fence
