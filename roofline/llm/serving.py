"""Serving runs of an engine with a paged KV cache, over everything that is swept.

Weights are read once per pass, the KV cache once, without copies. Prefill passes through the layers
in chunks, so its activations are those of decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from roofline.core.dtypes import DType
from roofline.errors import InputError, argument
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import Limits, ModelOnMachine
from roofline.llm.formats import SHORT, Types, WeightFormat, usual_format
from roofline.llm.memory import Fit, Footprint, Memory, activations_of, cache_of, footprint_of
from roofline.llm.parts import Stage, StageSize, all_parts, table_weights, weights_of
from roofline.placement import Bound, Roof
from roofline.scaling.settings import RankLink

MOST_BATCH = 2**16
"""Largest batch in the search for a crossover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of a serving run: its roof, memory, and the link between ranks (None: unknown)."""

    roof: Roof
    memory: Memory
    link: RankLink | None = None

    @property
    def name(self) -> str:
        """Name of the hardware profile."""
        return self.roof.profile.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRun:
    """A serving run, as asked for.

    ``weights`` and ``cache`` are short names of formats, ``ranks`` the tensor-parallel ones.
    """

    machine: str
    ranks: int
    weights: str
    cache: str
    context: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStage:
    """Stage of a serving run; work and times are those of one rank.

    ``bound`` is the limiter of ``model_min_time_s``, in which compute, memory and link overlap.
    ``tokens_per_s`` is the maximum of all sequences. Times are None without ceilings.
    """

    stage: Stage
    tokens: int
    flop: int
    weight_bytes: int
    cache_bytes: int
    link_bytes: int
    bound: Bound
    compute_s: float | None
    memory_s: float | None
    link_s: float | None
    model_min_time_s: float | None
    tokens_per_s: float | None

    @staticmethod
    def of(limits: Limits) -> ServedStage:
        """Return the stage with these limits."""
        kinds = (limits.compute, limits.memory, limits.link)
        compute_s, memory_s, link_s = (each and each.time_s for each in kinds)
        minimum, tokens = limits.minimum, limits.size.new_tokens
        return ServedStage(
            stage=limits.size.stage,
            tokens=tokens,
            flop=limits.flop,
            weight_bytes=limits.weight_bytes,
            cache_bytes=limits.cache_bytes,
            link_bytes=limits.link_bytes,
            bound=limits.bound,
            compute_s=compute_s,
            memory_s=memory_s,
            link_s=link_s,
            model_min_time_s=minimum.time_s if minimum else None,
            tokens_per_s=tokens / minimum.time_s if minimum and minimum.time_s else None,
        )

    @property
    def serial_s(self) -> float | None:
        """Minimum time without overlap of communication; None without ceilings."""
        if self.model_min_time_s is None:
            return None
        return max(self.compute_s or 0.0, self.memory_s or 0.0) + (self.link_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCell:
    """A serving run with its minimum times and the memory of one rank.

    ``max_sequences`` of this context fit (None: unknown). From ``crossover`` sequences on, decode
    is compute-bound (None: not up to `MOST_BATCH`, or unknown).
    """

    run: ServingRun
    stages: tuple[ServedStage, ...]
    footprint_bytes: int
    memory_bytes: int | None
    fit: Fit
    max_sequences: int | None
    crossover: int | None

    def stage(self, name: Stage) -> ServedStage | None:
        """Return the stage of that name; None if it is missing."""
        return next((each for each in self.stages if each.stage == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Changed headline run: tokens/s per sequence and in total, and memory of one rank."""

    name: str
    tpot_s: float | None
    tokens_per_s: float | None
    footprint_bytes: int
    fit: Fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Model of serving runs: architecture, type of its floats, and run settings.

    ``prefix_share`` is the share of the context that all sequences have in common;
    ``all_weights``: quantized formats include embedding and head; ``kept``: parts that they leave
    in floats. ``built_bytes`` are the weights
    that transformers allocates in floats (None: they follow from the architecture).
    """

    architecture: Architecture
    floats: DType
    prefix_share: float = 0.0
    all_weights: bool = False
    kept: frozenset[str] = frozenset()
    built_bytes: int | None = None

    def shared(self, context: int) -> int:
        """Return the tokens of the common prefix; the last token is never one of them."""
        return min(int(self.prefix_share * context), context - 1)

    def size(self, stage: Stage, batch: int, context: int, drafts: int = 0) -> StageSize:
        """Return the size of a stage with the common prefix."""
        shared = self.shared(context)
        return StageSize(stage=stage, batch=batch, context=context, shared=shared, drafts=drafts)

    def types(self, form: WeightFormat, cache: DType | None, roof: Roof) -> Types:
        """Return the types of a format on a machine."""
        return form.types(self.floats, cache, roof, all_weights=self.all_weights, kept=self.kept)

    def weight_bytes(self, types: Types, ranks: int = 1) -> int:
        """Return the bytes of the weights of one rank."""
        of = self.architecture.shard(ranks)
        if ranks == 1 and self.built_bytes is not None and types.weights == types.floats:
            return max(self.built_bytes, types.floats.byte(weights_of(of)))
        parts = all_parts(of)
        products = sum(each.count * types.of_weights(each).byte(each.weights) for each in parts)
        tables = types.weights if types.all_weights else types.floats
        small_bytes = types.floats.byte(of.small_weights or 0)
        return products + tables.byte(table_weights(of)) + small_bytes

    def on(self, machine: Machine, types: Types, ranks: int = 1) -> ModelOnMachine:
        """Return one rank of the model on a machine."""
        return ModelOnMachine(
            architecture=self.architecture.shard(ranks),
            roof=machine.roof,
            types=types,
            weight_bytes=self.weight_bytes(types, ranks),
            memory=machine.memory,
            ranks=ranks,
            link=machine.link,
        )

    def footprint(
        self,
        of: ModelOnMachine,
        batch: int,
        context: int,
        *,
        stage: Stage = "decode",
        peak_bytes: int | None = None,
    ) -> Footprint:
        """Return the memory of a rank; `stage` is the one that whole contexts pass at once."""
        return footprint_of(
            cache_of(of.architecture, of.types.cache),
            context=context,
            batch=batch,
            weight_bytes=of.weight_bytes,
            activations=activations_of(of.architecture, stage, of.types.floats),
            memory=of.memory,
            peak_bytes=peak_bytes,
            shared=self.shared(context),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Values of everything that is swept; the first of each is the headline's.

    ``weights`` None: floats that the machine has units for; ``caches`` None: as activations.
    """

    machines: tuple[Machine, ...]
    ranks: tuple[int, ...]
    weights: tuple[str | None, ...]
    caches: tuple[DType | None, ...]
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    stages: tuple[Stage, ...]

    def groups(self, model: Model) -> Iterator[tuple[ServingRun, WeightFormat, ModelOnMachine]]:
        """Yield the model of every machine, ranks and formats, with the run of its first size."""
        for machine in self.machines:
            for ranks in self.ranks:
                for weights in self.weights:
                    for cache in self.caches:
                        name = weights or usual_format(model.floats, machine.roof)
                        form = WeightFormat.parse(name)
                        on = model.on(machine, model.types(form, cache, machine.roof), ranks)
                        run = ServingRun(
                            machine=machine.name,
                            ranks=ranks,
                            weights=name,
                            cache=SHORT[on.types.cache.name],
                            context=self.contexts[0],
                            batch=self.batches[0],
                        )
                        yield run, form, on


