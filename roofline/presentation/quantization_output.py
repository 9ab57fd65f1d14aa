"""Quantisations into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable, write_together
from roofline.presentation.markdown import report_markdown
from roofline.presentation.reports.quantization_report import quantization_report
from roofline.quantization.data import layers_csv
from roofline.quantization.result import Quantization

_FORMATS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".html": "html",
    ".png": "png",
    ".svg": "svg",
}
"""What quantisations are written as, by suffix."""


def render_quantization(
    quantization: Quantization, format: str, *, top: int | None = None
) -> str | bytes:
    """The quantisation in a format: text, or bytes for ``png``.

    Args:
        quantisation: what to render; ``json`` keeps all of it, ``csv`` all layers of all widths.
        format: json, csv, md, html, png or svg.
        top: how many layers ``md`` and ``html`` show.

    Raises:
        InputError: another format.
    """
    match format:
        case "json":
            return quantization.to_json()
        case "csv":
            return layers_csv(quantization)
        case "md":
            return report_markdown(quantization_report(quantization, top=top))
        case "html":
            from roofline.presentation.drawing import savefig_bytes
            from roofline.presentation.page import page_html

            picture = savefig_bytes(quantization.plot(), "svg").decode("utf-8")
            return page_html(quantization_report(quantization, top=top), picture)
        case "png" | "svg":
            from roofline.presentation.drawing import savefig_bytes

            drawn = savefig_bytes(quantization.plot(), format)
            return drawn if format == "png" else drawn.decode("utf-8")
        case _:
            raise InputError(f"a quantisation is not written as {format}")


def check_quantization_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that quantisations are not written with, the same file twice, or as
            `check_writable`.
    """
    seen: set[Path] = set()
    for path in paths:
        suffix = path.suffix.lower()
        if suffix not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise InputError(
                f"{path}: a quantisation is written as {known}{nearest(suffix, _FORMATS)}"
            )
        check_writable(path, overwrite=overwrite)
        if path.resolve() in seen:
            raise InputError(f"{path}: is named twice; give each file once")
        seen.add(path.resolve())


def write_quantization(
    quantization: Quantization,
    paths: Sequence[Path],
    *,
    top: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the quantisation to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_quantization_targets`, or the disk refuses.
    """
    check_quantization_targets(paths, overwrite=overwrite)
    contents = {
        path: render_quantization(quantization, _FORMATS[path.suffix.lower()], top=top)
        for path in paths
    }
    write_together(contents, overwrite=overwrite)
