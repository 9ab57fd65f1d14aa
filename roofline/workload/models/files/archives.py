"""Zip archives of torch: their directory, if all readers would read it in the same way.

No code of a file is run. Archives that Python and torch could read differently are rejected: Python
checks the file, and torch opens it.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from roofline.core.text import printable
from roofline.core.units import format_bytes
from roofline.errors import FileFormatError

_MAX_MEMBERS = 1_000_000
_MAX_UNPACKED_BYTES = 2**30
"""Limit for the unpacked size of compressed members. torch compresses nothing."""

_MAX_COMPRESSION_RATIO = 100

_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    # Names that are not UTF-8, and versions unknown to Python.
    *(ValueError, NotImplementedError),
)
"""Exceptions of Python's reader for truncated or damaged archives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A zip archive with a verified directory.

    ``size_bytes`` maps member names, without their common ``folder``, to sizes.
    """

    path: Path
    folder: str
    size_bytes: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.size_bytes

    def within(self, folder: str) -> tuple[str, ...]:
        """Return the names of members in a folder, ``"data/weights/"``."""
        return tuple(each for each in self.size_bytes if each.startswith(folder))

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """Return a member; FileFormatError if it is missing, damaged or too large."""
        size_bytes = self.size_bytes.get(name)
        if size_bytes is None:
            raise FileFormatError(f"{self.path}: missing member '{name}'")
        if size_bytes > max_bytes:
            raise FileFormatError(
                f"{self.path}: member '{name}' is too large: {format_bytes(size_bytes)}, at most"
                f" {format_bytes(max_bytes)}"
            )
        try:
            with zipfile.ZipFile(self.path) as opened:
                return opened.read(f"{self.folder}{name}")
        except _UNREADABLE as error:
            raise FileFormatError(
                f"{self.path}: member '{name}' is damaged: {printable(str(error))}"
            ) from None


def open_archive(path: Path, source: IO[bytes] | None = None) -> Archive:
    """Return a verified archive; FileFormatError if its directory is inconsistent."""
    try:
        with zipfile.ZipFile(source or path) as opened:
            members = opened.infolist()
            reason = next(_problems(opened, members), "")
    except _UNREADABLE as error:
        reason = (
            "the file is truncated or damaged: no valid zip directory at its end"
            f" ({printable(str(error))})"
        )
        members = []
    if reason:
        raise FileFormatError(f"{path}: {reason}")
    first, slash, _ = members[0].filename.partition("/")
    folder = first + slash
    if not slash or not all(each.filename.startswith(folder) for each in members):
        folder = ""
    return Archive(
        path=path,
        folder=folder,
        size_bytes={each.filename.removeprefix(folder): each.file_size for each in members},
    )


_OUTSIDE_PATH = re.compile(r"^/|\\|^[^/]*:|\0|(^|/)\.\.(/|$)")


def _problems(opened: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> Iterator[str]:
    if not members:
        yield "an empty zip"
        return
    if len(members) > _MAX_MEMBERS:
        yield f"too many zip members for a model: {len(members):,}"
    end_byte = _end_of_members(opened, len(members))
    if end_byte is None or min(each.header_offset for each in members):
        yield ("the file is truncated, or has data before or after the zip; save the model again")
    seen: set[str] = set()
    packed_bytes = reached_bytes = 0
    for each in sorted(members, key=lambda member: member.header_offset):
        # torch ignores the case of names.
        name = each.filename.lower()
        is_stored = each.compress_type == zipfile.ZIP_STORED
        packed_bytes += 0 if is_stored else each.file_size
        is_bomb = each.file_size > _MAX_COMPRESSION_RATIO * max(each.compress_size, 1024)
        unpacked = f"{format_bytes(each.compress_size)} to {format_bytes(each.file_size)}"
        for is_wrong, what in (
            (_OUTSIDE_PATH.search(each.orig_filename), "has a path outside of the zip"),
            (name in seen, "is a duplicate"),
            (stat.S_ISLNK(each.external_attr >> 16), "is a link"),
            (each.flag_bits & 0x1, "is encrypted"),
            (each.header_offset < reached_bytes, "overlaps another one"),
            (is_stored and each.file_size != each.compress_size, "has two sizes"),
            (
                not is_stored and each.compress_type != zipfile.ZIP_DEFLATED,
                "has an unsupported compression",
            ),
            (
                not is_stored and (is_bomb or packed_bytes > _MAX_UNPACKED_BYTES),
                f"unpacks from {unpacked}",
            ),
        ):
            if is_wrong:
                yield f"not opened: member '{printable(each.filename)[:80]}' {what}"
        seen.add(name)
        reached_bytes = each.header_offset + each.compress_size
    if end_byte is not None and reached_bytes > end_byte:
        yield "the file is truncated: a member ends after its end"


_END = struct.Struct("<4s4H2LH")
_LONG_END = struct.Struct("<4sQ2H2L4Q")
_LONG_PLACE = struct.Struct("<4sLQL")


def _end_of_members(opened: zipfile.ZipFile, count: int) -> int | None:
    """Return the offset of the zip directory; None if it contradicts the end record.

    Python locates the directory from the end, torch by its recorded offset: these must agree.
    """
    file = opened.fp
    assert file is not None
    size_bytes = file.seek(0, 2)
    file.seek(max(0, size_bytes - _LONG_END.size - _LONG_PLACE.size - _END.size))
    tail = file.read()
    mark, *_, found, list_bytes, place, comment_byte = _END.unpack(tail[-_END.size :])
    end = size_bytes - _END.size
    long_place = tail[-_END.size - _LONG_PLACE.size : -_END.size]
    if long_place.startswith(b"PK\6\7"):
        _, _, end_place, _ = _LONG_PLACE.unpack(long_place)
        end -= _LONG_PLACE.size + _LONG_END.size
        long_mark, *_, found, list_bytes, place = _LONG_END.unpack(tail[: _LONG_END.size])
        if long_mark != b"PK\6\6" or end_place != end:
            return None
    is_plain = mark == b"PK\5\6" and not comment_byte and found == count
    return place if is_plain and place + list_bytes == end else None
