"""Modules of designs: what they count is what the same module counts that is built by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.core.source_errors import PlacedError
from roofline.errors import InputError, ModelError
from roofline.workload.inputs import InputRequest
from roofline.workload.models.designs import SelfAttention, separable
from roofline.workload.models.expressions.layers import layer_class, layer_names
from roofline.workload.models.libraries.names import listed_layers
from roofline.workload.models.sources import load_model

OWN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride, 1)

    def forward(self, x):
        return torch.relu(self.conv(x))

class Two(nn.Module):
    def forward(self, x, y):
        return x + y

class Pair(nn.Module):
    def forward(self, x):
        return x, x

class Valued(nn.Module):
    def forward(self, x):
        return x[: int(x.sum() > 0) + 1]

class Keeping(nn.Module):
    def forward(self, x):
        if not hasattr(self, "kept"):
            self.kept = torch.arange(x.shape[-1]).to(x.dtype)
        return x + self.kept

class Real(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, int(torch.ones(2).sum()), 1)

    def forward(self, x):
        return self.conv(x)

def broken(number):
    raise ValueError(f"no {number}")

def text():
    return "text"

read = 0
read += 1
ready = Block(8)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models in it, to stand in."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "a+b.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def totals(model: Any, inputs: Any = None, **options: Any) -> tuple[object, ...]:
    """What an analysis says of a model, but for its names."""
    found = roofline.analyze(model, inputs, hardware="10980xe", **options)
    rows = sorted((row.op, row.flop, row.traffic_bytes) for row in found.operators)
    return (found.totals, rows)


def refusal(written: str) -> str:
    """What is said of a design, whose caret must stand where ``^`` does in `written`."""
    text = written.replace("^", "")
    with pytest.raises(PlacedError) as caught:
        load_model(text)
    assert caught.value.at == written.index("^")
    assert "\n" not in caught.value.message
    return caught.value.message


# -- against modules built by hand -----------------------------------------------------------------


class _Output(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class _Added(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + x


BY_HAND: list[tuple[str, Callable[[], nn.Module], Any]] = [
    ("conv2d(64,32,3,padding=1)@28x28", lambda: nn.Conv2d(64, 32, 3, padding=1), (1, 64, 28, 28)),
    (
        "conv2d(16,16,3,groups=16)+conv2d(16,16,1)@28x28",
        lambda: nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 16, 1)),
        (1, 16, 28, 28),
    ),
    (
        "conv2d(16,16,3,padding=1,groups=16,bias=false)+batchnorm2d(16)+relu(true)"
        "+conv2d(16,32,1,bias=false)+batch_norm2d(32)+relu(inplace=True)@2x16x9x9",
        lambda: nn.Sequential(
            *(layer for block in separable(16, 32).children() for layer in block.children())
        ),
        (2, 16, 9, 9),
    ),
    ("linear(40,30)@1x40", lambda: nn.Linear(40, 30), (1, 40)),
    (
        "conv1d(3,4,3,padding=same,padding_mode=reflect)@56",
        lambda: nn.Conv1d(3, 4, 3, padding="same", padding_mode="reflect"),
        (1, 3, 56),
    ),
    ("conv3d(3,4,(1,3,3))@8x16x16", lambda: nn.Conv3d(3, 4, (1, 3, 3)), (1, 3, 8, 16, 16)),
    (
        "conv_transpose2d(3,4,2,stride=2)@8x8",
        lambda: nn.ConvTranspose2d(3, 4, 2, stride=2),
        (1, 3, 8, 8),
    ),
    ("batchnorm2d(64)@28x28", lambda: nn.BatchNorm2d(64), (1, 64, 28, 28)),
    ("layernorm((4,8))@2x4x8", lambda: nn.LayerNorm([4, 8]), (2, 4, 8)),
    ("groupnorm(2,8)@1x8x5x5", lambda: nn.GroupNorm(2, 8), (1, 8, 5, 5)),
    ("rmsnorm(8)@1x8", lambda: nn.RMSNorm(8), (1, 8)),
    ("gelu(tanh)@1x8", lambda: nn.GELU("tanh"), (1, 8)),
    ("softmax()@2x8", lambda: nn.Softmax(dim=-1), (2, 8)),
    (
        "upsample(scale_factor=2,mode=bilinear)@1x3x8x8",
        lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        (1, 3, 8, 8),
    ),
    ("maxpool2d(3,2,1)@1x3x8x8", lambda: nn.MaxPool2d(3, 2, 1), (1, 3, 8, 8)),
    ("adaptiveavgpool2d((1,none))@1x3x8x8", lambda: nn.AdaptiveAvgPool2d((1, None)), (1, 3, 8, 8)),
    (
        "lstm(8,16,num_layers=2)@1x5x8",
        lambda: _Output(nn.LSTM(8, 16, num_layers=2, batch_first=True)),
        (1, 5, 8),
    ),
    ("gru(8,16)@1x5x8", lambda: _Output(nn.GRU(8, 16, batch_first=True)), (1, 5, 8)),
    (
        "rnn(8,16,nonlinearity=relu,batch_first=false)@5x1x8",
        lambda: _Output(nn.RNN(8, 16, nonlinearity="relu")),
        (5, 1, 8),
    ),
    (
        "rnn(8,16,1,relu,false)@1x5x8",
        lambda: _Output(nn.RNN(8, 16, 1, "relu", False, batch_first=True)),
        (1, 5, 8),
    ),
    ("attention(16,4)@1x5x16", lambda: SelfAttention(16, 4), (1, 5, 16)),
    ("multiheadattention(16,4)@1x5x16", lambda: SelfAttention(16, 4), (1, 5, 16)),
    (
        "transformerencoderlayer(16,4,32)@1x5x16",
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        (1, 5, 16),
    ),
    ("embedding(100,8)@2x5", lambda: nn.Embedding(100, 8), "2x5:int64"),
    (
        "residual(linear(8,8)+relu())@1x8",
        lambda: _Added(nn.Linear(8, 8), nn.ReLU()),
        (1, 8),
    ),
    (
        "2*(linear(8,8)+2*relu())+(sigmoid()+identity())@1x8",
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()) for _ in range(2)), nn.Sigmoid()
        ),
        (1, 8),
    ),
    ("bilinear(3,4,5)@2x3,2x4", lambda: nn.Bilinear(3, 4, 5), ["2x3", "2x4"]),
]


@pytest.mark.parametrize(("text", "make", "inputs"), BY_HAND, ids=[each[0] for each in BY_HAND])
def test_counts_are_those_of_the_module_built_by_hand(
    text: str, make: Callable[[], nn.Module], inputs: Any
) -> None:
    assert totals(text) == totals(make(), inputs)


@pytest.mark.parametrize(
    "options",
    [
        {"train": True},
        {"batch": 8},
        {"dtype": "bfloat16"},
        {"channels_last": True},
        {"train": True, "batch": 3, "optimizer": "sgd"},
    ],
)
def test_runs_are_as_with_other_models(options: dict[str, Any]) -> None:
    text = "conv2d(8,8,3)+batchnorm2d(8)+relu()+flatten()+linear(32,10)@4x4"

    def made() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10)
        )

    assert totals(text, **options) == totals(made(), (1, 8, 4, 4), **options)


# -- layers ----------------------------------------------------------------------------------------


def test_every_layer_of_torch_is_known() -> None:
    """Found from torch.nn: what has a forward with an argument, but losses and containers."""
    known = {layer_class(name).kind for name in layer_names()}  # type: ignore[union-attr]
    public = {
        each
        for name, each in vars(nn).items()
        if isinstance(each, type) and issubclass(each, nn.Module)
    }
    without = {each.__name__ for each in public - known}
    assert all(
        name.startswith("Lazy") or "Loss" in name or name.endswith(("List", "Dict", "Base"))
        for name in without
        - {"Module", "Container", "DataParallel"}
        - {"Sequential", "TransformerEncoder", "TransformerDecoder"}
    )


def test_names_for_completion_are_those_of_the_layers() -> None:
    """They are read from torch's source, without importing it."""
    assert set(listed_layers()) == {*layer_names(), "residual"}


