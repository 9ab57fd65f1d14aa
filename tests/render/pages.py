"""Interactive pages that the tests of pages look at."""

from __future__ import annotations

from roofline.analysis import Analysis
from roofline.core.blocks import View
from roofline.design.comparison.result import Comparison
from roofline.workload.tensors import Role
from tests.analysis.examples import Network


def interactive_page(result: Analysis | Comparison, view: View | None = None) -> str:
    """The page of an analysis, or of one model on several machines."""
    view = view or View()
    page = result.render("html", view)
    assert isinstance(page, str)
    return page


def deep(operators: int) -> Network:
    """As many operators as that, no two alike, each in a module with a name of its own."""
    net = Network()
    x = net.tensor(1, 3, 64, 64, role=Role.INPUT)
    for i in range(operators // 2):
        name = f"backbone.stage_{i // 100}.block_{i // 10}.layer_{i}"
        x = net.relu(net.convolution(x, 3 + i % 61, 1 + 2 * (i % 2), f"{name}.conv"), f"{name}.act")
    return net
