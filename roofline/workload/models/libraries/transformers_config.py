"""A transformers configuration of the sizes that a user asks for: checked, and never downloaded."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from roofline.errors import InputError, ModelError, nearest, said_by
from roofline.foundation.reading import cut
from roofline.workload.models.libraries.config_checks import (
    SIZES,
    check_base,
    check_depth,
    check_given,
    check_sizes,
    check_type,
    shown_value,
    size_in,
    sizes_as_built,
    sizes_as_written,
)
from roofline.workload.models.libraries.model_settings import Settings

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

    Args:
        config_class: transformers' class of configurations.
        settings: what the user asked for.
        asked: what messages call the model.

    Raises:
        InputError: a setting that the class does not have (the nearest is suggested), settings of
            another type of model, sizes that do not go together.
        ModelError: the class rejects them.
    """
    notes: list[str] = []
    check_type(config_class, settings, asked)
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
    check_given(config_class, settings.given)
    check_base(config_class, settings)
    check_depth(values)
    check_sizes(sizes_as_written(config_class, values), asked)
    try:
        config = config_class(**values)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(
            f"model '{asked}': {_name(config_class)} rejects --config: {_said(error)}"
        ) from error
    check_sizes(sizes_as_built(config), asked)
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
    given = ", ".join(f"{key}={shown_value(value)}" for key, value in settings.given.items())
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
    said = {own_names.get(each, each) for each in settings.all}
    missing = [
        f"{name}={value}"
        for name, value in _sizes_of(config)
        if own_names.get(name, name) not in said
    ]
    if missing:
        yield f"filled in by {_name(config_class)}: {', '.join(missing)}"


def _sizes_of(config: Any) -> Iterable[tuple[str, int]]:
    """What decides its cost, each once where it has several names."""
    own_names = getattr(config, "attribute_map", {})
    seen: set[str] = set()
    for name in SIZES:
        value, own = size_in(config, name), own_names.get(name, name)
        if value is not None and own not in seen:
            seen.add(own)
            yield name, value


def _said(error: BaseException) -> str:
    """What a class has against its settings, in one line and without its own preamble."""
    cause = error.__cause__
    return said_by(cause if cause is not None else error).replace("`", "'") or type(error).__name__
