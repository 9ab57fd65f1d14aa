"""PACT: activations by hand, gradients by counting, and what becomes of α in training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from roofline.errors import InputError
from roofline.quantization.quantizers import PACT

ALPHAS = st.floats(2**-6, 2**6, width=32)
SEEDS = st.integers(0, 2**31)


def activations(seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(50, generator=torch.Generator().manual_seed(seed))


def by_hand(x: float, alpha: float, bits: int) -> float:
    """The nearest of the levels, of all that there are; between two, the one with the even code."""
    steps = 2**bits - 1
    levels = [code * alpha / steps for code in range(steps + 1)]
    nearest = min(range(steps + 1), key=lambda code: (abs(levels[code] - x), code % 2))
    return levels[nearest]


@pytest.mark.parametrize(
    ("bits", "signed", "x", "y", "of_x", "of_alpha"),
    [
        # α = 3 has steps of 1.
        (
            *(2, False, [-1.0, 0.0, 0.4, 0.6, 1.4, 2.6, 3.0, 5.0], [0, 0, 0, 1, 1, 3, 3, 3]),
            *([0, 2, 4, 8, 16, 32, 0, 0], 64 + 128),
        ),
        # 3 bits have 7 levels: from -3 to 3.
        (
            *(3, True, [-5.0, -3.0, -2.6, -0.4, 0.0, 1.6, 3.0, 4.0], [-3, -3, -3, 0, 0, 2, 3, 3]),
            *([0, 0, 4, 8, 16, 32, 0, 0], -1 - 2 + 64 + 128),
        ),
    ],
    ids=["2 bits", "signed"],
)
def test_values_and_gradients_by_hand(
    bits: int, signed: bool, x: list[float], y: list[int], of_x: list[int], of_alpha: int
):
    """What arrives at clipped places is summed up in the gradient of α."""
    pact, given = PACT(bits, alpha=3.0, signed=signed), torch.tensor(x, requires_grad=True)
    found = pact(given)
    assert found.tolist() == y
    (found * 2.0 ** torch.arange(8)).sum().backward()
    assert given.grad is not None
    assert given.grad.tolist() == of_x
    assert pact.alpha.grad is not None
    assert pact.alpha.grad.item() == of_alpha


def test_one_bit_and_the_steps_of_others():
    assert PACT(1, alpha=2.0)(torch.tensor([-1.0, 0.9, 1.1, 3.0])).tolist() == [0, 0, 2, 2]
    signed = PACT(1, alpha=2.0, signed=True)
    assert signed(torch.tensor([-3.0, -0.1, 0.0, 0.1])).tolist() == [-2, -2, 2, 2]
    assert signed.codes(torch.tensor([-3.0, 0.1]))[0].tolist() == [-1, 1]
    assert [PACT(bits).steps for bits in (1, 2, 8, 16)] == [1, 3, 255, 65535]
    assert [PACT(bits, signed=True).steps for bits in (1, 2, 8)] == [1, 1, 127]
    assert repr(PACT(2)) == "PACT(bits=2)"
    assert repr(PACT(4, decay=0.01, signed=True)) == "PACT(bits=4, signed, decay=0.01)"


@given(SEEDS, st.integers(1, 8), st.sampled_from([0.25, 1.0, 3.0, 5.5]))
def test_every_activation_goes_to_the_nearest_level(seed: int, bits: int, alpha: float):
    x = activations(seed, 3.0).double()
    pact = PACT(bits, alpha=alpha)
    expected = torch.tensor([by_hand(each, alpha, bits) for each in x.tolist()])
    torch.testing.assert_close(pact(x).float(), expected, rtol=1e-6, atol=1e-6)


@given(SEEDS, st.integers(1, 16), ALPHAS, st.booleans())
def test_gradients_by_counting(seed: int, bits: int, alpha: float, signed: bool):
    x = activations(seed, 2 * alpha).requires_grad_()
    pact = PACT(bits, alpha=alpha, signed=signed)
    pact(x).sum().backward()
    values = x.tolist()
    above = sum(each >= alpha for each in values)
    below = sum(each <= -alpha for each in values)
    low = -alpha if signed else 0.0
    inside = [float((each > low or each == low == 0) and each < alpha) for each in values]
    assert x.grad is not None
    assert x.grad.tolist() == inside
    assert pact.alpha.grad is not None
    assert pact.alpha.grad.item() == (above - below if signed else above)


@given(
    SEEDS,
    st.integers(1, 16),
    ALPHAS,
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_codes_times_the_step_are_the_output(
    seed: int, bits: int, alpha: float, signed: bool, dtype: torch.dtype
):
    x = activations(seed, alpha).to(dtype)
    pact = PACT(bits, alpha=alpha, signed=signed)
    codes, step = pact.codes(x)
    assert codes.dtype == torch.int32
    assert int(codes.abs().max()) <= pact.steps
    assert signed or int(codes.min()) >= 0
    assert torch.equal((codes * step).to(dtype), pact(x))
    assert pact(x).dtype == dtype
    with torch.no_grad():
        assert torch.equal(pact(x), (codes * step).to(dtype))


def test_decay_pulls_at_alpha_in_training_alone():
    """The term decay/2·α² of a loss has the gradient decay·α."""
    x = torch.tensor([1.0, 9.0])
    for training, expected in ((True, 1 + 0.5 * 4), (False, 1)):
        pact = PACT(2, alpha=4.0, decay=0.5).train(training)
        pact(x).sum().backward()
        assert pact.alpha.grad is not None
        assert pact.alpha.grad.item() == expected
    # A second derivative is that of the decay alone.
    pact = PACT(2, alpha=4.0, decay=0.5)
    (first,) = torch.autograd.grad(pact(x).sum(), pact.alpha, create_graph=True)
    assert float(first.detach()) == 1 + 0.5 * 4
    assert float(torch.autograd.grad(first, pact.alpha)[0]) == 0.5
    plain = PACT(2, alpha=4.0)
    (plain(x).sum() + 0.25 * plain.alpha.square()).backward()
    assert plain.alpha.grad is not None
    assert plain.alpha.grad.item() == 3


def test_alpha_learns_what_clips_best():
    """From far outside: with decay it comes in, and stays where the error grows again."""
    torch.manual_seed(0)
    x = torch.randn(4000).relu()
    pact = PACT(2, alpha=10.0, decay=0.02)
    optimizer = torch.optim.SGD(pact.parameters(), lr=0.5)
    first = (pact(x) - x).square().mean().item()
    for _ in range(400):
        optimizer.zero_grad()
        (pact(x) - x).square().mean().backward()
        optimizer.step()
    assert 1.0 < pact.alpha.item() < 3.0
    assert (pact(x) - x).square().mean().item() < first / 5


def test_alpha_that_training_drives_below_zero_is_set_back_with_one_warning():
    pact = PACT(2, alpha=2.0)
    pact.name = "layer1.conv2"
    optimizer = torch.optim.SGD(pact.parameters(), lr=1.0)
    x = torch.full((5,), 7.0)
    pact(x).sum().backward()
    optimizer.step()
    assert pact.alpha.item() == -3
    with pytest.warns(UserWarning, match=r"PACT of 'layer1\.conv2': .* to -3; reset to"):
        y = pact(x)
    assert pact.alpha.item() == pytest.approx(0.002)
    assert y.tolist() == pytest.approx([0.002] * 5)
    with torch.no_grad():
        pact.alpha.fill_(-1.0)
    # Warnings are errors here: the second time it is silent.
    pact(x)
    assert pact.alpha.item() == pytest.approx(0.002)
    optimizer.zero_grad()
    pact(x).sum().neg().backward()
    optimizer.step()
    assert pact.alpha.item() == pytest.approx(5.002)
    # By the last step, too: in inference.
    other = PACT(2, alpha=2.0)
    other(torch.ones(3))
    with torch.no_grad():
        other.alpha.fill_(-0.5)
    with pytest.warns(UserWarning, match="PACT: training drove the clipping value to -0.5"):
        assert other.eval().codes(torch.ones(3))[1].item() == pytest.approx(0.002 / 3)


def test_a_small_alpha_that_was_set_is_kept():
    pact = PACT(2)
    with torch.no_grad():
        pact.alpha.fill_(1e-6)
    assert pact(torch.ones(1)).item() == pytest.approx(1e-6)
    trained = PACT(2)
    trained(torch.ones(1))
    trained.load_state_dict(pact.state_dict())
    assert trained(torch.ones(1)).item() == pytest.approx(1e-6)


def test_alpha_that_cannot_be_one_is_refused():
    pact = PACT(2)
    pact.name = "fc"
    for value, words in ((float("nan"), "nan"), (float("inf"), "inf")):
        with torch.no_grad():
            pact.alpha.fill_(value)
        with pytest.raises(InputError, match=f"PACT of 'fc': clipping value {words}"):
            pact(torch.ones(2))
    pact.load_state_dict({"alpha": torch.tensor(-0.3)})
    for call in (pact, pact.codes, copy.deepcopy(pact).eval()):
        with pytest.raises(
            InputError, match=r"clipping value -0\.3 must be above 0; .* calibrate_clipping"
        ):
            call(torch.ones(2))


def test_bad_input_is_one_line():
    for bits in (0, 17, 32, True, 2.5):
        with pytest.raises(InputError, match="must be an integer from 1 to 16"):
            PACT(bits)  # type: ignore[arg-type]
    for alpha in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"alpha=.*must be above 0"):
            PACT(2, alpha=alpha)
    for decay in (-1.0, float("nan")):
        with pytest.raises(InputError, match=r"decay=.*0 or above"):
            PACT(2, decay=decay)
    with pytest.raises(InputError, match="activations of int64; must be floating-point"):
        PACT(2)(torch.ones(2, dtype=torch.int64))
    with pytest.raises(InputError, match="activations contain NaN"):
        PACT(2).codes(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize("has_gradient", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 16])
def test_nan_goes_through_and_infinity_is_clipped(bits: int, has_gradient: bool):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    with torch.set_grad_enabled(has_gradient):
        for signed, low in ((False, 0), (True, -3)):
            y = PACT(bits, alpha=3.0, signed=signed)(x)
            assert y.isnan().tolist() == [True, False, False, False]
            assert y[1:3].tolist() == [3, low]


def test_an_ensemble_under_vmap_has_the_clipping_value_and_gradient_of_each():
    pacts = [PACT(2, alpha=alpha, decay=0.1) for alpha in (3.0, 6.0)]
    parameters, buffers = torch.func.stack_module_state(pacts)  # type: ignore[arg-type]
    x = torch.tensor([0.4, 1.4, 9.0])

    def run(own: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(pacts[0], (own, buffers), (x,))

    assert torch.vmap(run)(parameters).tolist() == [[0, 1, 3], [0, 2, 6]]
    found = torch.vmap(torch.func.grad(lambda own: run(own).sum()))(parameters)
    assert found["alpha"].tolist() == pytest.approx([1 + 0.1 * 3, 1 + 0.1 * 6])


# torch's compiler makes an instance of what it deprecates making instances of.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("signed", [False, True])
def test_compiled_it_has_the_same_values_and_gradients(signed: bool):
    torch._dynamo.reset()
    grads: list[tuple[Tensor, Tensor, Tensor]] = []
    for way in ("eager", "compiled"):
        pact = PACT(3, alpha=1.5, decay=0.1, signed=signed)
        run = torch.compile(pact, backend="aot_eager", fullgraph=True) if way != "eager" else pact
        x = activations(7, 2.0).requires_grad_()
        y = run(x)
        (y * activations(8)).sum().backward()
        assert x.grad is not None
        assert pact.alpha.grad is not None
        grads.append((y.detach(), x.grad, pact.alpha.grad))
    for eager, compiled in zip(*grads, strict=True):
        torch.testing.assert_close(eager, compiled)


def test_compiled_alpha_below_zero_is_kept_off_it_and_can_come_back():
    torch._dynamo.reset()
    pact = PACT(2, alpha=1.0)
    run = torch.compile(pact, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        pact.alpha.fill_(-200.0)
    y = run(torch.ones(3))
    y.sum().backward()
    assert y.tolist() == pytest.approx([1e-6] * 3)
    assert pact.alpha.grad is not None
    assert pact.alpha.grad.item() == 3


def test_it_is_exported_copied_pickled_and_restored():
    pact = PACT(3, alpha=1.5, signed=True).eval()
    x = activations(0)
    expected = pact(x)
    for made in (
        copy.deepcopy(pact),
        pickle.loads(pickle.dumps(pact)),
        torch.export.export(pact, (x,)).module(),
    ):
        assert torch.equal(made(x), expected)
    assert list(pact.state_dict()) == ["alpha"]
    fresh = PACT(3, signed=True)
    fresh.load_state_dict(pact.state_dict())
    assert torch.equal(fresh(x), expected)


def test_where_there_are_no_values_shapes_go_through():
    with FakeTensorMode():
        fake = PACT(2, decay=0.1)
        assert fake(torch.empty(2, 3)).shape == (2, 3)
    with torch.device("meta"):
        assert PACT(2)(torch.empty(2, 3)).shape == (2, 3)


def test_in_a_network_under_inference_mode_and_autocast():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), PACT(2, alpha=1.0), nn.Linear(4, 2))
    with torch.inference_mode():
        assert network(torch.randn(3, 4)).shape == (3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        network(torch.randn(3, 4)).sum().backward()
    assert network[1].alpha.grad is not None
