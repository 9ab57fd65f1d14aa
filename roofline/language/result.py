"""What a language model comes to on a machine: the value that `roofline.analyze_language` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.foundation.dtypes import DType
from roofline.foundation.rows import json_text
from roofline.language.architecture import Architecture
from roofline.language.cache import Cache
from roofline.language.footprint import Footprint
from roofline.language.parts import Stage
from roofline.language.stages import StageResult
from roofline.language.sweep import StageSweep
from roofline.language.weight_bits import BitsWhatIf
from roofline.machine.hardware import HardwareProfile

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Language:
    """A language model on a machine: its stages, its cache, its memory.

    ``configuration`` is the whole of it as plain data, ``dtype`` the type of most parameters.
    ``stages`` are those that were asked for, prefill first. ``bits`` and ``sweep`` are there where
    they were asked for. ``notes`` say what was filled in and how to read the numbers.
    """

    model: str
    configuration: Mapping[str, Any]
    architecture: Architecture
    dtype: DType
    hardware: HardwareProfile
    threads: int
    batch: int
    context: int
    cache: Cache
    footprint: Footprint
    stages: tuple[StageResult, ...]
    bits: tuple[BitsWhatIf, ...] = ()
    sweep: StageSweep | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Language: {self.summary}>"

    def stage(self, name: Stage) -> StageResult | None:
        """The stage of that name; None: it was not asked for."""
        return next((each for each in self.stages if each.stage == name), None)

    @property
    def summary(self) -> str:
        """The verdict, in a sentence."""
        from roofline.language.verdict import verdict

        return verdict(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a stage, batch and context: those that were asked for, then the sweep's."""
        from roofline.language.data import stages_frame

        return stages_frame(self)

    def to_json(self) -> str:
        """All of it as JSON text, the analyses of its stages whole."""
        from roofline.language.data import data_of

        return json_text(data_of(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.language_output import write_language

        write_language(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """Its stages under the roof, or its sweep where there is one, in a matplotlib Figure.

        The options are those of `language_figure.plot_language`.
        """
        from roofline.presentation.language_figure import plot_language

        return plot_language(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.language_report import language_html

        return language_html(self)
