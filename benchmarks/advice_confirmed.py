"""Savings of advice: for every rule, models that trigger it, before and after the change.

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python -m benchmarks.advice_confirmed /tmp/advice          # resumes; two minutes a model
    python -m benchmarks.advice_confirmed /tmp/advice --table  # only the table
    python -m benchmarks.advice_confirmed /tmp/advice --quick  # a few rounds, to see that it runs

It writes advice_confirmed.md and advice_confirmed.json into benchmarks/ (with --quick into the
folder). Of designs, both sides are written out below and timed as whole models, interleaved; of
models of libraries, the change is the one that `roofline advise --measure` makes. A saving is
confirmed where its interval, from 10 to 90 % of rounds, is above zero.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.advice_flaws import RootMeanSquare, transformer
from roofline.analysis import Finding
from roofline.core.files import write_atomically
from roofline.core.units import format_s
from roofline.design.advice.result import Advice
from roofline.machine import catalog
from roofline.pipeline.advising import advise
from roofline.pipeline.measured_comparisons import Candidate, measure_interleaved
from roofline.pipeline.profiles import profile
from roofline.pipeline.trials import saving_of_rounds
from roofline.run import RunOptions

HERE = Path(__file__).parent


class _Repeated(nn.Module):
    """A function of a tensor, over and over, so that a pass takes long enough to be timed."""

    def __init__(
        self, step: Callable[[nn.Module, torch.Tensor], torch.Tensor], times: int, **layers: Any
    ) -> None:
        super().__init__()
        self._step = step
        self._times = times
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self._times):
            x = self._step(self, x)
        return x


def _chain(channels: int, kernel: int = 3, *, layers: int = 6, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        *(
            nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups, bias=False)
            for _ in range(layers)
        )
    )


def odd_channels() -> nn.Module:
    """Convolutions of 116 channels, as ShuffleNet has them."""
    return _chain(116)


def even_channels() -> nn.Module:
    """The same of 128."""
    return _chain(128)


def large_kernels() -> nn.Module:
    """Convolutions of 11x11."""
    return _chain(64, 11, layers=2)


def small_kernels() -> nn.Module:
    """3x3 convolutions of the same reach."""
    return _chain(64, 3, layers=10)


def norms_behind_activations() -> nn.Module:
    """Conv→ReLU→BN, eight times."""
    return nn.Sequential(
        *(
            layer
            for _ in range(8)
            for layer in (
                nn.Conv2d(32, 32, 3, padding=1, bias=False),
                nn.ReLU(inplace=True),
                nn.BatchNorm2d(32),
            )
        )
    )


def folded_norms() -> nn.Module:
    """Conv→BN→ReLU, eight times, folded."""
    return nn.Sequential(
        *(
            layer
            for _ in range(8)
            for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(inplace=True))
        )
    )


def _separable(channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 1, bias=False),
    ]


def separable() -> nn.Module:
    """Depthwise and pointwise convolutions of few channels on small images."""
    return nn.Sequential(*(layer for _ in range(12) for layer in _separable(32)))


def standard() -> nn.Module:
    """Standard ones in their place."""
    return _chain(32, layers=12)


def tiny_operators() -> nn.Module:
    """Two hundred operators on a few numbers."""
    return _Repeated(lambda _, x: x * 1.01 + 0.01, 100)


def few_operators() -> nn.Module:
    """The same numbers from two."""
    factor = 1.01**100
    offset = 0.01 * sum(1.01**each for each in range(100))
    return _Repeated(lambda _, x: x * factor + offset, 1)


def needless_copies() -> nn.Module:
    """Copies of what nobody changes."""
    return _Repeated(lambda _, x: torch.relu(x.clone() * 1.01), 10)


def no_copies() -> nn.Module:
    """The originals."""
    return _Repeated(lambda _, x: torch.relu(x * 1.01), 10)


def rearranged() -> nn.Module:
    """Permuted and made contiguous for what looks at single elements."""
    return _Repeated(lambda _, x: torch.relu(x.transpose(1, 2).contiguous() * 1.01), 10)


def in_order() -> nn.Module:
    """The same in the order in which it lies."""
    return _Repeated(lambda _, x: torch.relu(x * 1.01), 10)


def types_back_and_forth() -> nn.Module:
    """Every activation in another type."""
    return _Repeated(lambda _, x: torch.relu((x * 1.01).bfloat16()).float(), 10)


def one_type() -> nn.Module:
    """All of it in one."""
    return _Repeated(lambda _, x: torch.relu(x * 1.01), 10)


def fragmented() -> nn.Module:
    """Four small convolutions of one input."""
    layers = {f"branch{each}": nn.Conv2d(128, 32, 1) for each in range(4)}
    return _Repeated(
        lambda own, x: torch.cat([layer(x) for layer in own.children()], 1), 6, **layers
    )


def together() -> nn.Module:
    """One of them all."""
    return _Repeated(lambda own, x: next(own.children())(x), 6, layer=nn.Conv2d(128, 128, 1))


def _layers(flaw: str, **options: Any) -> nn.Module:
    return transformer(flaw, 2, **options)


def written_attention() -> nn.Module:
    """Scores, mask and softmax of four layers."""
    return _layers("attention")


def fused_attention() -> nn.Module:
    """The same with fused attention and a mask."""
    return _layers("mask")


class _Decoder(nn.Module):
    """Attention of one token over a KV cache, with eight query heads per KV head."""

    def __init__(self, *, repeats: bool) -> None:
        super().__init__()
        self._repeats = repeats

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        k, v = x.unbind()
        q = k[:, :, -1:].repeat_interleave(8, 1)
        if self._repeats:
            k, v = k.repeat_interleave(8, 1), v.repeat_interleave(8, 1)
        return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=not self._repeats)


def expanded_heads() -> nn.Module:
    """Keys and values repeated for every query head."""
    return _Decoder(repeats=True)


def grouped_heads() -> nn.Module:
    """Keys and values as they are."""
    return _Decoder(repeats=False)


def masks() -> nn.Module:
    """A mask made in each of eight layers."""
    return _Repeated(lambda _, x: torch.relu(x + torch.ones(512, 512).triu().mul(0.01)), 8)


def one_mask() -> nn.Module:
    """The same mask, kept."""
    model = _Repeated(lambda own, x: torch.relu(x + own.get_buffer("mask")), 8)
    model.register_buffer("mask", torch.ones(512, 512).triu().mul(0.01))
    return model


def written_norms() -> nn.Module:
    """RMSNorm of six operators."""
    return nn.Sequential(*(RootMeanSquare(512) for _ in range(6)))


def fused_norms() -> nn.Module:
    """LayerNorm, one operator."""
    return nn.Sequential(*(nn.LayerNorm(512, bias=False) for _ in range(6)))


def written_gelu() -> nn.Module:
    """GELU of eight operators."""
    return _Repeated(lambda _, x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3))), 6)


def fused_gelu() -> nn.Module:
    """GELU of one."""
    return _Repeated(lambda _, x: nn.functional.gelu(x, approximate="tanh"), 6)


def written_rotations() -> nn.Module:
    """Rotary embeddings of six operators."""
    return _Repeated(lambda _, x: x * 0.8 + torch.cat([-x[..., 32:], x[..., :32]], -1) * 0.6, 6)


class _Compiled(nn.Module):
    """A model under torch.compile."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.compiled = torch.compile(model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compiled(x)


