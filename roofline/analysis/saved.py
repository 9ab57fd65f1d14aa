"""Analyses in JSON files: written, read, and refused where they contradict themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofline.analysis.result import Analysis
from roofline.foundation import reading

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
    return Analysis.from_data(data, file=file)
