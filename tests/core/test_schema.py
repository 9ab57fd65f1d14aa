"""Plain data into dataclasses, strictly: every wrong value is refused with its place."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core import schema
from roofline.core.dtypes import DType, dtype
from roofline.errors import FileFormatError
from roofline.machine.catalog import bundled_folder
from roofline.machine.hardware import HardwareProfile, profile_to_toml, read_profile
from tests.builders import ceiling, level, profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    size: int
    rate: float = 1.0
    kind: Literal["a", "b"] = "a"
    of: DType | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size must not be negative, got {self.size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    name: str
    leaves: tuple[Leaf, ...] = ()
    rates: dict[str, float] = field(default_factory=dict[str, float])
    open: bool = False
    more: Any = None


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    data: Any = []
    for _ in range(levels):
        data = [data]
    return data


def build(data: Any) -> Tree:
    return schema.from_data(Tree, data, file="f.toml", fix="mend it")


RATES = st.floats(2.0**-256, 2.0**255)
NUMBERS = RATES | RATES.map(operator.neg) | st.just(0.0)

LEAVES = st.builds(
    Leaf,
    size=st.integers(0, 100),
    rate=NUMBERS,
    kind=st.sampled_from(["a", "b"]),
    of=st.sampled_from([None, dtype("float32"), dtype("int4")]),
)


@given(
    st.builds(
        Tree,
        name=st.text(),
        leaves=st.lists(LEAVES, max_size=3).map(tuple),
        rates=st.dictionaries(st.text(), NUMBERS),
        open=st.booleans(),
    )
)
def test_there_and_back(tree: Tree) -> None:
    assert build(json.loads(json.dumps(schema.to_data(tree)))) == tree


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "f.toml: expected a table with keys"),
        ({}, "f.toml: missing key 'name'; mend it"),
        ({"name": 3}, "f.toml: name: expected a string, got 3"),
        ({"name": "x", "leafs": []}, "unknown key 'leafs'; did you mean 'leaves'?"),
        ({"name": "x", "leaves": {}}, "leaves: expected a list"),
        ({"name": "x", "leaves": [{}]}, r"leaves\[0\]: missing key 'size'"),
        ({"name": "x", "leaves": [{"size": "3"}]}, r"leaves\[0\].size: expected a whole number"),
        ({"name": "x", "leaves": [{"size": 3.0}]}, r"leaves\[0\].size: expected a whole number"),
        ({"name": "x", "leaves": [{"size": True}]}, r"leaves\[0\].size: expected a whole number"),
        ({"name": "x", "leaves": [{"size": -1}]}, r"leaves\[0\]: size must not be negative"),
        ({"name": "x", "leaves": [{"size": 1, "rate": "1"}]}, "rate: expected a number, got '1'"),
        ({"name": "x", "leaves": [{"size": 1, "kind": "c"}]}, "expected one of 'a', 'b', got 'c'"),
        ({"name": "x", "leaves": [{"size": 1, "kind": [1]}]}, "expected one of 'a', 'b'"),
        ({"name": "x", "leaves": [{"size": 1, "of": "flot32"}]}, "did you mean 'float32'"),
        ({"name": "x", "leaves": [{"size": 1, "of": 32}]}, "expected the name of a dtype"),
        ({"name": "x", "rates": {"a": None}}, r"rates.a: expected a number, got None"),
        ({"name": "x", "rates": {"a": float("nan")}}, r"rates.a: expected a finite number"),
        ({"name": "x", "open": 1}, "open: expected true or false"),
        ({"name": "x", "rates": {"a": 10**400}}, r"rates.a: expected a number below 2\^256"),
        ({"name": "x", "rates": {"a": 16**5000}}, "rates.a: .* got what is too long to show"),
        ({"name": "x", "rates": {"a": 1e300}}, r"rates.a: expected a number below 2\^256"),
        ({"name": "x", "rates": {"a": -1e-78}}, r"rates.a: expected 0 or a number from 2\^-256"),
        ({"name": "x", "rates": {"a": 5e-324}}, r"rates.a: expected 0 or a number from 2\^-256"),
        ({"name": "x", "leaves": [{"size": 10**400}]}, "size: expected a number below"),
        ({"name": "x", "more": [{"a": float("inf")}]}, r"more\[0\].a: expected a finite number"),
        ({"name": "x", "more": {"a": 10**400}}, "more.a: expected a number below"),
        ({"name": "x", "more": object()}, "more: expected a number, a string"),
        ({"name": deep(900)}, "name: expected a string"),
        ({"name": "x", "more": deep(900)}, "more.*: nested too deeply"),
        ({"name": "x", "new\nline": 1}, r"unknown key 'new\\nline'"),
        ({"schema_version": 1, "a\x1b[31mb": 1}, r"unknown key"),
    ],
)
def test_wrong_data_is_refused_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as refused:
        build(data)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "no 'schema_version'"),
        ([], "no 'schema_version'"),
        ({"schema_version": "1"}, "expected a whole number"),
        ({"schema_version": 0}, "expected a whole number from 1"),
        ({"schema_version": True}, "expected a whole number"),
        ({"schema_version": 3}, "written by an older version"),
        ({"schema_version": 16**5000}, "written by an older version"),
    ],
)
def test_versions(data: Any, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        schema.check_version(data, file="f", fix="mend it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    width: int

    ALSO_WRITTEN: ClassVar = ("area",)

    @property
    def area(self) -> int:
        return self.width**2


def test_properties_may_be_written_and_must_follow() -> None:
    data = schema.to_data({"boxes": (Box(width=2), Box(width=3))})
    assert data == {"boxes": [{"width": 2, "area": 4}, {"width": 3, "area": 9}]}
    assert schema.from_data(Box, {"width": 2}, file="b.json") == Box(width=2)
    assert schema.from_data(Box, data["boxes"][1], file="b.json") == Box(width=3)
    with pytest.raises(FileFormatError, match="area is 5, but follows as 4"):
        schema.from_data(Box, {"width": 2, "area": 5}, file="b.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    flop: int

    ALSO_WRITTEN: ClassVar = ("summary", "sentences", "totals", "passes")

    @property
    def summary(self) -> str:
        return f"{self.flop} FLOP"

    @property
    def sentences(self) -> tuple[str, ...]:
        return ("one sentence",)

    @property
    def totals(self) -> list[dict[str, Any]]:
        return [{"name": "flop", "now": self.flop, "before": None}]

    @property
    def passes(self) -> bool:
        return self.flop < 10


def test_reworded_texts_that_follow_are_read_and_changed_numbers_are_not() -> None:
    data = schema.to_data(Verdict(flop=3))
    older = {**data, "summary": "3 flops, in words of another version", "sentences": ["a", "b"]}
    assert schema.from_data(Verdict, older, file="v.json") == Verdict(flop=3)
    assert schema.from_data(Verdict, {**older, "sentences": []}, file="v.json") == Verdict(flop=3)
    for wrong in (
        {"totals": [{"name": "flop", "now": 4, "before": None}]},
        {"totals": [{"name": "flop", "now": "3", "before": None}]},
        {"totals": [{"name": "flop", "now": 3, "before": 0}]},
        {"totals": []},
        {"passes": False},
        {"summary": 3},
    ):
        with pytest.raises(FileFormatError, match=f"{next(iter(wrong))} is .*, but follows as"):
            schema.from_data(Verdict, {**data, **wrong}, file="v.json")


def test_messages_stay_short_whatever_a_file_holds() -> None:
    for data in (
        {"x" * 10**6: 1},
        {"name": 1, "more": "x" * 10**6},
        {"name": ["x" * 10**6] * 100},
        {"name": "x", "rates": {"x" * 10**6: "x"}},
        {"name": "x", "leaves": [{"size": 1, "of": "x" * 10**6}]},
    ):
        with pytest.raises(FileFormatError) as refused:
            build(data)
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "path", sorted(bundled_folder().glob("*.toml")), ids=lambda path: path.stem
)
def test_bundled_profiles_are_sound(path: Path, tmp_path: Path) -> None:
    found = read_profile(path)
    assert found.name == path.stem
    for provenance in found.provenances():
        assert provenance.reference
    again = tmp_path / path.name
    again.write_text(profile_to_toml(found))
    assert read_profile(again) == found


MACHINE = profile(
    [ceiling(1e11), ceiling(2e11, threads=2)],
    [
        level("L1", 32768, {"read": {1: 1e11, 2: 2e11}}, scope="private"),
        level("DRAM", None, {"copy": {1: 1e10}}),
    ],
    threads=2,
)

JUNK = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5) | st.just([])
)


def paths_in(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in plain data."""
    found = [here] if here else []
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in items:
        found += paths_in(value, (*here, key))
    return found


@settings(max_examples=500)
@given(st.data())
def test_a_damaged_profile_is_refused_or_means_something_else(data: st.DataObject) -> None:
    """Whatever is put in the place of a value: a clear refusal, or another profile."""
    plain = schema.to_data(MACHINE)
    path = data.draw(st.sampled_from(paths_in(plain)))
    junk = data.draw(JUNK)
    *way, last = path
    place = plain
    for step in way:
        place = place[step]
    before = place[last]
    place[last] = junk
    try:
        found = HardwareProfile.from_data(plain, file="f.toml")
    except FileFormatError as error:
        assert "f.toml" in str(error)
        assert "\n" not in str(error)
    else:
        # An older version and another name of a data type mean the same.
        assert found != MACHINE or before == junk or last in ("schema_version", "dtype")


def test_a_profile_may_not_contradict_itself() -> None:
    with pytest.raises(ValueError, match="the machine has 1"):
        replace(MACHINE, threads=1)
    with pytest.raises(ValueError, match="names must differ"):
        replace(MACHINE, memory=(MACHINE.memory[0], MACHINE.memory[0]))
