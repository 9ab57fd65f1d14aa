"""PACT where torch does more than call it: transforms, traces, replicas, layers that run twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roofline.errors import InputError
from roofline.quantization.policy import Policy
from roofline.quantization.quantizers import PACT, SAWB
from roofline.quantization.quantizing import quantize_model


@pytest.mark.parametrize("alpha", [0.7, 1.3, 3.0, 7.7, 11.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_alpha_that_is_set_back_in_a_pass_of_two_calls_has_its_gradient(
    alpha: float, dtype: torch.dtype
) -> None:
    # Set back a second time, it would have changed since the first call kept it.
    pact = PACT(2, alpha=alpha, decay=0.5).to(dtype)
    pact(torch.ones(1))
    with torch.no_grad():
        pact.alpha.fill_(-1.0)
    x = torch.full((3,), 20.0)
    with pytest.warns(UserWarning, match="reset to"):
        result = pact(x) + pact(x)
    result.sum().backward()
    assert pact.alpha.grad is not None
    # Three clipped places and the decay, of each call.
    expected = 2 * (3 + 0.5 * float(pact.alpha.detach()))
    assert float(pact.alpha.grad) == pytest.approx(expected, rel=1e-2)


def test_gradients_of_single_samples() -> None:
    torch.manual_seed(0)
    model = quantize_model(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))).train()
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    x = torch.randn(5, 3)

    def loss(own: dict[str, Tensor], sample: Tensor) -> Tensor:
        return torch.func.functional_call(model, own, (sample[None],)).square().sum()

    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for place, sample in enumerate(x):
        model.zero_grad()
        model(sample[None]).square().sum().backward()
        for name, each in model.named_parameters():
            torch.testing.assert_close(found[name][place], each.grad)


def _replica(module: nn.Module) -> Any:
    """A module as torch.nn.DataParallel puts it on another device: its parameters are results."""
    other = module._replicate_for_data_parallel()
    for name, parameter in module._parameters.items():
        setattr(other, name, parameter if parameter is None else parameter * 1.0)
    for name, child in module._modules.items():
        setattr(other, name, child if child is None else _replica(child))
    return other


def test_replicas_compute_the_same_and_know_what_training_did() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = quantize_model(layers, Policy(first_last=2)).train()
    x = torch.randn(5, 3)
    expected = model(x)
    _replica(model)(x).sum().backward()
    mine = {name: each.grad for name, each in model.named_parameters()}
    model.zero_grad()
    expected.sum().backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(mine[name], each.grad)
    # A layer that is checkpointed has the same gradients.
    model.zero_grad()
    result: Any = checkpoint(model, x, use_reentrant=False)
    result.sum().backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(mine[name], each.grad)
    pact = PACT(2, alpha=2.0)
    _replica(pact)(torch.ones(3))
    with torch.no_grad():
        pact.alpha.fill_(-0.5)
    with pytest.warns(UserWarning, match="reset to 0.002"):
        assert _replica(pact)(torch.ones(3)).tolist() == pytest.approx([0.002] * 3)
    # Once, of all replicas.
    _replica(pact)(torch.ones(3))


@pytest.mark.parametrize("signed", [True, False])
def test_memory_is_laid_out_as_it_came(signed: bool) -> None:
    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    for has_gradient in (True, False):
        with torch.set_grad_enabled(has_gradient):
            found = PACT(2, signed=signed)(x)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, PACT(2, signed=signed)(x.contiguous()))
    weight = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    for is_per_channel in (True, False):
        found = SAWB(2, per_channel=is_per_channel)(weight)
        assert found.is_contiguous(memory_format=torch.channels_last)
    strided, expanded = torch.randn(6, 8)[::2, 1::3], torch.randn(3, 1).expand(3, 4)
    for each in (strided, expanded, torch.empty(0, 3)):
        assert torch.equal(PACT(2, signed=signed)(each), PACT(2, signed=signed)(each.clone()))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_that_torch_does_not_compute_in_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=r"activations of float8_.*; must be floating-point, 16"):
        PACT(2)(torch.ones(2).to(dtype))
    with pytest.raises(InputError, match=r"weights of float8_.* cannot be quantized"):
        SAWB(2)(torch.ones(2).to(dtype))
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
    model = nn.Sequential(layer)
    with pytest.raises(InputError, match=r"layer '0': weights of float8_.* cannot be quantized"):
        quantize_model(model)


@pytest.mark.parametrize("power", [-60, -30, 64, 100, 120])
def test_weights_of_any_size_have_a_clipping_value(power: int) -> None:
    # Their squares are beyond what float32 holds, above or below.
    weight = torch.randn(500, generator=torch.Generator().manual_seed(0)) * 2.0**power
    for bits in (1, 2, 4):
        quantizer = SAWB(bits)
        alpha = float(quantizer.clipping(weight))
        assert float(weight.double().abs().mean()) * 0.999999 <= alpha <= float(weight.abs().max())
        assert len(quantizer(weight).unique()) <= 2**bits
        assert bool(quantizer(weight).isfinite().all())
