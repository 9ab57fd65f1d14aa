"""transformers configurations with the user's sizes: checked, never downloaded."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roofline.core.files import cut, read_json, refused
from roofline.errors import (
    FileFormatError,
    InputError,
    ModelError,
    argument,
    did_you_mean,
    error_text,
)

_FORMS = "write a name (llama-3.1-8b), a config.json, or key=value,key=value"

_MAX_BYTES = 2**24
"""Largest configuration file; published ones have kilobytes."""

_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a model: those of a file, and overrides.

    ``origin`` is the file or the bundled name (``""``: the library's defaults), ``source`` the
    publication of bundled sizes. ``base`` are the settings of the file, ``given`` the overrides
    written as key=value.
    """

    origin: str = ""
    source: str = ""
    base: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def all(self) -> dict[str, Any]:
        """All settings, overrides included."""
        return {**self.base, **self.given}


def _config_error(what: str) -> InputError:
    return InputError(f"{argument('config')} {what}")


def parse_settings(text: str) -> Settings:
    """Return the settings of ``--config TEXT`` (docs/how-to/model-configurations.md).

    Forms: ``llama-3.1-8b`` (bundled), ``path/to/config.json`` or its folder, and overrides
    ``hidden_size=256,num_hidden_layers=4``, alone or after one of these.
    """
    items = list(_items(text))
    found = Settings()
    if items and items[0] and not _is_pair(items[0]):
        found = _base(items.pop(0))
    given: dict[str, Any] = {}
    for item in items:
        key, equals, value = map(str.strip, item.partition("="))
        if not equals or not key.isidentifier():
            raise _config_error(f"'{cut(item)}': expected key=value; {_FORMS}")
        if key in given:
            raise _config_error(f"{key}: given twice; remove one")
        given[key] = _value(key, value)
    if not given and not found.origin:
        raise _config_error(f"'{cut(text)}': empty; {_FORMS}")
    return replace(found, given=given)


def bundled_names() -> Sequence[str]:
    """Return the sorted names of bundled configurations."""
    return sorted(path.stem for path in _folder().glob("*.json"))


def _folder() -> Path:
    """Return the folder of bundled configurations, in the package or its checkout."""
    package = Path(__file__).parents[3]
    shipped = package / "modelconfigs"
    return shipped if shipped.is_dir() else package.parent / "modelconfigs"


# -- the parts of the text -------------------------------------------------------------------------


def _is_pair(item: str) -> bool:
    """Return whether an item is a setting; names of files may contain ``=`` too."""
    before, equals, _ = item.partition("=")
    return bool(equals) and not item.endswith(".json") and not {"/", "\\"} & set(before)


def _items(text: str) -> Iterator[str]:
    """Yield the parts of `text` between commas outside of brackets and quotes."""
    depth, start, is_quoted = 0, 0, False
    for position, letter in enumerate(text):
        is_quoted ^= letter == '"'
        depth += 0 if is_quoted else (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0 and not is_quoted:
            yield text[start:position].strip()
            start = position + 1
    if depth or is_quoted:
        what = "quotes" if is_quoted else "brackets"
        raise _config_error(f"'{cut(text)}': unbalanced {what}")
    if last := text[start:].strip():
        yield last


def _value(key: str, text: str) -> Any:
    """Return a number, a truth value, none, a list or table from JSON, else the text itself."""
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    is_json = text.startswith(("[", "{", '"'))
    for read in (json.loads,) if is_json else (int, float):
        with suppress(ValueError, RecursionError):
            return read(text)
    if is_json:
        fix = 'lists and tables are written as [1,2] and {"a":1}'
        raise _config_error(f"{key}={cut(text)}: not valid JSON; {fix}")
    if not text:
        raise _config_error(f"{key}=: has no value; write, for example, {key}=4096")
    return text


# -- files -----------------------------------------------------------------------------------------


def _base(item: str) -> Settings:
    there = _stat_or_none(Path(item))
    is_folder = there is not None and stat.S_ISDIR(there.st_mode)
    path = Path(item) / "config.json" if is_folder else Path(item)
    is_bundled = not is_folder and path.suffix != ".json" and path.name == item
    if is_bundled:
        path = _folder() / f"{item}.json"
        if not _stat_or_none(path):
            raise _config_error(
                f"{cut(item)}: no bundled configuration{did_you_mean(item, bundled_names())}"
                f" (bundled: {', '.join(bundled_names())}; nothing is downloaded; use also a"
                " config.json or key=value)"
            )
    fix = "expected a model's config.json"
    there = _stat_or_none(path)
    if there and there.st_size > _MAX_BYTES:
        raise refused(str(path), f"too large: {there.st_size:,} bytes", fix)
    content: Any = read_json(path, fix=fix)
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: not a table of settings; {fix}")
    found = dict[str, Any](content)
    origin = item if is_bundled else str(path)
    if isinstance(found.get("configuration"), dict):
        # Bundled files, and changed copies of them.
        source = str(found.get("source", ""))
        return Settings(origin=origin, source=source, base=found["configuration"])
    return Settings(origin=origin, base=found)


def _stat_or_none(path: Path) -> os.stat_result | None:
    """Return the status of a path; None if nothing is there or the path is invalid."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


# -- sizes -----------------------------------------------------------------------------------------

SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"),
    *("kv_lora_rank", "sliding_window", "max_position_embeddings"),
)
"""Settings that determine the cost of a model, by transformers' standard names."""

_REQUIRED_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)
"""Sizes that every model has."""

