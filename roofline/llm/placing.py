"""The stages of a language model under the ceilings of a machine: minimum times.

That of a stage is its model minimum (`roofline.minimum`): all of its arithmetic, or all of its
bytes from one memory level, for one part may compute while the next is read. Each part stands under
the ceilings on its own as well. Weights and cache are touched once a pass, so that between two
passes everything else that lasts is touched: what does not fit into a cache beside all of it comes
from beyond. What one part hands to the next is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from roofline.core.dtypes import DType
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Memory
from roofline.llm.parts import (
    ExpertSpread,
    Part,
    PartName,
    StageSize,
    expert_spread,
    parts_of,
)
from roofline.minimum import Minimum, model_minimum
from roofline.placement import Bound, Placement, Roof
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.rewritings import ModelWork
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import FLOP_PER_FMA, Work, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """The types of a model: of what it computes in, of its weights, and of its cache.

    ``weights`` are those of quantized parts; the others are kept in ``compute``.
    """

    compute: DType
    weights: DType
    cache: DType

    @staticmethod
    def all_of(dtype: DType) -> Types:
        """One type for everything."""
        return Types(compute=dtype, weights=dtype, cache=dtype)

    def of_weights(self, part: Part) -> DType:
        """The type that the weights of a part are kept in."""
        return self.weights if part.is_quantized else self.compute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPart:
    """A part under the roof, its numbers those of all ``count`` layers together.

    It has no minimum time of its own: a run may hold one part in caches, and read more of others.
    ``flop`` counts the whole rectangle of attention, ``min_flop`` what must be done.
    ``weight_bytes`` and ``cache_bytes`` (read and written) are its traffic.
    ``level``, ``ceiling``, ``bound`` and ``intensity_flop_per_byte`` as in `Placement`;
    ``min_time_s`` and ``compute_s`` are None where the machine has no ceilings.
    """

    name: PartName
    count: int
    macs: int
    flop: int
    min_flop: int
    weight_bytes: int
    cache_bytes: int
    level: str
    ceiling: str
    bound: Bound
    intensity_flop_per_byte: float | None
    attainable_flop_per_s: float | None
    min_time_s: float | None

    @property
    def traffic_bytes(self) -> int:
        """Bytes of its operands, each once."""
        return self.weight_bytes + self.cache_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStage:
    """A stage on a machine, as the architecture asks for it.

    ``distinct_experts`` is how many a layer touches; None: there are none. ``minimum`` is the least
    time of a pass; None where the machine has no ceilings.
    """

    size: StageSize
    distinct_experts: int | None
    parts: tuple[PlacedPart, ...]
    minimum: Minimum | None

    ALSO_WRITTEN: ClassVar = ("model_min_time_s",)

    @property
    def flop(self) -> int:
        """FLOP of all parts."""
        return sum(each.flop for each in self.parts)

    @property
    def macs(self) -> int:
        """Multiply-adds of all parts."""
        return sum(each.macs for each in self.parts)

    @property
    def traffic_bytes(self) -> int:
        """Bytes of the operands of all parts."""
        return sum(each.traffic_bytes for each in self.parts)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that are read."""
        return sum(each.weight_bytes for each in self.parts)

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values that are read and written."""
        return sum(each.cache_bytes for each in self.parts)

    @property
    def model_min_time_s(self) -> float | None:
        """Seconds that a pass takes at least; None where the machine has no ceilings."""
        return None if self.minimum is None else self.minimum.time_s

    @property
    def parts_s(self) -> float | None:
        """Seconds that the parts take at least one by one; None: no ceilings."""
        known = [each.min_time_s for each in self.parts if each.min_time_s is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def compute_share(self) -> float | None:
        """How much of `parts_s` compute-bound parts take; None: it is not known."""
        whole = self.parts_s
        if not whole or any(each.bound is Bound.UNKNOWN for each in self.parts):
            return None
        bound = (each.min_time_s or 0.0 for each in self.parts if each.bound is Bound.COMPUTE)
        return sum(bound) / whole

    @property
    def bound(self) -> Bound:
        """Whether arithmetic or bytes set the least time."""
        if self.minimum is None or any(each.bound is Bound.UNKNOWN for each in self.parts):
            return Bound.UNKNOWN
        return self.minimum.bound

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of all sequences per second at the bound."""
        return self.size.new_tokens / self.model_min_time_s if self.model_min_time_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOnMachine:
    """A model in its types, on a machine with its memory.

    ``weight_bytes`` are all weights as they lie in memory.
    """

    architecture: Architecture
    roof: Roof
    types: Types
    weight_bytes: int
    memory: Memory

    def spread(self, size: StageSize) -> ExpertSpread | None:
        """Return the experts that a stage touches; None: no layer has any."""
        return expert_spread(self.architecture, size.new_tokens, self.types.weights)

    def placed(self, size: StageSize, distinct: int | None = None) -> PlacedStage:
        """Return a stage; `distinct` None: with as many experts as uniform routing touches."""
        if distinct is None and (spread := self.spread(size)) is not None:
            distinct = spread.typical
        parts, roof, types = parts_of(self.architecture, size, distinct), self.roof, self.types
        lasting = sum(each.count * sum(_lasting_bytes(each, types)) for each in parts)
        placed = [_placed(each, roof, types, lasting) for each in parts]
        names = dict.fromkeys(each.name for each in placed)
        return PlacedStage(
            size=size,
            distinct_experts=distinct,
            parts=tuple(_sum([each for each in placed if each.name == name]) for name in names),
            minimum=model_minimum(_work(parts, types), roof) if roof.levels else None,
        )


