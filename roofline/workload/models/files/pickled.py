"""Models and weights that torch.save wrote: unpickled only where the user says so."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from roofline.errors import FileFormatError, ModelError, RooflineError, nearest, said_by
from roofline.foundation.quiet import quiet
from roofline.foundation.text import printable
from roofline.foundation.units import format_shape
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import archive_in
from roofline.workload.models.files.formats import PICKLE, ZIP, kind_of

_LONGEST = 200


@contextlib.contextmanager
def reading(path: Path, how: str) -> Iterator[None]:
    """While torch reads `path` by `how`: silent, and what it raises is one line about the file.

    Raises:
        FileFormatError: whatever was raised.
    """
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            yield
    except RooflineError:
        raise
    # What is damaged may fail anywhere in torch, and with anything.
    except Exception as error:
        # What it points to was logged, and is not shown.
        said = printable(said_by(error)).partition(" Please check the warnings above")[0]
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
        raise FileFormatError(
            f"{path}: {how} cannot read it: {type(error).__name__}: {said}"
        ) from error


TRUSTED = "it was unpickled (--allow-pickle), which runs whatever code is in a file"
"""What results say of a file that was trusted."""

_IMPORT = re.compile(r"GLOBAL ([\w.]+)")
"""How torch names an import of a pickle that it does not run."""


class NeedsPickleError(FileFormatError):
    """Only unpickling a file, which runs what it says, would tell what is in it."""


def refused_import(error: BaseException | None) -> str:
    """Return ``" that imports posix.mkdir"`` of a pickle that torch refused to load."""
    found = _IMPORT.search(str(error))
    return f" that imports {printable(found[1])[:80]}" if found else ""


def _plain(path: Path) -> Any:
    """Return what is in a file, where that can be told without running code.

    Raises:
        NeedsPickleError: it cannot; the message names what unpickling would import.
        FileFormatError: it is damaged.
    """
    is_zip = kind_of(path) == ZIP
    if is_zip and "data.pkl" not in archive_in(path):
        raise FileFormatError(
            f"{path}: a zip, but nothing that torch wrote: there is no 'data.pkl' in it"
        )
    try:
        with reading(path, "torch.load"):
            return torch.load(path, weights_only=True, map_location="cpu", mmap=is_zip)
    except FileFormatError as error:
        if "Weights only load failed" not in str(error.__cause__):
            raise
        raise NeedsPickleError(
            f"{path}: a pickle{refused_import(error.__cause__)}, and unpickling runs what a file"
            " says; add --allow-pickle if you trust it, or save it with torch.export.save, or its"
            " state_dict()"
        ) from None


def _unpickled(path: Path) -> Any:
    with reading(path, "torch.load"):
        return torch.load(path, weights_only=False, map_location="cpu")


def pickled_source(path: Path, *, allow_pickle: bool) -> Source:
    """Return the module that `torch.save` pickled into a file.

    Raises:
        FileFormatError: it is damaged, or must be unpickled, and that is not allowed.
        ModelError: it holds weights alone, or something else than a module.
    """
    found = _unpickled(path) if allow_pickle else _plain(path)
    if isinstance(found, torch.nn.Module):
        return Source(name=str(path), module=found, notes=(f"{path.name}: {TRUSTED}",))
    if isinstance(found, Mapping):
        raise ModelError(
            f"{path}: it holds weights and no model; give what makes the model, and the weights:"
            f" file.py:Model --weights {path.name}"
        )
    raise ModelError(f"{path}: it holds {_kind(found)}, not a torch.nn.Module")


def weights_in(path: Path, *, allow_pickle: bool) -> Mapping[str, torch.Tensor]:
    """Return the weights that a file holds by their names, as ``state_dict`` gives them.

    A checkpoint that keeps them under ``"state_dict"``, ``"model"`` or ``"model_state_dict"`` is
    taken apart.

    Raises:
        FileFormatError: it is damaged, or must be unpickled, and that is not allowed.
        ModelError: there are no weights in it.
    """
    kind = kind_of(path)
    if path.suffix.lower() == ".safetensors":
        with reading(path, "safetensors"):
            if found := load_file(path):
                return found
        raise ModelError(f"{path}: there are no weights in it")
    if kind not in (ZIP, PICKLE):
        raise FileFormatError(
            f"{path}: no weights that are read here; they are read from what torch.save wrote, and"
            " from .safetensors"
        )
    archive = archive_in(path) if kind == ZIP else None
    if archive and (archive.within("code/") or "models/model.json" in archive):
        raise ModelError(
            f"{path}: this is a whole model and not weights alone; give it as the model, without"
            " --weights"
        )
    try:
        found = _plain(path)
    except NeedsPickleError:
        if not allow_pickle:
            raise
        found = _unpickled(path)
    if isinstance(found, torch.nn.Module):
        found = found.state_dict()
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not found:
        raise ModelError(f"{path}: there are no weights in it but {_kind(found)}")
    for name, each in found.items():
        if not isinstance(name, str) or not isinstance(each, torch.Tensor):
            raise ModelError(
                f"{path}: '{printable(str(name))[:60]}' in it is {_kind(each)}, not a tensor;"
                " save model.state_dict() alone"
            )
    return found


def with_weights(source: Source, path: Path, weights: Mapping[str, torch.Tensor]) -> Source:
    """The model with these weights in it.

    Args:
        source: the model, as its factory makes it.
        path: where they are from, for messages.
        weights: by name; types are changed into the model's.

    Raises:
        ModelError: names or shapes are others than the model's.
    """
    own = source.module.state_dict()
    missing = [each for each in own if each not in weights]
    unexpected = [each for each in weights if each not in own]
    if missing or unexpected:
        raise ModelError(f"{path}: {_names_differ(source.name, own, missing, unexpected)}")
    for name, each in weights.items():
        is_other = each.is_complex() != own[name].is_complex()
        if is_other or each.layout != torch.strided or each.is_quantized:
            raise ModelError(
                f"{path}: '{printable(name)[:80]}' is a tensor of another kind, not plain numbers"
            )
        if each.shape != own[name].shape:
            raise ModelError(
                f"{path}: '{name}' is {format_shape(tuple(each.shape))}, in {source.name} it is"
                f" {format_shape(tuple(own[name].shape))}"
            )
    module = source.module if source.rebuild is None else source.rebuild()
    module.load_state_dict(dict(weights))
    notes = (*source.notes, f"its weights are those in {path.name}")
    return replace(source, module=module, notes=notes, rebuild=None)


def _names_differ(
    name: str, own: Mapping[str, Any], missing: list[str], unexpected: list[str]
) -> str:
    """What is wrong with the names, and what could be meant."""
    parts: list[str] = []
    if missing:
        parts.append(f"{len(missing)} weights of {name} are not in it ('{missing[0]}')")
    if unexpected:
        first = printable(unexpected[0])[:80]
        parts.append(
            f"{len(unexpected)} in it are not in the model ('{first}'){nearest(first, missing)}"
        )
    prefixes = {each.partition(".")[0] for each in unexpected}
    if len(prefixes) == 1 and unexpected:
        prefix = f"{prefixes.pop()}."
        if sum(each.removeprefix(prefix) in own for each in unexpected) == len(unexpected):
            parts.append(f"all of them begin with '{prefix}': save the weights without it")
    return "; ".join(parts)


def _kind(found: object) -> str:
    return f"a {type(found).__name__}" if found is not None else "nothing"
