"""Whether a library of models can be imported here, and if not, why, in one line.

Any exception counts as absent. timm and transformers both import torchvision where they find one:
a torchvision that is broken must not break them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from roofline.errors import said_by
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
    if library == "timm":
        with _stand_in_for_torchvision():
            return _imported(library)
    with _no_torchvision():
        found, reason = _imported(library)
        if found is not None:
            # It remembers the answer to its first question.
            _imported("transformers.utils.import_utils")[0].is_torchvision_available()  # type: ignore[union-attr]
        return found, reason


def _torchvision_or_reason() -> tuple[ModuleType | None, str]:
    """torchvision, or None and why it cannot be imported.

    Beside a CPU-only torch the compiled part of a CUDA build of torchvision cannot load, and its
    import fails where it describes ``nms`` and ``qnms``; with schemas for these two it imports, and
    the models that need no compiled operator work.
    """
    found, reason = _imported("torchvision")
    if found is None and "torchvision::nms" in reason:
        import torch

        _forget("torchvision")
        library = torch.library.Library("torchvision", "FRAGMENT")
        _kept_libraries.append(library)
        arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        try:
            for operator in ("nms", "qnms"):
                library.define(f"{operator}{arguments}")
        except RuntimeError as error:
            return None, f"importing it failed: {said(error)}"
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


def said(error: BaseException) -> str:
    """What an exception is and says, in one line."""
    return f"{type(error).__name__}: {said_by(error)}".removesuffix(": ")


def with_torchvision(load: Callable[[], T]) -> T:
    """What `load` gives; if it fails for torchvision's missing schemas, what it gives with them.

    So a user's own file that imports torchvision works wherever the named models do.
    """
    try:
        return load()
    except Exception as error:
        # Said in it, or in what led to it: timm and transformers import torchvision too.
        cause: BaseException | None = error
        while cause is not None and "torchvision::nms" not in said_by(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None or library_or_reason("torchvision")[0] is None:
            raise
    return load()


def _imported(name: str) -> tuple[ModuleType | None, str]:
    try:
        # What a library warns about while it is imported is not about the user's model.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name), ""
    except ModuleNotFoundError as error:
        if error.name == name:
            install = "pip install torchvision" if name == "torchvision" else install_command()
            return None, f"it is not installed; install it with: {install}"
        return None, f"importing it failed: {said(error)}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, f"importing it failed: {said(error)}"


def _forget(package: str) -> None:
    """Takes a package out of the modules that are loaded."""
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        del sys.modules[name]


@contextlib.contextmanager
def _no_torchvision() -> Iterator[None]:
    """Makes torchvision a package that is not installed, for those who ask."""
    _forget("torchvision")
    sys.modules["torchvision"] = None  # type: ignore[assignment]  as import documents it
    try:
        yield
    finally:
        _forget("torchvision")


@contextlib.contextmanager
def _stand_in_for_torchvision() -> Iterator[None]:
    """Makes torchvision a package that has every name, and nothing behind any of them."""
    _forget("torchvision")
    finder = _StandIns()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget("torchvision")


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
