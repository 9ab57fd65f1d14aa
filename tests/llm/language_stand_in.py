"""What runs a language model's stages, stood in for by a pass of a small model for each stage.

It keeps to the contract of `pipeline.language`, so that what is made of its analyses can be
tested without that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from roofline.analysis import Analysis
from roofline.latency.prediction import RunPrediction
from roofline.pipeline import language
from roofline.pipeline.language import LanguageModel
from roofline.run import RunOptions, StageKeywords
from tests.llm.language_examples import TINY


class TinyLlama(nn.Module):
    """As many weights as `TINY` says, in the order in which a Llama has them; no rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(TinyLayer() for _ in range(3))
        self.lm_head = nn.Linear(16, 50, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x[:, -1:])


class TinyLayer(nn.Module):
    """Attention of 4 heads on 2, and a gated pair of products."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.v, self.o = nn.Linear(16, 8, bias=False), nn.Linear(16, 16, bias=False)
        self.gate, self.up = nn.Linear(16, 40, bias=False), nn.Linear(16, 40, bias=False)
        self.down = nn.Linear(40, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q = self.q(x).view(batch, tokens, 4, 4).transpose(1, 2)
        k, v = (
            each(x).view(batch, tokens, 2, 4).transpose(1, 2).repeat_interleave(2, 1)
            for each in (self.k, self.v)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, 16))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@dataclass
class StandIn:
    """What stands in; ``asked`` are the stages that were asked for, with their options."""

    configuration: Mapping[str, object]
    prediction: RunPrediction | None
    asked: list[dict[str, Any]]

    def language_model(self, name: str, *, config: str | None) -> LanguageModel:
        """The configuration, whatever is asked for."""
        return LanguageModel(
            name=name,
            configuration=self.configuration,
            notes=("a stand-in",),
            type_name=name,
            config=config,
        )

    def analyze_stage(self, name: str, run: RunOptions, **stage: Any) -> Analysis:
        """A pass over the tokens of the stage; decode has no cache."""
        from dataclasses import replace

        import roofline

        options = {**run.keywords("batch", *StageKeywords.__annotations__), **stage}
        self.asked.append(options)
        batch = options["batch"] or 1
        tokens = options["context"] if options["stage"] == "prefill" else 1
        found = roofline.analyze(
            TinyLlama().eval(),
            torch.zeros(batch, tokens, dtype=torch.int64),
            hardware=options["hardware"],
            threads=options["threads"],
            dtype=options["dtype"],
            cold=options["cold"],
        )
        return replace(found, model=name, prediction=self.prediction)


def stand_in(
    patch: pytest.MonkeyPatch,
    *,
    configuration: Mapping[str, object] | None = None,
    prediction: RunPrediction | None = None,
) -> StandIn:
    """Puts a stand-in where the pipeline looks for what runs stages.

    Args:
        patch: what undoes it.
        configuration: what the model is said to be; None: `TINY`.
        prediction: what every pass is predicted to take.
    """
    found = StandIn(configuration=configuration or TINY, prediction=prediction, asked=[])
    patch.setattr(language, "language_model", found.language_model)
    patch.setattr(language, "analyze_stage", found.analyze_stage)
    return found


PREDICTED = RunPrediction(
    predicted_s=0.02,
    low_s=0.01,
    high_s=0.04,
    operators_s=0.019,
    overhead_s=0.001,
    calibration="a test",
)
