"""How a model is to be run, as users say it: checked, and made what the capture takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec
from roofline.errors import InputError, nearest
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.workload.runs import DEVICES, HALF_TYPES, OPTIMIZERS, Device, Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.passes import Capture
    from roofline.workload.capture.training import Teaching
    from roofline.workload.inputs import Inputs
    from roofline.workload.models.building import Source


_MOST = 2**40
"""More than any batch or thread count; a larger number is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and the inputs that it is called with; ``notes`` say what was decided for them."""

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]

    def capture(self, run: Run, teaching: Teaching | None = None, **how: Any) -> Capture:
        """Capture a pass; `how` is what else `roofline.workload.capture.passes.capture` takes."""
        from roofline.workload.capture.passes import capture

        source = self.source
        options = {"name": source.name, "rebuild": source.rebuild, **how}
        return capture(source.module, self.given, run=run, teaching=teaching, **options)


MOST_ROUNDS = 1000


def check_rounds(rounds: int | None) -> None:
    """Refuses numbers of rounds that there cannot be."""
    if rounds is not None and (type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS):
        raise InputError(f"--rounds {rounds}: must be a whole number from 1 to {MOST_ROUNDS}")


def check_switches(**switches: object) -> None:
    """Refuses what only Python can give in the place of True or False."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise InputError(f"{name}={value!r}: must be True or False")


def check_functions(**functions: object) -> None:
    """Refuses what cannot be called where something is to be told."""
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise InputError(f"{name}={value!r}: must be a function, or None")


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers are the same every time, and go on afterwards as if there had been none."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def arguments_of(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: given tensors, else noise, or zeros as indices."""
    from roofline.workload.capture.reals import Reals
    from roofline.workload.torch_dtypes import dtype_for, torch_dtype

    reals = Reals(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with seeded():
        return given.made(lambda each: reals.given(each, dtype_for(each, change)).detach())


def check_counts(
    *, batch: int | None, seq: int | None, threads: int | None, inputs: object
) -> None:
    """Refuses sizes that are none, and tokens beside given inputs."""
    for option, value in (("--batch", batch), ("--seq", seq), ("--threads", threads)):
        # True is a whole number to Python.
        if value is not None and (type(value) is not int or not 1 <= value < _MOST):
            raise InputError(f"{option} {value}: must be a whole number from 1")
    if seq is not None and inputs is not None:
        raise InputError(f"--seq {seq} has no effect beside --input; write {seq} into its shape")


def workload_of(
    model: torch.nn.Module | Callable[..., Any] | str,
    inputs: Any,
    *,
    run: Run,
    batch: int | None,
    seq: int | None,
) -> Workload:
    """The model that is meant, and what it is called with.

    Raises:
        ModelError: the model is unknown, or cannot be built.
        InputError: the inputs are wrong.
    """
    from roofline.workload.inputs import inputs_for, inputs_of
    from roofline.workload.models import sources
    from roofline.workload.torch_dtypes import input_specs, torch_dtype

    given = inputs_of(inputs)
    source = (
        sources.load(model, seq=seq) if isinstance(model, str) else sources.given(model, seq=seq)
    )
    given = inputs_for(source.module, given, source.default_inputs, name=source.name, batch=batch)
    return Workload(
        source=source,
        given=given,
        specs=input_specs(given, torch_dtype(run.dtype) if run.dtype else None),
        notes=(*source.notes, *(source.input_notes if inputs is None else ())),
    )


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
    device: str | None = None

    def run(self, on: str = "cpu") -> Run:
        """How the model is run; imports torch only where the device asks for it.

        Args:
            on: the device of the machine that it is placed on, whose operators are called unless
                those of another are asked for. Where torch has none of them, a CPU's.

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
            device=self._device(on),
            train=self.train,
            optimizer=self._optimizer(),
            dtype=self._dtype(),
            autocast=self._autocast(),
            channels_last=self.channels_last,
        )

    def _check_types(self) -> None:
        """Refuses what only Python can give."""
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

    def _device(self, on: str) -> Device:
        if self.device is None:
            return "cuda" if on == "cuda" and _knows_cuda() else "cpu"
        if not isinstance(self.device, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"device: expected one of {', '.join(DEVICES)}, got {self.device!r}")
        for device in DEVICES:
            if device == self.device:
                if device == "cuda" and not _knows_cuda():
                    raise InputError(
                        "--device cuda: this torch has no CUDA, and cannot do without one on this"
                        " system; take --device cpu"
                    )
                return device
        raise InputError(
            f"--device {self.device}: there are {', '.join(DEVICES)}{nearest(self.device, DEVICES)}"
        )


def _knows_cuda() -> bool:
    from roofline.workload.capture.without_cuda import is_possible

    return is_possible()
