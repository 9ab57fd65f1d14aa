"""What counts must be exactly, where no other file shows it: each number by hand or by walking.

Where else it is shown:

* ResNet-50, MobileNetV2, VGG-16, AlexNet to the last digit, and torchvision's own figures:
  ``test_counts.py``; BERT-base (11,174,215,680), GPT-2 (16,114,089,984), a Llama with grouped
  queries, ``vit_b_16`` on and off the fast path: ``test_counts_attention.py``
* recurrent layers, fused and not, against loops: ``test_formulas_recurrent.py``; backward:
  ``test_backward_recurrent.py``
* multi-head attention and encoder layers on and off the fast path: ``test_formulas_attention.py``
* convolutions (grouped, depthwise, dilated, strided, padded, transposed), all taps walked, and
  what padding leaves to be done, forward and backward: ``test_formulas_convolution.py``,
  ``test_touched.py``
* products: ``test_formulas_matmul.py``; distances: ``test_formulas_distance_draws.py``; Fourier
  transforms: ``test_formulas_fft.py``; ``linalg``: ``test_formulas_linear_algebra.py``
* attention in the CPU's kernel, causal and masked, with what a triangle leaves:
  ``test_formulas_attention.py``; backward: ``test_backward_attention.py``; CUDA's kernels, from
  their schemas: ``test_attention_kernels.py``
* packed weights: ``test_packed_weights.py``; products of all kinds: ``test_formulas_matmul.py``
* backward of a layer, twice and once; first layers of ResNet-50 and MobileNetV2:
  ``test_training.py``
* views, places given twice, stride 0, what is overwritten: ``test_capture.py``; rows, windows and
  masks, rows of embeddings: ``test_touched.py``; what the parts of
  fused operators hand to each other: ``test_formulas_recurrent.py``, ``test_formulas_attention.py``

Here: whole steps of training, all ways to run a model against each other, what operators that are
made of products multiply, and the bytes of a step.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roofline.run import Device, Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig
from roofline.workload.inputs import Inputs, resolve_inputs
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, OperatorRecord, Phase, State
from roofline.workload.work import Work
from tests.workload.passes import passed, trained, working

torchvision, _reason = library_or_reason("torchvision")
# These import only where torchvision does. timm announces what moved within itself.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import timm
    import transformers
    from timm.models import mlp_mixer
    from torchvision.models import convnext

WAYS: tuple[tuple[Device, bool], ...] = tuple(itertools.product(("cpu", "meta"), (False, True)))


def work_of(captured: Capture, phase: Phase | None = None) -> Work:
    """The sum over a phase, or all of it; nothing in it is unknown."""
    assert not any(each.state is State.UNKNOWN for each in captured.records)
    return sum(
        (each.work for each in captured.records if phase in (None, each.phase)), start=Work()
    )


def ran(module: torch.nn.Module, inputs: Inputs, device: Device, is_trained: bool) -> Capture:
    return capture(
        module,
        inputs,
        name="model",
        run=Run(device=device, train=is_trained),
        training=TrainingConfig() if is_trained else None,
    )


def forward(module: torch.nn.Module, *inputs: Any, **named: Any) -> set[int | None]:
    """Multiply-adds of the forward pass: on CPU and meta, with and without gradients."""
    return {work_of(ran(module, Inputs(*inputs, **named), *way), "forward").macs for way in WAYS}


# -- all ways to run a model -----------------------------------------------------------------------


class Both(torch.nn.Module):
    """Attention of an input to itself, with weights and without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x, x, x)[0] + self.layer(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize(
    ("make", "by_hand"),
    [
        # 3 samples of 5 tokens, 16 wide: four projections, two products of 5 x 5 x 16; all twice.
        (lambda: Both(), 2 * 3 * (4 * 5 * 16 * 16 + 2 * 5 * 5 * 16)),
        # The same once, and two linear layers between 16 and 32.
        (
            lambda: torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
            3 * (4 * 5 * 16 * 16 + 2 * 5 * 5 * 16 + 2 * 5 * 16 * 32),
        ),
    ],
    ids=["attention", "encoder"],
)
def test_attention(make: Callable[[], torch.nn.Module], by_hand: int, fast: bool) -> None:
    assert forward(make(), (3, 5, 16)) == {by_hand}


@pytest.mark.parametrize(
    ("kind", "gates"), [(torch.nn.LSTM, 4), (torch.nn.GRU, 3), (torch.nn.RNN, 1)]
)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}], ids=str)
def test_recurrent_layers(kind: Any, gates: int, options: dict[str, bool]) -> None:
    """7 steps of 2 sequences: a gate of 16 cells sees 8 inputs, or the layer below, and 16 states.

    oneDNN's kernel, torch's own (in training, and for float64), and what meta takes apart.
    """
    directions = 1 + options.get("bidirectional", False)
    layer = kind(8, 16, 2, **options)
    by_hand = 7 * 2 * gates * 16 * directions * ((8 + 16) + (16 * directions + 16))
    assert forward(layer, (7, 2, 8)) == {by_hand}
    assert work_of(passed(layer, (7, 2, 8), change="float64")).macs == by_hand
    with FlopCounterMode(display=False) as counter, torch.device("meta"), torch.no_grad():
        kind(8, 16, 2, **options)(torch.empty(7, 2, 8))
    assert counter.get_total_flops() == 2 * by_hand


