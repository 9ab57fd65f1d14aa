"""Whatever torch takes, a formula counts: empty tensors, no dimensions, integers, broadcasting.

A formula that raised would end an analysis that has nothing wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.errors import ModelError
from roofline.workload.operators import State
from tests.workload.passes import passed
from tests.workload.test_losses import LOSSES

Call = Callable[[torch.Tensor], Any]

aten: Any = torch.ops.aten


def places(shape: Sequence[int]) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


CALLS: dict[str, Call] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(-1),
    "std": lambda x: torch.std_mean(x),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "max": lambda x: x.max(-1),
    "median": lambda x: x.median(-1),
    "kthvalue": lambda x: x.kthvalue(1),
    "aminmax": lambda x: x.aminmax(dim=-1),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum in place": lambda x: x.cumsum_(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "norm of order 0": lambda x: torch.linalg.vector_norm(x, 0),
    "pow": lambda x: (x**0, x**0.5, x**-2, x**3, 2**x, x**x),
    "arithmetic": lambda x: (x + 1, x * x, x / 2, x // 2, x % 3, -x, x > 0, x.clamp(0, 1)),
    "functions": lambda x: (x.exp(), x.logit(), x.sinc(), torch.xlogy(x, x), x.asinh()),
    "activations": lambda x: (F.gelu(x), F.silu(x), F.mish(x), F.elu(x), F.softplus(x)),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "linear": lambda x: F.linear(x, x.new_ones(3, x.shape[-1]), x.new_ones(3)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "masked attention": lambda x: F.scaled_dot_product_attention(x, x, x, x.new_ones(1, 1)),
    "cdist": lambda x: (torch.cdist(x, x), torch.cdist(x, x, 1), torch.cdist(x, x, math.inf)),
    "trilinear": lambda x: F.bilinear(x, x, x.new_ones(2, x.shape[-1], x.shape[-1])),
    "einsum": lambda x: torch.einsum("...i,...j->...ij", x, x),
    "resampling": lambda x: F.interpolate(x, (3, 5), mode="bicubic", antialias=True),
    "grid": lambda x: F.grid_sample(x, x.new_ones(x.shape[0], 2, 2, 2), align_corners=True),
    "pooling": lambda x: (F.max_pool2d(x, 1), F.avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 2)),
    "index": lambda x: (x[..., [0, 0]], x.index_select(-1, torch.tensor([0])), x.flip(-1)),
    "index put": lambda x: x.index_put_((torch.tensor([0]),), x[0], accumulate=True),
    "gather": lambda x: x.gather(-1, torch.zeros(x.shape, dtype=torch.int64)),
    "scatter": lambda x: x.scatter_add_(-1, torch.zeros(x.shape, dtype=torch.int64), x.clone()),
    "masks": lambda x: (x.masked_fill(x > 0, 0), x.where(x > 0, 1), x.masked_scatter(x > 0, x)),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])),
    "dropout": lambda x: (F.dropout(x, 0.5, training=True), torch.native_dropout(x, 0.1, True)),
    "draws": lambda x: (torch.rand_like(x), torch.randn_like(x), x.bernoulli_(0.5), x.normal_()),
    "copies": lambda x: (x.repeat(2, *[1] * x.dim()), torch.stack([x, x]), torch.cat([x, x], -1)),
    "casts": lambda x: (x.to(torch.bfloat16), x.to(torch.int64), x.bool(), x.double()),
    "scatters": lambda x: (x.select_scatter(x[0], 0, 0), x.slice_scatter(x[:1], 0, 0, 1)),
    "triangles": lambda x: (x.tril(), x.triu(1), torch.diag_embed(x)),
    "fft": lambda x: (torch.fft.fft(x), torch.fft.rfft(x), torch.fft.fftn(x)),
    "hfft": torch.fft.hfft,
    "polygamma": lambda x: torch.polygamma(2, x),
    "zeta": lambda x: torch.special.zeta(x + 1, x + 1),
    "is in": lambda x: torch.isin(x, x),
    "distance": lambda x: torch.dist(x, x),
    "unique": lambda x: (torch.unique(x), torch.unique_consecutive(x)),
    "nonzero": torch.nonzero,
    "histogram": lambda x: torch.histogram(x, 3),
    "count": lambda x: torch.bincount(x.long()),
    "nll": lambda x: [
        aten.nll_loss_forward(x, places(x.shape[:1]), None, r, -100) for r in range(3)
    ],
    "multi margin": lambda x: [
        aten.multi_margin_loss(x, places(x.shape[:1]), 1, 1, None, r) for r in range(3)
    ],
    **{
        name: lambda x, loss=loss: [loss(x, x.clone(), r) for r in range(3)]
        for name, loss, _ in LOSSES
    },
    "softmax, backward": lambda x: aten._softmax_backward_data(x, x.clone(), -1, x.dtype),
    "log-softmax, backward": lambda x: aten._log_softmax_backward_data(x, x.clone(), -1, x.dtype),
}
"""What is done with a tensor of any shape; torch may refuse it."""


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@settings(max_examples=12)
@given(
    shape=st.lists(st.integers(0, 3), max_size=4).map(tuple),
    kind=st.sampled_from([torch.float32, torch.bfloat16, torch.int64]),
)
@pytest.mark.parametrize("name", CALLS)
def test_legal_calls_are_counted(name: str, shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Where torch gives a result there is a count, and the least is no more than the whole."""
    call, tensor = CALLS[name], torch.zeros(shape, dtype=kind)
    try:
        call(tensor.clone())
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return
    try:
        records = passed(lambda x: call(x.clone()), tensor).records
    except ModelError:
        # Fake tensors refuse a few things that real ones take; it is no formula's fault.
        return
    for record in records:
        assert record.state is not State.UNKNOWN, record.op
        assert 0 <= (record.work.min_flop or 0) <= (record.work.flop or 0), record.op
        operands = (*record.inputs, *record.outputs)
        if not any(each.dtype.kind in ("float", "complex") for each in operands):
            assert record.work.flop == 0, record.op
        if not any(each.elements for each in operands):
            assert record.work.flop == 0, record.op
