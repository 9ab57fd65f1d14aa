"""A transformers configuration of the sizes that a user asks for: checked, and never downloaded."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError, InputError, ModelError, nearest, said_by
from roofline.foundation.files import cut, read_json, refused

_FORMS = "write a name (llama-3.1-8b), a config.json, or key=value,key=value"

_MOST_BYTE = 2**24
"""Of a configuration; published ones have kilobytes."""

_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes of a model as a user asks for them: those of a file, and what is written over them.

    ``origin`` names the file or what is bundled (``""``: the library's defaults), ``source`` says
    where bundled sizes were published. ``base`` are the settings in it, ``given`` those that were
    written as key=value.
    """

    origin: str = ""
    source: str = ""
    base: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def all(self) -> dict[str, Any]:
        """What the model is to be built with."""
        return {**self.base, **self.given}


def settings_of(text: str) -> Settings:
    """The settings that ``--config TEXT`` asks for.

    Args:
        text: ``llama-3.1-8b`` (bundled, see `bundled_names`), ``path/to/config.json`` or its
            folder, ``hidden_size=256,num_hidden_layers=4``, or one of the first two with what is
            changed in it behind a comma: ``llama-3.1-8b,num_hidden_layers=2``.

    Raises:
        InputError: it is of no such form, or names nothing that is bundled.
        FileFormatError: the file is missing, damaged, or holds something else.
    """
    items = list(_items(text))
    found = Settings()
    if items and items[0] and not _is_pair(items[0]):
        found = _base(items.pop(0))
    given: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise InputError(f"--config '{cut(item)}': expected key=value; {_FORMS}")
        if key in given:
            raise InputError(f"--config {key}: stands twice; leave one out")
        given[key] = _value(key, value.strip())
    if not given and not found.origin:
        raise InputError(f"--config '{cut(text)}': says nothing; {_FORMS}")
    return replace(found, given=given)


def bundled_names() -> Sequence[str]:
    """The names of the configurations that come with roofline, in the order of the alphabet."""
    return sorted(path.stem for path in _folder().glob("*.json"))


def _folder() -> Path:
    """Where they lie: in the package, or in its checkout."""
    package = Path(__file__).parents[3]
    shipped = package / "modelconfigs"
    return shipped if shipped.is_dir() else package.parent / "modelconfigs"


# -- the parts of the text -------------------------------------------------------------------------


def _is_pair(item: str) -> bool:
    """Whether an item is a setting; files may have a ``=`` in their names."""
    before, equals, _ = item.partition("=")
    return bool(equals) and not item.endswith(".json") and not {"/", "\\"} & set(before)


def _items(text: str) -> Iterator[str]:
    """The parts of `text` between the commas that stand outside brackets and quotes."""
    depth, start, is_quoted = 0, 0, False
    for position, letter in enumerate(text):
        if letter == '"':
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0 and not is_quoted:
            yield text[start:position].strip()
            start = position + 1
    if depth or is_quoted:
        what = "a quote" if is_quoted else "brackets"
        raise InputError(f"--config '{cut(text)}': {what} in it do not match")
    if last := text[start:].strip():
        yield last


def _value(key: str, text: str) -> Any:
    """A number, a truth value, none, a list or table as JSON, else the text itself."""
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    if text.startswith(("[", "{", '"')):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(
                f"--config {key}={cut(text)}: not valid JSON; lists and tables are written as"
                ' [1,2] and {"a":1}'
            ) from None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if not text:
        raise InputError(f"--config {key}=: has no value; write {key}=4096, say")
    return text


# -- files -----------------------------------------------------------------------------------------


def _base(item: str) -> Settings:
    there = _there(Path(item))
    is_folder = there is not None and stat.S_ISDIR(there.st_mode)
    path = Path(item) / "config.json" if is_folder else Path(item)
    is_bundled = not is_folder and path.suffix != ".json" and path.name == item
    if is_bundled:
        path = _folder() / f"{item}.json"
        if not _there(path):
            raise InputError(
                f"--config {cut(item)}: no configuration of that name comes with roofline"
                f"{nearest(item, bundled_names())} (there are {', '.join(bundled_names())};"
                " nothing is downloaded; a config.json or key=value works too)"
            )
    fix = "give a model's config.json"
    there = _there(path)
    if there and there.st_size > _MOST_BYTE:
        raise refused(str(path), f"is no configuration: it has {there.st_size:,} bytes", fix)
    content: Any = read_json(path, fix=fix)
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: holds no table of settings; {fix}")
    found = dict[str, Any](content)
    origin = item if is_bundled else str(path)
    if isinstance(found.get("configuration"), dict):
        # As bundled files, and copies of one that somebody changed.
        source = str(found.get("source", ""))
        return Settings(origin=origin, source=source, base=found["configuration"])
    return Settings(origin=origin, base=found)


