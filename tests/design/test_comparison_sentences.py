"""The sentence a person needs: FLOP, time, and the part that keeps the one from being the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline.analysis import Analysis
from roofline.design.comparison.differences import leading_part, parts_of
from roofline.design.comparison.models import provenance
from roofline.design.comparison.ratios import MeasuredRounds, RoundTime
from roofline.design.comparison.result import Comparison
from roofline.latency.prediction import RunPrediction
from roofline.workload.tensors import Role
from tests.analysis.examples import Network, analysis_of, dram_profile


def predicted(net: Network, seconds: list[float], between_s: float = 0.0) -> Analysis:
    """What `net` recorded, each operator predicted to take so long, ±0 %."""
    found = analysis_of(net, dram_profile())
    rows = tuple(
        replace(row, predicted_s=time_s, predicted_low_s=time_s, predicted_high_s=time_s)
        for row, time_s in zip(found.operators, seconds, strict=True)
    )
    whole_s = sum(seconds) + between_s
    return replace(
        found,
        operators=rows,
        prediction=RunPrediction(
            predicted_s=whole_s,
            low_s=0.9 * whole_s,
            high_s=1.1 * whole_s,
            operators_s=sum(seconds),
            overhead_s=between_s,
            calibration="",
        ),
    )


def network(*calls: tuple[str, int]) -> Network:
    """Operators of these types and FLOP over 1000 floats that stay, and 1000 that are made.

    DRAM gives 10 GB/s: 8000 bytes take 0.8 µs. 100 GFLOP/s: a million FLOP take 10 µs.
    """
    net = Network()
    x = net.tensor(1, 1000, role=Role.INPUT)
    for number, (kind, flop) in enumerate(calls):
        net.call(
            f"aten.{kind.split()[-1]}", kind, f"m{number}", (x,), net.tensor(1, 1000), flop=flop
        )
    return net


def standard() -> Analysis:
    """8 million FLOP in 160 µs: its bound is 80 µs."""
    return predicted(network(("convolution", 8_000_000)), [160e-6])


def separable() -> Analysis:
    """A million FLOP in 40 µs, 24 of them in three depthwise convolutions."""
    depthwise = ("depthwise convolution", 4_000)
    calls = (depthwise, depthwise, depthwise, ("convolution", 988_000))
    return predicted(network(*calls), [1e-6, 1e-6, 22e-6, 12e-6], between_s=4e-6)


def sentence(first: Analysis, second: Analysis, **options: object) -> str:
    (found,) = Comparison.of([first, second], names=["a", "b"], **options).sentences  # pyright: ignore[reportArgumentType]
    return found


def test_parts_add_up_to_the_pass() -> None:
    parts = parts_of(separable(), "predicted")
    assert [(each.type, each.calls) for each in parts] == [
        ("depthwise convolution", 3),
        ("convolution", 1),
        ("", 0),
    ]
    assert [each.share for each in parts] == pytest.approx([24 / 40, 12 / 40, 4 / 40])
    assert sum(each.time_s for each in parts) == pytest.approx(40e-6)


def test_the_part_that_flop_do_not_explain() -> None:
    """Of 160 µs for 8 million FLOP, a million would take 20: the convolution takes 8 less than
    that, the depthwise ones 24 more, what runs between 4."""
    part = leading_part(separable(), "predicted", standard())
    assert part is not None
    assert part.type == "depthwise convolution"
    assert sentence(standard(), separable()) == (
        "b vs a: 8× fewer FLOP, 4.0× faster on sheet (predicted, 80 % interval 3.5 to 4.6);"
        " 3 depthwise convolutions: 60 % of its predicted time, at 10 % of DRAM"
    )


def test_seen_from_the_faster_one_it_is_the_same_part() -> None:
    words = sentence(standard(), separable(), reference=1)
    assert words == (
        "a vs b: 8× more FLOP, 4.0× slower on sheet (predicted, 80 % interval 3.5 to 4.6);"
        " 3 depthwise convolutions: 60 % of the predicted time of b, at 10 % of DRAM"
    )


def test_fewer_flop_and_slower_all_the_same() -> None:
    slow = predicted(network(("depthwise convolution", 1_000_000)), [320e-6])
    assert "8× fewer FLOP, but 2.0× slower on sheet" in sentence(standard(), slow)


def test_what_is_near_its_roof_is_bound_by_it() -> None:
    """8000 bytes at 10 GB/s take 0.8 µs, of 1."""
    light = predicted(network(("pointwise", 1_000)), [1e-6])
    words = sentence(standard(), light)
    assert words.endswith("; pointwise operator: 100 % of its predicted time, limited by DRAM")


def test_what_runs_between_operators_is_a_part() -> None:
    idle = predicted(network(("convolution", 1_000_000)), [20e-6], between_s=60e-6)
    assert sentence(standard(), idle).endswith(
        "; overhead between operators: 75 % of its predicted time"
    )


def test_measurements_in_turn_come_first() -> None:
    def time(time_s: float) -> RoundTime:
        return RoundTime(times_s=(time_s,) * 3)

    rounds = MeasuredRounds(
        rounds=tuple((time(3.0), time(each)) for each in (1.0, 1.0, 1.5)),
        date="2026-03-04",
        allocator="default",
    )
    comparison = Comparison.of([standard(), separable()], names=["a", "b"], rounds=rounds)
    # 3, 3 and 2 times as fast: of a third, a third and a half, nine tenths are below 0.467.
    assert (
        "3.0× faster on sheet (measured, 3 rounds: 2.1 to 3.0), 4.0× faster (predicted,"
        in comparison.sentences[0]
    )
    assert comparison.quantity("measured_s").values == (3.0, 1.0)
    (said,) = [each for each in provenance(comparison) if "measured interleaved" in each]
    assert said.startswith("measured interleaved on 2026-03-04: 3 rounds")
    assert "each in a fresh process (allocator: default)" in said


def in_turn(*pairs: tuple[float, float]) -> MeasuredRounds:
    """Rounds of two models that took so many seconds each."""
    return MeasuredRounds(
        rounds=tuple(tuple(RoundTime(times_s=(each,) * 3) for each in pair) for pair in pairs)
    )


def test_where_measurement_and_prediction_disagree_there_is_no_reason() -> None:
    """Predicted to be 4 times as fast, b takes longer."""
    rounds = in_turn((2.0, 3.0), (2.0, 3.0))
    words = sentence(standard(), separable(), rounds=rounds)
    assert "8× fewer FLOP, but 1.5" in words and "× slower on sheet (measured, 2 rounds" in words
    assert words.endswith("; prediction and measurement disagree")
    seen = sentence(standard(), separable(), rounds=rounds, reference=1)
    assert seen.endswith("; prediction and measurement disagree")


def test_a_reason_that_the_measurement_does_not_bear_out_is_not_given() -> None:
    """b does fewer FLOP in a second as predicted, and more (an eighth of them in a tenth of the
    time) as measured; where rounds leave that open, its longest part is told."""
    against = sentence(standard(), separable(), rounds=in_turn((10.0, 1.0), (10.0, 1.0)))
    assert against.endswith(")") and "4.0× faster (predicted," in against
    open_words = sentence(standard(), separable(), rounds=in_turn((10.0, 1.0), (6.0, 1.0)))
    assert "; 3 depthwise convolutions: 60 % of its predicted time" in open_words
    borne_out = sentence(standard(), separable(), rounds=in_turn((3.0, 1.0), (3.0, 1.0)))
    assert "; 3 depthwise convolutions: 60 % of its predicted time" in borne_out


def test_bounds_alone_are_bounds() -> None:
    """80 µs against 10.68: 9.88 for the convolution, 0.8 for the bytes of the depthwise one."""
    bare = [replace(each, operators=tuple(replace(row, predicted_s=None, predicted_low_s=None,
            predicted_high_s=None) for row in each.operators), prediction=None)
            for each in (standard(), analysis_of(network(("depthwise convolution", 12_000),
            ("convolution", 988_000)), dram_profile()))]  # fmt: skip
    assert sentence(*bare).startswith(
        "b vs a: 8× fewer FLOP, 7.49× shorter minimum time on sheet (measured ratios can differ);"
    )


def test_unknown_flop_gives_no_reason_by_flop() -> None:
    net = network(("convolution", 8_000_000))
    x = net.tensor(1, 10)
    net.call("custom.odd", "unknown", "odd", (x,), net.tensor(1, 10), flop=None)
    odd = predicted(net, [10e-6, 30e-6])
    words = sentence(standard(), odd)
    assert words.startswith("b vs a: FLOP unknown, 4.0× faster on sheet (predicted,")
    assert "; unknown operator: 75 % of its predicted time" in words
