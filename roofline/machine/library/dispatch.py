"""What a call of torch costs whose arithmetic costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from roofline.machine.library.subjects import Candidate, Dispatch, Run

REGION = "parallel region"

_GRAIN = 32768
"""at::internal::GRAIN_SIZE: elements from which on torch gives an operator another thread."""


def dispatch_subjects() -> Iterator[Dispatch]:
    """Calls on one element, or none, on one thread: from the emptiest operator to a convolution."""
    one = torch.ones(1, device="cpu", dtype=torch.float32)
    matrix, image = one.reshape(1, 1), one.reshape(1, 1, 1, 1)
    # A view goes through the dispatcher like any operator, and neither allocates nor computes.
    yield _dispatch("dispatch of view", "detach of one element", one.detach)
    yield _dispatch("dispatch of add", "1 + 1 element", partial(torch.add, one, one))
    linear, conv = torch.nn.functional.linear, torch.nn.functional.conv2d
    yield _dispatch("dispatch of linear", "1x1 by 1x1", partial(linear, matrix, matrix))
    yield _dispatch("dispatch of convolution", "1x1x1x1, 1 tap", partial(conv, image, image))


def region(threads: int) -> Dispatch:
    """The cheapest operator that takes `threads` threads: its dispatch, the start and the end."""
    size = _GRAIN * threads
    memory = torch.ones(size, dtype=torch.int8, device="cpu")
    return _dispatch(REGION, f"zero_ of {size} int8, threads awake", memory.zero_)


def _dispatch(name: str, note: str, run: Run) -> Dispatch:
    candidate = Candidate(size=note, work=1, make=lambda: run)
    return Dispatch(name=name, note=note, candidates=(candidate,))
