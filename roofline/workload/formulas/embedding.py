"""Rows looked up in a table: bytes of the rows that are touched, no floating-point operation."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.registry import Flop, formula


@formula("aten.embedding")
def embedding(**_: Any) -> Flop:
    """Rows are copied; capture charges the rows that can be touched, not the table."""
    return Flop()
