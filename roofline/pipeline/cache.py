"""Disk cache of values that take long to compute, in the user's cache folder.

The name of a file is a digest of everything its value depends on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import pickle
import zlib
from pathlib import Path
from typing import Any, cast

from roofline.core.files import write_atomically
from roofline.errors import InputError

MAX_BYTES = {"capture": 256 * 2**20, "prediction": 16 * 2**20}
"""Size of the folder of each kind, above which the least recently used files are removed."""


def folder(kind: str) -> Path:
    """Return the folder of a kind of values."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("roofline", appauthor=False)) / f"{kind}s"


def is_off() -> bool:
    """Return True if the environment turns the cache off."""
    return bool(os.environ.get("ROOFLINE_NO_CACHE"))


def file_of(kind: str, parts: object, *, sources: tuple[str, ...]) -> Path:
    """Return the file of the value that depends on `parts` and sources; it need not exist."""
    text = repr((parts, _digest_of(sources)))
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return folder(kind) / f"{digest}.{kind}"


def read(file: Path) -> Any:
    """Return the value in a file; None if the file is missing or damaged."""
    try:
        data = file.read_bytes()
        digest, packed = data[:32], data[32:]
        if hashlib.sha256(packed).digest() != digest:
            return None
        found = _Reader(io.BytesIO(zlib.decompress(packed))).load()
    # A file may hold anything, and fail in any way.
    except Exception:
        return None
    with contextlib.suppress(OSError):
        # The least recently used files are removed first.
        os.utime(file)
    return found


def keep(file: Path, value: object) -> None:
    """Write a value; do nothing if it cannot be written."""
    content = pickle.dumps(value, protocol=5)
    try:
        _Reader(io.BytesIO(content)).load()
    except pickle.UnpicklingError:
        # It could not be read without torch.
        return
    packed = zlib.compress(content, 1)
    with contextlib.suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(file, hashlib.sha256(packed).digest() + packed, overwrite=True)
        _make_room(file.parent, file.suffix)


def _make_room(place: Path, suffix: str) -> None:
    """Remove the least recently used files above `MAX_BYTES`."""
    found = [(each.stat(), each) for each in place.glob(f"*{suffix}")]
    total = sum(state.st_size for state, _ in found)
    for state, each in sorted(found, key=lambda pair: pair[0].st_mtime_ns):
        if total <= MAX_BYTES[suffix[1:]]:
            return
        each.unlink(missing_ok=True)
        total -= state.st_size


_RECORDS = frozenset(
    (
        *("roofline.core.dtypes", "roofline.run", "roofline.machine.core_state"),
        *("roofline.workload.operators", "roofline.workload.tensors", "roofline.workload.work"),
        *("roofline.latency.prediction", "roofline.latency.samples"),
    )
)
"""Modules of the classes that values consist of, whose construction has no side effects."""


class _Reader(pickle.Unpickler):
    """Unpickler of record classes alone."""

    def find_class(self, module: str, name: str, /) -> Any:
        if module in _RECORDS and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return cast("Any", found)
        raise pickle.UnpicklingError(f"{module}.{name}")


@functools.cache
def _digest_of(sources: tuple[str, ...]) -> str:
    """Return a digest of files and folders of this package."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for part in sources:
        place = package / part
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
