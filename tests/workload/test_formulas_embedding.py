"""Embeddings read the rows they look up, not the table."""

from __future__ import annotations

import torch

import roofline


def test_only_the_rows_that_can_be_touched_are_read() -> None:
    """16 indices of 8 bytes, 16 rows of 768 floats read and written; the table has 50,257."""
    table = torch.nn.Embedding(50_257, 768)
    analysis = roofline.analyze(table, "1x16:int64", hardware="10980xe")
    assert analysis.totals.flop == 0
    assert analysis.totals.parameter_bytes == 16 * 768 * 4
    assert analysis.totals.input_bytes == 16 * 8
    assert analysis.totals.output_bytes == 16 * 768 * 4
    assert analysis.totals.parameter_size_bytes == 50_257 * 768 * 4
    assert analysis.coverage.calls == 1.0


def test_no_more_than_the_table_is_read() -> None:
    analysis = roofline.analyze(torch.nn.Embedding(4, 8), "1x100:int64", hardware="10980xe")
    assert analysis.totals.parameter_bytes == 4 * 8 * 4
