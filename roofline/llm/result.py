"""Result of `llm`: prefill and decode on a machine, KV cache and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import MINIMUM_TIMES, minimum_times_of
from roofline.core.blocks import Block, View
from roofline.core.dtypes import DType
from roofline.core.units import format_bytes, format_memory, format_percent
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Cache, Footprint, activations_of, fit_of
from roofline.llm.parts import Stage
from roofline.llm.stages import StageResult
from roofline.llm.sweep import StageSweep, SweepCell
from roofline.llm.weight_bits import BitsWhatIf
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASKED = {
    **dict.fromkeys(("flop", "weight_bytes", "cache_bytes"), "Int64"),
    "bound": "string",
    **dict.fromkeys(("compute_share", "model_min_time_s", "tokens_per_s"), "Float64"),
}
"""Columns of the architecture, prefixed ``asked_``. Others are of transformers, missing in sweeps.
"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Language(Result):
    """Language model on a machine: stages, KV cache and memory.

    Attributes:
        configuration: of the model, as plain data.
        dtype: data type of most parameters.
        stages: prefill, decode, or both in this order.
        weight_bits: weight-only quantization what-ifs.
        sweep: over batch and context; None without one.

    Raises:
        ValueError: without stages, or with one of another batch or context.
    """

    kind: ClassVar = "language model"
    made_by: ClassVar = "roofline llm hf:TYPE --context N -o FILE.json"
    columns: ClassVar = {
        "stage": "string",
        "batch": "Int64",
        "context": "Int64",
        "is_swept": "boolean",
        **dict.fromkeys(("tokens", "flop", "macs", "traffic_bytes"), "Int64"),
        "bound": "string",
        **dict.fromkeys(MINIMUM_TIMES, "Float64"),
        **dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"), "Float64"),
        **dict.fromkeys(("max_tokens_per_s", "predicted_tokens_per_s"), "Float64"),
        **dict.fromkeys(("predicted_low_tokens_per_s", "predicted_high_tokens_per_s"), "Float64"),
        **{f"asked_{name}": dtype for name, dtype in _ASKED.items()},
        "footprint_bytes": "Int64",
        "fit": "string",
    }
    ALSO_WRITTEN: ClassVar = ("summary",)

    model: str
    configuration: Mapping[str, Any]
    architecture: Architecture
    dtype: DType
    batch: int
    context: int
    cache: Cache
    footprint: Footprint
    stages: tuple[StageResult, ...]
    weight_bits: tuple[BitsWhatIf, ...] = ()
    sweep: StageSweep | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if {(each.batch, each.context) for each in self.stages} != {(self.batch, self.context)}:
            raise ValueError(f"stages: not all of batch {self.batch}, context {self.context}")

    def stage(self, name: Stage) -> StageResult | None:
        """Return the stage of that name; None if it is missing."""
        return next((each for each in self.stages if each.stage == name), None)

    @property
    def hardware(self) -> HardwareProfile:
        """Machine of all stages."""
        return self.stages[0].analysis.hardware

    @property
    def has_curves(self) -> bool:
        """True for a sweep of several values with known rates."""
        sweep = self.sweep
        return (
            sweep is not None
            and max(len(sweep.batches), len(sweep.contexts)) > 1
            and all(each.tokens_per_s for each in sweep.cells)
        )

    @property
    def summary(self) -> str:
        """Verdict: tokens/s and limiter of each stage, and memory."""
        parts = [*map(_verdict, self.stages), _memory_words(self.footprint)]
        return f"{self.model} on {self.hardware.name} (eager transformers): {'; '.join(parts)}"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each stage, then one for each cell of the sweep."""
        cells = self.sweep.cells if self.sweep else ()
        for row in (*map(self._stage_row, self.stages), *map(_cell_row, cells)):
            yield [row.get(name) for name in self.columns]

    def _stage_row(self, stage: StageResult) -> dict[str, Any]:
        totals, run = stage.analysis.totals, stage.analysis.prediction
        rate, predicted = stage.bound_rate, stage.predicted_rate
        # Incomplete sums are not reported as totals.
        is_whole = not totals.unknown_operators
        of, activations = self.footprint, activations_of(self.architecture, stage.stage, self.dtype)
        byte = of.weight_bytes + of.cache_bytes + activations.byte(self.context, self.batch)
        return {
            **_cells(stage, ("stage", "batch", "context", "tokens")),
            "is_swept": False,
            "flop": totals.flop if is_whole else None,
            "macs": totals.macs if is_whole else None,
            "traffic_bytes": totals.traffic_bytes,
            "bound": stage.limiter.value,
            **minimum_times_of(totals),
            **_cells(run, ("predicted_s",)),
            **_cells(run, ("low_s", "high_s"), "predicted_"),
            **_cells(rate, ("tokens_per_s",), "max_"),
            **_cells(predicted, ("tokens_per_s",), "predicted_"),
            "predicted_low_tokens_per_s": predicted and predicted.low_per_s,
            "predicted_high_tokens_per_s": predicted and predicted.high_per_s,
            **_cells(stage.asked, _ASKED, "asked_"),
            "footprint_bytes": byte,
            "fit": fit_of(byte, totals.peak_memory_bytes, of.memory.size_bytes),
        }

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, tables of stages, parts, cache, experts, weight bits and sweep, notes.

        ``view.top`` adds that many operators of each stage.
        """
        from roofline.llm.blocks import language_blocks

        return language_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 16, sweep: bool | None = None) -> None:
        """Draw the parts of all stages under the roofline, or tokens/s over batch or context.

        Args:
            figure: an empty one.
            labels: number of parts to name under the roofline, where there is room.
            sweep: draw the sweep; None: where `has_curves`.
        """
        from roofline.llm.drawing import draw_stages, draw_sweep

        if self.sweep and self.has_curves and sweep is not False:
            draw_sweep(figure, self, self.sweep)
        else:
            draw_stages(figure, self, labels)

    def page(self, view: View) -> str:
        """Return an HTML page with all plots and the report."""
        from roofline.render.pages import page_html

        drawn = (
            self._saved_picture("svg", {"sweep": each}).decode("utf-8")
            for each in ((True, False) if self.has_curves else (False,))
        )
        pictures = "".join(each[each.index("<svg") :] for each in drawn)
        return page_html(self.report(view), pictures)


