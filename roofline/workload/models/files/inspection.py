"""What a file is, before anything else opens it: its kind by its first bytes, and its zip's list.

Nothing here runs what a file says. A zip is read as torch will read it: what two readers could
understand differently is refused.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from roofline.errors import FileFormatError, ModelError
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte

_HEAD_BYTE = 1024

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes them"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"GGUF", "a GGUF file, weights for llama.cpp"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x1f\x8b", "compressed by gzip"),
    (0, b"BZh", "compressed by bzip2"),
    (0, b"\xfd7zXZ", "compressed by xz"),
    (0, b"(\xb5/\xfd", "compressed by zstd"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a Windows program"),
    (0, b"\x89PNG", "a picture"),
    (0, b"%PDF", "a PDF document"),
    (0, b"#!", "a script"),
    (0, b"version https://git-lfs", "a Git LFS pointer and not the file (git lfs pull fetches it)"),
    (0, b"<!DOCTYPE", "a web page and not the file (the download failed)"),
    (0, b"<!doctype", "a web page and not the file (the download failed)"),
    (0, b"<html", "a web page and not the file (the download failed)"),
)

ZIP = "zip"
PICKLE = "pickle"
UNKNOWN = ""


def kind_of(path: Path) -> str:
    """``"zip"``, ``"pickle"``, ``""`` for what has no signature.

    Raises:
        ModelError: there is no such file, or it cannot be read.
        FileFormatError: it is empty, or something else than a model.
    """
    head = _head(path)
    if not head:
        raise FileFormatError(f"{path}: the file is empty")
    if not head.strip(b"\0"):
        raise FileFormatError(f"{path}: it begins with nothing but zeros: it was not written whole")
    if head.startswith(b"PK\x03\x04"):
        return ZIP
    for offset, signature, what in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            raise FileFormatError(f"{path}: this is {what}, not a model that is read here; {READ}")
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return PICKLE
    return UNKNOWN


READ = "models are read from .pt2, TorchScript .pt and .onnx files"


def _head(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"{path}: is a folder; name the model's file in it")
        if not stat.S_ISREG(mode):
            # A pipe would wait for ever.
            raise ModelError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            return file.read(_HEAD_BYTE)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        # A name with a NUL in it.
        raise ModelError(f"'{printable(str(path))}': cannot be read: {error}") from None


# -- zips ------------------------------------------------------------------------------------------

_MOST_MEMBERS = 1_000_000
_MOST_PACKED_BYTE = 2**30
"""What the compressed members of a zip may come to. torch compresses nothing."""

_MOST_TIMES_LARGER = 100
_ALLOWED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A zip whose list of contents can be trusted.

    ``size_byte`` has the size of every member by its name, without the ``folder`` that all of them
    lie in.
    """

    path: Path
    folder: str
    size_byte: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.size_byte

    def within(self, folder: str) -> tuple[str, ...]:
        """The names of the members in a folder, ``"data/weights/"``."""
        return tuple(each for each in self.size_byte if each.startswith(folder))

    def read(self, name: str, *, most_byte: int) -> bytes:
        """A member, checked against its checksum.

        Raises:
            FileFormatError: it is missing, damaged or too large.
        """
        size_byte = self.size_byte.get(name)
        if size_byte is None:
            raise FileFormatError(f"{self.path}: '{name}' is missing in it")
        if size_byte > most_byte:
            raise FileFormatError(
                f"{self.path}: '{name}' in it has {format_byte(size_byte)}, more than the"
                f" {format_byte(most_byte)} that are read"
            )
        try:
            with zipfile.ZipFile(self.path) as opened:
                return opened.read(f"{self.folder}{name}")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
            raise FileFormatError(
                f"{self.path}: '{name}' in it is damaged: {printable(str(error))}"
            ) from None


def archive_in(path: Path, source: IO[bytes] | None = None) -> Archive:
    """The list of contents of a zip, once it holds together.

    Args:
        path: the file, for messages, and to read it.
        source: what is read in its place, of a zip that lies in another one.

    Raises:
        FileFormatError: it is cut short or damaged, would unpack to far more than it has, or has
            members whose names lead out of it, that lie over each other, or that are encrypted.
    """
    try:
        with zipfile.ZipFile(source or path) as opened:
            members = opened.infolist()
            comment = opened.comment
            end_byte = _length(opened)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise FileFormatError(
            f"{path}: the file is cut short or damaged: the list of contents at its end is"
            f" missing or wrong ({printable(str(error))})"
        ) from None
    if not members:
        raise FileFormatError(f"{path}: a zip with nothing in it")
    if len(members) > _MOST_MEMBERS:
        raise FileFormatError(f"{path}: a zip of {len(members):,} members is no model")
    if comment or min(each.header_offset for each in members):
        raise FileFormatError(
            f"{path}: the file is cut short, or something stands before or behind the zip; save the"
            " model again"
        )
    _check_names(path, members)
    _check_sizes(path, members, end_byte)
    folder = _shared_folder([each.filename for each in members])
    return Archive(
        path=path,
        folder=folder,
        size_byte={each.filename.removeprefix(folder): each.file_size for each in members},
    )


def _length(opened: zipfile.ZipFile) -> int:
    file = opened.fp
    assert file is not None
    file.seek(0, 2)
    return file.tell()


def _check_names(path: Path, members: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for each in members:
        name = each.filename
        shown = printable(name)[:80]
        if (
            name.startswith("/")
            or "\\" in name
            or ":" in name.split("/")[0]
            or "\0" in each.orig_filename
            or ".." in PurePosixPath(name).parts
        ):
            raise FileFormatError(f"{path}: the member '{shown}' leads out of the zip; not opened")
        if name in seen:
            raise FileFormatError(f"{path}: the member '{shown}' is in it twice; not opened")
        if stat.S_ISLNK(each.external_attr >> 16):
            raise FileFormatError(f"{path}: the member '{shown}' is a link; not opened")
        if each.flag_bits & 0x1:
            raise FileFormatError(f"{path}: the member '{shown}' is encrypted; not opened")
        seen.add(name)


def _check_sizes(path: Path, members: list[zipfile.ZipInfo], end_byte: int) -> None:
    packed_byte = reached_byte = 0
    for each in sorted(members, key=lambda member: member.header_offset):
        shown = printable(each.filename)[:80]
        if each.compress_type not in _ALLOWED:
            raise FileFormatError(f"{path}: the member '{shown}' is packed in an unknown way")
        if each.header_offset < reached_byte:
            raise FileFormatError(f"{path}: the member '{shown}' lies over another one; not opened")
        reached_byte = each.header_offset + each.compress_size
        if reached_byte > end_byte:
            raise FileFormatError(f"{path}: the file is cut short: '{shown}' ends behind its end")
        if each.compress_type == zipfile.ZIP_STORED:
            if each.file_size != each.compress_size:
                raise FileFormatError(f"{path}: the member '{shown}' has two sizes; not opened")
            continue
        packed_byte += each.file_size
        if (
            each.file_size > _MOST_TIMES_LARGER * max(each.compress_size, 1024)
            or packed_byte > _MOST_PACKED_BYTE
        ):
            raise FileFormatError(
                f"{path}: '{shown}' would unpack from {format_byte(each.compress_size)} to"
                f" {format_byte(each.file_size)}; not opened"
            )


def _shared_folder(names: list[str]) -> str:
    """The folder that all of them are in, ``"archive/"``; ``""`` if there is none."""
    first, slash, _ = names[0].partition("/")
    folder = first + slash
    return folder if slash and all(each.startswith(folder) for each in names) else ""
