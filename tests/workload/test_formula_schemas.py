"""Formulas take their parameters by the names that torch's schemas have."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from roofline.workload.formulas import find, known

FORMULAS = {key: found for key, found in known().items() if not key.startswith("torchvision.")}
"""Schemas of torchvision come only with its compiled part: `test_formulas_detection` has them."""

NOT_IN_THIS_TORCH = frozenset[str]()
"""Keys that no schema of the torch that we test with has."""


def schemas(key: str) -> Iterator[Any]:
    """Those of overloads on tensors that resolve to the formula of `key`, in-place ones too.

    Comparisons of whole lists, which give one answer, are for TorchScript only, and torch replaces
    what is named ``vec`` before it calls anything; nothing in Python asks for ``vec_out``.
    """
    space, name, *_ = key.split(".")
    for functional in (name, f"{name}_"):
        packet = getattr(getattr(torch.ops, space), functional, None)
        for overload in packet.overloads() if packet is not None else ():
            schema = getattr(packet, overload)._schema
            is_elsewhere = overload.endswith("_list") or overload in ("vec", "vec_out")
            has_tensors = any(
                name in str(each.type)
                for each in schema.arguments
                for name in ("Tensor", "__torch__.torch.classes")
            )
            is_it = find(f"{space}.{functional}", overload) is FORMULAS[key]
            if is_it and has_tensors and not is_elsewhere:
                yield schema


@functools.cache
def parameters(key: str) -> dict[str, bool]:
    """Those that the function of a formula names, and whether it cannot do without."""
    return {
        name: each.default is inspect.Parameter.empty
        for name, each in inspect.signature(FORMULAS[key].function).parameters.items()
        if each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        and name != "output"
    }


@functools.cache
def names_of(key: str) -> list[set[str]]:
    return [{each.name for each in schema.arguments} for schema in schemas(key)]


def test_every_key_is_an_operator() -> None:
    """One that is misspelt would never be asked for."""
    assert {key for key in FORMULAS if not any(schemas(key))} == NOT_IN_THIS_TORCH


def test_what_a_formula_needs_is_in_each_schema() -> None:
    for key in FORMULAS:
        needed = {name for name, is_needed in parameters(key).items() if is_needed}
        for names in names_of(key):
            assert needed <= names, f"{key} is not given {needed - names}, only {names}"


def test_what_a_formula_can_take_is_in_some_schema() -> None:
    """Of one of the operators that share it: a misspelt name would always have its default."""
    given: defaultdict[Any, set[str]] = defaultdict(set)
    for key, each in FORMULAS.items():
        given[each.function] |= {name for names in names_of(key) for name in names}
    for key, each in FORMULAS.items():
        assert parameters(key).keys() <= given[each.function], key


def test_a_formula_can_be_called() -> None:
    """With everything that a schema has, named or not."""
    for key, each in FORMULAS.items():
        kinds = {one.kind for one in inspect.signature(each.function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD in kinds, key
