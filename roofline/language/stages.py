"""A stage as the library runs it, beside what the architecture asks for: times and tokens/s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from roofline.analysis import Analysis
from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte, format_si
from roofline.language.architecture import Architecture
from roofline.language.cache import Cache
from roofline.language.experts import ExpertSpread
from roofline.language.generation import is_cache
from roofline.language.parts import Stage
from roofline.language.placing import PlacedStage
from roofline.workload.tensors import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Tokens per second of all sequences; ``low`` and ``high`` are the ends of an interval."""

    tokens_per_s: float
    low_per_s: float | None = None
    high_per_s: float | None = None

    def of_one(self, batch: int) -> Rate:
        """The rate of a single sequence of a batch."""
        return Rate(
            tokens_per_s=self.tokens_per_s / batch,
            low_per_s=None if self.low_per_s is None else self.low_per_s / batch,
            high_per_s=None if self.high_per_s is None else self.high_per_s / batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedBound:
    """What the architecture asks for if each layer touches so many experts."""

    distinct: int
    weight_byte: int
    bound_s: float | None
    tokens_per_s: float | None

    ALSO_WRITTEN: ClassVar = ("model_min_time_s",)

    @property
    def model_min_time_s(self) -> float | None:
        """The same as ``bound_s``, by the name that other results give it."""
        return self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage on a machine.

    ``analysis`` is of the operators that transformers calls, ``asked`` what the architecture asks
    for whoever computes it (of experts, as many as even routing touches). ``spread`` and ``routed``
    (fewest, even routing, most) are there where a layer has experts.
    """

    stage: Stage
    batch: int
    context: int
    analysis: Analysis
    asked: PlacedStage
    spread: ExpertSpread | None = None
    routed: tuple[RoutedBound, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens taken in by prefill, tokens given by decode, in one pass."""
        return self.asked.size.tokens

    @property
    def given_cache_byte(self) -> int | None:
        """Bytes of the cache that the pass was given; None: it was given none."""
        byte: dict[int, int] = {}
        for row in self.analysis.operators:
            for spec in row.inputs:
                if is_cache(spec):
                    end = spec.offset_byte + spec.byte
                    byte[spec.storage] = max(byte.get(spec.storage, 0), end)
        return sum(byte.values()) or None

    @property
    def bound_s(self) -> float | None:
        """Seconds that the operators of the library take at least; None: no ceilings."""
        return self.analysis.totals.bound_s

    @property
    def bound_rate(self) -> Rate | None:
        """The most tokens per second with these operators."""
        return _rate(self.tokens, self.bound_s)

    @property
    def asked_rate(self) -> Rate | None:
        """The most tokens per second with any operators."""
        return _rate(self.tokens, self.asked.bound_s)

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


def doubts(stage: StageResult, architecture: Architecture, cache: Cache) -> Iterable[str]:
    """What speaks against an architecture as it was read, by what transformers really does.

    Args:
        stage: as it is run and as it is asked for.
        architecture: what was read out of the configuration.
        cache: what it keeps.
    """
    found: list[str] = []
    called, asked = stage.analysis.totals.multiply_add, stage.asked.multiply_add
    if not stage.analysis.totals.unknown_operators and called is not None and asked > called:
        found.append(
            f"asks for {format_si(asked, '')} multiply-adds where transformers makes"
            f" {format_si(called, '')}"
        )
    given = stage.given_cache_byte
    most = cache.byte(stage.context, stage.batch)
    # A layer with a window keeps one token less than it sees.
    least = stage.asked.cache_byte - stage.batch * cache.token_byte
    if stage.stage == "decode" and given is not None and not least <= given <= most:
        found.append(f"keeps {format_byte(most)} where transformers keeps {format_byte(given)}")
    if found:
        yield (
            f"{stage.stage}: the architecture, as its configuration is read here,"
            f" {' and '.join(found)}: models of type '{printable(architecture.model_type)}' differ"
            " from what is known of others; rely on the rows of transformers alone, not on the"
            " architecture, its parts, its cache, its sweep or its weights in fewer bits"
        )


def warnings_of(
    stages: Sequence[StageResult],
    architecture: Architecture,
    cache: Cache,
    noted: Sequence[str],
) -> tuple[str, ...]:
    """What speaks against the architecture and what the passes warn of, each line once.

    Args:
        stages: as they are run and as they are asked for.
        architecture: what was read out of the configuration.
        cache: what it keeps.
        noted: lines that are said elsewhere.
    """
    doubted = (line for each in stages for line in doubts(each, architecture, cache))
    said = (line for each in stages for line in each.analysis.warnings)
    return tuple(each for each in dict.fromkeys((*doubted, *said)) if each not in noted)


def dtype_of(analysis: Analysis) -> DType:
    """The type that most bytes of a model's parameters have; float32 where it has none."""
    byte: dict[str, int] = {}
    seen: set[int] = set()
    for row in analysis.operators:
        for spec in row.inputs:
            if spec.role is Role.PARAMETER and spec.storage not in seen:
                seen.add(spec.storage)
                byte[spec.dtype.name] = byte.get(spec.dtype.name, 0) + spec.byte
    return dtype(max(byte, key=lambda name: byte[name]) if byte else "float32")
