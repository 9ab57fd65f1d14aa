"""Measures NVIDIA devices: peaks with and without tensor cores, memory, launches, copies."""

from __future__ import annotations

from roofline.machine.gpu.measurement import BUDGET_S as BUDGET_S
from roofline.machine.gpu.measurement import measure_gpu as measure_gpu