def _there(path: Path) -> os.stat_result | None:
    """What lies at a path; None: nothing does, or no path is as long."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"),
    *("kv_lora_rank", "sliding_window", "max_position_embeddings"),
)
"""What decides what a model costs, by transformers' standard names."""

_NEEDED = (
    *("vocab_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)
"""Those of them that no model does without."""

_MOST = 2**40
"""No size is as large."""

_MOST_PARTS = 4096
"""More layers, or heads, than any model has."""


def _check_values(config_class: Callable[..., Any], settings: Settings) -> None:
    """Refuse sizes that are none, before a class fails at them in its own words.

    Of those in a file, only what no model does without: the others may follow from them.
    """
    own_names = getattr(config_class, "attribute_map", {})
    for names, values in ((SIZES, settings.given), (_NEEDED, settings.base)):
        sizes = {name for each in names for name in (each, own_names.get(each, each))}
        for key, value in values.items():
            is_size = type(value) is int and 1 <= value < _MOST
            if key not in sizes or is_size or value is None:
                continue
            must = f"be a whole number from 1 to {_MOST:,}"
            if values is settings.given:
                raise InputError(f"--config {key}={cut(_shown_value(value))}: must {must}")
            if isinstance(value, (int, float, str)):
                shown = cut(json.dumps(value))
                raise InputError(f"--config {settings.origin}: {key} is {shown}; it must {must}")


def _check_depth(values: Mapping[str, Any]) -> None:
    """Refuses more layers and labels than anybody makes, in parts of a model too."""
    for table in (values, *(each for each in values.values() if isinstance(each, Mapping))):
        for key, value in table.items():
            is_made = str(key).endswith(("layers", "n_layer", "blocks", "num_labels"))
            most = 16 * _MOST_PARTS if key == "num_labels" else _MOST_PARTS
            if is_made and type(value) is int and value > most:
                raise InputError(
                    f"--config {cut(str(key))}={cut(str(value))}: no model has as many; each is"
                    f" made, so there may be {most:,} at most"
                )


Sizes = Callable[[str], int | None]
"""Gives a size by its standard name; None: it is not a number, or follows from others."""


def _sizes_as_written(config_class: Callable[..., Any], values: Mapping[str, Any]) -> Sizes:
    """Sizes as they were written, else as the class has them where nothing is."""
    own_names = getattr(config_class, "attribute_map", {})
    fields = dataclasses.fields(config_class) if dataclasses.is_dataclass(config_class) else ()
    table = {each.name: each.default for each in fields}
    table |= {own_names.get(key, key): value for key, value in values.items()}
    return lambda name: _whole(table.get(own_names.get(name, name)))


def _check_sizes(of: Sizes, asked: str) -> None:
    """Refuses sizes that do not go together.

    Raises:
        InputError: says which, and what would.
    """
    heads, shared = of("num_attention_heads"), of("num_key_value_heads")
    width, length = of("hidden_size"), of("head_dim")
    if heads and shared and heads % shared:
        most = min(heads, _MOST_PARTS)
        divisors = [str(each) for each in range(1, most + 1) if heads % each == 0]
        raise InputError(
            f"--config num_key_value_heads={shared}: the {heads} heads of {asked} cannot share"
            f" them evenly; {', '.join(divisors[-6:])} divide {heads}"
        )
    # With a head size of its own, a model may be narrower or wider than its heads.
    is_odd = length is None or length == (width or 0) // (heads or 1)
    if heads and width and width % heads and is_odd:
        raise InputError(
            f"--config hidden_size={width}: does not divide into the {heads} heads of {asked};"
            f" {width // heads * heads or heads} and {(width // heads + 1) * heads} do"
        )
    counts = map(of, ("num_local_experts", "num_experts", "n_routed_experts"))
    experts = next(filter(None, counts), None)
    chosen = of("num_experts_per_tok")
    if experts and chosen and chosen > experts:
        raise InputError(
            f"--config num_experts_per_tok={chosen}: {asked} has {experts} experts; choose at most"
            f" {experts}"
        )


def _size_in(config: Any, name: str) -> int | None:
    """A size of a configuration; None: it has none that is one for all layers."""
    try:
        return _whole(getattr(config, name, None))
    except Exception:
        # Asked for what differs from layer to layer, transformers raises an error of its own.
        return None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _shown_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict, type(None))) else str(value)


_OF_CHECKPOINTS = frozenset(
    (
        *("architectures", "auto_map", "transformers_version", "_name_or_path", "name_or_path"),
        *("_commit_hash", "model_type", "torch_dtype", "dtype", "quantization_config"),
        *("_attn_implementation", "attn_implementation", "experts_implementation"),
    )
)
"""What a checkpoint's config.json says of other things than sizes."""

_OF_POSITIONS = ("rope_theta", "rope_scaling", "partial_rotary_factor")
"""What older files call the parts of ``rope_parameters``."""

_DROPPED = (
    "model_type",
    "transformers_version",
    "quantization_config",
    "auto_map",
    "attribute_map",
)


