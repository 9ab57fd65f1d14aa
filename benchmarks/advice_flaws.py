"""Does advice find what is planted, and nothing else? Models with one flaw each, and without.

    python -m benchmarks.advice_flaws > benchmarks/advice_flaws.md

No machine is measured and nothing is calibrated: savings are shares of minimum times, on a CPU and
on a GPU from data sheets. A false alarm is a finding of a rule of this table that was not planted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import roofline
from roofline.analysis import Analysis, Finding
from roofline.analysis.words import saved_share

MACHINES = ("10980xe", "h100")


_LONGEST = 512


class RootMeanSquare(nn.Module):
    """RMSNorm of single operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divide by the root of the mean square, in float32."""
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.type_as(x)


class Layer(nn.Module):
    """A layer of a transformer, with at most one flaw."""

    def __init__(self, flaw: str = "", *, kv_heads: int = 4, width: int = 256) -> None:
        super().__init__()
        self.flaw, self.heads, self.kv_heads, self.size = flaw, 4, kv_heads, width // 4
        norm = RootMeanSquare if flaw == "normalization" else nn.LayerNorm
        self.before, self.between = norm(width), norm(width)
        self.register_buffer("seen", torch.ones(_LONGEST, _LONGEST, dtype=torch.bool).tril())
        self.register_buffer("cos", torch.rand(_LONGEST, self.size))
        self.register_buffer("sin", torch.rand(_LONGEST, self.size))
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size)
        self.out, self.up = nn.Linear(width, width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and two linear layers, with residuals."""
        batch, length, width = x.shape
        y = self.before(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        kv = self.kv(y).view(batch, length, 2 * self.kv_heads, self.size).transpose(1, 2)
        a = self.attention(q, *kv.chunk(2, dim=1))
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.linear(self.down, self.activation(self.linear(self.up, self.between(x))))

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention."""
        length, mask, groups = q.shape[2], None, self.heads // self.kv_heads
        match self.flaw:
            case "copies":
                q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
            case "rotation":
                q, k = self.rotated(q), self.rotated(k)
            case "repeat_interleave":
                k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
            case "expand":
                k, v = (
                    each[:, :, None].expand(-1, -1, groups, -1, -1).reshape(q.shape)
                    for each in (k, v)
                )
            case "mask":
                mask = torch.full((length, length), -math.inf, device=q.device).triu(1)
            case "attention":
                scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
                scores = torch.where(self.seen, scores, -math.inf)
                return scores.softmax(-1) @ v
            case _:
                pass
        is_grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=is_grouped
        )

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary embedding."""
        one, other = x.chunk(2, -1)
        return x * self.cos + torch.cat([-other, one], -1) * self.sin

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        """GELU."""
        if self.flaw == "gelu":
            return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))
        return F.gelu(x)

    def linear(self, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """A linear layer."""
        if self.flaw == "island":
            return F.linear(x.float(), layer.weight.float(), layer.bias.float()).type_as(x)
        if self.flaw == "casts":
            weight, bias = layer.weight.to(torch.bfloat16), layer.bias.to(torch.bfloat16)
            return F.linear(x.to(torch.bfloat16), weight, bias).type_as(x)
        return layer(x)


def transformer(flaw: str = "", layers: int = 4, **options: Any) -> nn.Module:
    """Return layers with a flaw in each."""
    return nn.Sequential(*(Layer(flaw, **options) for _ in range(layers)))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, and the rule that must find something in it (``""``: none)."""

    name: str
    rule: str = ""
    make: Callable[[], nn.Module] | None = None
    inputs: Any = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    machines: tuple[str, ...] = MACHINES

    def analysis(self, machine: str) -> Analysis:
        """Return the analysis on a machine, without calibration."""
        model = self.make() if self.make else self.name
        return roofline.analyze(model, self.inputs, hardware=machine, **self.options)


def _written(name: str, rule: str = "", flaw: str = "", **options: Any) -> Subject:
    make = partial(transformer, flaw, kv_heads=options.pop("kv_heads", 4))
    # In float32, products are no slower on a CPU without units of 16-bit types.
    machines = ("h100",) if rule == "float32 island" else MACHINES
    return Subject(
        name=name,
        rule=rule,
        make=make,
        inputs=(1, 512, 256),
        options=options,
        machines=machines,
    )


FLAWED = (
    _written("scores, mask, softmax", "attention written out", "attention"),
    _written("repeat_interleave", "expanded KV heads", "repeat_interleave", kv_heads=2),
    _written("expand and reshape", "expanded KV heads", "expand", kv_heads=2),
    _written("mask in every layer", "repeated computation", "mask"),
    _written("RMSNorm of operators", "normalization written out", "normalization"),
    _written("RMSNorm, bfloat16", "normalization written out", "normalization", dtype="bfloat16"),
    _written("tanh GELU of operators", "GELU written out", "gelu"),
    _written("rotary embedding", "rotary embedding written out", "rotation"),
    _written(".contiguous() of q, k, v", "layout copy", "copies"),
    _written("float32 linear layers", "float32 island", "island", dtype="bfloat16"),
    _written("weights cast in forward", "weight casts", "casts"),
    Subject(name="hf:gpt2", rule="GELU written out"),
    Subject(name="hf:t5", rule="repeated computation"),
    Subject(name="hf:llama", rule="normalization written out", options={"batch": 8}),
    Subject(name="hf:phi", rule="rotary embedding written out", options={"batch": 8}),
    Subject(name="hf:mpt", rule="attention written out"),
    Subject(name="swin_t", rule="attention written out"),
)
CLEAN = (
    _written("SDPA"),
    _written("enable_gqa", kv_heads=2),
    _written("bfloat16", dtype="bfloat16"),
    _written("batch 8", batch=8),
    Subject(
        name="nn.TransformerEncoder",
        make=lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 4
        ),
        inputs=(1, 512, 256),
    ),
    Subject(
        name="nn.RMSNorm and nn.GLU",
        make=lambda: nn.Sequential(
            nn.RMSNorm(256), nn.Linear(256, 2048), nn.GLU(), nn.Linear(1024, 256)
        ),
        inputs=(512, 256),
    ),
    *(Subject(name=name) for name in ("vit_b_16", "hf:bert", "hf:roberta", "hf:distilbert")),
    *(Subject(name=name) for name in ("hf:opt", "hf:vit")),
)
RULES = {each.rule for each in FLAWED} | {"round-trip cast", "redundant copy"}


def alarms(subject: Subject, analysis: Analysis) -> list[Finding]:
    """Return the findings of these rules that were not planted."""
    return [each for each in analysis.findings if each.rule in RULES - {subject.rule}]


def planted(subject: Subject, analysis: Analysis) -> Finding | None:
    """Return the finding that was planted."""
    return next((each for each in analysis.findings if each.rule == subject.rule), None)


def _lines() -> Iterable[str]:
    yield "# Planted flaws, and models without"
    yield ""
    yield f"torch {torch.__version__}. Rerun: `python -m benchmarks.advice_flaws`"
    yield ""
    yield "Savings are shares of the eager minimum time on the CPU (10980xe), without calibration,"
    yield "and of the predicted time on the H100. Other findings are of the rules in this table,"
    yield "and were not planted."
    found = of = false = 0
    for title, subjects in (("With a flaw", FLAWED), ("Without", CLEAN)):
        yield ""
        yield f"## {title}"
        yield ""
        yield "| model | planted | " + " | ".join(MACHINES) + " | other findings |"
        yield "|---|---|" + "---:|" * len(MACHINES) + "---|"
        for subject in subjects:
            shares: list[str] = []
            others: set[str] = set()
            for machine in MACHINES:
                if machine not in subject.machines:
                    shares.append("no loss")
                    continue
                analysis = subject.analysis(machine)
                finding = planted(subject, analysis)
                share = saved_share(analysis, finding) if finding else None
                shares.append("–" if share is None else f"{share:.1%}")
                others |= {each.rule for each in alarms(subject, analysis)}
                found, of = found + (finding is not None), of + bool(subject.rule)
                false += not subject.rule and bool(alarms(subject, analysis))
            cells = (subject.name, subject.rule or "–", *shares, ", ".join(sorted(others)) or "–")
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"{found} of {of} planted flaws found; {false} false alarms on models without a flaw."


if __name__ == "__main__":
    print("\n".join(_lines()))
