"""DeepSpeed's profiler; its breakdown is read before its own hooks drop it."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import torch

from roofline.counters.conventions.deepspeed import ADDEND, RECURRENT
from roofline.counters.peers.subject import Subject
from roofline.counters.rules import Reported


def count(subject: Subject) -> tuple[Reported, ...]:
    """What DeepSpeed's profiler counts of a subject: its MACs, then its FLOPs."""
    profiler: Any = importlib.import_module("deepspeed.profiling.flops_profiler.profiler")
    breakdown = _Breakdown(profiler)
    # Hooks run in the order they were registered: ours reads what DeepSpeed's then drops.
    hooks = [
        module.register_forward_hook(breakdown.read)
        for module in subject.model.modules()
        if type(module) not in profiler.MODULE_HOOK_MAPPING
    ]
    counter = profiler.FlopsProfiler(subject.model)
    counter.start_profile()
    try:
        subject.model(*subject.inputs)
        macs, flops = int(counter.get_total_macs()), int(counter.get_total_flops())
        recurrent = sum(
            int(getattr(module, "__flops__", 0))
            for module in subject.model.modules()
            if type(module) in profiler.MODULE_HOOK_MAPPING
        )
    finally:
        counter.end_profile()
        for hook in hooks:
            hook.remove()
    return breakdown.reported(macs, flops, recurrent)


class _Breakdown:
    """Sums of what DeepSpeed counted, by the name of the function that was called."""

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler
        self._macs: Counter[str] = Counter()
        self._flops: Counter[str] = Counter()

    def read(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        """Adds what was counted in a module that has just run."""
        for into, stack in (
            (self._macs, self._profiler.module_mac_count),
            (self._flops, self._profiler.module_flop_count),
        ):
            for name, count in stack[-1] if stack else ():
                into[_function_name(name)] += int(count)

    def reported(self, macs: int, flops: int, recurrent: int) -> tuple[Reported, ...]:
        """Both numbers with their breakdowns."""
        # einsum is counted in FLOPs, all of them, and has no MACs.
        einsum = self._flops.pop("einsum", 0)
        product = {label: 2 * count for label, count in self._macs.items()}
        beside = sum(
            count - product.get(label, 0)
            for label, count in self._flops.items()
            if label in product
        )
        rest = {label: count for label, count in self._flops.items() if label not in product}
        if beside:
            rest[ADDEND] = beside
        if recurrent:
            rest[RECURRENT] = recurrent
        left_out = {"einsum": einsum // 2} if einsum else {}
        if einsum:
            product["einsum"] = einsum
        return (
            Reported(number=macs, product=dict(self._macs), left_out=left_out),
            Reported(number=flops, product=product, rest=rest),
        )


def _function_name(name: Any) -> str:
    """The function that DeepSpeed's label, its bound ``__str__``, belongs to."""
    function = getattr(name, "__self__", name)
    return str(getattr(function, "__name__", function))
