"""timm's models by name, and the input that each takes."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

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