_MAX_SIZE = 2**40
"""Larger than any size."""

_MAX_LAYERS = 4096
"""More layers, or heads, than any model has."""


def _check_values(config_class: Callable[..., Any], settings: Settings) -> None:
    """Reject invalid sizes before a class fails on them, or allocates them all.

    In files only required sizes are checked: others may be derived.
    """
    own_names = getattr(config_class, "attribute_map", {})
    for names, values in ((SIZES, settings.given), (_REQUIRED_SIZES, settings.base)):
        sizes = {name for each in names for name in (each, own_names.get(each, each))}
        for key, value in values.items():
            is_size = type(value) is int and 1 <= value < _MAX_SIZE
            if key not in sizes or is_size or value is None:
                continue
            must = f"be a whole number from 1 to {_MAX_SIZE:,}"
            if values is settings.given:
                raise _config_error(f"{key}={cut(_shown_value(value))}: must {must}")
            if isinstance(value, (int, float, str)):
                raise _config_error(
                    f"{settings.origin}: {key}={cut(json.dumps(value))}: must {must}"
                )
    tables = (settings.all, *(each for each in settings.all.values() if isinstance(each, Mapping)))
    for key, value in (pair for table in tables for pair in table.items()):
        most = 16 * _MAX_LAYERS if key == "num_labels" else _MAX_LAYERS
        is_made = str(key).endswith(("layers", "n_layer", "blocks", "num_labels"))
        if is_made and type(value) is int and value > most:
            raise _config_error(
                f"{cut(str(key))}={cut(str(value))}: too many to build; at most {most:,}"
            )


Sizes = Callable[[str], int | None]
"""Lookup of a size by its standard name; None: not a number, or derived from others."""


def _sizes_as_written(config_class: Callable[..., Any], values: Mapping[str, Any]) -> Sizes:
    """Return a lookup of sizes as written, else the defaults of the class."""
    own_names = getattr(config_class, "attribute_map", {})
    fields = dataclasses.fields(config_class) if dataclasses.is_dataclass(config_class) else ()
    table = {each.name: each.default for each in fields}
    table |= {own_names.get(key, key): value for key, value in values.items()}
    return lambda name: _whole(table.get(own_names.get(name, name)))


def _sizes_in(config: Any) -> Sizes:
    """Return a lookup of sizes in a configuration; None for sizes that vary by layer."""

    def size(name: str) -> int | None:
        # transformers raises an error for sizes that vary by layer.
        with suppress(Exception):
            return _whole(getattr(config, name, None))

    return size


def _check_sizes(of: Sizes, title: str) -> None:
    """Reject inconsistent sizes, with valid ones in the message."""
    heads, shared = of("num_attention_heads"), of("num_key_value_heads")
    width, length = of("hidden_size"), of("head_dim")
    if heads and shared and heads % shared:
        most = min(heads, _MAX_LAYERS)
        divisors = [str(each) for each in range(1, most + 1) if heads % each == 0]
        raise _config_error(
            f"num_key_value_heads={shared}: does not divide the {heads} attention heads of {title};"
            f" use {', '.join(divisors[-6:])}"
        )
    # With an explicit head size, the width need not equal that of all heads.
    is_odd = length is None or length == (width or 0) // (heads or 1)
    if heads and width and width % heads and is_odd:
        raise _config_error(
            f"hidden_size={width}: not a multiple of the {heads} attention heads of {title};"
            f" use {width // heads * heads or heads} or {(width // heads + 1) * heads}"
        )
    counts = map(of, ("num_local_experts", "num_experts", "n_routed_experts"))
    experts, chosen = next(filter(None, counts), None), of("num_experts_per_tok")
    if experts and chosen and chosen > experts:
        raise _config_error(
            f"num_experts_per_tok={chosen}: {title} has {experts} experts; use at most {experts}"
        )


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _shown_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict, type(None))) else str(value)


_CHECKPOINT_SETTINGS = frozenset(
    (
        *("architectures", "auto_map", "transformers_version", "_name_or_path", "name_or_path"),
        *("_commit_hash", "model_type", "torch_dtype", "dtype", "quantization_config"),
        *("_attn_implementation", "attn_implementation", "experts_implementation"),
    )
)
"""Settings of a checkpoint's config.json that are no sizes."""

