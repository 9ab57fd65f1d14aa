"""Who changes sides, and where: on numbers that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import roofline
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError
from roofline.machine.catalog import load_hardware
from roofline.placement import Bound
from tests.analysis.examples import Network, analysis_of, ceiling, sheet
from tests.analysis.predictions import with_predictions
from tests.design.machine_comparisons import (
    NARROW,
    WIDE,
    compare,
    comparisons,
    pair,
    three_operators,
)

COMPARISONS = comparisons()


def test_one_operator_is_compute_bound_here_and_memory_bound_there() -> None:
    """5 FLOP/byte: left of the ridge at 10, right of the ridge at 1."""
    comparison = pair()
    found = {
        across[0].module_path: [row.bound for row in across] for across in comparison.operators
    }
    assert found == {
        "low": [Bound.MEMORY, Bound.MEMORY],
        "middle": [Bound.MEMORY, Bound.COMPUTE],
        "high": [Bound.COMPUTE, Bound.COMPUTE],
        "copy": [Bound.MEMORY, Bound.MEMORY],
    }
    assert comparison.changing_rows() == (False, True, False, False)


def test_the_verdict_on_two_machines_names_them() -> None:
    """800 bytes at 10 GB/s are 80 ns, at 100 GB/s 8 ns; 80000 FLOP at 100 GFLOP/s are 800 ns.

    Narrow: 80 + 80 + 800 + 80 ns. Wide: 8 + 40 + 800 + 8 ns, the middle one at its 4000 FLOP.
    """
    verdict, times, _ = pair().sentences
    assert verdict == "1 of 4 operators is compute-bound on wide and memory-bound on narrow"
    assert times == (
        f"minimum time (eager) 856 ns on wide (lowest), {1040 / 856:.3g}× longer on narrow"
    )


def test_the_summary_of_each_machine_by_hand() -> None:
    narrow, wide = pair().machines
    assert narrow.eager_min_time_s == pytest.approx(1040e-9)
    assert narrow.compute_share == pytest.approx(800 / 1040)
    assert narrow.memory_share == pytest.approx(240 / 1040)
    assert narrow.ridge_flop_per_byte == pytest.approx(10)
    assert wide.eager_min_time_s == pytest.approx(856e-9)
    assert wide.compute_share == pytest.approx(840 / 856)
    assert wide.ridge_flop_per_byte == pytest.approx(1)
    assert (wide.compute and wide.compute.flop_per_s) == 100e9
    assert (wide.memory and wide.memory.bytes_per_s) == 100e9


def test_both_ways_are_said() -> None:
    """Each of the machines has the higher ridge in one of two data types."""
    net = three_operators()
    x = net.tensor(50, of="float64")
    net.call("aten.work", "pointwise", "double", (x,), net.tensor(50, of="float64"), flop=4_000)
    # 4000 FLOP over 800 bytes are 5 FLOP/byte, in float64: ridges at 1 (narrow) and 10 (wide).
    narrow = replace(NARROW, compute=(*NARROW.compute, ceiling(10e9, of="float64", threads=4)))
    wide = replace(WIDE, compute=(*WIDE.compute, ceiling(1000e9, of="float64", threads=4)))
    verdict = compare(net, [narrow, wide]).sentences[0]
    assert verdict == (
        "1 of 5 operators is compute-bound on narrow and memory-bound on wide, 1 vice versa"
    )


def test_many_machines_name_the_pair_that_differs_most() -> None:
    """Ridges at 10, 1 and 0.01: with the third machine, the low one changes sides as well."""
    third = sheet("third", 1e9, 100e9)
    verdict, farthest, *_ = compare(three_operators(), [NARROW, WIDE, third]).sentences
    assert verdict == ("2 of 4 operators change their limiter between 3 machines")
    assert farthest == ("largest contrast: 2 are compute-bound on third and memory-bound on narrow")


def test_nobody_changes_sides_is_said_too() -> None:
    twin = replace(NARROW, name="twin", description="another")
    assert compare(three_operators(), [NARROW, twin]).sentences[0] == (
        "4 operators with the same limiter on both machines: 1 compute-bound, 3 memory-bound"
    )


def test_a_side_that_is_unknown_is_said_to_be() -> None:
    assert COMPARISONS["none has ceilings"].sentences[0] == (
        "4 operators with the same limiter on both machines: 0 compute-bound, 0 memory-bound,"
        " 4 with an unknown limiter"
    )


def test_the_side_of_a_group_is_where_most_of_its_time_goes() -> None:
    comparison = pair()
    (group,) = comparison.groups(lambda across: across[0].type == "none of them")
    narrow, wide = group.sides
    assert (narrow.bound, narrow.is_sole) == (Bound.COMPUTE, False)
    assert (wide.bound, wide.is_sole) == (Bound.COMPUTE, False)
    assert group.eager_min_time_s == pytest.approx((1040e-9, 856e-9))
    assert group.shares == pytest.approx((1, 1))
    assert not group.changes_sides


def test_groups_come_by_their_largest_share_of_any_machine() -> None:
    shares = [each.largest_share for each in pair().groups(lambda across: across[0].index)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(800 / 856)
    # The middle one takes 80 of 1040 ns on the narrow machine, and 40 of 856 ns on the wide one.
    assert shares[1] == pytest.approx(80 / 1040)


def test_unknown_flop_is_on_no_side() -> None:
    net = three_operators()
    net.call("custom.odd", "unknown", "odd", (net.tensor(9),), net.tensor(9), flop=None)
    comparison = compare(net, [NARROW, WIDE])
    assert comparison.changing_rows()[-1] is False
    (odd,) = [
        each
        for each in comparison.groups(lambda across: across[0].op)
        if each.operators[0][0].op == "custom.odd"
    ]
    assert [side.bound for side in odd.sides] == [Bound.UNKNOWN, Bound.UNKNOWN]


def test_a_machine_without_ceilings_has_no_bound_and_the_others_do() -> None:
    comparison = COMPARISONS["one without ceilings"]
    assert [each.eager_min_time_s is None for each in comparison.machines] == [False, True]
    assert comparison.machines[1].compute_share is None
    _, unknown, alone, neither = comparison.sentences
    assert unknown == "minimum time unknown on bare (no ceilings)"
    assert alone.startswith("bound only on narrow: no calibration")
    assert neither.startswith("no ceilings and no prediction on bare: no calibration")


def test_predictions_stand_where_there_are_some() -> None:
    """2 + 3 + 4 + 1 seconds and 1 between them, -10 to +20 %."""
    comparison = COMPARISONS["predicted on one"]
    narrow, wide = comparison.machines
    assert (narrow.predicted_s, narrow.interval_s, narrow.measured_s) == (None, None, None)
    assert wide.predicted_s == 11.0
    assert wide.interval_s == pytest.approx((9.9, 13.2))
    assert comparison.sentences[2:] == (
        "predicted on wide: 11 s (9.9 s to 13 s)",
        "bound only on narrow: no calibration data of this machine",
    )
    work, copy = comparison.groups(lambda across: across[0].op)
    assert work.predicted_s == (None, 9.0)
    assert copy.predicted_s == (None, 1.0)


def test_a_group_with_an_operator_that_is_not_predicted_has_no_prediction() -> None:
    narrow, wide = pair().analyses
    partly = with_predictions(wide, {"low": 2.0, "high": 4.0, "copy": 1.0})
    comparison = Comparison.of_machines([narrow, partly])
    work, copy = comparison.groups(lambda across: across[0].op)
    assert (work.predicted_s, copy.predicted_s) == ((None, None), (None, 1.0))
    assert comparison.machines[1].predicted_s is None
    assert comparison.sentences[-1] == (
        "bound only on wide: 1 of 4 operators outside the calibration data"
    )


def test_machines_for_other_devices_are_told_apart_from_those_not_calibrated() -> None:
    gpu = load_hardware("v100")
    *_, here, there = compare(three_operators(), [NARROW, gpu]).sentences
    assert here.startswith("bound only on narrow: no calibration")
    assert there == "bound only on v100: operators for cpu are not predicted on cuda"


def test_a_data_type_without_a_ceiling_has_no_peak() -> None:
    """float64 does not convert to float32, and the machine knows only that."""
    net = Network()
    x = net.tensor(100, of="float64")
    net.call("aten.work", "pointwise", "", (x,), net.tensor(100, of="float64"), flop=100)
    assert [each.compute for each in compare(net, [NARROW, WIDE]).machines] == [None, None]


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_frame_has_one_row_an_operator_and_machine(name: str) -> None:
    comparison = COMPARISONS[name]
    frame = comparison.to_frame()
    assert len(frame) == sum(len(each.operators) for each in comparison.analyses)
    changing = comparison.changing_rows()
    assert list(frame["changes_sides"]) == list(changing) * len(comparison.machine_names)
    for machine, summary in zip(comparison.machine_names, comparison.machines, strict=True):
        part = frame[frame["machine"] == machine]
        if summary.eager_min_time_s is not None:
            assert float(part["eager_min_time_s"].sum()) == pytest.approx(summary.eager_min_time_s)


def test_machines_of_one_name_are_told_apart() -> None:
    comparison = compare(three_operators(), [NARROW, replace(WIDE, name="narrow")])
    assert comparison.machine_names == ("narrow (1)", "narrow (2)")


def test_what_cannot_be_compared_is_refused() -> None:
    one, other = analysis_of(three_operators(), NARROW), analysis_of(Network(), WIDE)
    with pytest.raises(InputError, match="requires at least two"):
        Comparison.of_machines([one])
    with pytest.raises(InputError, match="duplicate machine 'narrow'"):
        Comparison.of_machines([one, one])
    with pytest.raises(InputError, match="use one model with one input for all machines"):
        Comparison.of_machines([one, other])
    with pytest.raises(InputError, match="use one model"):
        Comparison.of_machines([one, replace(one, cache="cold", hardware=WIDE)])


def test_one_machine_with_two_numbers_of_threads_is_two() -> None:
    one = analysis_of(three_operators(), NARROW, threads=1)
    four = analysis_of(three_operators(), NARROW, threads=4)
    assert [each.threads for each in Comparison.of_machines([one, four]).machines] == [1, 4]


@pytest.mark.parametrize("hardware", [None, "h100", {"h100", "v100"}])
def test_several_machines_are_a_list(hardware: Any) -> None:
    with pytest.raises(InputError, match="expected a list of at least two machines"):
        roofline.compare_machines("resnet18", hardware=hardware)


@pytest.mark.parametrize("option", ["batch", "seq", "threads"])
def test_true_is_no_number(option: str) -> None:
    with pytest.raises(InputError, match=f"{option}=True: must be a whole number from 1"):
        options: dict[str, Any] = {option: True}
        roofline.analyze("resnet18", hardware="10980xe", **options)
