"""Times of torch.compile against the fused minimum: no run may take less.

    python benchmarks/compiled_bounds.py > benchmarks/compiled_bounds.md

Six networks and ten chains of operators, these within the caches and beyond them, on one thread and
on two, compiled by Inductor and eager; the least of many runs. The machine's profile must have been
measured (`roofline measure`), and nothing else may run. Ceilings that follow the clock are scaled
up to the highest that the core had meanwhile. Without a C++ compiler there is nothing to time. Some
ten minutes on two cores; ``--bytes`` times nothing and compares the bytes of fused kernels with
those that Inductor schedules, ``--tiny`` takes small sizes and few runs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._inductor.config
from torch import nn

import roofline
from roofline.core.units import format_bytes, format_s
from roofline.machine.catalog import load_hardware
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.workload.inputs import InputRequest, resolve_inputs
from roofline.workload.models.sources import load_model

NETWORKS = ("resnet18", "mobilenet_v2", "densenet121", "vit_b_16", "hf:bert", "convnext_tiny")
SECONDS = 2.0
"""Of timing, for each subject, kind of run and number of threads."""


def diamond(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x)
    return torch.sin(y) + torch.cos(y)


def shared_inputs(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + y, x * y


def pointwise_chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        x = torch.relu(x * 1.01 + 0.5)
    return x


def reduction(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid((torch.relu(x) * 2).sum(-1)) + 1


def broadcast(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x[:1]) + torch.tanh(x[:, :1])


def concatenation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.exp(x), torch.sin(y)], dim=-1) * 2


def transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.t()) + y.t() * 2


def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x + y, -1) * 2


def layer_norm(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = x + y
    return torch.relu(nn.functional.layer_norm(both, both.shape[-1:])), both


def residual_gelu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x + 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
        y = x * 0.5
    return x


CHAINS: dict[Callable[..., Any], int] = {
    diamond: 1,
    shared_inputs: 2,
    pointwise_chain: 1,
    reduction: 1,
    broadcast: 1,
    concatenation: 2,
    transposed: 2,
    softmax: 2,
    layer_norm: 2,
    residual_gelu: 2,
}
"""The chains, and how many tensors each takes."""


@dataclass(frozen=True)
class Subject:
    """A model, and the name or the tensors that it is analyzed with."""

    name: str
    model: Any
    inputs: tuple[torch.Tensor, ...] | None


def subjects(*, tiny: bool) -> Iterator[Subject]:
    sizes = ((32, 64),) if tiny else ((128, 512), (8192, 2048))
    for chain, count in CHAINS.items():
        for rows, columns in sizes:
            given = tuple(torch.randn(rows, columns) for _ in range(count))
            yield Subject(f"{chain.__name__} {rows}x{columns}", chain, given)
    for name in NETWORKS[:1] if tiny else NETWORKS:
        yield Subject(name, name, None)


def _tensor(request: InputRequest) -> torch.Tensor:
    """Noise; of whole numbers, tokens that every vocabulary has."""
    if request.dtype is None or request.dtype.kind == "float":
        return torch.randn(request.shape)
    return torch.randint(0, 1000, request.shape)


def runnable(subject: Subject) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """What is timed, and what it is called with."""
    if subject.inputs is not None:
        return subject.model, subject.inputs, {}
    source = load_model(subject.name)
    given = resolve_inputs(
        source.module, None, source.default_inputs, name=subject.name, batch=None
    )
    module = source.rebuild() if source.rebuild is not None else source.module
    return module.eval(), *given.build(_tensor)


@torch.no_grad()
@torch._inductor.config.patch(fx_graph_cache=False)
def best_s(
    run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, seconds: float
) -> float:
    """The least of many runs, after two that warm up and compile."""
    run(*args, **kwargs)
    run(*args, **kwargs)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run(*args, **kwargs)
        best = min(best, time.perf_counter() - start)
    return best


def bytes_table(*, tiny: bool) -> None:
    print("| subject | eager | fused | Inductor | fused ÷ Inductor |")
    print("|---|---:|---:|---:|---:|")
    worst = 0.0
    for subject in subjects(tiny=tiny):
        found = roofline.analyze_compiled(subject.model, subject.inputs, hardware="h100")
        compiled, totals = found.compiled, found.analysis.totals
        if compiled.why_not or compiled.unknown_launches():
            print(f"| {subject.name} | not known: {compiled.why_not or 'library kernels'} |||||")
            continue
        ratio = (totals.fused_bytes or 0) / compiled.known_bytes()
        worst = max(worst, ratio)
        cells = (totals.traffic_bytes, totals.fused_bytes or 0, compiled.known_bytes())
        print(f"| {subject.name} | {' | '.join(map(format_bytes, cells))} | {ratio:.3f} |")
    print(f"\nLargest ratio: {worst:.3f}; above 1 the rules would miss what Inductor fuses.")


def times_table(*, tiny: bool) -> None:
    print(
        "| subject | threads | eager min | fused min | model min | measured eager"
        " | measured compiled | compiled ÷ fused min |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    seconds, violations, lines = 0.05 if tiny else SECONDS, 0, 0
    profile = load_hardware("host")
    for subject in subjects(tiny=tiny):
        model, args, kwargs = runnable(subject)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch._dynamo.reset()
            with core_state_reader(()) as core_state:
                clocks = [core_state().clock_hz or 0.0]
                eager_s = best_s(model, args, kwargs, seconds=seconds)
                clocks.append(core_state().clock_hz or 0.0)
                compiled_s = best_s(torch.compile(model), args, kwargs, seconds=seconds)
                clocks.append(core_state().clock_hz or 0.0)
            totals = roofline.analyze(
                subject.model,
                subject.inputs,
                threads=threads,
                hardware=profile.at_clock(max(clocks)),
            ).totals
            minimum_s = totals.fused_min_time_s
            if minimum_s is None:
                raise SystemExit("no minimum times: measure this machine first, `roofline measure`")
            ratio = compiled_s / minimum_s
            is_beaten = ratio < 1 or eager_s < (totals.eager_min_time_s or 0.0)
            violations += is_beaten
            lines += 1
            times = (
                totals.eager_min_time_s,
                minimum_s,
                totals.model_min_time_s,
                eager_s,
                compiled_s,
            )
            cells = " | ".join(map(format_s, times))
            mark = " **violation**" if is_beaten else ""
            print(f"| {subject.name} | {threads} | {cells} | {ratio:.2f}{mark} |", flush=True)
    print(f"\nViolations: {violations} of {lines}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", action="store_true", help="compare bytes, time nothing")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    print("# torch.compile against the fused minimum\n")
    print(f"torch {torch.__version__}, float32, inference on a CPU.")
    print("Rerun: `python benchmarks/compiled_bounds.py > benchmarks/compiled_bounds.md`\n")
    (bytes_table if given.bytes else times_table)(tiny=given.tiny)


if __name__ == "__main__":
    main()
