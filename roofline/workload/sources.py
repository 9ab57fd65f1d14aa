"""Where models come from: a name, a factory in a package or a file; never downloaded, never allocated."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from roofline.errors import InputError, ModelError, nearest
from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.units import parse_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """An input that the user asks for: ``1x3x224x224``, ``int64:1x128`` … see `parse_input`."""

    name: str = ""
    shape: tuple[int, ...]
    dtype: DType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model ready to run: its module, its name for people, and the inputs it takes by default.

    ``default_shapes`` is empty where the model's inputs cannot be known; ``notes`` say what had to be
    done to build it.
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
    shape, _colon, kind = rest.partition(":")
    if equals and not name.isidentifier():
        raise InputError(f"--input '{text}': '{name}' is not the name of an argument")
    try:
        return InputRequest(
            name=name, shape=parse_shape(shape), dtype=dtype(kind) if kind else None
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
        return importlib.import_module("torchvision"), ""
    except ModuleNotFoundError as error:
        if error.name == "torchvision":
            return None, "it is not installed (`pip install torchvision`)"
        reason = str(error)
    except Exception as error:
        reason = str(error)
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
            return importlib.import_module("torchvision"), ""
        except Exception as error:
            reason = str(error)
    return None, " ".join(f"importing it failed: {reason}".split())


_kept_libraries: list[torch.library.Library] = []
"""A library's definitions go when it is collected."""


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
        return _from_factory(name, _file_module(before), after)
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
        if Path(asked).suffix == ".py":
            raise ModelError(f"model '{asked}': name what to build in it, as in {asked}:Model")
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
    shape = (1, 3, *_image_size(torchvision, model))
    return Source(name=model, module=module, default_shapes=(shape,), notes=notes)


def _quick(builder: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """GoogLeNet and Inception spend seconds on initial weights, and warn, unless told not to."""
    if builder.__name__ in ("googlenet", "inception_v3"):
        return {**options, "init_weights": False}
    return options


def _image_size(torchvision: ModuleType, model: str) -> tuple[int, ...]:
    """The size a model's published weights are evaluated at, the smallest of them; 224 if none are."""
    sizes: list[int] = []
    for weights in torchvision.models.get_model_weights(model):
        transforms = weights.transforms
        crop = getattr(transforms, "keywords", {}).get("crop_size")
        if isinstance(crop, int):
            sizes.append(crop)
    size = min(sizes, default=224)
    return (size, size)


def _package_module(name: str, package: str) -> ModuleType:
    # A script's folder is on the path when Python runs it; a command's is not.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and package.split(".")[0] == error.name.split(".")[0]:
            raise ModelError(f"model '{name}': no package '{error.name}' is installed") from None
        raise ModelError(f"model '{name}': importing '{package}' failed: {error}") from error
    except Exception as error:
        raise ModelError(
            f"model '{name}': importing '{package}' failed: {type(error).__name__}: {error}"
        ) from error


def _file_module(path_text: str) -> ModuleType:
    path = Path(path_text)
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{path}: importing it failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
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
            module = factory()
    except Exception:
        try:
            module = factory()
        except Exception as error:
            said = " ".join(str(error).split())
            raise ModelError(
                f"model '{name}': building it failed: {type(error).__name__}: {said}"
            ) from error
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
        InputError: none given and none known, a batch below 1, or the same keyword twice.
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
    if batch < 1:
        raise InputError(f"--batch {batch}: must be at least 1")
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
