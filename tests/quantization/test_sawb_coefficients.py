"""SAWB's coefficients: what the script derives, held against samples and against others' tables."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from roofline.errors import InputError
from roofline.quantization.quantizers import (
    COEFFICIENTS,
    R_SQUARED_AT_8_BITS,
    SAWB,
    MaxAbs,
    levels_of,
    sawb_coefficients,
    weight_quantizer,
)

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# The step of the best uniform quantizer for the normal distribution, by levels: J. Max,
# "Quantizing for minimum distortion" (IRE Transactions on Information Theory, 1960), table II.
MAX_1960 = {2: 1.596, 3: 1.224, 4: 0.9957, 8: 0.5860, 15: 0.3534, 16: 0.3352}

# IBM's coefficients (fms-model-optimizer 0.8.7).
IBM = {3: (2.6, 1.71), 4: (3.12, 2.064), 8: (7.509, 6.892), 15: (12.035, 12.03), 16: (12.68, 12.8)}

Draw = Callable[[np.random.Generator, int], np.ndarray]
DRAWS: dict[str, Draw] = {
    "normal(0, 1)": lambda rng, n: rng.normal(size=n),
    "uniform[-1, 1]": lambda rng, n: rng.uniform(-1, 1, n),
    "Laplace(0, 1)": lambda rng, n: rng.laplace(size=n),
    "logistic(0, 1)": lambda rng, n: rng.logistic(size=n),
    "triangular[-2, 0, 2]": lambda rng, n: rng.triangular(-2, 0, 2, n),
    "von Mises(0, 4)": lambda rng, n: rng.vonmises(0, 4, n),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "sawb_coefficients", BENCHMARKS / "sawb_coefficients.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def sampled_error(drawn: np.ndarray, levels: int, alpha: float) -> float:
    """The mean square distance to the nearest of the levels, each sample on its own."""
    grid = np.linspace(-alpha, alpha, levels)
    above = np.clip(np.searchsorted(grid, drawn), 1, levels - 1)
    nearest = np.minimum(np.abs(drawn - grid[above]), np.abs(drawn - grid[above - 1]))
    return float((nearest**2).mean())


def test_the_table_in_the_package_is_what_the_script_derives(script: ModuleType):
    assert set(COEFFICIENTS) == {2, *script.LEVELS}
    for levels in script.LEVELS:
        found, kept = script.derived(levels), COEFFICIENTS[levels]
        assert kept.c1 == round(found.c1, 4)
        assert kept.c2 == round(found.c2, 4)
        assert kept.r_squared == round(found.r_squared, 4)


def test_the_committed_table_is_what_the_script_prints(script: ModuleType):
    assert (BENCHMARKS / "sawb_coefficients.md").read_text() == script.table() + "\n"


@pytest.mark.parametrize(("levels", "step"), MAX_1960.items())
def test_the_best_for_normal_weights_is_that_of_max(script: ModuleType, levels: int, step: float):
    found = script.best(script.DISTRIBUTIONS[0], levels)
    assert found.alpha == pytest.approx(step * (levels - 1) / 2, rel=4e-4)


def test_the_moments_are_those_in_the_books(script: ModuleType):
    by_name = {each.name: each for each in script.DISTRIBUTIONS}
    for name, mean, square in (
        ("normal(0, 1)", (2 / np.pi) ** 0.5, 1),
        ("uniform[-1, 1]", 1 / 2, 1 / 3),
        ("Laplace(0, 1)", 1, 2),
        ("logistic(0, 1)", 2 * np.log(2), np.pi**2 / 3),
        ("triangular[-2, 0, 2]", 2 / 3, 2 / 3),
    ):
        assert script.moment(by_name[name], 0) == pytest.approx(1)
        assert script.moment(by_name[name], 1) == pytest.approx(mean)
        assert script.moment(by_name[name], 2) == pytest.approx(square)
    assert script.moment(by_name["von Mises(0, 4)"], 0) == pytest.approx(1)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("levels", [3, 4, 16])
def test_no_clipping_value_is_better_on_samples(script: ModuleType, name: str, levels: int):
    distribution = next(each for each in script.DISTRIBUTIONS if each.name == name)
    found = script.best(distribution, levels)
    drawn = DRAWS[name](np.random.default_rng(levels), 100_000)
    assert np.abs(drawn).mean() == pytest.approx(found.mean, rel=0.01)
    at_it = sampled_error(drawn, levels, found.alpha)
    assert at_it == pytest.approx(found.error, rel=0.05)
    others = [sampled_error(drawn, levels, found.alpha * f) for f in np.linspace(0.5, 1.5, 41)]
    assert at_it <= 1.01 * min(others)


@pytest.mark.parametrize("levels", [3, 4, 8, 15, 16, 256])
def test_the_line_is_the_least_squares_one_both_ways(script: ModuleType, levels: int):
    found = script.derived(levels)
    x = [each.root_mean_square / each.mean for each in found.points]
    y = [each.alpha / each.mean for each in found.points]
    slope, intercept = np.polyfit(x, y, 1)
    assert (found.c1, found.c2) == pytest.approx((slope, -intercept))
    slope, intercept = np.polyfit(y, x, 1)
    assert (found.other_c1, found.other_c2) == pytest.approx((1 / slope, intercept / slope))
    assert found.r_squared == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)


@pytest.mark.parametrize("levels", [2, 3, 4, 8, 15, 16, 256])
def test_no_best_clipping_value_is_below_the_mean_magnitude(script: ModuleType, levels: int):
    for each in script.DISTRIBUTIONS:
        found = script.best(each, levels)
        assert found.alpha >= found.mean * (1 - 1e-6)
        assert found.alpha < 0.99 * each.furthest
        # Of two levels, it is the best.
        assert levels > 2 or found.alpha == pytest.approx(found.mean, rel=1e-5)
    assert (COEFFICIENTS[2].c1, COEFFICIENTS[2].c2) == (0, -1)
    # Of uniform weights, L cells of width 2/L tile the range; their middles are the levels.
    found = script.best(script.DISTRIBUTIONS[1], levels)
    assert found.alpha == pytest.approx((levels - 1) / levels, abs=1e-6)
    assert found.error == pytest.approx((2 / levels) ** 2 / 12, rel=1e-6)


def test_four_levels_agree_with_what_is_published(script: ModuleType):
    """The paper prints 3.2 and 2.1; derivations by others gave 3.12–3.19 and 2.07–2.15."""
    found = script.derived(4)
    for c1, c2 in ((found.c1, found.c2), (found.other_c1, found.other_c2)):
        assert c1 == pytest.approx(3.2, rel=0.03)
        assert c2 == pytest.approx(2.1, rel=0.03)


@pytest.mark.parametrize(("levels", "published"), IBM.items())
def test_clipping_values_agree_with_those_of_ibms_coefficients(
    script: ModuleType, levels: int, published: tuple[float, float]
):
    """Both coefficients may move together: what counts is the α that they give."""
    for point in script.derived(levels).points:
        theirs = published[0] * point.root_mean_square - published[1] * point.mean
        kept = COEFFICIENTS[levels]
        ours = kept.c1 * point.root_mean_square - kept.c2 * point.mean
        assert ours == pytest.approx(theirs, rel=0.05)


def test_at_8_bits_the_fit_is_poor_and_it_is_not_offered(script: ModuleType):
    found = script.derived(256)
    assert round(found.r_squared, 2) == R_SQUARED_AT_8_BITS
    assert all(script.derived(levels).r_squared > 0.96 for levels in script.LEVELS)
    with pytest.raises(InputError, match=r"SAWB at 8 bits: not available.*R² 0\.93.*MaxAbs\(8\)"):
        sawb_coefficients(8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            ((bits,), rf"only 1 to 4 bits have coefficients; use MaxAbs\({bits}\)")
            for bits in (5, 6, 7, 9, 16)
        ),
        *(((bits,), "must be an integer from 1 to 16") for bits in (0, 17, 32, -1, True, 2.0, "2")),
        ((2, 15), "levels=15: SAWB at 2 bits has 3 or 4"),
        ((3, 7), "levels=7: SAWB at 3 bits has 8"),
        ((4, 3), "levels=3: SAWB at 4 bits has 15 or 16"),
    ],
)
def test_what_has_no_coefficients_is_said(given: tuple[Any, ...], said: str):
    with pytest.raises(InputError, match=said):
        sawb_coefficients(*given)


def test_levels_are_those_that_the_bits_can_name():
    assert [sawb_coefficients(bits).levels for bits in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert sawb_coefficients(2, 3).levels == 3
    assert sawb_coefficients(4, 15).levels == 15


def test_from_five_bits_on_a_code_is_given_up():
    assert [levels_of(bits) for bits in (1, 2, 4, 5, 8)] == [2, 4, 16, 31, 255]
    kinds = [type(weight_quantizer(bits, per_channel=False)) for bits in (1, 4, 5, 8)]
    assert kinds == [SAWB, SAWB, MaxAbs, MaxAbs]
