"""The files and packages that users' own models are from."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from roofline.errors import ModelError, nearest
from roofline.workload.models.libraries.availability import said, with_torchvision

FILE_MODULE = "roofline_model_"
"""What the names of modules made of users' files begin with."""

OWN = "package.module:factory or file.py:Model"
"""How a model of the user's own is named."""


def home_of(
    name: str, before: str
) -> tuple[ModuleType, Callable[[], AbstractContextManager[None]]]:
    """The file or package that a model is from, and the context that its factories are called in.

    Args:
        name: what messages call the model.
        before: the path of the file, ending in ``.py``, or the name of the package.

    Raises:
        ModelError: there is none, or importing it failed.
    """
    if before.endswith(".py"):
        around = functools.partial(_first_on_path, Path(before).parent.resolve())
        with around():
            return _file_module(Path(before)), around
    if "/" in before or not all(part.isidentifier() for part in before.split(".")):
        raise ModelError(
            f"model '{name}': '{before}' is neither a package nor a .py file;"
            f" write resnet50, timm:resnet50, hf:bert, {OWN}"
        )
    return _package_module(name, before), contextlib.nullcontext


def named(name: str, home: ModuleType, factory_name: str) -> Any:
    """What a file or package calls so.

    Raises:
        ModelError: nothing in it is called so; the nearest is suggested.
    """
    factory = getattr(home, factory_name, None)
    if factory is None:
        public = [each for each in dir(home) if not each.startswith("_")]
        raise ModelError(
            f"model '{name}': nothing called '{factory_name}' in it{nearest(factory_name, public)}"
        )
    return factory


def not_a_factory(name: str, factory_name: str, found: object) -> ModelError:
    """The error that what was found makes no module."""
    return ModelError(
        f"model '{name}': '{factory_name}' is a {type(found).__name__},"
        " not a module nor a function that makes one"
    )


def _package_module(name: str, package: str) -> ModuleType:
    # A script's folder is on the path when Python runs it; a command's is not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return with_torchvision(lambda: importlib.import_module(package))
    except ModuleNotFoundError as error:
        if error.name and package.split(".")[0] == error.name.split(".")[0]:
            raise ModelError(f"model '{name}': no package '{error.name}' is installed") from None
        raise ModelError(f"model '{name}': importing '{package}' failed: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"model '{name}': importing '{package}' failed: {said(error)}") from error


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Imports look into `folder` first, as they do when Python runs a file in it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _file_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    # A name of its own, so that a file called torch.py is not taken for torch.
    name = f"{FILE_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: is not a Python file")
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    # Known while it runs and after: dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        with_torchvision(lambda: loader.exec_module(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ModelError(f"{path}: importing it failed: {said(error)}") from error
    return module
