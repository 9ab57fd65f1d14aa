"""What `--config` asks for: the sizes of a model, by name, from a file, or as key=value."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError, InputError, nearest
from roofline.foundation.reading import cut, read_json, refused

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
    return Settings(origin=found.origin, source=found.source, base=found.base, given=given)


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
    path = Path(item)
    there = _there(path)
    is_folder = there is not None and stat.S_ISDIR(there.st_mode)
    if path.suffix == ".json" or path.name != item or is_folder:
        return _of_file(path / "config.json" if is_folder else path)
    file = _folder() / f"{item}.json"
    if _there(file) is None:
        raise InputError(
            f"--config {cut(item)}: no configuration of that name comes with roofline"
            f"{nearest(item, bundled_names())} (there are {', '.join(bundled_names())};"
            " nothing is downloaded; a config.json or key=value works too)"
        )
    content = _table(file)
    return Settings(
        origin=item, source=str(content.get("source", "")), base=content["configuration"]
    )


def _of_file(path: Path) -> Settings:
    content = _table(path)
    if isinstance(content.get("configuration"), dict):
        # A copy of a bundled file that somebody changed.
        return Settings(
            origin=str(path), source=str(content.get("source", "")), base=content["configuration"]
        )
    return Settings(origin=str(path), base=content)


def _there(path: Path) -> os.stat_result | None:
    """What lies at a path; None: nothing does, or no path is as long."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _table(path: Path) -> dict[str, Any]:
    there = _there(path)
    if there is not None and there.st_size > _MOST_BYTE:
        what = f"is no configuration: it has {there.st_size:,} bytes"
        raise refused(str(path), what, "give a model's config.json")
    content = read_json(path, fix="give a model's config.json")
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: holds no table of settings; give a model's config.json")
    return content
