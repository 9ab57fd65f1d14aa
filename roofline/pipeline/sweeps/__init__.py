"""sweep: designs over sizes and machines; here, in processes, on a cluster."""

from __future__ import annotations

from roofline.pipeline.sweeps.sweeping import sweep as sweep
