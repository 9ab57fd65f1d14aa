"""Baselines in JSON files: written, and read again; a saved analysis may stand for one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast

from roofline.analysis import Analysis, analysis_from_data
from roofline.design.gate.cost import Cost, cost_of
from roofline.design.gate.settings import check_repeated
from roofline.errors import InputError
from roofline.foundation import schema
from roofline.foundation.files import check_writable, write_atomically
from roofline.foundation.reading import read_json, refused
from roofline.foundation.rows import json_text

KIND = "baseline"
"""What such a file says it is."""

_FIX = "write it again with `roofline check MODEL --against FILE.json --update`"
_OURS = re.compile(rb'"kind"\s*:\s*"baseline"')
_HEAD_BYTE = 2**20


def baseline_json(cost: Cost) -> str:
    """The cost as the text of a baseline; `read_baseline` gives an equal one back."""
    data = {"schema_version": schema.VERSION, "kind": KIND, **schema.to_data(cost)}
    return json_text(data)


def read_baseline(path: str | Path) -> Cost:
    """The cost in a baseline, or that of a saved analysis; needs no torch.

    Raises:
        InputError: there is none, or it is an analysis of a first pass.
        FileFormatError: not readable, not ours, cut short, or written by a newer version.
    """
    file = Path(path)
    if not os.path.lexists(file):
        raise InputError(f"{file}: there is no baseline yet; add --update to write the first")
    data = read_json(file, fix=_FIX)
    if not isinstance(data, dict):
        raise refused(str(file), "not a baseline: expected a table with keys", _FIX)
    table = cast("dict[str, Any]", data)
    kind = table.get("kind", "")
    if kind == KIND:
        newest = schema.check_version(table, file=str(file), fix=_FIX)
        kept = {key: each for key, each in newest.items() if key not in ("schema_version", "kind")}
        return schema.from_data(Cost, kept, file=str(file), fix=_FIX)
    if not kind:
        raise refused(str(file), "not a baseline: it has no 'kind'", _FIX)
    if kind != Analysis.kind:
        raise refused(str(file), f"is of the kind '{kind}', not a baseline or an analysis", _FIX)
    analysis = analysis_from_data(table, file=str(file))
    check_repeated(analysis, what=str(file))
    return cost_of(analysis)


def check_baseline_target(path: Path, *, overwrite: bool) -> None:
    """Refuses, before any work is done, a file that no baseline could be written to in the end.

    A baseline may be replaced, a damaged one too; a file that is something else may not.

    Args:
        path: where.
        overwrite: whether there may be one.

    Raises:
        InputError: another suffix than .json, a file that is no baseline, or as `check_writable`.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"--against {path}: baselines are written as .json")
    check_writable(path, overwrite=overwrite)
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; name another file, or delete this one"
        ) from None
    # Conflict markers, or an end that is missing, make it no less a baseline.
    if head.strip() and not _OURS.search(head):
        raise InputError(
            f"{path}: is no baseline, and --update would replace it; name another file, or delete"
            " this one first"
        )


def write_baseline(cost: Cost, path: str | Path, *, overwrite: bool = False) -> None:
    """Writes the cost as a baseline, whole or not at all.

    Args:
        cost: what it is from now on.
        path: where; .json.
        overwrite: whether there may be one.

    Raises:
        InputError: another suffix, the file exists and `overwrite` is false, it is no baseline, or
            it cannot be written.
    """
    check_baseline_target(Path(path), overwrite=overwrite)
    write_atomically(Path(path), baseline_json(cost), overwrite=overwrite)
