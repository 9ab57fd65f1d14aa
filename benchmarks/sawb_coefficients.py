"""SAWB's coefficients, derived: the best clipping values of six distributions, and a line through.

    python benchmarks/sawb_coefficients.py > benchmarks/sawb_coefficients.md

For weights of one distribution on levels equally spaced from -α to α, the mean square error is an
integral: over each level's cell, of (w - level)² times the density. It is computed by
Gauss-Legendre rules on smooth pieces, scanned over α, and the best α refined. Choi et al.
(SysML 2019) lay a line through the six points

    α/E|w| = c1 · √E[w²]/E|w| - c2,

so that two moments of a weight give its clipping value. Here the line is the least-squares one for
α; for comparison that for the other axis, which differs as far as the points lie off it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

LEVELS = (3, 4, 8, 15, 16)
"""Those that are tabled in roofline/quantization/quantizers.py."""

PUBLISHED = {
    # c1 and c2 of other sources, by levels.
    3: "2.6 / 1.71 (IBM)",
    4: "3.2 / 2.1 (the paper); 3.12 / 2.064, before 3.212 / 2.178 (IBM); 3.19 / 2.14 (others)",
    8: "7.509 / 6.892 (IBM); 7.40 / 6.66 (others)",
    15: "12.035 / 12.03 (IBM)",
    16: "12.68 / 12.80 (IBM); 11.86 / 11.68, 12.99 / 13.16 (others)",
    256: "31.76 / 35.04 (IBM); 32.27 / 35.46, 37.0 / 41.3, 31.25 / 33.9 (others)",
}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
SCANNED = 400
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A symmetric distribution by the density of its magnitudes, which ends at ``reach``.

    ``furthest`` is beyond every best clipping value that is looked for.
    """

    name: str
    density: Callable[[Floats], Floats]
    reach: float
    furthest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A distribution with its best clipping value, and the error there."""

    distribution: Distribution
    mean: float
    root_mean_square: float
    alpha: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """The line through six points: least squares for α, and for the other axis."""

    levels: int
    points: tuple[Point, ...]
    c1: float
    c2: float
    other_c1: float
    other_c2: float
    r_squared: float

    def alpha(self, point: Point) -> float:
        """What the line says for a distribution."""
        return self.c1 * point.root_mean_square - self.c2 * point.mean


DISTRIBUTIONS = (
    Distribution(
        name="normal(0, 1)",
        density=lambda w: np.sqrt(2 / np.pi) * np.exp(-w * w / 2),
        reach=14.0,
        furthest=6.0,
    ),
    Distribution(name="uniform[-1, 1]", density=np.ones_like, reach=1.0, furthest=1.2),
    Distribution(name="Laplace(0, 1)", density=lambda w: np.exp(-w), reach=60.0, furthest=14.0),
    Distribution(
        name="logistic(0, 1)",
        density=lambda w: 2 * np.exp(-w) / (1 + np.exp(-w)) ** 2,
        reach=60.0,
        furthest=14.0,
    ),
    Distribution(name="triangular[-2, 0, 2]", density=lambda w: 1 - w / 2, reach=2.0, furthest=2.4),
    Distribution(
        name="von Mises(0, 4)",
        density=lambda w: np.exp(4 * np.cos(w)) / (np.pi * np.i0(4.0)),
        reach=float(np.pi),
        furthest=3.6,
    ),
)


def integral(function: Callable[[Floats], Floats], edges: Floats) -> Floats:
    """The integrals of a smooth function between each edge and the next one."""
    half = np.diff(edges)[:, None] / 2
    middle = (edges[:-1] + edges[1:])[:, None] / 2
    return (function(middle + half * NODES) * WEIGHTS).sum(axis=1) * half[:, 0]


def moment(distribution: Distribution, power: int) -> float:
    """E|w|^power."""
    edges = np.linspace(0, distribution.reach, 61)
    return float(integral(lambda w: w**power * distribution.density(w), edges).sum())


def square_error(distribution: Distribution, levels: int, alpha: float) -> float:
    """The mean square error on so many levels from -α to α."""
    step = 2 * alpha / (levels - 1)
    # The magnitudes that are levels: a half step and whole ones above, or 0 and whole ones above.
    values = np.arange(1 - levels % 2, levels + 1, 2)[: (levels + 1) // 2] * (step / 2)
    reach = distribution.reach
    inner = np.minimum((values[:-1] + values[1:]) / 2, reach)
    outer = np.linspace(inner[-1] if len(inner) else 0.0, reach, 41)
    edges = np.concatenate([[0.0], inner[:-1], outer]) if len(inner) else outer
    owners = np.concatenate([values[:-1], np.repeat(values[-1], 40)])
    cells = owners[:, None]
    return float(integral(lambda w: (w - cells) ** 2 * distribution.density(w), edges).sum())


@cache
def best(distribution: Distribution, levels: int) -> Point:
    """The clipping value with the least mean square error: all are tried, then the best refined."""
    tried = np.linspace(0, distribution.furthest, SCANNED + 1)[1:]
    errors = [square_error(distribution, levels, float(alpha)) for alpha in tried]
    least = int(np.argmin(errors))
    low, high = float(tried[max(least - 1, 0)]), float(tried[min(least + 1, SCANNED - 1)])
    golden = (np.sqrt(5) - 1) / 2
    while high - low > 1e-8:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if square_error(distribution, levels, left) < square_error(distribution, levels, right):
            high = right
        else:
            low = left
    alpha = (low + high) / 2
    return Point(
        distribution=distribution,
        mean=moment(distribution, 1),
        root_mean_square=moment(distribution, 2) ** 0.5,
        alpha=alpha,
        error=square_error(distribution, levels, alpha),
    )


@cache
def derived(levels: int) -> Derivation:
    """The line through the best clipping values of the six distributions."""
    points = tuple(best(each, levels) for each in DISTRIBUTIONS)
    x = np.array([each.root_mean_square / each.mean for each in points])
    y = np.array([each.alpha / each.mean for each in points])
    from_x, from_y = x - x.mean(), y - y.mean()
    together = (from_x * from_y).sum()
    slope, other = together / (from_x**2).sum(), (from_y**2).sum() / together
    return Derivation(
        levels=levels,
        points=points,
        c1=float(slope),
        c2=float(slope * x.mean() - y.mean()),
        other_c1=float(other),
        other_c2=float(other * x.mean() - y.mean()),
        r_squared=float(slope / other),
    )


def table() -> str:
    """All of it, as Markdown."""
    found = [derived(levels) for levels in (*LEVELS, 256)]
    names = [each.distribution.name for each in found[0].points]
    lines = [
        "# SAWB's coefficients, derived",
        "",
        "Weights on equally spaced levels from -α to α are clipped at α* = c1·√E[w²] - c2·E|w|.",
        "For each of six distributions the α with the least mean square error was computed",
        "(integrals, no samples); c1 and c2 are the least-squares line through the six points",
        "(√E[w²]/E|w|, α/E|w|). SAWB in `roofline.quantization` uses them for 3, 4, 8, 15 and 16",
        "levels; of 2 levels α = E|w| is exactly the best. *The other way*: the line that is",
        "least-squares for the other axis; it is the farther from the first, the worse the fit is.",
        "",
        "Rerun: `python benchmarks/sawb_coefficients.py > benchmarks/sawb_coefficients.md`",
        "",
        "| levels | c1 / c2 | the other way | R² | published |",
        "|---:|---:|---:|---:|:---|",
    ]
    lines += [
        f"| {each.levels} | {each.c1:.4f} / {each.c2:.4f} |"
        f" {each.other_c1:.4f} / {each.other_c2:.4f} | {each.r_squared:.4f} |"
        f" {PUBLISHED[each.levels]} |"
        for each in found
    ]
    lines += [
        "",
        "## Best clipping value over mean magnitude, α/E|w|",
        "",
        f"| levels | {' | '.join(names)} |",
        f"|---:|{'---:|' * len(names)}",
    ]
    lines += [
        f"| {each.levels} | {' | '.join(f'{p.alpha / p.mean:.4f}' for p in each.points)} |"
        for each in found
    ]
    lines += [
        "",
        "## What the line costs: its square error over the least one",
        "",
        f"| levels | {' | '.join(names)} | clips uniform weights at |",
        f"|---:|{'---:|' * (len(names) + 1)}",
    ]
    for each in found:
        costs = [
            square_error(point.distribution, each.levels, each.alpha(point)) / point.error
            for point in each.points
        ]
        box = each.points[names.index("uniform[-1, 1]")]
        lines.append(
            f"| {each.levels} | {' | '.join(f'{cost:.3f}' for cost in costs)} |"
            f" {each.alpha(box):.0%} of their range |"
        )
    lines += [
        "",
        "At 8 bits (256 levels) the line is wrong by much where the tails are short, so SAWB is",
        "not offered there: weights of more than 4 bits go by their largest magnitude.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
