"""What a model raised, as its user is told, and whether real tensors may do better."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from roofline.errors import ModelError, RooflineError, argument, error_text

FAKE_TENSOR_ERRORS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
"""What is raised where fake tensors cannot do what real ones can."""


class FakesUnsupportedError(Exception):
    """The model cannot be given fake tensors at all."""


class PassError(Exception):
    """A pass failed: what the user is told, and what the model raised."""

    def __init__(self, said: ModelError, error: BaseException) -> None:
        super().__init__(str(said))
        said.__cause__ = error
        self.model_error = said
        self.error = error

    @property
    def needs_values(self) -> bool:
        """Whether the model asked more of a tensor than its shape."""
        said = error_text(self.error).lower()
        return isinstance(
            self.error, (*FAKE_TENSOR_ERRORS, FakesUnsupportedError, NotImplementedError)
        ) or any(each in said for each in _NEEDS_VALUES)

    @property
    def reason(self) -> str:
        """Why fake tensors did not do, in a few words."""
        if isinstance(self.error, FakesUnsupportedError):
            return "it is TorchScript"
        if self.needs_values:
            return "it needs values"
        return f"on fake tensors it raised {type(self.error).__name__}"


_NEEDS_VALUES = (
    *("fake", "meta tensor", "data pointer", "tensor subclass", "storage", "numpy"),
    *("device meta", "device='meta'"),
)
"""What messages speak of where code asked more of a tensor than its shape."""

_NO_CUDA = (
    *("not compiled with CUDA", "not linked with support for cuda", "without ATen_cuda"),
    "no NVIDIA driver",
)


def other_thread_error(what: str) -> ModelError:
    """A part of the model ran where nothing is recorded."""
    return ModelError(
        f"{what} ran in another thread, whose operators cannot be seen;"
        " run it in the thread that calls the model"
    )


@contextlib.contextmanager
def raise_as_model_error(name: str, paths: Mapping[int, str]) -> Iterator[None]:
    """A model may raise anything in here, SystemExit too: it becomes a `model_error`."""
    try:
        yield
    except (KeyboardInterrupt, RooflineError):
        raise
    except BaseException as error:
        raise model_error(error, name, paths) from error


def model_error(error: BaseException, name: str, paths: Mapping[int, str]) -> ModelError:
    """What the model said, and the innermost of its modules that was running.

    `paths` are those of every module that it knows of, by identity.
    """
    where = ""
    trace = error.__traceback__
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if id(running) in paths and isinstance(running, torch.nn.Module):
            where = f"{paths[id(running)] or 'the model itself'} ({type(running).__name__})"
        trace = trace.tb_next
    said = error_text(error)
    fix = f"check {argument('inputs')} and {argument('dtype')} against what the model takes"
    match error:
        case DataDependentOutputException() | DynamicOutputShapeException():
            said = f"what {error.func} gives depends on the values in a tensor"
            fix = "only shapes are known here, so leave that step out of the model"
        case UnsupportedOperatorException():
            said = f"the shape that {error.func} gives is not known"
            fix = "tell torch with torch.library.register_fake"
        case NotImplementedError() if "fake impl" in said:
            fix = "tell torch what it returns with torch.library.register_fake"
        case _ if "HigherOrderOperator" in said:
            operator = said.partition("HigherOrderOperator ")[2].partition(" ")[0]
            said = f"torch's higher-order operator '{operator}' cannot be counted"
            fix = "write that step with ordinary operators"
        case _ if said.startswith("Could not run '"):
            # What follows lists all backends, of which some are of nested tensors.
            said = f"torch has no kernel for {said.split(chr(39))[1]} on this device"
            fix = f"use {argument('device', 'cpu')}, or write that step with other operators"
        case _ if "NestedTensor" in said:
            said, fix = "nested tensors cannot be counted", "give padded tensors"
        case _ if "no autograd formula was registered" in said:
            said = said.partition(" Please")[0].rstrip(".")
            fix = "give it one with torch.library.register_autograd"
        case _ if "more than 1 value per channel" in said:
            fix = (
                f"a batch norm needs several values per channel in training: {argument('batch', 2)}"
            )
        case _ if any(each in said for each in _NO_CUDA):
            said = "it asks for a GPU, and torch has none here"
            fix = f"use {argument('device', 'cpu')}, or leave CUDA calls out of the model"
        case RuntimeError() | ValueError():
            pass
        case _:
            said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return ModelError(f"{name} failed{f' in {where}' if where else ''}: {said}; {fix}")
