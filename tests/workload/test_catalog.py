"""Every operator that has a formula, in words: complete, found by name, at the line it stands."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import roofline
from roofline.errors import InputError
from roofline.workload.formulas import Flop, formula, known, registry
from roofline.workload.formulas.catalog import (
    EACH_OPERAND_ONCE,
    catalog,
    entry_of,
    filter_by_name,
    filter_by_type,
    shared_rules,
)
from roofline.workload.formulas.registry import Formula

PACKAGE = Path(roofline.__file__).parent
BYTE_FIELDS = ("elements", "min_elements", "internal_bytes")


def entry(key: str) -> Any:
    return entry_of(known()[key])


# -- what all formulas must say --------------------------------------------------------------------


@functools.cache
def source_tree(function: FunctionType) -> ast.AST:
    """Of a row of a table, its expression."""
    source = getattr(function, "expression", "") or textwrap.dedent(inspect.getsource(function))
    return ast.parse(source)


@functools.cache
def says_bytes(function: FunctionType, callers: tuple[FunctionType, ...] = ()) -> bool:
    """Whether a function, or one of roofline's that it calls, gives `Flop` one of `BYTE_FIELDS`."""
    for call in ast.walk(source_tree(function)):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in ("Flop", "replace") and any(each.arg in BYTE_FIELDS for each in call.keywords):
            return True
    callers = (*callers, function)
    return any(each not in callers and says_bytes(each, callers) for each in parts_of(function))


def parts_of(function: FunctionType) -> Iterator[FunctionType]:
    """roofline's own functions that a function speaks of, and those that it encloses."""
    values: list[Any] = []
    for each in ast.walk(source_tree(function)):
        if isinstance(each, ast.Name):
            values.append(function.__globals__.get(each.id))
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            values.append(getattr(function.__globals__.get(each.value.id), each.attr, None))
    values += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    values.append(getattr(function, "function", None))
    for value in values:
        part = value.function if isinstance(value, Formula) else value
        if not hasattr(part, "__globals__") or part.__module__ == registry.__name__:
            continue
        if part.__module__.startswith("roofline.workload.formulas."):
            yield part


def test_every_formula_says_what_it_counts_and_which_bytes() -> None:
    """A docstring always; a rule in words where bytes are not each operand once."""
    offenders = {
        f"{each.file}:{each.line}: {each.key}"
        for each in catalog()
        if not each.flop_rule
        or (each.byte_rule == EACH_OPERAND_ONCE and says_bytes(known()[each.key].function))  # pyright: ignore[reportArgumentType]
    }
    assert not offenders, "\n".join(sorted(offenders))


def test_the_check_of_bytes_finds_what_it_looks_for() -> None:
    """Straight, through a function that is called, and not where nothing is said."""
    functions: dict[str, Any] = {
        key: known()[key].function for key in ("aten.embedding", "aten.convolution", "aten.mm")
    }
    assert says_bytes(functions["aten.embedding"])
    assert not says_bytes(functions["aten.mm"])
    assert says_bytes(functions["aten.convolution"])


# -- entries ---------------------------------------------------------------------------------------


def test_the_catalogue_has_every_formula_in_the_order_of_names() -> None:
    entries = catalog()
    assert [each.key for each in entries] == sorted(known())
    assert all(each.type and not each.is_user for each in entries)


def test_entries_stand_at_the_line_of_their_function() -> None:
    """At that line of that file begins a definition with its decorators, or a row."""
    for each in catalog():
        lines = (PACKAGE.parent / each.file).read_text(encoding="utf-8").splitlines()
        if known()[each.key].row is not None:
            operators = "\n".join(lines[each.line - 1 :]).partition("=")[0]
            assert each.key in operators.split(), each.source
            continue
        assert lines[each.line - 1].strip().startswith(("@", "def ", "lambda")), each.source
        name = getattr(known()[each.key].function, "__name__", "")
        following = "\n".join(lines[each.line - 1 : each.line + 60])
        assert f"def {name}(" in following, each.source


