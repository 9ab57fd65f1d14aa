"""Tensors, how they lie in memory, work and its algebra, and how operands become bytes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.workload.capture.operands import Operands
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import FLOP_PER_MAC, Work, traffic_of
from tests.workload.passes import only, passed

counts = st.integers(0, 10**12)
works = st.builds(
    Work,
    flop=counts,
    macs=counts,
    min_flop=counts,
    parameter_bytes=counts,
    input_bytes=counts,
    output_bytes=counts,
    gradient_bytes=counts,
    optimizer_bytes=counts,
)


def spec(elements: int = 6, of: str = "float32", role: Role = Role.ACTIVATION) -> TensorSpec:
    return TensorSpec(
        shape=(2, elements // 2), dtype=dtype(of), distinct_elements=elements, storage=0, role=role
    )


def test_a_fused_multiply_add_is_two_operations() -> None:
    assert FLOP_PER_MAC == 2


@pytest.mark.parametrize(
    ("of", "byte"),
    [("float64", 48), ("float32", 24), ("bfloat16", 12), ("int8", 6), ("bool", 6), ("int4", 3)],
)
def test_bytes_of_six_elements(of: str, byte: int) -> None:
    """6 elements of 8, 4, 2, 1 and half a byte."""
    assert spec(of=of).byte == byte


def test_elements_are_those_of_the_shape_bytes_those_in_memory() -> None:
    """A 2x3 that repeats one number has six elements and takes four bytes."""
    repeated = TensorSpec(
        shape=(2, 3), dtype=dtype("float32"), distinct_elements=1, storage=0, role=Role.INPUT
    )
    assert (repeated.elements, repeated.byte) == (6, 4)


def test_a_scalar_has_one_element() -> None:
    scalar = TensorSpec(
        shape=(), dtype=dtype("float32"), distinct_elements=1, storage=0, role=Role.INPUT
    )
    assert (scalar.elements, scalar.byte) == (1, 4)


@pytest.mark.parametrize("role", Role)
def test_what_persists(role: Role) -> None:
    """Activations and gradients come and go with a pass; the rest stays."""
    assert role.persists == (role not in (Role.ACTIVATION, Role.GRADIENT))


@given(a=works, b=works, c=works)
def test_addition(a: Work, b: Work, c: Work) -> None:
    """Associative and commutative, with no work as zero; traffic adds up too."""
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Work() == a
    assert sum([a, b, c]) == a + b + c
    assert (a + b).traffic_bytes == a.traffic_bytes + b.traffic_bytes


@given(a=works)
def test_unknown_plus_anything_is_unknown(a: Work) -> None:
    """But the bytes are still known."""
    unknown = Work(flop=None, macs=None, min_flop=None, input_bytes=8)
    both = unknown + a
    assert (both.flop, both.macs, both.min_flop) == (None, None, None)
    assert both.input_bytes == a.input_bytes + 8
    assert both == a + unknown


def test_only_zero_and_work_can_be_added() -> None:
    """`sum` starts at 0; anything else is a mistake."""
    other: Any = 1
    with pytest.raises(TypeError):
        _ = other + Work()


def test_intensity() -> None:
    """12 FLOP on 24 bytes; none where nothing moves or FLOP is unknown."""
    assert Work(flop=12, input_bytes=16, output_bytes=8).intensity_flop_per_byte == 0.5
    assert Work(flop=12).intensity_flop_per_byte is None
    assert Work(flop=None, input_bytes=4).intensity_flop_per_byte is None


def test_intensity_of_nothing_computed_is_zero() -> None:
    """A copy is known to compute nothing, which is not the same as unknown."""
    assert Work(input_bytes=4).intensity_flop_per_byte == 0


@pytest.mark.parametrize(
    ("role", "read", "written"),
    [
        (Role.PARAMETER, "parameter_bytes", "parameter_bytes"),
        (Role.BUFFER, "parameter_bytes", "parameter_bytes"),
        (Role.INPUT, "input_bytes", "output_bytes"),
        (Role.ACTIVATION, "input_bytes", "output_bytes"),
        (Role.GRADIENT, "gradient_bytes", "gradient_bytes"),
        (Role.OPTIMIZER_STATE, "optimizer_bytes", "optimizer_bytes"),
    ],
)
def test_where_bytes_count(role: Role, read: str, written: str) -> None:
    """24 bytes read, and 24 written, by what the tensor is to the model."""
    assert traffic_of([spec(role=role)], []) == {read: 24}
    assert traffic_of([], [spec(role=role)]) == {written: 24}


def test_in_place_is_read_and_written() -> None:
    """An operand that is listed twice counts twice."""
    assert traffic_of([spec()], [spec()]) == {"input_bytes": 24, "output_bytes": 24}


@given(elements=st.integers(0, 1000), sizes=st.sampled_from([("float32", "float16")]))
def test_half_the_width_halves_the_bytes(elements: int, sizes: tuple[str, str]) -> None:
    wide, narrow = sizes
    assert spec(2 * elements, wide).byte == 2 * spec(2 * elements, narrow).byte


layouts = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=4)


@given(layout=layouts, offset=st.integers(0, 3))
def test_distinct_elements_against_a_walk_over_all_of_them(
    layout: list[tuple[int, int]], offset: int
) -> None:
    """Any strides, however dimensions overlap."""
    sizes, strides = zip(*layout, strict=True)
    places = {
        sum(i * stride for i, stride in zip(at, strides, strict=True))
        for at in product(*map(range, sizes))
    }
    base = torch.zeros(4 * 3 * 9 + 4)
    view = base.as_strided(sizes, strides, offset)
    (operand, *_) = only(passed(lambda x: x + 1, view)).inputs
    assert operand.shape == sizes
    assert operand.distinct_elements == len(places)


@pytest.mark.parametrize(
    ("view", "distinct"),
    [
        (lambda x: x, 32),
        (lambda x: x.T, 32),
        (lambda x: x[1], 8),
        (lambda x: x[:, ::2], 16),
        (lambda x: x[:1].expand(5, 8), 8),
        (lambda x: x[0, 0].expand(5, 8), 1),
        (lambda x: x.unfold(1, 3, 1), 32),  # 6 windows of 3 over each row of 8
        (lambda x: x[0].unfold(0, 3, 1), 8),
        (lambda x: x[0].unfold(0, 2, 3), 6),  # windows that leave gaps
        (lambda x: x.view(4, 2, 4).permute(2, 0, 1), 32),
        (lambda x: x[:, :4].unfold(1, 2, 1), 16),  # 3 windows of 2 over a half of each row
        (lambda x: x[1:3, :6].unfold(0, 2, 1).unfold(1, 3, 1), 12),
        (lambda x: x[:, ::2].unfold(1, 2, 1), 16),
    ],
)
def test_distinct_elements_of_common_views(view: Any, distinct: int) -> None:
    """What a view of a 4x8 can touch."""
    assert only(passed(lambda x: view(x) * 2, (4, 8))).inputs[0].distinct_elements == distinct


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