def compiled_rotations() -> nn.Module:
    """The same under torch.compile."""
    return _Compiled(written_rotations())


def cast_weights() -> nn.Module:
    """Weights cast in every pass."""
    return _layers("casts")


def kept_weights() -> nn.Module:
    """Weights in the type of the products."""
    model = _layers("casts")
    for layer in model.children():
        layer.up.to(torch.bfloat16)
        layer.down.to(torch.bfloat16)
    return model


@dataclass(frozen=True, kw_only=True)
class Case:
    """A rule, the model that triggers it, and the one with the change made (``""``: advise makes
    it). ``is_profiled``: the rule looks at measured operators."""

    rule: str
    model: str
    shape: str | None = None
    after: str = ""
    is_profiled: bool = False


CASES = (
    Case(rule="channel padding", model="odd_channels", after="even_channels", shape="1x116x28x28"),
    Case(
        rule="unusual kernel",
        model="large_kernels",
        after="small_kernels",
        shape="1x64x56x56",
        is_profiled=True,
    ),
    Case(rule="foldable batch norm", model="resnet50", shape="1x3x224x224"),
    Case(rule="foldable batch norm", model="mobilenet_v2", shape="1x3x224x224"),
    Case(
        rule="batch norm after an activation",
        model="norms_behind_activations",
        after="folded_norms",
        shape="1x32x56x56",
    ),
    Case(rule="depthwise below the ridge", model="separable", after="standard", shape="1x32x14x14"),
    Case(
        rule="standard convolution instead of depthwise",
        model="separable",
        after="standard",
        shape="1x32x14x14",
    ),
    Case(rule="dispatch overhead", model="tiny_operators", after="few_operators", shape="8x8"),
    Case(rule="redundant copy", model="needless_copies", after="no_copies", shape="64x256x256"),
    Case(rule="layout copy", model="rearranged", after="in_order", shape="64x256x256"),
    Case(
        rule="round-trip cast",
        model="types_back_and_forth",
        after="one_type",
        shape="64x256x256",
    ),
    Case(
        rule="attention written out",
        model="written_attention",
        after="fused_attention",
        shape="1x512x256",
    ),
    Case(
        rule="expanded KV heads",
        model="expanded_heads",
        after="grouped_heads",
        shape="2x4x4x2048x64",
    ),
    Case(rule="repeated computation", model="masks", after="one_mask", shape="4x512x512"),
    Case(
        rule="normalization written out",
        model="written_norms",
        after="fused_norms",
        shape="2048x512",
    ),
    Case(rule="GELU written out", model="written_gelu", after="fused_gelu", shape="1024x2048"),
    Case(
        rule="rotary embedding written out",
        model="written_rotations",
        after="compiled_rotations",
        shape="16x1024x64",
    ),
    Case(rule="weight casts", model="cast_weights", after="kept_weights", shape="1x512x256"),
    Case(rule="torch.compile", model="written_gelu", shape="1024x2048"),
    Case(rule="torch.compile", model="mobilenet_v2", shape="1x3x224x224"),
    Case(rule="fragmented branches", model="fragmented", after="together", shape="1x128x14x14"),
    Case(rule="fragmented branches", model="googlenet", shape="1x3x224x224"),
    Case(rule="pooling in contiguous layout", model="resnet18", shape="1x3x224x224"),
    Case(rule="pooling in contiguous layout", model="googlenet", shape="1x3x224x224"),
    Case(rule="channels-last layout", model="resnet18", shape="1x3x224x224"),
    Case(rule="channels-last layout", model="vgg11", shape="1x3x224x224"),
    Case(rule="lower precision", model="resnet50", shape="1x3x224x224"),
    Case(rule="lower precision", model="vit_b_32", shape="1x3x224x224"),
    Case(rule="small batch", model="alexnet", shape="1x3x224x224"),
    Case(rule="number of threads", model="8*(conv2d(16,16,1)+relu())@14x14"),
)


