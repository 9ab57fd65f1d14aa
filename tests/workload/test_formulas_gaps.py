"""Operators that few models need: none is without a formula, and each is counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.workload.formulas import find
from roofline.workload.operators import State
from tests.workload.passes import passed, total

aten: Any = torch.ops.aten

FREE = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "_local_scalar_dense"),
        *("sym_is_contiguous", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride"),
        *("alias", "lift_fresh", "_fused_sdp_choice", "_assert_async", "_assert_tensor_metadata"),
        *("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "new_empty"),
        *("new_empty_strided", "is_same_size", "set", "resize_"),
    }
)
"""They allocate, or tell what is known without touching a number."""


def overloads() -> list[Any]:
    """All of aten's operators, one for each of their signatures."""
    packets = {name.split("::")[1].split(".")[0] for name in _names() if name.startswith("aten::")}
    return [
        getattr(packet, overload)
        for packet in (getattr(aten, name) for name in sorted(packets) if hasattr(aten, name))
        for overload in packet.overloads()
    ]


def _names() -> list[str]:
    return torch._C._dispatch_get_all_op_names()


def test_core_operators_have_formulas() -> None:
    """What torch calls core is what every other operator can be taken apart into."""
    missing = {
        func._opname
        for func in overloads()
        if torch.Tag.core in func.tags and not func.is_view and func._opname not in FREE
        if find(f"aten.{func._opname}", func._overloadname) is None
    }
    assert not missing


def _is_taken_apart(func: Any) -> bool:
    """Whether torch runs it as other operators, which are what is seen."""
    name = func.name()
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    except RuntimeError:
        # Some are in no dispatcher, but only in scripts.
        return True


FAMILIES = (
    *("special_", "fft_", "_fft_", "linalg_", "_linalg_"),
    *("cum", "unique", "_unique", "index_"),
)
ENDS = ("_loss", "_loss_forward", "_loss2d_forward", "_backward", "_backward_data")
OTHERS = (
    *("_sparse_", "_nested_", "mkldnn_", "_fake_quantize_learnable_"),
    *("_cudnn_ctc", "miopen_ctc", "_use_"),
)
"""Of tensors of other layouts, and kernels of libraries that torch calls nowhere."""


def test_families_of_operators_are_complete() -> None:
    """Those that have a kernel of their own, and so are not seen as others; all that go back."""
    missing = {
        func._opname
        for func in overloads()
        if (func._opname.startswith(FAMILIES) or func._opname.endswith(ENDS))
        and not func._opname.startswith(OTHERS)
        and not func._opname.endswith("_check_errors")
        and not func.is_view
        and not _is_taken_apart(func)
        and find(f"aten.{func._opname}", func._overloadname) is None
    }
    assert not missing


