"""Optimizations made by hand, for tests of what reports and pictures say; all times made up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from roofline.analysis import Analysis
from roofline.machine.hardware import Duration, HardwareProfile, Overhead
from roofline.substitution.costs import launch_times
from roofline.substitution.result import (
    Figures,
    Optimization,
    Proof,
    Rounds,
    SearchStatistics,
    Substitution,
)
from roofline.workload.tensors import Role, TensorSpec
from tests.analysis.examples import (
    DATASHEET,
    Made,
    Network,
    analysis_of,
    ceiling,
    full_profile,
    level,
)


def accelerator() -> HardwareProfile:
    """15.7 TFLOP/s, 900 GB/s and 8 µs a launch."""
    return HardwareProfile(
        name="v100-like",
        device="cuda",
        threads=1,
        compute=(
            ceiling(15.7e12, unit="core", kernel="unspecified", threads=1, provenance=DATASHEET),
        ),
        memory=(level("HBM", None, {"unspecified": 900e9}, threads=1, provenance=DATASHEET),),
        overheads=(
            Overhead(
                name="launch",
                threads=1,
                time=Duration(fast_s=8e-6, median_s=8e-6, spread=None, provenance=DATASHEET),
            ),
        ),
    )


SIZES = ((55, 96, 16), (55, 128, 16), (27, 256, 32), (13, 384, 48), (13, 512, 64))
"""Fire modules: height and width, channels in, and after the squeeze."""


def fires(*, merged: bool) -> tuple[Network, list[tuple[int, ...]]]:
    """Fire modules one after another, each with its expand layers apart, or merged into one.

    With the numbers of the operators that a rewrite replaces, or puts there, in each.
    """
    net, rows = Network(), list[tuple[int, ...]]()
    for number, (size, channels, squeezed) in enumerate(SIZES):
        name = f"features.{number + 3}"
        x = net.tensor(1, channels, size, size, role=Role.INPUT)
        x = net.relu(net.convolution(x, squeezed, 1, f"{name}.squeeze"), f"{name}.squeeze_act")
        first = len(net.records)
        if merged:
            wide = net.convolution(x, 8 * squeezed, 3, f"{name}.expand3x3")
            net.relu(wide, f"{name}.expand3x3_activation")
        else:
            halves = [_expanded(net, x, squeezed, each, name) for each in (1, 3)]
            both = net.tensor(1, 8 * squeezed, size, size)
            net.call("aten.cat", "data movement", name, halves, both, flop=0)
        rows.append(tuple(range(first, len(net.records))))
    return net, rows


def _expanded(net: Network, x: TensorSpec, squeezed: int, kernel: int, name: str) -> TensorSpec:
    path = f"{name}.expand{kernel}x{kernel}"
    return net.relu(net.convolution(x, 4 * squeezed, kernel, path), f"{path}_activation")


def cost_of(analysis: Analysis) -> float:
    """Bounds and launches."""
    launches = launch_times(analysis.hardware).default_s
    return sum((row.eager_min_time_s or 0.0) + launches for row in analysis.operators)


def figures_of(analysis: Analysis, **options: Any) -> Figures:
    """What an analysis says of a pass, by bounds and launches."""
    cost_s = cost_of(analysis)
    totals = analysis.totals
    return Figures(
        cost_s=cost_s,
        traffic_bytes=totals.traffic_bytes,
        launches=len(analysis.operators),
        flop=totals.flop,
        weight_bytes=totals.parameter_size_bytes,
        flop_per_s=totals.flop / cost_s,
        share_of_roof=totals.flop / cost_s / 15.7e12,
        **options,
    )


@functools.cache
def predicted(
    machine_of: Callable[[], HardwareProfile] = accelerator, *, model: str = "squeezed"
) -> Optimization:
    """Expand layers merged for a machine that is not here: nothing is timed."""
    machine = machine_of()
    (net, rows), (new, new_rows) = fires(merged=False), fires(merged=True)
    before, after = (analysis_of(each, machine, model=model) for each in (net, new))
    was, now = figures_of(before), figures_of(after)
    step = (was.cost_s - now.cost_s) / len(SIZES)
    substitutions = tuple(
        Substitution(
            rule="enlarge-and-merge",
            where=f"features.{number + 3}.expand1x1, features.{number + 3}.expand3x3",
            why="the 1x1 kernel is enlarged to 3x3: one convolution in place of two",
            is_applied=True,
            cost_before_s=was.cost_s - number * step,
            cost_after_s=was.cost_s - (number + 1) * step,
            before_operators=rows[number],
            after_operators=new_rows[number],
        )
        for number in range(len(SIZES))
    )
    rejected = (
        *(
            Substitution(
                rule="enlarge-kernel",
                where=f"features.{number + 3}.squeeze",
                why="costs more",
                is_applied=False,
                cost_before_s=was.cost_s,
                cost_after_s=was.cost_s + (3 - number) * 1e-6,
            )
            for number in range(3)
        ),
        Substitution(
            rule="merge-convolutions",
            where="features.12.expand1x1, features.12.expand3x3",
            why="their kernels differ: 1x1 and 3x3",
            is_applied=False,
        ),
    )
    return Optimization(
        model=model,
        decision="predicted faster",
        cost="bound",
        alpha=1.05,
        budget=300,
        rules=("merge-convolutions", "enlarge-kernel", "enlarge-and-merge"),
        is_fused=False,
        captured_by="torch.export",
        before=before,
        after=after,
        figures_before=was,
        figures_after=now,
        substitutions=substitutions,
        rejected=rejected,
        proofs=proofs(),
        rounds=(),
        statistics=statistics(),
        not_timed="another machine",
    )


def statistics(**changes: Any) -> SearchStatistics:
    """733 graphs looked through, in 0.36 s."""
    counts = {"expanded": 733, "evaluated": 2041, "duplicates": 1310, "pruned": 12, "pieces": 1}
    return SearchStatistics(**{**counts, "seconds": 0.36, "ended": "exhausted", **changes})


def proofs() -> tuple[Proof, ...]:
    """Held in both types."""
    random = Proof(
        dtype="float64",
        inputs="random",
        weights="the model's",
        largest_error=3.1e-16,
        limit=1e-10,
        same_argmax=1.0,
    )
    edges = {"inputs": "zeros, ones and large values", "largest_error": 4.2e-7, "limit": 1e-5}
    return random, replace(random, dtype="float32", same_argmax=None, **edges)


def rounds(speedup: float, low: float, high: float, **changes: Any) -> Rounds:
    """The original took 17.2 ms."""
    values: dict[str, Any] = {"baseline": "eager", "candidate": "5 rewrites", "rounds": 5}
    values |= {"before_s": 17.2e-3, "after_s": 17.2e-3 / speedup, "speedup": speedup}
    return Rounds(**{**values, "speedup_low": low, "speedup_high": high, **changes})


@functools.cache
def measured(speedup: float = 1.8, low: float = 1.7, high: float = 1.9) -> Optimization:
    """The same on the machine that is here, timed in turn with the original."""
    found = predicted(full_profile)
    timed = rounds(speedup, low, high)
    return replace(
        found,
        decision="measured faster",
        cost="predicted",
        figures_before=replace(
            found.figures_before,
            measured_s=timed.before_s,
            measured_low_s=16.9e-3,
            measured_high_s=17.6e-3,
        ),
        figures_after=replace(
            found.figures_after,
            measured_s=timed.after_s,
            measured_low_s=0.98 * timed.after_s,
            measured_high_s=1.03 * timed.after_s,
        ),
        rounds=(timed, rounds(1.2, 1.18, 1.23, candidate="2 rewrites")),
        not_timed="",
    )


@functools.cache
def refused(speedup: float = 0.93, low: float = 0.91, high: float = 0.95) -> Optimization:
    """What was found lost when it was timed: the original is kept."""
    found = measured(speedup, low, high)
    return replace(
        found,
        decision="not faster",
        substitutions=tuple(replace(each, is_applied=False) for each in found.substitutions),
        rounds=found.rounds[:1],
    )


@functools.cache
def nothing() -> Optimization:
    """No graph costs less."""
    found = predicted(full_profile, model="kept")
    return replace(
        found,
        decision="nothing found",
        after=found.before,
        figures_after=found.figures_before,
        substitutions=(),
        proofs=(),
        not_timed="",
    )


@functools.cache
def many_folds(count: int = 53) -> Optimization:
    """Batch norms folded into convolutions: more rewrites than anybody reads."""
    net, new = Network(), Network()
    base = predicted(full_profile)
    substitutions: list[Substitution] = []
    x, y = (each.tensor(1, 8, 32, 32, role=Role.INPUT) for each in (net, new))
    for number in range(count):
        first, other = len(net.records), len(new.records)
        name = f"layer{number // 10}.{number % 10}"
        x = net.norm(net.convolution(x, 8 + number, 3, f"{name}.conv"), f"{name}.bn")
        y = new.convolution(y, 8 + number, 3, f"{name}.conv")
        fold = replace(
            base.substitutions[0],
            rule="fold-batch-norm",
            where=f"{name}.conv, {name}.bn",
            why="the norm is folded into the weights of the convolution",
            cost_before_s=(2 * count - number) * 1e-5,
            cost_after_s=(2 * count - number - 1) * 1e-5,
            before_operators=(first, first + 1),
            after_operators=(other,),
        )
        substitutions.append(fold)
    before, after = (analysis_of(each, full_profile(), model="folded") for each in (net, new))
    return replace(
        base,
        model="folded",
        before=before,
        after=after,
        figures_before=replace(figures_of(before), cost_s=2 * count * 1e-5),
        figures_after=replace(figures_of(after), cost_s=count * 1e-5),
        substitutions=tuple(substitutions),
        not_timed="--no-measure",
    )


@functools.cache
def hostile() -> Optimization:
    """Names that break out of HTML, Markdown, rich markup and terminals if let."""
    bad = "<script>alert(1)</script>|[bold]`$a_b$`\x1b[31m\nnext"
    found = predicted(model=bad)
    return replace(
        found,
        substitutions=tuple(
            replace(each, where=bad, why=bad, rule="mine") for each in found.substitutions
        ),
        rejected=tuple(replace(each, where=bad, why=bad) for each in found.rejected),
        proofs=tuple(replace(each, inputs=bad, weights=bad) for each in found.proofs),
        rounds=(rounds(1.2, 1.1, 1.3, candidate=bad),),
        warnings=(bad,),
        not_timed=bad,
    )


@functools.cache
def optimizations() -> Mapping[str, Optimization]:
    """Those that every renderer must manage, by name."""
    return Made(
        {
            "predicted": predicted,
            "measured": measured,
            "lost": refused,
            "no difference": lambda: refused(1.01, 0.98, 1.04),
            "nothing": nothing,
            "many": many_folds,
            "fused": lambda: replace(predicted(), is_fused=True),
            "hostile": hostile,
        }
    )
