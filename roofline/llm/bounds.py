"""Minimum times of prefill and decode under the ceilings of a machine.

A stage's model minimum (`roofline.minimum`) is all of its arithmetic, or all of its bytes from one
memory level: a part may compute while the next is read. Weights and KV cache are touched once per
pass; their reuse distance is all persistent bytes. Activations are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from roofline.core.dtypes import DType
from roofline.llm.architecture import Architecture
from roofline.llm.formats import Types
from roofline.llm.memory import Memory
from roofline.llm.parts import (
    ExpertSpread,
    Part,
    PartName,
    StageSize,
    expert_spread,
    parts_of,
)
from roofline.minimum import Minimum, model_minimums
from roofline.placement import Bound, Placement, Roof
from roofline.scaling.settings import RankLink, min_all_reduce_s
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.rewritings import ModelWork
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import FLOP_PER_MAC, Work, traffic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPart:
    """Part under the roofline; numbers are sums over its ``count`` layers.

    ``flop`` counts the full attention rectangle, ``min_flop`` only unmasked positions.
    ``weight_bytes`` and ``cache_bytes`` (read and written) are its traffic. ``level``, ``ceiling``,
    ``bound`` and ``intensity_flop_per_byte`` as in `Placement`. ``min_time_s`` is the time at its
    ceiling, None without ceilings; a part may stay in caches, so it is no minimum time of its own.
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
        """Bytes of weights and KV cache."""
        return self.weight_bytes + self.cache_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStage:
    """Stage of an architecture on a machine; on several ranks, the share of one.

    ``distinct_experts`` is the number per layer; None without experts. ``minimum`` is the model
    minimum of a pass; None without ceilings.
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
        """MACs of all parts."""
        return sum(each.macs for each in self.parts)

    @property
    def traffic_bytes(self) -> int:
        """Bytes of weights and KV cache of all parts."""
        return sum(each.traffic_bytes for each in self.parts)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights read."""
        return sum(each.weight_bytes for each in self.parts)

    @property
    def cache_bytes(self) -> int:
        """Bytes of KV cache read and written."""
        return sum(each.cache_bytes for each in self.parts)

    @property
    def model_min_time_s(self) -> float | None:
        """Model minimum time of a pass in seconds; None without ceilings."""
        return None if self.minimum is None else self.minimum.time_s

    @property
    def parts_s(self) -> float | None:
        """Sum of the parts' times at their ceilings in seconds; None without ceilings."""
        known = [each.min_time_s for each in self.parts if each.min_time_s is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def compute_share(self) -> float | None:
        """Share of compute-bound parts in `parts_s`; None if unknown."""
        whole = self.parts_s
        if not whole or any(each.bound is Bound.UNKNOWN for each in self.parts):
            return None
        bound = (each.min_time_s or 0.0 for each in self.parts if each.bound is Bound.COMPUTE)
        return sum(bound) / whole

    @property
    def bound(self) -> Bound:
        """Limiter of the model minimum time."""
        if self.minimum is None or any(each.bound is Bound.UNKNOWN for each in self.parts):
            return Bound.UNKNOWN
        return self.minimum.bound

    @property
    def tokens_per_s(self) -> float | None:
        """Maximum tokens/s of all sequences."""
        return self.size.new_tokens / self.model_min_time_s if self.model_min_time_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Work of a pass of one rank, and the minimum times of each kind; None without ceilings.

    ``link_bytes`` are the data of all all-reduces.
    """

    size: StageSize
    flop: int
    weight_bytes: int
    cache_bytes: int
    link_bytes: int
    compute: Minimum | None
    memory: Minimum | None
    link: Minimum | None
    is_complete: bool

    @property
    def minimum(self) -> Minimum | None:
        """Minimum with all kinds overlapping; None without ceilings."""
        found = [each for each in (self.compute, self.memory, self.link) if each is not None]
        return max(found, key=lambda each: each.time_s, default=None)

    @property
    def bound(self) -> Bound:
        """Limiter of `minimum`."""
        return self.minimum.bound if self.minimum and self.is_complete else Bound.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOnMachine:
    """One tensor-parallel rank of a model, with its data types, on a machine.

    ``architecture`` is the shard of a rank, ``weight_bytes`` are its weights in memory. ``link``
    connects the ``ranks``; None: unknown, or one rank.
    """

    architecture: Architecture
    roof: Roof
    types: Types
    weight_bytes: int
    memory: Memory
    ranks: int = 1
    link: RankLink | None = None

    def spread(self, size: StageSize) -> ExpertSpread | None:
        """Return the distinct experts of a stage; None without experts."""
        return expert_spread(self.architecture, size.new_tokens, self.types.weights)

    def limits(self, size: StageSize, distinct: int | None = None) -> Limits:
        """Return the minimum times of a stage; `distinct` None: experts of uniform routing."""
        return self._limits(self._parts(size, distinct), size)

    def _parts(self, size: StageSize, distinct: int | None) -> tuple[Part, ...]:
        if distinct is None and (spread := self.spread(size)) is not None:
            distinct = spread.typical
        return parts_of(self.architecture, size, distinct)

    def _limits(self, parts: Sequence[Part], size: StageSize) -> Limits:
        types, roof, of = self.types, self.roof, self.architecture
        flop: dict[DType, int] = {}
        for each in parts:
            compute = types.compute_of(each)
            flop[compute] = flop.get(compute, 0) + each.count * each.min_flop
        cache = types.cache.byte
        weight_bytes = sum(each.count * types.of_weights(each).byte(each.weights) for each in parts)
        read_bytes = sum(each.count * cache(each.cache_elements) for each in parts)
        written_bytes = sum(each.count * cache(each.new_elements) for each in parts)
        products = [(_operand(each), flop[each]) for each in flop]
        work = ModelWork(
            products=tuple(products),
            read_bytes=weight_bytes + read_bytes,
            written_bytes=written_bytes,
        )
        found = model_minimums(work, roof) if roof.levels else []
        compute_s = [each for each in found if each.bound is Bound.COMPUTE]
        # Two all-reduces a layer: after attention and after the feed-forward part.
        reduced_bytes = types.floats.byte(size.new_tokens * of.width)
        link = None
        if self.ranks > 1 and self.link is not None:
            link_s = 2 * of.layers * min_all_reduce_s(reduced_bytes, self.ranks, self.link)
            link = Minimum(time_s=link_s, ceiling=self.link.name, bound=Bound.LINK)
        return Limits(
            size=size,
            flop=FLOP_PER_MAC * sum(each.count * each.macs for each in parts),
            weight_bytes=weight_bytes,
            cache_bytes=read_bytes + written_bytes,
            link_bytes=2 * of.layers * reduced_bytes if self.ranks > 1 else 0,
            compute=max(compute_s, key=lambda each: each.time_s, default=None),
            memory=next((each for each in found if each.bound is Bound.MEMORY), None),
            link=link,
            is_complete=all(roof.ceilings_of(each)[0] is not None for each, _ in products)
            and (self.ranks == 1 or link is not None),
        )

    def placed(self, size: StageSize, distinct: int | None = None) -> PlacedStage:
        """Return a stage under the roofline; `distinct` None: experts of uniform routing."""
        if distinct is None and (spread := self.spread(size)) is not None:
            distinct = spread.typical
        parts, roof, types = self._parts(size, distinct), self.roof, self.types
        lasting = sum(each.count * sum(_lasting_bytes(each, types)) for each in parts)
        placed = [_placed(each, roof, types, lasting) for each in parts]
        names = dict.fromkeys(each.name for each in placed)
        # Layers differ in attention only.
        layers = {name: self.architecture.layers for name in names if name.startswith("attention")}
        return PlacedStage(
            size=size,
            distinct_experts=distinct,
            parts=tuple(
                _sum([each for each in placed if each.name == name], layers.get(name))
                for name in names
            ),
            minimum=self._limits(parts, size).minimum,
        )


@functools.cache
def _operand(of: DType) -> OperatorRecord:
    """Return a product of operands in a type, which selects the ceiling."""
    nothing = Part(name="vocabulary", count=1, macs=1, min_flop=2, weights=1)
    return _record(nothing, Types.all_of(of))


def _lasting_bytes(part: Part, types: Types) -> tuple[int, int]:
    """Return the bytes of weights and of KV cache in one layer."""
    cache = types.cache.byte(part.cache_elements) + types.cache.byte(part.new_elements)
    return types.of_weights(part).byte(part.weights), cache


def _placed(part: Part, roof: Roof, types: Types, lasting_bytes: int) -> PlacedPart:
    record = _record(part, types)
    weight_bytes, cache_bytes = _lasting_bytes(part, types)
    reuses = [Reuse(weight_bytes + cache_bytes, lasting_bytes)]
    found: Placement = roof.place(record, reuses, compute_as=types.compute_of(part))
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
    """Return one layer of a part as an operator, to be placed under the roofline."""
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
            flop=FLOP_PER_MAC * part.macs,
            macs=part.macs,
            min_flop=part.min_flop,
            **traffic_of(inputs, outputs),
        ),
    )


def _spec(storage: int, elements: int, dtype: DType, role: Role) -> TensorSpec:
    return TensorSpec(
        shape=(elements,), dtype=dtype, distinct_elements=elements, storage=storage, role=role
    )


def _sum(parts: Sequence[PlacedPart], layers: int | None) -> PlacedPart:
    """Return the sum of parts of one name in a number of layers, with the limiter of the longest.

    `layers` None: all parts are in the same layers.
    """
    decisive = max(parts, key=lambda each: each.min_time_s or 0.0)
    summed = ("macs", "flop", "min_flop", "weight_bytes", "cache_bytes")
    whole = {name: sum(getattr(each, name) for each in parts) for name in summed}

    def mean(name: str) -> float | None:
        """Return all FLOP over the sum of bytes or seconds."""
        each = [(part.flop, getattr(part, name)) for part in parts]
        over = sum(flop / rate for flop, rate in each if rate)
        return whole["flop"] / over if over and all(rate for _, rate in each) else None

    times_s = [each.min_time_s for each in parts if each.min_time_s is not None]
    return replace(
        decisive,
        count=layers or max(each.count for each in parts),
        **whole,
        intensity_flop_per_byte=mean("intensity_flop_per_byte"),
        attainable_flop_per_s=mean("attainable_flop_per_s"),
        min_time_s=sum(times_s) if len(times_s) == len(parts) else None,
    )
