"""A stage by the operators of transformers and by the architecture: times and tokens/s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from roofline.analysis import Analysis
from roofline.core.dtypes import DType, dtype
from roofline.core.units import MISSING, format_bytes, format_si
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Cache
from roofline.llm.parts import ExpertSpread, Stage, StageSize
from roofline.llm.placing import ModelOnMachine, PlacedStage
from roofline.placement import Bound
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Residency, storage_sizes
from roofline.workload.tensors import Role, TensorSpec

# A pass that is captured gets its cache from a caller who keeps it. In a loop nobody but the model
# holds the cache: as soon as a layer has copied its keys beside the new one, the old ones are gone.
# So memory is fullest with the whole cache, and once more what grows at that moment.


def held_while_generating(records: Sequence[OperatorRecord], reuse: Residency) -> Residency:
    """Where and how full memory is when a decode pass is one of many; else as `reuse`, which takes
    the caller to keep the cache.

    The peak is bytes beyond those of the inputs: what grows in the place of an old cache that is
    gone does not count twice.
    """
    grown = {
        spec.storage
        for record in records
        if record.op == "aten.cat"
        for spec in record.inputs
        if is_cache(spec)
    }
    # For each old cache that is copied into a new one, the operator that touches it last.
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
    """Whether an operand is of the cache that a pass was given: tokens are whole numbers."""
    return spec.role is Role.INPUT and spec.dtype.kind == "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Tokens per second of all sequences; ``low`` and ``high`` are the ends of an interval."""

    tokens_per_s: float
    low_per_s: float | None = None
    high_per_s: float | None = None

    @property
    def words(self) -> str:
        """``"12.3"``; of a prediction its interval: ``"8.1 to 10"``."""
        if self.low_per_s is None or self.high_per_s is None:
            return rate_text(self.tokens_per_s)
        return f"{rate_text(self.low_per_s, 2)} to {rate_text(self.high_per_s, 2)}"

    def of_one(self, batch: int) -> Rate:
        """Return the rate of a single sequence of a batch."""
        return Rate(
            tokens_per_s=self.tokens_per_s / batch,
            low_per_s=None if self.low_per_s is None else self.low_per_s / batch,
            high_per_s=None if self.high_per_s is None else self.high_per_s / batch,
        )


