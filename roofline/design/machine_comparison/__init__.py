"""One model on several machines: which operators are compute-bound here and memory-bound there."""

from __future__ import annotations

from roofline.design.machine_comparison.grouping import Across as Across
from roofline.design.machine_comparison.grouping import GroupAcross as GroupAcross
from roofline.design.machine_comparison.grouping import Side as Side
from roofline.design.machine_comparison.result import SCHEMA_VERSION as SCHEMA_VERSION
from roofline.design.machine_comparison.result import MachineComparison as MachineComparison
from roofline.design.machine_comparison.saved import is_machine_comparison as is_machine_comparison
from roofline.design.machine_comparison.saved import (
    machine_comparison_from_data as machine_comparison_from_data,
)
from roofline.design.machine_comparison.saved import (
    read_machine_comparison as read_machine_comparison,
)
from roofline.design.machine_comparison.summary import MachineSummary as MachineSummary
