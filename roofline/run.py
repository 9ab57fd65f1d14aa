"""Declaration of a run: type, help and check of every option.

Keywords of Python functions, command-line options and checks come from `RunOptions`; `Run` is the
checked outcome, with which passes are captured and which results keep.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar, cast

from roofline.core.dtypes import dtype as dtype_called
from roofline.errors import InputError, argument, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from roofline.machine.hardware import HardwareProfile
    from roofline.workload.capture.training import TrainingConfig

    Optimizer = str | Callable[..., torch.optim.Optimizer]
    Loss = Callable[[Any], torch.Tensor]
    Hardware = HardwareProfile | str | Path

Device = Literal["cpu", "cuda", "meta"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda", "meta")
OPTIMIZERS = ("sgd", "adam", "adamw")
"""Optimizers by name, with torch's defaults."""

DEFAULT_OPTIMIZER = "adamw"
HALF_TYPES = ("bfloat16", "float16")
"""Data types of autocast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Setting of a pass; default: inference of the model as it is, with CPU operators.

    ``device`` is the device whose operators torch calls (``meta``: without kernels of its own).
    ``train``: forward pass in training mode, loss, backward pass, and a step of ``optimizer``
    (``""``: none). ``loss`` names the loss, ``""`` before it is known. ``autocast`` is the type of
    `torch.autocast`, ``dtype`` that of parameters, buffers and inputs; ``""``: unchanged.
    ``channels_last``: memory format of images and convolution weights.

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


class ShapeKeywords(TypedDict, total=False):
    """Sizes and types of the inputs; see `RunOptions`."""

    batch: int | None
    seq: int | None
    dtype: str | torch.dtype | None


class InferenceKeywords(ShapeKeywords, total=False):
    """Inference on one machine; see `RunOptions`."""

    hardware: Hardware | None
    threads: int | None


class PassKeywords(ShapeKeywords, total=False):
    """Inference or training step; see `RunOptions`."""

    train: bool
    optimizer: Optimizer | None
    loss: Loss | None
    autocast: str | torch.dtype | None
    channels_last: bool
    device: str | None


class RunKeywords(PassKeywords, InferenceKeywords, total=False):
    """Inference or training step on one machine; see `RunOptions`."""


class PredictedKeywords(RunKeywords, total=False):
    """The same, with captures stored on disk; see `RunOptions`."""

    no_cache: bool


class StepKeywords(InferenceKeywords, total=False):
    """Training step on one machine; see `RunOptions`."""

    cold: bool
    optimizer: Optimizer | None
    loss: Loss | None
    autocast: str | torch.dtype | None
    channels_last: bool
    device: str | None
    scale_gradients: bool


class OnMachinesKeywords(PassKeywords, total=False):
    """Inference or training step on several machines; see `RunOptions`."""

    threads: int | None
    cold: bool
    no_cache: bool


class PlacedKeywords(OnMachinesKeywords, InferenceKeywords, total=False):
    """The same on one machine; see `RunOptions`."""


class SweepKeywords(OnMachinesKeywords, total=False):
    """The same on one machine or several; see `RunOptions`."""

    hardware: Hardware | Sequence[Hardware] | None


class CompareKeywords(TypedDict, total=False):
    """Variants: one run per value of a list; see `RunOptions`."""

    batch: int | Sequence[int] | None
    seq: int | None
    dtype: str | torch.dtype | Sequence[str | torch.dtype] | None
    train: bool
    optimizer: Optimizer | None
    loss: Loss | None
    autocast: str | torch.dtype | None
    channels_last: bool | Sequence[bool]
    device: str | None
    hardware: Hardware | Sequence[Hardware] | None
    threads: int | Sequence[int] | None
    cold: bool
    no_cache: bool


class ValidateKeywords(TypedDict, total=False):
    """Inference on this machine, once per value of a list; see `RunOptions`."""

    batch: int | Sequence[int] | None
    seq: int | None
    dtype: str | torch.dtype | Sequence[str | torch.dtype] | None
    channels_last: bool | Sequence[bool]
    threads: int | Sequence[int] | None


class StageKeywords(TypedDict, total=False):
    """Serving runs of a language model on one machine or several; see `RunOptions`."""

    dtype: str | torch.dtype | None
    hardware: Hardware | Sequence[Hardware] | None
    threads: int | None
    cold: bool


def _help(description: str, metavar: str | None = None) -> dict[str, str | None]:
    return {"help": description, "metavar": metavar}


_MOST = 2**40
"""Limit of batch sizes and thread counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run, as given by the user.

    Raises:
        InputError: a value of the wrong type, out of range, or without effect.
    """

    batch: int | None = field(
        default=None, metadata=_help("Batch size (dimension 0 of every input).", "N")
    )
    seq: int | None = field(
        default=None,
        metadata=_help("Sequence length (transformers models).  [default: 128]", "N"),
    )
    dtype: str | torch.dtype | None = field(
        default=None,
        metadata=_help("Type of parameters, buffers and inputs: bfloat16, float16 ...", "TYPE"),
    )
    train: bool = field(default=False, metadata=_help("Training step in place of a forward pass."))
    optimizer: Optimizer | None = field(
        default=None,
        metadata=_help("Optimizer: sgd, adam, adamw or none.  [default: adamw]", "NAME"),
    )
    loss: Loss | None = field(
        default=None,
        metadata=_help("Loss function.  [default: the model's, else by the shape of the output]"),
    )
    autocast: str | torch.dtype | None = field(
        default=None,
        metadata=_help("Mixed precision (torch.autocast): bfloat16 or float16.", "TYPE"),
    )
    channels_last: bool = field(
        default=False,
        metadata=_help("Use torch.channels_last."),
    )
    device: str | None = field(
        default=None,
        metadata=_help("Device to capture for.  [default: the machine's]", "DEVICE"),
    )
    hardware: Hardware | None = field(
        default=None,
        metadata=_help("Machine: name (roofline hardware list), .toml file or host.", "NAME|FILE"),
    )
    threads: int | None = field(
        default=None, metadata=_help("Compute threads.  [default: all]", "N")
    )
    cold: bool = field(default=False, metadata=_help("Assume cold caches."))
    no_cache: bool = field(
        default=False, metadata=_help("Do not use or store captures and predictions on disk.")
    )
    scale_gradients: bool = field(
        default=False,
        metadata=_help("Scale the loss and check gradients (GradScaler)."),
    )

    def __post_init__(self) -> None:
        for name in ("batch", "seq", "threads"):
            value = getattr(self, name)
            # bool is an int in Python.
            if value is not None and (type(value) is not int or not 1 <= value < _MOST):
                raise InputError(f"{argument(name, value)}: must be a whole number from 1")
        check_switches(
            train=self.train,
            channels_last=self.channels_last,
            cold=self.cold,
            no_cache=self.no_cache,
            scale_gradients=self.scale_gradients,
        )
        if isinstance(self.hardware, (list, tuple, set)):
            raise InputError(
                "hardware: expected one machine; for several: roofline.compare_machines"
            )
        known = ", ".join(OPTIMIZERS)
        for name, value, texts in (("optimizer", self.optimizer, known), ("loss", self.loss, "")):
            if value is None:
                continue
            if not callable(value) and not (isinstance(value, str) and texts):
                what = "a function of the parameters" if texts else "a function of the output"
                either = f"{texts}, none, or {what}" if texts else what
                raise InputError(f"{name}: expected {either}, got {type(value).__name__}")
            if not self.train:
                raise InputError(
                    f"{argument(name, value) if texts else name} has no effect in inference;"
                    f" add {argument('train')}"
                )
        _ = self.dtype_name, self.autocast_name, self.optimizer_name
        if self.device is None or self.device in DEVICES:
            return
        if not isinstance(self.device, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"device: expected one of {', '.join(DEVICES)}, got {self.device!r}")
        raise InputError(
            f"{argument('device', self.device)}: must be one of {', '.join(DEVICES)}"
            f"{did_you_mean(self.device, DEVICES)}"
        )

    @classmethod
    def of(cls, inputs: object = None, **given: Any) -> RunOptions:
        """Return the options of a call, checked against its inputs."""
        options = cls(**given)
        if options.seq is not None and inputs is not None:
            raise InputError(
                f"{argument('seq', options.seq)} has no effect next to {argument('inputs')}; write"
                f" {options.seq} into its shape"
            )
        return options

    @classmethod
    def every(cls, inputs: object = None, **given: Any) -> list[RunOptions]:
        """Return the options of each variant that lists of `VARIED` make."""
        varied = {name: each_of(name, given[name]) for name in VARIED if name in given}
        ways = itertools.product(*varied.values())
        return [cls.of(inputs, **{**given, **dict(zip(varied, way, strict=True))}) for way in ways]

    def keywords(self, *names: str) -> dict[str, Any]:
        """Return the options `names` as keywords."""
        return {name: getattr(self, name) for name in names}

    def run(self, on: str = "cpu", *, is_known: bool = True) -> Run:
        """Return the setting of the pass; imports torch only for ``device``.

        Args:
            on: device of the machine, used if no device is given and torch has its operators.
            is_known: check whether torch has the operators of CUDA.
        """
        device: Any = self.device
        if device is None:
            device = "cuda" if on == "cuda" and (not is_known or _knows_cuda()) else "cpu"
        elif device == "cuda" and is_known and not _knows_cuda():
            raise InputError(
                f"{argument('device', 'cuda')}: this torch has no CUDA operators on this system;"
                f" use {argument('device', 'cpu')}"
            )
        return Run(
            device=device,
            train=self.train,
            optimizer=self.optimizer_name,
            dtype=self.dtype_name,
            autocast=self.autocast_name,
            channels_last=self.channels_last,
        )

    def training_config(self) -> TrainingConfig | None:
        """Return the training setup; None in inference."""
        if not self.train:
            return None
        from roofline.workload.capture.training import TrainingConfig, optimizer_factory

        chosen = DEFAULT_OPTIMIZER if self.optimizer is None else self.optimizer
        maker = None if chosen == "none" else optimizer_factory(chosen)
        return TrainingConfig(optimizer=maker, loss=self.loss, scales_loss=self.scale_gradients)

    @property
    def dtype_name(self) -> str:
        """Data type by name; ``""``: the model's own."""
        if self.dtype is None:
            return ""
        try:
            change = dtype_called(str(self.dtype))
        except InputError:
            known, name = ("float32", "bfloat16", "float16", "float64"), str(self.dtype)
            raise InputError(
                f"{argument('dtype', name)}: must be {', '.join(known[:-1])} or {known[-1]}"
                f"{did_you_mean(name, known)}"
            ) from None
        if change.kind != "float":
            raise InputError(
                f"{argument('dtype', self.dtype)}: must be a floating type; use bfloat16,"
                " float16 or float64"
            )
        return change.name

    @property
    def autocast_name(self) -> str:
        """Autocast type by name; ``""``: none."""
        if self.autocast is None:
            return ""
        name = str(self.autocast).removeprefix("torch.")
        if name not in HALF_TYPES:
            raise InputError(
                f"{argument('autocast', name)}: must be {' or '.join(HALF_TYPES)}"
                f"{did_you_mean(name, HALF_TYPES)}"
            )
        if self.device == "meta":
            raise InputError(
                f"{argument('autocast', name)} {argument('device', 'meta')}: torch has no autocast"
                f" for meta; leave {argument('device')} out, or use {argument('dtype')}"
            )
        return name

    @property
    def optimizer_name(self) -> str:
        """Optimizer by name; ``""``: none."""
        if not self.train:
            return ""
        if self.optimizer is None:
            return DEFAULT_OPTIMIZER
        if not isinstance(self.optimizer, str):
            return getattr(self.optimizer, "__name__", type(self.optimizer).__name__)
        known = (*OPTIMIZERS, "none")
        if self.optimizer not in known:
            raise InputError(
                f"{argument('optimizer', self.optimizer)}: must be one of {', '.join(known)}"
                f"{did_you_mean(self.optimizer, known)}; in Python, also a function of the"
                " parameters"
            )
        return "" if self.optimizer == "none" else self.optimizer