@pytest.mark.parametrize("name", layer_names())
def test_every_layer_says_what_it_takes(name: str) -> None:
    kind = layer_class(name)
    assert kind is not None
    if name == "identity":
        # torch's takes whatever there is.
        assert load_model("identity(no_such_argument=1)@1x1").default_inputs
        return
    message = refusal(f"relu()+{name}(^no_such_argument=1)@1x1")
    assert f"{name} has no argument 'no_such_argument'" in message


def test_names_with_underscores_and_capitals() -> None:
    names = ("ConvTranspose2d", "conv_transpose2d", "convtranspose2d", "conv_transpose_2d")
    assert {layer_class(name) for name in names} == {layer_class("convtranspose2d")}


# -- the module ------------------------------------------------------------------------------------


def test_nothing_is_allocated_and_can_be_built_with_weights() -> None:
    source = load_model("linear(1000000,1000000)+relu()@1x1000000")
    assert {each.device.type for each in source.module.parameters()} == {"meta"}
    small = load_model("2*linear(4,4)@1x4")
    assert small.rebuild is not None
    weights = [each for each in small.rebuild().parameters() if each.dim() == 2]
    assert {each.device.type for each in weights} == {"cpu"}
    assert not torch.equal(*weights)


def test_names_of_modules_align_comparisons() -> None:
    source = load_model(
        "conv2d(8,8,3,groups=8)+relu()+conv2d(8,8,1)+2*(relu()+residual(relu()))+attention(4,2)@8x6x6"
    )
    paths = [path for path, _ in source.module.named_modules() if "out_proj" not in path]
    assert paths == [
        *("", "conv2d", "relu", "conv2d_2"),
        *("group", "group.relu", "group.residual", "group.residual.relu"),
        *("group_2", "group_2.relu", "group_2.residual", "group_2.residual.relu"),
        "multiheadattention",
    ]