def _cells(of: object, names: Iterable[str], before: str = "") -> dict[str, Any]:
    """Return attributes by prefixed name; None without an object."""
    return {f"{before}{name}": None if of is None else getattr(of, name) for name in names}


def _cell_row(cell: SweepCell) -> dict[str, Any]:
    return {
        **_cells(cell, ("stage", "batch", "context", "footprint_bytes", "fit")),
        "is_swept": True,
        "tokens": cell.batch * (cell.context if cell.stage == "prefill" else 1),
        **_cells(cell, _ASKED, "asked_"),
    }


def _verdict(stage: StageResult) -> str:
    rate, predicted = stage.bound_rate, stage.predicted_rate
    if rate is None:
        return f"{stage.stage} rate unknown (no ceilings)"
    words = f"{stage.stage} at most {rate.words} tokens/s"
    if predicted:
        words += f" ({predicted.words} predicted)"
    limiter = stage.limiter
    if limiter is Bound.UNKNOWN:
        return words
    return f"{words}, {limiter.value}-bound for {format_percent(stage.shares[limiter])}"


def _memory_words(footprint: Footprint) -> str:
    takes, memory = format_bytes(footprint.total_bytes), format_memory(footprint.memory.size_bytes)
    peak = f"the peak of {format_bytes(footprint.peak_bytes)} in transformers does not"
    return {
        "fits": f"{takes} fit into {memory}",
        "minimum fits": f"minimum {takes} fit into {memory}",
        "only without copies": f"minimum {takes} fit into {memory}, {peak}",
        "does not fit": f"{takes} do not fit into {memory}",
        "unknown": f"{takes} of memory",
    }[footprint.fit]
