"""Where models come from: a name, a factory in a package or a file. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch

from roofline.errors import InputError, ModelError, nearest, said_by
from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.units import parse_shape

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """An input that the user asks for: ``1x3x224x224``, ``int64:1x128`` … see `parse_input`."""

    name: str = ""
    shape: tuple[int, ...]
    dtype: DType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model ready to run: its module, its name for people, and the inputs it takes by default.

    ``default_shapes`` is empty where the model's inputs cannot be known; ``notes`` say what had to
    be done to build it.
    """

    name: str
    module: torch.nn.Module
    default_shapes: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()


def parse_input(text: str) -> InputRequest:
    """The input written as ``1x3x224x224``, ``1x128:int64``, or ``name=1x128:int64`` for a keyword.

    Raises:
        InputError: not of that form.
    """
    name, equals, rest = text.rpartition("=")
    shape, colon, kind = rest.partition(":")
    if equals and not name.isidentifier():
        raise InputError(f"--input '{text}': '{name}' is not the name of an argument")
    try:
        return InputRequest(
            name=name, shape=parse_shape(shape), dtype=dtype(kind) if colon else None
        )
    except InputError as error:
        raise InputError(
            f"--input '{text}': {error} (write 1x3x224x224, 1x128:int64 or name=1x128:int64)"
        ) from None


