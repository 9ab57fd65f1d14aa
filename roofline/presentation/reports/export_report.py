"""What `roofline export` says, as plain data."""

from __future__ import annotations

from roofline.design.export import Export, ExportedFile
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_shape,
    format_si,
)
from roofline.render.markdown import report_markdown


def export_report(export: Export) -> Report:
    """The report on files that were written: what they give, what they ask for, and why."""
    blocks: list[Block] = []
    if export.inputs:
        given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in export.inputs)
        blocks.append(Facts(lines=(("input", given),)))
    blocks.append(_files(export))
    blocks += [_changes(each) for each in export.files if each.changes]
    if export.warnings:
        lines = tuple(map(printable, export.warnings))
        blocks.append(Notes(title="Warnings", lines=lines))
    return Report(headline=_headline(export), blocks=tuple(blocks))


def render_export(export: Export, format: str) -> str:
    """The export as ``json`` or ``md``."""
    return export.to_json() if format == "json" else report_markdown(export_report(export))


def _headline(export: Export) -> str:
    worst = max(each.largest_error for each in export.files)
    same = all(each.macs == export.macs for each in export.files)
    names = " and ".join(printable(each.path) for each in export.files)
    counted = (
        f"{'its' if len(export.files) == 1 else 'their'} multiply-adds are those of the model"
        f" ({format_si(export.macs, '', 4)})"
        if same
        else "multiply-adds differ from the model's"
    )
    gives = "gives" if len(export.files) == 1 else "give"
    exactly = "exactly what" if not worst else "what"
    within = "" if not worst else f" to {worst:.1e} of the largest value"
    return f"{names} {gives} {exactly} {printable(export.model)} gives{within}; {counted}"


def _files(export: Export) -> Grid:
    columns = (
        Column(heading="file", least=12, cut="start"),
        Column(heading="size", align="right"),
        Column(heading="largest difference", align="right"),
        Column(heading="multiply-adds", align="right"),
        Column(heading="FLOP", align="right"),
        Column(heading="operators of unknown FLOP", align="right", sacrifice=1),
    )
    model = (
        "(the model)",
        MISSING,
        MISSING,
        f"{export.macs:,}",
        format_flop(export.flop),
        str(export.unknown_operators),
    )
    rows = [
        (
            printable(each.path) + (f" (opset {each.opset})" if each.opset else ""),
            format_bytes(each.size_bytes),
            f"{each.largest_error:.1e} ≤ {each.limit:.0e}",
            f"{each.macs:,}",
            format_flop(each.flop),
            str(each.unknown_operators),
        )
        for each in export.files
    ]
    return Grid(title="Read again", columns=columns, rows=(model, *rows))


def _changes(file: ExportedFile) -> Grid:
    columns = (
        Column(heading="operator"),
        Column(heading="calls", align="right"),
        Column(heading="in the file", align="right"),
        Column(heading="FLOP", align="right"),
        Column(heading="in the file", align="right"),
        Column(heading="why", least=30),
    )
    rows = tuple(
        (
            printable(each.op.removeprefix("aten.")),
            str(each.calls_before),
            str(each.calls_after),
            _flop(each.flop_before),
            _flop(each.flop_after),
            each.reason or "not explained",
        )
        for each in file.changes
    )
    return Grid(
        title=f"Operators with other FLOP in {printable(file.path)}", columns=columns, rows=rows
    )


def _flop(value: int | None) -> str:
    return MISSING if value is None else format_flop(value)
