"""Errors raised by a model as one-line messages, and detection of code that needs real values."""

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
"""Raised by fake tensors where only real ones work."""


class FakesUnsupportedError(Exception):
    """The model cannot run on fake tensors."""


class PassError(Exception):
    """A failed pass, with the message for the user and the model's own exception."""

    def __init__(self, model_error: ModelError, error: BaseException) -> None:
        super().__init__(str(model_error))
        model_error.__cause__ = error
        self.model_error = model_error
        self.error = error

    @property
    def needs_values(self) -> bool:
        """True if the model needs more of a tensor than its shape."""
        text = error_text(self.error).lower()
        return isinstance(
            self.error, (*FAKE_TENSOR_ERRORS, FakesUnsupportedError, NotImplementedError)
        ) or any(each in text for each in _NEEDS_VALUES)

    @property
    def reason(self) -> str:
        """Short reason for the failure on fake tensors."""
        if isinstance(self.error, FakesUnsupportedError):
            return "it is TorchScript"
        is_unsupported = isinstance(self.error, UnsupportedOperatorException)
        if is_unsupported or "no fake impl" in str(self.error):
            return "an operator has no fake kernel: register_fake"
        if self.needs_values:
            return "it needs tensor values"
        return f"fake tensors raised {type(self.error).__name__}"


_NEEDS_VALUES = (
    *("fake", "meta tensor", "data pointer", "tensor subclass", "storage", "numpy"),
    *("device meta", "device='meta'"),
)
"""Parts of messages that show a need for more than a tensor's shape."""

_NO_CUDA = (
    *("not compiled with CUDA", "not linked with support for cuda", "without ATen_cuda"),
    "no NVIDIA driver",
)


def other_thread_error(what: str) -> ModelError:
    """Return the error for a part of the model that ran in an unrecorded thread."""
    return ModelError(
        f"{what} ran in another thread, where operators are not recorded;"
        " run it in the thread that calls the model"
    )


@contextlib.contextmanager
def raise_as_model_error(name: str, paths: Mapping[int, str]) -> Iterator[None]:
    """Convert any exception raised inside, including SystemExit, to a `model_error`."""
    try:
        yield
    except (KeyboardInterrupt, RooflineError):
        raise
    except BaseException as error:
        raise model_error(error, name, paths) from error


def model_error(error: BaseException, name: str, paths: Mapping[int, str]) -> ModelError:
    """Return the model's error as one line that names the innermost running module.

    `paths` maps the identity of each module to its path.
    """
    where = ""
    trace = error.__traceback__
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if id(running) in paths and isinstance(running, torch.nn.Module):
            where = f"{paths[id(running)] or 'the top-level module'} ({type(running).__name__})"
        trace = trace.tb_next
    text = error_text(error)
    fix = f"check {argument('inputs')} and {argument('dtype')} against the model's forward"
    match error:
        case DataDependentOutputException() | DynamicOutputShapeException():
            text = f"the result of {error.func} depends on tensor values"
            fix = "only shapes are known; remove that step from the model"
        case UnsupportedOperatorException():
            text = f"the output shape of {error.func} is not known"
            fix = "register it with torch.library.register_fake"
        case NotImplementedError() if "fake impl" in text:
            fix = "register its output shape with torch.library.register_fake"
        case _ if "HigherOrderOperator" in text:
            operator = text.partition("HigherOrderOperator ")[2].partition(" ")[0]
            text = f"torch's higher-order operator '{operator}' is not supported"
            fix = "write that step with ordinary operators"
        case _ if text.startswith("Could not run '"):
            # The rest lists all backends, including those of nested tensors.
            text = f"torch has no kernel for {text.split(chr(39))[1]} on this device"
            fix = f"use {argument('device', 'cpu')}, or write that step with other operators"
        case _ if "NestedTensor" in text:
            text, fix = "nested tensors are not supported", "use padded tensors"
        case _ if "no autograd formula was registered" in text:
            text = text.partition(" Please")[0].rstrip(".")
            fix = "register one with torch.library.register_autograd"
        case _ if "more than 1 value per channel" in text:
            fix = f"batch norm cannot train on one value per channel: use {argument('batch', 2)}"
        case _ if any(each in text for each in _NO_CUDA):
            text = "the model needs a GPU, and torch has none here"
            fix = f"use {argument('device', 'cpu')}, or remove CUDA calls from the model"
        case _ if "Couldn't swap" in text:
            text = "forward moves the weights of the model to another device or type"
            fix = "remove .cuda() and .to() of modules from forward"
        case RuntimeError() | ValueError():
            pass
        case _:
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return ModelError(f"{name} failed{f' in {where}' if where else ''}: {text}; {fix}")
