"""Entry point `sweep`: designs over sizes and machines, on one or many processes."""

from __future__ import annotations

from roofline.pipeline.sweeps.sweeping import sweep as sweep