VARIED = ("dtype", "batch", "threads", "channels_last")
"""Options that accept lists; the last varies fastest."""


def each_of(name: str, given: object) -> tuple[Any, ...]:
    """Return the values of an argument: one, or a list."""
    if not isinstance(given, (list, tuple)):
        return (given,)
    values = tuple(cast("Sequence[Any]", given))
    if not values:
        raise InputError(f"{argument(name)}: the list is empty; give at least one value")
    for place, each in enumerate(values):
        if each in values[:place]:
            shown = machine_name(each) if name == "hardware" else each
            raise InputError(f"{argument(name, shown)}: given twice; give it once")
    return values


def machine_name(hardware: Hardware | None) -> str:
    """Return the name of a machine as given."""
    name: str | None = getattr(hardware, "name", None) if hasattr(hardware, "memory") else None
    return str(hardware) if name is None else name


def _knows_cuda() -> bool:
    from roofline.workload.capture.cuda_emulation import can_capture_cuda

    return can_capture_cuda()


def check_switches(**switches: object) -> None:
    """Raise an error for values other than True and False."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r}: must be True or False")


def check_functions(**functions: object) -> None:
    """Raise an error for values that are not callable."""
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise InputError(f"{name}={value!r}: must be a function, or None")


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise an error for an unknown word."""
    if value not in known:
        raise InputError(
            f"{argument(name, value)}: must be {', '.join(known[:-1])} or {known[-1]}"
            f"{did_you_mean(str(value), known)}"
        )


