"""The work that is left of a model under the listed rewritings, by hand and by brute force."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from roofline.substitution.graphs.counting import count_records as records_of
from roofline.substitution.rules.rule import select_rules
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.rewritings import ModelWork, model_work
from roofline.workload.tensors import Role
from tests.substitution.rewriting import OPERATORS, applied_everywhere, graph_of
from tests.substitution.test_benchmark_networks import loaded
from tests.substitution.test_convolution_sum_rules import repvgg
from tests.workload.passes import passed, trained

FLOAT = 4


def work_of(model: Any, *inputs: Any) -> ModelWork:
    return model_work(passed(model.eval(), *inputs).records)


def flop(work: ModelWork) -> int:
    return sum(each for _, each in work.products)


def linears(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))


class Calls(nn.Module):
    """Modules and parameters, and a function of them and the input."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        self.given = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.given(self, *inputs)


def test_two_linears_become_one_where_the_value_between_them_is_wide():
    work = work_of(linears(1024, 4096, 1024), (8, 1024))
    assert [each for _, each in work.products] == [2 * 8 * 1024**2]
    assert work.read_bytes == FLOAT * (1024**2 + 8 * 1024)
    assert work.written_bytes == FLOAT * 8 * 1024


def test_two_linears_stay_two_where_the_value_between_them_is_narrow():
    work = work_of(linears(1024, 64, 1024), (8, 1024))
    assert [each for _, each in work.products] == [2 * 8 * 1024 * 64] * 2
    assert work.read_bytes == FLOAT * (2 * 1024 * 64 + 8 * 1024)


def test_a_low_rank_term_beside_a_linear_costs_nothing():
    """W x + B A x is one product; alone, B A x is two."""
    model = Calls(lambda m, x: m.w(x) + m.low(x), w=linears(64, 48), low=linears(64, 4, 48))
    assert flop(work_of(model, (8, 64))) == 2 * 8 * 64 * 48
    assert flop(work_of(linears(64, 4, 48), (8, 64))) == 2 * 8 * 4 * (64 + 48)


def test_a_value_that_is_returned_is_made_and_passed_by():
    """The wide value is needed, but what follows can read what it is made of."""
    model = Calls(lambda m, x: (m.a(x), m.b(m.a(x))), a=linears(8, 1000), b=linears(1000, 10))
    shared = Calls(lambda m, x: (y := m.a(x), m.b(y)), a=linears(8, 1000), b=linears(1000, 10))
    # Of what passes by, nothing is surely more than the product that reads the input anyway.
    assert 2 * 3 * 8 * 1000 <= flop(work_of(shared, (3, 8))) <= 2 * 3 * (8 * 1000 + 8 * 10)
    assert flop(work_of(model, (3, 8))) == 2 * 3 * (8 * 1000 + 8 * 10)


def test_an_activation_between_two_linears_keeps_them_apart():
    model = nn.Sequential(*linears(8, 64), nn.ReLU(), *linears(64, 8))
    assert flop(work_of(model, (4, 8))) == 2 * (2 * 4 * 8 * 64)


@settings(max_examples=40)
@given(widths=st.lists(st.integers(1, 12), min_size=2, max_size=5), rows=st.integers(1, 4))
def test_chains_of_pointwise_convolutions_by_all_ways_to_merge_them(widths: list[int], rows: int):
    model = nn.Sequential(*(nn.Conv2d(a, b, 1, bias=False) for a, b in pairwise(widths)))
    seams = range(1, len(widths) - 1)
    ways = [kept for count in range(len(seams) + 1) for kept in combinations(seams, count)]
    least = min(
        sum(widths[a] * widths[b] for a, b in pairwise([0, *kept, len(widths) - 1]))
        for kept in ways
    )
    found = flop(work_of(model, (1, widths[0], rows, 3)))
    assert found <= 2 * rows * 3 * least
    if len(widths) <= 3:
        assert found == 2 * rows * 3 * least


