"""How a model is run: for inference or in training, on which device, in which types and layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda", "meta"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda", "meta")
OPTIMIZERS = ("sgd", "adam", "adamw")
"""Those of torch that have a name here, with torch's own defaults."""

HALF_TYPES = ("bfloat16", "float16")
"""What autocast computes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a model is run; by default one inference pass as it is, by torch's operators for a CPU.

    ``device`` is whose operators torch calls: one layer may be one operator on a CPU and a dozen
    elsewhere (``meta``: none has a kernel of its own). ``train`` is one step: forward pass in
    training mode, loss, backward pass, and the update by ``optimizer`` (``""``: none is made).
    ``loss`` says in words what was differentiated, ``""`` before that is known. ``autocast`` is
    the type that `torch.autocast` computes in, ``dtype`` the one that parameters, buffers and
    inputs are taken to have; ``""`` leaves either as it is. ``channels_last`` lays out images and
    the weights of convolutions with their channels last.

    Raises:
        ValueError: an unknown device or type, or an optimizer or a loss without training.
    """

    device: Device = "cpu"
    train: bool = False
    optimizer: str = ""
    loss: str = ""
    dtype: str = ""
    autocast: str = ""
    channels_last: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("device", self.device, DEVICES),
            ("autocast", self.autocast, ("", *HALF_TYPES)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got '{value}'")
        if (self.optimizer or self.loss) and not self.train:
            raise ValueError("an optimizer and a loss belong to training")
