"""What pays on a CPU: merged branches, small linears, gates and layout, eager and compiled.

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python benchmarks/optimize_gains.py /tmp/gains            # goes on where it was
    python benchmarks/optimize_gains.py /tmp/gains --only eager
    python benchmarks/optimize_gains.py /tmp/gains --table    # only the table
    python benchmarks/optimize_gains.py /tmp/gains --quick    # a few rounds; table in there

It writes optimize_gains-HOST.md beside itself. `roofline optimize` chooses by the sum of operators
that were timed on their own (`cost="measured"`), then times whole passes of original and result in
turn, both eager, or both through `torch.compile` with freezing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from networks.cases import NETWORKS, SMALL, Network
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

WITHOUT_LAYOUT = "all,-channels-last"

SUBJECTS = (
    *((name, batch, WITHOUT_LAYOUT) for name in ("Block48", "Block192") for batch in (1, 16)),
    ("RepVGG", 1, WITHOUT_LAYOUT),
    *(("Eight", batch, WITHOUT_LAYOUT) for batch in (1, 64)),
    ("ThirtyTwo", 64, WITHOUT_LAYOUT),
    *((name, batch, WITHOUT_LAYOUT) for name in ("LSTM256", "LSTM1024") for batch in (1, 16)),
    *((name, 1, "channels-last") for name in ("squeezenet1_0", "googlenet", "RepVGG")),
    *((name, 1, "all") for name in ("squeezenet1_0", "googlenet", "RepVGG")),
)
"""Network, batch, rules."""


def _keys() -> Iterator[str]:
    for way, threads in (("eager", 1), ("compile", 1), ("eager", 2)):
        for name, batch, rules in SUBJECTS:
            yield f"{name}/b{batch}/t{threads}/{way}/{rules}"


def _computed(key: str, quick: bool) -> Row:
    import roofline

    name, batch, threads, way, rules = key.split("/")
    network: Network = {**NETWORKS, **SMALL}[name]
    baseline: Any = way
    found = roofline.optimize(
        network.built(),
        roofline.Inputs(*network.tensors(int(batch[1:]))),
        threads=int(threads[1:]),
        rules=rules,
        cost="measured",
        baseline=baseline,
        rounds=2 if quick else None,
        force=quick,
    )
    row: Row = {
        "decision": found.decision,
        "cost": found.cost,
        "cost_before_s": found.figures_before.cost_s,
        "cost_after_s": found.figures_after.cost_s,
        "applied": [each.rule for each in found.substitutions],
        "search_s": found.statistics.seconds,
    }
    timed = found.decisive
    if timed is None:
        return row
    return {
        **row,
        "before_s": timed.before_s,
        "after_s": timed.after_s,
        "speedup": timed.speedup,
        "speedup_low": timed.speedup_low,
        "speedup_high": timed.speedup_high,
    }


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    yield "# What pays on a CPU"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/optimize_gains.py`."
    yield ""
    yield "The search went by operators timed on their own; the clock timed original and result in"
    yield "turn, with the interval from 10 to 90 % of rounds. *Compile*: both under `torch.compile`"
    yield "with freezing; what is left there the compiler does not do by itself."
    for way, title in (("eager", "Eager"), ("compile", "Compile")):
        part = [row for row in good if f"/{way}/" in row["key"]]
        if part:
            yield ""
            yield f"## {title}"
            yield ""
            yield from _table(part)
    yield from failed(rows)


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| network | batch | threads | rules | by cost | original | result | by clock | interval |"
        " applied |"
    )
    yield "|---|---:|---:|---|---:|---:|---:|---:|---:|---|"
    for row in rows:
        name, batch, threads, _, rules = row["key"].split("/")
        before_s, after_s = row.get("before_s"), row.get("after_s")
        yield (
            f"| {name} | {batch[1:]} | {threads[1:]} | {rules} |"
            f" {ratio(row['cost_before_s'] / row['cost_after_s'])} |"
            f" {format_s(before_s) if before_s else '–'} |"
            f" {format_s(after_s) if after_s else '–'} | {ratio(row.get('speedup'))} |"
            f" {interval(row.get('speedup_low'), row.get('speedup_high'))} |"
            f" {counted(row['applied'])} |"
        )


TABLE = Table(name="optimize_gains", keys=tuple(_keys()), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
