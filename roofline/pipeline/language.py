"""analyze_language: the stages of a language model, its cache, its memory, and what they come to.

What torch calls is counted on fake tensors; everything else follows from the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from roofline.analysis import Analysis
from roofline.core.progress import Progress
from roofline.core.rows import finite
from roofline.core.units import format_bytes, parse_bytes
from roofline.errors import InputError, ModelError, argument, did_you_mean
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Memory, activations_of, cache_of, footprint_of
from roofline.llm.parts import STAGES, Stage, StageSize, weights_of
from roofline.llm.placing import ModelOnMachine, Types
from roofline.llm.result import Language
from roofline.llm.stages import (
    dtype_of,
    held_while_generating,
    is_cache,
    stage_of,
    warnings_of,
)
from roofline.llm.sweep import sweep_of
from roofline.llm.weight_bits import WeightBits, in_bits
from roofline.machine.system.host import available_memory_bytes
from roofline.pipeline.analyses import known_machines, placed_on
from roofline.pipeline.machines import Hardware, means_host
from roofline.pipeline.runs import Workload
from roofline.placement import Roof
from roofline.run import RunOptions, StageKeywords, takes
from roofline.workload.operators import OperatorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """What a name and a configuration come to.

    ``configuration`` is all of it as plain data, as JSON has it, the library's defaults included;
    ``notes`` say which sizes these were, and what else is to be known.
    """

    name: str
    configuration: Mapping[str, object]
    notes: tuple[str, ...]


def language_model(name: str, *, config: str | None) -> LanguageModel:
    """The configuration of a language model, without its weights and without a download.

    `config` are its sizes: a bundled name (``"llama-3.1-8b"``), a local ``config.json`` or its
    folder, or ``"key=value,key=value"``, also behind one of the first two.
    """
    from roofline.workload.models.libraries.transformers_config import plain_configuration
    from roofline.workload.models.libraries.transformers_models import is_transformers_model
    from roofline.workload.models.libraries.transformers_stages import check_kind
    from roofline.workload.models.sources import load

    source = load(name, config=config)
    if not is_transformers_model(source.module):
        raise ModelError(
            f"model '{name}': is no language model of transformers; name one, such as hf:llama"
        )
    check_kind(source.module, name)
    return LanguageModel(
        name=name,
        configuration=plain_configuration(source.module.config),
        notes=source.notes,
    )


def stage_workload(
    name: str,
    options: RunOptions,
    *,
    config: str | None,
    stage: Stage,
    context: int,
    on: str = "cpu",
) -> Workload:
    """A language model in one of its stages, ready to be captured, or to be run for real."""
    run = options.run(on)
    from roofline.workload.models.libraries.transformers_stages import staged_source
    from roofline.workload.models.sources import load

    staged = staged_source(
        load(name, config=config), stage=stage, context=context, batch=options.batch or 1, run=run
    )
    return Workload(
        source=staged.source,
        given=staged.given,
        specs=staged.specs,
        notes=staged.notes,
        options=options,
        run=run,
    )


def analyze_stage(
    name: str,
    options: RunOptions,
    *,
    config: str | None,
    stage: Stage,
    context: int,
    progress: Progress | None = None,
    predict: bool = True,
) -> Analysis:
    """Every operator of a prefill or a decode pass, counted and placed under a machine's ceilings.

    The pass runs on tensors without memory. In decode, the cache is an input of the pass: the bytes
    of it that attention reads, and that growing it copies, are those of the operators.

    Args:
        options: ``dtype`` is that of weights and cache; None: as the configuration says.
        stage: ``"prefill"``: `context` tokens of each sequence, and the logits of the last one
            where the model can leave out the others; ``"decode"``: one token of each sequence,
            behind a cache of `context` tokens.
    """
    (known,) = known_machines([options.hardware], options.threads)
    asked = stage_workload(
        name, options, config=config, stage=stage, context=context, on=known.device
    )
    captured = asked.captured()
    records = captured.capture.records
    if stage == "decode":
        captured = replace(captured, reuse=held_while_generating(records, captured.reuse))
    captured = replace(captured, notes=(*captured.notes, *_notes_of_pass(records, stage)))
    return placed_on(captured, known, options, progress, predict=predict)


def cache_growth(records: Iterable[OperatorRecord]) -> tuple[int, int]:
    """Return the bytes that a decode pass moves to add a token to its cache, beside reading it.

    First those that concatenations of the cache with the new token read and write, as eager
    transformers has it; then those of writing the token into a cache that has room for it.
    """
    copied = static = 0
    for record in records:
        if record.op == "aten.cat" and any(map(is_cache, record.inputs)):
            copied += record.work.traffic_bytes
            static += 2 * sum(each.byte for each in record.inputs if not is_cache(each))
    return copied, static


def _notes_of_pass(records: Sequence[OperatorRecord], stage: Stage) -> Iterator[str]:
    """What a reader of the numbers of a pass must know: cache growth, and routing."""
    copied, static = cache_growth(records)
    if copied and stage == "decode":
        yield (
            f"KV cache growth moves {format_bytes(copied)} (transformers concatenates); a static"
            f" cache would move {format_bytes(static)}; peak memory has the cache once and the"
            " growing tensor twice"
        )
    product = next((each for each in records if each.op == "aten._grouped_mm"), None)
    if product is not None:
        experts, rows = product.inputs[1].shape[0], product.inputs[0].shape[0]
        yield (
            "routing is not known from shapes: traffic counts the weights of"
            f" {min(experts, rows)} of {experts} experts per layer (maximum of {rows} choices),"
            " minimum times those of one; FLOP do not depend on routing"
        )


DEFAULT_CONTEXT = 128
"""As many tokens as other transformers models are given."""

_MOST = 2**24
"""No context and no batch is as large."""


def check_size(name: str, value: object) -> int:
    """A number of tokens or sequences."""
    if type(value) is not int or not 1 <= value <= _MOST:
        raise InputError(f"{argument(name, value)}: must be a whole number from 1 to {_MOST:,}")
    return value


def axis_of(
    name: str, values: Sequence[int], *, usual: int, other: Sequence[int]
) -> tuple[int, ...]:
    """The values of one axis of a sweep, each once; `usual` where only the other is given."""
    if isinstance(values, (str, int)):
        raise InputError(f"{argument(name, values)}: give several sizes, such as 1,2,4,8")
    if not values:
        return (usual,) if other else ()
    return tuple(sorted({check_size(name, each) for each in values}))


def memory_of(memory: object) -> Memory | None:
    """The memory that was named; None: none was."""
    if memory is None:
        return None
    if isinstance(memory, str):
        return Memory(size_bytes=parse_bytes(memory), source=argument("memory"))
    if type(memory) is not int or memory < 1:
        raise InputError(f"{argument('memory', memory)}: must be bytes, or a size such as 80GiB")
    return Memory(size_bytes=memory, source=argument("memory"))


def memory_there(analysis: Analysis, hardware: Hardware | None) -> Memory:
    """What a machine has: what its profile knows, of this one what is free."""
    profile = analysis.hardware
    is_host = hardware is None or (isinstance(hardware, (str, Path)) and means_host(hardware))
    if is_host:
        return Memory(size_bytes=available_memory_bytes(), source="free on this machine now")
    capacity = profile.memory_capacity_bytes
    if capacity is not None:
        return Memory(size_bytes=capacity, source=f"{profile.memory[-1].name} of {profile.name}")
    return Memory(
        size_bytes=None,
        source=f"{profile.name} has no memory capacity; give {argument('memory')}, such as 80GiB",
    )


@takes(StageKeywords)
def analyze_language(
    model: str,
    *,
    config: str | Path | None = None,
    stage: Stage | None = None,
    context: int | None = None,
    weight_bits: Sequence[str] = (),
    sweep_batch: Sequence[int] = (),
    sweep_context: Sequence[int] = (),
    memory: int | str | None = None,
    progress: Progress | None = None,
    **run: Unpack[StageKeywords],
) -> Language:
    """What prefill and decode of a language model ask for, and what a machine makes of that.

    Nothing is downloaded and no weights are allocated. Each stage is one pass of transformers'
    model on fake tensors; beside its bound stands that of the architecture, which no implementation
    can beat.

    Args:
        model: ``"hf:llama"`` or another type or class of transformers that continues text.
        config: sizes: ``"hidden_size=4096,num_hidden_layers=32"``, the name of one of the bundled
            configurations, or a local ``config.json``; None: the library's defaults.
        stage: ``"prefill"`` or ``"decode"``; None: both.
        context: tokens of each sequence: those that prefill takes in, those in the cache of decode;
            None: 128.
        weight_bits: what fewer bits of weights would be worth: ``"w8a16"``, ``"w4a16"``.
        sweep_batch, sweep_context: values at which the stages are placed besides; where only one is
            given, the other is what was asked for.
        memory: what weights and cache must fit into: bytes, or ``"80GiB"``; None: what the
            hardware's profile knows, on this machine what is free.
        progress: as for `analyze`. `batch` is the number of sequences, by default 1; `dtype` that
            of parameters, by default that of the configuration.

    Raises:
        ModelError: the model is unknown, or no language model.
        InputError: an option is wrong, or a size of the configuration is impossible.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    options = RunOptions.of(**run)
    stages = STAGES
    if stage is not None:
        if stage not in STAGES:
            hint = did_you_mean(str(stage), STAGES)
            raise InputError(
                f"{argument('stage', stage)}: choose prefill or decode; without it both{hint}"
            )
        stages = (stage,)
    context = check_size("context", DEFAULT_CONTEXT if context is None else context)
    batch = check_size("batch", 1 if options.batch is None else options.batch)
    bits = dict.fromkeys(map(WeightBits.parsed, weight_bits))
    batches = axis_of("sweep_batch", sweep_batch, usual=batch, other=sweep_context)
    contexts = axis_of("sweep_context", sweep_context, usual=context, other=sweep_batch)
    given = memory_of(memory)
    written = None if config is None else str(config)
    known = language_model(model, config=written)
    architecture = Architecture.of(known.configuration)
    analyses: dict[Stage, Analysis] = {
        each: analyze_stage(
            model, options, config=written, stage=each, context=context, progress=progress
        )
        for each in stages
    }
    first = analyses[stages[0]]
    floats, totals = dtype_of(first), first.totals
    # The model may have been built in part.
    built = totals.parameter_size_bytes + totals.buffer_size_bytes
    placed = ModelOnMachine(
        architecture=architecture,
        roof=Roof(first.hardware, first.threads),
        types=Types.all_of(floats),
        weight_bytes=max(built, floats.byte(weights_of(architecture))),
        memory=given or memory_there(first, options.hardware),
    )
    found = [
        stage_of(placed, StageSize(stage=each, batch=batch, context=context), analyses[each])
        for each in stages
    ]
    cache = cache_of(architecture, floats)
    return Language(
        model=known.name,
        # JSON has no infinity, which a configuration may name.
        configuration=finite(known.configuration),
        architecture=architecture,
        dtype=floats,
        batch=batch,
        context=context,
        cache=cache,
        footprint=footprint_of(
            cache,
            context=context,
            batch=batch,
            weight_bytes=placed.weight_bytes,
            # Prefill, where it is asked for, has more alive: it comes first.
            activations=activations_of(architecture, stages[0], floats),
            memory=placed.memory,
            peak_bytes=max(each.totals.peak_memory_bytes for each in analyses.values()),
        ),
        stages=tuple(found),
        weight_bits=tuple(in_bits(placed, each, found) for each in bits),
        sweep=sweep_of(placed, stages, batches, contexts) if batches else None,
        notes=(*known.notes, *_notes(architecture, context)),
        warnings=warnings_of(found, architecture, cache, known.notes),
    )


def _notes(architecture: Architecture, context: int) -> Iterator[str]:
    """What a reader of the numbers must know of the model."""
    positions = architecture.positions
    if positions is not None and context > positions:
        yield (
            f"a context of {context:,} tokens is beyond the {positions:,} positions of the"
            " configuration"
        )
    if architecture.latent is not None:
        yield (
            "latent attention: the architecture keeps one vector per token and decodes on it;"
            " operators of transformers may make keys and values of all heads in every pass"
        )
