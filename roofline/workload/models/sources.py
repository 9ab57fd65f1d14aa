"""Models by name, from libraries, packages, files and designs. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from roofline.core.text import NOTE
from roofline.errors import InputError, ModelError, argument, did_you_mean
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import OWN_FORMS, Source, build, get_factory, import_home
from roofline.workload.models.expressions.building import Factory, Find, design_source
from roofline.workload.models.expressions.layers import is_needed, layer_class, signature_of
from roofline.workload.models.expressions.reading import is_expression
from roofline.workload.models.files.formats import StoredModel, is_model_file
from roofline.workload.models.libraries import names
from roofline.workload.models.libraries.availability import (
    install_command,
    library_or_reason,
)
from roofline.workload.models.libraries.names import LIBRARIES, PREFIX, Library
from roofline.workload.models.libraries.transformers_config import Settings, parse_settings
from roofline.workload.models.libraries.transformers_models import (
    abstract_class_error,
    is_transformers_model,
    transformers_inputs,
    transformers_model,
    unknown_name_error,
)


def _timm_model(timm: ModuleType, model: str, title: str) -> Source:
    """Return timm's `model`; the tag of its weights determines the input size."""
    if not timm.is_model(model):
        near = did_you_mean(model.partition(".")[0], timm.list_models(), prefix="timm:")
        raise ModelError(f"unknown timm model '{title}'{near}")
    create = functools.partial(timm.create_model, model, pretrained=False)
    # Warnings about renamed models are not shown.
    source = build(title, create, lambda: warnings.catch_warnings(action="ignore"))
    return replace(source, default_inputs=_timm_inputs(source.module))


def _timm_inputs(module: torch.nn.Module) -> tuple[InputRequest, ...]:
    """Return one image of the size in the model's configuration, if there is one."""
    settings = getattr(module, "pretrained_cfg", None)
    size = settings.get("input_size") if isinstance(settings, dict) else None
    if not isinstance(size, (tuple, list)) or not all(isinstance(each, int) for each in size):
        return ()
    return (InputRequest(shape=(1, *size)),)


_CLIP_FRAMES = 16
"""Frames of a clip for which torchvision publishes the FLOP of its video models."""


def _torchvision_model(torchvision: ModuleType, model: str, title: str) -> Source:
    """Return torchvision's model of that name, without weights.

    Its default input is the smallest that published weights are evaluated at, 224x224 without such
    weights. Detection and optical flow have none: they take more than one batch of images.
    """
    known = torchvision.models.list_models()
    if model not in known:
        raise ModelError(f"unknown torchvision model '{title}'{did_you_mean(model, known)}")
    builder = torchvision.models.get_model_builder(model)
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    if builder.__name__ in ("googlenet", "inception_v3"):
        # Initial weights of these and their quantized forms take seconds.
        options["init_weights"] = False
    source = build(title, functools.partial(builder, **options))
    published = list(torchvision.models.get_model_weights(model))
    shapes: list[tuple[int, ...]] = [] if published else [(1, 3, 224, 224)]
    for weights in published:
        transforms = getattr(weights.transforms, "keywords", {})
        match transforms.get("crop_size", transforms.get("resize_size")):
            case int(size):
                shapes.append((1, 3, size, size))
            case (int(height), int(width)):
                shapes.append((1, 3, _CLIP_FRAMES, height, width))
            case _:
                pass
    inputs = tuple(InputRequest(shape=shape) for shape in sorted(shapes)[:1])
    return replace(source, name=model, default_inputs=inputs)


class Function(torch.nn.Module):
    """A function as a model, with the modules that it uses as submodules.

    These are the module of a method, and modules among closure and global variables, defaults, and
    arguments of `functools.partial`, also in lists and dictionaries.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        for name, module in _modules_of(function):
            if all(module is not part for part in self.children()):
                self.add_module(name.replace(".", "_"), module)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of its class if it has none."""
    name = getattr(function, "__name__", "")
    return name if name and name != "<lambda>" else type(function).__name__


