"""The page's numbers say what `core.units` says, in a real browser."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from importlib import resources
from typing import Any

from roofline.core.sampling import interval_cell, median_cell
from roofline.core.units import (
    format_bytes,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from tests.render.chromium import Browser

SCRIPT = (
    resources.files("roofline.render")
    .joinpath("page")
    .joinpath("script", "numbers.js")
    .read_text(encoding="utf-8")
)

FORMATS: dict[str, Callable[..., str]] = {
    "formatFlop": format_flop,
    "formatByte": format_bytes,
    "formatFlopRate": format_flop_per_s,
    "formatByteRate": format_bytes_per_s,
    "formatIntensity": format_intensity,
    "formatS": format_s,
    "formatPercent": format_percent,
}


def values() -> list[float]:
    """Numbers of all sizes: drawn, just under a prefix, exactly between two that are printed."""
    draw = random.Random(7)
    found = [0.0, 1.0, 999.0, 999.4999, 999.5, 999.6, 1e3, 999_500.0, 999_499.0, 1e15, 3e18, 1e-12]
    found += [10 ** draw.uniform(-12, 17) for _ in range(1500)]
    # Sums of powers of two end exactly where a digit would have to be rounded.
    found += [n / 8 for n in range(1, 2000, 7)] + [n / 2 for n in range(1, 3000, 11)]
    found += [n * 2.0**-20 for n in range(1, 4000, 13)]
    found += [1000.0 * n + 500 for n in range(1, 300)]
    found += [draw.random() for _ in range(500)] + [1.125, 1.005, 2.5, 0.125, 0.9995, 0.99949]
    found += [float(draw.randrange(10 ** draw.randrange(1, 16))) for _ in range(500)]
    return found


def said(browser: Browser, name: str, arguments: list[Any]) -> list[str]:
    """What a function of the page says of each list of arguments."""
    return browser.run(
        f"{SCRIPT}; return JSON.parse(arguments[0]).map((each) => {name}(...each))",
        json.dumps(arguments),
    )


def test_every_format_says_the_same(browser: Browser) -> None:
    browser.open("<!doctype html><title>numbers</title>")
    for name, form in FORMATS.items():
        given = values()
        found = said(browser, name, [[each] for each in given])
        assert dict(zip(given, found, strict=True)) == {each: form(each) for each in given}
        assert said(browser, name, [[None]]) == [form(None)]


def test_times_with_a_spread_say_the_same(browser: Browser) -> None:
    browser.open("<!doctype html><title>numbers</title>")
    draw = random.Random(3)
    intervals: list[tuple[float | None, float | None, float | None]] = [
        (None, None, None),
        (0.0, 0.0, 0.0),
        (1e-3, None, None),
    ]
    for _ in range(1500):
        middle = 10 ** draw.uniform(-8, 2)
        width = 10 ** draw.uniform(-4, 0)
        intervals.append((middle, middle * (1 - width / 2), middle * (1 + width)))
    found = said(browser, "formatInterval", [list(each) for each in intervals])
    assert found == [interval_cell(*each) for each in intervals]
    medians = [
        (10 ** draw.uniform(-8, 2), draw.choice([None, 0.0, draw.random() * 1e-4]))
        for _ in range(800)
    ]
    found = said(browser, "formatMedian", [list(each) for each in medians])
    assert found == [median_cell(*each) for each in medians]
