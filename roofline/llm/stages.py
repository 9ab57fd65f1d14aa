"""Prefill and decode, by operators of transformers and by architecture: times and tokens/s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from roofline.analysis import Analysis
from roofline.core.dtypes import DType, dtype
from roofline.core.units import MISSING, format_bytes, format_si
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine, PlacedStage
from roofline.llm.memory import Cache
from roofline.llm.parts import ExpertSpread, Stage, StageSize
from roofline.placement import Bound
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Residency, storage_sizes
from roofline.workload.tensors import Role, TensorSpec

# In a captured pass the caller keeps the KV cache. In a generation loop only the model holds it:
# each layer frees its old keys and values after copying them. The peak has the whole cache, and one
# grown tensor twice.


def residency_while_generating(records: Sequence[OperatorRecord], reuse: Residency) -> Residency:
    """Return `reuse` with the activation peak of a decode pass in a generation loop.

    The peak excludes inputs: a grown tensor in place of a freed old one is not counted twice.
    """
    grown = {
        spec.storage
        for record in records
        if record.op == "aten.cat"
        for spec in record.inputs
        if is_cache(spec)
    }
    # The last operator that touches each copied cache tensor.
    last = {
        spec.storage: index
        for index, record in enumerate(records)
        for spec in (*record.inputs, *record.outputs)
        if spec.storage in grown
    }
    sizes, _ = storage_sizes(records)
    alive: set[int] = set()
    live, peak, peak_index = 0, 0, None
    for index, record in enumerate(records):
        for spec in (*record.inputs, *record.outputs):
            if not spec.role.persists and spec.storage not in alive:
                alive.add(spec.storage)
                live += sizes[spec.storage]
        if live > peak:
            peak, peak_index = live, index
        gone = {each for each in record.freed if each in alive}
        alive -= gone
        live -= sum(sizes[each] for each in gone)
        live -= sum(sizes[each] for each, end in last.items() if end == index)
    return replace(reuse, peak_index=peak_index, peak_activation_bytes=peak)


def is_cache(spec: TensorSpec) -> bool:
    """Return True for a tensor of the KV cache: a floating-point input."""
    return spec.role is Role.INPUT and spec.dtype.kind == "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Tokens/s of all sequences, with a prediction interval."""

    tokens_per_s: float
    low_per_s: float | None = None
    high_per_s: float | None = None

    @property
    def words(self) -> str:
        """Rate as text: ``"12.3"``; of a prediction ``"8.1 to 10"``."""
        if self.low_per_s is None or self.high_per_s is None:
            return rate_text(self.tokens_per_s)
        return f"{rate_text(self.low_per_s, 2)} to {rate_text(self.high_per_s, 2)}"

    def of_one(self, batch: int) -> Rate:
        """Return the rate of one sequence of the batch."""
        return Rate(
            tokens_per_s=self.tokens_per_s / batch,
            low_per_s=None if self.low_per_s is None else self.low_per_s / batch,
            high_per_s=None if self.high_per_s is None else self.high_per_s / batch,
        )


