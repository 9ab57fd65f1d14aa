"""How formulas come in and are found."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from roofline.errors import RooflineError
from roofline.workload import formulas
from roofline.workload.formulas import Flop, find, formula, known, registry
from roofline.workload.operators import State
from tests.workload.passes import Function, only, passed

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


def test_a_second_formula_is_an_error_and_changes_nothing() -> None:
    """The message names the one that is there; none of the names is registered."""
    with pytest.raises(RooflineError, match=r"aten\.mm already has a formula: .*matmul\.product"):
        formula("mylib.fresh", "aten.mm")(lambda **_: Flop())
    assert find("mylib.fresh") is None


def test_every_formula_is_documented_and_named_like_an_operator() -> None:
    """A formula's docstring is its rule; its key has a namespace."""
    for key, each in known().items():
        assert each.function.__doc__, key
        assert key.count(".") in (1, 2), key
        assert each.type, key
        assert each.key == key


def test_a_failing_formula_names_itself() -> None:
    """Also through a pass, where it is no fault of the model."""

    @formula("mylib.fails")
    def fails(**_: Any) -> Flop:
        raise KeyError("groups")

    found = find("mylib.fails")
    assert found is not None
    with pytest.raises(RooflineError, match=r"mylib\.fails \(.*\.fails\) failed: KeyError"):
        found.count({})


def test_a_failing_formula_is_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, not 2: nothing is wrong with the input."""

    def fails(**_: Any) -> Flop:
        raise ZeroDivisionError

    broken = registry.Formula(key="aten.mm", function=fails, type="matrix product")
    monkeypatch.setitem(registry._formulas, "aten.mm", broken)
    with pytest.raises(RooflineError, match=r"formula for aten\.mm") as raised:
        passed(torch.mm, (2, 3), (3, 4))
    assert raised.value.exit_code == 1


def test_a_formula_must_return_flop() -> None:
    """A plain number leaves open what it counts."""

    @formula("mylib.number")
    def number(**_: Any) -> Flop:
        return 3  # pyright: ignore[reportReturnType]

    found = find("mylib.number")
    assert found is not None
    with pytest.raises(RooflineError, match=r"returned int; return roofline\.Flop"):
        found.count({})


def test_an_operator_of_ones_own() -> None:
    """Unknown FLOP but known bytes without a formula; counted with one."""
    with torch.library._scoped_library("roofline_test", "DEF") as library:
        library.define("twice(Tensor x, int times=2) -> Tensor")
        library.impl("twice", lambda x, times=2: x * times, "CompositeExplicitAutograd")
        torch.library.register_fake(
            "roofline_test::twice", lambda x, times=2: torch.empty_like(x), lib=library
        )
        model = Function(lambda x: torch.ops.roofline_test.twice(x))
        record = only(passed(model, (3, 4)))
        assert (record.state, record.work.flop, record.work.macs) == (State.UNKNOWN, None, None)
        assert record.work.traffic_bytes == 2 * 48

        @formula("roofline_test.twice", type="my kind")
        def twice(x: Any, times: int, output: Any) -> Flop:
            assert times == 2  # the default, which the call left out
            return Flop(other=output.elements)

        record = only(passed(model, (3, 4)))
        assert (record.state, record.work.flop, record.type, record.formula) == (
            State.COUNTED,
            12,
            "my kind",
            "roofline_test.twice",
        )


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
