"""Ten thousand damaged files: each is refused in one line, or means exactly what it says.

`tests.file_rules` says independently of the readers whether a file can be true, and what it means
with all defaults filled in. A reader must refuse exactly the others, and what it accepts must be
written again just so: nothing in the file was ignored, altered or made up. What remains is damage
that nobody can detect, such as another digit in a figure that stands alone.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
import pickle
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.analysis import Analysis, read_analysis
from roofline.errors import FileFormatError
from roofline.machine.hardware import profile_to_toml, read_profile
from tests import file_rules

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Kind:
    """One of the two readers, and what belongs to it."""

    suffix: str
    files: tuple[str, ...]
    parse: Callable[[bytes], Any]
    rule: Callable[[Any], Any]
    read: Callable[[Path], Any]
    write: Callable[[Any], str]
    dump: Callable[[Any], str]

    def meaning(self, content: bytes) -> Any:
        """What the rules say that a file means; None: it is to be refused."""
        try:
            return self.rule(self.parse(content))
        except file_rules.UnsoundError:
            return None


def without_null(data: Any) -> Any:
    """`data` as TOML can say it: what is null is left out."""
    if isinstance(data, dict):
        return {key: without_null(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [without_null(each) for each in data if each is not None]
    return data


KINDS = {
    "profile": Kind(
        suffix=".toml",
        files=("profile-plain.toml", "profile-measured.toml", "profile-sources.toml"),
        parse=file_rules.parse_toml,
        rule=file_rules.profile,
        read=read_profile,
        write=profile_to_toml,
        dump=lambda data: tomli_w.dumps(without_null(data)),
    ),
    "analysis": Kind(
        suffix=".json",
        files=("analysis-10980xe.json", "analysis-imagined.json", "analysis-lesson.json"),
        parse=file_rules.parse_json,
        rule=file_rules.analysis,
        read=read_analysis,
        write=Analysis.to_json,
        dump=json.dumps,
    ),
}


@cache
def originals(kind: str) -> tuple[bytes, ...]:
    """Sound files, as people and as this version wrote them."""
    which = KINDS[kind]
    old = [(DATA / name).read_bytes() for name in which.files]
    new = [which.write(which.read(DATA / name)).encode() for name in which.files]
    # The second is of inference.
    return (*old, *new, *([with_more(new[1])] if kind == "analysis" else []))


def with_more(content: bytes) -> bytes:
    """The analysis, saying what it took when it was measured before, and what could be changed."""
    earlier = {
        "measured_s": 0.0283,
        "iqr_s": 0.0002,
        "date": "2026-03-04",
        "origin": "calibrate",
        "model": "resnet-like",
        "page_faults": 12.0,
    }
    finding = {
        "rule": "foldable batch norm",
        "operators": [0, 1],
        "evidence": "2 batch norms",
        "change": "fold them",
        "basis": "prediction",
        "predicted_before_s": 0.002,
        "predicted_after_s": 0.001,
        "saving_low_s": 0.0005,
        "saving_high_s": 0.0015,
        "measured_before_s": 0.003,
        "measured_after_s": 0.004,
        "measured_low_s": -0.002,
        "measured_high_s": 0.0001,
        "verdict": "not confirmed",
        "note": "",
    }
    more = {"earlier": earlier, "findings": [finding]}
    return json.dumps({**json.loads(content), **more}, indent=1).encode()


@cache
def pickled(kind: str, number: int) -> bytes:
    return pickle.dumps(KINDS[kind].parse(originals(kind)[number]))


def plain(kind: str, number: int) -> Any:
    """What one of the sound files says, to be changed at will."""
    return pickle.loads(pickled(kind, number))


def canonical(data: Any) -> str:
    """`data` as text: 1, 1.0 and true differ, the order of keys does not."""
    return json.dumps(data, sort_keys=True)


def outcome(kind: str, content: bytes, path: Path) -> str:
    """Reads a file and holds the reader to the rules; says what became of it."""
    which = KINDS[kind]
    path.write_bytes(content)
    meaning = which.meaning(content)
    try:
        found = which.read(path)
    except FileFormatError as error:
        message = str(error)
        assert message.startswith(f"{path}: ")
        assert message.isprintable()
        assert len(message) < len(str(path)) + 500
        assert meaning is None, f"refused, but it may be true: {message}"
        return "refused"
    assert meaning is not None, "accepted, but it cannot be true"
    text = which.write(found).encode()
    sound = meanings(kind)
    written = sound[text] if text in sound else which.rule(which.parse(text))
    assert canonical(written) == canonical(meaning)
    return "same" if meaning in sound.values() else "another"


@cache
def meanings(kind: str) -> dict[bytes, Any]:
    """What the sound files mean, by their content."""
    return {content: KINDS[kind].meaning(content) for content in originals(kind)}


@pytest.fixture(scope="module", autouse=True)
def one_reading_of_toml() -> Iterator[None]:
    """The rules and then the reader ask Python's own parser for the same text: it reads it once.

    It is the slowest by far of all that runs here, and not what is tested.
    """
    original = tomllib.loads

    @lru_cache(maxsize=1)
    def read(text: str) -> tuple[dict[str, Any], Exception | None]:
        try:
            return original(text), None
        except Exception as error:
            return {}, error

    def loads(text: str) -> dict[str, Any]:
        found, error = read(text)
        if error is not None:
            raise error
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", loads)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.parametrize("kind", KINDS)
def test_sound_files_mean_what_they_say(kind: str, folder: Path) -> None:
    for content in originals(kind):
        assert outcome(kind, content, folder / "sound") == "same"


# Damage to bytes.

MEANINGFUL = b"\"'{}[]:,=.-+#eE0123456789\n\r\t \\_xoainfltrue\x00\x7f\xff\xc3\xef\xbb\xbf"


BYTE_DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    # Another byte, or bit, than the first.
    lambda part, rng: bytes([part[0] ^ 1 << rng.randrange(8)]) + part[1:],
    lambda part, rng: bytes([rng.choice(MEANINGFUL)]) + part[1:],
    # Lost, made up, twice, and full of zeros.
    lambda part, rng: b"",
    lambda part, rng: bytes(rng.choices(MEANINGFUL, k=rng.choice((1, 1, 2, 9)))) + part,
    lambda part, rng: part + part,
    lambda part, rng: bytes(len(part)),
    # The end of another file, of the other kind perhaps.
    lambda part, rng: rng.choice(originals(rng.choice([*KINDS])))[-len(part) :],
    *6 * (lambda part, rng: re.sub(rb"[0-9]", rng.choice(DIGITS), part, count=1),),
)
"""What may become of a part of a file."""

DIGITS = [bytes([each]) for each in b"0123456789.-e"]
CODES = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8")


def other_text(content: bytes, rng: random.Random) -> bytes:
    """With lines dropped, repeated or moved (often still JSON or TOML), or written otherwise."""
    lines = content.split(b"\n")
    here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[here]
        case 1:
            lines.insert(there, lines[here])
        case 2:
            lines[here], lines[there] = lines[there], lines[here]
        case 3:
            lines[here] = lines[there]
        case 4:
            return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n")))
        case _:
            return content.decode("utf-8", "replace").encode(rng.choice(CODES), "replace")
    return b"\n".join(lines)


def damaged_bytes(kind: str, rng: random.Random) -> bytes:
    content = rng.choice(originals(kind))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        first = rng.randrange(len(content) or 1)
        # A part of the file, or its end; its start.
        last = first + rng.choice((1, 1, 5, 20, 40, 400, 10**6))
        first, last = (0, first) if rng.random() < 0.1 else (first, last)
        if rng.random() < 0.25:
            content = other_text(content, rng)
        elif part := content[first:last]:
            content = content[:first] + rng.choice(BYTE_DAMAGE)(part, rng) + content[last:]
    return content


# Damage to what a file says.

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 10**9, 10**30, 10**76, 2**256, 10**400, -(10**30)),
    *(0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 5e-324, 1e76, 1e300, math.nan, math.inf, -math.inf),
    *("", " ", "0", "1", "a\nb", "\x1b[31m", "\u202e", "\u00e9", "nan", "null", "x" * 5000),
    *("cpu", "cuda", "mps", "xpu", "counted", "free", "unknown", "compute", "memory", "steady"),
    *("DRAM", "L1", "L9", "read", "float32", "fp32", "torch.int4", "int5", "float33", "measured"),
    *("2026", "2026-02", "2026-02-30", "20260101", "2026-13", "2026-01-01T00:00"),
    *([], {}, [[]], [None], [-1], [10**30], {"": 0}, {"DRAM": 1}, {"a": {"b": [1, 2.5, "c"]}}),
    datetime.date(2026, 1, 1),
)


def ways(data: Any) -> list[tuple[Any, ...]]:
    """The way to every value in plain data."""
    found: list[tuple[Any, ...]] = []

    def follow(data: Any, here: tuple[Any, ...]) -> None:
        for step, value in data.items() if isinstance(data, dict) else enumerate(data):
            way = (*here, step)
            found.append(way)
            if isinstance(value, (dict, list)):
                follow(value, way)

    follow(data, ())
    return found


@cache
def ways_of(kind: str, number: int) -> list[tuple[Any, ...]]:
    return ways(plain(kind, number))


def container(data: Any, way: tuple[Any, ...]) -> Any:
    for step in way[:-1]:
        data = data[step]
    return data


def near(value: Any, rng: random.Random) -> Any:
    """A number a little or a lot beside the right one, or another text; for all else, junk."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**256:
        changes = (value + 1, value - 1, -value, value * 2, value / 2, value * 1000, float(value))
        return rng.choice((*changes, str(value), [value]))
    if isinstance(value, str):
        return rng.choice((value + "\n", value[:-1], value.upper(), value + value, [value]))
    return copy.deepcopy(rng.choice(JUNK))


