"""Analyses in JSON files: written, read, and refused where they contradict themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofline.analysis.consistency import contradictions
from roofline.analysis.result import Analysis
from roofline.analysis.versions import SCHEMA_VERSION, STEPS
from roofline.foundation import reading, schema
from roofline.machine.hardware import migrated_profile

_FIX = "make it anew with `roofline analyze MODEL -o FILE.json`"


def to_json(analysis: Analysis) -> str:
    """The analysis as JSON text; `read_analysis` gives an equal one back."""
    return analysis.to_json()


def read_analysis(path: str | Path) -> Analysis:
    """The analysis saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    return analysis_from_data(reading.read_json(Path(path), fix=_FIX), file=str(path))


def analysis_from_data(data: Any, *, file: str) -> Analysis:
    """The analysis in plain data, as its JSON holds it.

    Raises:
        FileFormatError: as `read_analysis`; what is shown of a file must follow from its rows.
    """
    if isinstance(data, dict) and "analyses" in data:
        raise reading.refused(file, "holds several analyses, where one is expected", _FIX)
    newest = schema.migrated(data, STEPS, newest=SCHEMA_VERSION, file=file, fix=_FIX)
    if isinstance(newest.get("hardware"), dict):
        hardware = migrated_profile(newest["hardware"], file=f"{file}: hardware", fix=_FIX)
        newest = {**newest, "hardware": hardware}
    analysis = schema.from_data(Analysis, newest, file=file, fix=_FIX)
    for contradiction in contradictions(analysis):
        raise reading.refused(file, f"{contradiction}: the file was changed or cut", _FIX)
    return analysis
