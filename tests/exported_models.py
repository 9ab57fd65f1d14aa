"""Ten small models of the kinds that people export, each with the inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from roofline.workload.models.libraries.availability import (
    library_or_reason,
)


class Segmenting(nn.Module):
    """Down and up again, with a shortcut: what segmentation networks are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.inner = nn.Conv2d(8, 16, 3, padding=2, dilation=2)
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.out = nn.Conv2d(11, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of an image, to classes at half of its size."""
        inner = nn.functional.leaky_relu(self.inner(torch.sigmoid(self.norm(self.down(x)))))
        joined = torch.cat([self.up(inner), x], dim=1)
        half = nn.functional.interpolate(joined, scale_factor=0.5, mode="bilinear")
        return self.out(nn.functional.pad(half, (1, 1, 1, 1)))


class Tagger(nn.Module):
    """Words through a recurrent layer in both directions."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.layer: nn.Module = kind(12, 8, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(16, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Of the numbers of words, to scores of tags."""
        return torch.log_softmax(self.tags(self.layer(self.words(words))[0]), dim=-1)


class Mixed(nn.Module):
    """What does not come in networks of layers: slices, masks, powers, the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.mask = nn.Buffer(torch.tril(torch.ones(5, 5, dtype=torch.bool)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a table, to scores and the place of the largest."""
        scores = self.layer(x[:, :5]) @ x[:, :5].transpose(1, 2)
        scores = scores.masked_fill(~self.mask, -1e4) / x.shape[-1] ** 0.5
        spread = scores.softmax(-1).pow(2).mean(-1, keepdim=True).clamp(min=1e-3).sqrt()
        return (scores * spread).cumsum(-1), scores.argmax(-1)


def _torchvision() -> Any:
    """torchvision, also where its compiled part cannot be loaded."""
    found, reason = library_or_reason("torchvision")
    assert found is not None, reason
    return found


def _vision(name: str) -> nn.Module:
    return _torchvision().models.get_model(name, weights=None)


def _resnet() -> nn.Module:
    """resnet18 with one block of each width: one with a plain shortcut, three that halve."""
    resnet = _torchvision().models.resnet
    return resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])


def _mobilenet() -> nn.Module:
    """The first five of eleven blocks: with squeezing and without, both activations, shortcuts."""
    mobilenet = _torchvision().models.mobilenetv3
    rows = [
        (16, 3, 16, 16, True, "RE", 2, 1),
        (16, 3, 72, 24, False, "RE", 2, 1),
        (24, 3, 88, 24, False, "RE", 1, 1),
        (24, 5, 96, 40, True, "HS", 2, 1),
        (40, 5, 240, 40, True, "HS", 1, 1),
    ]
    blocks = [mobilenet.InvertedResidualConfig(*row, width_mult=1.0) for row in rows]
    return mobilenet.MobileNetV3(blocks, last_channel=64)


def _shufflenet() -> nn.Module:
    """A block that halves in each of three stages, as in all of them, and one that does not."""
    return _torchvision().models.ShuffleNetV2([2, 1, 1], [24, 48, 96, 192, 64])


def _transformer() -> nn.Module:
    return _torchvision().models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=7)


def _convnext() -> nn.Module:
    convnext = _torchvision().models.convnext
    blocks = [convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 1)]
    return convnext.ConvNeXt(blocks, num_classes=5)


def _transformers() -> Any:
    """transformers, also where torchvision's compiled part cannot be loaded, which it looks for."""
    found, reason = library_or_reason("transformers")
    assert found is not None, reason
    return found


def _bert() -> nn.Module:
    library = _transformers()
    sizes = library.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return library.BertModel(sizes)


def _gpt2() -> nn.Module:
    library = _transformers()
    sizes = library.GPT2Config(
        vocab_size=60,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return library.GPT2LMHeadModel(sizes)


_IMAGE = "1x3x64x64"
_WORDS = "2x9:int64"

MODELS: Mapping[str, tuple[Callable[[], nn.Module], Any]] = {
    "resnet": (_resnet, _IMAGE),
    "mobilenet_v3": (_mobilenet, _IMAGE),
    "squeezenet1_1": (lambda: _vision("squeezenet1_1"), _IMAGE),
    "shufflenet_v2": (_shufflenet, _IMAGE),
    "vision transformer": (_transformer, "2x3x32x32"),
    "convnext": (_convnext, "1x3x32x32"),
    "bert": (_bert, "input_ids=2x9:int64"),
    "gpt2": (_gpt2, "input_ids=2x9:int64"),
    "segmenting": (Segmenting, "1x3x16x16"),
    "lstm": (lambda: Tagger(nn.LSTM), _WORDS),
    "gru": (lambda: Tagger(nn.GRU), _WORDS),
    "mixed": (Mixed, "2x7x6"),
}


def made(name: str) -> tuple[nn.Module, list[Any]]:
    """A model with weights that are the same every time, batch norms that do something, and its
    inputs."""
    make, given = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = make().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                module.running_mean.uniform_(-0.5, 0.5)
    return model, [given]