def cells_of(model: Model, axes: Axes) -> Iterator[ServingCell]:
    """Yield a cell for each machine, ranks, weights, cache, context and batch, batches fastest."""
    for run, _, on in axes.groups(model):
        for context in axes.contexts:
            crossover = crossover_of(model, on, context) if "decode" in axes.stages else None
            for batch in axes.batches:
                footprint = model.footprint(on, batch, context)
                yield ServingCell(
                    run=replace(run, context=context, batch=batch),
                    stages=tuple(
                        ServedStage.of(on.limits(model.size(each, batch, context)))
                        for each in axes.stages
                    ),
                    footprint_bytes=footprint.total_bytes,
                    memory_bytes=on.memory.size_bytes,
                    fit=footprint.fit,
                    max_sequences=footprint.max_sequences,
                    crossover=crossover,
                )


def crossover_of(model: Model, on: ModelOnMachine, context: int) -> int | None:
    """Return the smallest batch from which decode is compute-bound."""

    def is_compute(batch: int) -> bool:
        return on.limits(model.size("decode", batch, context)).bound is Bound.COMPUTE

    return smallest_batch(is_compute)


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


def accepted_tokens(drafts: int, acceptance: float) -> float:
    """Return the mean tokens of a pass that verifies drafts, each accepted independently.

    Y. Leviathan, M. Kalman, Y. Matias, "Fast Inference from Transformers via Speculative Decoding",
    ICML 2023: (1 - a^(k + 1)) / (1 - a).
    """
    return sum(acceptance**each for each in range(drafts + 1))


def what_if_speculative(
    model: Model, on: ModelOnMachine, run: ServingRun, *, drafts: int, acceptance: float
) -> WhatIf:
    """Return speculative decoding: a pass verifies `drafts` tokens; drafting takes no time."""
    minimum = on.limits(model.size("decode", run.batch, run.context, drafts)).minimum
    footprint = model.footprint(on, run.batch, run.context)
    tokens = accepted_tokens(drafts, acceptance)
    tpot_s = minimum.time_s / tokens if minimum else None
    return WhatIf(
        name=f"speculative decoding: {drafts} drafts, acceptance {acceptance:.0%}, free drafting",
        tpot_s=tpot_s,
        tokens_per_s=run.batch / tpot_s if tpot_s else None,
        footprint_bytes=footprint.total_bytes,
        fit=footprint.fit,
    )


def what_if_pipelined(model: Model, on: ModelOnMachine, run: ServingRun, stages: int) -> WhatIf:
    """Return pipeline parallelism: equal shares of the layers on `stages` groups of ranks.

    The batch is divided into as many micro-batches, one at work in each stage. A micro-batch passes
    all stages, each of which reads its weights for it.
    """
    if stages > on.architecture.layers:
        raise InputError(
            f"{argument('pipeline_parallel', stages)}: the model has {on.architecture.layers}"
            f" layers; use at most {on.architecture.layers}"
        )
    micro = -(-run.batch // stages)
    minimum = on.limits(model.size("decode", micro, run.context)).minimum
    tpot_s = minimum.time_s if minimum else None
    if tpot_s is not None and on.link is not None:
        hop_bytes = on.types.floats.byte(micro * on.architecture.width)
        tpot_s += (stages - 1) * (on.link.latency_s + hop_bytes / on.link.bytes_per_s)
    whole = model.footprint(on, run.batch, run.context).total_bytes
    footprint = replace(
        model.footprint(on, run.batch, run.context),
        weight_bytes=-(-on.weight_bytes // stages),
        cache_bytes=-(-(whole - on.weight_bytes) // stages),
        activation_bytes=0,
    )
    return WhatIf(
        name=f"pipeline parallel over {stages}: micro-batches of {micro:,}"
        + (f", {on.link.name}" if on.link else ""),
        tpot_s=tpot_s,
        tokens_per_s=run.batch / tpot_s if tpot_s else None,
        footprint_bytes=footprint.total_bytes,
        fit=footprint.fit,
    )