def _work(parts: Sequence[Part], types: Types) -> ModelWork:
    """All products of a stage in the type that it computes in, and all bytes that it touches."""
    cache = types.cache.byte
    return ModelWork(
        products=tuple(
            (_record(each, Types.all_of(types.compute)), each.count * each.min_flop)
            for each in parts
        ),
        read_bytes=sum(
            each.count * (types.of_weights(each).byte(each.weights) + cache(each.cache_elements))
            for each in parts
        ),
        written_bytes=sum(each.count * cache(each.new_elements) for each in parts),
    )


def _lasting_bytes(part: Part, types: Types) -> tuple[int, int]:
    """Bytes of weights, and of the cache, in one layer."""
    cache = types.cache.byte(part.cache_elements) + types.cache.byte(part.new_elements)
    return types.of_weights(part).byte(part.weights), cache


def _placed(part: Part, roof: Roof, types: Types, lasting_bytes: int) -> PlacedPart:
    record = _record(part, types)
    weight_bytes, cache_bytes = _lasting_bytes(part, types)
    reuses = [Reuse(weight_bytes + cache_bytes, lasting_bytes)]
    found: Placement = roof.place(record, reuses, compute_as=types.compute)
    count, flop = part.count, record.work.flop or 0
    return PlacedPart(
        name=part.name,
        count=count,
        macs=count * part.macs,
        flop=count * flop,
        min_flop=count * part.min_flop,
        weight_bytes=count * weight_bytes,
        cache_bytes=count * cache_bytes,
        level=found.level,
        ceiling=found.ceiling,
        bound=found.bound,
        intensity_flop_per_byte=found.intensity_flop_per_byte,
        attainable_flop_per_s=found.attainable_flop_per_s,
        min_time_s=None if found.eager_min_time_s is None else count * found.eager_min_time_s,
    )


def _record(part: Part, types: Types) -> OperatorRecord:
    """One layer of a part as an operator, so that it stands under the roof as all others do."""
    inputs = [
        _spec(0, part.weights, types.of_weights(part), Role.PARAMETER),
        _spec(1, part.cache_elements, types.cache, Role.INPUT),
    ]
    outputs = [_spec(2, part.new_elements, types.cache, Role.INPUT)]
    return OperatorRecord(
        index=0,
        op="language.part",
        type="matrix product",
        module_path="",
        phase="forward",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        state=State.COUNTED,
        work=Work(
            flop=FLOP_PER_FMA * part.macs,
            macs=part.macs,
            min_flop=part.min_flop,
            **traffic_of(inputs, outputs),
        ),
    )


def _spec(storage: int, elements: int, dtype: DType, role: Role) -> TensorSpec:
    return TensorSpec(
        shape=(elements,), dtype=dtype, distinct_elements=elements, storage=storage, role=role
    )


def _sum(parts: Sequence[PlacedPart]) -> PlacedPart:
    """Return parts of one name as one, which stands where the longest of them does."""
    decisive = max(parts, key=lambda each: each.min_time_s or 0.0)
    summed = ("macs", "flop", "min_flop", "weight_bytes", "cache_bytes")
    whole = {name: sum(getattr(each, name) for each in parts) for name in summed}

    def mean(name: str) -> float | None:
        """The FLOP of all parts over the sum of their bytes or seconds."""
        each = [(part.flop, getattr(part, name)) for part in parts]
        over = sum(flop / rate for flop, rate in each if rate)
        return whole["flop"] / over if over and all(rate for _, rate in each) else None

    times_s = [each.min_time_s for each in parts if each.min_time_s is not None]
    return replace(
        decisive,
        count=max(each.count for each in parts),
        **whole,
        intensity_flop_per_byte=mean("intensity_flop_per_byte"),
        attainable_flop_per_s=mean("attainable_flop_per_s"),
        min_time_s=sum(times_s) if len(times_s) == len(parts) else None,
    )