def nested(value: Any, rng: random.Random) -> Any:
    for _ in range(rng.choice((1, 2, 60, 200))):
        value = rng.choice(([value], {"a": value}))
    return value


STRUCTURE_DAMAGE: tuple[Callable[[Any, random.Random], Any], ...] = (
    *2 * (lambda value, rng: copy.deepcopy(rng.choice(JUNK)),),
    *2 * (near,),
    nested,
    # Turned round, and emptied.
    lambda value, rng: value[::-1] if isinstance(value, list) else value,
    lambda value, rng: type(value)() if isinstance(value, (dict, list)) else value,
)
"""What may stand in the place of a value."""


def damage(data: Any, way: tuple[Any, ...], rng: random.Random) -> None:
    """Changes a value, what stands beside it, or what it is called."""
    place, key = container(data, way), way[-1]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    match rng.randrange(14):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            names = (key + "s", key[:-1], key.upper(), "", "a\nb", "__class__", "x" * 3000)
            place[rng.choice(names)] = place.pop(key)
        case 1 | 2 if isinstance(place, list):
            place.insert(rng.randrange(len(place) + 1), copy.deepcopy(place[key]))
        case 2:
            place[rng.choice(("extra", "", "note", "spread", "L1"))] = rng.choice(JUNK)
        case 3:
            other = rng.choice(keys)
            place[key], place[other] = place[other], place[key]
        case 4:
            other = rng.choice(ways(data))
            place[key] = copy.deepcopy(container(data, other)[other[-1]])
        case 5 if isinstance(data, dict):
            versions = (0, 1, 2, 3, 4, 5, -1, 10**30, 1.0, "1", None, True, [1])
            where = rng.choice((data, data.get("hardware", data)))
            (where if isinstance(where, dict) else data)["schema_version"] = rng.choice(versions)
        case _:
            place[key] = rng.choice(STRUCTURE_DAMAGE)(place[key], rng)