ELEMENTS: list[tuple[str, Callable[[Any], Any], int]] = [
    ("zeta", lambda x: torch.special.zeta(x + 2, x + 1) + 0, 8 + 3),
    ("polygamma", lambda x: torch.polygamma(2, x), 8),
    ("igamma", lambda x: torch.igamma(x, x), 8),
    ("igammac", lambda x: torch.igammac(x, x), 8),
    ("bessel", torch.special.bessel_j0, 8),
    ("modified bessel", torch.special.modified_bessel_k1, 8),
    ("airy", torch.special.airy_ai, 8),
    ("normal", torch.special.ndtri, 8),
    ("log normal", torch.special.log_ndtr, 8),
    ("polynomial", lambda x: torch.special.chebyshev_polynomial_t(x, 3), 8),
    ("multivariate gamma", lambda x: torch.mvlgamma(x + 3, 2), 1 + 2 * 2 + 2 * 8),
    ("angle", torch.angle, 2),
    ("conjugate", torch.conj_physical, 0),
    ("not a number", torch.isinf, 1),
    ("shift", lambda x: x.long() << 2, 0),
    ("cauchy", lambda x: x.clone().cauchy_(), 5 + 8),
    ("geometric", lambda x: x.clone().geometric_(0.5), 3 + 8),
    ("log normal draws", lambda x: x.clone().log_normal_(0, 1), (7 + 24) // 2 + 8),
    ("poisson", torch.poisson, 9 + 3 * 8),
    ("gamma", lambda x: aten._standard_gamma(x), 10 + 4 * 8),
]


@pytest.mark.parametrize(
    ("function", "each"), [pytest.param(call, each, id=name) for name, call, each in ELEMENTS]
)
def test_elements_by_hand(function: Callable[[Any], Any], each: int) -> None:
    """30 of them; 15 pairs of normal draws take 31 a pair."""
    work = total(passed(function, torch.rand(2, 5, 3) + 0.1))
    assert work.flop == 30 * each + (15 if function is ELEMENTS[-3][1] else 0)
    assert (work.min_flop or 0) <= (work.flop or 0)


ORDER: list[tuple[str, Callable[[Any], Any], int]] = [
    # 4 rows of 5: sorting 3 rounds of a comparison an element, then 4 a row.
    ("mode", lambda x: x.mode(-1), 60 + 16),
    # 20: 5 rounds, 19 comparisons with the one before.
    ("unique", lambda x: x.unique(), 100 + 19),
    ("unique rows", lambda x: x.unique(dim=0), 20 * 2 + 15),
    ("unique in order", lambda x: x.unique_consecutive(), 19),
    # 7 sorted: 3 rounds; 3 comparisons find one of eight places.
    ("is in", lambda x: torch.isin(x, torch.arange(7.0)), 21 + 60),
    ("count", lambda x: torch.bincount(x.flatten().long(), x.flatten()), 20),
    # 4 comparisons and products for a bin, and a weight; 5 edges are 3 comparisons.
    ("bins", lambda x: torch.histogram(x, 4, range=(0.0, 1.0)), 80),
    ("bins to be found", lambda x: torch.histogram(x, 4), 120),
    ("bins with weights", lambda x: torch.histogram(x, 4, range=(0.0, 1.0), weight=x), 100),
    ("bins with edges", lambda x: torch.histogram(x, torch.arange(5.0)), 60),
    ("places", lambda x: x.nonzero(), 0),
    ("selected", lambda x: x.masked_select(torch.ones(4, 5, dtype=torch.bool)), 0),
    ("selected by a mask", lambda x: x[torch.ones(4, 5, dtype=torch.bool)], 0),
    ("running", lambda x: x.logcumsumexp(-1), 16 * (5 + 2 * 8)),
    # A square an element, 4 sums and a root a row; a comparison and two for the factor; products.
    ("renorm", lambda x: x.renorm(2, 0, 1.0), 20 + 16 + 4 + 12 + 20),
    # 20 differences, squares, 19 sums, a root.
    ("distance", lambda x: torch.dist(x, x), 60),
    ("distance, broadcast", lambda x: torch.dist(x, x[0]), 60),
    ("segments", lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 3])), 10),
    ("reduced", lambda x: x.index_reduce(0, torch.tensor([0, 0]), x[:2], "prod"), 10),
    ("equal", lambda x: torch.equal(x, x), 20),
    ("close", lambda x: torch.allclose(x, x), 120),
    # A draw of 11 and a division an element, and the largest of each row.
    ("drawn", lambda x: x.multinomial(1), 20 * (11 + 1 + 1)),
    # Running sums and divisions, 36; 6 samples of a draw and 3 comparisons for each of 4 rows.
    ("drawn again", lambda x: x.multinomial(6, replacement=True), 36 + 24 * 4),
    ("steps", lambda x: torch.logspace(0, 1, 10), 10 * (2 + 8)),
    ("window", lambda x: torch.hann_window(10), 10 * (3 + 8)),
    ("frequencies", lambda x: torch.fft.fftfreq(10), 20),
]


@pytest.mark.parametrize(
    ("function", "flop"), [pytest.param(call, flop, id=name) for name, call, flop in ORDER]
)
def test_order_and_sets_by_hand(function: Callable[[Any], Any], flop: int) -> None:
    """A matrix of 4 x 5, in a real run where the result's size is in the values."""
    work = total(passed(function, torch.rand(4, 5) + 0.1))
    assert work.flop == flop
    assert 0 <= (work.min_flop or 0) <= flop


