from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.presentation.charts.labels import (
    Anchor,
    Box,
    Segment,
    cut_to,
    place_labels,
    spread,
    text_box,
    text_width_pt,
)

FRAME = Box(0, 0, 400, 300)

anchors = st.lists(
    st.builds(
        Anchor,
        text=st.text("abcdefgh.0123", min_size=1, max_size=24),
        x_pt=st.floats(0, 400),
        y_pt=st.floats(0, 300),
        radius_pt=st.floats(2, 18),
    ),
    max_size=14,
)


@given(
    anchors,
    st.lists(
        st.builds(text_box, st.just("taken"), st.floats(0, 400), st.floats(0, 300), st.just(8.0)),
        max_size=4,
    ),
)
def test_labels_hide_nothing(points: list[Anchor], taken: list[Box]):
    placed = place_labels(points, frame=FRAME, size_pt=8, taken=taken)
    labels = [label for label in placed if label]
    assert len(placed) == len(points)
    for a, b in combinations(labels, 2):
        assert not a.box.overlaps(b.box)
    for label in labels:
        assert FRAME.holds(label.box)
        assert not any(label.box.overlaps(point.box) for point in points)
        assert not any(label.box.overlaps(box) for box in taken)
        if label.leader:
            others = [other.box for other in labels if other is not label]
            assert not any(label.leader.crosses(box) for box in [*others, *taken])


def test_a_lone_label_stands_right_of_its_mark_without_a_leader():
    point = Anchor(text="conv", x_pt=100, y_pt=100, radius_pt=5)
    (label,) = place_labels([point], frame=FRAME, size_pt=8)
    assert label is not None
    assert label.leader is None
    assert label.box.left == pytest.approx(100 + 5 + 2)
    assert (label.box.bottom + label.box.top) / 2 == pytest.approx(100)


def test_a_label_without_a_free_place_is_dropped():
    point = Anchor(text="conv", x_pt=100, y_pt=100, radius_pt=5)
    assert place_labels([point], frame=FRAME, size_pt=8, taken=[FRAME]) == (None,)


def test_a_label_moved_away_has_a_leader_from_its_mark():
    point = Anchor(text="conv", x_pt=200, y_pt=150, radius_pt=5)
    around = Box.around(200, 150, 30, 30)
    (label,) = place_labels([point], frame=FRAME, size_pt=8, marks=[around])
    assert label is not None
    assert label.leader is not None
    start = label.leader
    assert (start.x0 - 200) ** 2 + (start.y0 - 150) ** 2 == pytest.approx(25)


@given(st.lists(st.floats(-50, 500), max_size=30), st.floats(1, 20))
def test_spread_keeps_order_and_distance_within_limits(wanted: list[float], gap: float):
    places = spread(wanted, gap=gap, low=0, high=300)
    assert len(places) == len(wanted)
    fitting = min(gap, 300 / max(1, len(wanted) - 1))
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in places)
    assert all(b - a >= fitting - 1e-6 for a, b in pairwise(sorted(places)))
    for (a, b), (x, y) in zip(combinations(wanted, 2), combinations(places, 2), strict=True):
        assert a == b or (a < b) == (x < y)


def test_spread_leaves_alone_what_is_far_apart_and_centres_what_is_not():
    assert spread([10, 50, 90], gap=10, low=0, high=100) == (10, 50, 90)
    assert spread([50, 50], gap=10, low=0, high=100) == (45, 55)
    assert spread([0, 0, 1], gap=10, low=0, high=100) == (0, 10, 20)


def test_segments_cross_boxes_only_inside():
    box = Box(10, 10, 20, 20)
    assert Segment(0, 15, 30, 15).crosses(box)
    assert Segment(15, 0, 15, 30).crosses(box)
    assert Segment(12, 12, 13, 14).crosses(box)
    assert not Segment(0, 10, 30, 10).crosses(box)
    assert not Segment(0, 0, 9, 9).crosses(box)
    assert not Segment(0, 30, 30, 21).crosses(box)


def test_text_that_is_too_wide_is_cut_with_an_ellipsis():
    assert cut_to("short", 100, 8) == "short"
    cut = cut_to("much too long for this", 60, 8)
    assert cut.endswith("…")
    assert text_width_pt(cut, 8) <= 60
