"""analyze, compare, crosscheck, measure …: where models (torch) and the pure side meet.

torch is imported inside the functions that need it.
"""

from __future__ import annotations

from roofline.core.progress import Progress as Progress
from roofline.pipeline.analyses import analyze as analyze
from roofline.pipeline.analyses import compare_machines as compare_machines
from roofline.pipeline.comparisons import compare as compare
from roofline.pipeline.crosschecks import crosscheck as crosscheck
from roofline.pipeline.machines import Hardware as Hardware
from roofline.pipeline.machines import host_profile as host_profile
from roofline.pipeline.machines import resolve_hardware as resolve_hardware
from roofline.pipeline.measuring import measure_hardware as measure_hardware
from roofline.pipeline.measuring import measure_with_samples as measure_with_samples