def test_names_of_modules_cannot_clash(folder: Path) -> None:
    (folder / "b.py").write_text("from torch import nn\nrelu_2 = relu = nn.ReLU\n")
    source = load_model("relu()+b.py:relu_2()+relu()+b.py:relu()+2*b.py:relu_2@1x3")
    assert len(list(source.module.children())) == 6


def test_the_name_is_what_was_written_in_its_shortest_form() -> None:
    text = " conv2d( 64, 4*16 , kernel_size=[3, 3] , padding_mode='zeros' ) @ 56 x {7*8} "
    assert load_model(text).name == "conv2d(64,64,kernel_size=(3,3),padding_mode=zeros)@56x56"
    assert roofline.analyze("relu( )@1 x 8", hardware="10980xe").model == "relu()@1x8"


def test_modes_are_left_as_they_are(folder: Path) -> None:
    source = load_model("own.py:ready+relu()@1x8x4x4")
    assert all(each.training for each in source.module.modules())


# -- shapes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("conv2d(64,8,3)@56x28", [(1, 64, 56, 28)]),
        ("conv2d(64,8,3)@4x64x56x28", [(4, 64, 56, 28)]),
        ("conv2d(64,8,3)@64x56x28", [(64, 56, 28)]),
        ("conv1d(64,8,3)@56", [(1, 64, 56)]),
        ("conv3d(4,8,3)@8x16x16", [(1, 4, 8, 16, 16)]),
        ("batchnorm1d(64)@8x64", [(8, 64)]),
        ("batchnorm1d(64)@56", [(1, 64, 56)]),
        ("instancenorm2d(6)@5x5", [(1, 6, 5, 5)]),
        ("relu()+dropout()+conv2d(6,7,1)@5x5", [(1, 6, 5, 5)]),
        ("2*(residual(conv2d(6,6,1)))@5x5", [(1, 6, 5, 5)]),
        ("linear(64,8)@64", [(64,)]),
        ("linear(64,8)@2x3x64", [(2, 3, 64)]),
        ("relu()@7x7", [(7, 7)]),
        ("attention(8,2)@1x5x8, 1x6x8", [(1, 5, 8), (1, 6, 8)]),
        ("attention(8,2)@1x5x8, 1x6x8,1x6x8", [(1, 5, 8), (1, 6, 8), (1, 6, 8)]),
        ("conv2d(64,8,3)", []),
    ],
)
def test_inputs(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert load_model(text).default_inputs == tuple(InputRequest(shape=shape) for shape in shapes)


def test_types_of_inputs() -> None:
    assert str(load_model("embedding(9,3)@1x4").default_inputs[0].dtype) == "int64"
    assert str(load_model("embedding(9,3)@1x4:int32").default_inputs[0].dtype) == "int32"
    assert str(load_model("relu()@1x4:bfloat16").default_inputs[0].dtype) == "bfloat16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "conv2d(64,64,1)+^conv2d(32,64,3)+relu()@56x56",
            "conv2d(32,64,3) expects 32 input channels, got 64 from the previous layer: 1x64x56x56",
        ),
        (
            "^conv2d(32,64,3)@1x3x9x9",
            "conv2d(32,64,3) expects 32 input channels, got 3 from the input: 1x3x9x9",
        ),
        ("^conv2d(32,64,3)@3x9x9", "expects 32 input channels, got 3 from the input: 3x9x9"),
        ("^batchnorm1d(4)@3x5", "expects 4 input channels, got 5 from the input"),
        (
            "relu()+2*(relu()+^residual(relu()+linear(4,5)))@1x4",
            "residual: its output 1x5 does not match its input 1x4",
        ),
        (
            "2*^linear(4,8)@1x4",
            "linear(4,8) expects 4 input features, got 8 from the previous layer: 1x8",
        ),
        (
            "conv2d(1,2,3)+^linear(8,10)@4x4",
            "linear(8,10) expects 8 input features, got 2 from the previous layer: 1x2x2x2; write"
            " flatten() before it",
        ),
        (
            "^conv2d(3,4,5)@4x4",
            "conv2d(3,4,5) rejects 1x3x4x4 from the input: Calculated padded input size",
        ),
        ("^layernorm(4)@1x5", "layernorm(4) rejects 1x5 from the input: Given"),
        ("lstm(4,4)+^linear(5,1)@1x9x4", "expects 5 input features, got 4"),
        ("lstm(4,4)+^conv1d(5,1,1)@1x9x4", "expects 5 input channels, got 9"),
        ("gru(4,3,bidirectional=true)+^linear(5,1)@9x4", "got 6 from the previous"),
        ("^lstm(4,4)@1x2x9x4", "lstm(4,4) rejects 1x2x9x4 from the input"),
        ("lstm(4,4)@1x5x4,^1x1x4", "expects one input, got 2"),
        ("lstm(4,4)+relu()+^linear(5,1)@1x1000000000x4", "expects 5 input features"),
        ("^lstm(4,4)@1x9x5", "expects 4 input features, got 5"),
        ("^attention(8,2)@1x9x5", "expects 8 input features, got 5"),
        ("^transformerencoderlayer(8,2)@1x9x5", "expects 8 input features, got 5"),
        ("^grucell(8,2)@1x5", "expects 8 input features, got 5"),
        ("^groupnorm(2,8)@1x5x5", "expects 8 input channels, got 5"),
        ("^linear(4,4)@1x4:int64", "linear(4,4) expects floating-point numbers, got int64"),
        ("^embedding(9,3)@1x4:float32", "embedding(9,3) rejects 1x4 from the inp"),
        ("adaptivemaxpool1d(2,true)+^relu()@1x1x4", "expects a tensor, got tuple"),
        ("^linear(4,0)@1x4", "linear(4,0): empty output 1x0 for input 1x4"),
        ("maxpool2d(2)+conv2d(3,4,5)@^4x4", "has no number of channels"),
        ("bilinear(3,4,5)@^2x3", "expects 2 inputs (input1, input2), got 1"),
        ("relu()@2x3,^4x5", "relu() expects one input, got 2"),
        ("relu()@^1000000000x1000000000000", "must have fewer than 2^60 elements"),
        ("relu()@^2x3:qint8", "input dtype qint8 needs a tensor"),
    ],
)
def test_shapes_that_do_not_fit(text: str, said: str) -> None:
    assert said in refusal(text)


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("^conv2x(1,2)", "unknown layer 'conv2x'; did you mean 'conv2d'?"),
        ("relu()+^Conv9D(1)", "unknown layer 'Conv9D'; did you mean 'conv3d'?"),
        ("residul(^relu())", "invalid argument 'relu()'"),
        ("^residul(1)", "did you mean 'residual'?"),
        ("^qwertyuiop()", "unknown layer 'qwertyuiop' (expected a torch.nn layer"),
        ("^sequential()", "unknown layer 'sequential'"),
        ("^__class__()", "unknown layer '__class__'"),
        ("linear(5,5,^baas=true)", "has no argument 'baas'; did you mean 'bias'?"),
        ("linear(5,5,^device='cuda')", "has no argument 'device'"),
        ("^conv2d(64)", "conv2d: missing a required argument: 'out_channels'; write"),
        ("^conv2d@5x5", "write conv2d(in_channels, out_channels, kernel_size, …)"),
        ("^linear(1,2,true,4)", "linear: too many positional arguments"),
        ("^sigmoid(3)", "sigmoid: too many positional arguments; write sigmoid()"),
        ("^linear(1,2,in_features=4)", "linear: multiple values for argument 'in_features'"),
        ("^conv2d(64,64,3,groups=5)", "in_channels must be divisible by groups"),
        ("^conv2d(64,64,3,padding_mode='x')", "padding_mode must be one of"),
        ("^conv2d(64,-64,3)", "conv2d(64,-64,3): "),
        ("^conv2d('a',64,3)", "conv2d('a',64,3): TypeError"),
        ("^conv2d(64,64,0)@56x56", "kernel_size must be at least 1"),
        ("^conv2d(64,64,(3,0))@56x56", "kernel_size must be at least 1"),
        ("^conv2d(64,64,3,0)@56x56", "stride must be at least 1"),
        ("^conv2d(64,64,3,padding=-5)@56x56", "padding must be at least 0"),
        ("^conv2d(64,64,(3,3,3))@56x56", "kernel_size expects 2 numbers or one, got 3"),
        ("^conv1d(4,4,(3,3))@8", "kernel_size expects one, got 2"),
        ("^instancenorm2d(reflect,'x')@3x8x1x2", "rejects 3x8x1x2 from the input"),
        ("^linear(1e3,10)", "linear(1000.0,10): TypeError"),
        ("^linear(10000000000000,100000000000000)", "linear("),
        ("^attention(9,2)", "embed_dim must be divisible by num_heads"),
        ("conv2d(^c,c*2,3)@5x5", "'c' has no value: write a number"),
        ("relu()@{^size}x5", "--sweep size=16:1024:x2"),
        ("conv2d(3,3,3,padding=^smae)", "did you mean 'same'"),
        ("^lstm(8,8,99999999999)@1x2x8", "num_layers must be at most 1,000, got 99,999,999,999"),
        ("^transformer(8,1,1,2000)", "num_decoder_layers must be at most 1,000, got 2,000"),
        ("^1001*relu()@1", "too many layers in a design: 1,001, at most 1,000"),
        ("^1000*(1000*(1000*(1000*relu())))@1", "too many layers in a design: 1,000,000,000,000"),
        ("^999999999999*(relu()+relu())@1", "too many layers in a design: 1,999,999,999,998"),
    ],
)
def test_arguments_that_do_not_fit(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_layer_alone_has_no_brackets() -> None:
    with pytest.raises(ModelError, match=r"is a layer of torch\.nn"):
        load_model("conv2d")


# -- models of the user's own ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "own.py:Block(8,stride=2)@1x8x8x8",
        "own.py:Block(8, 2)@1x8x8x8",
        "'own.py':Block(channels=4*2, stride=2)@1x8x8x8",
        "'a+b.py':Block(8,2)@1x8x8x8",
        "own:Block(8,2)@1x8x8x8",
    ],
)
def test_own_models_with_arguments(text: str, folder: Path) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.conv(x))

    assert totals(text) == totals(Block(), (1, 8, 8, 8))


