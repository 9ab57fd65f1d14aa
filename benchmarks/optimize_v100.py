"""The MetaFlow article's SqueezeNet: what is found on V100-like hardware, and what it does here.

    python benchmarks/optimize_v100.py /tmp/v100            # three minutes; goes on where it was
    python benchmarks/optimize_v100.py /tmp/v100 --table    # only the table
    python benchmarks/optimize_v100.py /tmp/v100 --quick    # a few rounds; table in there

Searches need no V100 and no quiet machine; the rows called ``here`` time the rewritten network on
this one, where a calibrated, quiet machine is needed. It writes optimize_v100-HOST.md beside
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from networks.cases import NETWORKS
from optimize_rows import (
    Row,
    Table,
    about_the_machine,
    counted,
    failed,
    in_turn,
    interval,
    ratio,
    run,
)

from roofline.core.units import format_bytes, format_flop, format_flop_per_s, format_s
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.workload.operators import State

PROFILE = Path(__file__).parent / "hardware" / "v100-like.toml"
MODEL = "squeezenet1_0"
NO_COMPOSITE = "all,-enlarge-and-merge"
FIRE = "enlarge-kernel,enlarge-and-merge,merge-convolutions,eliminate-split-concat"
"""The rules that the article's rewrite is made of."""

SEARCHES = {
    "composite off, α 1": (NO_COMPOSITE, 1.0),
    "composite off, α 1.05": (NO_COMPOSITE, 1.05),
    "composite off, α 1.2": (NO_COMPOSITE, 1.2),
    "composite on, α 1": ("all", 1.0),
}
LAUNCHES_US = (1, 2, 4, 8, 16)
PEAKS_TFLOP_PER_S = (15.7, 7.8, 3.9, 1.5)


def _profile(*, launch_us: float = 8.0, peak_tflop_per_s: float = 15.7) -> HardwareProfile:
    """The V100-like machine with another launch time or peak."""
    known = catalog.load_hardware(PROFILE)
    (overhead,) = known.overheads
    time = replace(overhead.time, fast_s=launch_us * 1e-6, median_s=launch_us * 1e-6)
    (ceiling,) = known.compute
    rate = peak_tflop_per_s * 1e12
    return replace(
        known,
        overheads=(replace(overhead, time=time),),
        compute=(replace(ceiling, peak_flop_per_s=rate, sustained_flop_per_s=rate),),
    )


def _searched(rules: str, alpha: float, hardware: HardwareProfile) -> Any:
    import roofline

    return roofline.optimize(
        MODEL,
        NETWORKS[MODEL].inputs(1),
        hardware=hardware,
        cost="bound",
        fused=True,
        rules=rules,
        alpha=alpha,
        measure=False,
    )


def _figures(found: Any) -> Row:
    """Before and after, as the search counts them, and as eager PyTorch would run them."""
    sides: Row = {}
    for side in ("before", "after"):
        fused = getattr(found, f"figures_{side}")
        eager = getattr(found, side)
        sides[side] = {
            "cost_s": fused.cost_s,
            "traffic_bytes": fused.traffic_bytes,
            "launches": fused.launches,
            "flop": fused.flop,
            "eager_traffic_bytes": eager.totals.traffic_bytes,
            "eager_launches": sum(each.state is not State.FREE for each in eager.operators),
        }
    return {
        **sides,
        "decision": found.decision,
        "applied": [each.rule for each in found.substitutions],
        "evaluated": found.statistics.evaluated,
        "search_s": found.statistics.seconds,
        "ended": found.statistics.ended,
    }


def _here(batch: int, threads: int, *, quick: bool) -> Row:
    """What this machine's own search says, and the V100's graph on this machine's clock."""
    import torch

    import roofline

    torch.set_num_threads(threads)
    network = NETWORKS[MODEL]
    # Timed as every user's is: what a prediction leaves open, the clock decides.
    own = roofline.optimize(
        MODEL, network.inputs(batch), threads=threads, rules=FIRE, measure=not quick
    )
    model = network.built()
    inputs = network.tensors(batch)
    forced = roofline.optimize(
        model,
        inputs,
        hardware=_profile(),
        cost="bound",
        fused=True,
        rules=FIRE,
        alpha=1.05,
        measure=False,
    )
    timed = in_turn(model, forced.module, inputs, rounds=3 if quick else 15, burst_s=0.1)
    return {"decision": own.decision, "cost": own.cost, "forced": forced.decision, **asdict(timed)}


