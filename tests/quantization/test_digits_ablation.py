"""What PACT, SAWB and full-precision shortcuts are worth on digits: the kept table, and one run."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def ablation() -> Iterator[Any]:
    """The benchmark's module, on one thread, as it runs."""
    spec = importlib.util.spec_from_file_location("ablation", BENCHMARKS / "digits_ablation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    threads = torch.get_num_threads()
    sys.path.insert(0, str(BENCHMARKS))
    sys.modules["ablation"] = module
    try:
        spec.loader.exec_module(module)
        torch.set_num_threads(1)
        yield module
    finally:
        torch.set_num_threads(threads)
        del sys.modules["ablation"]
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def kept(ablation: Any) -> dict[str, list[float]]:
    """The accuracies of the committed table, in per cent, by the key of their row."""
    data = json.loads((BENCHMARKS / "digits_ablation.json").read_text(encoding="utf-8"))
    assert set(data) == {each.key for each in ablation.RECIPES}
    return {key: [100 * row["accuracy"] for row in rows] for key, rows in data.items()}


def test_each_row_has_at_least_four_seeds(kept: dict[str, list[float]]):
    assert min(map(len, kept.values())) >= 4


def test_all_parts_together_are_within_three_points_of_floats(
    ablation: Any, kept: dict[str, list[float]]
):
    floats, all_parts = kept[ablation.FLOAT.key], kept[ablation.ALL.key]
    assert statistics.mean(floats) - statistics.mean(all_parts) <= 3.0


def test_without_pact_or_sawb_it_is_clearly_worse(ablation: Any, kept: dict[str, list[float]]):
    for each in ablation.RECIPES:
        lacks = each.activations == "fixed" or each.weights == "max-abs"
        if lacks:
            whole = kept[f"2/SAWB/PACT/{each.shortcut}"]
            assert statistics.mean(whole) - statistics.mean(kept[each.key]) >= 1.0, each.key
    worst = statistics.mean(kept[ablation.NEITHER.key])
    assert statistics.mean(kept[ablation.ALL.key]) - worst >= 5.0


def test_the_table_says_what_the_results_say(ablation: Any):
    results = json.loads((BENCHMARKS / "digits_ablation.json").read_text(encoding="utf-8"))
    table = (BENCHMARKS / "digits_ablation.md").read_text(encoding="utf-8")
    rows = [line for line in ablation.lines(results) if line.startswith("| ")]
    assert [line for line in table.splitlines() if line.startswith("| ")] == rows


def test_two_bits_are_learned_here_too(ablation: Any):
    # A third of the epochs of the table: two seconds.
    all_parts, neither = (
        ablation.outcome(each, 0, epochs=7).accuracy for each in (ablation.ALL, ablation.NEITHER)
    )
    assert all_parts > neither + 0.1
    assert all_parts > 0.75
