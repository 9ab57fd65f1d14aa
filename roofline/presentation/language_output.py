"""Language models into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.language.data import stages_csv
from roofline.language.result import Language
from roofline.presentation.charts.language_sweep_chart import can_be_swept
from roofline.presentation.formats import PICTURED, check_formats, rendered, write_formats
from roofline.presentation.reports.language_report import language_report

_WHAT = "a language model"


def render_language(language: Language, format: str, *, top: int | None = None) -> str | bytes:
    """The language model in a format: text, or bytes for ``png``.

    Args:
        language: what to render; ``json`` keeps all of it, ``csv`` stages and sweep.
        format: json, csv, md, html, png or svg.
        top: how many operators of each stage ``md`` and ``html`` show; None: none.

    Raises:
        InputError: another format.
    """
    if format == "html" and can_be_swept(language):
        return _page_of_both(language, top)
    return rendered(
        language,
        format,
        what=_WHAT,
        report=lambda: language_report(language, top=top),
        csv=lambda: stages_csv(language),
    )


def _page_of_both(language: Language, top: int | None) -> str:
    """The page with both pictures: the sweep, then the stages under the roof."""
    from roofline.presentation.drawing import savefig_bytes
    from roofline.presentation.language_figure import plot_language
    from roofline.render.pages import page_html

    drawn = [
        savefig_bytes(plot_language(language, sweep=each), "svg").decode("utf-8")
        for each in (True, False)
    ]
    pictures = "".join(each[each.index("<svg") :] for each in drawn)
    return page_html(language_report(language, top=top), pictures)


def check_language_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that language models are not written with, or as `check_formats`.
    """
    check_formats(paths, PICTURED, _WHAT, overwrite=overwrite)


def write_language(
    language: Language,
    paths: Sequence[Path],
    *,
    top: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the language model to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_language_targets`, or the disk refuses.
    """
    render = partial(render_language, language, top=top)
    write_formats(paths, PICTURED, _WHAT, render, overwrite=overwrite)
