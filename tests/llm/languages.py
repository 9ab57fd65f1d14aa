"""A language model on a machine, made by hand of a small pass, for tests of its outputs."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from roofline.core.dtypes import dtype
from roofline.latency.prediction import RunPrediction
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Memory, cache_of
from roofline.llm.parts import STAGES
from roofline.llm.result import Engine, Language
from roofline.llm.serving import (
    Axes,
    Machine,
    Model,
    cells_of,
    what_if_pipelined,
    what_if_speculative,
)
from roofline.llm.stages import stage_of
from roofline.placement import Roof
from tests.analysis.examples import analysis_of, full_profile
from tests.quantization.quantizations import residual

FLOAT = dtype("float32")

SIZES: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
SPARSE = {**SIZES, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
WINDOWS = {
    **SIZES,
    "layer_types": ["sliding_attention"] * 6 + ["full_attention"] * 2,
    "sliding_window": 256,
}

PREDICTED = RunPrediction(
    predicted_s=0.1,
    low_s=0.08,
    high_s=0.14,
    operators_s=0.09,
    overhead_s=0.01,
    calibration="a test",
)


@functools.cache
def language(
    *,
    sparse: bool = False,
    windows: bool = False,
    swept: bool = True,
    memory: int | None = 10**9,
    engine: Engine = "transformers",
) -> Language:
    """A model whose passes are those of something else: its numbers are only to be told.

    Args:
        sparse: its layers are experts.
        windows: most of its layers look back 256 tokens.
        swept: it has several runs.
        memory: what there is; None: not known.
        engine: that of its headline.
    """
    configuration = SPARSE if sparse else WINDOWS if windows else SIZES
    of = Architecture.of(configuration)
    profile = full_profile()
    analysis = None
    if engine == "transformers":
        analysis = replace(
            analysis_of(residual(), profile, model="hf:llama"),
            prediction=PREDICTED,
            warnings=("a warning of the pass",),
        )
    machine = Machine(
        roof=Roof(profile, profile.threads), memory=Memory(size_bytes=memory, source="--memory")
    )
    model = Model(architecture=of, floats=FLOAT)
    axes = Axes(
        machines=(machine,),
        ranks=(1,),
        weights=("fp32", "w4a32") if swept else ("fp32",),
        caches=(None,),
        contexts=(512, 4096) if swept else (512,),
        batches=(4, 64) if swept else (4,),
        stages=STAGES,
    )
    (run, _, on), *_ = axes.groups(model)
    return Language(
        model="hf:llama",
        configuration=configuration,
        architecture=of,
        dtype=FLOAT,
        engine=engine,
        batch=4,
        context=512,
        cache=cache_of(of, FLOAT),
        footprint=model.footprint(
            replace(on, weight_bytes=600_000_000),
            4,
            512,
            stage="prefill" if analysis else "decode",
            peak_bytes=700_000_000 if analysis else None,
        ),
        machines=(profile,),
        threads=profile.threads,
        stages=tuple(stage_of(on, model.size(each, 4, 512), analysis) for each in STAGES),
        cells=tuple(cells_of(model, axes)),
        what_ifs=(
            what_if_speculative(model, on, run, drafts=4, acceptance=0.5),
            what_if_pipelined(model, on, run, 2),
        ),
        notes=("a note of the model",),
        warnings=("a warning of the pass",),
    )