def rate_text(per_s: float | None, digits: int = 3) -> str:
    """Return tokens per second without prefix: ``"21,900"``, ``"8.13"``."""
    if per_s is None:
        return MISSING
    rounded = float(f"{per_s:.{digits - 1}e}")
    if rounded >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    return format_si(per_s, "", digits) if per_s >= 1 else f"{rounded:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedBound:
    """The architecture's minimum where each layer touches ``distinct`` experts."""

    distinct: int
    weight_bytes: int
    model_min_time_s: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage on a machine.

    Attributes:
        analysis: of the operators that transformers calls.
        asked: by the architecture, with as many experts as uniform routing touches.
        spread: of experts; None: no layer has any.
        routed: with the fewest experts, those of uniform routing, and the most.

    Raises:
        ValueError: parts that are of another size or routing.
    """

    ALSO_WRITTEN: ClassVar = ("tokens", "bound_rate", "predicted_rate", "asked_rate")

    stage: Stage
    batch: int
    context: int
    analysis: Analysis
    asked: PlacedStage
    spread: ExpertSpread | None = None
    routed: tuple[RoutedBound, ...] = ()

    def __post_init__(self) -> None:
        size = self.asked.size
        same = (size.stage, size.batch, size.context) == (self.stage, self.batch, self.context)
        if not same or self.batch < 1 or len(self.routed) != (3 if self.spread else 0):
            raise ValueError(f"{self.stage}: asked or routed is of another stage")

    @property
    def tokens(self) -> int:
        """Tokens taken in by prefill, tokens given by decode, in one pass."""
        return self.asked.size.new_tokens

    @property
    def given_cache_bytes(self) -> int | None:
        """Bytes of the cache that the pass was given; None: it was given none."""
        byte: dict[int, int] = {}
        for row in self.analysis.operators:
            for spec in row.inputs:
                if is_cache(spec):
                    end = spec.offset_bytes + spec.byte
                    byte[spec.storage] = max(byte.get(spec.storage, 0), end)
        return sum(byte.values()) or None

    @property
    def eager_min_time_s(self) -> float | None:
        """Minimum time of the operators of transformers; None: no ceilings."""
        return self.analysis.totals.eager_min_time_s

    @property
    def shares(self) -> dict[Bound, float]:
        """Shares of `eager_min_time_s` by limiter, the largest first; empty: there is no time."""
        times = dict.fromkeys((Bound.COMPUTE, Bound.MEMORY, Bound.UNKNOWN), 0.0)
        for row in self.analysis.operators:
            if row.bound in times:
                times[row.bound] += row.eager_min_time_s or 0.0
        whole = sum(times.values())
        ordered = sorted(times, key=lambda bound: -times[bound])
        return {bound: times[bound] / whole for bound in ordered} if whole else {}

    @property
    def limiter(self) -> Bound:
        """The limiter of the largest share."""
        return next(iter(self.shares), Bound.UNKNOWN)

    @property
    def bound_rate(self) -> Rate | None:
        """The most tokens per second with these operators."""
        return _rate(self.tokens, self.eager_min_time_s)

    @property
    def asked_rate(self) -> Rate | None:
        """The most tokens per second with any operators."""
        return _rate(self.tokens, self.asked.model_min_time_s)

    @property
    def predicted_rate(self) -> Rate | None:
        """Tokens per second as predicted, with the 10-90 % interval; None: nothing was learned."""
        run = self.analysis.prediction
        if run is None or not run.predicted_s:
            return None
        return Rate(
            tokens_per_s=self.tokens / run.predicted_s,
            low_per_s=self.tokens / run.high_s,
            high_per_s=self.tokens / run.low_s if run.low_s else None,
        )


def _rate(tokens: int, time_s: float | None) -> Rate | None:
    return Rate(tokens_per_s=tokens / time_s) if time_s else None


def stage_of(model: ModelOnMachine, size: StageSize, analysis: Analysis) -> StageResult:
    """Return one stage, as it is run and as it is asked for."""
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
    """Return contradictions and the warnings of the passes, each once, without those in `noted`."""
    doubted = (line for each in stages for line in _doubts(each, architecture, cache))
    said = (line for each in stages for line in each.analysis.warnings)
    return tuple(each for each in dict.fromkeys((*doubted, *said)) if each not in noted)


def _doubts(stage: StageResult, architecture: Architecture, cache: Cache) -> Iterable[str]:
    """Yield a warning where an architecture, as read, contradicts the pass of transformers."""
    found: list[str] = []
    called, asked = stage.analysis.totals.macs, stage.asked.macs
    if not stage.analysis.totals.unknown_operators and called is not None and asked > called:
        found.append(f"{format_si(asked, '')} MACs, transformers {format_si(called, '')}")
    given = stage.given_cache_bytes
    most = cache.byte(stage.context, stage.batch)
    # A layer with a window keeps one token less than it sees.
    least = stage.asked.cache_bytes - stage.batch * cache.token_bytes
    if stage.stage == "decode" and given is not None and not least <= given <= most:
        found.append(f"a KV cache of {format_bytes(most)}, transformers {format_bytes(given)}")
    if found:
        yield (
            f"{stage.stage}: the architecture read from the configuration has"
            f" {' and '.join(found)}: models of type '{architecture.model_type}' differ from known"
            " types; rely on the rows of transformers alone, not on the architecture, its parts, KV"
            " cache, sweep or weight bits"
        )


def dtype_of(analysis: Analysis) -> DType:
    """Return the data type of most bytes of a model's parameters; float32 where it has none."""
    byte: dict[str, int] = {}
    seen: set[int] = set()
    for row in analysis.operators:
        for spec in row.inputs:
            if spec.role is Role.PARAMETER and spec.storage not in seen:
                seen.add(spec.storage)
                byte[spec.dtype.name] = byte.get(spec.dtype.name, 0) + spec.byte
    return dtype(max(byte, key=lambda name: byte[name]) if byte else "float32")