_POSITION_SETTINGS = ("rope_theta", "rope_scaling", "partial_rotary_factor")
"""Parts of ``rope_parameters`` in older files."""

_IGNORED = (
    "model_type",
    "transformers_version",
    "quantization_config",
    "auto_map",
    "attribute_map",
)


def build_config(
    config_class: Callable[..., Any], settings: Settings, *, title: str
) -> tuple[Any, tuple[str, ...]]:
    """Return a configuration with the sizes of `settings`, and notes on it."""
    notes: list[str] = []
    origin, of = settings.origin, _name(config_class)
    kind, own = settings.all.get("model_type"), getattr(config_class, "model_type", None)
    if kind is not None and own is not None and kind != own:
        shown = cut(str(kind))
        raise _config_error(
            f"{origin or f'model_type={kind}'}: sizes of model type '{shown}', but {title} has type"
            f" '{own}'; write hf:{shown}"
        )
    known = _known(config_class)
    if unknown := next((each for each in settings.given if each not in known), None):
        raise _config_error(
            f"{unknown}={cut(str(settings.given[unknown]))}: {of} has no such setting"
            f"{did_you_mean(unknown, sorted(known))}"
        )
    strange = sorted(set(settings.base) - known)
    if method := next((each for each in strange if callable(getattr(config_class, each, 0))), ""):
        raise _config_error(f"{origin}: {cut(method)} is not a setting; remove it")
    if strange:
        shown = ", ".join(map(cut, strange[:5]))
        notes.append(
            f"{origin}: settings unknown to {of}, kept as in transformers:"
            f" {shown}{' …' * (len(strange) > 5)}"
        )
    if "quantization_config" in settings.base:
        notes.append(
            f"{origin} describes quantized weights, captured here in the type of the activations"
            " (`roofline llm` has lower bit widths)"
        )
    values = {key: value for key, value in settings.all.items() if key not in _IGNORED}
    _check_values(config_class, settings)
    _check_sizes(_sizes_as_written(config_class, values), title)
    try:
        config = config_class(**values)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # In one line and without its own preamble.
        why = error_text(error.__cause__ or error).replace("`", "'") or type(error).__name__
        raise ModelError(f"model '{title}': {of} rejects {argument('config')}: {why}") from error
    _check_sizes(_sizes_in(config.get_text_config()), title)
    return config, (*notes, *_filled_in(config, config_class, settings))


def plain_configuration(config: Any) -> Mapping[str, object]:
    """Return a configuration as plain data, with transformers' standard names too."""
    plain: dict[str, object] = json.loads(config.to_json_string(use_diff=False))
    for standard, own in getattr(config, "attribute_map", {}).items():
        if own in plain:
            plain.setdefault(standard, plain[own])
    return plain


def describe_sizes(settings: Settings, config_class: Callable[..., Any]) -> str:
    """Return a phrase for the sizes: ``"the sizes of llama-3.1-8b (…), num_hidden_layers=2"``."""
    given = ", ".join(f"{key}={_shown_value(value)}" for key, value in settings.given.items())
    if not settings.origin:
        return f"{given} and otherwise the default sizes of {_name(config_class)}"
    source = f" ({settings.source})" if settings.source else ""
    changed = f" except {given}" if given else ""
    return f"the sizes of {settings.origin}{source}{changed}"


def _name(config_class: Callable[..., Any]) -> str:
    return getattr(config_class, "__name__", str(config_class))


def _known(config_class: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a class's settings, older ones too."""
    # Some models use a head size that their class does not declare.
    names = {*getattr(config_class, "attribute_map", ()), *_CHECKPOINT_SETTINGS, "head_dim"}
    if dataclasses.is_dataclass(config_class):
        names |= {each.name for each in dataclasses.fields(config_class)}
    for each in getattr(config_class, "__mro__", ()):
        # Classes of older versions have them as arguments.
        if "__init__" in vars(each) and each is not object:
            names |= set(inspect.signature(each.__init__).parameters)
    names -= {"self", "args", "kwargs"}
    if not names.isdisjoint(("rope_parameters", "rope_theta", "rope_scaling")):
        names |= {*_POSITION_SETTINGS}
    return frozenset(names)


def _filled_in(config: Any, config_class: Callable[..., Any], settings: Settings) -> Iterator[str]:
    """Yield a note on sizes that are defaults of the library."""
    own_names = getattr(config, "attribute_map", {})
    seen = {own_names.get(each, each) for each in settings.all}
    missing: list[str] = []
    size = _sizes_in(config)
    for name in SIZES:
        value, own = size(name), own_names.get(name, name)
        if value is not None and own not in seen:
            # Once, where it has several names.
            seen.add(own)
            missing.append(f"{name}={value}")
    if missing:
        yield f"defaults of {_name(config_class)}: {', '.join(missing)}"
