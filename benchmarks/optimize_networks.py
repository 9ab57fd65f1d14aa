"""What `roofline optimize` makes of nine networks and of small parts, against the clock.

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python benchmarks/optimize_networks.py /tmp/optimized            # goes on where it was
    python benchmarks/optimize_networks.py /tmp/optimized --time-limit 900
    python benchmarks/optimize_networks.py /tmp/optimized --only resnet50 --only predicted/eager
    python benchmarks/optimize_networks.py /tmp/optimized --table    # only the table
    python benchmarks/optimize_networks.py /tmp/optimized --quick    # a few rounds; table in there

It writes optimize_networks-HOST.md beside itself. A row is a network at one batch, on one or two
threads, searched by one cost, against eager PyTorch or against `torch.compile` with freezing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from networks.cases import NETWORKS, SMALL
from optimize_rows import (
    Row,
    Table,
    about_the_machine,
    counted,
    failed,
    interval,
    ratio,
    run,
)

from roofline.core.units import format_s

CLEAR = 0.05

BATCH_ROUNDS = 3
"""Of larger batches, whose passes are long: there the spread of rounds is small."""


def _keys() -> Iterator[str]:
    """network/batch/threads/cost/baseline, the most telling ones first."""
    everything = {**NETWORKS, **SMALL}
    for batch_place, threads, cost in (
        (0, 1, "predicted"),
        (0, 1, "measured"),
        (0, 2, "predicted"),
        (1, 2, "predicted"),
        (0, 2, "measured"),
        (1, 1, "predicted"),
        (1, 1, "measured"),
        (1, 2, "measured"),
    ):
        for baseline in ("eager", "compile"):
            for name, network in everything.items():
                yield f"{name}/b{network.batches[batch_place]}/t{threads}/{cost}/{baseline}"


def _computed(key: str, quick: bool) -> Row:
    import roofline

    name, batch, threads, *ways = key.split("/")
    cost: Any
    baseline: Any
    cost, baseline = ways
    network = {**NETWORKS, **SMALL}[name]
    begun_s = time.monotonic()
    found = roofline.optimize(
        network.built() if network.is_own else network.model,
        network.inputs(int(batch[1:])),
        cost=cost,
        threads=int(threads[1:]),
        baseline=baseline,
        rounds=2 if quick else (None if batch == "b1" else BATCH_ROUNDS),
        force=quick,
    )
    before, after = found.figures_before, found.figures_after
    return {
        "decision": found.decision,
        "cost_before_s": before.cost_s,
        "cost_after_s": after.cost_s,
        "launches": [before.launches, after.launches],
        "traffic_bytes": [before.traffic_bytes, after.traffic_bytes],
        "flop": [before.flop, after.flop],
        "rounds": [
            {
                "baseline": each.baseline,
                "candidate": each.candidate,
                "before_s": each.before_s,
                "after_s": each.after_s,
                "speedup": each.speedup,
                "low": each.speedup_low,
                "high": each.speedup_high,
            }
            for each in found.rounds
        ],
        "applied": [each.rule for each in found.substitutions],
        "pieces": found.statistics.pieces,
        "evaluated": found.statistics.evaluated,
        "search_s": found.statistics.seconds,
        "ended": found.statistics.ended,
        "errors": {each.dtype: each.largest_error for each in found.proofs},
        "whole_s": time.monotonic() - begun_s,
        "warnings": list(found.warnings),
    }


def _timed(row: Row, *, is_chosen: bool) -> dict[str, float] | None:
    """What the clock said under the row's baseline: of the result, or of what the search chose.

    The first candidate is the search's; the others were found with fewer rules, and the result is
    the one that gained most.
    """
    baseline = row["key"].split("/")[-1]
    timed = [each for each in row["rounds"] if each["baseline"] == baseline]
    if is_chosen and row["decision"] == "measured faster":
        return max((each for each in timed if each["low"] > 1.0), key=lambda each: each["speedup"])
    return timed[0] if timed else None


def _verdict(row: Row) -> str:
    """Whether the sign of the search's gain is that of the clock's; clear cases only."""
    timed = _timed(row, is_chosen=False)
    if timed is None:
        return "–"
    if abs(timed["speedup"] - 1) <= CLEAR or timed["low"] <= 1.0 <= timed["high"]:
        return "unclear"
    return "right" if timed["speedup"] > 1 else "wrong"


def _is_slower(row: Row) -> bool:
    timed = _timed(row, is_chosen=True)
    kept = row["decision"] in ("measured faster", "predicted faster")
    return kept and timed is not None and timed["high"] < 1.0


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    yield "# Networks through `roofline optimize`"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/optimize_networks.py`."
    yield ""
    yield from _summary(good)
    yield ""
    yield "Ratios are original over result: above 1 is a gain. *Cost* is the search's own, *clock*"
    yield "whole passes of original and result in turn, with the interval from 10 to 90 % of"
    yield "rounds (7, or 3 of larger batches); where nothing was found that costs less, nothing was"
    yield "timed. *Sign*: whether a gain that the search found is one by the clock, where that is"
    yield "more than 5 %."
    for cost in ("predicted", "measured"):
        for baseline in ("eager", "compile"):
            part = [row for row in good if row["key"].endswith(f"/{cost}/{baseline}")]
            if part:
                rival = "eager" if baseline == "eager" else "torch.compile with freezing"
                yield ""
                yield f"## Searched by the {cost} cost, against {rival}"
                yield ""
                yield from _table(part)
    yield from failed(rows)


def _summary(rows: Sequence[Row]) -> Iterable[str]:
    for cost in ("predicted", "measured"):
        part = [row for row in rows if f"/{cost}/" in row["key"]]
        if not part:
            continue
        verdicts = [_verdict(row) for row in part]
        clear = [each for each in verdicts if each in ("right", "wrong")]
        faster = sum(row["decision"] == "measured faster" for row in part)
        yield (
            f"* {cost}: of {len(part)} rows {faster} are faster by the clock; the sign is right in"
            f" {clear.count('right')} of {len(clear)} clear cases; searches took"
            f" {_spread([row['search_s'] for row in part])}."
        )
    slower = [row["key"] for row in rows if _is_slower(row)]
    yield f"* Results that are slower than their original: {', '.join(slower) or 'none'}."


def _spread(seconds: Sequence[float]) -> str:
    return f"{format_s(min(seconds))} to {format_s(max(seconds))}"


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| network | batch | threads | cost before → after | by cost | by clock | interval |"
        " decision | sign | search | applied |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---|---|---:|---|"
    for row in rows:
        name, batch, threads = row["key"].split("/")[:3]
        timed = _timed(row, is_chosen=True)
        before, after = row["cost_before_s"], row["cost_after_s"]
        clock = timed or {"speedup": None, "low": None, "high": None}
        yield (
            f"| {name} | {batch[1:]} | {threads[1:]} | {format_s(before)} → {format_s(after)} |"
            f" {ratio(before / after)} | {ratio(clock['speedup'])} |"
            f" {interval(clock['low'], clock['high'])} | {row['decision']} | {_verdict(row)} |"
            f" {format_s(row['search_s'])} | {counted(row['applied'])} |"
        )


TABLE = Table(
    name="optimize_networks",
    keys=tuple(_keys()),
    compute=_computed,
    lines=_lines,
    row_limit_s=1500.0,
)

if __name__ == "__main__":
    run(TABLE, __doc__)
