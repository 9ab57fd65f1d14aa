"""Records that no capture made, under the ceilings of a machine.

How long the model keeps what it makes is not in an analysis, so that everything is taken to end
with its last reader. What memory then seems nearer than it was, by the operators as they are, is
put back: an operator that does not change stands where it stood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofline.analysis import Analysis
from roofline.design.advice.alternatives import reuses_for
from roofline.foundation.dtypes import DType
from roofline.placement import Pass, Placement, Roof
from roofline.quantization.what_if.steps import with_ends
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import residency

Farther = Mapping[str, float]
"""Bytes that must come from each memory level beyond those of short lives, for each byte moved."""


def placed(
    records: Sequence[OperatorRecord],
    roof: Roof,
    cache: Pass,
    farther: Sequence[Farther],
    compute_as: Sequence[DType | None] | None = None,
) -> tuple[Placement, ...]:
    """Where each operator of a pass stands, its operands being reused as the others leave them.

    Args:
        records: the pass, in its order.
        roof: the machine's ceilings.
        cache: whether caches hold what the pass before left.
        farther: what each fetches from farther away than it seems.
        compute_as: the type that each computes in where its operands have another.
    """
    types = compute_as or (None,) * len(records)
    crossing = _level_bytes(records, roof, cache)
    return tuple(
        roof.place(record, reuses_for(_moved(byte, record, each), roof), compute_as=of)
        for record, byte, each, of in zip(records, crossing, farther, types, strict=True)
    )


def farther_of(analysis: Analysis, roof: Roof) -> list[dict[str, int]]:
    """Bytes of each operator by memory level beyond those that short lives would give."""
    rows = analysis.operators
    short = _level_bytes([row.record for row in rows], roof, analysis.cache)
    return [
        {name: crossing - byte.get(name, 0) for name, crossing in row.level_bytes.items()}
        for row, byte in zip(rows, short, strict=True)
    ]


def together(
    operators: Sequence[int], farther: Sequence[Mapping[str, int]], analysis: Analysis
) -> Farther:
    """The same of operators that become one, for each byte that they move."""
    moved = sum(analysis.operators[each].traffic_bytes for each in operators)
    found: dict[str, float] = {}
    for each in operators if moved else ():
        for name, byte in farther[each].items():
            found[name] = found.get(name, 0.0) + byte / moved
    return found


def _level_bytes(
    records: Sequence[OperatorRecord], roof: Roof, cache: Pass
) -> list[Mapping[str, int]]:
    reuse = residency(with_ends(records))
    by_pass = reuse.steady if cache == "steady" else reuse.cold
    return [
        {} if record.state is State.FREE else roof.level_bytes(reuses)
        for record, reuses in zip(records, by_pass, strict=True)
    ]


def _moved(byte: Mapping[str, int], record: OperatorRecord, farther: Farther) -> dict[str, int]:
    """Bytes by memory level with those from farther away; no level gives more than one nearer."""
    found: dict[str, int] = {}
    most: int | None = None
    for name, crossing in byte.items():
        more = crossing + round(farther.get(name, 0.0) * record.work.traffic_bytes)
        # The nearest gives all there is.
        most = crossing if most is None else max(0, min(most, more))
        found[name] = most
    return found
