"""Quantisations into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.foundation.files import write_together
from roofline.presentation.formats import check_files, check_suffix_among, rendered
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

_WHAT = "a quantisation"


def render_quantization(
    quantization: Quantization, format: str, *, top: int | None = None
) -> str | bytes:
    """The quantisation in a format: text, or bytes for ``png``.

    Args:
        quantization: what to render; ``json`` keeps all of it, ``csv`` all layers of all widths.
        format: json, csv, md, html, png or svg.
        top: how many layers ``md`` and ``html`` show.

    Raises:
        InputError: another format.
    """
    return rendered(
        quantization,
        format,
        what=_WHAT,
        report=lambda: quantization_report(quantization, top=top),
        csv=lambda: layers_csv(quantization),
    )


def check_quantization_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that quantisations are not written with, or as `check_files`.
    """
    check_format = partial(check_suffix_among, suffixes=_FORMATS, what=_WHAT)
    check_files(paths, check_format, overwrite=overwrite)


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
