"""Entry point `analyze_language`: prefill, decode, KV cache and memory of a language model.

Operators are counted on fake tensors; everything else follows from the configuration.
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
from roofline.llm.bounds import ModelOnMachine, Types
from roofline.llm.memory import Memory, activations_of, cache_of, footprint_of
from roofline.llm.parts import STAGES, Stage, StageSize, weights_of
from roofline.llm.result import Language
from roofline.llm.stages import (
    dtype_of,
    is_cache,
    residency_while_generating,
    stage_of,
    warnings_of,
)
from roofline.llm.sweep import sweep_of
from roofline.llm.weight_bits import WeightBits, what_if_in_bits
from roofline.machine.system.host import available_memory_bytes
from roofline.pipeline.analyses import place_on, resolve_machines
from roofline.pipeline.machines import Hardware, names_host
from roofline.pipeline.runs import Workload
from roofline.placement import Roof
from roofline.run import RunOptions, StageKeywords, takes
from roofline.workload.operators import OperatorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """Name and full configuration of a model, as plain data with defaults, and notes."""

    name: str
    configuration: Mapping[str, object]
    notes: tuple[str, ...]


def language_model(name: str, *, config: str | None) -> LanguageModel:
    """Return the configuration of a language model, without weights or downloads.

    `config` gives its sizes: a bundled name (``"llama-3.1-8b"``), a local ``config.json`` or its
    folder, or ``"key=value,key=value"``, also after one of the first two.
    """
    from roofline.workload.models.libraries.transformers_config import plain_configuration
    from roofline.workload.models.libraries.transformers_models import is_transformers_model
    from roofline.workload.models.libraries.transformers_stages import check_decoder
    from roofline.workload.models.sources import load_model

    source = load_model(name, config=config)
    if not is_transformers_model(source.module):
        raise ModelError(
            f"model '{name}': no language model of transformers; choose one such as hf:llama"
        )
    check_decoder(source.module, name)
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
    """Return a stage of a language model as a workload to capture or run."""
    run = options.run(on)
    from roofline.workload.models.libraries.transformers_stages import staged_source
    from roofline.workload.models.sources import load_model

    staged = staged_source(
        load_model(name, config=config),
        stage=stage,
        context=context,
        batch=options.batch or 1,
        run=run,
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
    """Return the analysis of a prefill or decode pass, captured on fake tensors.

    In decode, the KV cache is an input of the pass: operators read and copy its bytes.

    Args:
        options: ``dtype`` is that of weights and cache; None: that of the configuration.
        stage: ``"prefill"``: `context` tokens per sequence, with the logits of the last one if the
            model can leave out the others; ``"decode"``: one token per sequence, with `context`
            tokens in the cache.
    """
    (known,) = resolve_machines([options.hardware], options.threads)
    asked = stage_workload(
        name, options, config=config, stage=stage, context=context, on=known.device
    )
    captured = asked.captured()
    records = captured.capture.records
    if stage == "decode":
        captured = replace(captured, reuse=residency_while_generating(records, captured.reuse))
    captured = replace(captured, notes=(*captured.notes, *_notes_of_pass(records, stage)))
    return place_on(captured, known, options, progress, predict=predict)


def cache_growth(records: Iterable[OperatorRecord]) -> tuple[int, int]:
    """Return the bytes of growing the KV cache by a token: concatenated, and in a static cache."""
    copied = static = 0
    for record in records:
        if record.op == "aten.cat" and any(map(is_cache, record.inputs)):
            copied += record.work.traffic_bytes
            static += 2 * sum(each.byte for each in record.inputs if not is_cache(each))
    return copied, static


def _notes_of_pass(records: Sequence[OperatorRecord], stage: Stage) -> Iterator[str]:
    """Yield notes on cache growth and expert routing."""
    copied, static = cache_growth(records)
    if copied and stage == "decode":
        yield (
            f"KV cache growth moves {format_bytes(copied)} (concatenation in transformers), a"
            f" static cache {format_bytes(static)}"
        )
    product = next((each for each in records if each.op == "aten._grouped_mm"), None)
    if product is not None:
        experts, rows = product.inputs[1].shape[0], product.inputs[0].shape[0]
        yield (
            f"expert routing is unknown: traffic counts {min(experts, rows)} of {experts} experts"
            f" per layer (maximum of {rows} choices), minimum times count one"
        )


DEFAULT_CONTEXT = 128
"""Default sequence length, that of other transformers models."""

_MOST = 2**24
"""Upper limit of context and batch."""


def check_size(name: str, value: object) -> int:
    """Return a number of tokens or sequences."""
    if type(value) is not int or not 1 <= value <= _MOST:
        raise InputError(f"{argument(name, value)}: must be a whole number from 1 to {_MOST:,}")
    return value


def sweep_axis(
    name: str, values: Sequence[int], *, usual: int, other: Sequence[int]
) -> tuple[int, ...]:
    """Return the distinct values of a sweep axis; `usual` if only the other axis is given."""
    if isinstance(values, (str, int)):
        raise InputError(f"{argument(name, values)}: must be a list such as 1,2,4,8")
    if not values:
        return (usual,) if other else ()
    return tuple(sorted({check_size(name, each) for each in values}))


def given_memory(memory: object) -> Memory | None:
    """Return the memory given as an argument; None without one."""
    if memory is None:
        return None
    if isinstance(memory, str):
        return Memory(size_bytes=parse_bytes(memory, "memory"), source=argument("memory"))
    if type(memory) is not int or memory < 1:
        raise InputError(f"{argument('memory', memory)}: must be a size such as 80GiB")
    return Memory(size_bytes=memory, source=argument("memory"))


def machine_memory(analysis: Analysis, hardware: Hardware | None) -> Memory:
    """Return the memory of a machine: that of its profile; of this one free memory."""
    profile = analysis.hardware
    is_host = hardware is None or (isinstance(hardware, (str, Path)) and names_host(hardware))
    if is_host:
        return Memory(size_bytes=available_memory_bytes(), source="free on this machine")
    capacity = profile.memory_capacity_bytes
    if capacity is not None:
        return Memory(size_bytes=capacity, source=f"{profile.memory[-1].name} of {profile.name}")
    return Memory(
        size_bytes=None,
        source=f"no capacity in profile {profile.name}; add {argument('memory', '80GiB')}",
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
    """Analyze prefill and decode of a language model: tokens/s, KV cache, memory.

    Nothing is downloaded and no weights are allocated. Each stage is one pass of transformers on
    fake tensors, next to the minimum time of the architecture, a limit of any implementation.

    Args:
        model: ``"hf:llama"`` or another decoder-only type or class of transformers.
        config: ``"hidden_size=4096,num_hidden_layers=32"``, a bundled name, or a local
            ``config.json``; None: the library's defaults.
        stage: ``"prefill"`` or ``"decode"``; None: both.
        context: tokens per sequence, read by prefill or in the KV cache of decode; None: 128.
        weight_bits: weight-only quantization to compare: ``"w8a16"``, ``"w4a16"``.
        sweep_batch, sweep_context: values to sweep; one alone is swept at the other's value.
        memory: available memory in bytes, or ``"80GiB"``; None: that of the hardware profile, on
            this machine free memory.
        progress: as for `analyze`. `batch` is the number of sequences [default: 1], `dtype` that
            of parameters [default: the configuration's].

    Raises:
        ModelError: unknown model, or no language model.
        InputError: invalid option or configuration.
        HardwareError: unknown hardware, or too many threads.
    """
    if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"model: must be a name such as 'hf:llama', got {type(model).__name__}")
    options = RunOptions.of(**run)
    stages = STAGES
    if stage is not None:
        if stage not in STAGES:
            hint = did_you_mean(str(stage), STAGES)
            raise InputError(f"{argument('stage', stage)}: must be prefill or decode{hint}")
        stages = (stage,)
    context = check_size("context", DEFAULT_CONTEXT if context is None else context)
    batch = check_size("batch", 1 if options.batch is None else options.batch)
    bits = dict.fromkeys(map(WeightBits.parse, weight_bits))
    batches = sweep_axis("sweep_batch", sweep_batch, usual=batch, other=sweep_context)
    contexts = sweep_axis("sweep_context", sweep_context, usual=context, other=sweep_batch)
    given = given_memory(memory)
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
    # Only a part of the model may have been built.
    built = totals.parameter_size_bytes + totals.buffer_size_bytes
    placed = ModelOnMachine(
        architecture=architecture,
        roof=Roof(first.hardware, first.threads),
        types=Types.all_of(floats),
        weight_bytes=max(built, floats.byte(weights_of(architecture))),
        memory=given or machine_memory(first, options.hardware),
    )
    found = [
        stage_of(placed, StageSize(stage=each, batch=batch, context=context), analyses[each])
        for each in stages
    ]
    cache = cache_of(architecture, floats)
    return Language(
        model=known.name,
        # JSON has no infinity.
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
            # Prefill comes first and has the larger activations.
            activations=activations_of(architecture, stages[0], floats),
            memory=placed.memory,
            peak_bytes=max(each.totals.peak_memory_bytes for each in analyses.values()),
        ),
        stages=tuple(found),
        weight_bits=tuple(what_if_in_bits(placed, each, found) for each in bits),
        sweep=sweep_of(placed, stages, batches, contexts) if batches else None,
        notes=(*known.notes, *_notes(architecture, context)),
        warnings=warnings_of(found, architecture, cache, known.notes),
    )


def _notes(architecture: Architecture, context: int) -> Iterator[str]:
    """Yield notes on context length and latent attention."""
    positions = architecture.positions
    if positions is not None and context > positions:
        yield (f"context {context:,} exceeds the maximum of the configuration ({positions:,})")
    if architecture.latent is not None:
        yield (
            "latent attention: the architecture caches and reads one vector per token; operators of"
            " transformers may expand keys and values of all heads in every pass"
        )
