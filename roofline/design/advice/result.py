"""What could be changed of a model, in one value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roofline.analysis import Analysis, Finding, analysis_from_data
from roofline.foundation import reading, schema
from roofline.foundation.rows import fields_of, frame_of, json_text
from roofline.foundation.text import counted

if TYPE_CHECKING:
    import pandas

KIND = "advice"
SCHEMA_VERSION = 1

_FIX = "make it anew with `roofline advise MODEL -o FILE.json`"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice:
    """The findings on a model, and what was tried without gain.

    ``analysis`` is of the model as it is; its ``findings`` are all that was found. ``tried`` are
    other ways of running it that are not worth a change, in words.
    """

    analysis: Analysis
    tried: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What could be changed, that which is predicted to save most first."""
        return self.analysis.findings

    def __repr__(self) -> str:
        count = len(self.findings)
        return f"<Advice on {self.analysis.model}: {counted(count, 'finding')}>"

    def to_frame(self) -> pandas.DataFrame:
        """One row a finding, the fields of `Finding`; what is unknown is missing, never 0."""
        return frame_of(FRAME_COLUMNS, fields_of(FRAME_COLUMNS, self.findings))

    def to_json(self) -> str:
        """The advice as JSON text; `read_advice` gives an equal one back."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "analysis": self.analysis.to_data(),
            "tried": list(self.tried),
        }
        return json_text(data)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.reports.advice_report import write_advice

        write_advice(self, [Path(path)], overwrite=overwrite)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.advice_report import advice_html

        return advice_html(self)


_NAMES = (
    *(each.name for each in fields(Finding)[:5]),
    *("predicted_before_s", "predicted_after_s", "saving_s", "saving_low_s", "saving_high_s"),
    *("measured_before_s", "measured_after_s", "measured_saving_s"),
    *("measured_low_s", "measured_high_s", "verdict", "note"),
)
FRAME_COLUMNS = {
    name: "Float64" if name.endswith("_s") else "object" if name == "operators" else "string"
    for name in _NAMES
}
"""The columns of `Advice.to_frame` and of CSV files, with pandas' types."""


def is_advice(data: Any) -> bool:
    """Whether plain data says that it is advice."""
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("kind") == KIND


def read_advice(path: str | Path) -> Advice:
    """The advice saved in a JSON file, or the findings of an analysis saved there; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    file, data = str(path), reading.read_json(Path(path), fix=_FIX)
    if not is_advice(data):
        return Advice(analysis=analysis_from_data(data, file=file))
    schema.check_version(data, file=file, fix=_FIX)
    table = cast("dict[str, Any]", data)
    tried: Any = table.get("tried")
    is_sound = set(table) == {"schema_version", "kind", "analysis", "tried"}
    if not (is_sound and isinstance(tried, list)):
        keys = "expected the keys schema_version, kind, analysis and tried (a list)"
        raise reading.refused(file, keys, _FIX)
    words = cast("list[Any]", tried)
    if not all(isinstance(each, str) for each in words):
        raise reading.refused(file, "tried: expected texts", _FIX)
    analysis = analysis_from_data(table["analysis"], file=f"{file}: analysis")
    return Advice(analysis=analysis, tried=tuple(words))
