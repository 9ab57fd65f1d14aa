"""PACT and SAWB against IBM's fms-model-optimizer, where it is installed.

pip install --no-deps fms-model-optimizer
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from roofline.quantization.quantizers import PACT, SAWB

# By bits and levels: c1 and c2 as they stand in fms-model-optimizer 0.8.7.
THEIRS = {
    (2, 4): (3.12, 2.064),
    (4, 16): (12.68, 12.80),
    (2, 3): (2.6, 1.71),
    (4, 15): (12.035, 12.03),
}


@pytest.fixture(scope="module")
def ibm() -> Any:
    if importlib.util.find_spec("fms_mo") is None:
        pytest.skip("fms-model-optimizer is not installed: IBM's PACT and SAWB are not compared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("fms_mo.quant.quantizers")
        except ImportError as error:
            pytest.skip(f"fms-model-optimizer does not import: {error}")


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def values_and_gradients(quantizer: Any, x: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    given = x.clone().requires_grad_()
    y = quantizer(given)
    (y * above).sum().backward()
    assert given.grad is not None
    return y.detach(), given.grad


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("alpha", [0.4, 1.0, 2.7])
def test_pact_agrees_in_values_and_gradients(ibm: Any, bits: int, alpha: float):
    x = drawn(bits, 1000).relu()
    above = drawn(99, 1000)
    theirs, ours = ibm.PACT(bits, alpha), PACT(bits, alpha=alpha)
    expected = values_and_gradients(theirs, x, above)
    torch.testing.assert_close(values_and_gradients(ours, x, above), expected)
    assert ours.alpha.grad is not None
    torch.testing.assert_close(ours.alpha.grad, theirs.clip_val.grad.squeeze())


def test_where_an_activation_is_exactly_alpha(ibm: Any):
    """α gets its gradient from both; theirs hands it to the activation, too, ours does not."""
    theirs, ours = ibm.PACT(2, 1.5), PACT(2, alpha=1.5)
    x, above = torch.full((3,), 1.5), torch.ones(3)
    assert values_and_gradients(theirs, x, above)[1].tolist() == [1, 1, 1]
    assert values_and_gradients(ours, x, above)[1].tolist() == [0, 0, 0]
    assert ours.alpha.grad is not None
    assert ours.alpha.grad.item() == theirs.clip_val.grad.item() == 3


@pytest.mark.parametrize(("bits", "levels"), THEIRS)
def test_sawb_agrees_in_values_and_gradients(ibm: Any, bits: int, levels: int):
    """With their coefficients, for ours are another derivation's; those give α within 4 %."""
    weight, above = drawn(bits, 16, 8, 3, 3), drawn(98, 16, 8, 3, 3)
    theirs = ibm.SAWB(bits, align_zero=levels % 2 == 1, clipSTE=True).train()
    ours = SAWB(bits, levels=levels)
    own = ours.clipping(weight)
    ours.c1, ours.c2 = THEIRS[bits, levels]
    expected = values_and_gradients(theirs, weight, above)
    torch.testing.assert_close(values_and_gradients(ours, weight, above), expected)
    torch.testing.assert_close(ours.clipping(weight), theirs.clip_val.squeeze())
    torch.testing.assert_close(own, theirs.clip_val.squeeze(), rtol=0.04, atol=0)


@pytest.mark.parametrize(("bits", "levels"), [(2, 3), (4, 15)])
def test_sawb_agrees_per_channel(ibm: Any, bits: int, levels: int):
    weight, above = drawn(bits, 6, 40), drawn(97, 6, 40)
    theirs = ibm.SAWB(bits, align_zero=True, clipSTE=True, perCh=6).train()
    ours = SAWB(bits, levels=levels, per_channel=True)
    ours.c1, ours.c2 = THEIRS[bits, levels]
    expected = values_and_gradients(theirs, weight, above)
    torch.testing.assert_close(values_and_gradients(ours, weight, above), expected)
