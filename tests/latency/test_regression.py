"""Gaussian process regression, held against a dense solve that is written out here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.latency.learning import Covariance, GaussianProcess

KERNEL = Covariance(
    scales=(2.0, 5.0), label_distances=(3.0, 0.5), amplitude=0.7, slope=0.3, offset=1.1, noise=0.2
)


def covariance(
    kernel: Covariance,
    left: tuple[list[float], list[int]],
    right: tuple[list[float], list[int]],
    middle: list[float],
) -> float:
    """Matérn 3/2 and a linear trend, as Rasmussen and Williams have them, element by element."""
    squared = sum(
        ((a - b) / s) ** 2 for a, b, s in zip(left[0], right[0], kernel.scales, strict=True)
    )
    squared += sum(
        d for a, b, d in zip(left[1], right[1], kernel.label_distances, strict=True) if a != b
    )
    r = math.sqrt(3 * squared)
    trend = sum(
        (a / s - m) * (b / s - m)
        for a, b, s, m in zip(left[0], right[0], kernel.scales, middle, strict=True)
    )
    return kernel.amplitude**2 * (1 + r) * math.exp(-r) + kernel.slope**2 * trend + kernel.offset**2


def dense(
    kernel: Covariance,
    known: list[tuple[list[float], list[int]]],
    values: list[float],
    noise: list[float],
    asked: tuple[list[float], list[int]],
    *,
    middle: list[float],
    mean: float,
) -> tuple[float, float]:
    """Mean and deviation of a new measurement, from equations that are solved as they are."""
    matrix = np.array([[covariance(kernel, a, b, middle) for b in known] for a in known])
    matrix += np.diag(noise)
    cross = np.array([covariance(kernel, asked, each, middle) for each in known])
    solved = np.linalg.solve(matrix, np.array(values) - mean)
    explained = cross @ np.linalg.solve(matrix, cross)
    prior = covariance(kernel, asked, asked, middle)
    return mean + float(cross @ solved), math.sqrt(prior - explained + kernel.noise**2)


def samples(seed: int, count: int) -> tuple[list[tuple[list[float], list[int]]], list[float]]:
    draw = np.random.default_rng(seed)
    known = [
        (
            [float(draw.uniform(0, 20)), float(draw.uniform(-5, 5))],
            [int(draw.integers(3)), int(draw.integers(2))],
        )
        for _ in range(count)
    ]
    return known, [float(draw.normal(2.0, 1.0)) for _ in range(count)]


def process(
    known: list[tuple[list[float], list[int]]],
    values: list[float],
    kernel: Covariance = KERNEL,
) -> GaussianProcess:
    return GaussianProcess(
        kernel,
        np.array([each for each, _ in known]),
        np.array([each for _, each in known]),
        np.array(values),
    )


def middle_of(
    known: list[tuple[list[float], list[int]]], kernel: Covariance = KERNEL
) -> list[float]:
    return [
        sum(each[0][place] / scale for each in known) / len(known)
        for place, scale in enumerate(kernel.scales)
    ]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 12))
def test_predictions_are_those_of_a_dense_solve(seed: int, count: int) -> None:
    known, values = samples(seed, count)
    asked, _ = samples(seed + 1, 3)
    mean, deviation, nearest = process(known, values).predict(
        np.array([each for each, _ in asked]), np.array([each for _, each in asked])
    )
    for place, each in enumerate(asked):
        expected = dense(
            KERNEL,
            known,
            values,
            [KERNEL.noise**2] * count,
            each,
            middle=middle_of(known),
            mean=float(np.median(values)),
        )
        assert (mean[place], deviation[place]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        apart = [
            math.sqrt(
                sum(
                    ((a - b) / s) ** 2
                    for a, b, s in zip(each[0], other[0], KERNEL.scales, strict=True)
                )
                + sum(
                    d
                    for a, b, d in zip(each[1], other[1], KERNEL.label_distances, strict=True)
                    if a != b
                )
            )
            for other in known
        ]
        assert apart[nearest[place]] == pytest.approx(min(apart), abs=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 14), families=st.integers(2, 5))
def test_what_is_left_out_is_as_if_it_had_never_been_there(
    seed: int, count: int, families: int
) -> None:
    known, values = samples(seed, count)
    groups = [f"family {place % families}" for place in range(count)]
    mean, deviation = process(known, values).leave_one_out(groups)
    for place, each in enumerate(known):
        kept = [other for other in range(count) if groups[other] != groups[place]]
        expected = dense(
            KERNEL,
            [known[other] for other in kept],
            [values[other] for other in kept],
            [KERNEL.noise**2] * len(kept),
            each,
            # What the trend turns around, and the mean, are of all samples.
            middle=middle_of(known),
            mean=float(np.median(values)),
        )
        assert (mean[place], deviation[place]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("noise", [1e-1, 1e-2, 1e-3])
def test_it_goes_through_its_samples_as_their_noise_goes(noise: float) -> None:
    kernel = Covariance(
        scales=(2.0, 5.0),
        label_distances=(3.0, 0.5),
        amplitude=0.7,
        slope=0.3,
        offset=1.1,
        noise=noise,
    )
    known, values = samples(3, 10)
    mean, deviation, nearest = process(known, values, kernel).predict(
        np.array([each for each, _ in known]), np.array([each for _, each in known])
    )
    assert np.abs(mean - values).max() < 30 * noise
    assert (deviation < 2 * noise + 1e-3).all()
    assert list(nearest) == list(range(10))


def test_one_sample_is_enough_and_far_away_nothing_but_the_prior_is_known() -> None:
    one = process([([1.0, 2.0], [0, 0])], [5.0])
    mean, deviation, _ = one.predict(
        np.array([[1.0, 2.0], [1000.0, 2.0]]), np.array([[0, 0], [0, 0]])
    )
    # Its own value is the mean that all others are taken to vary around.
    assert mean == pytest.approx([5.0, 5.0])
    # The trend alone: slope times 999 over the scale of 2.
    assert deviation[1] > 0.99 * 0.3 * 999 / 2
    assert deviation[0] == pytest.approx(0.2 * math.sqrt(2), rel=0.05)


def test_a_label_that_was_never_seen_is_unlike_all() -> None:
    known, values = samples(7, 8)
    asked = np.array([known[0][0]] * 2)
    _, deviation, _ = process(known, values).predict(
        asked, np.array([known[0][1], [99, known[0][1][1]]])
    )
    assert deviation[1] > deviation[0]


def test_samples_that_are_the_same_do_not_upset_it() -> None:
    known = [([1.0, 2.0], [0, 0])] * 50
    kernel = Covariance(
        scales=(2.0, 5.0),
        label_distances=(3.0, 0.5),
        amplitude=0.7,
        slope=0.3,
        offset=1.1,
        noise=0.0,
    )
    mean, deviation, _ = process(known, [4.0] * 50, kernel).predict(
        np.array([[1.0, 2.0]]), np.array([[0, 0]])
    )
    assert mean[0] == pytest.approx(4.0, abs=1e-6)
    assert 0 <= deviation[0] < 1e-3