def dependences(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Pairs of an input and an output that depends on it, as torch computes them."""
    torch.manual_seed(0)
    found = torch.autograd.functional.jacobian(model.double(), torch.ones(shape).double())
    return int((found != 0).sum())


@settings(max_examples=30)
@given(
    channels=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    settings_=st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(1, 2)),
    groups=st.integers(1, 2),
)
def test_two_convolutions_in_a_row_take_no_more_than_is_left_of_them(
    channels: int, sizes: list[int], settings_: tuple[int, int, int], groups: int
):
    """Both, or one with the taps of the two, which torch's derivatives count."""
    stride, padding, dilation = settings_
    model = nn.Sequential(
        nn.Conv1d(2, 2 * channels, sizes[0], 1, padding, groups=groups, bias=False),
        nn.Conv1d(2 * channels, 2, sizes[1], stride, 0, dilation, groups=groups, bias=False),
    )
    shape = (1, 2, 9)
    between = model[0](torch.ones(shape)).shape
    apart = dependences(model[0], shape) + dependences(model[1], tuple(between))
    merged = dependences(model, shape)
    assert flop(work_of(model.float(), shape)) <= 2 * min(apart, merged)


def eliminated(matrices: dict[tuple[str, str], Tensor], inner: set[str]) -> int:
    """Numbers left in matrices between values when inner ones are left out, one by one."""
    left = dict(matrices)
    for value in inner:
        before = {a: m for (a, b), m in left.items() if b == value}
        after = {b: m for (a, b), m in left.items() if a == value}
        left = {pair: m for pair, m in left.items() if value not in pair}
        for a, first in before.items():
            for b, second in after.items():
                merged = second @ first
                left[a, b] = left[a, b] + merged if (a, b) in left else merged
    return sum(int((m != 0).sum()) for m in left.values() if not is_identity(m))


def is_identity(matrix: Tensor) -> bool:
    return matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, torch.eye(len(matrix)))


@settings(max_examples=40, deadline=None)
@given(
    stream=st.integers(1, 6),
    sources=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    sinks=st.lists(st.integers(1, 12), min_size=1, max_size=3),
)
def test_a_stream_of_several_sources_and_sinks_by_elimination(
    stream: int, sources: list[int], sinks: list[int]
):
    """Each block adds to the stream, and another one reads it."""
    count = min(len(sources), len(sinks))
    sources, sinks = sources[:count], sinks[:count]

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add = nn.ModuleList(linears(each, stream) for each in sources)
            self.read = nn.ModuleList(linears(stream, each) for each in sinks)

        def forward(self, *inputs: Tensor) -> list[Tensor]:
            results: list[Tensor] = []
            value: Any = 0
            for add, read, x in zip(self.add, self.read, inputs, strict=True):
                value = value + add(x.relu())
                results.append(read(value).relu())
            return results

    torch.manual_seed(0)
    matrices: dict[tuple[str, str], Tensor] = {}
    for n, (source, sink) in enumerate(zip(sources, sinks, strict=True)):
        matrices[f"a{n}", f"v{n}"] = torch.rand(stream, source) + 1
        matrices[f"v{n}", f"h{n}"] = torch.eye(stream)
        matrices[f"h{n}", f"e{n}"] = torch.rand(sink, stream) + 1
        if n:
            matrices[f"h{n - 1}", f"h{n}"] = torch.eye(stream)
    inner = [f"{kind}{n}" for kind in "vh" for n in range(count)]
    least = min(
        eliminated(matrices, set(chosen))
        for size in range(len(inner) + 1)
        for chosen in combinations(inner, size)
    )
    found = flop(work_of(Stream(), *[(5, each) for each in sources]))
    # A value may be left out for one reader alone, which can only save more.
    assert found <= 2 * 5 * least
    if all(each >= 2 * stream for each in (*sources, *sinks)):
        assert found == 2 * 5 * least


def test_the_branches_of_a_repvgg_block_become_its_3x3_convolution():
    work = work_of(repvgg(16, 16), (2, 16, 8, 8))
    (record, least), *others = work.products
    assert not others
    assert least == flop(work_of(nn.Conv2d(16, 16, 3, padding=1, bias=False), (2, 16, 8, 8)))
    assert record.inputs[1].shape == (16, 16, 3, 3)
    # The weight and the image; vectors beside it are not surely left.
    assert work.read_bytes == FLOAT * (16 * 16 * 9 + 2 * 16 * 64)


def test_a_linear_bottleneck_stays_as_it_is():
    """MobileNetV2: to few channels and back to many, with what was added before."""
    model = nn.Sequential(
        nn.ReLU(), *(nn.Conv2d(a, b, 1) for a, b in ((96, 16), (16, 96))), nn.ReLU()
    )
    work = work_of(model, (1, 96, 7, 7))
    assert len(work.products) == 2
    assert work.read_bytes >= FLOAT * (2 * 96 * 16 + 96 * 49)


