"""The zips that torch writes: their list of contents, once every reader would read it alike.

Nothing here runs what a file says. What Python and torch could understand differently is refused:
Python looks into the file, and torch opens it.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes

_MOST_MEMBERS = 1_000_000
_MOST_PACKED_BYTE = 2**30
"""What the compressed members of a zip may come to. torch compresses nothing."""

_MOST_TIMES_LARGER = 100
_ALLOWED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    # Names that are no UTF-8, and versions that Python does not know.
    *(ValueError, NotImplementedError),
)
"""What Python's reader raises of zips that are cut or damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A zip whose list of contents can be trusted.

    ``size_bytes`` has the size of every member by its name, without the ``folder`` that all of them
    lie in.
    """

    path: Path
    folder: str
    size_bytes: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.size_bytes

    def within(self, folder: str) -> tuple[str, ...]:
        """The names of the members in a folder, ``"data/weights/"``."""
        return tuple(each for each in self.size_bytes if each.startswith(folder))

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """A member, checked against its checksum.

        Raises:
            FileFormatError: it is missing, damaged or too large.
        """
        size_bytes = self.size_bytes.get(name)
        if size_bytes is None:
            raise FileFormatError(f"{self.path}: '{name}' is missing in it")
        if size_bytes > max_bytes:
            raise FileFormatError(
                f"{self.path}: '{name}' in it has {format_bytes(size_bytes)}, more than the"
                f" {format_bytes(max_bytes)} that are read"
            )
        try:
            with zipfile.ZipFile(self.path) as opened:
                return opened.read(f"{self.folder}{name}")
        except UNREADABLE as error:
            raise FileFormatError(
                f"{self.path}: '{name}' in it is damaged: {printable(str(error))}"
            ) from None


def archive_in(path: Path, source: IO[bytes] | None = None) -> Archive:
    """The list of contents of a zip, once it holds together.

    Raises:
        FileFormatError: it is cut short or damaged, would unpack to far more than it has, or has
            members whose names lead out of it, that lie over each other, or that are encrypted.
    """
    try:
        with zipfile.ZipFile(source or path) as opened:
            members = opened.infolist()
            is_plain = _is_plain(opened, len(members))
            end_byte = _length(opened)
    except UNREADABLE as error:
        raise FileFormatError(
            f"{path}: the file is cut short or damaged: the list of contents at its end is"
            f" missing or wrong ({printable(str(error))})"
        ) from None
    if not members:
        raise FileFormatError(f"{path}: a zip with nothing in it")
    if len(members) > _MOST_MEMBERS:
        raise FileFormatError(f"{path}: a zip of {len(members):,} members is no model")
    if not is_plain or min(each.header_offset for each in members):
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
        size_bytes={each.filename.removeprefix(folder): each.file_size for each in members},
    )


def _length(opened: zipfile.ZipFile) -> int:
    file = opened.fp
    assert file is not None
    file.seek(0, 2)
    return file.tell()


_END = struct.Struct("<4s4H2LH")
_LONG_END = struct.Struct("<4sQ2H2L4Q")
_LONG_PLACE = struct.Struct("<4sLQL")


def _is_plain(opened: zipfile.ZipFile, count: int) -> bool:
    """Whether a zip ends with its list of contents, which lies where, and is as long, as it says.

    Python finds the list from the end, torch by what the file says of its place: a file in which
    these are two lists would be one thing to the one and another to the other.
    """
    file = opened.fp
    assert file is not None
    size_bytes = _length(opened)
    file.seek(max(0, size_bytes - _LONG_END.size - _LONG_PLACE.size - _END.size))
    tail = file.read()
    mark, *_, found, list_bytes, place, comment_byte = _END.unpack(tail[-_END.size :])
    if mark != b"PK\5\6" or comment_byte:
        return False
    end = size_bytes - _END.size
    long_place = tail[-_END.size - _LONG_PLACE.size : -_END.size]
    if long_place.startswith(b"PK\6\7"):
        _, _, end_place, _ = _LONG_PLACE.unpack(long_place)
        end -= _LONG_PLACE.size + _LONG_END.size
        long_mark, *_, found, list_bytes, place = _LONG_END.unpack(tail[: _LONG_END.size])
        if long_mark != b"PK\6\6" or end_place != end:
            return False
    return found == count and place + list_bytes == end


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
        # torch finds members whatever the case of their names.
        if name.lower() in seen:
            raise FileFormatError(f"{path}: the member '{shown}' is in it twice; not opened")
        if stat.S_ISLNK(each.external_attr >> 16):
            raise FileFormatError(f"{path}: the member '{shown}' is a link; not opened")
        if each.flag_bits & 0x1:
            raise FileFormatError(f"{path}: the member '{shown}' is encrypted; not opened")
        seen.add(name.lower())


def _check_sizes(path: Path, members: list[zipfile.ZipInfo], end_byte: int) -> None:
    packed_bytes = reached_bytes = 0
    for each in sorted(members, key=lambda member: member.header_offset):
        shown = printable(each.filename)[:80]
        if each.compress_type not in _ALLOWED:
            raise FileFormatError(f"{path}: the member '{shown}' is packed in an unknown way")
        if each.header_offset < reached_bytes:
            raise FileFormatError(f"{path}: the member '{shown}' lies over another one; not opened")
        reached_bytes = each.header_offset + each.compress_size
        if reached_bytes > end_byte:
            raise FileFormatError(f"{path}: the file is cut short: '{shown}' ends behind its end")
        if each.compress_type == zipfile.ZIP_STORED:
            if each.file_size != each.compress_size:
                raise FileFormatError(f"{path}: the member '{shown}' has two sizes; not opened")
            continue
        packed_bytes += each.file_size
        if (
            each.file_size > _MOST_TIMES_LARGER * max(each.compress_size, 1024)
            or packed_bytes > _MOST_PACKED_BYTE
        ):
            raise FileFormatError(
                f"{path}: '{shown}' would unpack from {format_bytes(each.compress_size)} to"
                f" {format_bytes(each.file_size)}; not opened"
            )


def _shared_folder(names: list[str]) -> str:
    """The folder that all of them are in, ``"archive/"``; ``""`` if there is none."""
    first, slash, _ = names[0].partition("/")
    folder = first + slash
    return folder if slash and all(each.startswith(folder) for each in names) else ""
