"""What goes from one process of this host to another, over gloo: rates and latencies, measured."""

from __future__ import annotations

from roofline.machine.links.measurement import measure_links as measure_links
