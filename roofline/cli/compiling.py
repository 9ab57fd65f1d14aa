"""``roofline analyze MODEL --compiled``: what the command does then."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.cli.results import measuring_if_needed, present_result
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.foundation.blocks import View


def check_compiled(
    *,
    hardware: tuple[str, ...],
    view: View,
    layers: bool,
    paper: str | None,
    min_coverage: float | None,
) -> None:
    """Refuses options that have no effect beside ``--compiled``.

    Raises:
        InputError: naming the option.
    """
    if len(hardware) > 1:
        raise InputError(
            f"--compiled takes one machine, and --hardware names {len(hardware)}: what Inductor"
            " generates is the same for all of them"
        )
    for option, is_given in (
        (f"--by {view.by}", view.by != "operator"),
        ("--fused", view.fused),
        ("--layers", layers),
        ("--paper", paper is not None),
        ("--min-coverage", min_coverage is not None),
    ):
        if is_given:
            raise InputError(f"{option} has no effect beside --compiled; leave one of them out")


def run_compiled(
    model: str,
    inputs: list[str] | None,
    *,
    files: tuple[Path, ...],
    stdout_format: str | None,
    top: int | None,
    force: bool,
    **options: Any,
) -> None:
    """Prints what torch.compile makes of a model, and writes its files."""
    from roofline.design.compilation import Compilation
    from roofline.foundation.blocks import View

    Compilation.check_files(files, overwrite=force)
    if stdout_format not in (None, *Compilation.formats()):
        raise InputError(
            f"--format {stdout_format}: --compiled has no picture; there are"
            f" {', '.join(Compilation.formats())}"
        )
    from roofline.pipeline.compiling import analyze_compiled

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        result = analyze_compiled(model, inputs, progress=progress, **options)
    view = View(top=top)
    present_result(result, files, stdout_format=stdout_format, view=view, force=force)
