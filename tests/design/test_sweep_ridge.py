"""What is said of designs over the balance of machines."""

from __future__ import annotations

import json
from typing import Any

from roofline.core.blocks import View
from roofline.design.comparison.balance import balance_points, winner_at
from roofline.plots.figures import new_figure
from roofline.render.console import plain_text
from roofline.result import result_from_data
from tests.sweep_examples import FAR, NEAR, known, ridge


def test_who_leads_where_and_which_machines_are_there() -> None:
    found = ridge(NEAR, FAR)
    assert found.sentences == (
        "below 4.00 FLOP/B, b has the lowest minimum time, 1.0 to 4.0× shorter (near)",
        "above 4.00 FLOP/B, a has the lowest minimum time, 1.0 to 2.0× shorter (far)",
        "with all ceilings and caches, another design is lowest on far",
    )
    assert [winner_at(found, each) for each in (0.1, 3.9, 4.0, 9.0)] == [1, 1, 0, 0]


def test_without_a_crossing_there_is_one_sentence() -> None:
    found = ridge(by_balance=((8.0, 2.0),) * 4, crossings=(), reference=1)
    assert found.sentences == (
        "at every balance, b has the lowest minimum time, 4.0× shorter (no known machine)",
    )
    assert balance_points(found)[0].over(1) == (4.0, 1.0)


def test_rows_are_the_hypothetical_machines_then_the_known() -> None:
    found = ridge(NEAR, FAR)
    frame = found.to_frame()
    assert frame["over_reference"].tolist()[1::2] == [0.25, 0.5, 1.0, 2.0, 0.75, 0.5]
    assert frame["machine"].tolist()[8:] == ["near", "near", "far", "far"]
    data = json.loads(found.to_json())
    assert data["balance"]["crossings"] == [{"balance": 4.0, "before": 1, "after": 0}]
    assert result_from_data(data, file="r.json") == found
    assert list(frame["is_best"])[-1]


def test_a_design_that_does_not_fit_leads_on_no_known_machine() -> None:
    """b takes 2000 bytes: near has 1999, far exactly as many; nothing is known of open."""
    found = ridge(
        known("near", 3.0, (8.0, 6.0), capacity_bytes=1999),
        known("far", 40.0, (1.0, 0.5), has_caches=True, capacity_bytes=2000),
        known("open", 2.0, (8.0, 6.0)),
    )
    there = balance_points(found)[4:]
    assert [[cell.fits for cell in each.cells] for each in there] == [
        [True, False],
        [True, True],
        [None, None],
    ]
    assert [each.best for each in there] == [0, 1, 1]
    assert found.sentences[-1] == "b does not fit into memory on near (excluded there)"
    rows = [each for each in found.records() if each["machine"]]
    assert [(each["fits"], each["is_best"]) for each in rows] == [
        *((True, True), (False, False)),
        *((True, False), (True, True)),
        *((None, False), (None, True)),
    ]
    assert all(each["fits"] is None for each in found.records() if not each["machine"])
    text = plain_text(found.report(View(verbose=True)))
    assert "a, b!" in next(line for line in text.splitlines() if line.startswith("near "))
    assert text.count("memory capacity not known: open") == 1
    figure = new_figure(10, 7)
    found.draw(figure)
    marks: Any = figure.axes[0].collections
    crosses = [each for each in marks if len(each.get_paths()[0].vertices) == 4]
    assert [float(each.get_offsets()[0][0]) for each in crosses] == [3.0]


def test_where_nothing_fits_nothing_leads() -> None:
    found = ridge(known("small", 3.0, (8.0, 6.0), capacity_bytes=999))
    assert balance_points(found)[-1].best is None
    assert not any(each["is_best"] for each in found.records() if each["machine"])
    line = next(x for x in str(found).splitlines() if x.startswith("small "))
    assert "a!, b!" in line
