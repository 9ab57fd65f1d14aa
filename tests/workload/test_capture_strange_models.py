"""Models that change themselves, their caches, their process; operators that are easily missed."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import random
import threading
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import roofline
from roofline.errors import InputError, ModelError
from roofline.workload.inputs import Inputs
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import Function
from roofline.workload.operators import Capture, State
from tests.workload.passes import passed, total, working


class Eager(TorchDispatchMode):
    """The operators of a real run that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_free = func.is_view or func._opname in ("_unsafe_view", "empty", "lift_fresh")
        if not is_free and func.namespace == "aten":
            self.seen.append(f"aten.{func._opname}")
        return result


def eager(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    with torch.no_grad(), Eager() as mode:
        model.eval()(*inputs)
    return mode.seen


def ops(captured: Capture) -> list[str]:
    return [each.op for each in working(captured)]


# -- what is counted -------------------------------------------------------------------------------


def test_another_type_of_the_same_bytes_is_remembered_as_such() -> None:
    """A view as another type gives that type the second time too."""
    for _ in range(2):
        captured = passed(lambda x: x.view(torch.float32).relu(), Inputs("4x8:uint8").args[0])
        assert [each.work.flop for each in working(captured)] == [8]
    captured = passed(lambda x: (x.view(torch.int32) + 1, x.view(torch.int32) * 2), (2, 2))
    assert [str(each.outputs[0].dtype) for each in working(captured)] == ["int32", "int32"]


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("is_real", [False, True])
def test_operators_are_those_of_weights_that_want_gradients(trained: bool, is_real: bool) -> None:
    """matmul folds a batch, with a copy, or does not, by whether a weight wants gradients."""
    linear = nn.Linear(16, 4, bias=False).requires_grad_(trained)
    model, x = Function(lambda x: linear(x.transpose(1, 2))), torch.randn(8, 16, 32)
    expected = eager(model, x)
    captured = passed(nn.Sequential(Function(by_value), model) if is_real else model, x)
    assert bool(captured.notes) == is_real
    assert ops(captured)[-len(expected) if is_real else 0 :] == expected


def by_value(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > -1e30 else -x


@pytest.mark.parametrize("name", ["mixer_s32_224", "gmlp_s16_224", "resmlp_12_224"])
def test_mixers_run_the_operators_of_eager(name: str) -> None:
    library_or_reason("torchvision")
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False)
    x = torch.randn(2, 3, 224, 224)
    assert collections.Counter(ops(passed(model, x))) == collections.Counter(eager(model, x))


def test_an_operator_that_selects_nothing_has_read_all_the_same() -> None:
    captured = passed(lambda x: x[x > 1e9].sum(), torch.zeros(64, 64))
    (index,) = [each for each in captured.records if each.op == "aten.index"]
    assert index.state is not State.FREE
    assert index.work.traffic_bytes >= 64 * 64


def test_operators_on_nothing_are_free() -> None:
    captured = passed(lambda x: x[:, :0].relu().sin(), (2, 4))
    assert [each.state for each in captured.records if each.op == "aten.relu"] == [State.FREE]


def in_a_thread(x: torch.Tensor) -> torch.Tensor:
    out: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: out.append(x @ x))
    thread.start()
    thread.join()
    return out[0].relu()


def in_a_pool(x: torch.Tensor) -> torch.Tensor:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(F.relu, x).result()


@pytest.mark.parametrize("model", [in_a_thread, in_a_pool])
def test_operators_of_another_thread_are_refused(model: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="ran in another thread"):
        passed(model, (4, 4))


# -- functions -------------------------------------------------------------------------------------

NET = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: NET(x),
        functools.partial(NET),
        functools.partial(NET.forward),
        lambda x, net=NET: net(x),
        lambda x, *, nets=[NET]: nets[0](x),
        NET.forward,
        torch.no_grad()(lambda x: NET(x)),
    ],
)
def test_functions_run_the_modules_that_they_use_for_inference(function: Any) -> None:
    """And count their parameters."""
    NET.train()
    whole = roofline.analyze(NET, (2, 3, 8, 8), hardware="10980xe").totals
    assert roofline.analyze(function, (2, 3, 8, 8), hardware="10980xe").totals == whole
    assert NET.training
    assert whole.parameters == 240


