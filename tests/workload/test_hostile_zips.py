"""Zips that would be one thing to Python, which looks into them, and another to torch."""

from __future__ import annotations

import io
import stat
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from tests.workload.hostile_files import program_content, replaced, said_of, script_content, written


def named(path: Path, *names: str) -> Path:
    """A zip with members of these names, which may be the same."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as made:
        warnings.simplefilter("ignore")
        for name in names:
            made.writestr(name, b"content")
    return path


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("archive/../../evil",), "'archive/../../evil' leads out of the zip"),
        (("/etc/evil",), "leads out of the zip"),
        (("archive\\..\\evil",), "leads out of the zip"),
        (("C:/evil",), "leads out of the zip"),
        (("archive/a", "archive/a"), "is in it twice"),
        (("archive/data.pkl", "archive/DATA.PKL"), "is in it twice"),
        (("archive/a\x1b[31m/../../b",), r"\\x1b"),
    ],
)
@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_members_that_lead_out_of_the_zip(
    names: tuple[str, ...], words: str, suffix: str, tmp_path: Path
) -> None:
    assert words.replace("\\\\", "\\") in said_of(named(tmp_path / f"a{suffix}", *names))


def test_a_zip_that_would_unpack_to_far_more(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/models/model.json", bytes(300_000_000))
    assert path.stat().st_size < 400_000
    assert "would unpack from" in said_of(path)


def test_links_encrypted_and_overlapping_members(tmp_path: Path) -> None:
    path = tmp_path / "link.pt"
    with zipfile.ZipFile(path, "w") as made:
        link = zipfile.ZipInfo("archive/data.pkl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "/etc/passwd")
    assert "is a link" in said_of(path)
    locked = bytearray(named(tmp_path / "locked.pt", "archive/a").read_bytes())
    place = locked.index(b"PK\x01\x02") + 8
    locked[place] |= 1
    (tmp_path / "locked.pt").write_bytes(locked)
    assert "is encrypted" in said_of(tmp_path / "locked.pt")
    content = bytearray(named(tmp_path / "over.pt", "archive/a", "archive/b").read_bytes())
    second = content.rindex(b"PK\x01\x02") + 42
    content[second : second + 4] = (1).to_bytes(4, "little")
    (tmp_path / "over.pt").write_bytes(content)
    assert "lies over another one" in said_of(tmp_path / "over.pt")


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_what_stands_before_or_behind_a_zip(suffix: str, tmp_path: Path) -> None:
    """One reader would start there, another one would not."""
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    path.write_bytes(b"PK\x03\x04xxxx" + content)
    assert "something stands before or behind the zip" in said_of(path)
    for behind in (b"x", content):
        path.write_bytes(content + behind)
        assert "cut short" in said_of(path)


def test_a_list_of_contents_that_lies_elsewhere(tmp_path: Path) -> None:
    """Python takes the list that stands before the end, torch the one that the end points to."""
    content = bytearray(named(tmp_path / "a.pt2", "archive/a", "archive/b").read_bytes())
    (place,) = struct.unpack("<L", content[-6:-2])
    for other in (place + 1, place - 1, 0):
        content[-6:-2] = struct.pack("<L", other)
        (tmp_path / "a.pt2").write_bytes(content)
        assert "cut short" in said_of(tmp_path / "a.pt2")
    content[-6:-2] = struct.pack("<L", place)
    # Torch reads as many members as this says, Python all there are.
    content[-12:-10] = struct.pack("<H", 1)
    (tmp_path / "a.pt2").write_bytes(content)
    assert "something stands before or behind" in said_of(tmp_path / "a.pt2")


# -- two programs in one file ----------------------------------------------------------------------


def with_members(path: Path, members: dict[str, bytes]) -> Path:
    """A .pt2 file with more members, which are named whole, folder and all."""
    with zipfile.ZipFile(path, "w") as made, zipfile.ZipFile(_stream()) as old:
        for name in old.namelist():
            made.writestr(name, old.read(name))
        for name, content in members.items():
            made.writestr(name, content)
    return path


def _stream() -> io.BytesIO:
    return io.BytesIO(program_content())


def _evil() -> bytes:
    """A program that would run a command."""
    with zipfile.ZipFile(_stream()) as opened:
        name = next(each for each in opened.namelist() if each.endswith("models/model.json"))
        return replaced("torch.ops.aten.relu.default", "torch.os.system")(opened.read(name))


def _folder() -> str:
    with zipfile.ZipFile(_stream()) as opened:
        return opened.namelist()[0].partition("/")[0]


def test_the_program_that_is_looked_into_is_the_one_that_is_opened(tmp_path: Path) -> None:
    """torch opens every file in ``models/``, and looks for earlier formats only where it fails."""
    folder = _folder()
    earlier = "serialized_exported_program.json"
    for name, words in {
        f"{folder}/models/model.jsox": "it holds programs called",
        f"{folder}/models/evil.json": "it holds programs called",
        f"{folder}/models/MODEL.JSON": "is in it twice",
        f"{folder}/Models/other.json": "is in capitals",
        f"{folder}/data/Sample_Inputs/model.pt": "is in it twice",
        f"{folder}/{earlier}": "torch before 2.7",
        earlier: "torch before 2.7",
        "other/version": "there is no exported program in it",
    }.items():
        path = with_members(tmp_path / "a.pt2", {name: _evil()})
        assert words in said_of(path), name


def test_code_in_a_folder_in_capitals(tmp_path: Path) -> None:
    """torch finds members whatever the case of their names."""
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as made, zipfile.ZipFile(io.BytesIO(script_content())) as old:
        for name in old.namelist():
            content = old.read(name)
            if "/code/" in name and name.endswith(".py"):
                name = name.replace("/code/", "/CODE/")
                content = content.replace(b"torch.relu", b"torch.save")
            made.writestr(name, content)
    assert "which opens files" in said_of(path)
