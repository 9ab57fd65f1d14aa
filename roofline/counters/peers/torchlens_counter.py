"""torchlens, which wraps torch's functions and keeps a row for each call."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

from roofline.counters.peers.subject import Subject
from roofline.counters.rules import Reported


def count(subject: Subject) -> tuple[Reported, ...]:
    """What torchlens counts of a subject: its multiply-adds, then its FLOPs."""
    torchlens: Any = importlib.import_module("torchlens")
    report: Any = importlib.import_module("torchlens.report")
    wrappers: Any = importlib.import_module("torchlens.backends.torch.wrappers")
    try:
        trace = torchlens.trace(subject.model, list(subject.inputs))
        rows = report.compute_aggregation(trace).rows
        macs, flops = int(trace.total_macs_forward), int(trace.total_flops_forward)
    finally:
        wrappers.unwrap_torch()
    return _reported(rows, macs, flops)


def _reported(rows: Any, macs: int, flops: int) -> tuple[Reported, ...]:
    """Both numbers, from rows that have ``func_name``, ``fma_macs`` and ``flops_fma2``."""
    products: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for row in rows:
        name = str(row.func_name)
        if row.flops_fma2 is None:
            if row.coverage_class == "unknown":
                unknown[name] += 1
            continue
        product = int(row.fma_macs or 0)
        products[name] += product
        rest[name] += int(row.flops_fma2) - 2 * product
    without_zeros = {name: count for name, count in products.items() if count}
    return (
        Reported(number=macs, product=without_zeros, no_rule_for=dict(unknown)),
        Reported(
            number=flops,
            product={name: 2 * count for name, count in without_zeros.items()},
            rest={name: count for name, count in rest.items() if count},
            no_rule_for=dict(unknown),
        ),
    )
