"""The predicted step of two ranks against two real processes that train together.

Run it on a quiet machine that was measured, with its links (`roofline measure --links`):

    python benchmarks/data_parallel.py /tmp/data_parallel            # goes on where it was
    python benchmarks/data_parallel.py /tmp/data_parallel --only mlp
    python benchmarks/data_parallel.py /tmp/data_parallel --table    # only the table
    python benchmarks/data_parallel.py /tmp/data_parallel --quick    # 3 steps; table in there

It writes data_parallel-HOST.md beside itself. Each rank computes on one thread. The prediction is
made of operators timed in one process alone, and of the link; the real run is
DistributedDataParallel over gloo.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optimize_rows import Row, Table, about_the_machine, failed, run

from roofline.core.units import format_bytes, format_s

_NETWORKS = Path(__file__).parent / "networks"

MODELS: Mapping[str, tuple[str, str]] = {
    # The name in the table: what is trained, and what it is given.
    "ResNet-20 (CIFAR), batch 32": (f"{_NETWORKS / 'cifar_resnet.py'}:ResNet20", "32x3x32x32"),
    "resnet18, batch 4": ("resnet18", "4x3x128x128"),
    "mobilenet_v2, batch 4": ("mobilenet_v2", "4x3x128x128"),
    "squeezenet1_1, batch 4": ("squeezenet1_1", "4x3x128x128"),
    "mlp 1024, batch 8": (
        "linear(1024,1024)+relu()+linear(1024,1024)+relu()+linear(1024,1024)@8x1024",
        "",
    ),
    "mlp 1024, batch 256": (
        "linear(1024,1024)+relu()+linear(1024,1024)+relu()+linear(1024,1024)@256x1024",
        "",
    ),
}

_STEPS = 30
_RANKS = 2


def _computed(key: str, quick: bool) -> Row:
    from roofline.machine.links import run_in_ranks
    from roofline.pipeline.distributed_capture import TrainingTask, capture_buckets, time_steps
    from roofline.pipeline.scaling import scale

    model, shape = MODELS[key]
    inputs: Any = shape or None
    told = scale(
        model,
        inputs,
        data_parallel=_RANKS,
        threads=1,
        optimizer="sgd",
        measured=True,
        force=quick,
    )
    task = TrainingTask(model=model, inputs=inputs, optimizer="sgd")
    ranks: Any = {"ranks": _RANKS, "threads": 1, "limit_s": 300}
    sent, *_ = run_in_ranks(capture_buckets, task, **ranks)
    found = run_in_ranks(time_steps, task, 3 if quick else _STEPS, **ranks)
    # A step is over when it is for the last rank.
    together = [max(each) for each in zip(*(one.together_s for one in found), strict=True)]
    alone = [max(each) for each in zip(*(one.alone_s for one in found), strict=True)]
    point = told.point
    return {
        "gradient_bytes": told.gradient_bytes,
        "buckets_agree": [each.byte for each in sent] == [each.size_bytes for each in told.buckets],
        "link": told.link_words,
        "alone_s": told.alone_s,
        "predicted_s": point.step_s,
        "low_s": point.step_low_s,
        "high_s": point.step_high_s,
        "beside_s": statistics.median(alone),
        "together_s": statistics.median(together),
    }


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    yield "# Two ranks against the clock"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/data_parallel.py`."
    yield ""
    yield "Training steps (SGD) of two processes with DistributedDataParallel over gloo, one thread"
    yield "each, against `roofline scale --data-parallel 2 --measured --threads 1`."
    yield "*Alone*: one process, nothing else running, where the prediction starts; *beside*: a"
    yield "step without sending while the other process computes too. *Off*: prediction over clock,"
    yield "less one. Efficiency: *beside* over *together*, and as predicted."
    yield ""
    offs = [abs(row["predicted_s"] / row["together_s"] - 1) for row in good]
    if offs:
        within = sum(row["low_s"] <= row["together_s"] <= row["high_s"] for row in good)
        agree = sum(row["buckets_agree"] for row in good)
        yield (
            f"Mean error {100 * statistics.mean(offs):.1f} %, median"
            f" {100 * statistics.median(offs):.1f} %; {within} of {len(good)} between the ends of"
            f" the prediction; buckets agree to the byte in {agree} of {len(good)}."
        )
        yield ""
    yield (
        "| model | gradients | alone | beside | together | predicted | from | to | off | efficiency"
        " | predicted |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in good:
        off = row["predicted_s"] / row["together_s"] - 1
        yield (
            f"| {row['key']} | {format_bytes(row['gradient_bytes'])} | {format_s(row['alone_s'])} |"
            f" {format_s(row['beside_s'])} | {format_s(row['together_s'])} |"
            f" {format_s(row['predicted_s'])} | {format_s(row['low_s'])} |"
            f" {format_s(row['high_s'])} | {100 * off:+.1f} % |"
            f" {100 * row['beside_s'] / row['together_s']:.0f} % |"
            f" {100 * row['alone_s'] / row['predicted_s']:.0f} % |"
        )
    if good:
        yield ""
        yield f"Link: {good[-1]['link']}."
    yield from failed(rows)


TABLE = Table(name="data_parallel", keys=tuple(MODELS), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
