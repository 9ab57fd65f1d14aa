"""How a model is to be run, as users say it: checked, and made what the capture takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.errors import InputError, nearest
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.workload.runs import DEVICES, HALF_TYPES, OPTIMIZERS, Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.training import Teaching

DEFAULT_OPTIMIZER = "adamw"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a user says of how a model is run; see `roofline.analyze` for each."""

    dtype: str | torch.dtype | None = None
    train: bool = False
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None
    scale_gradients: bool = False
    autocast: str | torch.dtype | None = None
    channels_last: bool = False
    device: str = "cpu"

    def run(self) -> Run:
        """How the model is run; imports torch only where the device asks for it.

        Raises:
            InputError: a type, a device or an optimizer that there is not, or that goes with
                nothing else that was said.
        """
        self._check_types()
        if not self.train:
            for option, value in (("--optimizer", self.optimizer), ("loss", self.loss)):
                if value is not None:
                    raise InputError(f"{option} has no effect in inference; add --train")
        return Run(
            device=self._device(),
            train=self.train,
            optimizer=self._optimizer(),
            dtype=self._dtype(),
            autocast=self._autocast(),
            channels_last=self.channels_last,
        )

    def _check_types(self) -> None:
        """Refuses what only Python can give.

        Raises:
            InputError: something is of another type than it must have.
        """
        for name, value in (
            ("train", self.train),
            ("channels_last", self.channels_last),
            ("scale_gradients", self.scale_gradients),
        ):
            if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(f"{name}: expected True or False, got {value!r}")
        known = ", ".join(OPTIMIZERS)
        for name, value, texts in (("optimizer", self.optimizer, known), ("loss", self.loss, "")):
            is_text = isinstance(value, str) and bool(texts)
            if value is None or is_text or callable(value):
                continue
            what = "what makes one of the parameters" if texts else "a function of the output"
            either = f"{texts}, none, or {what}" if texts else what
            raise InputError(f"{name}: expected {either}, got {type(value).__name__}")

    def teaching(self) -> Teaching | None:
        """How it is trained, if it is."""
        if not self.train:
            return None
        from roofline.workload.capture.training import Teaching, maker_of

        chosen = DEFAULT_OPTIMIZER if self.optimizer is None else self.optimizer
        maker = None if chosen == "none" else maker_of(chosen)
        return Teaching(optimizer=maker, loss=self.loss, scales=self.scale_gradients)

    def _dtype(self) -> str:
        if self.dtype is None:
            return ""
        change = dtype_called(str(self.dtype))
        if change.kind != "float":
            raise InputError(
                f"--dtype {self.dtype}: parameters take a floating type; try bfloat16, float16 or"
                " float64"
            )
        return change.name

    def _autocast(self) -> str:
        if self.autocast is None:
            return ""
        name = str(self.autocast).removeprefix("torch.")
        if name not in HALF_TYPES:
            raise InputError(
                f"--autocast {name}: computes in {' or '.join(HALF_TYPES)}"
                f"{nearest(name, HALF_TYPES)}"
            )
        if self.device == "meta":
            raise InputError(
                f"--autocast {name} --device meta: torch has no autocast for meta; leave --device"
                " out, or take --dtype"
            )
        if self.device == "cuda" and not _has_cuda():
            raise InputError(
                f"--autocast {name} --device cuda: this torch has no CUDA, and its autocast asks"
                " for one; leave --device out, or take --dtype"
            )
        return name

    def _optimizer(self) -> str:
        if not self.train:
            return ""
        if self.optimizer is None:
            return DEFAULT_OPTIMIZER
        if not isinstance(self.optimizer, str):
            return getattr(self.optimizer, "__name__", type(self.optimizer).__name__)
        known = (*OPTIMIZERS, "none")
        if self.optimizer not in known:
            raise InputError(
                f"--optimizer {self.optimizer}: there are {', '.join(known)}"
                f"{nearest(self.optimizer, known)}; in Python, also what makes one of the"
                " parameters"
            )
        return "" if self.optimizer == "none" else self.optimizer

    def _device(self) -> Any:
        if not isinstance(self.device, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"device: expected one of {', '.join(DEVICES)}, got {self.device!r}")
        if self.device not in DEVICES:
            raise InputError(
                f"--device {self.device}: there are {', '.join(DEVICES)}"
                f"{nearest(self.device, DEVICES)}"
            )
        if self.train and self.device == "cuda" and not _has_cuda():
            # Autograd on fake CUDA tensors ends the process there.
            raise InputError(
                "--train --device cuda: this torch has no CUDA, and cannot differentiate for it;"
                " leave --device out, the operators of a CPU do the same arithmetic"
            )
        return self.device


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
