"""Whether a library of models can be imported here, and if not, why, in one line.

Any exception counts as absent. timm and transformers both import torchvision where they find one:
a torchvision that is broken must not break them.
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
    """The library, or None and why it cannot be imported: ``"it is not installed (…)"``.

    timm takes a few names from torchvision, for images and for converting layers; none of its
    models needs them to be built or run, so where torchvision cannot be imported something stands
    in. transformers asks whether there is a torchvision and does without; one that is there and
    cannot be imported breaks it, so it is told that there is none.
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
            # It remembers the answer to its first question.
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
        # Beside a CPU-only torch the compiled part of a CUDA build cannot load, and the import
        # fails where it describes these two; with schemas for them all else works.
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
"""A library's definitions go when it is collected."""


def install_command() -> str:
    """What installs timm and transformers beside the roofline that runs here."""
    python = "python"
    found = shutil.which(python)
    if found is None or Path(found) != Path(sys.executable):
        python = shlex.quote(sys.executable)
    return f"{python} -m pip install 'roofline[models]'"


def describe_error(error: BaseException) -> str:
    """What an exception is and says, in one line."""
    return f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")


def with_torchvision(load: Callable[[], T]) -> T:
    """What `load` gives; if it fails for torchvision's missing schemas, what it gives with them.

    So a user's own file that imports torchvision works wherever the named models do.
    """
    try:
        return load()
    except Exception as error:
        # Said in it, or in what led to it: timm and transformers import torchvision too.
        cause: BaseException | None = error
        while cause is not None and "torchvision::nms" not in error_text(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None or library_or_reason("torchvision")[0] is None:
            raise
    return load()


def _imported(name: str) -> tuple[ModuleType | None, str]:
    try:
        # What a library warns about while it is imported is not about the user's model.
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


# -- a package that has every name, and nothing behind any of them ---------------------------------


def _stand_in(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = _StandIn(name, (), {})
    setattr(self, name, value)
    return value


class _StandIn(type):
    """A class whose every attribute is another one, and of which there are no instances."""

    __getattr__ = _stand_in

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise ImportError(f"{cls.__name__} is torchvision's, which cannot be imported here")


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
        """There is nothing in it."""