def _computed(key: str, quick: bool) -> Row:
    kind, _, rest = key.partition(": ")
    if kind == "search":
        return _figures(_searched(*SEARCHES[rest], _profile()))
    if kind == "launch":
        return _figures(_searched(NO_COMPOSITE, 1.05, _profile(launch_us=float(rest))))
    if kind == "peak":
        return _figures(_searched(NO_COMPOSITE, 1.05, _profile(peak_tflop_per_s=float(rest))))
    batch, threads = map(int, rest.split("/"))
    return _here(batch, threads, quick=quick)


def _keys() -> Iterable[str]:
    yield from (f"search: {each}" for each in SEARCHES)
    yield from (f"here: {batch}/{threads}" for batch in (1, 16) for threads in (1, 2))
    yield from (f"launch: {each}" for each in LAUNCHES_US)
    yield from (f"peak: {each}" for each in PEAKS_TFLOP_PER_S)


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    kinds = {
        kind: [row for row in good if row["key"].startswith(f"{kind}: ")]
        for kind in ("search", "here", "launch", "peak")
    }
    yield "# SqueezeNet 1.0 on V100-like hardware"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/optimize_v100.py`."
    yield ""
    yield "V100-like: 15.7 TFLOP/s in float32, 900 GB/s, and 8 µs a launch, which is assumed"
    yield "(`benchmarks/hardware/v100-like.toml`). Activations are counted inside their"
    yield "convolutions (`--fused`), as the article's runtimes have them. All times are bounds and"
    yield "launches of a machine that is not here: predicted, not measured. That they come near the"
    yield "article's 1.3 × is an illustration, since nobody measured the launch time."
    yield ""
    yield "## What is found"
    yield ""
    yield from _searches(kinds["search"])
    yield ""
    yield "## On this machine"
    yield ""
    yield "What the same rules are worth on this CPU by its own cost, and the V100's graph timed"
    yield "here in turn with the original (eager; below 1 it is slower)."
    yield ""
    yield from _on_this_machine(kinds["here"])
    yield ""
    yield "## How much hangs on the assumption"
    yield ""
    yield "α 1.05, composite rule off; one figure changed at a time."
    yield ""
    for kind, unit in (("launch", "µs"), ("peak", "TFLOP/s")):
        if kinds[kind]:
            yield from _sensitivity(kind, unit, kinds[kind])
            yield ""
    yield from failed(rows)


def _searches(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| search | cost | traffic | launches | FLOP | achieved | predicted ratio | eager traffic |"
        " eager launches | graphs | seconds | applied |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for row in rows:
        before, after = row["before"], row["after"]
        achieved = [each["flop"] / each["cost_s"] for each in (before, after)]
        yield (
            f"| {row['key'].partition(': ')[2]}"
            f" | {_change(format_s, before['cost_s'], after['cost_s'])}"
            f" | {_change(format_bytes, before['traffic_bytes'], after['traffic_bytes'])}"
            f" | {_change(str, before['launches'], after['launches'])}"
            f" | {_change(format_flop, before['flop'], after['flop'])}"
            f" | {_change(format_flop_per_s, *achieved)}"
            f" | {ratio(before['cost_s'] / after['cost_s'])}"
            f" | {_change(format_bytes, *(of['eager_traffic_bytes'] for of in (before, after)))}"
            f" | {_change(str, before['eager_launches'], after['eager_launches'])}"
            f" | {row['evaluated']} | {row['search_s']:.1f} | {counted(row['applied'])} |"
        )


def _change(words: Any, before: Any, after: Any) -> str:
    return f"{words(before)} → {words(after)}" if before != after else f"{words(before)}"


def _on_this_machine(rows: Sequence[Row]) -> Iterable[str]:
    yield "| batch | threads | decision here | by | original | rewritten | clock | interval |"
    yield "|---:|---:|---|---|---:|---:|---:|---:|"
    for row in rows:
        batch, threads = row["key"].partition(": ")[2].split("/")
        yield (
            f"| {batch} | {threads} | {row['decision']} | {row['cost']} |"
            f" {format_s(row['before_s'])} | {format_s(row['after_s'])} |"
            f" {ratio(row['speedup'])} |"
            f" {interval(row['speedup_low'], row['speedup_high'])} |"
        )


def _sensitivity(name: str, unit: str, rows: Sequence[Row]) -> Iterable[str]:
    values = [row["key"].partition(": ")[2] for row in rows]
    yield f"| {name}, {unit} | {' | '.join(values)} |"
    yield f"|---|{'---:|' * len(values)}"
    ratios = [ratio(row["before"]["cost_s"] / row["after"]["cost_s"]) for row in rows]
    yield f"| predicted ratio | {' | '.join(ratios)} |"


TABLE = Table(name="optimize_v100", keys=tuple(_keys()), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
