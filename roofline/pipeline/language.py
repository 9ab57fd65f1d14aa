"""Entry point `analyze_language`: serving runs of a language model, and passes of transformers.

Everything follows from the configuration. torch is imported only for configurations that need the
defaults of transformers, and to capture its operators.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from roofline.core.dtypes import DType, dtype
from roofline.core.progress import Progress
from roofline.core.rows import finite
from roofline.core.text import printable
from roofline.core.units import format_bytes, parse_bytes
from roofline.errors import InputError, ModelError, argument, did_you_mean
from roofline.llm.architecture import Architecture, text_part
from roofline.llm.families import has_layer_inputs, is_known
from roofline.llm.formats import WeightFormat, cache_type, kept_parts, stored_format, usual_format
from roofline.llm.memory import Memory, cache_of
from roofline.llm.parts import STAGES, Stage
from roofline.llm.result import ENGINES, Engine, Language, check_engine
from roofline.llm.serving import (
    Axes,
    Machine,
    Model,
    WhatIf,
    cells_of,
    what_if_pipelined,
    what_if_speculative,
)
from roofline.llm.stages import (
    dtype_of,
    is_cache,
    residency_while_generating,
    stage_of,
    warnings_of,
)
from roofline.machine import catalog
from roofline.machine.system.host import available_memory_bytes
from roofline.placement import Roof
from roofline.run import RunOptions, StageKeywords, check_choice, each_of, takes
from roofline.scaling.settings import RankLink, link_from_options, rank_link
from roofline.workload.models.libraries.transformers_config import bundled_names, parse_settings
from roofline.workload.operators import OperatorRecord

if TYPE_CHECKING:
    from roofline.analysis import Analysis
    from roofline.machine.hardware import HardwareProfile
    from roofline.pipeline.runs import Workload
    from roofline.run import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """Name and full configuration of a model, as plain data with defaults, and notes.

    ``type_name`` and ``config`` name it for transformers.
    """

    name: str
    configuration: Mapping[str, object]
    notes: tuple[str, ...]
    type_name: str
    config: str | None


def language_model(name: str, *, config: str | None) -> LanguageModel:
    """Return the configuration of a language model, without weights or downloads.

    `name` is a type or class of transformers (``"hf:llama"``), or itself a configuration: a bundled
    name (``"llama-3.1-8b"``), a local ``config.json`` or its folder. `config` gives sizes: one of
    these, or ``"key=value,key=value"``, also after one of them.
    """
    if is_configuration(name):
        config = name if config is None else f"{name},{config}"
    elif ":" not in name and (hint := did_you_mean(name, bundled_names())):
        raise InputError(f"unknown configuration '{printable(name)}'{hint}")
    settings = parse_settings(config) if config is not None else None
    given = dict(text_part(settings.all)) if settings else {}
    kind = str(given.get("model_type") or "")
    type_name = name
    if is_configuration(name):
        if not kind:
            raise InputError(f"{printable(name)}: no model_type; expected a model's config.json")
        type_name = f"hf:{kind}"
    # A key that the file lacks may be misspelled, which only transformers knows.
    changes = settings.given if settings else {}
    is_complete = all(key in settings.base for key in changes) if settings else False
    if is_complete and is_known(given) and type_name == f"hf:{kind}":
        source = settings.source if settings else ""
        notes = (f"configuration: {source}",) if source else ()
        return LanguageModel(
            name=name, configuration=given, notes=notes, type_name=type_name, config=config
        )
    from roofline.workload.models.libraries.transformers_config import plain_configuration
    from roofline.workload.models.libraries.transformers_models import is_transformers_model
    from roofline.workload.models.libraries.transformers_stages import check_decoder
    from roofline.workload.models.sources import load_model

    source = load_model(type_name, config=config)
    if not is_transformers_model(source.module):
        raise ModelError(
            f"model '{name}': no language model of transformers; choose one such as llama-3.1-8b"
        )
    check_decoder(source.module, name)
    # transformers builds floats.
    quantized = {key: given[key] for key in given if key == "quantization_config"}
    return LanguageModel(
        name=name,
        configuration={**plain_configuration(source.module.config), **quantized},
        notes=source.notes,
        type_name=type_name,
        config=config,
    )


def is_configuration(name: str) -> bool:
    """Return True for a bundled configuration, a ``config.json`` or its folder."""
    is_file = name.endswith(".json") or (Path(name) / "config.json").is_file()
    return is_file or name in bundled_names()


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
    from roofline.pipeline.runs import Workload
    from roofline.workload.models.libraries.transformers_stages import staged_source
    from roofline.workload.models.sources import load_model

    run = options.run(on)
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
    from roofline.pipeline.analyses import place_on, resolve_machines

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


DEFAULT_CONTEXT = 4096
"""Default sequence length, if the model has as many positions."""

_MOST = 2**24
"""Upper limit of context and batch."""

_RANGE = re.compile(r"([0-9]+[km]?)\.\.([0-9]+[km]?)")


def sizes_of(name: str, values: object, usual: int) -> tuple[int, ...]:
    """Return whole numbers: a number, a list, or text: ``"1,2,8"``, ``"4k"``, ``"1..64"``.

    ``4k`` is 4096, ``1m`` 1024 times 1k; ``1..64`` are the powers of two times the first number.
    """
    if values is None:
        return (usual,)
    items: Iterable[object] = each_of(name, values)
    if isinstance(values, str):
        items = [size for word in values.split(",") for size in _sizes_in(word.strip().lower())]
    found = dict.fromkeys(items)
    for each in found:
        if type(each) is not int or not 1 <= each <= _MOST:
            fix = f"must be whole numbers from 1 to {_MOST:,}, such as 1,8 or 1..64 or 4k"
            raise InputError(f"{argument(name, printable(str(each))[:40])}: {fix}")
    return tuple(each for each in found if isinstance(each, int))


def _sizes_in(word: str) -> Iterator[object]:
    def number(text: str) -> object:
        factor = {"k": 2**10, "m": 2**20}.get(text[-1:], 1)
        digits = text if factor == 1 else text[:-1]
        return int(digits) * factor if digits.isdecimal() and len(digits) <= 9 else text

    if (ends := _RANGE.fullmatch(word)) is None:
        yield number(word)
        return
    first, last = number(ends[1]), number(ends[2])
    if not isinstance(first, int) or not isinstance(last, int) or not 0 < first <= last:
        yield word
        return
    while first < last:
        yield first
        first *= 2
    yield last


def words_of(name: str, values: object) -> tuple[str, ...]:
    """Return words: one, a list, or text with commas."""
    if isinstance(values, str):
        values = [each.strip() for each in values.split(",")]
    return tuple(map(str, each_of(name, values)))


def share_of(name: str, value: object) -> float:
    """Return a share, written as a number or as ``"50%"``, from 0 to below 1."""
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise InputError(f"{argument(name, printable(text)[:40])}: must be a share from 0 to 99%")
    return share


def given_memory(memory: object) -> Memory | None:
    """Return the memory given as an argument; None without one."""
    if memory is None:
        return None
    if isinstance(memory, str):
        return Memory(size_bytes=parse_bytes(memory, "memory"), source=argument("memory"))
    if type(memory) is not int or memory < 1:
        raise InputError(f"{argument('memory', memory)}: must be a size such as 80GiB")
    return Memory(size_bytes=memory, source=argument("memory"))


def machine_memory(profile: HardwareProfile, *, is_host: bool) -> Memory:
    """Return the memory of a machine: that of its profile; of this one free memory."""
    if is_host:
        return Memory(size_bytes=available_memory_bytes(), source="free on this machine")
    capacity = profile.memory_capacity_bytes
    if capacity is not None:
        return Memory(size_bytes=capacity, source=f"{profile.memory[-1].name} of {profile.name}")
    return Memory(
        size_bytes=None,
        source=f"no capacity in profile {profile.name}; add {argument('memory', '80GiB')}",
    )


def _machine(
    hardware: Hardware | None,
    threads: int | None,
    memory: Memory | None,
    link: RankLink | None,
    *,
    alone: bool,
    is_linked: bool,
) -> Machine:
    """Return a machine; profiles with a name are loaded without numpy and torch."""
    from roofline.machine.hardware import HardwareProfile

    is_host = hardware is None
    if isinstance(hardware, HardwareProfile):
        profile = hardware
    elif (name := str(hardware or catalog.HOST)) == catalog.HOST or (
        catalog.find_hardware(name) == catalog.host_file()
    ):
        from roofline.pipeline.machines import host_profile

        profile, is_host = host_profile()[0], True
    else:
        profile = catalog.load_hardware(name)
    # Among several machines, the number of threads is that of CPUs.
    if threads is None or (not alone and profile.device != "cpu"):
        threads = profile.threads
    if is_linked and link is None:
        link = rank_link(profile, at_best=True)
    return Machine(
        roof=Roof(profile, profile.check_threads(threads)),
        memory=memory or machine_memory(profile, is_host=is_host),
        link=link,
    )


@takes(StageKeywords)
def analyze_language(
    model: str,
    *,
    config: str | Path | None = None,
    engine: Engine = "paged",
    stage: Stage | None = None,
    batch: int | str | Sequence[int] | None = None,
    context: int | str | Sequence[int] | None = None,
    weights: str | Sequence[str] | None = None,
    kv: str | Sequence[str] | None = None,
    quantized_head: bool = False,
    tensor_parallel: int | str | Sequence[int] | None = None,
    pipeline_parallel: int | None = None,
    link_bandwidth: float | str | None = None,
    link_latency: float | str | None = None,
    prefix: float | str = 0.0,
    speculate: int | None = None,
    acceptance: float | str | None = None,
    memory: int | str | None = None,
    progress: Progress | None = None,
    **run: Unpack[StageKeywords],
) -> Language:
    """Analyze prefill and decode of a language model: tokens/s, KV cache, memory.

    Nothing is downloaded and no weights are allocated. Minimum times are those of an engine with a
    paged KV cache: weights and cache once per pass, without copies. Every combination of batches,
    contexts, formats, ranks and machines is one run; the headline is that of the first values.

    Args:
        model: a bundled configuration (``"llama-3.1-8b"``), a local ``config.json``, or a
            decoder-only type or class of transformers (``"hf:llama"``).
        config: ``"hidden_size=4096,num_hidden_layers=32"``, a bundled name, or a local
            ``config.json``; None: the library's defaults.
        engine: ``"transformers"`` adds the captured operators of its eager passes, with
            predictions, and makes them the headline.
        stage: ``"prefill"`` or ``"decode"``; None: both.
        batch: sequences: a number, a list, or ``"1..64"``; None: 1.
        context: tokens per sequence, read by prefill or in the KV cache of decode: a number, a
            list, or ``"4k,32k"``; None: 4096, or the model's maximum if that is lower.
        weights: formats: ``"bf16"``, ``"fp8"``, ``"int8"``, ``"w4a16"``; None: the configuration's.
        kv: types of the KV cache: ``"bf16"``, ``"fp8"``, ``"int8"``; None: that of activations.
        quantized_head: quantized formats include embedding and head.
        tensor_parallel: ranks, each with a share of heads, feed-forward and vocabulary; None: 1.
        pipeline_parallel: groups of layers in a what-if.
        link_bandwidth, link_latency: of the link between ranks, as for `scale`, or a name such as
            ``"nvlink4"``; None: that of the hardware's links.
        prefix: share of the context that all sequences have in common, cached once.
        speculate, acceptance: draft tokens and the share of accepted ones in a what-if.
        memory: available memory in bytes, or ``"80GiB"``; None: that of the hardware profile, on
            this machine free memory.
        progress: as for `analyze`. `dtype` is that of weights that are not quantized [default: the
            configuration's].

    Raises:
        ModelError: unknown model, or no language model.
        InputError: invalid option or configuration.
        HardwareError: unknown hardware, or too many threads.
    """
    if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"model: must be a name such as 'hf:llama', got {type(model).__name__}")
    hardware = each_of("hardware", run.get("hardware"))
    options = RunOptions.of(**{**run, "hardware": hardware[0]})
    stages = STAGES
    if stage is not None:
        if stage not in STAGES:
            hint = did_you_mean(str(stage), STAGES)
            raise InputError(f"{argument('stage', stage)}: must be prefill or decode{hint}")
        stages = (stage,)
    check_choice("engine", engine, ENGINES)
    batches = sizes_of("batch", batch, 1)
    ranks = sizes_of("tensor_parallel", tensor_parallel, 1)
    contexts = sizes_of("context", context, DEFAULT_CONTEXT)
    forms = None if weights is None else words_of("weights", weights)
    for each in forms or ():
        WeightFormat.parse(each)
    caches = (None,) if kv is None else tuple(map(cache_type, words_of("kv", kv)))
    prefix_share = share_of("prefix", prefix)
    drafts, accepted = _speculation(speculate, acceptance)
    if pipeline_parallel is not None:
        (pipeline_parallel,) = sizes_of("pipeline_parallel", pipeline_parallel, 1)
    given, link = given_memory(memory), link_from_options(link_bandwidth, link_latency)
    is_linked = max(ranks) > 1 or (pipeline_parallel or 1) > 1
    if link is not None and not is_linked:
        raise InputError(
            f"{argument('link_bandwidth', link_bandwidth)}: has no effect on one rank; add"
            f" {argument('tensor_parallel', 2)}"
        )
    if engine == "transformers":
        _check_transformers(forms, caches, ranks, prefix_share)
    check_engine(engine, cold=options.cold or None)
    machines = tuple(
        _machine(
            each,
            options.threads,
            given,
            link,
            alone=len(hardware) == 1,
            is_linked=is_linked,
        )
        for each in hardware
    )
    known = language_model(model, config=None if config is None else str(config))
    kept: frozenset[str] = frozenset()
    if forms is None and engine == "paged" and (stored := stored_format(known.configuration)):
        forms, kept = (stored,), kept_parts(known.configuration)
    if quantized_head and all(WeightFormat.parse(each).floats for each in forms or ("bf16",)):
        raise InputError(
            f"{argument('quantized_head', True)}: has no effect on weights in floats; add"
            f" {argument('weights', 'w4a16')}"
        )
    architecture = Architecture.of(known.configuration)
    contexts = _checked_contexts(contexts, architecture, known.name, is_given=context is not None)
    analyses: dict[Stage, Analysis] = {}
    if engine == "transformers":
        options = replace(options, batch=batches[0])
        analyses = {
            each: analyze_stage(
                known.type_name,
                options,
                config=known.config,
                stage=each,
                context=contexts[0],
                progress=progress,
            )
            for each in stages
        }
    first = analyses.get(stages[0])
    floats, notes = _floats(options, known.configuration, first)
    # Only a part of the model may have been built.
    built = first and first.totals.parameter_size_bytes + first.totals.buffer_size_bytes
    served = Model(
        architecture=architecture,
        floats=floats,
        prefix_share=prefix_share,
        all_weights=quantized_head,
        kept=kept,
        built_bytes=built,
    )
    axes = Axes(
        machines=machines,
        ranks=ranks,
        weights=forms or (usual_format(floats, None) if first else None,),
        caches=caches,
        contexts=contexts,
        batches=batches,
        stages=stages,
    )
    groups = list(axes.groups(served))
    headline, _, placed = groups[0]
    found = [
        stage_of(placed, served.size(each, batches[0], contexts[0]), analyses.get(each))
        for each in stages
    ]
    cache = cache_of(placed.architecture, placed.types.cache)
    peaks = [each.totals.peak_memory_bytes for each in analyses.values()]
    what_ifs: list[WhatIf] = []
    if drafts is not None:
        what_ifs.append(
            what_if_speculative(served, placed, headline, drafts=drafts, acceptance=accepted)
        )
    if pipeline_parallel is not None:
        what_ifs.append(what_if_pipelined(served, placed, headline, pipeline_parallel))
    for run_, form, on in groups:
        notes = (*notes, *form.notes(on.types, run_.machine))
        if forms is None and form.floats != floats:
            notes = (*notes, f"{run_.machine}: {run_.weights} weights, as no ceiling for {floats}")
    if kept:
        notes = (*notes, f"not quantized in the checkpoint: {', '.join(sorted(kept))}")
    if "vision_config" in known.configuration:
        notes = (*notes, "language model alone: vision encoder and image tokens not counted")
    if architecture.small_weights is None and first is None:
        kind = printable(architecture.model_type)
        notes = (*notes, f"norms and biases of model type '{kind}' are unknown and not counted")
    warnings = warnings_of(found, architecture, cache, known.notes)
    if first is None and has_layer_inputs(known.configuration):
        warnings = (*warnings, "embeddings per layer are not counted: weights take more memory")
    return Language(
        model=known.name,
        # JSON has no infinity.
        configuration=finite(dict(known.configuration)),
        architecture=architecture,
        dtype=placed.types.floats,
        engine=engine,
        batch=batches[0],
        context=contexts[0],
        cache=cache,
        footprint=served.footprint(
            placed,
            batches[0],
            contexts[0],
            # In transformers prefill comes first and has the larger activations.
            stage=stages[0] if analyses else "decode",
            peak_bytes=max(peaks, default=None),
        ),
        machines=tuple(each.roof.profile for each in machines),
        threads=machines[0].roof.threads,
        stages=tuple(found),
        cells=tuple(cells_of(served, axes)),
        what_ifs=tuple(what_ifs),
        quantized_head=quantized_head,
        prefix_share=prefix_share,
        link=machines[0].link,
        notes=tuple(dict.fromkeys((*known.notes, *notes, *_notes(architecture)))),
        warnings=warnings,
    )


def _speculation(drafts: object, acceptance: object) -> tuple[int | None, float]:
    """Return draft tokens and acceptance of speculative decoding; None without it."""
    if drafts is None:
        if acceptance is not None:
            raise InputError(
                f"{argument('acceptance', acceptance)}: has no effect without"
                f" {argument('speculate', 4)}"
            )
        return None, 0.0
    if acceptance is None:
        raise InputError(
            f"{argument('speculate', drafts)}: needs the share of accepted drafts; add"
            f" {argument('acceptance', '70%')}"
        )
    (number,) = sizes_of("speculate", drafts, 1)
    return number, share_of("acceptance", acceptance)


def _check_transformers(
    forms: Sequence[str] | None, caches: Sequence[DType | None], ranks: Sequence[int], prefix: float
) -> None:
    """Refuse a headline that transformers does not run."""
    is_quantized = forms is not None and WeightFormat.parse(forms[0]).floats is None
    has_cache = caches[0] is not None and caches[0].bits < 16
    for name, value, is_refused in (
        ("weights", forms and forms[0], is_quantized),
        ("kv", caches[0], has_cache),
        ("tensor_parallel", ranks[0], ranks[0] > 1),
        ("prefix", prefix, prefix > 0),
    ):
        if is_refused:
            raise InputError(
                f"{argument('engine', 'transformers')}: passes are captured in floats on one rank;"
                f" leave out {argument(name, value)}"
            )


def _checked_contexts(
    contexts: tuple[int, ...], architecture: Architecture, name: str, *, is_given: bool
) -> tuple[int, ...]:
    """Return contexts within the positions of the model."""
    most = architecture.positions
    if most is None:
        return contexts
    if not is_given:
        return tuple(min(each, most) for each in contexts)
    for each in contexts:
        if each > most:
            raise InputError(
                f"{argument('context', each)}: exceeds the maximum of {printable(name)} ({most:,});"
                f" use at most {most}"
            )
    return contexts


def _floats(
    options: RunOptions, configuration: Mapping[str, object], captured: Analysis | None
) -> tuple[DType, tuple[str, ...]]:
    """Return the type of weights that are not quantized, and a note if it is assumed."""
    if captured is not None:
        return dtype_of(captured), ()
    text = options.dtype_name or configuration.get("dtype") or configuration.get("torch_dtype")
    if text is None:
        return dtype("bfloat16"), ("type of weights not in the configuration: bfloat16",)
    return dtype(str(text)), ()


def _notes(architecture: Architecture) -> Iterator[str]:
    """Yield notes on latent attention."""
    if architecture.latent is not None:
        yield (
            "latent attention: the architecture caches and reads one vector per token; operators of"
            " transformers may expand keys and values of all heads in every pass"
        )
    if architecture.shared_caches:
        yield (
            f"the last {architecture.shared_caches} layers read the KV cache of an earlier layer,"
            " counted once"
        )
