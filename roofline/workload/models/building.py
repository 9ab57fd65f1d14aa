"""A model ready to run, and how one is built without its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._device import DeviceContext

from roofline.errors import ModelError
from roofline.foundation.places import PlacedError
from roofline.workload.inputs import InputRequest
from roofline.workload.models.libraries.availability import said, with_torchvision

_FILLS: frozenset[Callable[..., Any]] = frozenset(
    [
        *(getattr(torch.Tensor, name) for name in ("fill_", "zero_", "normal_", "uniform_")),
        *(getattr(torch.Tensor, name) for name in ("random_", "bernoulli_", "exponential_")),
        *(getattr(torch.Tensor, name) for name in ("log_normal_", "cauchy_", "geometric_")),
        *(
            function
            for name, function in inspect.getmembers(torch.nn.init, inspect.isfunction)
            if name.endswith("_") and not name.startswith("_")
        ),
    ]
)
"""What gives a tensor values and nothing else; on the meta device half of building a model."""


class Unallocated(DeviceContext):
    """A context like ``torch.device("meta")`` that leaves out the initialisation of values."""

    def __init__(self) -> None:
        super().__init__("meta")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls `func` with the meta device where it makes a tensor, unless it only fills one."""
        if func in _FILLS:
            tensor = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return super().__torch_function__(func, types, args, kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model ready to run: its module, its name for people, and the inputs it takes by default.

    ``default_inputs`` is empty where the model's inputs cannot be known, and ``input_notes`` say
    what was decided for them; ``notes`` say what had to be done to build it. ``rebuild`` makes the
    module with its weights, where it was built without.
    """

    name: str
    module: torch.nn.Module
    default_inputs: tuple[InputRequest, ...] = ()
    input_notes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rebuild: Callable[[], torch.nn.Module] | None = None


def build(
    name: str,
    factory: Callable[[], Any],
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Source:
    """The model that `factory` makes, on the meta device where it can be, else for real.

    Args:
        name: what results and messages call it.
        factory: makes the module.
        around: makes the context in which the factory is called, each time it is.

    Raises:
        ModelError: the factory raised, or returned no module.
        PlacedError: as the factory raised it: it is about a text that was written.
    """

    def make() -> Any:
        with around():
            return with_torchvision(factory)

    notes: tuple[str, ...] = ()
    rebuild: Callable[[], torch.nn.Module] | None = make
    try:
        with Unallocated():
            module = make()
    except (KeyboardInterrupt, PlacedError):
        raise
    except BaseException:
        rebuild = None
        try:
            module = make()
        except (KeyboardInterrupt, PlacedError):
            raise
        except BaseException as error:
            raise ModelError(f"model '{name}': building it failed: {said(error)}") from error
        notes = (f"{name} could not be built without weights, so it was built for real",)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model '{name}': the factory returned {type(module).__name__}, not a torch.nn.Module"
        )
    return Source(name=name, module=module, notes=notes, rebuild=rebuild)
