"""Files of any content and kind: read, or refused in one line with the fix."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roofline.core import files
from roofline.errors import FileFormatError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "a number with too many digits"),
        ('{"a": }', "not valid JSON at line 1, column 7"),
    ],
    ids=["deep", "digits", "damaged"],
)
def test_json_that_no_reader_takes(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message) as refused:
        files.read_json(path, fix="mend it")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "1" * 5000, "a number with too many digits"),
        ("a = ", "not valid TOML"),
    ],
    ids=["deep", "digits", "damaged"],
)
def test_toml_that_no_reader_takes(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message) as refused:
        files.read_toml(path, fix="mend it")
    assert str(refused.value).isprintable()


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe would be waited for without end, and /dev/zero read without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("none")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert files.read_text(tmp_path / "link") == "x"
    for name, message in (
        ("none", "no such file"),
        ("", "is a folder"),
        ("pipe", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("nowhere", "is a link to a file that does not exist"),
        ("file/a", "cannot be read: Not a directory"),
        ("a" * 300, "cannot be read: File name too long"),
        ("a\0b", "cannot be read: .*embedded null"),
    ):
        with pytest.raises(FileFormatError, match=message):
            files.read_text(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON at line 1, column 1: Expecting value; mend it"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark; save it as UTF-8 without one"),
        ("{}".encode("utf-16"), "begins with a byte order mark; save it as UTF-8 without one"),
        ("{}".encode("utf-16-le"), "not valid JSON at line 1, column 2"),
        ("{}".encode("utf-32-be"), "not valid JSON at line 1, column 1"),
        ('{"\u00e9": 1}'.encode("latin-1"), r"is not a text file \(UTF-8\)"),
        (b'{"a": 1, "a": 1}', "key 'a' is given twice; mend it"),
        (b'[{"b": {"a\\nb": 1, "a\\nb": 1}}]', r"key 'a\\nb' is given twice; mend it"),
        (b'{"' + b"a" * 10**7, "not valid JSON at line 1, column 2"),
        (b"\0" * 10**7, "not valid JSON at line 1, column 1"),
        (b"{" * 10**7, "not valid JSON at line 1, column 2"),
        (b"[" * 10**7, "nested too deeply; mend it"),
        (b'[1,"' + b"\xff" * 10**7, "is not a text file"),
        (b"1" * 10**7, "contains a number with too many digits"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_json_of_any_content(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as refused:
        files.read_json(path, fix="mend it")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < len(str(path)) + 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbfa = 1", "begins with a byte order mark; save it as UTF-8 without one"),
        ("a = 1".encode("utf-16"), "begins with a byte order mark; save it as UTF-8 without one"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = 1\rb = 2", "not valid TOML"),
        (b"a" * 10**7, "not valid TOML"),
        (b"\0" * 10**7, "not valid TOML"),
        (b"a." * 5 * 10**6 + b"a = 1", "nested too deeply; mend it"),
        (b"[" + b"a." * 10**5 + b"a]", "nested too deeply; mend it"),
        (b"a = " + b"[" * 10**7, "nested too deeply"),
        (b"a = " + b"{a=" * 10**6, "nested too deeply"),
        (b"a = 0x" + b"1" * 10**7, ""),
    ],
    ids=lambda value: str(value)[:12],
)
def test_toml_of_any_content(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    if not message:
        # Its number is refused where its place is known.
        assert files.read_toml(path, fix="mend it")["a"] > 16**1000
        return
    with pytest.raises(FileFormatError, match=message) as refused:
        files.read_toml(path, fix="mend it")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < len(str(path)) + 200


def test_lines_may_end_in_any_usual_way(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{\r\n"a":\r\n1}\r\n')
    assert files.read_json(path, fix="") == {"a": 1}
    path.write_bytes(b"a = 1\r\nb = 2\r\n")
    assert files.read_toml(path, fix="") == {"a": 1, "b": 2}


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert files.read_toml(tmp_path / "a", fix="") == {}


def test_a_file_too_large_to_be_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    os.truncate(path, 10**13)
    with pytest.raises(
        FileFormatError, match="is too large for a roofline file: 10000000000000 bytes"
    ):
        files.read_json(path, fix="mend it")


def test_names_of_files_are_shown_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"a\\nb: no such file") as refused:
        files.read_text(tmp_path / "a\nb")
    assert str(refused.value).isprintable()


def test_sound_json_is_what_the_standard_library_reads(tmp_path: Path) -> None:
    text = '{"a": [1, 2.5, null, true, "\u00e9", {"b": {}}], "c": -1e-9}'
    (tmp_path / "a").write_text(text, encoding="utf-8")
    assert files.read_json(tmp_path / "a", fix="") == json.loads(text)