def _modules_of(function: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a function can call, with their names."""
    if isinstance(function, functools.partial):
        yield from _modules_of(function.func)
        yield from _modules_in({"argument": function.args, **function.keywords})
        return
    for owner in (getattr(function, "__self__", None), function):
        if isinstance(owner, torch.nn.Module):
            yield type(owner).__name__, owner
            break
    function = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(function):
        known, code = function.__globals__, function.__code__
        yield from _modules_in({name: known[name] for name in code.co_names if name in known})
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            # A closure variable may be assigned later.
            with contextlib.suppress(ValueError):
                yield from _modules_in({name: cell.cell_contents})
        yield from _modules_in(function.__kwdefaults__ or {})
        yield from _modules_in({"default": function.__defaults__ or ()})


def _modules_in(variables: dict[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    for path, value in pytree.tree_flatten_with_path(variables)[0]:
        if isinstance(value, torch.nn.Module):
            steps: Iterable[Any] = path
            yield (
                "_".join(
                    str(getattr(each, "key", getattr(each, "idx", getattr(each, "name", ""))))
                    for each in steps
                ),
                value,
            )
        elif isinstance(value, functools.partial) or inspect.ismethod(value):
            yield from _modules_of(value)


_LIBRARY_OF: dict[str, Library] = {prefix: library for library, prefix in PREFIX.items()}


def load_model(name: str, *, seq: int | None = None, config: str | None = None) -> Source:
    """Return the model called `name`, without weights; docs/reference/models.md lists the forms.

    Args:
        name: a library model, a factory in a package or file, a model file, or a design.
        seq: sequence length of a model that takes tokens [default: 128].
        config: sizes of a transformers model, see `parse_settings` [default: its own].
    """
    settings = parse_settings(config) if config is not None else None
    library, colon, model = name.partition(":")
    prefixed = _LIBRARY_OF.get(library) if colon else None
    if settings is not None:
        first = next((each for each in LIBRARIES if names.has_model(each, name)), "transformers")
        is_other = is_expression(name) or name.endswith(".py") or is_model_file(name)
        if is_other or (prefixed if colon else first) != "transformers":
            raise InputError(
                f"{argument('config', config)} has no effect on {name}: only transformers types and"
                " classes have a configuration, such as hf:llama"
            )
    if isinstance(name, StoredModel) or is_model_file(name):
        # Imported only here: most models are not files.
        from roofline.workload.models.files.reading import stored_source

        if seq is not None and is_model_file(name):
            raise InputError(
                f"{argument('seq', seq)} has no effect on {name}, which runs on its exported"
                f" inputs; use {argument('inputs')}"
            )
        stored = name if isinstance(name, StoredModel) else StoredModel(name)
        return stored_source(stored, lambda maker: load_model(maker, seq=seq, config=config))
    if is_expression(name):
        if seq is not None:
            raise InputError(
                f"{argument('seq', seq)} has no effect on a design: write {seq} into the shape"
                " after its @"
            )
        return design_source(name, _finder())
    if prefixed:
        return _from_library(prefixed, model, name, seq, settings)
    before, colon, after = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise ModelError(f"model '{name}': no class or function named; write {name}:Model")
    if not colon:
        return _from_first_library(name, seq, settings)
    home, around = import_home(name, before)
    factory = get_factory(name, home, after)
    if isinstance(factory, torch.nn.Module):
        return _with_inputs(Source(name=name, module=factory), seq)
    takes = signature_of(factory).parameters.values()
    if needed := [each.name for each in takes if is_needed(each)]:
        raise ModelError(
            f"model '{name}': '{after}' requires the arguments {', '.join(needed)}; name a function"
            " without arguments that returns the model (or pass the function itself to"
            " roofline.analyze in Python)"
        )
    return _with_inputs(build(name, factory, around), seq)


def wrap_model(model: torch.nn.Module | Callable[..., Any], *, seq: int | None = None) -> Source:
    """Return the user's module or function as a model."""
    if isinstance(model, torch.nn.Module):
        return _with_inputs(Source(name=type(model).__name__, module=model), seq)
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module, got the class {model.__name__};"
            f" create an instance: {model.__name__}(…)"
        )
    if isinstance(model, type) or not callable(model):
        raise ModelError(
            f"expected a torch.nn.Module, a function or a model name, got {type(model).__name__}"
        )
    return _with_inputs(Source(name=function_name(model), module=Function(model)), seq)


def _with_inputs(source: Source, seq: int | None) -> Source:
    """Return the user's model, with default inputs if it is of a known library."""
    name, module = source.name, source.module
    if is_transformers_model(module):
        inputs, input_notes = transformers_inputs(module, name=name, seq=seq)
        return replace(source, default_inputs=inputs, input_notes=input_notes)
    if seq is not None:
        raise InputError(
            f"{argument('seq', seq)}: token inputs of {name} are not known; use"
            f" {argument('inputs')}"
        )
    is_timms = type(module).__module__.partition(".")[0] == "timm"
    return replace(source, default_inputs=_timm_inputs(module)) if is_timms else source


