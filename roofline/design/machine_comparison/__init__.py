"""One model on several machines: which operators are compute-bound here and memory-bound there."""

from __future__ import annotations

from roofline.design.machine_comparison.grouping import Across as Across
from roofline.design.machine_comparison.grouping import GroupAcross as GroupAcross
from roofline.design.machine_comparison.grouping import Side as Side
from roofline.design.machine_comparison.result import MachineComparison as MachineComparison
from roofline.design.machine_comparison.result import (
    read_machine_comparison as read_machine_comparison,
)
from roofline.design.machine_comparison.summary import MachineSummary as MachineSummary
