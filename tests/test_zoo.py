"""A sample of the zoo, one model of many families: the whole of it is in benchmarks/zoo.md."""

from __future__ import annotations

import pytest

from benchmarks import zoo
from roofline.workload.models.libraries.names import Library

PARTS = 4
"""Of each library's sample, so that one process need not count all of it."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("library", ["torchvision", "timm", "transformers"])
def test_a_sample_of_the_zoo(library: Library, part: int) -> None:
    """Nothing crashes, all operators have formulas, torch counts the same or it is known why."""
    wanted = zoo.jobs([library], is_sample=True)[part::PARTS]
    found = [zoo.count(each) for each in wanted]
    assert zoo.failures(found) == []
    assert "## Differences that are not explained" not in zoo.report(found, {})
    assert any(each.macs for each in found)