MOST_ROUNDS = 1000


def check_rounds(rounds: int | None) -> None:
    """Raise an error for impossible numbers of measurement rounds."""
    if rounds is not None and (type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS):
        raise InputError(
            f"{argument('rounds', rounds)}: must be a whole number from 1 to {MOST_ROUNDS}"
        )


_SEVERAL = " One value, or a list."
_P = ParamSpec("_P")
_R = TypeVar("_R")


libraries_are_untouched: ContextVar[bool | None] = ContextVar("untouched", default=None)
"""True if the user's call began before torch was imported and ran no user code since, so that torch
and its models are as installed. None: no function was called.
"""


def takes(keywords: type[Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function that passes ``**run`` on: its signature and help name every keyword."""
    annotations = {name: each.__forward_arg__ for name, each in keywords.__annotations__.items()}
    declared = [each for each in fields(RunOptions) if each.name in annotations]

    def is_several(name: str) -> bool:
        return "Sequence" in annotations[name]

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        own = inspect.signature(function)
        kept = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=annotations[each.name],
            )
            for each in declared
            if each.name not in own.parameters
        ]
        signature = own.replace(parameters=[*kept, *named])

        @functools.wraps(function)
        def checked(*args: _P.args, **given: _P.kwargs) -> _R:
            try:
                signature.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            if libraries_are_untouched.get() is not None:
                return function(*args, **given)
            before = libraries_are_untouched.set("torch" not in sys.modules)
            try:
                return function(*args, **given)
            finally:
                libraries_are_untouched.reset(before)

        vars(checked)["__signature__"] = signature
        lines = (
            f"        {each.name}: {each.metadata['help']}{_SEVERAL * is_several(each.name)}"
            for each in declared
        )
        checked.__doc__ = "\n".join(
            (f"{(function.__doc__ or '').rstrip()}\n", "    Args of the run:", *lines, "    ")
        )
        return checked

    return decorate
