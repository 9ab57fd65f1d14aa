"""Interactive pages that the tests of pages look at."""

from __future__ import annotations

from roofline.analysis import Analysis
from roofline.design.comparison.result import Comparison
from roofline.foundation.blocks import View


def interactive_page(result: Analysis | Comparison, view: View | None = None) -> str:
    """The page of an analysis, or of one model on several machines."""
    view = view or View()
    page = result.render("html", view)
    assert isinstance(page, str)
    return page
