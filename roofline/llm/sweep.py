"""Sweeps of stages over batch and context: minimum times, memory, compute-bound batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofline.analysis import fits
from roofline.llm.bounds import ModelOnMachine, PlacedStage
from roofline.llm.memory import Fit, activations_of, cache_of, fit_of
from roofline.llm.parts import Stage, StageSize
from roofline.placement import Bound

MOST_BATCH = 2**16
"""Largest batch in the search for a crossover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """Stage of the architecture at one batch and one context.

    ``bound`` is the limiter of ``model_min_time_s``; ``compute_share`` the share of compute-bound
    parts in the sum of parts; ``tokens_per_s`` the maximum of all sequences. ``footprint_bytes``
    are weights, KV cache and activations.
    """

    stage: Stage
    batch: int
    context: int
    flop: int
    traffic_bytes: int
    weight_bytes: int
    cache_bytes: int
    bound: Bound
    compute_share: float | None
    model_min_time_s: float | None
    tokens_per_s: float | None
    footprint_bytes: int
    fit: Fit

    @property
    def intensity_flop_per_byte(self) -> float | None:
        """Arithmetic intensity in FLOP per byte of traffic."""
        return self.flop / self.traffic_bytes if self.traffic_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Smallest compute-bound batch of a stage at one context.

    ``batch`` is that of all parts, ``weights_batch`` that of products with weights; None above
    `MOST_BATCH`. ``cache_flop_per_byte`` is the arithmetic intensity of attention at any batch.
    """

    stage: Stage
    context: int
    batch: int | None
    weights_batch: int | None
    cache_flop_per_byte: float | None
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSweep:
    """Cells by stage, context and batch, and the crossovers of each context."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    cells: tuple[SweepCell, ...]
    crossovers: tuple[Crossover, ...]

    def __post_init__(self) -> None:
        rows = [(stage, context) for stage in self.stages for context in self.contexts]
        grid = [(*row, batch) for row in rows for batch in self.batches]
        cells = [(each.stage, each.context, each.batch) for each in self.cells]
        found = [(each.stage, each.context) for each in self.crossovers]
        if not cells or cells != grid or found != rows:
            raise ValueError("cells or crossovers are not those of the batches and contexts")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages, prefill first."""
        found: dict[Stage, None] = dict.fromkeys(each.stage for each in self.cells)
        return tuple(found)

    def cell(self, stage: Stage, batch: int, context: int) -> SweepCell:
        """Return the cell of a stage, batch and context."""
        place = (stage, batch, context)
        return next(each for each in self.cells if (each.stage, each.batch, each.context) == place)


def _footprint_bytes(model: ModelOnMachine, size: StageSize) -> int:
    """Return the bytes of weights, KV cache and activations of a stage."""
    cache = cache_of(model.architecture, model.types.cache)
    activations = activations_of(model.architecture, size.stage, model.types.compute)
    needed = cache.byte(size.context, size.batch) + activations.byte(size.context, size.batch)
    return model.weight_bytes + needed


def sweep_of(
    model: ModelOnMachine, stages: Sequence[Stage], batches: Sequence[int], contexts: Sequence[int]
) -> StageSweep:
    """Return all stages at all batches and contexts."""
    batches, contexts = tuple(dict.fromkeys(batches)), tuple(dict.fromkeys(contexts))
    cells = [
        _cell(model, StageSize(stage=stage, batch=batch, context=context))
        for stage in stages
        for context in contexts
        for batch in batches
    ]
    return StageSweep(
        batches=batches,
        contexts=contexts,
        cells=tuple(cells),
        crossovers=tuple(
            crossover_of(model, stage, context) for stage in stages for context in contexts
        ),
    )


def _cell(model: ModelOnMachine, size: StageSize) -> SweepCell:
    placed, footprint_bytes = model.placed(size), _footprint_bytes(model, size)
    names = ("flop", "traffic_bytes", "weight_bytes", "cache_bytes", "bound", "compute_share")
    names = (*names, "model_min_time_s", "tokens_per_s")
    return SweepCell(
        stage=size.stage,
        batch=size.batch,
        context=size.context,
        **{name: getattr(placed, name) for name in names},
        footprint_bytes=footprint_bytes,
        fit=fit_of(footprint_bytes, None, model.memory.size_bytes),
    )


def crossover_of(model: ModelOnMachine, stage: Stage, context: int) -> Crossover:
    """Return the smallest compute-bound batch of a stage at a context."""

    def placed(batch: int) -> PlacedStage:
        return model.placed(StageSize(stage=stage, batch=batch, context=context))

    def is_compute(batch: int) -> bool:
        return placed(batch).bound is Bound.COMPUTE

    def are_weights_compute(batch: int) -> bool:
        parts = [each for each in placed(batch).parts if each.name != "attention"]
        whole_s = sum(each.min_time_s or 0.0 for each in parts)
        compute_s = sum(each.min_time_s or 0.0 for each in parts if each.bound is Bound.COMPUTE)
        return whole_s > 0 and compute_s > 0.5 * whole_s

    batch = smallest_batch(is_compute)
    attention = next((each for each in placed(1).parts if each.name == "attention"), None)
    footprint_bytes = None
    if batch is not None:
        size = StageSize(stage=stage, batch=batch, context=context)
        footprint_bytes = _footprint_bytes(model, size)
    return Crossover(
        stage=stage,
        context=context,
        batch=batch,
        weights_batch=smallest_batch(are_weights_compute),
        cache_flop_per_byte=attention.flop / attention.cache_bytes
        if attention is not None and attention.cache_bytes
        else None,
        fits=fits(footprint_bytes, model.memory.size_bytes),
    )


def smallest_batch(holds: Callable[[int], bool], most: int = MOST_BATCH) -> int | None:
    """Return the smallest batch from which `holds` is true; None if false for the largest.

    The search goes down the powers of two, because caches can make `holds` true for small batches,
    then bisects between the largest failure and the next power.
    """
    tried = [1]
    while tried[-1] < most:
        tried.append(min(2 * tried[-1], most))
    low, high = 0, None
    for batch in reversed(tried):
        if not holds(batch):
            low = batch
            break
        high = batch
    if high is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
