"""Slanting lines over a box, which any reader of a picture draws alike."""

from __future__ import annotations

from roofline.presentation.charts.labels import Box, Segment

_APART_PT = 4.5


def hatching(box: Box) -> tuple[Segment, ...]:
    """Lines that rise to the right by 45 degrees, clipped to the box."""
    width, height = box.right - box.left, box.top - box.bottom
    found: list[Segment] = []
    # Where each line meets the left edge, going up; below the box it meets the bottom instead.
    start = -width + _APART_PT / 2
    while start < height:
        x0, y0 = max(0.0, -start), max(0.0, start)
        length = min(width - x0, height - y0)
        found.append(
            Segment(
                box.left + x0,
                box.bottom + y0,
                box.left + x0 + length,
                box.bottom + y0 + length,
            )
        )
        start += _APART_PT
    return tuple(found)