def rate_text(per_s: float | None, digits: int = 3) -> str:
    """Return tokens/s without SI prefix: ``"21,900"``, ``"8.13"``."""
    if per_s is None:
        return MISSING
    rounded = float(f"{per_s:.{digits - 1}e}")
    if rounded >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    return format_si(per_s, "", digits) if per_s >= 1 else f"{rounded:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedBound:
    """Minimum time of the architecture with ``distinct`` experts per layer."""

    distinct: int
    weight_bytes: int
    model_min_time_s: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage on a machine.

    Attributes:
        analysis: of the operators of transformers; None if they were not captured.
        asked: minimum work of the architecture, with the experts of uniform routing.
        spread: distinct experts; None without experts.
        routed: with identical, uniform and disjoint routing.

    Raises:
        ValueError: parts of another size or routing.
    """

    ALSO_WRITTEN: ClassVar = ("tokens", "bound_rate", "predicted_rate", "asked_rate")

    stage: Stage
    batch: int
    context: int
    asked: PlacedStage
    analysis: Analysis | None = None
    spread: ExpertSpread | None = None
    routed: tuple[RoutedBound, ...] = ()

    def __post_init__(self) -> None:
        size = self.asked.size
        same = (size.stage, size.batch, size.context) == (self.stage, self.batch, self.context)
        if not same or self.batch < 1 or len(self.routed) != (3 if self.spread else 0):
            raise ValueError(f"{self.stage}: asked or routed is of another stage")

    @property
    def tokens(self) -> int:
        """Tokens per pass: read by prefill, generated by decode."""
        return self.asked.size.new_tokens

    @property
    def given_cache_bytes(self) -> int | None:
        """Bytes of the KV cache input of the pass; None without one."""
        byte: dict[int, int] = {}
        for row in self.analysis.operators if self.analysis else ():
            for spec in row.inputs:
                if is_cache(spec):
                    end = spec.offset_bytes + spec.byte
                    byte[spec.storage] = max(byte.get(spec.storage, 0), end)
        return sum(byte.values()) or None

    @property
    def eager_min_time_s(self) -> float | None:
        """Eager minimum time of transformers in seconds; None without ceilings or capture."""
        return self.analysis.totals.eager_min_time_s if self.analysis else None

    @property
    def shares(self) -> dict[Bound, float]:
        """Shares of `eager_min_time_s` by limiter, largest first; empty without a time."""
        times = dict.fromkeys((Bound.COMPUTE, Bound.MEMORY, Bound.UNKNOWN), 0.0)
        for row in self.analysis.operators if self.analysis else ():
            if row.bound in times:
                times[row.bound] += row.eager_min_time_s or 0.0
        whole = sum(times.values())
        ordered = sorted(times, key=lambda bound: -times[bound])
        return {bound: times[bound] / whole for bound in ordered} if whole else {}

    @property
    def limiter(self) -> Bound:
        """Limiter of the largest share."""
        return next(iter(self.shares), Bound.UNKNOWN)

    @property
    def bound_rate(self) -> Rate | None:
        """Maximum tokens/s of transformers."""
        return _rate(self.tokens, self.eager_min_time_s)

    @property
    def asked_rate(self) -> Rate | None:
        """Maximum tokens/s of any implementation."""
        return _rate(self.tokens, self.asked.model_min_time_s)

    @property
    def predicted_rate(self) -> Rate | None:
        """Predicted tokens/s with an 80 % interval; None without a prediction."""
        run = self.analysis.prediction if self.analysis else None
        if run is None or not run.predicted_s:
            return None
        return Rate(
            tokens_per_s=self.tokens / run.predicted_s,
            low_per_s=self.tokens / run.high_s,
            high_per_s=self.tokens / run.low_s if run.low_s else None,
        )


def _rate(tokens: int, time_s: float | None) -> Rate | None:
    return Rate(tokens_per_s=tokens / time_s) if time_s else None


def stage_of(
    model: ModelOnMachine, size: StageSize, analysis: Analysis | None = None
) -> StageResult:
    """Return a stage of transformers and of the architecture."""
    spread, routed = model.spread(size), list[RoutedBound]()
    for distinct in (spread.least, spread.typical, spread.most) if spread else ():
        placed = model.placed(size, distinct)
        routed.append(
            RoutedBound(
                distinct=distinct,
                weight_bytes=placed.weight_bytes,
                model_min_time_s=placed.model_min_time_s,
                tokens_per_s=placed.tokens_per_s,
            )
        )
    return StageResult(
        stage=size.stage,
        batch=size.batch,
        context=size.context,
        analysis=analysis,
        asked=model.placed(size),
        spread=spread,
        routed=tuple(routed),
    )


def warnings_of(
    stages: Sequence[StageResult], architecture: Architecture, cache: Cache, noted: Sequence[str]
) -> tuple[str, ...]:
    """Return contradictions and distinct warnings of the passes, without those in `noted`."""
    doubted = (line for each in stages for line in _doubts(each, architecture, cache))
    said = (line for each in stages if each.analysis for line in each.analysis.warnings)
    return tuple(each for each in dict.fromkeys((*doubted, *said)) if each not in noted)


def _doubts(stage: StageResult, architecture: Architecture, cache: Cache) -> Iterable[str]:
    """Yield a warning if the architecture contradicts the pass of transformers."""
    found: list[str] = []
    if stage.analysis is None:
        return
    called, asked = stage.analysis.totals.macs, stage.asked.macs
    if not stage.analysis.totals.unknown_operators and called is not None and asked > called:
        found.append(f"{format_si(asked, '')} MACs, transformers {format_si(called, '')}")
    given = stage.given_cache_bytes
    most = cache.byte(stage.context, stage.batch)
    # A layer with a window caches one token less than it attends to.
    least = stage.asked.cache_bytes - stage.batch * cache.token_bytes
    if stage.stage == "decode" and given is not None and not least <= given <= most:
        found.append(f"a KV cache of {format_bytes(most)}, transformers {format_bytes(given)}")
    if found:
        yield (
            f"{stage.stage}: architecture and transformers differ for model type"
            f" '{architecture.model_type}': the configuration gives {' and '.join(found)}; use the"
            " rows of transformers only"
        )


def dtype_of(analysis: Analysis) -> DType:
    """Return the data type of most parameter bytes; float32 without parameters."""
    byte: dict[str, int] = {}
    seen: set[int] = set()
    for row in analysis.operators:
        for spec in row.inputs:
            if spec.role is Role.PARAMETER and spec.storage not in seen:
                seen.add(spec.storage)
                byte[spec.dtype.name] = byte.get(spec.dtype.name, 0) + spec.byte
    return dtype(max(byte, key=lambda name: byte[name]) if byte else "float32")
