"""A language model on a machine, made by hand of a small pass, for tests of its outputs."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from roofline.core.dtypes import dtype
from roofline.latency.prediction import RunPrediction
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine, Types
from roofline.llm.memory import Memory, activations_of, cache_of, footprint_of
from roofline.llm.parts import STAGES, StageSize
from roofline.llm.result import Language
from roofline.llm.stages import stage_of
from roofline.llm.sweep import sweep_of
from roofline.llm.weight_bits import BitsWhatIf, StageInBits, WeightBits
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
    *, sparse: bool = False, windows: bool = False, swept: bool = True, memory: int | None = 10**9
) -> Language:
    """A model whose passes are those of something else: its numbers are only to be told.

    Args:
        sparse: its layers are experts.
        windows: most of its layers look back 256 tokens.
        swept: it has a sweep.
        memory: what there is; None: not known.
    """
    configuration = SPARSE if sparse else WINDOWS if windows else SIZES
    of = Architecture.of(configuration)
    profile = full_profile()
    analysis = replace(
        analysis_of(residual(), profile, model="hf:llama"),
        prediction=PREDICTED,
        warnings=("a warning of the pass",),
    )
    model = ModelOnMachine(
        architecture=of,
        roof=Roof(profile, analysis.threads),
        types=Types.all_of(FLOAT),
        weight_bytes=600_000_000,
        memory=Memory(size_bytes=memory, source="--memory"),
    )
    stages = tuple(
        stage_of(model, StageSize(stage=each, batch=4, context=512), analysis) for each in STAGES
    )
    return Language(
        model="hf:llama",
        configuration=configuration,
        architecture=of,
        dtype=FLOAT,
        batch=4,
        context=512,
        cache=cache_of(of, FLOAT),
        footprint=footprint_of(
            cache_of(of, FLOAT),
            context=512,
            batch=4,
            weight_bytes=600_000_000,
            activations=activations_of(of, "prefill", FLOAT),
            memory=model.memory,
            peak_bytes=700_000_000,
        ),
        stages=stages,
        weight_bits=(
            BitsWhatIf(
                bits=WeightBits(weights=4, activations=16),
                weight_bytes_before=600_000_000,
                weight_bytes_after=200_000_000,
                stages=tuple(
                    StageInBits(
                        stage=each.stage,
                        asked_before=each.asked,
                        asked_after=each.asked,
                        eager_min_time_before_s=0.2,
                        eager_min_time_after_s=0.1 if each.stage == "decode" else None,
                        unpacked_weights=1_000_000,
                    )
                    for each in stages
                ),
            ),
        ),
        sweep=sweep_of(model, STAGES, (1, 8, 64), (128, 4096)) if swept else None,
        notes=("a note of the model",),
        warnings=("a warning of the pass",),
    )
