"""Model names of the libraries, read from their source files without importing them.

An import takes seconds; reading decorators and tables takes milliseconds, so names are found,
suggested and completed without torch. A library that is not installed, or registers models in
another way, has no names here; a prefixed name (``timm:resnet50``) is looked up in the library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Library = Literal["torchvision", "timm", "transformers"]

LIBRARIES: tuple[Library, ...] = ("torchvision", "timm", "transformers")
"""In the order of lookup of a bare name."""

PREFIX: dict[Library, str] = {"torchvision": "torchvision", "timm": "timm", "transformers": "hf"}
"""Prefixes that select a library: ``hf:bert``."""


@functools.cache
def names_of(library: Library) -> frozenset[str]:
    """Return the names of a library's models; for transformers, its types (``bert``)."""
    if library == "transformers":
        texts = _sources("transformers", "models/auto", "*_auto.py", "auto_mappings.py")
        tables = (table for text in texts for table in _CONFIG_TABLES.findall(text))
        return frozenset(kind for table in tables for kind in _CONFIG_ENTRIES.findall(table))
    return frozenset(
        match["given"] or match["function"]
        for text in _sources(library, "models", "**/*.py" if library == "torchvision" else "*.py")
        if "register_model" in text
        for match in _REGISTRATION.finditer(text)
    )


def has_model(library: Library, name: str) -> bool:
    """Return whether a library has a model; timm's names may end in a tag (``.in1k``)."""
    if library == "timm":
        plain = name.partition(".")[0]
        return plain in names_of("timm") or plain in _deprecated_timm_names()
    if library == "transformers":
        return transformers_type(name) is not None or name in transformers_classes()
    return name in names_of("torchvision")


@functools.cache
def transformers_classes() -> frozenset[str]:
    """Return the model classes of transformers' auto classes (``BertForMaskedLM``)."""
    texts = _sources("transformers", "models/auto", "modeling_auto.py")
    return frozenset(name for text in texts for name in _CLASS_ENTRIES.findall(text))


def transformers_type(name: str) -> str | None:
    """Return the type of that name; ``-`` and ``_`` are equal: ``xlm_roberta``, ``xlm-roberta``."""
    return (
        name
        if name in names_of("transformers")
        else _types_by_plain_name().get(_normalize_type(name))
    )


def is_hub_name(name: str) -> bool:
    """Return whether a name looks like one on the Hugging Face hub, and is no type."""
    has_signs = "-" in name or "/" in name
    return has_signs and bool(names_of("transformers")) and transformers_type(name) is None


def is_abstract(name: str) -> bool:
    """Return whether a name looks like an abstract class of transformers."""
    return bool(_ABSTRACT.fullmatch(name)) and bool(names_of("transformers"))


def nearest_type(name: str) -> str | None:
    """Return the type at the start of a hub name: ``gpt2`` in ``openai-community/gpt2-xl``."""
    plain = _normalize_type(name.rpartition("/")[2].lower())
    found = [each for each in _types_by_plain_name() if plain.startswith(each)]
    return _types_by_plain_name()[max(found, key=len)] if found else None


def all_names() -> Iterator[str]:
    """Yield all bare names, in the order of the libraries."""
    for library in LIBRARIES:
        yield from sorted(names_of(library))


def _normalize_type(name: str) -> str:
    return name.replace("-", "_")


@functools.cache
def _types_by_plain_name() -> dict[str, str]:
    return {_normalize_type(kind): kind for kind in sorted(names_of("transformers"))}


@functools.cache
def _deprecated_timm_names() -> frozenset[str]:
    """Return deprecated names, which timm still builds but does not list."""
    return frozenset(
        name
        for text in _sources("timm", "models", "*.py")
        for table in _DEPRECATIONS.findall(text)
        for name in _DEPRECATED.findall(table)
    )


_REGISTRATION = re.compile(
    # @register_model, @register_model() or @register_model(name="quantized_resnet18"), …
    r"""^@register_model\b(?:\(\s*(?:name\s*=\s*)?(?:["'](?P<given>\w+)["'])?\s*\))?[^\n]*\n"""
    # … anything between the decorator and its function …
    r"(?:(?!def\s|@register_model\b)[^\n]*\n)*?"
    r"def\s+(?P<function>\w+)",
    re.MULTILINE,
)
_DEPRECATIONS = re.compile(r"^register_model_deprecations\(__name__, \{(.*?)^\}", re.M | re.S)
_DEPRECATED = re.compile(r"""^\s+["'](\w+)["']\s*:""", re.MULTILINE)
# CONFIG_MAPPING_NAMES = …( up to a parenthesis on its own line, or the end of a single line.
_CONFIG_TABLES = re.compile(r"^CONFIG_MAPPING_NAMES\b.*?(?:\)$|^\))", re.M | re.S)
_CONFIG_ENTRIES = re.compile(r"""["']([^"'\s]+)["']\s*[,:]\s*["']\w+["']""")
_CLASS_ENTRIES = re.compile(r"""["'](?!Auto[A-Z]|[A-Z0-9_]+["'])([A-Za-z]\w*[A-Z]\w*)["']""")

# AutoModel… creates models of other classes; BertPreTrainedModel is a common base class.
_ABSTRACT = re.compile(r"AutoModel(?:For\w+)?|AutoBackbone|\w*PreTrainedModel")


def _sources(package: str, folder: str, *patterns: str) -> Iterator[str]:
    """Yield the texts of files in a folder of a package; none if it is not installed."""
    try:
        # For a top-level package this imports nothing.
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    for place in (spec and spec.submodule_search_locations) or ():
        for pattern in patterns:
            for path in sorted((Path(place) / folder).glob(pattern)):
                try:
                    yield path.read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue


# -- layers of torch -------------------------------------------------------------------------------

CONTAINERS = frozenset(["Sequential", "TransformerEncoder", "TransformerDecoder"])
"""Containers of other layers, which a design lists one by one."""

_NO_LAYERS = re.compile(
    r"Lazy.*|.*Loss|.*Loss2d|.*Base|.*Options|Container|Module|.*(List|Dict)|DataParallel"
)
_LISTED = re.compile(r'^\s+"(\w+)",$', re.MULTILINE)


def normalize_layer_name(name: str) -> str:
    """Return the normalized name of a layer: ``convtranspose2d`` for ``conv_transpose2d``."""
    return name.replace("_", "").lower()


def layer_class_names(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that can be layers: no losses, lazy modules or containers."""
    return (each for each in names if each[0].isupper() and not _NO_LAYERS.fullmatch(each))


@functools.cache
def listed_layers() -> tuple[str, ...]:
    """Return the layer names for completion; none if torch lists them in another way."""
    for text in _sources("torch", "nn/modules", "__init__.py"):
        names = set(layer_class_names(_LISTED.findall(text))) - CONTAINERS
        return tuple(sorted([*map(normalize_layer_name, names), "attention", "residual"]))
    return ()
