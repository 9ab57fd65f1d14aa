"""Language models: prefill and decode on a machine, KV cache, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import MINIMUM_TIMES, minimum_times_of
from roofline.foundation.blocks import Block, View
from roofline.foundation.dtypes import DType
from roofline.foundation.units import format_byte, format_percent
from roofline.language.architecture import Architecture
from roofline.language.memory import Cache, Footprint, activations_of, fit_of
from roofline.language.parts import Stage
from roofline.language.placing import PlacedStage
from roofline.language.stages import StageResult
from roofline.language.sweep import StageSweep, SweepCell
from roofline.language.weight_bits import BitsWhatIf
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASKED = {
    **dict.fromkeys(("flop", "weight_byte", "cache_byte"), "Int64"),
    "bound": "string",
    **dict.fromkeys(("compute_share", "bound_s", "model_min_time_s", "tokens_per_s"), "Float64"),
}
"""Columns of the architecture, which begin with ``asked_``; the others are of transformers, and
missing in cells of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Language(Result):
    """A language model on a machine: its stages, its KV cache, its memory.

    Attributes:
        configuration: as plain data.
        dtype: of most parameters.
        stages: prefill, decode, or both in this order.
        weight_bits: the same with weights in fewer bits.
        sweep: over batch and context; None: not asked for.

    Raises:
        ValueError: no stage, or one of another batch or context.
    """

    kind: ClassVar = "language model"
    made_by: ClassVar = "roofline analyze hf:TYPE --context N -o FILE.json"
    columns: ClassVar = {
        "stage": "string",
        "batch": "Int64",
        "context": "Int64",
        "is_swept": "boolean",
        **dict.fromkeys(("tokens", "flop", "multiply_add", "traffic_byte"), "Int64"),
        "bound": "string",
        **dict.fromkeys(("bound_s", *MINIMUM_TIMES), "Float64"),
        **dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"), "Float64"),
        **dict.fromkeys(("bound_tokens_per_s", "predicted_tokens_per_s"), "Float64"),
        **dict.fromkeys(("predicted_low_tokens_per_s", "predicted_high_tokens_per_s"), "Float64"),
        **{f"asked_{name}": dtype for name, dtype in _ASKED.items()},
        "footprint_byte": "Int64",
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
        """Return the stage of that name; None: not asked for."""
        return next((each for each in self.stages if each.stage == name), None)

    @property
    def hardware(self) -> HardwareProfile:
        """The machine of all stages."""
        return self.stages[0].analysis.hardware

    @property
    def threads(self) -> int:
        """Threads of all stages."""
        return self.stages[0].analysis.threads

    @property
    def has_curves(self) -> bool:
        """Whether there is a sweep of several values, each with a rate, to draw."""
        sweep = self.sweep
        return (
            sweep is not None
            and max(len(sweep.batches), len(sweep.contexts)) > 1
            and all(each.tokens_per_s for each in sweep.cells)
        )

    @property
    def summary(self) -> str:
        """Tokens/s and limiter of each stage, and the memory."""
        parts = [*map(_verdict, self.stages), _memory_words(self.footprint)]
        return f"{self.model} on {self.hardware.name} (eager transformers): {'; '.join(parts)}"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each stage, then one for each cell of the sweep."""
        cells = self.sweep.cells if self.sweep else ()
        for row in (*map(self._stage_row, self.stages), *map(_cell_row, cells)):
            yield [row.get(name) for name in self.columns]

    def _stage_row(self, stage: StageResult) -> dict[str, Any]:
        totals, run = stage.analysis.totals, stage.analysis.prediction
        # Sums that leave something out are no numbers of the whole.
        is_whole = not totals.unknown_operators
        activations = activations_of(self.architecture, stage.stage, self.dtype)
        footprint = self.footprint
        byte = footprint.weight_byte + footprint.cache_byte
        byte += activations.byte(self.context, self.batch)
        row = {
            "stage": stage.stage,
            "batch": stage.batch,
            "context": stage.context,
            "is_swept": False,
            "tokens": stage.tokens,
            "flop": totals.flop if is_whole else None,
            "multiply_add": totals.multiply_add if is_whole else None,
            "traffic_byte": totals.traffic_byte,
            "bound": stage.limiter.value,
            "bound_s": stage.bound_s,
            **minimum_times_of(totals),
            **_asked(stage.asked),
            "footprint_byte": byte,
            "fit": fit_of(byte, totals.peak_memory_byte, footprint.memory.byte),
        }
        if run:
            row |= {"predicted_s": run.predicted_s, "predicted_low_s": run.low_s}
            row["predicted_high_s"] = run.high_s
        if rate := stage.bound_rate:
            row["bound_tokens_per_s"] = rate.tokens_per_s
        if rate := stage.predicted_rate:
            row["predicted_tokens_per_s"] = rate.tokens_per_s
            row["predicted_low_tokens_per_s"] = rate.low_per_s
            row["predicted_high_tokens_per_s"] = rate.high_per_s
        return row

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, tables of stages, parts, cache, experts, weight bits and sweep, notes.

        ``view.top`` adds that many operators of each stage.
        """
        from roofline.language.blocks import language_blocks

        return language_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 16, sweep: bool | None = None) -> None:
        """Draw the parts of all stages under the roofline, or tokens/s over batch or context.

        Args:
            figure: an empty one.
            labels: number of parts to name under the roofline, where there is room.
            sweep: draw the sweep; None: where `has_curves`.
        """
        from roofline.language.drawing import draw_stages, draw_sweep

        if self.sweep and self.has_curves and sweep is not False:
            draw_sweep(figure, self, self.sweep)
        else:
            draw_stages(figure, self, labels)

    def page(self, view: View) -> str:
        """Return an HTML page with all pictures: the sweep if any, the stages, and the report."""
        from roofline.render.pages import page_html

        drawn = (
            self._saved_picture("svg", {"sweep": each}).decode("utf-8")
            for each in ((True, False) if self.has_curves else (False,))
        )
        pictures = "".join(each[each.index("<svg") :] for each in drawn)
        return page_html(self.report(view), pictures)


def _asked(asked: PlacedStage | SweepCell) -> dict[str, Any]:
    return {f"asked_{name}": getattr(asked, name) for name in _ASKED} | {
        "asked_bound": asked.bound.value
    }


def _cell_row(cell: SweepCell) -> dict[str, Any]:
    return {
        "stage": cell.stage,
        "batch": cell.batch,
        "context": cell.context,
        "is_swept": True,
        "tokens": cell.batch * (cell.context if cell.stage == "prefill" else 1),
        **_asked(cell),
        "footprint_byte": cell.footprint_byte,
        "fit": cell.fit,
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
    takes, memory = format_byte(footprint.byte), format_byte(footprint.memory.byte)
    match footprint.fit:
        case "fits":
            return f"{takes} fit into {memory}"
        case "fits at the least":
            return f"{takes} without copies fit into {memory}"
        case "only without copies":
            peak = format_byte(footprint.peak_byte)
            return f"{takes} fit into {memory}, but not the peak of {peak} in transformers"
        case "does not fit":
            return f"{takes} do not fit into {memory}"
        case "unknown":
            return f"{takes} of memory"