class Text(torch.nn.Module):
    """Embeds, runs an LSTM over it, and scores the words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, 32)
        self.layer = torch.nn.LSTM(32, 64, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(64, 1000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(words))[0])


class Segmentation(torch.nn.Module):
    """Down and up again, as U-Net does: its way up is transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.deeper = torch.nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=4)
        self.up = torch.nn.ConvTranspose2d(32, 16, 2, stride=2, groups=2)
        self.end = torch.nn.ConvTranspose2d(32, 5, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.norm(self.down(x)).relu()
        both = torch.cat([first, self.up(self.deeper(first).relu())], dim=1)
        return self.end(F.dropout(both, 0.5, self.training))


def llama_like() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
    )
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config)


LAYERS = {
    "hf:gpt2": "n_layer=2",
    "hf:distilbert": "n_layers=2",
    "hf:t5": "num_layers=2",
    "hf:electra": "num_hidden_layers=2",
}
"""Of what stands in them a dozen times, alike, two are as good: T5's first layer is another."""

SHALLOW: Mapping[str, Callable[[], torch.nn.Module]] = {
    # Windows as they lie and shifted, and patches merged between.
    "swin_t": lambda: torchvision.models.SwinTransformer(  # pyright: ignore[reportOptionalMemberAccess]
        patch_size=[4, 4], embed_dim=96, depths=[2, 2], num_heads=[3, 6], window_size=[7, 7]
    ),
    "convnext_tiny": lambda: convnext.ConvNeXt(
        [convnext.CNBlockConfig(96, 192, 2), convnext.CNBlockConfig(192, None, 2)]
    ),
    "timm:mixer_b16_224": lambda: mlp_mixer.MlpMixer(patch_size=16, num_blocks=2, embed_dim=768),
    # The first block of each stage, and one that follows it.
    "timm:nfnet_f0": lambda: timm.create_model("nfnet_f0", depths=(1, 2, 1, 1)),
}


