"""Construction of models without weights, and import of the files and packages they come from."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._device import DeviceContext

from roofline.core.source_errors import PlacedError
from roofline.core.text import NOTE
from roofline.errors import ModelError, did_you_mean
from roofline.workload.inputs import InputRequest
from roofline.workload.models.libraries.availability import describe_error, with_torchvision

FILE_MODULE = "roofline_model_"
"""Prefix of the module names of users' files."""

OWN_FORMS = "package.module:factory or file.py:Model"
"""Forms of names of the user's own models."""


def import_home(
    name: str, before: str
) -> tuple[ModuleType, Callable[[], AbstractContextManager[None]]]:
    """Return the imported file or package of a model, and the context for its factories."""
    if before.endswith(".py"):
        # Its folder comes first on the path, as when Python runs the file.
        around = functools.partial(_first_on_path, str(Path(before).parent.resolve()))
        with around():
            return _file_module(Path(before)), around
    if "/" in before or not all(part.isidentifier() for part in before.split(".")):
        raise ModelError(
            f"model '{name}': '{before}' is neither a package nor a .py file;"
            f" expected resnet50, timm:resnet50, hf:bert, {OWN_FORMS}"
        )
    # Python puts the folder of a script on the path, but not that of a command.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        package = with_torchvision(lambda: importlib.import_module(before))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and before.split(".")[0] == missing.split(".")[0]:
            raise ModelError(f"model '{name}': package '{missing}' is not installed") from None
        why = str(error) if missing else describe_error(error)
        raise ModelError(f"model '{name}': importing '{before}' failed: {why}") from error
    return package, contextlib.nullcontext


@contextlib.contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def get_factory(name: str, home: ModuleType, factory_name: str) -> Any:
    """Return the module or callable of that name; ModelError if there is none."""
    factory = getattr(home, factory_name, None)
    if factory is None:
        public = [each for each in dir(home) if not each.startswith("_")]
        raise ModelError(
            f"model '{name}': '{factory_name}' not found{did_you_mean(factory_name, public)}"
        )
    if not callable(factory):
        raise ModelError(
            f"model '{name}': '{factory_name}' has type {type(factory).__name__}, expected a"
            " torch.nn.Module or a function that returns one"
        )
    return factory


def _file_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    # A unique name, so that a file torch.py does not replace torch.
    name = f"{FILE_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: not a Python file")
    loader: Any = spec.loader
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs and after: dataclasses and pickle look up their module.
    sys.modules[name] = module
    try:
        # Never from bytecode, which is outdated for a file changed within a second.
        code = loader.source_to_code(loader.get_data(str(path)), str(path))
        with_torchvision(lambda: exec(code, module.__dict__))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ModelError(f"{path}: importing it failed: {describe_error(error)}") from error
    return module


_IN_PLACE = (
    *("fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"),
    *("log_normal_", "cauchy_", "geometric_"),
)
_FILLS: frozenset[Callable[..., Any]] = frozenset(
    [
        *(getattr(torch.Tensor, name) for name in _IN_PLACE),
        *(each for name, each in vars(torch.nn.init).items() if re.fullmatch(r"[a-z]\w*_", name)),
    ]
)
"""Functions that only initialize values: on the meta device half of the construction time."""


class MetaConstruction(DeviceContext):
    """A context like ``torch.device("meta")`` that skips the initialization of values."""

    def __init__(self) -> None:
        super().__init__("meta")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func` on the meta device, unless it only fills a meta tensor."""
        if func in _FILLS:
            tensor = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return super().__torch_function__(func, types, args, kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model ready to run: module, displayed name and default inputs.

    ``default_inputs`` is empty if inputs are not known; ``input_notes`` explain choices of inputs,
    ``notes`` those of the construction. ``rebuild`` creates the module with weights, if it was
    built without.
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
    """Return the model of `factory`, on the meta device if possible, else with weights."""

    def make() -> Any:
        with around():
            return with_torchvision(factory)

    notes: tuple[str, ...] = ()
    rebuild: Callable[[], torch.nn.Module] | None = make
    try:
        with MetaConstruction():
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
            raise ModelError(
                f"model '{name}': building it failed: {describe_error(error)}"
            ) from error
        notes = (f"{NOTE}{name} was built with weights: building it on the meta device failed",)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model '{name}': expected a torch.nn.Module, the factory returned"
            f" {type(module).__name__}"
        )
    return Source(name=name, module=module, notes=notes, rebuild=rebuild)