def test_an_entry_of_roofline() -> None:
    """Worked out by hand from the source."""
    found = entry("aten.embedding")
    assert (found.type, found.byte_rule, found.is_user) == (
        "embedding",
        "the rows looked up, not the table; minimum: one row (indices may be equal)",
        False,
    )
    assert found.flop_rule == "The rows that are looked up are read, not the table."
    assert found.file == "roofline/workload/formulas/indexing.py"
    assert entry("aten.mm").byte_rule == EACH_OPERAND_ONCE


@pytest.mark.usefixtures("a_registry_of_its_own")
def test_an_entry_of_ones_own() -> None:
    """Its file is absolute; the first paragraph is the rule, what follows the detail."""

    @formula("mylib.thing", is_for_complex=True)
    def thing(**_: Any) -> Flop:
        """Two an
        element.

        And a
        remark.
        """
        return Flop()

    found = entry("mylib.thing")
    assert (found.flop_rule, found.flop_detail) == ("Two an element.", "And a remark.")
    assert Path(found.file) == Path(__file__).absolute()
    assert found.line == thing.__code__.co_firstlineno
    assert (found.type, found.is_user, found.is_for_complex) == ("custom", True, True)


@pytest.mark.usefixtures("a_registry_of_its_own")
@pytest.mark.parametrize("function", [functools.partial(Flop, other=1), Flop])
def test_what_has_no_source_or_docstring_is_still_listed(function: Callable[..., Any]) -> None:
    """A partial, or a class: no file and no line, and no failure."""
    formula("mylib.odd")(function)
    assert entry("mylib.odd").source == ""


def test_operators_of_one_formula_stand_together_and_none_is_lost() -> None:
    entries = catalog()
    rules = shared_rules(entries)
    assert sorted(each.key for rule in rules for each in rule) == [each.key for each in entries]
    by_key = {each.key: rule for rule in rules for each in rule}
    assert by_key["aten.max_pool1d"] is by_key["aten.max_pool2d_with_indices"]
    assert by_key["aten.max_pool1d"] is not by_key["aten.avg_pool1d"]


# -- found by name ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "there", "not_there"),
    [
        ("aten.mm", {"aten.mm"}, {"aten.bmm", "aten.addmm"}),
        ("mm", {"aten.mm", "aten.bmm", "aten.addmm"}, {"aten.mv"}),
        ("conv*", {"aten.convolution", "aten.conv2d"}, {"aten._convolution"}),
        ("aten.conv?d", {"aten.conv1d", "aten.conv2d"}, {"aten.convolution"}),
        ("AVG_POOL", {"aten.avg_pool1d"}, {"aten.max_pool1d"}),
        ("aten::mm", {"aten.mm"}, {"aten.bmm"}),
        ("torch.ops.aten.mm", {"aten.mm"}, {"aten.bmm"}),
        ("aten.mm.default", {"aten.mm"}, {"aten.bmm"}),
        ("aten.relu_", {"aten.relu"}, {"aten.gelu"}),
        ("aten.add.Tensor", {"aten.add"}, {"aten.addmm"}),
        ("aten.max.other", {"aten.max.other"}, {"aten.max"}),
    ],
)
def test_found_by_name(pattern: str, there: set[str], not_there: set[str]) -> None:
    found = {each.key for each in filter_by_name(catalog(), pattern)}
    assert there <= found
    assert not found & not_there


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("aten.convolutoin", r"no formula for 'aten\.convolutoin'; the nearest are aten\.convol"),
        ("softmx", r"no formula for 'softmx'; the nearest (is|are) .*softmax"),
        ("aten.", r"^$"),
        ("zzzzz", r"no formula for 'zzzzz'; roofline operators without a pattern lists all"),
        ("zzz*", r"no formula for 'zzz\*'"),
    ],
)
def test_what_fits_nothing_names_the_nearest(pattern: str, message: str) -> None:
    if message == "^$":
        assert len(filter_by_name(catalog(), pattern)) > 100
        return
    with pytest.raises(InputError, match=message) as raised:
        filter_by_name(catalog(), pattern)
    assert "\n" not in str(raised.value)


def test_only_those_of_a_kind() -> None:
    found = filter_by_type(catalog(), "softmax")
    assert {each.type for each in found} == {"softmax"}
    with pytest.raises(InputError, match=r"type='sofmax': expected .*did you mean 'softmax'"):
        filter_by_type(catalog(), "sofmax")
