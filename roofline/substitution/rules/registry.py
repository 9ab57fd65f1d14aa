"""Where rules are registered, and found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from roofline.errors import InputError
from roofline.substitution.rules.rule import Rule

_RULES: dict[str, Rule] = {}


def register_rule(rule: Rule) -> Rule:
    """Makes a rule known under its name, and its constructors under theirs.

    Raises:
        InputError: another rule has that name, or one of its constructors another's name.
    """
    if rule.name in _RULES:
        raise InputError(f"rule '{rule.name}' is registered already; give yours another name")
    known = _constructors(_RULES.values())
    for name, function in rule.constructors.items():
        if known.get(name, function) is not function:
            raise InputError(
                f"rule '{rule.name}': another rule has a weight constructor '{name}'; rename yours"
            )
    _RULES[rule.name] = rule
    return rule


def _constructors(rules: Iterable[Rule]) -> dict[str, Callable[..., Any]]:
    return {name: each for rule in rules for name, each in rule.constructors.items()}
