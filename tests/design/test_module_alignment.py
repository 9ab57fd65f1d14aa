"""Who is whose counterpart: by path, by order and class, or nobody; sums are kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import roofline
from roofline.analysis import Analysis, Module
from roofline.design.comparison.alignment import align_modules, align_types
from roofline.design.comparison.result import Comparison
from roofline.workload.tensors import Role
from tests.analysis.examples import Network, analysis_of, dram_profile

DRAM = "10980xe"


def model(*modules: tuple[str, str]) -> Analysis:
    """One operator of 100 FLOP, 800 bytes and 80 ns in each module of that path and class."""
    net = Network()
    x = net.tensor(1, 100, role=Role.INPUT)
    for path, _ in modules:
        net.call("aten.neg", "pointwise", path, (x,), net.tensor(1, 100), flop=100)
    listed = [Module(path="", kind="Net", calls=1, parameters=0)]
    listed += [Module(path=path, kind=kind, calls=1, parameters=0) for path, kind in modules]
    return analysis_of(net, dram_profile(), modules=listed)


def side_by_side(*models: Analysis, reference: int = 0) -> list[tuple[str | None, ...]]:
    found = align_modules(models, reference=reference)
    return [tuple(each.name if each else None for each in row.parts) for row in found.rows]


def test_paths_come_first_and_the_rest_by_order_and_class() -> None:
    a = model(("stem", "Conv2d"), ("act", "ReLU"), ("body", "Conv2d"), ("head", "Linear"))
    b = model(("stem", "Conv2d"), ("extra", "Norm"), ("middle", "Conv2d"), ("head", "Linear"))
    # Between stem and head, the convolutions are alike; ReLU and Norm stand in each other's place.
    assert side_by_side(a, b) == [
        ("stem", "stem"),
        ("act", "extra"),
        ("body", "middle"),
        ("head", "head"),
    ]


def test_what_only_one_has_stands_alone_where_it_runs() -> None:
    a = model(("conv", "Conv2d"), ("head", "Linear"))
    b = model(("conv", "Conv2d"), ("pointwise", "Conv2d"), ("norm", "Norm"), ("head", "Linear"))
    assert side_by_side(a, b) == [
        ("conv", "conv"),
        (None, "pointwise"),
        (None, "norm"),
        ("head", "head"),
    ]
    assert side_by_side(b, a) == [
        ("conv", "conv"),
        ("pointwise", None),
        ("norm", None),
        ("head", "head"),
    ]


def test_a_third_model_shares_what_the_reference_lacks() -> None:
    a = model(("conv", "Conv2d"))
    b = model(("conv", "Conv2d"), ("norm", "Norm"))
    c = model(("first", "Dropout"), ("conv", "Conv2d"), ("norm", "Norm"))
    assert side_by_side(a, b, c) == [
        (None, None, "first"),
        ("conv", "conv", "conv"),
        (None, "norm", "norm"),
    ]


paths = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["Conv2d", "ReLU", "Norm"])),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each[0],
)


@settings(deadline=None, max_examples=60)
@given(st.lists(paths, min_size=2, max_size=4), st.data())
def test_every_module_stands_in_one_row_and_sums_are_kept(
    models: list[list[tuple[str, str]]], data: st.DataObject
) -> None:
    reference = data.draw(st.integers(0, len(models) - 1))
    analyses = [model(*each) for each in models]
    found = align_modules(analyses, reference=reference)
    for number, each in enumerate(models):
        column = [row.parts[number] for row in found.rows if row.parts[number]]
        assert sorted(part.name for part in column if part) == sorted(path for path, _ in each)
        assert sum(part.time_s or 0 for part in column if part) == pytest.approx(
            analyses[number].totals.eager_min_time_s
        )
        assert sum(part.flop or 0 for part in column if part) == analyses[number].totals.flop
        assert sum(part.share or 0 for part in column if part) == pytest.approx(1.0)
    # Whoever has the path of the reference stands beside it.
    for row in found.rows:
        base = row.parts[reference]
        for number, other in enumerate(models):
            if base and base.name in dict(other):
                part = row.parts[number]
                assert part is not None
                assert part.name == base.name
    order = [row.parts[reference] for row in found.rows if row.parts[reference]]
    assert [each.name for each in order if each] == [path for path, _ in models[reference]]


def test_types_are_counterparts_by_name() -> None:
    a = model(("x", "ReLU"), ("y", "ReLU"))
    found = align_types([a, model(("z", "ReLU"))])
    (row,) = found.rows
    assert [each and (each.name, each.flop) for each in row.parts] == [
        ("pointwise", 200),
        ("pointwise", 100),
    ]


def test_kin_share_modules() -> None:
    a = model(("a", "ReLU"), ("b", "Norm"), ("c", "Conv2d"))
    assert align_modules([a, model(("a", "ReLU"), ("b", "Norm"))]).is_similar(0)
    stranger = model(("x", "Linear"), ("y", "Softmax"), ("z", "Linear"), ("w", "Linear"))
    assert not align_modules([a, stranger]).is_similar(0)


class Block(nn.Module):
    """A convolution, normalised, and an activation of its own."""

    def __init__(self, groups: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False)
        self.activation = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.conv(x)) + x


def test_models_of_torch_side_by_side() -> None:
    """10 x 10 x 8 outputs of 72 or 9 multiply-adds, in the second block of two."""
    pair = [
        nn.Sequential(Block(1, nn.ReLU), Block(groups, activation))
        for groups, activation in ((1, nn.ReLU), (8, nn.SiLU))
    ]
    comparison = roofline.compare(*pair, inputs=(1, 8, 10, 10), names=["a", "b"], hardware=DRAM)
    assert isinstance(comparison, Comparison)
    rows = {row.name: row for row in comparison.modules().rows}
    assert list(rows) == ["0.(own)", "0.conv", "0.activation", "1.(own)", "1.conv", "1.activation"]
    assert [each and each.flop for each in rows["1.conv"].parts] == [115_200, 14_400]
    assert [each and each.kind for each in rows["1.activation"].parts] == ["ReLU", "SiLU"]
    whole = comparison.modules(depth=1).rows
    assert [row.name for row in whole] == ["0", "1"]
    assert [each and each.flop for each in whole[0].parts] == [115_200 + 800 + 800] * 2


def test_work_is_that_of_one_sample_where_batches_differ() -> None:
    comparison = roofline.compare(
        nn.Conv2d(8, 8, 1), inputs=(1, 8, 4, 4), batch=[1, 4], hardware=DRAM
    )
    assert isinstance(comparison, Comparison)
    (row,) = comparison.modules().rows
    first, second = row.parts
    assert first is not None
    assert second is not None
    assert first.flop == second.flop
    # The weights are read once for four: 2 x 512 bytes of the sample, and 288 of 4 x 72.
    assert first.traffic_bytes - second.traffic_bytes == pytest.approx(288 * 3 / 4)
