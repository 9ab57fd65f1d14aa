"""Gradients of normalisation, written out in loops that torch's autograd confirms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import OperatorRecord
from tests.workload.passes import only, passed
from tests.workload.scalars import Scalar, Tally, numbers, same, sum_of
from tests.workload.schema_calls import spec, taken

aten: Any = torch.ops.aten
EPSILON = 1e-5
MASKS = [each for each in product((False, True), repeat=3) if any(each)]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def counted(tensor: torch.Tensor | None, tally: Tally) -> Any:
    return None if tensor is None else numbers(tensor, tally)


def sums(g: Sequence[Scalar], x: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """Of the gradients, and of their products with the elements."""
    return sum_of(g), sum_of([a * b for a, b in zip(g, x, strict=True)])


def kept(x: torch.Tensor, dims: Sequence[int], tally: Tally) -> tuple[Any, Any, Any, Any]:
    """Mean and scale of a set, as the forward pass kept them, as tensors and as numbers."""
    mean = x.mean(list(dims))
    scale = (x.var(list(dims), unbiased=False) + EPSILON).rsqrt()
    return mean, scale, numbers(mean, tally), numbers(scale, tally)


def check(
    record: OperatorRecord, tally: Tally, found: Sequence[Any], expected: Sequence[Any]
) -> None:
    """The loops did what torch does, and took what the record says."""
    for ours, torchs in zip(found, expected, strict=True):
        if ours is not None:
            assert same(ours, torchs)
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.flop)
    assert record.type == "normalization"


def bytes_read(record: OperatorRecord) -> list[int]:
    return [each.byte for each in record.inputs]


# -- batch norm ------------------------------------------------------------------------------------


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """A row for each channel."""
    return x.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(mask: tuple[bool, bool, bool], training: bool, affine: bool) -> None:
    x, g = random(2, 3, 2, 3).requires_grad_(), random(2, 3, 2, 3, seed=1)
    weight = random(3, seed=2).requires_grad_() if affine else None
    bias = random(3, seed=3).requires_grad_()
    mean, var = random(3, seed=4), random(3, seed=5) ** 2
    y = F.batch_norm(x, mean.clone(), var.clone(), weight, bias, training, 0.1, EPSILON)
    gradients = torch.autograd.grad(y, [x, bias, *([weight] if weight is not None else [])], g)
    tally = Tally()
    batch_mean, batch_scale, *of_batch = kept(x.detach(), (0, 2, 3), tally)
    means, scales = of_batch if training else (numbers(mean, tally), numbers(var, tally))
    of_input, of_weight, of_bias = [], [], []
    weights = counted(None if weight is None else weight.detach(), tally)
    for c in range(3):
        gs, xs = (numbers(channels_first(each.detach())[c], tally) for each in (g, x))
        r = scales[c]
        if not training and (mask[0] or mask[1]):
            r = 1 / (r + EPSILON).root()
        total = dot = Scalar(0.0, tally)
        if mask[1] or (mask[0] and training):
            total, dot = sums(gs, xs)
            dot = dot - means[c] * total
        elif mask[2]:
            total = sum_of(gs)
        if mask[1]:
            of_weight.append(dot * r)
        if mask[2]:
            of_bias.append(total)
        if mask[0]:
            a = r if weights is None else r * weights[c]
            if training:
                b = dot * r * r * a / len(xs)
                offset = means[c] * b - total * a / len(xs)
                of_input.append([a * p - b * q + offset for p, q in zip(gs, xs, strict=True)])
            else:
                of_input.append([a * p for p in gs])

    def run(g: Any, x: Any, weight: Any, mean: Any, var: Any, kept: Any, scale: Any) -> Any:
        return aten.native_batch_norm_backward(
            g, x, weight, mean, var, kept, scale, training, EPSILON, list(mask)
        )

    given = (weight.detach() if weight is not None else None, mean, var, batch_mean, batch_scale)
    record = only(passed(run, g, x.detach(), *given))
    direct = run(g, x.detach(), *given)
    expected = (channels_first(gradients[0]), direct[1], gradients[1])
    check(record, tally, [of_input or None, of_weight or None, of_bias or None], expected)
    if weight is not None and mask[1]:
        assert torch.allclose(direct[1], gradients[2])


def test_batch_norm_reads_what_it_needs() -> None:
    """Gradients of 24 elements and 3 channels, float32; the input where a sum of products is."""
    shapes = [(2, 3, 4), (2, 3, 4), (3,), (3,), (3,), (3,), (3,)]

    def read(training: bool, *mask: bool) -> list[int]:
        def run(*given: Any) -> Any:
            return aten.native_batch_norm_backward(*given, training, EPSILON, list(mask))

        return [byte // 4 for byte in bytes_read(only(passed(run, *shapes)))]

    #                                          g   x  weight  running   kept
    assert read(True, True, True, True) == [24, 24, 3, 0, 0, 3, 3]
    assert read(True, True, False, False) == [24, 24, 3, 0, 0, 3, 3]
    assert read(True, False, True, False) == [24, 24, 0, 0, 0, 3, 3]
    assert read(True, False, False, True) == [24, 0, 0, 0, 0, 0, 0]
    assert read(False, True, True, True) == [24, 24, 3, 3, 3, 0, 0]
    assert read(False, True, False, True) == [24, 0, 3, 0, 3, 0, 0]
    assert read(False, False, False, True) == [24, 0, 0, 0, 0, 0, 0]


# -- layer norm, RMS norm, group norm --------------------------------------------------------------


def layer_gradients(
    g: Any, x: Any, means: Any, scales: Any, weights: Any, mask: Sequence[bool], *, centred: bool
) -> list[Any]:
    """Rows of numbers, with or without a mean."""
    of_input, scaled, offsets = [], [], []
    for gs, xs, r, u in zip(g, x, scales, means, strict=True):
        row = [r * each for each in gs] if mask[0] or mask[1] else gs
        scaled.append(row)
        if mask[1]:
            offsets.append([each - u for each in xs] if centred else xs)
        if not mask[0]:
            continue
        if weights is not None:
            row = [w * each for w, each in zip(weights, row, strict=True)]
        if centred:
            total, dot = sums(row, xs)
            b = (dot - u * total) * r * r / len(xs)
            c = u * b - total / len(xs)
            of_input.append([p - b * q + c for p, q in zip(row, xs, strict=True)])
        else:
            b = sum_of([p * q for p, q in zip(row, xs, strict=True)]) * r * r / len(xs)
            of_input.append([p - b * q for p, q in zip(row, xs, strict=True)])
    of_weight = (
        [
            sum_of([p[i] * q[i] for p, q in zip(scaled, offsets, strict=True)])
            for i in range(len(g[0]))
        ]
        if mask[1]
        else None
    )
    of_bias = [sum_of(list(column)) for column in zip(*g, strict=True)] if mask[2] else None
    return [of_input or None, of_weight, of_bias]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 4),
    size=st.integers(1, 5),
    mask=st.sampled_from(MASKS),
    affine=st.booleans(),
)
def test_layer_norm(rows: int, size: int, mask: Sequence[bool], affine: bool) -> None:
    if not affine:
        mask = (True, False, False)
    x, g = random(rows, size).requires_grad_(), random(rows, size, seed=1)
    weight, bias = (random(size, seed=s).requires_grad_() if affine else None for s in (2, 3))
    y = F.layer_norm(x, [size], weight, bias, EPSILON)
    asked = [each for each in (x, weight, bias) if each is not None]
    expected = [*torch.autograd.grad(y, asked, g), None, None][:3]
    tally = Tally()
    mean, scale, means, scales = kept(x.detach(), (1,), tally)
    weights = counted(None if weight is None else weight.detach(), tally)
    arguments = (numbers(g, tally), numbers(x.detach(), tally), means, scales, weights, mask)
    found = layer_gradients(*arguments, centred=True)

    def run(g: Any, x: Any, mean: Any, scale: Any, weight: Any, bias: Any) -> Any:
        return aten.native_layer_norm_backward(g, x, [size], mean, scale, weight, bias, list(mask))

    affines = [None if each is None else each.detach() for each in (weight, bias)]
    record = only(passed(run, g, x.detach(), mean[:, None], scale[:, None], *affines))
    check(record, tally, found, expected)


@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm(mask: tuple[bool, bool], affine: bool) -> None:
    """A GPU's operator: on a CPU autograd does without it."""
    mask = (mask[0], mask[1] and affine)
    if not any(mask):
        return
    x, g = random(3, 5).requires_grad_(), random(3, 5, seed=1)
    weight = random(5, seed=2).requires_grad_() if affine else None
    y = F.rms_norm(x, [5], weight, EPSILON)
    expected = torch.autograd.grad(y, [x] if weight is None else [x, weight], g)
    tally = Tally()
    scale = (x.detach().square().mean(-1) + EPSILON).rsqrt()
    weights = counted(None if weight is None else weight.detach(), tally)
    rows = numbers(g, tally), numbers(x.detach(), tally)
    found = layer_gradients(
        *rows, [None] * 3, numbers(scale, tally), weights, (*mask, False), centred=False
    )
    for ours, torchs in zip(found, expected, strict=False):
        assert ours is None or same(ours, torchs)
    flop = taken(
        *("aten._fused_rms_norm_backward", "default"),
        input=spec(3, 5),
        normalized_shape=[5],
        output_mask=mask,
        weight=spec(5) if affine else None,
    )
    assert (flop.flop, flop.min_flop) == (tally.flop, tally.flop)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    mask=st.sampled_from(MASKS),
    affine=st.booleans(),
)
def test_group_norm(batch: int, groups: int, mask: Sequence[bool], affine: bool) -> None:
    if not affine:
        mask = (True, False, False)
    x, g = random(batch, 4, 3).requires_grad_(), random(batch, 4, 3, seed=1)
    weight, bias = (random(4, seed=s).requires_grad_() if affine else None for s in (2, 3))
    y = F.group_norm(x, groups, weight, bias, EPSILON)
    asked = [each for each in (x, weight, bias) if each is not None]
    expected = [*torch.autograd.grad(y, asked, g), None, None][:3]
    tally = Tally()
    mean, scale, means, scales = kept(
        x.detach().reshape(batch, groups, 4 // groups, 3), (2, 3), tally
    )
    weights = counted(None if weight is None else weight.detach(), tally)
    gs, xs = numbers(g, tally), numbers(x.detach(), tally)
    needs_dots, per, m = mask[0] or mask[1], 4 // groups, 3 * 4 // groups
    total = [[sum_of(gs[n][c]) for c in range(4)] for n in range(batch)]
    dot = [
        [sum_of([p * q for p, q in zip(gs[n][c], xs[n][c], strict=True)]) for c in range(4)]
        for n in range(batch if needs_dots else 0)
    ]
    of_input: Any = [[None] * 4 for _ in range(batch)] if mask[0] else None
    for n, group in product(range(batch if mask[0] else 0), range(groups)):
        r, u = scales[n][group], means[n][group]
        members = range(group * per, (group + 1) * per)
        s1, s2 = (
            sum_of([of[n][c] if weights is None else weights[c] * of[n][c] for c in members])
            for of in (total, dot)
        )
        b = (s2 - u * s1) * r * r * r / m
        offset = u * b - s1 * r / m
        for c in members:
            a = r if weights is None else r * weights[c]
            of_input[n][c] = [
                a * p - b * q + offset for p, q in zip(gs[n][c], xs[n][c], strict=True)
            ]
    of_weight = mask[1] and [
        sum_of(
            [
                (dot[n][c] - total[n][c] * means[n][c // per]) * scales[n][c // per]
                for n in range(batch)
            ]
        )
        for c in range(4)
    ]
    of_bias = mask[2] and [sum_of([total[n][c] for n in range(batch)]) for c in range(4)]

    def run(g: Any, x: Any, mean: Any, scale: Any, weight: Any) -> Any:
        return aten.native_group_norm_backward(
            g, x, mean, scale, weight, batch, 4, 3, groups, list(mask)
        )

    record = only(
        passed(run, g, x.detach(), mean, scale, None if weight is None else weight.detach())
    )
    check(record, tally, [of_input, of_weight or None, of_bias or None], expected)


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norm(dim: int) -> None:
    v, w_grad = random(3, 4).requires_grad_(), random(3, 4, seed=1)
    g = random(*((3, 1) if dim == 0 else (1, 4)), seed=2).requires_grad_()
    expected = torch.autograd.grad(aten._weight_norm(v, g, dim), [v, g], w_grad)
    norms = v.detach().norm(dim=1 - dim, keepdim=True)
    tally, of_v, of_g = Tally(), [], []
    slices = [
        numbers(each.detach() if dim == 0 else each.detach().T, tally)
        for each in (w_grad, v, g, norms)
    ]
    for grads, elements, (scale,), (norm,) in zip(*slices, strict=True):
        of_scale = sum_of([p * q for p, q in zip(grads, elements, strict=True)]) / norm
        a = scale / norm
        b = a * of_scale / norm
        of_v.append([a * p - b * q for p, q in zip(grads, elements, strict=True)])
        of_g.append(of_scale)
    turned = expected[0] if dim == 0 else expected[0].T
    record = only(
        passed(
            lambda *given: aten._weight_norm_interface_backward(*given, dim),
            w_grad,
            v.detach(),
            g.detach(),
            norms,
        )
    )
    check(record, tally, [of_v, of_g], [turned.contiguous(), expected[1]])


# -- parts and libraries, from their schemas -------------------------------------------------------


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7, 3), (0, 3, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_all_libraries_count_the_same(shape: tuple[int, ...], affine: bool, training: bool) -> None:
    given: dict[str, Any] = {"input": spec(*shape), "weight": spec(3) if affine else None}
    given |= {"train": training, "update": training}
    for mask in MASKS:
        native, other = (
            taken(f"aten.{name}", **given, output_mask=mask)
            for name in ("native_batch_norm_backward", "batch_norm_backward")
        )
        assert (native.flop, native.min_flop) == (other.flop, other.min_flop)
        named = {name.replace("invstd", "var"): many for name, many in native.elements.items()}
        assert named == other.elements
    if training:
        native = taken("aten.native_batch_norm_backward", **given, output_mask=MASKS[-1])
        for name in ("aten.cudnn_batch_norm_backward", "aten.miopen_batch_norm_backward"):
            found = taken(name, **given)
            assert (found.flop, found.min_flop) == (native.flop, native.min_flop)
            assert found.elements == {"running_mean": 0, "running_var": 0}


@pytest.mark.parametrize("affine", [True, False])
def test_synchronized_gradients_are_those_of_one_worker(affine: bool) -> None:
    """The sums and what is made of them: the parts of the whole operator."""
    given: dict[str, Any] = {"input": spec(2, 3, 4, 5), "weight": spec(3) if affine else None}
    whole = taken("aten.native_batch_norm_backward", **given, train=True, output_mask=(True,) * 3)
    name, wanted = "aten.batch_norm_backward_reduce", ("input_g", "weight_g", "bias_g")
    reduced = taken(name, **given, **dict.fromkeys(wanted, True))
    assert reduced.flop + taken("aten.batch_norm_backward_elemt", **given).flop == whole.flop
    only_bias = taken(name, **given, input_g=False, weight_g=False, bias_g=True)
    assert only_bias.flop == 120 - 3
    assert only_bias.elements == {"input": 0, "mean": 0, "invstd": 0, "weight": 0}


def test_synchronized_statistics() -> None:
    """Two workers of three elements each, for each of two channels."""
    tally = Tally()
    x = random(2, 2, 3)
    expected_mean = x.transpose(0, 1).flatten(1).mean(1)
    expected_scale = (x.transpose(0, 1).flatten(1).var(1, unbiased=False) + EPSILON).rsqrt()
    local_mean, local_scale = x.mean(2), (x.var(2, unbiased=False) + EPSILON).rsqrt()
    means, scales = numbers(local_mean, tally), numbers(local_scale, tally)
    found = []
    for c in range(2):
        mean = sum_of([means[w][c] * 3 for w in range(2)]) / 6
        terms = []
        for w in range(2):
            inverse = 1 / scales[w][c]
            offset = means[w][c] - mean
            terms.append((inverse * inverse - EPSILON + offset * offset) * 3)
        found.append((mean, 1 / (sum_of(terms) / 6 + EPSILON).root()))
    assert same(list(zip(*found, strict=True)), torch.stack([expected_mean, expected_scale]))
    for name in ("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"):
        flop = taken(f"aten.{name}", input=spec(1, 2, 3), mean=spec(2, 2), invstd=spec(2, 2))
        assert (flop.flop, dict(flop.elements)) == (tally.flop, {"input": 0})
        with_running = taken(f"aten.{name}", mean=spec(2, 2), running_mean=spec(2))
        assert with_running.flop == tally.flop + 2 * 7


@pytest.mark.parametrize("affine", [True, False])
def test_synchronized_forward(affine: bool) -> None:
    """x * scale + shift, channel by channel; statistics as the whole operator's."""
    x = random(2, 3, 4)
    weight, bias = (random(3, seed=s) if affine else None for s in (1, 2))
    tally = Tally()
    _, _, means, scales = kept(x, (0, 2), tally)
    weights, biases = counted(weight, tally), counted(bias, tally)
    result = []
    for c, row in enumerate(numbers(channels_first(x), tally)):
        scale = scales[c] if weights is None else weights[c] * scales[c]
        drift = means[c] * scale
        if biases is None:
            result.append([each * scale - drift for each in row])
        else:
            shift = -1 * (drift - biases[c])
            tally.simple -= 1  # one subtraction: bias - drift
            result.append([each * scale + shift for each in row])
    expected = F.batch_norm(x, None, None, weight, bias, True, 0.0, EPSILON)
    assert same(result, channels_first(expected))
    affines = {"weight": spec(3) if affine else None, "bias": spec(3) if affine else None}
    whole = taken("aten.batch_norm_elemt", input=spec(2, 3, 4), **affines)
    assert whole.flop == tally.flop


def test_statistics_alone_are_those_of_the_forward() -> None:
    """What the whole operator takes without its x - mean, times scale, weight and bias."""
    x = spec(2, 3, 4)
    found = taken("aten.batch_norm_stats", input=x)
    assert found.flop + 24 == taken("aten.native_batch_norm", input=x, training=True).flop
    moved = taken("aten.batch_norm_update_stats", input=x, running_mean=spec(3))
    assert moved.flop == found.flop - 3 * 3 + 7 * 3


@pytest.mark.parametrize(
    ("name", "training", "has_running"),
    [
        *(("_native_batch_norm_legit_functional", each, False) for each in (True, False)),
        *(("miopen_batch_norm", each, False) for each in (True, False)),
        ("_batch_norm_with_update", True, True),
        ("_batch_norm_with_update_functional", True, True),
        ("_batch_norm_no_update", True, False),
        ("_batch_norm_no_update", False, True),
    ],
)
def test_other_names_of_batch_norm(name: str, training: bool, has_running: bool) -> None:
    given = {"input": spec(2, 3, 4), "weight": spec(3), "bias": spec(3), "training": training}
    running = dict.fromkeys(("running_mean", "running_var"), spec(3)) if has_running else {}
    found = taken(f"aten.{name}", **given, **running)
    assert found == taken("aten.native_batch_norm", **given)


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0), (1, 4, 1)])
@pytest.mark.parametrize("name", ["batch", "layer", "group", "rms"])
def test_empty_and_single_elements(name: str, shape: tuple[int, ...]) -> None:
    """No count is negative, and an empty one is 0. torch's own group norm dies of a division."""
    n, c, d = shape
    given: dict[str, Any] = {"input": spec(*shape), "weight": spec(c), "normalized_shape": [d]}
    given |= {"N": n, "C": c, "HxW": d, "group": 2}
    name = f"aten.{'_fused_rms' if name == 'rms' else f'native_{name}'}_norm_backward"
    for mask, training in product(MASKS, (True, False)):
        mask = mask[:2] if "rms" in name else mask
        count = taken(name, **given, train=training, output_mask=mask)
        assert prod(shape) or count.flop == 0
