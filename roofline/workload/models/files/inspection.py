"""What a file is, before anything else opens it: its kind by its first bytes."""

from __future__ import annotations

import stat
from pathlib import Path

from roofline.errors import FileFormatError, ModelError
from roofline.foundation.text import printable

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