def main() -> None:
    """Measures what is not there yet, and writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="RULE", help="the cases of one rule")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = [each for each in CASES if options.only in (None, each.rule)]
    for case in cases if not options.table else ():
        file = _file(options.folder, case)
        if not file.exists():
            print(time.strftime("%H:%M:%S"), case.rule, case.model, flush=True)
            text = json.dumps(_measured(case, quick=options.quick), indent=1)
            write_atomically(file, text, overwrite=False)
    _write(options.folder, HERE if not options.quick else options.folder)


def _file(folder: Path, case: Case) -> Path:
    return folder / f"{case.rule.replace(' ', '_')}-{case.model}.json"


def _measured(case: Case, *, quick: bool) -> dict[str, Any]:
    """What was predicted of a case, and what was measured, in seconds."""
    is_written = case.model in globals()
    name = f"{Path(__file__)}:{case.model}" if is_written else case.model
    by_advise = not case.after
    if case.is_profiled:
        advice = Advice(analysis=profile(name, case.shape, learn=False, quick=quick, force=quick))
    else:
        is_quick = by_advise and quick
        advice = advise(name, case.shape, measure=by_advise, quick=is_quick, force=quick)
    found = next((each for each in advice.findings if each.rule == case.rule), None)
    result: dict[str, Any] = {
        "rule": case.rule,
        "model": case.model,
        "shape": case.shape,
        "after": case.after,
        "is_found": found is not None,
        "basis": found.basis if found else None,
        "evidence": found.evidence if found else "",
        "tried": list(advice.tried),
        **_predicted(found),
    }
    if by_advise:
        return {**result, **_as_measured(found)}
    return {**result, **_in_turn(case, quick=quick)}


def _predicted(found: Finding | None) -> dict[str, float | None]:
    names = ("predicted_before_s", "saving_s", "saving_low_s", "saving_high_s")
    return {name: getattr(found, name) if found else None for name in names}


def _as_measured(found: Finding | None) -> dict[str, Any]:
    names = ("measured_before_s", "measured_after_s", "measured_low_s", "measured_high_s")
    known = {name: getattr(found, name) if found else None for name in names}
    return {**known, "verdict": found.verdict if found else None}


def _in_turn(case: Case, *, quick: bool) -> dict[str, Any]:
    """Both sides of a design, timed as whole models in turn."""
    threads = catalog.load_hardware(catalog.HOST).threads
    sides = [
        Candidate(
            name=name,
            model=f"{Path(__file__)}:{name}",
            inputs=_after_shape(case) if name == case.after else case.shape,
            options=RunOptions(threads=threads),
        )
        for name in (case.model, case.after)
    ]
    rounds = measure_interleaved(sides, rounds=2 if quick else 7, force=quick)
    found = saving_of_rounds([(before, after) for before, after in rounds.rounds])
    return {
        "measured_before_s": found.before_s,
        "measured_after_s": found.after_s,
        "measured_low_s": found.low_s,
        "measured_high_s": found.high_s,
        "verdict": found.verdict,
        "rounds_s": [[each.measured_s for each in pair] for pair in rounds.rounds],
    }


def _after_shape(case: Case) -> str:
    """Wider convolutions take wider images."""
    return case.shape.replace("x116x", "x128x") if case.after == "even_channels" else case.shape


def _write(folder: Path, target: Path) -> None:
    files = [_file(folder, case) for case in CASES]
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    text = "\n".join(_lines(results)) + "\n"
    write_atomically(target / "advice_confirmed.md", text, overwrite=True)
    write_atomically(
        target / "advice_confirmed.json", json.dumps(results, indent=1) + "\n", overwrite=True
    )
    print(text)


def _lines(results: list[dict[str, Any]]) -> Iterable[str]:
    confirmed = sum(each["verdict"] == "confirmed" for each in results)
    yield "# Advice, before and after the change"
    yield ""
    yield f"{confirmed} of {len(results)} savings were confirmed: their interval, from 10 to 90 %"
    yield "of rounds, is above zero. Predictions precede any measurement of the model; `~` is an"
    yield "estimate from a count, `≤` an upper limit of the predicted saving in operators: page"
    yield "faults that the change saves come on top. Times of pooling, and of `googlenet`'s"
    yield "branches, are those of operators alone, all others of passes. Rows are from several"
    yield "days and hosts; both sides of a row were measured together."
    yield ""
    yield "| rule | model | found | predicted saving | measured saving | of | verdict |"
    yield "|---|---|---|---:|---:|---:|---|"
    for each in results:
        hedge = {"at most": "≤ ", "estimate": "~ "}.get(each["basis"], "")
        predicted = f"{hedge}{_signed(each['saving_s'])}"
        before, after = each["measured_before_s"], each["measured_after_s"]
        measured = "–"
        if before is not None and after is not None:
            low, high = _signed(each["measured_low_s"]), _signed(each["measured_high_s"])
            measured = f"{_signed(before - after)} ({low} … {high})"
        model = f"{each['model']} → {each['after']}" if each["after"] else each["model"]
        found = "yes" if each["is_found"] else "no"
        verdict = each["verdict"] or "not tried"
        yield (
            f"| {each['rule']} | {model} | {found} | {predicted} | {measured} |"
            f" {_signed(before)} | {verdict} |"
        )


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return format_s(seconds) if seconds >= 0 else f"-{format_s(-seconds)}"


if __name__ == "__main__":
    main()
