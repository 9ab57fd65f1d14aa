"""Traces that torch.profiler records here, against `analyze`: operators, FLOP, bytes, times.

    python benchmarks/trace_round_trip.py > benchmarks/trace_round_trip.md

Each model runs under torch's profiler on this CPU, eager, with shapes. Counts must be equal: linear
layers alone add their bias in place (`add_`) where a capture has a new tensor. Times are sums over
operators: of the trace (the profiler on), and of `roofline profile` (the machine must be quiet).
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import roofline

PASSES = 5


def traced(run: Callable[[], Any]) -> list[roofline.TraceAnalysis]:
    """Return traces of several passes, after one that is not recorded."""
    run()
    found: list[roofline.TraceAnalysis] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PASSES):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
                run()
            path = Path(folder) / f"{number}.json"
            recording.export_chrome_trace(str(path))
            found.append(roofline.read_trace(path))
    return found


def counts(result: Any) -> Counter[tuple[str, int | None]]:
    rows = (row for row in result.operators if row.state != "free")
    return Counter((row.op.rstrip("_"), row.flop) for row in rows)


def main() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    import torchvision
    import transformers

    images, tokens = torch.randn(1, 3, 224, 224), torch.zeros(1, 128, dtype=torch.long)
    resnet = torchvision.models.resnet50(weights=None).eval()
    bert = transformers.BertModel(transformers.BertConfig()).eval()
    trained = torchvision.models.resnet18(weights=None)
    few, labels = torch.randn(2, 3, 64, 64), torch.zeros(2, dtype=torch.long)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)

    def step() -> None:
        torch.nn.functional.cross_entropy(trained(few), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    cases: tuple[tuple[str, Any, Any, Callable[[], Any], dict[str, Any]], ...] = (
        ("resnet50", resnet, images, lambda: resnet(images), {}),
        ("BERT, 128 tokens", bert, tokens, lambda: bert(tokens), {}),
        ("resnet18, training step", trained, few, step, {"train": True, "optimizer": "sgd"}),
    )
    print("# Traces recorded here against `roofline analyze` and `roofline profile`\n")
    print("Rerun: `python benchmarks/trace_round_trip.py > benchmarks/trace_round_trip.md`\n")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {PASSES} passes.\n")
    print(
        "| model | operators: trace, analyze | FLOP: trace, analyze | bytes: trace, analyze |"
        " operators in one alone | time of operators: trace | profile |\n"
        "|---|---|---|---|---|--:|--:|"
    )
    for name, model, given, run, options in cases:
        with torch.set_grad_enabled(bool(options)):
            traces = traced(run)
        expected = roofline.analyze(model, given, **options)
        trace = traces[0]
        found, wanted = counts(trace), counts(expected)
        alone = ", ".join(op for op, _ in ((found - wanted) + (wanted - found))) or "none"
        flop = sum(row.flop or 0 for row in trace.operators)
        byte = sum(row.traffic_bytes for row in trace.operators)
        measured = roofline.profile(model, given, learn=False, **options)
        of_profile = sum(row.measured_s or 0.0 for row in measured.operators if row.state != "free")
        print(
            f"| {name} | {found.total()}, {wanted.total()} | {flop:,}, {expected.totals.flop:,} |"
            f" {byte:,}, {expected.totals.traffic_bytes:,} | {alone} |"
            f" {1e3 * median(each.measured_s for each in traces):.1f} ms |"
            f" {1e3 * of_profile:.1f} ms |"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
