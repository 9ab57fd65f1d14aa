"""What a decode pass holds where tokens are generated one after the other.

A pass that is captured gets its cache from a caller who keeps it. In a loop nobody but the model
holds the cache: as soon as a layer has copied its keys beside the new one, the old ones are gone.
So memory is fullest with the whole cache, and once more what grows at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Residency
from roofline.workload.tensors import Role, TensorSpec


def held_while_generating(records: Sequence[OperatorRecord], reuse: Residency) -> Residency:
    """Where and how full memory is when a decode pass is one of many; else as `reuse`.

    Args:
        records: of the pass.
        reuse: of its operands, as if the caller kept what it gave.

    Returns:
        With ``peak_activation_bytes`` in bytes beyond those of the inputs: what grows in the place
        of an old cache that is gone does not count twice.
    """
    last = _last_uses(records)
    sizes = _sizes(records)
    alive: set[int] = set()
    live, peak, peak_index = 0, 0, None
    for index, record in enumerate(records):
        for spec in (*record.inputs, *record.outputs):
            if not spec.role.persists and spec.storage not in alive:
                alive.add(spec.storage)
                live += sizes[spec.storage]
        if live > peak:
            peak, peak_index = live, index
        gone = {each for each in record.freed if each in alive}
        alive -= gone
        live -= sum(sizes[each] for each in gone)
        live -= sum(sizes[each] for each, end in last.items() if end == index)
    return replace(reuse, peak_index=peak_index, peak_activation_bytes=peak)


def _last_uses(records: Sequence[OperatorRecord]) -> Mapping[int, int]:
    """For each old cache that is copied into a new one, the operator that touches it last."""
    grown = {
        spec.storage
        for record in records
        if record.op == "aten.cat"
        for spec in record.inputs
        if is_cache(spec)
    }
    return {
        spec.storage: index
        for index, record in enumerate(records)
        for spec in (*record.inputs, *record.outputs)
        if spec.storage in grown
    }


def _sizes(records: Sequence[OperatorRecord]) -> Mapping[int, int]:
    """Bytes of every storage."""
    sizes: dict[int, int] = {}
    for record in records:
        for spec in (*record.inputs, *record.outputs):
            end = spec.offset_bytes + spec.byte
            sizes[spec.storage] = max(sizes.get(spec.storage, 0), end)
    return sizes


def is_cache(spec: TensorSpec) -> bool:
    """Whether an operand is of the cache that a pass was given: tokens are whole numbers."""
    return spec.role is Role.INPUT and spec.dtype.kind == "float"
