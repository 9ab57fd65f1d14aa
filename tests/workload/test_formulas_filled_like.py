"""What is made like another tensor does not read that one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from roofline.workload.capture.passes import capture
from roofline.workload.inputs import inputs_for, inputs_of
from roofline.workload.models import sources

MADE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "zeros_like": (torch.zeros_like, 4 * 600),
    "ones_like": (torch.ones_like, 4 * 600),
    "full_like": (lambda x: torch.full_like(x, 2.0), 4 * 600),
    "new_zeros": (lambda x: x.new_zeros((5, 7)), 4 * 35),
    "new_ones": (lambda x: x.new_ones((5, 7)), 4 * 35),
    "new_full": (lambda x: x.new_full((5, 7), 2.0), 4 * 35),
    "rand_like": (torch.rand_like, 4 * 600),
    "randn_like": (torch.randn_like, 4 * 600),
    "randint_like": (lambda x: torch.randint_like(x, 9), 4 * 600),
}


@pytest.mark.parametrize("op", MADE)
def test_only_what_is_written_moves(op: str) -> None:
    make, written_bytes = MADE[op]
    source = sources.given(make)
    given = inputs_for(source.module, inputs_of((20, 30)), (), name=op, batch=None)
    assert given is not None
    (record,) = [
        each
        for each in capture(source.module, given, name=op).records
        if each.op == f"aten.{op}" or each.work.traffic_bytes
    ]
    assert record.op == f"aten.{op}"
    assert record.work.input_bytes == 0
    assert record.work.output_bytes == written_bytes
