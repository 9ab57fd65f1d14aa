"""Language models by name and configuration, and the analyses of their prefill and decode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofline.analysis import Analysis
from roofline.errors import InputError, ModelError
from roofline.foundation.progress import Progress
from roofline.foundation.units import format_bytes
from roofline.language.parts import Stage
from roofline.language.stages import held_while_generating, is_cache
from roofline.pipeline.analyses import captured_workload, known_machines, placed_on
from roofline.pipeline.machines import Hardware
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.workloads import Workload, check_counts
from roofline.workload.operators import OperatorRecord
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch


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

    Args:
        name: ``"hf:llama"``, ``"hf:LlamaForCausalLM"``, or ``"file.py:function"`` that makes a
            model of transformers.
        config: its sizes: a bundled name (``"llama-3.1-8b"``), a local ``config.json`` or its
            folder, or ``"key=value,key=value"``, also behind one of the first two; None: the
            library's defaults.

    Raises:
        ModelError: the model is unknown, cannot be built, or is not one of transformers.
        InputError: `config` names nothing, or sizes that do not go together.
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
    name: str, *, config: str | None, stage: Stage, context: int, batch: int, run: Run
) -> Workload:
    """A language model in one of its stages, ready to be captured, or to be run for real.

    Args:
        name, config, stage, context, batch: as for `analyze_stage`.
        run: how it is run.

    Raises:
        ModelError, InputError: as `analyze_stage`.
    """
    from roofline.workload.models.libraries.transformers_stages import staged_source
    from roofline.workload.models.sources import load

    staged = staged_source(
        load(name, config=config), stage=stage, context=context, batch=batch, run=run
    )
    return Workload(
        source=staged.source, given=staged.given, specs=staged.specs, notes=staged.notes
    )


def analyze_stage(
    name: str,
    *,
    config: str | None,
    stage: Stage,
    context: int,
    batch: int,
    dtype: str | torch.dtype | None = None,
    hardware: Hardware | None = None,
    threads: int | None = None,
    cold: bool = False,
    progress: Progress | None = None,
    predict: bool = True,
) -> Analysis:
    """Every operator of a prefill or a decode pass, counted and placed under a machine's ceilings.

    The pass runs on tensors without memory. In decode, the cache is an input of the pass: the bytes
    of it that attention reads, and that growing it copies, are those of the operators.

    Args:
        name, config: as for `language_model`.
        stage: ``"prefill"``: `context` tokens of each sequence, and the logits of the last one
            where the model can leave out the others; ``"decode"``: one token of each sequence,
            behind a cache of `context` tokens.
        context: in tokens of one sequence.
        batch: how many sequences.
        dtype: the type of weights and cache; None: as the configuration says.
        hardware, threads, cold, progress: as for `roofline.analyze`.
        predict: adds what was learned of the machine; False: bounds alone.

    Raises:
        ModelError: the model is unknown, cannot be built, or has no such stage.
        InputError: sizes, type, context or batch are wrong.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    if isinstance(hardware, (list, tuple, set)):
        raise InputError("hardware: expected one machine")
    check_counts(batch=batch, seq=None, threads=threads, inputs=None)
    options = RunOptions(dtype=dtype)
    (known,) = known_machines([hardware], threads)
    run = options.run(known.device)
    asked = stage_workload(name, config=config, stage=stage, context=context, batch=batch, run=run)
    captured = captured_workload(asked, options, run=run)
    records = captured.capture.records
    if stage == "decode":
        captured = replace(
            captured,
            reuse=held_while_generating(records, captured.reuse),
            more_notes=tuple(growth_notes(records)),
        )
    captured = replace(captured, more_notes=(*captured.more_notes, *_expert_notes(records)))
    return placed_on(
        captured, known, threads=threads, cold=cold, progress=progress, predict=predict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGrowth:
    """Bytes that a decode pass moves to add a token to its cache, beside reading it in attention.

    ``copied_bytes`` are read and written by concatenations of the cache with the new token, as
    eager transformers has it; ``static_bytes`` would be, if the new token were written into a cache
    that has room for it.
    """

    copied_bytes: int
    static_bytes: int


def cache_growth(records: Iterable[OperatorRecord]) -> CacheGrowth:
    """Return the bytes that cache growth moves in a decode pass, by its operators."""
    copied = static = 0
    for record in records:
        is_growth = any(map(is_cache, record.inputs))
        if record.op != "aten.cat" or not is_growth:
            continue
        copied += record.work.traffic_bytes
        static += 2 * sum(each.byte for each in record.inputs if not is_cache(each))
    return CacheGrowth(copied_bytes=copied, static_bytes=static)


def growth_notes(records: Sequence[OperatorRecord]) -> Iterator[str]:
    """Yield a note on cache growth, where the pass has any."""
    growth = cache_growth(records)
    if growth.copied_bytes:
        yield (
            f"KV cache growth moves {format_bytes(growth.copied_bytes)} (transformers"
            f" concatenates); a static cache would move {format_bytes(growth.static_bytes)}; peak"
            " memory has the cache once and the growing tensor twice"
        )


def _expert_notes(records: Iterable[OperatorRecord]) -> Iterator[str]:
    products = [each for each in records if each.op == "aten._grouped_mm"]
    if not products:
        return
    matrices = products[0].inputs[1]
    experts, rows = matrices.shape[0], products[0].inputs[0].shape[0]
    yield (
        "routing is not known from shapes: traffic counts the weights of"
        f" {min(experts, rows)} of {experts} experts per layer (maximum of {rows} choices), minimum"
        " times those of one; FLOP do not depend on routing"
    )