# -- names of libraries ----------------------------------------------------------------------------


def _from_library(
    library: Library, model: str, title: str, seq: int | None, settings: Settings | None
) -> Source:
    """Return `model` of a library; `title` is the name as the user wrote it."""
    if library == "transformers" and (names.is_hub_name(model) or names.is_abstract(model)):
        # Before the import of transformers, which takes seconds.
        raise unknown_name_error(model, title)
    module, reason = library_or_reason(library)
    if module is None:
        raise ModelError(f"model '{title}': {library} is not available: {reason}")
    if library == "transformers":
        return transformers_model(module, model, title, seq=seq, settings=settings)
    source = (_torchvision_model if library == "torchvision" else _timm_model)(module, model, title)
    if seq is not None:
        raise InputError(f"{argument('seq', seq)} has no effect on {title}: its inputs are images")
    return source


def _from_first_library(name: str, seq: int | None, settings: Settings | None) -> Source:
    """Return the model of a bare name from the first importable library that has it."""
    missing: list[str] = []
    for position, library in enumerate(LIBRARIES):
        is_its = names.has_model(library, name)
        # Without readable names, a missing or broken torchvision might have the model.
        if not is_its and (library != "torchvision" or names.names_of(library)):
            continue
        module, reason = library_or_reason(library)
        if module is None:
            missing.append(f"{library} is not available: {reason}")
            continue
        if not is_its:
            continue
        source = _from_library(library, name, name, seq, settings)
        notes = [
            f"{each}; {name} is taken from {library} (select it with {PREFIX[library]}:{name})"
            for each in missing
        ]
        others: list[Library] = [
            each for each in LIBRARIES[position + 1 :] if names.has_model(each, name)
        ]
        if others:
            also = " or ".join(f"{PREFIX[each]}:{name}" for each in others)
            notes.append(
                f"{NOTE}{name} is the model of {library}; {' and '.join(others)} also"
                f" {'has' if len(others) == 1 else 'have'} it ({also})"
            )
        return replace(source, notes=(*notes, *source.notes))
    if missing:
        raise ModelError(f"model '{name}': {'; '.join(missing)}; your own models: {OWN_FORMS}")
    raise _unknown(name)


def _unknown(name: str) -> ModelError:
    if names.is_abstract(name):
        return abstract_class_error(name)
    if layer_class(name):
        return ModelError(
            f"'{name}' is a layer of torch.nn; write its arguments and a shape, as in"
            " conv2d(64,64,3)@56x56 or relu()@1x64x56x56"
        )
    without = [each for each in LIBRARIES[1:] if not names.names_of(each)]
    more = f"; for models of {' and '.join(without)}: {install_command()}" if without else ""
    kind = names.nearest_type(name) if names.is_hub_name(name) else None
    if kind:
        return ModelError(
            f"unknown model '{name}'; did you mean 'hf:{kind}'?"
            " (hub names are not supported: nothing is downloaded)"
        )
    return ModelError(
        f"unknown model '{name}'{did_you_mean(name, names.all_names())}"
        f" (models of torchvision, timm and transformers, or {OWN_FORMS}{more})"
    )


# -- the user's own models -------------------------------------------------------------------------


def _finder() -> Find:
    """Return a lookup for models in a design that are not torch layers; files are read once."""
    homes: dict[str, tuple[ModuleType, Callable[[], AbstractContextManager[None]]]] = {}

    def find(home: str, name: str) -> Factory | None:
        if home in _LIBRARY_OF or (
            not home and any(names.has_model(each, name) for each in LIBRARIES)
        ):
            source = load_model(f"{home}:{name}" if home else name)
            make = source.rebuild or (lambda: source.module)
            return Factory(make=make, signature=None, notes=source.notes)
        if not home:
            return None
        full_name = f"{home}:{name}"
        if home not in homes:
            homes[home] = import_home(full_name, home)
        module, around = homes[home]
        made = get_factory(full_name, module, name)
        if isinstance(made, torch.nn.Module):
            return Factory(make=lambda: made, signature=None)
        return Factory(make=made, signature=signature_of(made), around=around)

    return find
