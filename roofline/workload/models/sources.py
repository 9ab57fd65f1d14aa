"""Where models come from: a name, a factory in a package or a file. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from roofline.errors import InputError, ModelError, nearest
from roofline.workload.models.building import Source as Source
from roofline.workload.models.building import build
from roofline.workload.models.functions import Function, name_of
from roofline.workload.models.libraries import names
from roofline.workload.models.libraries.availability import (
    install_command,
    library_or_reason,
    said,
    with_torchvision,
)
from roofline.workload.models.libraries.availability import (
    torchvision_or_reason as torchvision_or_reason,
)
from roofline.workload.models.libraries.names import LIBRARIES, PREFIX, Library
from roofline.workload.models.libraries.timm_models import is_timm_model, timm_inputs, timm_model
from roofline.workload.models.libraries.torchvision_models import torchvision_model
from roofline.workload.models.libraries.transformers_inputs import (
    is_transformers_model,
    transformers_inputs,
)
from roofline.workload.models.libraries.transformers_models import (
    no_model_of_its_own,
    transformers_model,
    unknown_to_transformers,
)

_LIBRARY_OF: dict[str, Library] = {prefix: library for library, prefix in PREFIX.items()}
_OWN = "package.module:factory or file.py:Model"


def load(name: str, *, seq: int | None = None) -> Source:
    """The model called `name`, without weights.

    Args:
        name: ``resnet50`` (torchvision's, else timm's, else transformers'),
            ``torchvision:resnet50``, ``timm:resnet50``, ``hf:bert`` or ``hf:BertForMaskedLM``,
            ``package.module:factory``, or ``file.py:Model``; a factory is called without arguments
            and returns a module, or is a module itself.
        seq: how many tokens a model that takes tokens is given; None: 128.

    Raises:
        ModelError: unknown name (the nearest is suggested), a missing library, file, package or
            factory, a factory that raises or returns no module.
        InputError: `seq` for a model that takes no tokens, or not so many.
    """
    library, colon, model = name.partition(":")
    if colon and library in _LIBRARY_OF:
        return _from_library(_LIBRARY_OF[library], model, name, seq)
    before, colon, after = name.rpartition(":")
    if colon and before.endswith(".py"):
        around = functools.partial(_first_on_path, Path(before).parent.resolve())
        with around():
            home = _file_module(Path(before))
        return _from_factory(name, home, after, seq, around)
    if not colon and name.endswith(".py"):
        raise ModelError(f"model '{name}': name what to build in it, as in {name}:Model")
    if not colon:
        return _from_first_library(name, seq)
    if "/" in before or not all(part.isidentifier() for part in before.split(".")):
        raise ModelError(
            f"model '{name}': '{before}' is neither a package nor a .py file;"
            f" write resnet50, timm:resnet50, hf:bert, {_OWN}"
        )
    return _from_factory(name, _package_module(name, before), after, seq)


def given(model: torch.nn.Module | Callable[..., Any], *, seq: int | None = None) -> Source:
    """A module or function that the user already has.

    Raises:
        ModelError: it is neither.
        InputError: `seq` for a model that takes no tokens, or not so many.
    """
    if isinstance(model, torch.nn.Module):
        return _with_inputs(Source(name=type(model).__name__, module=model), seq)
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module, got the class {model.__name__};"
            f" make one: {model.__name__}(…)"
        )
    if isinstance(model, type) or not callable(model):
        raise ModelError(
            "expected a torch.nn.Module, a function or the name of a model,"
            f" got {type(model).__name__}"
        )
    return _with_inputs(Source(name=name_of(model), module=Function(model)), seq)


def _with_inputs(source: Source, seq: int | None) -> Source:
    """The user's own model, with its default inputs where a known library made it."""
    name, module = source.name, source.module
    if is_transformers_model(module):
        inputs, input_notes = transformers_inputs(module, name=name, seq=seq)
        return replace(source, default_inputs=inputs, input_notes=input_notes)
    if seq is not None:
        raise InputError(
            f"--seq {seq}: {name} is not known to take tokens; say what it takes with --input"
        )
    return replace(source, default_inputs=timm_inputs(module)) if is_timm_model(module) else source


# -- names of libraries ----------------------------------------------------------------------------


def _from_library(library: Library, model: str, asked: str, seq: int | None) -> Source:
    """The model that `library` calls `model`; `asked` is what the user wrote."""
    if library == "transformers" and (names.is_on_a_hub(model) or names.is_abstract(model)):
        # Said at once, and not after the seconds that its import takes.
        raise unknown_to_transformers(model, asked)
    module, reason = library_or_reason(library)
    if module is None:
        raise ModelError(f"model '{asked}': {library} is not available: {reason}")
    if library == "transformers":
        return transformers_model(module, model, asked, seq=seq)
    source = (torchvision_model if library == "torchvision" else timm_model)(module, model, asked)
    if seq is not None:
        raise InputError(f"--seq {seq}: {asked} takes no tokens but images")
    return source


def _from_first_library(name: str, seq: int | None) -> Source:
    """The model of a bare name, from the first library that has it and can be imported."""
    missing: list[str] = []
    for position, library in enumerate(LIBRARIES):
        if not names.has(library, name):
            # Names that cannot be read, because it is not there or not whole, might have been its.
            if library == "torchvision" and not names.names_of(library):
                missing += _reason_against(library)
            continue
        reason = _reason_against(library)
        if reason:
            missing += reason
            continue
        others: list[Library] = [
            each for each in LIBRARIES[position + 1 :] if names.has(each, name)
        ]
        source = _from_library(library, name, name, seq)
        notes = [
            f"{each}, so {name} is {library}'s (write {PREFIX[library]}:{name} to say so)"
            for each in missing
        ]
        if others:
            also = " or ".join(f"{PREFIX[each]}:{name}" for each in others)
            notes.append(
                f"{name} is also a name of {' and '.join(others)}; {library}'s was taken"
                f" (write {also} for the other)"
            )
        return replace(source, notes=(*notes, *source.notes))
    if missing:
        raise ModelError(f"model '{name}': {'; '.join(missing)}; models of your own work: {_OWN}")
    raise _unknown(name)


def _reason_against(library: Library) -> list[str]:
    """Why `library` cannot be used, as a list of one clause; empty if it can."""
    module, reason = library_or_reason(library)
    return [] if module is not None else [f"{library} is not available: {reason}"]


def _unknown(name: str) -> ModelError:
    if names.is_abstract(name):
        return no_model_of_its_own(name)
    without = [each for each in LIBRARIES[1:] if not names.names_of(each)]
    more = f"; {' and '.join(without)} would know more: {install_command()}" if without else ""
    kind = names.nearest_type(name) if names.is_on_a_hub(name) else None
    if kind:
        return ModelError(
            f"unknown model '{name}'; did you mean 'hf:{kind}'?"
            " (nothing is downloaded, so names on the hub are not taken)"
        )
    return ModelError(
        f"unknown model '{name}'{nearest(name, names.all_names())}"
        f" (names of torchvision, timm and transformers, {_OWN}{more})"
    )


# -- the user's own models -------------------------------------------------------------------------


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
    name = f"roofline_model_{path.stem}"
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


def _needed_arguments(factory: Any) -> list[str]:
    """The arguments that a factory cannot be called without."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each.name
        for each in parameters
        if each.default is inspect.Parameter.empty and each.kind not in optional
    ]


def _from_factory(
    name: str,
    home: ModuleType,
    factory_name: str,
    seq: int | None,
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Source:
    factory = getattr(home, factory_name, None)
    if factory is None:
        public = [each for each in dir(home) if not each.startswith("_")]
        raise ModelError(
            f"model '{name}': nothing called '{factory_name}' in it{nearest(factory_name, public)}"
        )
    if isinstance(factory, torch.nn.Module):
        return _with_inputs(Source(name=name, module=factory), seq)
    if needed := _needed_arguments(factory):
        raise ModelError(
            f"model '{name}': '{factory_name}' takes {', '.join(needed)}, but is called without"
            " arguments: name a function that returns the model (a function that is the model goes"
            " to roofline.analyze in Python)"
        )
    if not callable(factory):
        raise ModelError(
            f"model '{name}': '{factory_name}' is a {type(factory).__name__},"
            " not a module nor a function that makes one"
        )
    return _with_inputs(build(name, factory, around), seq)