def test_a_batch_norm_leaves_nothing_that_counts():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    work = work_of(model, (1, 3, 9, 9))
    assert work.read_bytes == FLOAT * (8 * 27 + 3 * 81)


def test_what_is_computed_of_weights_alone_is_done_before():
    """Of a normalized weight its own bytes are read, which are fewer than what it is made of."""
    model = nn.utils.parametrizations.weight_norm(nn.Linear(16, 4, bias=False))
    work = work_of(model, (5, 16))
    assert work.read_bytes == FLOAT * (16 * 4 + 5 * 16)
    low, high = nn.Linear(2, 16, bias=False), nn.Linear(4, 2, bias=False)
    product = Calls(lambda m, x: x @ (m.low.weight @ m.high.weight), low=low, high=high)
    folded = work_of(product, (5, 16))
    # The two factors are fewer bytes than their product; its FLOP are done before.
    assert folded.read_bytes == FLOAT * (16 * 2 + 2 * 4 + 5 * 16)
    assert flop(folded) == 2 * 5 * 16 * 4


def test_parts_that_are_assigned_are_merged_as_parts_that_are_joined():
    def assigned(m: Any, x: Tensor) -> Tensor:
        whole = x.new_empty(8, 128)
        whole[:, :64], whole[:, 64:] = m.a(x), m.b(x)
        return m.c(whole)

    parts = {"a": linears(32, 64), "b": linears(32, 64), "c": linears(128, 2)}
    joined = Calls(lambda m, x: m.c(torch.cat([m.a(x), m.b(x)], 1)), **parts)
    assert flop(work_of(Calls(assigned, **parts), (8, 32))) <= 2 * 8 * 32 * 2
    assert flop(work_of(joined, (8, 32))) <= 2 * 8 * 32 * 2


def test_what_is_merged_with_a_stride_reads_what_the_stride_leaves():
    """Both are one convolution by 1x1 with a stride of 4, which reads a sixteenth of the image."""
    model = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.Conv2d(8, 8, 1, 4, bias=False))
    work = work_of(model, (1, 8, 16, 16))
    one = work_of(nn.Conv2d(8, 8, 1, 4, bias=False), (1, 8, 16, 16))
    assert one.read_bytes == FLOAT * (8 * 4 * 4 + 8 * 8)
    assert FLOAT * 8 * 4 * 4 <= work.read_bytes <= one.read_bytes
    assert (work.written_bytes, flop(work)) == (one.written_bytes, flop(one))


def test_a_product_with_a_constant_vector_is_merged_as_one_with_a_matrix():
    vector = nn.Parameter(torch.ones(64))
    model = Calls(lambda m, x: m.w(x) @ m.vector, w=linears(48, 64)[0], vector=vector)
    assert flop(work_of(model, (8, 48))) == 2 * 8 * 48


def test_scales_and_shifts_of_addcmul_and_lerp_leave_linear_maps_together():
    """A batch norm that is written out with constants."""
    scale, shift = nn.Parameter(torch.ones(1, 64)), nn.Parameter(torch.ones(1, 64))
    a, b = linears(32, 64), linears(64, 2)
    model = Calls(
        lambda m, x: m.b(torch.addcmul(m.shift, m.a(x), m.scale)),
        a=a,
        b=b,
        scale=scale,
        shift=shift,
    )
    assert flop(work_of(model, (8, 32))) == 2 * 8 * 32 * 2
    mixed = Calls(lambda m, x: m.b(torch.lerp(m.a(x), m.a(x), 0.25)), a=a, b=b)
    assert flop(work_of(mixed, (8, 32))) == 2 * 8 * 32 * 2
    # A product of what is given is none.
    squared = Calls(lambda m, x: m.b(torch.addcmul(m.a(x), m.a(x), m.a(x))), a=a, b=b)
    assert flop(work_of(squared, (8, 32))) >= 2 * 8 * 64 * 2


def test_what_is_computed_of_a_weight_again_and_again_is_read_once():
    """A recurrent layer under autocast casts its weights at every step; one cast does for all."""

    def steps(m: Any, x: Tensor, scale: float) -> Tensor:
        for number in range(4):
            x = torch.relu(x @ (m.w.weight * (scale + number * (scale != 1.0))).half())
        return x

    half = FLOAT // 2
    equal = Calls(lambda m, x: steps(m, x, 1.0), w=linears(64, 64)[0])
    assert work_of(equal, torch.ones(8, 64).half()).read_bytes == half * (64 * 64 + 8 * 64)
    # Of four that differ, the weight itself is the least that can be read.
    unlike = Calls(lambda m, x: steps(m, x, 2.0), w=linears(64, 64)[0])
    assert work_of(unlike, torch.ones(8, 64).half()).read_bytes == FLOAT * 64 * 64 + half * 8 * 64


