"""What is said of designs over the balance of machines."""

from __future__ import annotations

import json

from roofline.design.sweeps.ridge import Crossing, KnownMachine, RidgeSweep
from tests.sweep_examples import machine


def ridge(**changes: object) -> RidgeSweep:
    """a takes 8 s everywhere; b 2 s per FLOP/byte, so that they cross at 4."""
    values: dict[str, object] = {
        "designs": ("a", "b"),
        "base": machine(),
        "threads": 1,
        "dtype": "float32",
        "balances": (1.0, 2.0, 4.0, 8.0),
        "bound_s": ((8.0, 2.0), (8.0, 4.0), (8.0, 8.0), (8.0, 16.0)),
        "crossings": (Crossing(balance=4.0, before=1, after=0),),
        "machines": (
            KnownMachine(name="near", balance=3.0, bound_s=(8.0, 6.0), has_caches=False),
            KnownMachine(name="far", balance=40.0, bound_s=(1.0, 0.5), has_caches=True),
        ),
        **changes,
    }
    return RidgeSweep(**values)  # pyright: ignore[reportArgumentType]


def test_who_leads_where_and_which_machines_are_there() -> None:
    assert ridge().sentences == (
        "below 4.00 FLOP/byte, b has the lowest bound, 1.0 to 4.0 × lower (near)",
        "above 4.00 FLOP/byte, a has the lowest bound, 1.0 to 2.0 × lower (far)",
        "with its own ceilings and caches, another design leads on far",
    )
    assert [ridge().winner_at(each) for each in (0.1, 3.9, 4.0, 9.0)] == [1, 1, 0, 0]


def test_without_a_crossing_there_is_one_sentence() -> None:
    found = ridge(
        bound_s=((8.0, 2.0),) * 4, crossings=(), machines=(), designs=("a", "b"), reference=1
    )
    assert found.sentences == (
        "at every balance, b has the lowest bound, 4.0 × lower (no known machine)",
    )
    assert found.ratios[0] == (4.0, 1.0)


def test_rows_are_the_hypothetical_machines_then_the_known() -> None:
    frame = ridge().to_frame()
    assert frame["over_reference"].tolist()[1::2] == [0.25, 0.5, 1.0, 2.0, 0.75, 0.5]
    assert frame["machine"].tolist()[8:] == ["near", "near", "far", "far"]
    data = json.loads(ridge().to_json())
    assert data["crossings"] == [{"balance_flop_per_byte": 4.0, "before": "b", "after": "a"}]
    assert data["rows"][-1]["is_best"] is True
