"""Baselines in JSON files: written, and read again; a saved analysis may stand for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from roofline.analysis import analysis_from_data
from roofline.design.gate.cost import Cost, cost_of
from roofline.errors import InputError
from roofline.foundation import schema
from roofline.foundation.files import write_atomically
from roofline.foundation.reading import read_json, refused

SCHEMA_VERSION = 1
"""Of baselines; any change that an older reader would misread or refuse is a new version."""

KIND = "baseline"
"""What such a file says it is."""

_FIX = "write it anew with `roofline check MODEL --against FILE.json --update`"


def baseline_json(cost: Cost) -> str:
    """The cost as the text of a baseline; `read_baseline` gives an equal one back."""
    data = {"schema_version": SCHEMA_VERSION, "kind": KIND, **schema.to_data(cost)}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def read_baseline(path: str | Path) -> Cost:
    """The cost in a baseline, or that of a saved analysis; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, or written by a newer version.
    """
    file = Path(path)
    if not file.exists() and not file.is_symlink():
        raise InputError(f"{file}: there is no baseline yet; add --update to write the first")
    data = read_json(file, fix=_FIX)
    if not isinstance(data, dict):
        raise refused(str(file), "not a baseline: expected a table with keys", _FIX)
    table = cast("dict[str, Any]", data)
    kind = table.get("kind", "")
    if kind == KIND:
        schema.check_version(table, newest=SCHEMA_VERSION, file=str(file), fix=_FIX)
        kept = {key: each for key, each in table.items() if key not in ("schema_version", "kind")}
        return schema.from_data(Cost, kept, file=str(file), fix=_FIX)
    if kind:
        raise refused(str(file), f"is of the kind '{kind}', not a baseline or an analysis", _FIX)
    return cost_of(analysis_from_data(table, file=str(file)))


def check_baseline_target(path: Path) -> None:
    """Refuses, before any work is done, a name that no baseline can have.

    Raises:
        InputError: another suffix than .json.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"--against {path}: baselines are written as .json")


def write_baseline(cost: Cost, path: str | Path, *, overwrite: bool = False) -> None:
    """Writes the cost as a baseline, whole or not at all.

    Args:
        cost: what it is from now on.
        path: where; .json.
        overwrite: whether there may be one.

    Raises:
        InputError: another suffix, the file exists and `overwrite` is false, or it cannot be
            written.
    """
    check_baseline_target(Path(path))
    write_atomically(Path(path), baseline_json(cost), overwrite=overwrite)
