"""Import of model libraries, with a one-line reason for failures.

Any exception counts as absent. timm and transformers import torchvision if they find it: a broken
torchvision must not break them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from roofline.errors import error_text
from roofline.workload.models.libraries.names import Library

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@functools.cache
def library_or_reason(library: Library) -> tuple[ModuleType | None, str]:
    """Return the library, or None and the reason: ``"it is not installed (…)"``.

    Without a working torchvision, timm gets a stub: it imports a few names that none of its models
    needs. transformers works without torchvision, but not with a broken one, which is hidden.
    """
    if library == "torchvision":
        return _torchvision_or_reason()
    if library in sys.modules or library_or_reason("torchvision")[0] is not None:
        return _imported(library)
    _forget_torchvision()
    stand_ins = _StandIns()
    if library == "timm":
        sys.meta_path.insert(0, stand_ins)
    else:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  as import documents it
    try:
        found, reason = _imported(library)
        if library == "transformers" and found is not None:
            # It caches its first answer.
            utilities: Any = _imported("transformers.utils.import_utils")[0]
            utilities.is_torchvision_available()
        return found, reason
    finally:
        if stand_ins in sys.meta_path:
            sys.meta_path.remove(stand_ins)
        _forget_torchvision()


def _torchvision_or_reason() -> tuple[ModuleType | None, str]:
    found, reason = _imported("torchvision")
    if found is None and "torchvision::nms" in reason:
        # With a CPU-only torch the compiled part of a CUDA build cannot load, and the import fails
        # at these two operators; with schemas for them the rest works.
        import torch

        _forget_torchvision()
        library = torch.library.Library("torchvision", "FRAGMENT")
        _kept_libraries.append(library)
        arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        try:
            for operator in ("nms", "qnms"):
                library.define(f"{operator}{arguments}")
        except RuntimeError as error:
            return None, f"importing it failed: {describe_error(error)}"
        found, reason = _imported("torchvision")
    if found is not None and not callable(getattr(found.models, "list_models", None)):
        return None, "importing it failed: it has no models"
    return found, reason


_kept_libraries: list[torch.library.Library] = []
"""Keeps definitions alive, which are removed with their library object."""


def install_command() -> str:
    """Return the command that installs timm and transformers for this Python."""
    python = "python"
    found = shutil.which(python)
    if found is None or Path(found) != Path(sys.executable):
        python = shlex.quote(sys.executable)
    return f"{python} -m pip install 'roofline[models]'"


def describe_error(error: BaseException) -> str:
    """Return the type and message of an exception, in one line."""
    return f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")


def with_torchvision(load: Callable[[], T]) -> T:
    """Return `load()`, retried with torchvision's missing operator schemas if it fails for them.

    So users' files that import torchvision work like torchvision's named models.
    """
    try:
        return load()
    except Exception as error:
        # In the error or its causes: timm and transformers import torchvision too.
        cause: BaseException | None = error
        while cause is not None and "torchvision::nms" not in error_text(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None or library_or_reason("torchvision")[0] is None:
            raise
    return load()


def _imported(name: str) -> tuple[ModuleType | None, str]:
    try:
        # Import warnings are not about the user's model.
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(name), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            install = "pip install torchvision" if name == "torchvision" else install_command()
            return None, f"it is not installed; install it with: {install}"
        return None, f"importing it failed: {describe_error(error)}"


def _forget_torchvision() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


# -- a stub package that has every name ------------------------------------------------------------


def _stand_in(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = _StandIn(name, (), {})
    setattr(self, name, value)
    return value


class _StandIn(type):
    """A class whose attributes are further stubs, without instances."""

    __getattr__ = _stand_in

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise ImportError(f"{cls.__name__} is part of torchvision, which cannot be imported here")


class _StandInModule(ModuleType):
    __getattr__ = _stand_in


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is empty."""
