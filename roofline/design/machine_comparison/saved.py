"""Comparisons of machines in JSON files: read, and refused where they contradict themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from roofline.analysis import analysis_from_data
from roofline.design.machine_comparison.result import KIND, MachineComparison
from roofline.errors import InputError
from roofline.foundation import reading, schema

_FIX = "make it anew with `roofline analyze MODEL --hardware A --hardware B -o FILE.json`"


def is_machine_comparison(data: Any) -> bool:
    """Whether plain data says that it is a comparison of machines."""
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("kind") == KIND


def read_machine_comparison(path: str | Path) -> MachineComparison:
    """The comparison of machines saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    return machine_comparison_from_data(reading.read_json(Path(path), fix=_FIX), file=str(path))


def machine_comparison_from_data(data: Any, *, file: str) -> MachineComparison:
    """The comparison of machines in plain data, as its JSON holds it.

    Raises:
        FileFormatError: as `read_machine_comparison`.
    """
    schema.check_version(data, file=file, fix=_FIX)
    table = cast("dict[str, Any]", data)
    if not is_machine_comparison(data):
        raise reading.refused(file, "is no comparison of machines", _FIX)
    analyses = table.get("analyses")
    if set(table) != {"schema_version", "kind", "analyses"} or not isinstance(analyses, list):
        keys = "expected the keys schema_version, kind and analyses (a list)"
        raise reading.refused(file, keys, _FIX)
    found = [
        analysis_from_data(each, file=f"{file}: analyses[{i}]")
        for i, each in enumerate(cast("list[Any]", analyses))
    ]
    try:
        return MachineComparison.of(found)
    except InputError as error:
        raise reading.refused(file, str(error), _FIX) from None