def test_a_product_that_no_one_reads_is_left_out():
    def forward(m: Any, x: Tensor) -> Tensor:
        m.unread(x).relu()
        return m.read(x)

    model = Calls(forward, unread=linears(8, 100), read=linears(8, 4))
    work = work_of(model, (3, 8))
    assert flop(work) == 2 * 3 * 8 * 4
    assert work.read_bytes == FLOAT * (8 * 4 + 3 * 8)


def test_a_table_counts_the_rows_that_are_read_and_a_tied_one_counts_once():
    table = nn.Embedding(1000, 16)
    rows = Calls(lambda m, x: m.table(x), table=table)
    tied = Calls(lambda m, x: m.table(x).tanh() @ m.table.weight.t(), table=table)
    tokens = torch.tensor([[1, 2, 3]])
    assert work_of(rows, tokens).read_bytes <= FLOAT * 3 * 16 + 3 * 8
    assert work_of(tied, tokens).read_bytes == FLOAT * 1000 * 16 + 3 * 8


def test_a_cache_that_grows_is_read_once_and_written_where_it_grew():
    def forward(m: Any, x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([keys, m.key(x)], dim=1)
        return (x @ keys.transpose(1, 2)).softmax(-1), keys

    work = work_of(Calls(forward, key=linears(8, 8)), (2, 1, 8), (2, 30, 8))
    assert work.read_bytes == FLOAT * (64 + 2 * 8 + 2 * 30 * 8)
    assert work.written_bytes == FLOAT * (2 * 31 + 2 * 8)


def test_of_a_value_that_is_cut_at_the_end_only_the_piece_is_surely_returned():
    work = work_of(Calls(lambda m, x: m.a(x)[:, 0], a=linears(8, 4)), (2, 5, 8))
    assert work.written_bytes == FLOAT * 2 * 4


def test_slices_of_one_weight_count_together():
    """Queries, keys and values of torch's attention lie in one matrix, each transposed."""
    attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).train()
    given = [torch.randn(2, 3, 8) for _ in range(3)]
    work = model_work(passed(attention, *given).records)
    assert work.read_bytes == FLOAT * (3 * 64 + 64 + 3 * 48)


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("adam", 2)])
def test_a_training_step_by_hand(optimizer: str, copies: int):
    """Weights, their gradients and both moments are written, and what the model gives."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    captured = trained(model, (5, 8), optimizer=optimizer, loss=torch.sum)
    work = model_work(captured.records)
    parameters = 8 * 16 + 16 + 16 * 4 + 4
    steps = 4 if copies else 0
    assert work.written_bytes == FLOAT * ((2 + copies) * parameters + steps + 5 * 4 + 1)
    assert work.read_bytes == FLOAT * 5 * 8
    # The first layer's input needs no gradient; biases are no products.
    assert flop(work) == 2 * 5 * (2 * 8 * 16 + 3 * 16 * 4)


def test_linears_of_a_training_step_are_not_merged():
    model = linears(16, 64, 16)
    work = model_work(trained(model, (4, 16), loss=torch.sum).records)
    assert flop(work) == 2 * 4 * 16 * 64 * 5


NETWORKS = ("resnet18", "resnet50", "vit_b_16", "mobilenet_v2", "swin_t")


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_of_these_networks_can_be_merged(name: str):
    library, reason = library_or_reason("torchvision")
    if library is None:
        pytest.skip(reason)
    model = library.models.get_model(name, weights=None).eval()
    records = passed(model, (1, 3, 224, 224)).records
    work = model_work(records)
    expected = [products_of(each) for each in records if each.work.macs]
    assert sorted(each for _, each in work.products) == sorted(expected)
    parameters = FLOAT * sum(each.numel() for each in model.parameters())
    norms = FLOAT * sum(
        each.weight.numel() + each.bias.numel()
        for each in model.modules()
        if isinstance(each, nn.BatchNorm2d)
    )
    assert work.read_bytes >= 0.998 * (parameters - norms)


def test_a_depthwise_convolution_before_a_pointwise_one_may_count_nothing():
    """Merged they take more, which the bound does not see: it loses 2 % of this network."""
    library, reason = library_or_reason("torchvision")
    if library is None:
        pytest.skip(reason)
    model = library.models.get_model("shufflenet_v2_x1_0", weights=None)
    records = passed(model.eval(), (1, 3, 224, 224)).records
    expected = sum(products_of(each) for each in records if each.work.macs)
    assert 0.98 * expected <= flop(model_work(records)) <= expected


def test_a_transposed_convolution_before_another_one_may_be_merged_with_it():
    """Each result depends on 2 x 2 places of 16 channels: not on 9 x 8, each made of 16."""
    model = nn.Sequential(
        nn.ConvTranspose2d(16, 8, 2, 2, bias=False), nn.Conv2d(8, 8, 3, padding=1, bias=False)
    )
    shape = (1, 16, 4, 4)
    apart = dependences(model[0], shape) + dependences(model[1], (1, 8, 8, 8))
    merged = dependences(model, shape)
    assert merged < apart
    assert 0.5 * 2 * merged <= flop(work_of(model.float(), shape)) <= 2 * merged


def test_nothing_of_bert_can_be_merged():
    if library_or_reason("transformers")[0] is None:
        pytest.skip("transformers is not installed")
    sizes = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=48"
    source = load_model("hf:bert", config=sizes)
    assert source.module is not None
    records = passed(source.module.eval(), torch.ones(2, 9, dtype=torch.int64)).records
    expected = [products_of(each) for each in records if each.work.macs]
    assert sorted(each for _, each in model_work(records).products) == sorted(expected)


def products_of(record: OperatorRecord) -> int:
    """Of these kinds of products, all that must be done; `test_least_products` counts them."""
    assert record.work.min_mac_flop is not None
    return record.work.min_mac_flop


RULES = ("all", "safe", "sum-convolutions", "absorb-residual", "enlarge-and-merge", "merge-gates")


def rewritings_of(model: nn.Module, *inputs: Tensor) -> list[list[OperatorRecord]]:
    """Records of what rules make of a model, each group of rules wherever it can be applied."""
    graph = graph_of(model, *inputs)
    found = [records_of(graph, OPERATORS).records]
    for names in RULES:
        changed = graph
        for rule in select_rules(names):
            if rule.name != "channels-last":
                changed, _ = applied_everywhere(changed, rule.name, most=40)
        found.append(records_of(changed, OPERATORS).records)
    return [list(each) for each in found]


def whole_reads(records: list[OperatorRecord]) -> int:
    """Bytes of all storages that a pass is given and touches."""
    ends: dict[int, int] = {}
    for record in records:
        if record.state is not State.FREE:
            for spec in record.inputs:
                if spec.role in (Role.PARAMETER, Role.BUFFER, Role.INPUT):
                    end = spec.offset_bytes + spec.byte
                    ends[spec.storage] = max(end, ends.get(spec.storage, 0))
    return sum(ends.values())


def assert_beats_all(model: nn.Module, *inputs: Tensor) -> None:
    """What no rule gets below; of a product with a bias, `min_flop` is that of its taps."""
    work = work_of(model, *inputs)
    for records in rewritings_of(model.eval(), *inputs):
        products = [each.work.min_flop for each in records if each.work.macs]
        assert sum(each or 0 for each in products) >= flop(work)
        assert whole_reads(records) >= work.read_bytes


def test_no_rule_gets_below_the_work_of_small_networks():
    small = loaded("small_linears")
    torch.manual_seed(0)
    assert_beats_all(repvgg(8, 8), torch.randn(2, 8, 8, 8))
    assert_beats_all(small.Eight(), torch.randn(1, 256))
    assert_beats_all(small.ThirtyTwo(), torch.randn(4, 128))
    assert_beats_all(loaded("recurrent").LongShortTermMemory(8), *torch.randn(3, 5, 8))


@pytest.mark.parametrize("name", ["squeezenet1_0", "googlenet"])
def test_no_rule_gets_below_the_work_of_networks(name: str):
    library, reason = library_or_reason("torchvision")
    if library is None:
        pytest.skip(reason)
    settings_ = {"init_weights": False} if name == "googlenet" else {}
    assert_beats_all(
        library.models.get_model(name, weights=None, **settings_), torch.randn(1, 3, 64, 64)
    )


def test_no_rule_gets_below_the_work_of_the_networks_of_the_benchmarks():
    assert_beats_all(loaded("repvgg").RepVGG(), torch.randn(1, 3, 32, 32))
    assert_beats_all(loaded("recurrent").RNNTC(), torch.randint(0, 100, (1, 20)))
