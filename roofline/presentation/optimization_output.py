"""Optimizations into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.errors import InputError
from roofline.presentation.formats import PICTURED, check_formats, rendered, write_formats
from roofline.presentation.reports.optimization_report import optimization_report
from roofline.substitution.data import rewrites_csv
from roofline.substitution.result import Optimization

_FORMATS = {**PICTURED, ".pt2": "pt2"}
"""What optimizations are written as, by suffix; ``pt2`` is the module itself."""

_WHAT = "an optimization"


def render_optimization(
    optimization: Optimization, format: str, *, top: int | None = None
) -> str | bytes:
    """The optimization in a format: text, or bytes for ``png`` and ``pt2``.

    Args:
        optimization: what to render; ``json`` keeps all of it but the module, ``csv`` all rewrites.
        format: json, csv, md, html, png, svg or pt2.
        top: how many rewrites ``md`` and ``html`` show.

    Raises:
        InputError: another format, or a module that torch cannot export.
    """
    if format == "pt2":
        return _program(optimization)
    return rendered(
        optimization,
        format,
        what=_WHAT,
        report=lambda: optimization_report(optimization, top=top),
        csv=lambda: rewrites_csv(optimization),
    )


def _program(optimization: Optimization) -> bytes:
    from roofline.substitution.graphs.saving import exported_program

    if optimization.module is None or optimization.arguments is None:
        raise InputError(
            f"{optimization.model}: this optimization holds no module; run"
            " roofline.optimize anew and save what it gives"
        )
    return exported_program(optimization.module, optimization.arguments, name=optimization.model)


def is_module(path: Path) -> bool:
    """Whether a file holds the module itself, by its suffix."""
    return path.suffix.lower() == ".pt2"


def module_words(optimization: Optimization, path: Path) -> str:
    """What a .pt2 file holds, and how to load it."""
    kept = "the original, for nothing faster was found" if optimization.is_kept else "the result"
    return f"{path} holds {kept}; load it with torch.export.load({str(path)!r}).module()"


def check_optimization_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that optimizations are not written with, or as `check_formats`.
    """
    check_formats(paths, _FORMATS, _WHAT, overwrite=overwrite)


def write_optimization(
    optimization: Optimization,
    paths: Sequence[Path],
    *,
    top: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the optimization to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_optimization_targets` and `render_optimization`, or the disk refuses.
    """
    render = partial(render_optimization, optimization, top=top)
    write_formats(paths, _FORMATS, _WHAT, render, overwrite=overwrite)