@functools.cache
def torchvision_or_reason() -> tuple[ModuleType | None, str]:
    """torchvision, or None and why it cannot be imported.

    Beside a CPU-only torch the compiled part of a CUDA build of torchvision cannot load, and its
    import fails where it describes ``nms`` and ``qnms``; with schemas for these two it imports, and
    the models that need no compiled operator work. Any exception counts as absent.
    """
    try:
        return _with_models(importlib.import_module("torchvision")), ""
    except ModuleNotFoundError as error:
        if error.name == "torchvision":
            return None, "it is not installed (`pip install torchvision`)"
        reason = _said(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = _said(error)
    if "torchvision::nms" in reason:
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        _kept_libraries.append(library)
        try:
            for operator in ("nms", "qnms"):
                library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            return _with_models(importlib.import_module("torchvision")), ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = _said(error)
    return None, f"importing it failed: {reason}"


def _said(error: BaseException) -> str:
    """What an exception is and says, in one line."""
    return f"{type(error).__name__}: {said_by(error)}".removesuffix(": ")


def _with_models(module: ModuleType) -> ModuleType:
    """`module` if it is a torchvision that has models, and not something else of that name."""
    if not callable(getattr(module.models, "list_models", None)):
        raise ImportError("it has no models")
    return module


_kept_libraries: list[torch.library.Library] = []
"""A library's definitions go when it is collected."""


def _with_torchvision(load: Callable[[], T]) -> T:
    """What `load` gives; if it fails for torchvision's missing schemas, what it gives with them.

    So a user's own file that imports torchvision works wherever the named models do.
    """
    try:
        return load()
    except Exception as error:
        if "torchvision::nms" not in str(error) or torchvision_or_reason()[0] is None:
            raise
    return load()


def torchvision_names() -> list[str]:
    """The names of torchvision's models; empty where torchvision is absent."""
    torchvision, _reason = torchvision_or_reason()
    return [] if torchvision is None else list(torchvision.models.list_models())


def load(name: str) -> Source:
    """The model called `name`, without weights.

    Args:
        name: ``resnet50`` or ``torchvision:resnet50``, ``package.module:factory``, or
            ``file.py:Model``; a factory is called without arguments and returns a module, or is a
            module itself.

    Raises:
        ModelError: unknown name (the nearest is suggested), a missing file, package or factory, a
            factory that raises or returns no module.
    """
    before, colon, after = name.rpartition(":")
    if colon and before.endswith(".py"):
        with _first_on_path(Path(before).parent.resolve()):
            return _from_factory(name, _file_module(Path(before)), after)
    if not colon and name.endswith(".py"):
        raise ModelError(f"model '{name}': name what to build in it, as in {name}:Model")
    if before == "torchvision" or not colon:
        return _from_torchvision(after, name)
    if "/" in before or not all(part.isidentifier() for part in before.split(".")):
        raise ModelError(
            f"model '{name}': '{before}' is neither a package nor a .py file;"
            " write resnet50, package.module:factory or file.py:Model"
        )
    return _from_factory(name, _package_module(name, before), after)


def _from_torchvision(model: str, asked: str) -> Source:
    torchvision, reason = torchvision_or_reason()
    if torchvision is None:
        raise ModelError(
            f"model '{asked}': torchvision's models are not available: {reason};"
            " models of your own work: package.module:factory or file.py:Model"
        )
    names = torchvision_names()
    if model not in names:
        raise ModelError(
            f"unknown model '{asked}'{nearest(model, names)}"
            " (torchvision names, package.module:factory or file.py:Model)"
        )
    builder = torchvision.models.get_model_builder(model)
    options: dict[str, Any] = {"weights": None}
    taken = inspect.signature(builder).parameters
    if "weights_backbone" in taken:
        options["weights_backbone"] = None
    module, notes = _build(asked, functools.partial(builder, **_quick(builder, options)))
    shapes = _default_shapes(torchvision, model)
    return Source(name=model, module=module, default_shapes=shapes, notes=notes)


def _quick(builder: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """GoogLeNet and Inception spend seconds on initial weights, and warn, unless told not to."""
    if builder.__name__ in ("googlenet", "inception_v3"):
        return {**options, "init_weights": False}
    return options


_CLIP_FRAMES = 16
"""Frames of a clip, for which torchvision states the operations of its video models."""


def _default_shapes(torchvision: ModuleType, model: str) -> tuple[tuple[int, ...], ...]:
    """The smallest input that a model's published weights are evaluated at; 224x224 if none are.

    Empty for detection and optical flow, whose input is not one batch of images.
    """
    shapes: list[tuple[int, ...]] = []
    published = list(torchvision.models.get_model_weights(model))
    for weights in published:
        options = getattr(weights.transforms, "keywords", {})
        match options.get("crop_size", options.get("resize_size")):
            case int(size):
                shapes.append((1, 3, size, size))
            case (int(height), int(width)):
                shapes.append((1, 3, _CLIP_FRAMES, height, width))
            case _:
                pass
    if not published:
        shapes.append((1, 3, 224, 224))
    return tuple(sorted(shapes)[:1])


def _package_module(name: str, package: str) -> ModuleType:
    # A script's folder is on the path when Python runs it; a command's is not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _with_torchvision(lambda: importlib.import_module(package))
    except ModuleNotFoundError as error:
        if error.name and package.split(".")[0] == error.name.split(".")[0]:
            raise ModelError(f"model '{name}': no package '{error.name}' is installed") from None
        raise ModelError(f"model '{name}': importing '{package}' failed: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"model '{name}': importing '{package}' failed: {_said(error)}") from error


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
    name = f"roofline_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: is not a Python file")
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    # Known while it runs and after: dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        _with_torchvision(lambda: loader.exec_module(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ModelError(f"{path}: importing it failed: {_said(error)}") from error
    return module


def _from_factory(name: str, home: ModuleType, factory_name: str) -> Source:
    factory = getattr(home, factory_name, None)
    if factory is None:
        public = [each for each in dir(home) if not each.startswith("_")]
        raise ModelError(
            f"model '{name}': nothing called '{factory_name}' in it{nearest(factory_name, public)}"
        )
    if isinstance(factory, torch.nn.Module):
        return Source(name=name, module=factory)
    if not callable(factory):
        raise ModelError(
            f"model '{name}': '{factory_name}' is a {type(factory).__name__},"
            " not a module nor a function that makes one"
        )
    module, notes = _build(name, factory)
    return Source(name=name, module=module, notes=notes)


def _build(name: str, factory: Callable[[], Any]) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """The module that `factory` makes, on the meta device where it can be, else for real."""
    notes: tuple[str, ...] = ()
    try:
        with torch.device("meta"):
            module = _with_torchvision(factory)
    except KeyboardInterrupt:
        raise
    except BaseException:
        try:
            module = factory()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ModelError(f"model '{name}': building it failed: {_said(error)}") from error
        notes = (f"{name} could not be built without weights, so it was built for real",)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model '{name}': the factory returned {type(module).__name__}, not a torch.nn.Module"
        )
    return module, notes


def requests_for(
    source: Source,
    given: Sequence[InputRequest],
    *,
    batch: int | None,
) -> tuple[InputRequest, ...]:
    """The inputs to run with: those given, else the model's own, with `batch` as their first size.

    Raises:
        InputError: none given and none known, or the same keyword twice.
    """
    requests = tuple(given) or tuple(InputRequest(shape=shape) for shape in source.default_shapes)
    if not requests:
        takes = ", ".join(_forward_arguments(source.module))
        raise InputError(
            f"model '{source.name}' does not say what inputs it takes; add --input SHAPE for each"
            f" (its forward takes {takes or 'no arguments'})"
        )
    names = [request.name for request in requests if request.name]
    if len(set(names)) < len(names):
        raise InputError(f"--input names an argument twice: {', '.join(names)}")
    if batch is None:
        return requests
    if any(not each.shape for each in requests):
        raise InputError("batch: an input without dimensions has no first size to replace")
    return tuple(
        InputRequest(name=each.name, shape=(batch, *each.shape[1:]), dtype=each.dtype)
        for each in requests
    )


def _forward_arguments(module: torch.nn.Module) -> list[str]:
    return list(inspect.signature(module.forward).parameters)


def given(module: torch.nn.Module) -> Source:
    """A module that the user already has.

    Raises:
        ModelError: it is no module.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module or the name of a model, got {type(module).__name__}"
        )
    return Source(name=type(module).__name__, module=module)


def requests_of(inputs: Any) -> tuple[tuple[InputRequest, ...], dict[int, torch.Tensor]]:
    """Inputs as Python code gives them: what each asks for, and the tensors among them by position.

    Args:
        inputs: None, a tensor, a shape (``(1, 3, 224, 224)`` or ``"1x3x224x224"``), a sequence of
            these, or a mapping from argument name to one of these.

    Raises:
        InputError: something else.
    """
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        pairs = [(str(name), value) for name, value in inputs.items()]
    elif isinstance(inputs, (torch.Tensor, str, InputRequest)) or _is_shape(inputs):
        pairs = [("", inputs)]
    elif isinstance(inputs, Sequence):
        pairs = [("", value) for value in inputs]
    else:
        raise _not_an_input(inputs)
    requests: list[InputRequest] = []
    values: dict[int, torch.Tensor] = {}
    for position, (name, value) in enumerate(pairs):
        match value:
            case torch.Tensor():
                values[position] = value
                requests.append(InputRequest(name=name, shape=tuple(value.shape)))
            case InputRequest():
                requests.append(value if not name else replace(value, name=name))
            case str():
                request = parse_input(value)
                requests.append(request if not name else replace(request, name=name))
            case _ if _is_shape(value):
                requests.append(InputRequest(name=name, shape=tuple(value)))
            case _:
                raise _not_an_input(value)
    return tuple(requests), values


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and bool(value)
        and all(isinstance(size, int) and size > 0 for size in value)
    )


def _not_an_input(value: Any) -> InputError:
    return InputError(
        f"inputs: expected a tensor, a shape such as (1, 3, 224, 224) or '1x3x224x224', a sequence"
        f" of these or a mapping by argument name, got {value!r}"
    )
