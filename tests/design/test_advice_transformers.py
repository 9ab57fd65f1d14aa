"""Rules on transformers: every planted flaw is found, and nothing in models without one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import roofline
from benchmarks import advice_flaws
from roofline.analysis import Finding
from roofline.design.advice.rules import findings_of
from roofline.design.advice.subject import Subject
from roofline.design.advice.transformers import compilation
from tests.analysis.examples import dram_profile
from tests.design.advice_models import analysed, found_in
from tests.design.test_advice_rules import Given

_PUBLIC = ("hf:gpt2", "hf:t5", "swin_t", "vit_b_16", "hf:bert")


@pytest.mark.parametrize(
    "subject",
    [
        each
        for each in (*advice_flaws.FLAWED, *advice_flaws.CLEAN)
        if each.make or each.name in _PUBLIC
    ],
    ids=lambda each: each.name,
)
def test_planted_flaws_are_found_and_others_are_not(subject: advice_flaws.Subject) -> None:
    if subject.name.startswith("hf:"):
        pytest.importorskip("transformers")
    analysis = subject.analysis("mi300x")
    assert all(each.basis == "bound" for each in analysis.findings)
    if subject.rule:
        assert advice_flaws.planted(subject, analysis)
    else:
        assert not advice_flaws.alarms(subject, analysis)


# Attention


def attend(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
    scores = (x * 1.5) @ (x * 2.5).transpose(-2, -1) / 8
    return scores.softmax(-1) @ (x * 3.5)


def test_attention_written_out_takes_as_long_as_the_fused_one() -> None:
    found = found_in(Given(attend), 4, 96, 64)["attention written out"]
    scores, rows = 4 * 96 * 96, 4 * 96 * 64
    # Two products of 64 and 96 MACs per element, a softmax between; each operand once.
    assert found.basis == "prediction"
    least_s = (2 * 2 * 64 * scores) / 1e11 + 4 * 4 * rows / 1e10 + 1e-5
    assert found.predicted_after_s == pytest.approx(least_s, rel=0.15)
    # The products, the division and the softmax write and read all scores.
    assert (found.predicted_before_s or 0) > least_s + 4 * 6 * scores / 1e10
    assert f"{4 * scores / 1e3:.0f} kB" in found.evidence


def test_a_router_between_linear_layers_is_no_attention() -> None:
    model = Given(
        lambda own, x: own.out(own.route(x * 2).softmax(-1)),
        route=nn.Linear(64, 64),
        out=nn.Linear(64, 64),
    )
    assert "attention written out" not in found_in(model, 64, 64)


def attended(
    scores: Callable[[torch.Tensor], torch.Tensor] = lambda s: s,
    softmax: Callable[[torch.Tensor], torch.Tensor] = lambda s: s.softmax(-1),
    values: Callable[[torch.Tensor, torch.Tensor], Any] = torch.matmul,
) -> nn.Module:
    return Given(
        lambda _, x: values(softmax(scores((x * 1.5) @ (x * 2.5).transpose(-2, -1))), x * 3.5)
    )


NOT_ATTENTION = {
    "soft cap": attended(lambda s: 30 * torch.tanh(s / 30)),
    "second softmax": attended(lambda s: s.softmax(-1)),
    "scores by scores": attended(lambda s: s * s.sigmoid()),
    "softmax over queries": attended(softmax=lambda s: s.softmax(-2)),
    "softmax over the batch": attended(softmax=lambda s: s.softmax(0)),
    "squared probabilities": attended(values=lambda p, v: (p * p) @ v),
    "gated probabilities": attended(values=lambda p, v: (p * p.sigmoid()) @ v),
    "transposed probabilities": attended(values=lambda p, v: p.transpose(-2, -1) @ v),
    "averaged probabilities": attended(values=lambda p, v: (p @ v, p.mean(0))),
}


@pytest.mark.parametrize("name", NOT_ATTENTION)
def test_what_fused_attention_cannot_compute_is_no_attention(name: str) -> None:
    assert "attention written out" not in found_in(NOT_ATTENTION[name], 4, 96, 96)


ATTENTION: dict[str, tuple[nn.Module, dict[str, Any]]] = {
    "mask": (attended(lambda s: s.masked_fill(torch.ones(96, 96).tril() == 0, -math.inf)), {}),
    "bias": (attended(lambda s: s / 8 + torch.arange(96.0)), {}),
    "cast": (attended(softmax=lambda s: s.float().softmax(-1).to(s.dtype)), {"dtype": "bfloat16"}),
    "dropout": (attended(values=lambda p, v: F.dropout(p, 0.1) @ v), {}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_masks_casts_and_dropout_belong_to_attention(name: str) -> None:
    model, options = ATTENTION[name]
    assert "attention written out" in found_in(model, 4, 96, 96, **options)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return (x * count).view(2, 64, count, 16).transpose(1, 2)


def test_learned_queries_of_a_batch_are_no_expanded_heads() -> None:
    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        key = (x * 2).view(2, 4, 64, 16)
        query = (x[:1] * 3).view(1, 4, 64, 16).expand(2, -1, -1, -1).contiguous()
        return F.scaled_dot_product_attention(query, key, key)

    assert "expanded KV heads" not in found_in(Given(forward), 2, 64, 64)


@pytest.mark.parametrize(
    "repeat",
    [
        lambda x: x.expand(2, -1, -1, -1).contiguous(),
        lambda x: x.repeat_interleave(2, 0),
        lambda x: x.repeat(2, 1, 1, 1),
    ],
    ids=["expand", "repeat_interleave", "repeat"],
)
def test_keys_of_one_sample_for_a_batch_are_no_expanded_heads(
    repeat: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        key = repeat((x[:1] * 3).view(1, 64, 4, 16).transpose(1, 2))
        return F.scaled_dot_product_attention(heads(x, 4), key, key)

    assert "expanded KV heads" not in found_in(Given(forward), 2, 64, 64)


# Operators computed again


def twice(make: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    return Given(lambda _, x: (x + make(x)).relu() * make(x))


def table(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[1] * 1.0).cos().expand(x.shape).contiguous()


def test_tables_made_twice_are_named_with_all_their_operators() -> None:
    found = found_in(twice(table), 64, 64)["repeated computation"]
    assert "3 operators (clone, cos, arange)" in found.evidence
    byte = 4 * (64 + 2 * 64 + (64 + 64 * 64))
    assert found.predicted_before_s == pytest.approx(3e-5 + byte / 1e10, rel=0.05)
    assert found.predicted_after_s == 0


def test_masks_of_the_shape_of_other_tensors_are_equal() -> None:
    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _layer in range(3):
            x = x + torch.ones_like(x).triu()
        return x

    assert len(found_in(Given(forward), 64, 64)["repeated computation"].operators) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.rand(x.shape),
        lambda x: torch.zeros(x.shape).add_(x),
        lambda x: (x + 1).cos() if x.requires_grad else torch.rand_like(x).cos(),
        lambda x: torch.randperm(x.numel()).view(x.shape),
    ],
    ids=["random numbers", "buffers that are written", "functions of these", "permutations"],
)
def test_what_differs_is_not_repeated(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = found_in(twice(make), 64, 64).get("repeated computation")
    assert found is None or ("zeros" not in found.evidence and "rand" not in found.evidence)


def test_other_arguments_and_views_are_not_repeated() -> None:
    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return (y + 1).sum() + (y + 2).sum() + y[:32].cos().sum() + y[32:].cos().sum()

    assert "repeated computation" not in found_in(Given(forward), 64, 64)


class Blocks(nn.Module):
    def __init__(self, *, recomputed: bool) -> None:
        super().__init__()
        self.recomputed = recomputed
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputed else block(x)
        return x


def steps(*, recomputed: bool, capacity: int | None) -> dict[str, Finding]:
    (memory,) = dram_profile().memory
    profile = replace(dram_profile(), memory=(replace(memory, capacity_bytes=capacity),))
    model = Blocks(recomputed=recomputed)
    analysis = analysed(model, 512, 64, profile=profile, train=True, optimizer="sgd")
    return {each.rule: each for each in findings_of(analysis)}


def test_recomputation_is_needless_where_everything_fits() -> None:
    found = steps(recomputed=True, capacity=10**9)["needless checkpointing"]
    assert "Linear" not in found.evidence and "again in the backward pass" in found.evidence
    assert found.predicted_after_s == 0 and (found.saving_s or 0) > 0
    assert "repeated computation" not in steps(recomputed=True, capacity=10**9)
    assert (
        not {"checkpointing", "needless checkpointing"}
        & steps(recomputed=False, capacity=10**9).keys()
    )


def test_checkpointing_is_advised_where_activations_do_not_fit() -> None:
    found = steps(recomputed=False, capacity=10**6)["checkpointing"]
    assert found.saving_s is None
    assert "activations" in found.evidence and "one more forward pass" in found.evidence
    assert (
        not {"checkpointing", "needless checkpointing"}
        & steps(recomputed=True, capacity=10**6).keys()
    )


# Operators written out


def deviations_twice(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-6)


def root_mean_square(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def deviations(x: torch.Tensor) -> torch.Tensor:
    y = x - x.mean(-1, keepdim=True)
    return y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-6)


WRITTEN: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], int]] = {
    "RMSNorm": ("normalization written out", root_mean_square, 5),
    "LayerNorm": ("normalization written out", deviations, 7),
    "erf": ("GELU written out", lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), 5),
    "tanh": (
        "GELU written out",
        lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x * x * x))),
        9,
    ),
    "rotation": (
        "rotary embedding written out",
        lambda x: x * 2 + torch.cat([-x[..., 32:], x[..., :32]], -1) * 3,
        5,
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_operators_written_out_are_one_kernel_that_reads_and_writes_once(name: str) -> None:
    rule, function, number = WRITTEN[name]
    model = Given(lambda _, x: function(torch.relu(x)).relu())
    found = found_in(model, 512, 64, profile=dram_profile())[rule]
    assert len(found.operators) == number
    assert found.basis == "at most"
    # At 10 GB/s.
    assert found.predicted_after_s == pytest.approx(2 * 4 * 512 * 64 / 1e10)


def test_a_mean_may_be_subtracted_twice() -> None:
    model = Given(lambda _, x: deviations_twice(torch.relu(x)).relu())
    assert "normalization written out" in found_in(model, 512, 64)


NOT_WRITTEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh of a sum": lambda x: torch.tanh(x + x * 2) * x,
    "a gate": lambda x: x * (1 + torch.tanh(x)),
    "a root of each element": lambda x: x * torch.rsqrt(x + 1e-6),
    "mean of a multiple": lambda x: x * torch.rsqrt((x * 2).mean(-1, keepdim=True) + 1e-6),
    "mean without squares": lambda x: x * torch.rsqrt(x.mean(-1, keepdim=True) + 1e-6),
    "root of a mean square as a factor": lambda x: x * (x * x).mean(-1, keepdim=True).sqrt(),
    "batch norm": lambda x: (x - x.mean(0)) / torch.sqrt(x.var(0) + 1e-5),
    "norm of all": lambda x: x / (x * x).sum().sqrt(),
    "scale of another": lambda x: x.cos() * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "erf of another": lambda x: x * (1 + torch.erf(x.cos())),
    "tanh gate": lambda x: x * (1 + torch.tanh(x.cos() * 0.5 * 0.7 + x.cos() * 0.2)),
    "halves": lambda x: torch.cat([x[..., 32:], x[..., :32]], -1) * 2 + x,
    "torch's": lambda x: F.rms_norm(F.gelu(x), (64,)),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_other_functions_are_not(name: str) -> None:
    function = NOT_WRITTEN[name]
    found = found_in(Given(lambda _, x: function(torch.relu(x)).relu()), 512, 64)
    assert not [rule for rule in found if "written out" in rule]


# Types


def test_weights_are_cast_in_every_step_of_training_with_autocast() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    (found,) = (
        each
        for each in findings_of(analysed(model, 8, 64, autocast="bfloat16"))
        if each.rule == "weight casts"
    )
    assert "4 parameters" in found.evidence and "float32 → bfloat16" in found.evidence
    training = analysed(model, 8, 64, autocast="bfloat16", train=True, optimizer="sgd")
    assert "weight casts" not in {each.rule for each in findings_of(training)}


def test_quantized_weights_stay_in_memory_as_they_are() -> None:
    model = Given(
        lambda own, x: F.linear(x, own.linear.weight.to(x.dtype)),
        linear=nn.Linear(64, 64, bias=False).to(torch.float8_e4m3fn),
    )
    assert "weight casts" not in found_in(model, 8, 64)


# The whole model


def test_compilation_saves_what_fusion_does() -> None:
    model = Given(lambda _, x: (torch.relu(x) * 2).cos() + 1)
    analysis = analysed(model, 512, 64)
    (proposal,) = compilation(Subject(analysis))
    found, totals = proposal.finding, analysis.totals
    assert (found.basis, found.operators) == ("bound", ())
    assert found.predicted_before_s == totals.eager_min_time_s
    assert found.predicted_after_s == pytest.approx(totals.fused_min_time_s)
    assert "4 operators fit into 1 kernel" in found.evidence
    assert not compilation(Subject(analysed(nn.Linear(64, 64), 8, 64)))


def test_measured_times_rank_and_rate_findings() -> None:
    analysis = analysed(Given(attend), 4, 96, 64)
    rows = [
        replace(row, measured_s=1e-3 if row.op == "aten._softmax" else 1e-6)
        for row in analysis.operators
    ]
    measured = replace(
        analysis,
        operators=tuple(rows),
        totals=replace(analysis.totals, measured_s=sum(row.measured_s or 0 for row in rows)),
    )
    first: Any = findings_of(measured)[0]
    assert (first.rule, first.basis) == ("attention written out", "measured at most")
    assert first.predicted_before_s == pytest.approx(1e-3, rel=0.1)
    assert "of measured time" in first.evidence


def test_a_predicted_compiled_pass_is_what_compilation_saves() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8)))
    advice = roofline.advise(model, "64x64", hardware="h100")
    found = next(each for each in advice.analysis.findings if each.rule == "torch.compile")
    prediction, compiled = advice.analysis.prediction, advice.analysis.compiled_prediction
    assert prediction and compiled and found.basis == "estimate"
    assert found.predicted_before_s == prediction.predicted_s
    assert found.predicted_after_s == compiled.predicted_s
