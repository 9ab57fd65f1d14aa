"""How a model is made without its weights, and the files and packages it is from."""

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
from roofline.errors import ModelError, did_you_mean
from roofline.workload.inputs import InputRequest
from roofline.workload.models.libraries.availability import describe_error, with_torchvision

FILE_MODULE = "roofline_model_"
"""What the names of modules made of users' files begin with."""

OWN_FORMS = "package.module:factory or file.py:Model"
"""How a model of the user's own is named."""


def import_home(
    name: str, before: str
) -> tuple[ModuleType, Callable[[], AbstractContextManager[None]]]:
    """Return the file or package that a model is from, and the context of its factories."""
    if before.endswith(".py"):
        # Imports look into its folder first, as they do when Python runs a file in it.
        around = functools.partial(_first_on_path, str(Path(before).parent.resolve()))
        with around():
            return _file_module(Path(before)), around
    if "/" in before or not all(part.isidentifier() for part in before.split(".")):
        raise ModelError(
            f"model '{name}': '{before}' is neither a package nor a .py file;"
            f" write resnet50, timm:resnet50, hf:bert, {OWN_FORMS}"
        )
    # A script's folder is on the path when Python runs it; a command's is not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        package = with_torchvision(lambda: importlib.import_module(before))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and before.split(".")[0] == missing.split(".")[0]:
            raise ModelError(f"model '{name}': no package '{missing}' is installed") from None
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
    """Return the module or the callable that a file or package calls so, or refuse it."""
    factory = getattr(home, factory_name, None)
    if factory is None:
        public = [each for each in dir(home) if not each.startswith("_")]
        raise ModelError(
            f"model '{name}': nothing called '{factory_name}' in it{did_you_mean(factory_name, public)}"
        )
    if not callable(factory):
        raise ModelError(
            f"model '{name}': '{factory_name}' is a {type(factory).__name__},"
            " not a module nor a function that makes one"
        )
    return factory


def _file_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    # A name of its own, so that a file called torch.py is not taken for torch.
    name = f"{FILE_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: is not a Python file")
    loader: Any = spec.loader
    module = importlib.util.module_from_spec(spec)
    # Known while it runs and after: dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        # Never from bytecode: a file that was changed within a second of the last call has the old.
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
"""What gives a tensor values and nothing else; on the meta device half of building a model."""


class MetaConstruction(DeviceContext):
    """A context like ``torch.device("meta")`` that leaves out the initialization of values."""

    def __init__(self) -> None:
        super().__init__("meta")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func` on the meta device, unless it only fills a tensor that lies there."""
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
    """Return the model that `factory` makes, on the meta device where it can be, else for real."""

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
        notes = (f"{name} could not be built without weights, so it was built for real",)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model '{name}': the factory returned {type(module).__name__}, not a torch.nn.Module"
        )
    return Source(name=name, module=module, notes=notes, rebuild=rebuild)