def in_short(name: str) -> tuple[torch.nn.Module, Inputs]:
    """The model, with no more layers of a kind than it has kinds, and two samples for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in SHALLOW:
            with torch.device("meta"):
                return SHALLOW[name](), Inputs((2, 3, 224, 224))
        found = load_model(name, config=LAYERS.get(name))
    return found.module, resolve_inputs(
        found.module, None, found.default_inputs, name=name, batch=2
    )


MADE: dict[str, tuple[Callable[[], torch.nn.Module], Mapping[str, Any], int]] = {
    # 16 cells, of whose states 5 numbers are made: 4 gates see 8 and 5, and a product 16 x 5.
    "projections": (
        lambda: torch.nn.LSTM(8, 16, proj_size=5),
        {"input": (7, 2, 8)},
        7 * 2 * (4 * 16 * (8 + 5) + 16 * 5),
    ),
    # 6 words of 2 texts: two layers of 64 cells on 32 and 64, and 64 x 1000 scores.
    "words": (
        Text,
        {"words": "2x6:int64"},
        2 * 6 * (4 * 64 * (32 + 64) + 4 * 64 * (64 + 64) + 64 * 1000),
    ),
    # 32 x 32 pixels: 16 x 16 of them, 8 x 8, and back. 3x3 from 3 to 16 channels; 3x3 to 32 from 4
    # each. Up: each of 8 x 8 inputs of 32 channels goes to 2 x 2 places of 8 channels, then each of
    # 16 x 16 of 32 to 4 x 4 of 5.
    "pixels": (
        Segmentation,
        {"x": (2, 3, 32, 32)},
        2 * (16 * 16 * 16 * 3 * 9 + 8 * 8 * 32 * 4 * 9)
        + 2 * (8 * 8 * 32 * 8 * 2 * 2 + 16 * 16 * 32 * 5 * 4 * 4),
    ),
    # 2 layers of 5 tokens, 64 wide: queries and output 64 x 64, keys and values 64 x 32.
    "tokens with shared keys": (
        llama_like,
        {"input_ids": "1x5:int64"},
        2 * (5 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 2 * 5 * 5 * 64) + 5 * 64 * 100,
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_models_by_hand(name: str) -> None:
    make, inputs, by_hand = MADE[name]
    assert forward(make(), **inputs) == {by_hand}


@pytest.mark.parametrize(
    "name",
    [
        *("mobilenet_v3_small", "shufflenet_v2_x0_5", "convnext_tiny", "swin_t", "r3d_18"),
        *("hf:gpt2", "hf:distilbert", "hf:t5", "hf:electra"),
        *("timm:mixer_b16_224", "timm:nfnet_f0", "timm:visformer_tiny"),
    ],
)
def test_devices_and_gradients_change_no_multiply_adds(name: str) -> None:
    """Convolutions of all kinds, windows, video, decoders, encoders, and what has no attention."""
    module, inputs = in_short(name)
    counts = {work_of(ran(module, inputs, *way), "forward").macs for way in WAYS}
    assert len(counts) == 1
    assert counts != {0}


# -- products under other names --------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.fixed_dictionaries({letter: st.integers(1, 5) for letter in "abcde"}),
    operands=st.tuples(
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True),
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True),
    ),
    kept=st.sets(st.sampled_from("abcde")),
)
def test_einsum_of_two(sizes: Mapping[str, int], operands: Any, kept: set[str]) -> None:
    """Never more than a product for every value of all its indices, and as many if it is a product.

    Indices in one operand alone that are not kept are summed first.
    """
    first, second = ("".join(each) for each in operands)
    result = "".join(sorted(kept & set(first + second)))
    equation = f"{first},{second}->{result}"
    shapes = [tuple(sizes[letter] for letter in each) for each in (first, second)]
    both = set(first) & set(second)
    points = math.prod(sizes[letter] for letter in both | set(result))
    captured = passed(lambda a, b: torch.einsum(equation, a, b), *shapes)
    assert work_of(captured).macs in (points, 0)
    if math.prod(sizes[letter] for letter in both - set(result)) > 1:
        assert work_of(captured).macs == points


# -- steps of training -----------------------------------------------------------------------------


LINEAR = 12 * (301_989_888 + 603_979_776) + 589_824
PRODUCT = 12 * 128 * 128 * 768
"""Of BERT-base on 128 tokens: all linear layers, and one of the two products of attention."""


@pytest.mark.parametrize(("dropout", "products"), [(0.1, 4), (0.0, 5)])
def test_a_step_of_bert(dropout: float, products: int) -> None:
    """All is multiplied three times: what comes first are tables, which multiply nothing.

    Without dropout in attention, the CPU's kernel does it, which keeps no weights: it makes them
    again for the backward pass, a product more than the four of the gradients.
    """
    config = transformers.BertConfig(attention_probs_dropout_prob=dropout)
    with torch.device("meta"):
        model = transformers.BertModel(config)
    captured = trained(model, input_ids="1x128:int64")
    assert work_of(captured, "forward").macs == LINEAR + 2 * PRODUCT == 11_174_215_680
    assert work_of(captured, "backward").macs == 2 * LINEAR + products * PRODUCT


@pytest.mark.parametrize("mask", ["", "causal", "given"])
def test_attention_of_one_head(mask: str) -> None:
    """By convention a mask leaves no product out: 6 x 6 pairs of 8 numbers, twice forward."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = x.new_ones(6, 6, dtype=torch.bool).tril() if mask == "given" else None
            q, k, v = x * self.scale, x * self.scale, x * self.scale
            return F.scaled_dot_product_attention(q, k, v, given, is_causal=mask == "causal")

    cpu = trained(Attention(), (1, 1, 6, 8))
    product = 6 * 6 * 8
    assert work_of(cpu, "forward").macs == 2 * product
    assert work_of(cpu, "backward").macs == 5 * product
    meta = ran(Attention(), Inputs((1, 1, 6, 8)), "meta", True)
    assert work_of(meta, "forward").macs == 2 * product
    # Taken apart, the weights are kept.
    assert work_of(meta, "backward").macs == 4 * product


