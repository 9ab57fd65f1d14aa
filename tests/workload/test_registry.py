"""How formulas come in and are found."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from roofline.errors import RooflineError
from roofline.workload import formulas
from roofline.workload.formulas import Flop, find, known, registry
from tests.workload.passes import passed

pytestmark = pytest.mark.usefixtures("a_registry_of_its_own")


def test_flop_is_two_a_multiply_add_and_the_rest() -> None:
    """2 * 3 + 4; the least is all of it unless it is said."""
    assert Flop(macs=3, other=4).flop == 10
    assert Flop(macs=3, other=4).min_flop == 10
    assert Flop(macs=3, other=4, least=0).min_flop == 0


@pytest.mark.parametrize(
    ("operator", "overload", "key"),
    [
        ("aten.add", "Tensor", "aten.add"),
        ("aten.add_", "Tensor", "aten.add"),
        ("aten.max", "other", "aten.max.other"),
        ("aten.max", "dim", "aten.max"),
        ("aten.relu_", "", "aten.relu"),
        ("aten.scatter_", "value", "aten.scatter"),
        ("aten.scatter_", "reduce", "aten.scatter.reduce"),
    ],
)
def test_overloads_and_in_place_variants_resolve(operator: str, overload: str, key: str) -> None:
    """The overload's own formula first, then the operator's, then the functional one's."""
    found = find(operator, overload)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize("operator", ["aten.no_such", "mylib.add", "aten."])
def test_what_is_unknown_is_not_found(operator: str) -> None:
    assert find(operator) is None


def test_every_formula_is_documented_and_named_like_an_operator() -> None:
    """A formula's docstring is its rule; its key has a namespace."""
    for key, each in known().items():
        assert each.function.__doc__, key
        assert key.count(".") in (1, 2), key
        assert each.type, key
        assert each.key == key


def test_a_failing_formula_is_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, not 2: nothing is wrong with the input."""

    def fails(**_: Any) -> Flop:
        raise ZeroDivisionError

    broken = registry.Formula(key="aten.mm", function=fails, type="matrix product")
    monkeypatch.setitem(registry._formulas, "aten.mm", broken)
    with pytest.raises(RooflineError, match=r"formula for aten\.mm") as raised:
        passed(torch.mm, (2, 3), (3, 4))
    assert raised.value.exit_code == 1


def test_the_public_names() -> None:
    """What users import is what is used inside."""
    import roofline

    assert roofline.Flop is formulas.Flop
    assert roofline.formula is formulas.formula
    assert {each.name for each in fields(Flop)} == {
        *("macs", "other", "least", "type", "elements", "min_elements"),
        "internal_bytes",
        "min_macs",
    }
