"""What lies in a .pt2 file: its program, its weights, and what would be unpickled or run."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes
from roofline.workload.models.files.archives import UNREADABLE, Archive, archive_in
from roofline.workload.models.files.pickles import imported_by, telling_among
from roofline.workload.models.files.programs import check_path, check_program

_MOST_TEXT_BYTE = 2**29
_MOST_EXAMPLES_BYTE = 2**31

_EARLIER = "serialized_exported_program.json"
"""What the program is called in files of torch before 2.7."""

_EARLIER_PICKLES = (
    "serialized_state_dict.pt",
    "serialized_state_dict.json",
    "serialized_constants.pt",
    "serialized_constants.json",
    "serialized_example_inputs.pt",
)
_EARLIER_TEXTS = ("version", _EARLIER, "extra_files")

_STORED = re.compile(r"[A-Za-z0-9_.-]+")
_MOST_REPEATED = 2**26
"""Elements of a tensor that is stored as fewer, each of which stands for several."""


def check_program_file(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """The description of a file's program, once loading it runs no code of the file's.

    Args:
        archive: the file.
        allow_pickle: what can only be unpickled may be.

    Raises:
        FileFormatError: it is no exported program, or not whole; it holds machine code, pickles
            that were not allowed, or calls what is no operator.
    """
    path = archive.path
    _check_compiled(archive)
    for name in archive.size_bytes:
        # torch finds members whatever the case of their names, and writes none in capitals.
        if name != name.lower() and not name.startswith("extra"):
            raise FileFormatError(
                f"{path}: not opened: '{printable(name)[:80]}' in it; torch.export writes no"
                " capitals"
            )
    if any(each.endswith(_EARLIER) for each in archive.size_bytes):
        return _earlier(archive, allow_pickle=allow_pickle)
    models = archive.within("models/")
    if not models:
        raise FileFormatError(
            f"{path}: there is no exported program in it; torch.export.save writes .pt2 files"
        )
    # Of anything in this folder torch takes the name without its last five characters.
    if models != ("models/model.json",):
        names = ", ".join(printable(each[7:].removesuffix(".json"))[:60] for each in models[:5])
        raise FileFormatError(
            f"{path}: it holds programs called {names}; save the one that is meant alone"
        )
    if not archive.folder:
        raise FileFormatError(f"{path}: not all of it lies in one folder, as torch writes it")
    program = check_program(path, archive.read(models[0], max_bytes=_MOST_TEXT_BYTE))
    for kind in ("weights", "constants"):
        _check_payload(archive, kind, allow_pickle=allow_pickle)
    examples = "data/sample_inputs/model.pt"
    if examples in archive and not allow_pickle:
        _check_plain(archive, examples)
    return program


def _earlier(archive: Archive, *, allow_pickle: bool) -> Mapping[str, Any]:
    """The program of a file as torch wrote it before 2.7, in which nothing else lies.

    torch looks for what it writes now first: what is here would not be what it opens.
    """
    known = (*_EARLIER_TEXTS, *_EARLIER_PICKLES)
    for name in archive.size_bytes:
        if archive.folder or name.partition("/")[0] not in known:
            raise FileFormatError(
                f"{archive.path}: not opened: '{printable(name)[:80]}' lies beside a program as"
                " torch before 2.7 wrote it, which wrote no such thing"
            )
    program = check_program(archive.path, archive.read(_EARLIER, max_bytes=_MOST_TEXT_BYTE))
    for name in _EARLIER_PICKLES:
        if name in archive and not allow_pickle:
            _check_plain(archive, name)
    return program


def _check_compiled(archive: Archive) -> None:
    for folder, what in (
        ("data/aotinductor/", "machine code that AOTInductor compiled"),
        ("data/executorch/", "a program for ExecuTorch"),
    ):
        if archive.within(folder):
            raise FileFormatError(
                f"{archive.path}: it holds {what}, whose operators cannot be seen; give the file"
                " that torch.export.save wrote"
            )


def _check_payload(archive: Archive, kind: str, *, allow_pickle: bool) -> None:
    """Refuses weights or constants that are pickles, missing, or larger than what is there."""
    path = archive.path
    earlier = f"data/{kind}/model.pt"
    if earlier in archive:
        if not allow_pickle:
            _check_plain(archive, earlier)
        return
    name = f"data/{kind}/model_{kind}_config.json"
    for known, entry in _entries(archive, name):
        file = entry.get("path_name")
        where = f"data/{kind}/{file}"
        shown = printable(known)[:60]
        check_path(path, known)
        if not isinstance(file, str) or not _STORED.fullmatch(file) or where not in archive:
            raise FileFormatError(f"{path}: the tensor '{shown}' is missing in it")
        if entry.get("use_pickle") or file.startswith(("custom_obj", "opaque_obj")):
            if not allow_pickle:
                _refuse_pickle(archive, where, f"'{shown}' is pickled")
            continue
        _check_tensor(path, shown, entry, archive.size_bytes[where])


def _entries(archive: Archive, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        entries = json.loads(archive.read(name, max_bytes=_MOST_TEXT_BYTE))["config"]
        for known, entry in entries.items():
            if not isinstance(entry, dict):
                raise TypeError
            yield known, entry
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FileFormatError(f"{archive.path}: '{name}' in it is damaged") from None


def _check_tensor(path: Path, name: str, entry: Mapping[str, Any], size_bytes: int) -> None:
    """Where nothing is stored, torch makes as many zeros as are asked for."""
    try:
        meta = entry["tensor_meta"]
        sizes = [int(each["as_int"]) for each in meta["sizes"]]
        device = str(meta["device"]["type"])
    except (TypeError, KeyError, ValueError):
        raise FileFormatError(f"{path}: what it says of the tensor '{name}' is damaged") from None
    elements = math.prod(sizes)
    if min(sizes, default=0) < 0 or (elements and not size_bytes):
        raise FileFormatError(
            f"{path}: the tensor '{name}' has the shape {tuple(sizes)} and no values in the file"
        )
    # torch copies what is repeated.
    if elements > max(size_bytes, _MOST_REPEATED):
        raise FileFormatError(
            f"{path}: the tensor '{name}' has the shape {tuple(sizes)} and"
            f" {format_bytes(size_bytes)} of values in the file"
        )
    if device not in ("cpu", "meta"):
        raise FileFormatError(
            f"{path}: it was exported on '{printable(device)}', which its operators name; export"
            " the model on the CPU"
        )


def _check_plain(archive: Archive, name: str) -> None:
    """Refuses what torch cannot load without running a pickle: it would then run it."""
    content = archive.read(name, max_bytes=_MOST_EXAMPLES_BYTE)
    if not content:
        return
    stream = io.BytesIO(content)
    if content.startswith(b"PK"):
        archive_in(archive.path, stream)
        stream.seek(0)
    try:
        torch.load(stream, weights_only=True, map_location="meta")
    except Exception:
        _refuse_pickle(archive, name, f"'{name}' is a pickle")


def _refuse_pickle(archive: Archive, name: str, what: str) -> None:
    content = archive.read(name, max_bytes=_MOST_EXAMPLES_BYTE)
    told = telling_among(imported_by(_pickled(content)))
    imports = f" that imports {printable(told)[:60]}" if told else ""
    raise FileFormatError(
        f"{archive.path}: {what}{imports}, and unpickling runs what a file says; add"
        " --allow-pickle if you trust it"
    )


def _pickled(content: bytes) -> bytes:
    """The pickle itself, out of the zip that torch puts it into."""
    if not content.startswith(b"PK"):
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            name = next(each for each in opened.namelist() if each.endswith("data.pkl"))
            return opened.read(name)
    except (StopIteration, *UNREADABLE):
        return b""
