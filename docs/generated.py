"""Parts of the reference pages that are generated from the code when the pages are built."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import typing
from collections.abc import Iterable, Sequence

import roofline
from roofline import result
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.render.markdown import escaped
from roofline.workload.formulas import catalog as formula_catalog

TYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "int8")
"""The data types in the table of machines."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; its cells are Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)


def operators() -> str:
    """Return a table of formulas for each type of operator."""
    entries = formula_catalog.catalog()
    parts = [f"{len(entries)} operators have a formula."]
    for type_ in sorted({each.type for each in entries}, key=str.lower):
        rules = formula_catalog.shared_rules(each for each in entries if each.type == type_)
        rows = [
            (
                ", ".join(f"`{each.key}`" for each in rule),
                escaped(rule[0].flop_rule),
                escaped(rule[0].byte_rule.partition(";")[0]),
            )
            for rule in rules
        ]
        heading = f"## {type_[0].upper()}{type_[1:]}"
        parts += [heading, table(("operators", "FLOP", "bytes"), rows)]
    return "\n\n".join(parts)


def machines() -> str:
    """Return the table of machines that come with roofline."""
    types = (each.partition("_")[0] for each in TYPES)
    headings = ("name", "machine", *types, "memory, GB/s", "capacity, GiB", "last cache, MiB: TB/s")
    profiles = [catalog.load_hardware(path.stem) for path in machine_files()]
    return table(headings, map(machine_row, profiles))


def machine_files() -> Iterable[typing.Any]:
    """Return the files of machines, by name."""
    return sorted(catalog.bundled_folder().glob("*.toml"), key=lambda path: path.stem)


def machine_row(profile: HardwareProfile) -> Sequence[str]:
    """Return the cells of a machine: rates on all threads, fastest first."""

    def rates(dtype: str) -> str:
        found = {
            each.peak_flop_per_s / 1e12
            for each in profile.compute
            if each.dtype.name == dtype and each.threads == profile.threads
        }
        first, *others = [f"{each:.4g}" for each in sorted(found, reverse=True)] or ["–"]
        return f"{first} ({', '.join(others)})" if others else first

    def bandwidth(level: typing.Any) -> float:
        return max(each.peak_bytes_per_s for each in level.bandwidth)

    capacity, cache = profile.memory_capacity_bytes, "–"
    if not profile.has_single_memory_level:
        last = profile.memory[-2]
        cache = f"{last.name} {last.capacity_bytes / 2**20:.4g}: {bandwidth(last) / 1e12:.3g}"
    return (
        f"`{profile.name}`",
        escaped(profile.description),
        *map(rates, TYPES),
        f"{bandwidth(profile.memory[-1]) / 1e9:.4g}",
        f"{capacity / 2**30:.4g}" if capacity else "–",
        cache,
    )


def api() -> str:
    """Return the documentation of all that `roofline` exports."""
    names = [each for each in roofline.__all__ if not each.startswith("_")]
    functions = [each for each in names if inspect.isfunction(getattr(roofline, each))]
    classes = [each for each in names if each not in functions]
    parts: list[str] = []
    for heading, kind, members in (
        ("Functions", "autofunction", functions),
        ("Classes", "autoclass", classes),
    ):
        parts.append(f"## {heading}")
        for name in members:
            option = "\n   :members:" if kind == "autoclass" else ""
            parts.append(f"### {name}\n\n```{{eval-rst}}\n.. {kind}:: roofline.{name}{option}\n```")
    return "\n\n".join(parts)


def keys() -> str:
    """Return the keys of every kind of file, and those of the tables in them."""
    parts: list[str] = []
    shared: dict[str, type] = {}
    results = sorted(kinds(), key=lambda each: each.kind)
    for cls in results:
        shared |= tables_in(cls)
        parts += [
            f"### {cls.kind[0].upper()}{cls.kind[1:]}",
            f'`kind = "{cls.kind}"`, written by `{cls.made_by}`.',
            keys_of(cls),
        ]
        if isinstance(cls.columns, dict):
            names = ", ".join(f"`{each}`" for each in cls.columns)
            parts.append(f"CSV columns: {names}.")
    parts.append("## Tables in files")
    for name, cls in sorted(shared.items()):
        if cls in results:
            continue
        parts += [f"### {name}", keys_of(cls)]
    return "\n\n".join(each for each in parts if each)


def kinds() -> Iterable[type[result.Result]]:
    """Return all kinds of results."""
    for module in result.HOMES.values():
        importlib.import_module(module)
    # A dataclass with slots is made twice; the later one counts.
    found = {each.kind: each for each in result.Result.__subclasses__()}
    return [found[kind] for kind in result.HOMES]


def tables_in(cls: type) -> dict[str, type]:
    """Return the dataclasses that the fields of one hold, however deep, by name."""
    found: dict[str, type] = {}
    waiting = list(typing.get_type_hints(cls).values())
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        is_table = inspect.isclass(hint) and dataclasses.is_dataclass(hint)
        if is_table and hint.__name__ not in found and hint.__name__ != "DType":
            found[hint.__name__] = hint
            waiting += typing.get_type_hints(hint).values()
    return found


def keys_of(cls: type) -> str:
    """Return a table of the keys that a dataclass is saved with."""
    hints = typing.get_type_hints(cls)
    left_out = getattr(cls, "NOT_WRITTEN", ())
    rows = [
        (f"`{each.name}`", type_text(hints[each.name]), default_text(each))
        for each in dataclasses.fields(cls)
        if each.name not in left_out
    ]
    rows += [(f"`{each}`", "follows from the others", "") for each in written_too(cls)]
    return table(("key", "type", "default"), rows)


def written_too(cls: type) -> Sequence[str]:
    """Return the properties of a class that its files hold."""
    return getattr(cls, "ALSO_WRITTEN", ())


def type_text(hint: typing.Any) -> str:
    """Return a type as its JSON has it."""
    text = str(hint) if typing.get_args(hint) else getattr(hint, "__name__", str(hint))
    text = re.sub(r"\b[\w.]+\.(\w+)", r"\1", text)
    for python, plain in (
        ("DType", "str"),
        ("Path", "str"),
        ("tuple[", "list["),
        (", ...]", "]"),
        ("NoneType", "None"),
        ("None", "null"),
        ("|", "or"),
        ("Literal[", "one of ["),
    ):
        text = text.replace(python, plain)
    return f"`{text}`"


def default_text(field: dataclasses.Field[typing.Any]) -> str:
    """Return the default of a key as JSON; nothing where it must be there."""
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is dataclasses.MISSING else "empty"
    value = getattr(field.default, "value", field.default)
    if not isinstance(value, bool | int | float | str | tuple | None):
        return "a table"
    return f"`{json.dumps(value)}`"