def test_a_module_that_nobody_knows_of_runs_in_training_mode_and_is_named() -> None:
    hidden = {"deep": [(nn.Dropout(),)]}

    class Holder(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return hidden["deep"][0][0](x)

    (note,) = passed(Holder(), (2, 2)).notes
    assert note.startswith("<Dropout> ran in training mode")


# -- what is left behind ---------------------------------------------------------------------------


class Merges(nn.Module):
    """Adds its adapter to its weight for inference, and takes it out again for training."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.adapter = nn.Parameter(torch.ones(4, 4))
        self.merged = False

    def train(self, mode: bool = True) -> Merges:
        if mode == self.merged:
            self.weight.data += -self.adapter if mode else self.adapter
            self.merged = not mode
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.merged:
            return F.linear(x, self.weight)
        return F.linear(x, self.weight) + F.linear(x, self.adapter)


@pytest.mark.parametrize("is_real", [False, True])
def test_weights_that_are_merged_for_inference(is_real: bool) -> None:
    """Counted as merged, and left as they were."""
    model = Merges()
    captured = passed(nn.Sequential(Function(by_value), model) if is_real else model, (2, 4))
    assert total(captured).macs == 32
    assert not model.merged
    assert model.training
    assert torch.equal(model.weight, torch.ones(4, 4))


@functools.lru_cache
def mask(size: int) -> torch.Tensor:
    return torch.triu(torch.full((size, size), float("-inf")), 1)


TABLE: dict[Any, Any] = {}


class Unbound:
    """As proxies of web frameworks are: whatever one asks of them raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"working outside of context: {name}")


CONTEXT = Unbound()
CONTEXTS = [Unbound()]


class Caching(nn.Module):
    """Keeps tensors wherever it can."""

    shared: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, *, is_real: bool) -> None:
        super().__init__()
        self.is_real = is_real
        self.counter: collections.Counter[Any] = collections.Counter()
        self.in_tuple: tuple[list[Any], ...] = ([],)
        self.plain = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1]
        if self.is_real:
            bool(x.sum() > 0)
        self.shared.setdefault("mask", mask(size))
        TABLE.setdefault(size, torch.arange(size))
        TABLE.setdefault("pairs", {})[size] = (x.sin(), [x.cos()])
        self.counter["calls"] += 1
        self.in_tuple[0].append(x)
        self.plain.data = x.sum(0)
        return x + self.shared["mask"] + TABLE[size] + self.plain


@pytest.mark.parametrize("is_real", [False, True])
def test_caches_outside_the_model_keep_nothing_of_an_analysis(is_real: bool) -> None:
    mask.cache_clear()
    model = Caching(is_real=is_real)
    first, second = passed(model, (4, 4)), passed(model, (4, 4))
    assert ops(first) == ops(second)
    assert type(model.plain) is torch.Tensor
    assert torch.equal(model.plain, torch.ones(4))
    assert not model.counter
    assert model.in_tuple == ([],)
    assert is_real or not TABLE
    assert type(model(torch.randn(4, 4))) is torch.Tensor
    mask.cache_clear()
    TABLE.clear()
    Caching.shared.clear()


def test_variables_of_functions_and_slots_keep_nothing_of_an_analysis() -> None:
    kept: list[Any] = []
    last: Any = None
    scale = torch.ones(4)

    class Kept:
        __slots__ = ("calls", "value")

    place = Kept()
    place.calls = 0
    kept.append(place)

    def noted(x: torch.Tensor) -> torch.Tensor:
        nonlocal last, scale
        last, scale = x.cos(), scale * 2
        kept[0].value, kept[0].calls = x + 1, kept[0].calls + 1
        return last * scale

    class Leaks(nn.Module):
        latest: Any = None

        def __init__(self) -> None:
            super().__init__()
            self.noted = functools.partial(noted)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Leaks.latest = x.sin()
            return self.noted(x)

    before = scale
    assert not passed(Leaks(), (4, 4)).notes
    assert (last, Leaks.latest) == (None, None)
    assert scale is before
    assert not hasattr(place, "value")


def test_what_cannot_be_taken_out_again_is_said() -> None:
    def keep() -> Generator[None, torch.Tensor, None]:
        kept: list[torch.Tensor] = []
        while True:
            kept.append((yield))

    keeper = keep()
    next(keeper)

    class Leaks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keeper.send(x + 1)
            return x

    (note,) = passed(Leaks(), (2, 2)).notes
    assert "keeps fake tensors of this analysis" in note


class Cache:
    """As language models keep keys and values."""

    def __init__(self) -> None:
        self.layers = [torch.zeros(3, 4)]

    def update(self, x: torch.Tensor) -> torch.Tensor:
        self.layers[0] = torch.cat([self.layers[0], x])
        return self.layers[0]


def test_objects_that_are_given_stay_as_they_were() -> None:
    """A cache does not grow from analysis to analysis."""
    cache = Cache()
    counts = {
        total(passed(lambda x, cache: cache.update(x) @ x.T, (1, 4), cache)).macs for _ in range(3)
    }
    assert counts == {4 * 4}
    assert cache.layers[0].shape == (3, 4)
    assert type(cache.layers[0]) is torch.Tensor


def random_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy_state[1].tolist(), torch.get_rng_state().tolist()


def test_random_states_and_the_default_type_stay() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        random.random()
        np.random.rand()  # noqa: NPY002
        torch.rand(3)
        torch.set_default_dtype(torch.float64)
        raise KeyError("boo")

    states = random_states()
    with pytest.raises(ModelError, match="KeyError: 'boo'"):
        passed(model, (2, 2))
    assert random_states() == states
    assert torch.get_default_dtype() == torch.float32