def damaged_structure(kind: str, rng: random.Random) -> bytes:
    number = rng.randrange(len(originals(kind)))
    data = plain(kind, number)
    for turn in range(rng.choice((1, 1, 1, 2))):
        found = ways(data) if turn else ways_of(kind, number)
        if found:
            damage(data, rng.choice(found), rng)
    try:
        return KINDS[kind].dump(data).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError, RecursionError):
        # JSON has no dates; and not all of this can be said in TOML.
        return str(data).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("damaged", [damaged_bytes, damaged_structure])
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_damaged_files(
    kind: str, damaged: Callable[[str, random.Random], bytes], folder: Path
) -> None:
    """Four times 2500, always the same ones."""
    outcomes: Counter[str] = Counter()
    path = folder / f"damaged{KINDS[kind].suffix}"
    for seed in range(2500):
        rng = random.Random(seed)
        content = damaged(kind, rng)
        try:
            outcomes[outcome(kind, content, path)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    # The damage is of all sorts: most is seen, some changes nothing, some cannot be seen.
    assert outcomes["refused"] > 1000, outcomes
    assert outcomes["another"] > 100, outcomes
    assert outcomes["same"] > 10, outcomes


# What nobody thought of above: hypothesis looks for the smallest damage that goes wrong.

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400)
@given(st.data())
def test_anything_in_the_place_of_a_value(kind: str, folder: Path, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(originals(kind)) - 1))
    way = data.draw(st.sampled_from(ways_of(kind, number)))
    changed = plain(kind, number)
    container(changed, way)[way[-1]] = data.draw(PLAIN | st.sampled_from(JUNK[:-1]))
    content = KINDS[kind].dump(changed).encode("utf-8", "surrogatepass")
    outcome(kind, content, folder / "changed")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400)
@given(st.data())
def test_anything_in_the_place_of_some_bytes(kind: str, folder: Path, data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(originals(kind)))
    first = data.draw(st.integers(0, len(content)))
    last = first + data.draw(st.integers(0, 9))
    middle = data.draw(st.binary(max_size=4) | st.text(max_size=4).map(str.encode))
    outcome(kind, content[:first] + middle + content[last:], folder / "changed")
