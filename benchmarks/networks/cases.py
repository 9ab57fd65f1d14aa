"""The networks that `roofline optimize` is shown on: their names, and what they are called with."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from roofline.workload.models.libraries.availability import with_torchvision

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network by the name that tables have; ``shapes`` are its inputs, ``{b}`` their batch."""

    name: str
    model: str
    shapes: tuple[str, ...]
    batches: tuple[int, ...] = (1, 16)

    def inputs(self, batch: int) -> list[str]:
        """The inputs as `roofline.optimize` takes them."""
        return [shape.format(b=batch) for shape in self.shapes]

    def tensors(self, batch: int) -> list[torch.Tensor]:
        """The same as tensors: random numbers, small whole ones for tokens."""
        found: list[torch.Tensor] = []
        for each in self.inputs(batch):
            shape, _, dtype = each.partition(":")
            sizes = [int(size) for size in shape.split("x")]
            found.append(torch.randint(0, 1000, sizes) if dtype else torch.randn(sizes))
        return found

    @property
    def is_own(self) -> bool:
        """Whether it is one of the files beside this one."""
        return ".py:" in self.model

    def built(self) -> nn.Module:
        """The network in eval mode, with random weights."""
        torch.manual_seed(0)
        return with_torchvision(self._loaded).eval()

    def _loaded(self) -> nn.Module:
        if self.model == "hf:bert":
            library = importlib.import_module("transformers")
            return library.BertModel(library.BertConfig())
        if self.is_own:
            file, _, name = self.model.rpartition(":")
            return getattr(importlib.import_module(f"networks.{Path(file).stem}"), name)()
        # Without the classifiers that only training has.
        has_others = self.model in ("googlenet", "inception_v3")
        options = {"aux_logits": False, "init_weights": False} if has_others else {}
        models = importlib.import_module("torchvision.models")
        return getattr(models, self.model)(weights=None, **options)


def _image(name: str, size: int = 224) -> Network:
    return Network(name=name, model=name, shapes=(f"{{b}}x3x{size}x{size}",))


def _own(name: str, where: str, *shapes: str, batches: tuple[int, ...] = (1, 16)) -> Network:
    return Network(name=name, model=f"{HERE / where}:{name}", shapes=shapes, batches=batches)


_TOKENS = "{b}x10:int64"

NETWORKS = {
    each.name: each
    for each in (
        _image("inception_v3", 299),
        _image("squeezenet1_0"),
        _image("resnet50"),
        _own("RNNTC", "recurrent.py", "{b}x20:int64"),
        _own("NMT", "recurrent.py", _TOKENS, _TOKENS),
        Network(name="bert", model="hf:bert", shapes=("{b}x128:int64",)),
        _image("googlenet"),
        _own("RepVGG", "repvgg.py", "{b}x3x224x224"),
        _image("mobilenet_v2"),
    )
}
"""The article's five, and four more."""

SMALL = {
    each.name: each
    for each in (
        _own("Eight", "small_linears.py", "{b}x256", batches=(1, 64)),
        _own("ThirtyTwo", "small_linears.py", "{b}x128", batches=(1, 64)),
        _own("LSTM256", "recurrent.py", *3 * ("{b}x256",)),
        _own("LSTM1024", "recurrent.py", *3 * ("{b}x1024",)),
        _own("Block48", "repvgg.py", "{b}x48x56x56"),
        _own("Block192", "repvgg.py", "{b}x192x14x14"),
    )
}
"""Parts of networks in which something is to be gained on a CPU."""
