"""Models of torchvision and timm by name, and the input that each takes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from roofline.errors import ModelError, nearest
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source, build


def timm_model(timm: ModuleType, model: str, asked: str) -> Source:
    """The model that timm calls `model`, without weights; `asked` is what the user wrote.

    Args:
        timm: the library.
        model: a name with or without the tag of its weights (``.in1k``), which says at which size
            it was trained; nothing is downloaded either way.
        asked: what messages and results call the model.

    Raises:
        ModelError: it has none of that name.
    """
    if not timm.is_model(model):
        near = nearest(model.partition(".")[0], timm.list_models(), prefix="timm:")
        raise ModelError(f"unknown model '{asked}'{near} (not a name of timm's models)")

    create = functools.partial(timm.create_model, model, pretrained=False)
    source = build(asked, create, _without_warnings)
    return replace(source, default_inputs=timm_inputs(source.module))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """That a model had another name before is not worth a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def is_timm_model(module: torch.nn.Module) -> bool:
    """Whether timm made it."""
    return type(module).__module__.partition(".")[0] == "timm"


def timm_inputs(module: torch.nn.Module) -> tuple[InputRequest, ...]:
    """One image of the size that the model's configuration names; nothing where it names none."""
    settings = getattr(module, "pretrained_cfg", None)
    size = settings.get("input_size") if isinstance(settings, dict) else None
    if not isinstance(size, (tuple, list)) or not all(isinstance(each, int) for each in size):
        return ()
    return (InputRequest(shape=(1, *size)),)


def torchvision_model(torchvision: ModuleType, model: str, asked: str) -> Source:
    """The model that torchvision calls `model`, without weights; `asked` is what the user wrote.

    Raises:
        ModelError: it has none of that name.
    """
    names = torchvision.models.list_models()
    if model not in names:
        raise ModelError(
            f"unknown model '{asked}'{nearest(model, names)} (not a name of torchvision's models)"
        )
    builder = torchvision.models.get_model_builder(model)
    options: dict[str, Any] = {"weights": None}
    taken = inspect.signature(builder).parameters
    if "weights_backbone" in taken:
        options["weights_backbone"] = None
    source = build(asked, functools.partial(builder, **_quick(builder, options)))
    inputs = tuple(InputRequest(shape=shape) for shape in _default_shapes(torchvision, model))
    return replace(source, name=model, default_inputs=inputs)


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