# -- bytes -----------------------------------------------------------------------------------------

TABLE = torch.zeros(100, 8)
ROWS = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        # Three rows of eight floats, and three places of eight bytes.
        (lambda table, rows: F.embedding(rows, table), 3 * 32 + 3 * 8, 3 * 32),
        (lambda table, rows: table.index_select(0, rows), 3 * 32 + 3 * 8, 3 * 32),
        (lambda table, rows: table[rows], 3 * 32 + 3 * 8, 3 * 32),
        # One number of each of three rows.
        (lambda table, rows: table.gather(0, rows.reshape(3, 1)), 3 * 4 + 3 * 8, 3 * 4),
        (lambda table, rows: table.take(rows), 3 * 4 + 3 * 8, 3 * 4),
        # Copies read what they copy.
        (lambda table, rows: torch.ops.aten.select_copy(table, 0, 1), 32, 32),
        (lambda table, rows: torch.ops.aten.slice_copy(table, 0, 0, 2), 2 * 32, 2 * 32),
        (lambda table, rows: table.permute(1, 0).contiguous(), 100 * 32, 100 * 32),
        # The eight of a row for all of the table, once; and a number.
        (lambda table, rows: table + table.new_empty(8), 100 * 32 + 32, 100 * 32),
        (lambda table, rows: table * 2.0, 100 * 32, 100 * 32),
        (lambda table, rows: table[:1].expand(100, 8) + table, 100 * 32 + 32, 100 * 32),
        # Half of the columns, and the other half.
        (lambda table, rows: table[:, :4] + table[:, 4:], 2 * 100 * 16, 100 * 16),
        # In place: what is read is written.
        (lambda table, rows: (table + 0).relu_(), 2 * 100 * 32, 2 * 100 * 32),
        # Transposed, cut and joined again without a byte: the product sees all of it.
        (lambda table, rows: table.t().reshape(8, 10, 10).sum(), 100 * 32, 4),
    ],
)
def test_what_operators_touch(function: Callable[[Any, Any], Any], read: int, written: int) -> None:
    work = work_of(passed(function, TABLE, ROWS))
    assert (work.input_bytes, work.output_bytes) == (read, written)


def of_phase(captured: Capture, phase: Phase) -> list[OperatorRecord]:
    return [each for each in working(captured) if each.phase == phase]


