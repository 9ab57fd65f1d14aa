"""Result of `llm`: prefill and decode of a language model in serving runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis.rows import MINIMUM_TIMES, minimum_times_of
from roofline.core.blocks import Block, View
from roofline.core.dtypes import DType
from roofline.core.sampling import interval_cell
from roofline.core.text import counted
from roofline.core.units import format_bytes, format_memory, format_percent, format_s
from roofline.errors import InputError, argument
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Cache, Footprint, fit_of
from roofline.llm.parts import Stage
from roofline.llm.serving import ServedStage, ServingCell, WhatIf
from roofline.llm.stages import StageResult, rate_text
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound
from roofline.result import Result
from roofline.scaling.settings import RankLink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Engine = Literal["paged", "transformers"]
ENGINES: tuple[Engine, ...] = ("paged", "transformers")


def check_engine(engine: object, **given: object) -> None:
    """Refuse options that have no effect on a paged engine; None: not given."""
    for name, value in given.items():
        if engine == "paged" and value is not None:
            raise InputError(
                f"{argument(name)}: has no effect on a paged engine; add"
                f" {argument('engine', 'transformers')}"
            )


_ASKED = {
    **dict.fromkeys(("flop", "weight_bytes", "cache_bytes"), "Int64"),
    "bound": "string",
    **dict.fromkeys(("compute_share", "model_min_time_s", "tokens_per_s"), "Float64"),
}
"""Columns of the architecture, prefixed ``asked_``. Others are of transformers, missing in sweeps.
"""

_RUN = {"machine": "string", "ranks": "Int64", "weights": "string", "cache": "string"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Language(Result):
    """Language model on machines: serving runs, KV cache and memory.

    Attributes:
        configuration: of the model, as plain data.
        dtype: data type of weights that are not quantized.
        engine: of the headline.
        machines: all of the runs, the headline's first.
        threads: on the first machine.
        stages: of the first run: prefill, decode, or both in this order.
        cells: serving runs of a paged engine, the headline's first.
        what_ifs: changes of the headline's run.
        quantized_head: quantized formats include embedding and head.
        prefix_share: share of the context that all sequences have in common.
        link: between tensor-parallel ranks of the first machine.

    Raises:
        ValueError: without stages, or with one of another batch or context.
    """

    kind: ClassVar = "language model"
    made_by: ClassVar = "roofline llm MODEL --context N -o FILE.json"
    columns: ClassVar = {
        "stage": "string",
        "batch": "Int64",
        "context": "Int64",
        "is_swept": "boolean",
        **_RUN,
        **dict.fromkeys(("tokens", "flop", "macs", "traffic_bytes"), "Int64"),
        "bound": "string",
        **dict.fromkeys(MINIMUM_TIMES, "Float64"),
        **dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"), "Float64"),
        **dict.fromkeys(("max_tokens_per_s", "predicted_tokens_per_s"), "Float64"),
        **dict.fromkeys(("predicted_low_tokens_per_s", "predicted_high_tokens_per_s"), "Float64"),
        **{f"asked_{name}": dtype for name, dtype in _ASKED.items()},
        "link_bytes": "Int64",
        "link_s": "Float64",
        "footprint_bytes": "Int64",
        "fit": "string",
        "max_sequences": "Int64",
        "crossover": "Int64",
    }
    ALSO_WRITTEN: ClassVar = ("summary",)

    model: str
    configuration: Mapping[str, Any]
    architecture: Architecture
    dtype: DType
    engine: Engine
    batch: int
    context: int
    cache: Cache
    footprint: Footprint
    machines: tuple[HardwareProfile, ...]
    threads: int
    stages: tuple[StageResult, ...]
    cells: tuple[ServingCell, ...]
    what_ifs: tuple[WhatIf, ...] = ()
    quantized_head: bool = False
    prefix_share: float = 0.0
    link: RankLink | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if {(each.batch, each.context) for each in self.stages} != {(self.batch, self.context)}:
            raise ValueError(f"stages: not all of batch {self.batch}, context {self.context}")
        first = self.cells[0].run if self.cells else None
        if first is None or (first.batch, first.context) != (self.batch, self.context):
            raise ValueError("cells: the first is not that of the headline")

    def stage(self, name: Stage) -> StageResult | None:
        """Return the stage of that name; None if it is missing."""
        return next((each for each in self.stages if each.stage == name), None)

    @property
    def hardware(self) -> HardwareProfile:
        """Machine of the headline."""
        return self.machines[0]

    @property
    def routing(self) -> str:
        """Assumption on mixtures of experts, whose times are no limits, else ``""``."""
        return ", uniform routing" if self.stages[0].spread else ""

    @property
    def has_map(self) -> bool:
        """True for several runs with known rates."""
        return len(self.cells) > 1 and all(
            each.tokens_per_s for cell in self.cells for each in cell.stages
        )

    @property
    def summary(self) -> str:
        """Verdict: tokens/s and limiter of each stage, and memory."""
        run = self.cells[0].run
        ranks = f"{run.ranks} x " if run.ranks > 1 else ""
        where = f"{self.model} on {ranks}{self.hardware.name}"
        # Decode first: it is asked for most.
        stages = sorted(self.stages, key=lambda each: each.stage)
        sequences = f"batch {run.batch:,}, {run.context:,} tokens"
        if self.engine == "transformers":
            parts = [*map(_verdict, stages), _memory_words(self.footprint)]
            return f"{where} (eager transformers, {sequences}): {'; '.join(parts)}"
        of = f"paged engine, {run.weights} weights, {run.cache} KV cache, {sequences}"
        of += self.routing
        served = sorted(self.cells[0].stages, key=lambda each: each.stage)
        parts = [*map(_served, served), f"fits: {fit_words(self.footprint)}"]
        return f"{where} ({of}): {'; '.join(parts)}"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each stage of the headline, then one for each stage of each run."""
        swept = (_cell_row(cell, each) for cell in self.cells for each in cell.stages)
        for row in (*map(self._stage_row, self.stages), *swept):
            yield [row.get(name) for name in self.columns]

    def _stage_row(self, stage: StageResult) -> dict[str, Any]:
        rate, predicted, cell = stage.bound_rate, stage.predicted_rate, self.cells[0]
        served = cell.stage(stage.stage)
        row = {
            **(_cell_row(cell, served) if served else {}),
            "is_swept": False,
            **_cells(stage.asked, _ASKED, "asked_"),
            "bound": stage.limiter.value,
            **_cells(rate, ("tokens_per_s",), "max_"),
            **_cells(predicted, ("tokens_per_s",), "predicted_"),
            "predicted_low_tokens_per_s": predicted and predicted.low_per_s,
            "predicted_high_tokens_per_s": predicted and predicted.high_per_s,
        }
        if stage.analysis is None:
            return row
        totals, run = stage.analysis.totals, stage.analysis.prediction
        # Incomplete sums are not reported as totals.
        is_whole = not totals.unknown_operators
        memory = self.footprint.memory.size_bytes
        return row | {
            "flop": totals.flop if is_whole else None,
            "macs": totals.macs if is_whole else None,
            "traffic_bytes": totals.traffic_bytes,
            **minimum_times_of(totals),
            **_cells(run, ("predicted_s",)),
            **_cells(run, ("low_s", "high_s"), "predicted_"),
            "fit": fit_of(cell.footprint_bytes, totals.peak_memory_bytes, memory),
        }

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, tables of runs, stages, parts, cache and experts, notes.

        ``view.top`` adds that many operators of each stage.
        """
        from roofline.llm.blocks import language_blocks

        return language_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 16, heat_map: bool | None = None) -> None:
        """Draw the parts of all stages under the roofline, or a heat map of all runs.

        Args:
            figure: an empty one.
            labels: number of parts to name under the roofline, where there is room.
            heat_map: draw tokens/s of all runs; None: where `has_map`.
        """
        from roofline.llm.drawing import draw_map, draw_stages

        if self.has_map and heat_map is not False:
            draw_map(figure, self)
        else:
            draw_stages(figure, self, labels)

    def page(self, view: View) -> str:
        """Return an HTML page with all plots and the report."""
        from roofline.render.pages import page_html

        drawn = (
            self._saved_picture("svg", {"heat_map": each}).decode("utf-8")
            for each in ((True, False) if self.has_map else (False,))
        )
        pictures = "".join(each[each.index("<svg") :] for each in drawn)
        return page_html(self.report(view), pictures)


def _cells(of: object, names: Iterable[str], before: str = "") -> dict[str, Any]:
    """Return attributes by prefixed name; None without an object."""
    return {f"{before}{name}": None if of is None else getattr(of, name) for name in names}


def _cell_row(cell: ServingCell, stage: ServedStage) -> dict[str, Any]:
    names = (name for name in _ASKED if name != "compute_share")
    return {
        **_cells(cell.run, ("batch", "context", *_RUN)),
        **_cells(cell, ("footprint_bytes", "fit", "max_sequences", "crossover")),
        **_cells(stage, ("stage", "tokens", "link_bytes", "link_s")),
        "is_swept": True,
        **_cells(stage, names, "asked_"),
    }


_TIMES: Mapping[Stage, str] = {"prefill": "TTFT", "decode": "TPOT"}


def _served(stage: ServedStage) -> str:
    if stage.model_min_time_s is None:
        return f"{stage.stage} rate unknown (no ceilings)"
    limiter = "" if stage.bound is Bound.UNKNOWN else f", {stage.bound.value}-bound"
    return (
        f"{stage.stage} at most {rate_text(stage.tokens_per_s)} tokens/s,"
        f" {_TIMES[stage.stage]} at least {format_s(stage.model_min_time_s)}{limiter}"
    )


_RESERVE = 0.1
"""Share of memory that vLLM leaves to CUDA and buffers: ``gpu_memory_utilization`` of 0.9."""


def fit_words(footprint: Footprint) -> str:
    """Return ``"yes, 11.2 GiB left, up to 93 sequences"``."""
    memory = footprint.memory
    if memory.size_bytes is None:
        return f"unknown, {memory.source}"
    left = memory.size_bytes - footprint.total_bytes
    if footprint.weight_bytes > memory.size_bytes:
        over = footprint.weight_bytes - memory.size_bytes
        return f"no, weights alone {over / 2**30:.3g} GiB too large"
    room = f"up to {counted(footprint.max_sequences or 0, 'sequence')}"
    if left < 0:
        return f"no, {-left / 2**30:.3g} GiB too large, {room}"
    tight = f" (vLLM keeps {format_percent(_RESERVE)} free by default)"
    tight *= left < _RESERVE * memory.size_bytes
    return f"yes, {left / 2**30:.3g} GiB left{tight}, {room}"


def _verdict(stage: StageResult) -> str:
    rate, predicted = stage.bound_rate, stage.predicted_rate
    if rate is None:
        return f"{stage.stage} rate unknown (no ceilings)"
    words = f"{stage.stage} at most {rate.words} tokens/s"
    time = f"{_TIMES[stage.stage]} at least {format_s(stage.eager_min_time_s)}"
    run = stage.analysis and stage.analysis.prediction
    if predicted and run:
        words += f" ({predicted.words} predicted)"
        time += f" (predicted {interval_cell(run.predicted_s, run.low_s, run.high_s)})"
    words += f", {time}"
    limiter = stage.limiter
    if limiter is Bound.UNKNOWN:
        return words
    return f"{words}, {limiter.value}-bound for {format_percent(stage.shares[limiter])}"


def _memory_words(footprint: Footprint) -> str:
    takes, size = format_bytes(footprint.total_bytes), footprint.memory.size_bytes
    memory = format_memory(size)
    if "GiB" in memory:
        memory += f" ({format_bytes(size)})"
    peak = f"the peak of {format_bytes(footprint.peak_bytes)} in transformers does not"
    return {
        "fits": f"{takes} fit into {memory}",
        "minimum fits": f"minimum {takes} fit into {memory}",
        "only without copies": f"minimum {takes} fit into {memory}, {peak}",
        "does not fit": f"{takes} do not fit into {memory}",
        "unknown": f"{takes} of memory",
    }[footprint.fit]