def configured(
    config_class: Callable[..., Any], settings: Settings, *, asked: str
) -> tuple[Any, tuple[str, ...]]:
    """A configuration with the sizes of `settings`, and what to know about it, one line each.

    Raises:
        InputError: a setting that the class does not have (the nearest is suggested), settings of
            another type of model, sizes that do not go together.
        ModelError: the class rejects them.
    """
    notes: list[str] = []
    kind, own = settings.all.get("model_type"), getattr(config_class, "model_type", None)
    if kind is not None and own is not None and kind != own:
        shown = cut(str(kind))
        raise InputError(
            f"--config {settings.origin or f'model_type={kind}'}: these are sizes of a model of"
            f" type '{shown}', and {asked} is of type '{own}'; write hf:{shown}"
        )
    known = _known(config_class)
    for key in settings.given:
        if key not in known:
            raise InputError(
                f"--config {key}={cut(str(settings.given[key]))}: {_name(config_class)} has no such"
                f" setting{nearest(key, sorted(known))}"
            )
    strange = sorted(set(settings.base) - known)
    if method := next(
        (each for each in strange if callable(getattr(config_class, each, None))), ""
    ):
        raise InputError(f"--config {settings.origin}: {cut(method)} is no setting; leave it out")
    if strange:
        shown = ", ".join(map(cut, strange[:5]))
        notes.append(
            f"{settings.origin}: {shown}{' …' * (len(strange) > 5)}: settings that"
            f" {_name(config_class)} does not name; they are kept, as transformers does"
        )
    if "quantization_config" in settings.base:
        notes.append(
            f"{settings.origin} is of quantised weights; they are counted in the type of the"
            " activations (what fewer bits are worth: --weight-bits)"
        )
    values = {key: value for key, value in settings.all.items() if key not in _DROPPED}
    _check_values(config_class, settings)
    _check_depth(values)
    _check_sizes(_sizes_as_written(config_class, values), asked)
    try:
        config = config_class(**values)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # In one line and without its own preamble.
        why = said_by(error.__cause__ or error).replace("`", "'") or type(error).__name__
        raise ModelError(
            f"model '{asked}': {_name(config_class)} rejects --config: {why}"
        ) from error
    text = config.get_text_config()
    _check_sizes(lambda name: _size_in(text, name), asked)
    return config, (*notes, *_filled_in(config, config_class, settings))


def plain_configuration(config: Any) -> Mapping[str, object]:
    """All settings of a configuration as plain data, under transformers' standard names too.

    GPT-2, say, calls its ``hidden_size`` ``n_embd``: both are there.
    """
    plain: dict[str, object] = json.loads(config.to_json_string(use_diff=False))
    for standard, own in getattr(config, "attribute_map", {}).items():
        if own in plain:
            plain.setdefault(standard, plain[own])
    return plain


def what_sizes(settings: Settings, config_class: Callable[..., Any]) -> str:
    """Which sizes those are, in words: ``"the sizes of llama-3.1-8b (…), num_hidden_layers=2"``."""
    given = ", ".join(f"{key}={_shown_value(value)}" for key, value in settings.given.items())
    if not settings.origin:
        return f"{given} and else the default sizes of {_name(config_class)}"
    source = f" ({settings.source})" if settings.source else ""
    changed = f" but {given}" if given else ""
    return f"the sizes of {settings.origin}{source}{changed}"


def _name(config_class: Callable[..., Any]) -> str:
    return getattr(config_class, "__name__", str(config_class))


def _known(config_class: Callable[..., Any]) -> frozenset[str]:
    """The names under which a class takes settings, older ones too."""
    # Some models ask for a head size that their class does not name.
    names = {*getattr(config_class, "attribute_map", ()), *_OF_CHECKPOINTS, "head_dim"}
    if dataclasses.is_dataclass(config_class):
        names |= {each.name for each in dataclasses.fields(config_class)}
    for each in getattr(config_class, "__mro__", ()):
        # Classes of older versions take them as arguments.
        if "__init__" in vars(each) and each is not object:
            names |= set(inspect.signature(each.__init__).parameters)
    names -= {"self", "args", "kwargs"}
    if not names.isdisjoint(("rope_parameters", "rope_theta", "rope_scaling")):
        names |= {*_OF_POSITIONS}
    return frozenset(names)


def _filled_in(config: Any, config_class: Callable[..., Any], settings: Settings) -> Iterator[str]:
    """Which sizes are the library's own, because nobody said them."""
    own_names = getattr(config, "attribute_map", {})
    seen = {own_names.get(each, each) for each in settings.all}
    missing: list[str] = []
    for name in SIZES:
        value, own = _size_in(config, name), own_names.get(name, name)
        if value is not None and own not in seen:
            # Once, where it has several names.
            seen.add(own)
            missing.append(f"{name}={value}")
    if missing:
        yield f"filled in by {_name(config_class)}: {', '.join(missing)}"
