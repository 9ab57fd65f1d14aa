"""What `--config` takes, and what it says of what it does not take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import FileFormatError, InputError
from roofline.workload.models.libraries.transformers_config import bundled_names, parse_settings


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("hidden_size=4096,num_hidden_layers=32", {"hidden_size": 4096, "num_hidden_layers": 32}),
        (" hidden_size = 64 , rope_theta = 1e6 ", {"hidden_size": 64, "rope_theta": 1e6}),
        ("vocab_size=128_256", {"vocab_size": 128256}),
        ("a=true,b=False,c=none,d=null", {"a": True, "b": False, "c": None, "d": None}),
        ("hidden_act=gelu,dtype=bfloat16", {"hidden_act": "gelu", "dtype": "bfloat16"}),
        ('layer_types=["a","b"],x=1', {"layer_types": ["a", "b"], "x": 1}),
        (
            'rope_scaling={"factor":8.0,"rope_type":"linear"}',
            {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        ),
        ('name="one, two",x=1', {"name": "one, two", "x": 1}),
        ("hidden_size=64,", {"hidden_size": 64}),
    ],
)
def test_settings_as_text(text: str, given: dict[str, Any]) -> None:
    found = parse_settings(text)
    assert (found.origin, found.base, found.given) == ("", {}, given)


def test_a_bundled_name_and_what_is_changed_in_it() -> None:
    found = parse_settings("llama-3.1-8b,num_hidden_layers=2")
    assert (found.origin, found.given) == ("llama-3.1-8b", {"num_hidden_layers": 2})
    assert found.base["num_hidden_layers"] == 32
    assert (found.all["num_hidden_layers"], found.all["num_key_value_heads"]) == (2, 8)
    assert "meta-llama/Llama-3.1-8B" in found.source


def test_a_dozen_are_bundled_each_with_its_source_and_type() -> None:
    assert len(bundled_names()) >= 12
    for name in bundled_names():
        found = parse_settings(name)
        assert found.source.partition(",")[0].count("/") == 1, name
        assert isinstance(found.base["model_type"], str), name


def test_a_file_of_ones_own_and_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    for written in (str(file), str(tmp_path)):
        found = parse_settings(f"{written},num_hidden_layers=1")
        assert found.origin == str(file)
        assert found.all == {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1}
    # A changed copy of a bundled file is read as one.
    file.write_text(json.dumps({"source": "me", "configuration": {"hidden_size": 64}}))
    assert parse_settings(str(file)).base == {"hidden_size": 64}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty; write a name"),
        (" , ", "expected key=value"),
        ("llama-3.1-8x", r"no bundled configuration; did you mean 'llama-3.1-8b'\?"),
        ("hidden_size=64,4", r"config '4': expected key=value"),
        ("hidden_size=64,hidden_size=32", "hidden_size: given twice"),
        ("hidden_size=", "hidden_size=: has no value"),
        ("layer_types=[1,", "unbalanced brackets"),
        ('a="b', "unbalanced quotes"),
        ("layer_types=[a]", r"not valid JSON; lists and tables are written"),
        ("hidden-size=64", "config 'hidden-size=64': expected key=value"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        parse_settings(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[1]", "not a table of settings"),
        ('{"hidden_size": 64, "hidden_size": 32}', "key 'hidden_size' is given twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(FileFormatError, match=message) as raised:
        parse_settings(str(file))
    assert "\n" not in str(raised.value)


def test_files_that_are_far_too_large_and_names_that_none_has(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as opened:
        opened.truncate(200 * 2**20)
    with pytest.raises(FileFormatError, match="too large: 209,715,200 bytes"):
        parse_settings(str(file))
    for text in ("a" * 5000, "a\0b", "a" * 5000 + ".json"):
        with pytest.raises((InputError, FileFormatError)) as raised:
            parse_settings(text)
        assert len(str(raised.value)) < 6000
        assert "\n" not in str(raised.value)
