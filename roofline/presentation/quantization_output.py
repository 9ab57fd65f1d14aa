"""Quantisations into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.presentation.formats import PICTURED, check_formats, rendered, write_formats
from roofline.presentation.reports.quantization_report import quantization_report
from roofline.quantization.data import layers_csv
from roofline.quantization.result import Quantization

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
        InputError: a suffix that quantisations are not written with, or as `check_formats`.
    """
    check_formats(paths, PICTURED, _WHAT, overwrite=overwrite)


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
    render = partial(render_quantization, quantization, top=top)
    write_formats(paths, PICTURED, _WHAT, render, overwrite=overwrite)
