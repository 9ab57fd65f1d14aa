"""One model run in several ways: what is compared where options are given more than once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.errors import InputError, nearest
from roofline.foundation.text import counted, printable
from roofline.run import RunOptions

LAYOUTS = ("contiguous", "channels-last")
"""How images and weights of convolutions may be laid out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The model of this number, run in one way; ``label`` says what varies, ``""`` if nothing."""

    model: int
    options: RunOptions
    label: str = ""

    def named(self, model: str) -> str:
        """What it is called: ``"resnet50 bfloat16"``, ``"resnet50 · 2 threads"``."""
        return f"{model}{self.label}"


def variants_of(
    models: int,
    options: RunOptions,
    *,
    dtype: Any = None,
    batch: Any = None,
    threads: Any = None,
    channels_last: Any = False,
) -> tuple[Variant, ...]:
    """Every model in every way that the options say, the ways of one model beside each other.

    Each of dtype, batch, threads and channels_last is a value or a list of them; `options` are how
    all are run otherwise.

    Raises:
        InputError: an empty list, or a value that stands twice.
    """
    dtypes = _listed("--dtype", dtype)
    batches = _listed("--batch", batch)
    teams = _listed("--threads", threads)
    layouts = _listed("--layout", channels_last)
    found: list[Variant] = []
    for number in range(models):
        for of, size, team, layout in itertools.product(dtypes, batches, teams, layouts):
            label = f" {str(of).removeprefix('torch.')}" if len(dtypes) > 1 else ""
            label += f" · batch {size}" if len(batches) > 1 else ""
            label += f" · {counted(team, 'thread')}" if len(teams) > 1 else ""
            label += f" · {LAYOUTS[bool(layout)]}" if len(layouts) > 1 else ""
            way = replace(options, dtype=of, batch=size, threads=team, channels_last=layout)
            found.append(Variant(model=number, options=way, label=label))
    return tuple(found)


def names_of(variants: Sequence[Variant], models: Sequence[str]) -> tuple[str, ...]:
    """What variants are called; models of one name are numbered."""
    alike = len(set(models)) < len(models)
    numbered = [
        f"{name} ({number})" if alike else name for number, name in enumerate(models, start=1)
    ]
    return tuple(each.named(numbered[each.model]) for each in variants)


def reference_among(
    reference: int | str, variants: Sequence[Variant], models: Sequence[str]
) -> int:
    """The number of the variant that is meant: by number, its name, or (the first) its model's."""
    if not isinstance(reference, str):
        return reference
    names = [each.named(models[each.model]) for each in variants]
    # The name of one model may be that of another's variant.
    for known in (names, [models[each.model] for each in variants]):
        if reference in known:
            return known.index(reference)
    candidates = dict.fromkeys((*models, *names))
    hint = nearest(reference, candidates) or f"; there are {', '.join(candidates)}"
    raise InputError(f"--reference '{reference}' is none of the models{printable(hint)}")


def _listed(option: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        return (given,)
    values: tuple[Any, ...] = tuple(given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  a list of anything
    if not values:
        raise InputError(f"{option}: an empty list; leave it out, or name at least one")
    for place, each in enumerate(values):
        if each in values[:place]:
            shown = LAYOUTS[each] if option == "--layout" and isinstance(each, bool) else each
            raise InputError(f"{option} {shown} is given twice; name it once")
    return values