def test_masks_read_what_they_select() -> None:
    """3 of 20 elements, and the mask."""
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[0, :3] = True
    captured = passed(lambda x: x.masked_select(mask), torch.rand(4, 5))
    record = next(each for each in captured.records if each.op == "aten.masked_select")
    assert record.inputs[0].byte == 3 * 4


def test_packed_sequences_leave_padding() -> None:
    """Sequences of 4 and 2 steps of 3: 6 vectors of 8 that were padded."""
    lengths = torch.tensor([4, 2])
    captured = passed(
        lambda x: torch.nn.utils.rnn.pack_padded_sequence(x, lengths).data, torch.rand(4, 2, 3)
    )
    record = next(each for each in captured.records if each.op == "aten._pack_padded_sequence")
    assert record.inputs[0].distinct_elements == 6 * 3
    assert record.work.flop == 0


def test_padding_by_value_is_skipped_in_recurrent_models() -> None:
    """A model that packs its input: nothing of it is unknown."""
    layer = torch.nn.LSTM(3, 5)
    lengths = torch.tensor([4, 2])

    def model(x: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        return torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0]

    captured = passed(model, torch.rand(4, 2, 3))
    unknown = {each.op for each in captured.records if each.state is State.UNKNOWN}
    assert not unknown


@pytest.mark.parametrize(("decimals", "flop"), [(2, 72), (-1, 72), (0, 24)])
def test_rounding_to_decimals_scales_there_and_back(decimals: int, flop: int) -> None:
    """24 elements: a product, a rounding, a quotient; without decimals the rounding alone."""
    assert total(passed(lambda x: x.round(decimals=decimals), (4, 6))).flop == flop
    assert total(passed(lambda x: x.round_(decimals=decimals), (4, 6))).flop == flop


class _Calls(TorchDispatchMode):
    """What torch calls for real."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(f"aten.{func._opname}")
        return func(*args, **(kwargs or {}))


def test_one_hot_calls_what_it_calls_for_real() -> None:
    """A tensor on no device would take another way."""
    labels = torch.arange(24) % 5
    with torch.no_grad(), _Calls() as real:
        torch.nn.functional.one_hot(labels, 7)
    captured = passed(lambda x: torch.nn.functional.one_hot(x, 7), labels)
    assert not captured.notes
    called = [name for name in real.names if name != "aten._local_scalar_dense"]
    assert [each.op for each in captured.records] == called
    assert called == ["aten.aminmax", "aten.zeros", "aten.unsqueeze", "aten.scatter_"]
    # 24 labels of 8 bytes read twice; two limits; 24 x 7 zeros, of which 24 are written again.
    read, written = 24 * 8, 24 * 7 * 8
    assert total(captured).traffic_bytes == 2 * read + 16 + written + 2 * 24 * 8


OF_TORCH = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""torch scripts its forward derivatives when they are first asked for."""


def test_classes_in_the_values_make_one_hot_run_for_real() -> None:
    captured = passed(torch.nn.functional.one_hot, torch.arange(5))
    assert "needs tensor values" in captured.notes[0]
    assert captured.records[-1].outputs[0].shape == (5, 5)


@OF_TORCH
def test_forward_mode_differentiation_is_known() -> None:
    """A sine of 24, a cosine and a product."""
    captured = passed(
        lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)), torch.rand(4, 6)
    )
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    assert total(captured).flop == 24 * (8 + 8 + 1)


@OF_TORCH
@pytest.mark.parametrize(
    "function",
    [lambda x: (x**3).sum(), lambda x: (x.sin() * x + x / 2 - x.exp()).sum(), lambda x: x @ x],
)
def test_second_derivatives_are_known(function: Callable[..., Any]) -> None:
    """Zeros that have no memory are moved and multiplied by their shapes alone: that is free."""
    captured = passed(torch.func.hessian(function), torch.rand(4))
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    about_shapes = [each for each in captured.records if each.op.startswith("prims.")]
    assert all(each.state is State.FREE for each in about_shapes)