def test_of_two_reasons_the_first_is_said() -> None:
    calls: list[int] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("the real reason")
        raise ValueError("a consequence")

    with pytest.raises(ModelError, match="the real reason"):
        passed(model, (2, 2))


# -- what runs anyway, and what is refused ---------------------------------------------------------


class Static(nn.Module):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_a_static_forward() -> None:
    assert ops(passed(Static(), (2, 4))) == ["aten.add"]


def _encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()


def test_padding_in_torchs_encoder() -> None:
    """The fast path makes nested tensors, whose lengths are values: all is counted, and said."""
    captured = passed(
        _encoder(), (2, 5, 16), src_key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)
    )
    (note,) = captured.notes
    assert "fast path for transformers" in note
    dense = 2 * 5 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * 2 * 5 * 5 * 8
    assert total(captured).macs == 2 * dense
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    layers = [each for each in captured.records if each.op.endswith("encoder_layer_fwd")]
    assert len(layers) == 2


def test_what_padding_leaves_is_one_token_at_the_least() -> None:
    """The least of every layer is that of a layer on one token."""
    encoder = _encoder()
    mask = torch.ones(2, 5, dtype=torch.bool)
    padded = passed(encoder, (2, 5, 16), src_key_padding_mask=mask)
    one = passed(encoder, (1, 1, 16))
    assert total(padded).min_flop == total(one).min_flop
    layers = [each for each in padded.records if each.op.endswith("encoder_layer_fwd")]
    of_one = [each for each in one.records if each.op.endswith("encoder_layer_fwd")]
    for layer, alone in zip(layers, of_one, strict=True):
        assert [each.min_bytes for each in layer.inputs] == [each.byte for each in alone.inputs]
        assert [each.byte for each in layer.outputs] == [4 * 2 * 5 * 16]
        assert [each.min_bytes for each in layer.outputs] == [4 * 16]
    # The input is read at as many places; what comes out is written everywhere.
    without, back = (
        next(each for each in padded.records if each.op == f"aten.{name}")
        for name in ("_nested_tensor_from_mask", "to_padded_tensor")
    )
    assert [each.min_bytes for each in without.inputs] == [4 * 16, 2 * 5]
    assert [each.min_bytes for each in back.inputs] == [4 * 16]
    assert [each.min_bytes for each in back.outputs] == [4 * 2 * 5 * 16]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_computes_one_token_and_no_fewer() -> None:
    """What is padding is not a number, and does not show; without a token there is no result."""
    x, mask = torch.full((2, 5, 16), float("nan")), torch.ones(2, 5, dtype=torch.bool)
    x[1, 0], mask[1, 0] = 1.0, False
    with torch.no_grad():
        assert not _encoder()(x, src_key_padding_mask=mask).isnan().any()
        with pytest.raises(RuntimeError, match="at least one constituent tensor"):
            _encoder()(x, src_key_padding_mask=torch.ones_like(mask))


def test_a_mask_drops_nothing_where_no_nested_tensor_is_made() -> None:
    """A layer alone computes all tokens."""
    mask = torch.zeros(2, 5, dtype=torch.bool)
    layer = passed(_encoder().layers[0], (2, 5, 16), src_key_padding_mask=mask)
    whole = passed(_encoder().layers[0], (2, 5, 16))
    least, of_whole = total(layer).min_flop, total(whole).min_flop
    assert least is not None
    assert of_whole is not None
    assert 0.95 * of_whole < least <= of_whole


def test_an_exported_program_runs() -> None:
    exported = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),)).module()
    assert total(passed(exported, (3, 4))).macs == 24


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x.to_sparse() @ x, "sparse tensors are not supported"),
        (
            lambda x: torch.cond(x.shape[0] > 1, torch.sin, torch.cos, (x,)),
            "higher-order operator 'cond' cannot be counted|aten",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(
    model: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        passed(model, (4, 4))
        raise ModelError("aten: it could be counted")
    assert "0x" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sparse_parameters_are_refused() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8).to_sparse())

    with pytest.raises(ModelError, match="Sparse: 'weight' is a sparse tensor"):
        passed(Sparse(), (8, 4))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["nested", "sparse"])
def test_inputs_without_a_shape_or_strides_are_refused(kind: str) -> None:
    dense = torch.ones(2, 2)
    tensor = torch.nested.nested_tensor([dense]) if kind == "nested" else dense.to_sparse()
    with pytest.raises(InputError, match=f"{kind} tensors are not supported"):
        Inputs(tensor)


def test_texts_and_lists_of_numbers_are_arguments() -> None:
    captured = passed(F.interpolate, (1, 3, 8, 8), size=[16, 16], mode="nearest")
    assert captured.records[-1].outputs[0].shape == (1, 3, 16, 16)