def test_an_own_model_alone_is_the_model_itself(folder: Path) -> None:
    """Its modules have the paths that they have without a shape."""
    assert [path for path, _ in load_model("own.py:Block(8)@1x8x4x4").module.named_modules()] == [
        "",
        "conv",
    ]
    assert "Block.conv" in dict(load_model("own.py:Block(8)+relu()@1x8x4x4").module.named_modules())


def test_a_file_of_a_design_is_read_once(folder: Path) -> None:
    (folder / "loud.py").write_text(f"{OWN}\nprint('read')")
    source = load_model(
        "own.py:Block(8)+own.py:Block(8)+own.py:ready+own.py:Pair+own.py:Pair@1x8x4x4"
    )
    kinds = {type(each) for each in source.module.children()}
    assert len(kinds) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("^own.py:Block()@1x2", "own.py:Block: missing a required argument: 'channels'"),
        ("^own.py:Block@1x2", "own.py:Block: missing a required argument: 'channels'"),
        ("own.py:Block(8,^strid=2)@1x2", "did you mean 'stride'?"),
        ("^own.py:Blok(8)@1x2", "'Blok' not found; did you mean 'Block'?"),
        ("relu()+^no.py:Block(8)@1x2", "no.py: no such file"),
        ("relu()+^no.package:Block(8)@1x2", "package 'no' is not installed"),
        ("^own.py:number@1x2", "'number' has type int, expected a"),
        ("own.py:ready(^3)@1x2", "own.py:ready takes no arguments in a design"),
        ("^own.py:broken(3)@1x2", "building it failed: ValueError: no 3"),
        ("^os:getpid()@1x2", "os:getpid: expected a torch.nn.Module, got int"),
        ("^own.py:text()@1x2", "own.py:text: expected a torch.nn.Module, got str"),
        ("resnet18(^3)@1x2", "resnet18 takes no arguments in a design"),
        ("^timm:no_such@1x3x4x4", "unknown"),
        ("^hf:a-hub/name@1x3x4x4", "nothing is downloaded"),
        (
            "own.py:Block(8)+^conv2d(4,4,1)@1x8x5x5",
            "expects 4 input channels, got 8 from the previous layer: 1x8x5x5",
        ),
        (
            "relu()+^own.py:Block(8)@1x4x5x5",
            "own.py:Block(8) rejects 1x4x5x5 from the previous layer: ",
        ),
        ("own.py:Pair()+^relu()@1x4", "relu() expects a tensor, got tuple"),
        ("^own.py:Block(8)+relu()@1x8x4x4,1x8x4x4", "rejects 1x8x4x4, 1x8x4x4"),
    ],
)
def test_own_models_that_do_not_fit(text: str, said: str, folder: Path) -> None:
    assert said in refusal(text)


