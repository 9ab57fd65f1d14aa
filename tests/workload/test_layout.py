"""How tensors lie in memory, against what torch says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.capture.operands import Operands


def layout(tensor: torch.Tensor) -> str:
    return Operands({}).operand(tensor).spec.layout


@given(shape=st.lists(st.integers(1, 4), max_size=5), data=st.data())
def test_permuted_tensors_lie_as_torch_says(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.zeros(shape).permute(order)
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape))
    if tensor.is_contiguous():
        assert layout(tensor) == "contiguous"
    elif last is not None and tensor.is_contiguous(memory_format=last):
        assert layout(tensor) == "channels-last"
    else:
        assert layout(tensor) == "strided"


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(2, 3, 4, 5), "contiguous"),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), "channels-last"),
        (torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d), "channels-last"),
        # Of one channel, or one pixel, both are the same: the first is said.
        (torch.zeros(2, 1, 4, 5).to(memory_format=torch.channels_last), "contiguous"),
        (torch.zeros(2, 7, 1, 1).to(memory_format=torch.channels_last), "contiguous"),
        (torch.zeros(3, 4).T, "strided"),
        (torch.zeros(3, 4)[:, :2], "strided"),
        (torch.zeros(3, 4)[:2], "contiguous"),
        (torch.zeros(3, 4)[1:], "contiguous"),
        (torch.zeros(1, 4).expand(3, 4), "strided"),
        (torch.zeros(3, 4)[::2], "strided"),
        (torch.zeros(3, 1).T, "contiguous"),
        (torch.zeros(()), "contiguous"),
    ],
)
def test_by_hand(tensor: torch.Tensor, expected: str) -> None:
    assert layout(tensor) == expected
