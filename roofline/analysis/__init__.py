"""Analyses: operators of a model under the ceilings of a machine."""

from __future__ import annotations

from roofline.analysis.grouping import Branch as Branch
from roofline.analysis.grouping import Group as Group
from roofline.analysis.grouping import Whole as Whole
from roofline.analysis.grouping import group_of as group_of
from roofline.analysis.grouping import groups as groups
from roofline.analysis.grouping import module_tree as module_tree
from roofline.analysis.grouping import working as working
from roofline.analysis.result import FRAME_COLUMNS as FRAME_COLUMNS
from roofline.analysis.result import LIMITS as LIMITS
from roofline.analysis.result import MINIMUMS as MINIMUMS
from roofline.analysis.result import Analysis as Analysis
from roofline.analysis.result import Basis as Basis
from roofline.analysis.result import Finding as Finding
from roofline.analysis.result import analysis_from_data as analysis_from_data
from roofline.analysis.result import rank as rank
from roofline.analysis.result import ranked as ranked
from roofline.analysis.result import read_analysis as read_analysis
from roofline.analysis.rows import MINIMUM_TIMES as MINIMUM_TIMES
from roofline.analysis.rows import SUMMED as SUMMED
from roofline.analysis.rows import Coverage as Coverage
from roofline.analysis.rows import MemoryPeak as MemoryPeak
from roofline.analysis.rows import MinTimes as MinTimes
from roofline.analysis.rows import OperatorRow as OperatorRow
from roofline.analysis.rows import Totals as Totals
from roofline.analysis.rows import coverage_of as coverage_of
from roofline.analysis.rows import fit_of as fit_of
from roofline.analysis.rows import fit_text as fit_text
from roofline.analysis.rows import fit_warnings as fit_warnings
from roofline.analysis.rows import fits as fits
from roofline.analysis.rows import known_work as known_work
from roofline.analysis.rows import minimum_times_of as minimum_times_of
from roofline.analysis.rows import oversized as oversized
from roofline.analysis.rows import row_of as row_of
from roofline.analysis.rows import sum_eager_min_time_s as sum_eager_min_time_s
from roofline.analysis.rows import sum_fused_bytes as sum_fused_bytes
from roofline.analysis.rows import unknown_capacity as unknown_capacity
from roofline.run import Run as Run
from roofline.workload.operators import Module as Module
from roofline.workload.tensors import InputSpec as InputSpec