def test_casts_in_a_step_under_autocast() -> None:
    """A linear layer 3 -> 2 on 4 rows: weight and input are halved, and the gradient is doubled.

    6 weights and 12 inputs of four bytes become two; 6 gradients of two bytes become four. The loss
    is computed in floats: 8 outputs of two bytes become four, and their gradients go back.
    """
    captured = capture(
        torch.nn.Linear(3, 2, bias=False),
        Inputs((4, 3)),
        name="",
        run=Run(train=True, autocast="bfloat16"),
        training=TrainingConfig(loss=lambda output: output.float().square().sum()),
    )
    casts = [each for each in working(captured) if each.op == "aten._to_copy"]
    # In which order C++ takes the operands of a product is left to it.
    assert sorted((each.phase, each.work.traffic_bytes) for each in casts) == [
        ("backward", 6 * (2 + 4)),
        ("backward", 8 * (4 + 2)),
        ("forward", 6 * (4 + 2)),
        ("forward", 8 * (2 + 4)),
        ("forward", 12 * (4 + 2)),
    ]
    # Gradients are read where they are doubled and written: 12 bytes and 24.
    assert casts[-1].work.gradient_bytes == 6 * (2 + 4)


def small_step(optimizer: str | None) -> Capture:
    """Two linear layers 3 -> 5 -> 2 on 4 rows: 25 weights."""
    layers = (torch.nn.Linear(3, 5, bias=False), torch.nn.Linear(5, 2, bias=False))
    return trained(torch.nn.Sequential(*layers), (4, 3), optimizer=optimizer)


def test_gradients_of_two_layers() -> None:
    """The products of the backward pass, in floats.

    Of the second weight: 8 gradients of outputs and 20 hidden numbers give 10. Of the hidden
    numbers: 8 and 10 weights give 20. Of the first weight: 20 and 12 inputs give 15.
    """
    products = [each for each in of_phase(small_step(None), "backward") if each.op == "aten.mm"]
    found = [
        (each.work.gradient_bytes, each.work.parameter_bytes, each.work.input_bytes)
        for each in products
    ]
    assert found == [
        (4 * (8 + 10), 0, 4 * 20),
        (4 * (8 + 20), 4 * 10, 0),
        (4 * (20 + 15), 0, 4 * 12),
    ]


@pytest.mark.parametrize(
    ("optimizer", "parameter", "gradient", "state", "temporary"),
    [
        # weight += -lr * gradient
        ("sgd", 2, 1, 0, 0),
        # First moment: read, written, and the gradient; second: decayed, then the gradient's square
        # added. Its root, divided, plus epsilon, in place: three written and two read. The weight
        # is read and written with the first moment and that.
        ("adam", 2, 2, 2 + 2 + 2 + 1 + 1, 1 + 2 + 2 + 1),
        # Before, the weight decays.
        ("adamw", 2 + 2, 2, 2 + 2 + 2 + 1 + 1, 1 + 2 + 2 + 1),
    ],
)
def test_bytes_of_an_update(
    optimizer: str, parameter: int, gradient: int, state: int, temporary: int
) -> None:
    """So many floats for each of 25 weights; Adam counts steps in a float a tensor."""
    work = work_of(small_step(optimizer), "optimizer")
    counters = 0 if optimizer == "sgd" else 2 * 2 * 4
    assert work.parameter_bytes == 4 * 25 * parameter
    assert work.gradient_bytes == 4 * 25 * gradient
    assert work.optimizer_bytes == 4 * 25 * state + counters
    assert work.input_bytes + work.output_bytes == 4 * 25 * temporary


def test_momentum_is_kept() -> None:
    """momentum * buffer + gradient, then the weight: the buffer is read, written, read, written."""
    captured = capture(
        torch.nn.Linear(5, 5, bias=False),
        Inputs((4, 5)),
        name="",
        run=Run(train=True, optimizer="SGD"),
        training=TrainingConfig(
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        ),
    )
    work = work_of(captured, "optimizer")
    # buffer *= momentum; buffer += gradient; weight += -lr * buffer
    assert work.optimizer_bytes == 4 * 25 * (2 + 2 + 1)
    assert (work.parameter_bytes, work.gradient_bytes) == (4 * 25 * 2, 4 * 25)
    assert captured.optimizer_state_bytes == 4 * 25