def test_own_models_that_need_values_are_not_judged(folder: Path) -> None:
    """Shapes say nothing of what comes after; the pass itself will."""
    assert load_model("relu()+own.py:Valued()+linear(99,1)@2x4").default_inputs
    source = load_model("relu()+own.py:Real(4)+conv2d(3,3,1)@1x4x4x4")
    assert "was built with weights" in source.notes[0]


def test_what_a_model_keeps_from_a_call_is_not_kept_from_the_check(folder: Path) -> None:
    text = "relu()+own.py:Keeping()+relu()@2x4"
    assert not any("kept" in vars(each) for each in load_model(text).module.modules())
    assert roofline.analyze(text, hardware="10980xe").totals.flop == 3 * 2 * 4


def test_own_models_of_several_inputs(folder: Path) -> None:
    found = roofline.analyze("own.py:Two()+linear(8,2)@1x8,1x8", hardware="10980xe")
    assert [each.shape for each in found.inputs] == [(1, 8), (1, 8)]


def test_models_of_libraries_with_a_shape() -> None:
    source = load_model("torchvision:resnet18@2x3x64x64")
    assert source.default_inputs == (InputRequest(shape=(2, 3, 64, 64)),)
    assert source.rebuild is not None
    assert "layer1.0.conv1" in dict(source.module.named_modules())
    assert "resnet18.layer1" in dict(
        load_model("resnet18+linear(1000,10)@1x3x64x64").module.named_modules()
    )


# -- beside --input --------------------------------------------------------------------------------


def test_the_shape_or_inputs() -> None:
    assert totals("conv2d(8,8,3)", "1x8x5x5") == totals("conv2d(8,8,3)@5x5")
    with pytest.raises(
        InputError, match=r"'conv2d\(8,8,3\)' has no input shape: write it .* or use inputs"
    ):
        totals("conv2d(8,8,3)")
    with pytest.raises(InputError, match="has an input shape already: remove inputs"):
        totals("conv2d(8,8,3)@5x5", "1x8x5x5")


def test_tokens_are_in_the_shape() -> None:
    with pytest.raises(InputError, match="seq=5 has no effect on a design: write 5 into the shape"):
        totals("linear(4,4)@1x4", seq=5)
