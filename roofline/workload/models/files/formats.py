"""File formats by suffix and first bytes, and model names with weights; imports no torch."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Self

from roofline.core.text import printable
from roofline.errors import FileFormatError, ModelError, argument, did_you_mean


class StoredModel(str):
    """Name of a model with a file of weights, accepted wherever a model name is.

    It is a `str`, so it can be used in results, messages and other processes.

    Args:
        name: a file (``"model.pt2"``, ``"model.pt"``, ``"model.onnx"``), or with ``weights`` a
            factory (``"file.py:Model"``).
        weights: file with a ``state_dict``.
        allow_pickle: allow unpickling, which runs code in the file.
    """

    weights: Path | None
    allow_pickle: bool

    def __new__(
        cls, name: str, *, weights: str | Path | None = None, allow_pickle: bool = False
    ) -> Self:
        made = super().__new__(cls, name)
        made.weights = Path(weights) if weights is not None else None
        made.allow_pickle = allow_pickle
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        return (str(self),), {"weights": self.weights, "allow_pickle": self.allow_pickle}


_HEAD_BYTE = 1024
_WEB_PAGE = "a web page (the download failed)"

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as of Keras"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"GGUF", "a GGUF file, weights for llama.cpp"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ", "an xz file"),
    (0, b"(\xb5/\xfd", "a zstd file"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a Windows program"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"%PDF", "a PDF document"),
    (0, b"#!", "a script"),
    (0, b"version https://git-lfs", "a Git LFS pointer (fetch the file with git lfs pull)"),
    *((0, each, _WEB_PAGE) for each in (b"<!DOCTYPE", b"<!doctype", b"<html")),
)

ZIP = "zip"
PICKLE = "pickle"
UNKNOWN = ""


def file_kind(path: Path) -> str:
    """Return the kind of a file by its first bytes; raises for missing and foreign files."""
    head = _head(path)
    if not head:
        raise FileFormatError(f"{path}: the file is empty")
    if not head.strip(b"\0"):
        raise FileFormatError(f"{path}: begins with zeros only: incompletely written")
    if head.startswith(b"PK\x03\x04"):
        return ZIP
    for offset, signature, what in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            raise FileFormatError(f"{path}: {what}, not a supported model file; {READ}")
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return PICKLE
    return UNKNOWN


READ = "supported: .pt2, TorchScript .pt and .onnx files"


def _head(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"{path}: is a folder; name the model file in it")
        if not stat.S_ISREG(mode):
            # A pipe would block.
            raise ModelError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            return file.read(_HEAD_BYTE)
    except FileNotFoundError:
        near = did_you_mean(path.name, (each.name for each in path.parent.glob(f"*{path.suffix}")))
        raise ModelError(f"{path}: no such file{near}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        # A name with a NUL.
        raise ModelError(f"'{printable(str(path))}': cannot be read: {error}") from None


PROGRAM = (".pt2",)
TORCH = (".pt", ".pth", ".ts", ".torchscript", ".jit", ".bin", ".ckpt")
ONNX = (".onnx",)

SUFFIXES = (*PROGRAM, *TORCH[:2], *ONNX)
"""Suffixes in messages and completion."""

_FOREIGN = {
    ".safetensors": "weights without a model; name a model factory too: file.py:Model and"
    " {weights}",
    ".gguf": "weights for llama.cpp without a model",
    ".h5": "a Keras model; export it as .onnx",
    ".keras": "a Keras model; export it as .onnx",
    ".pb": "a TensorFlow graph; export it as .onnx",
    ".tflite": "a TensorFlow Lite model; export it as .onnx",
    ".mlmodel": "a Core ML model; export the original model as .pt2 or .onnx",
    ".mlpackage": "a Core ML model; export the original model as .pt2 or .onnx",
    ".engine": "a TensorRT engine, compiled for one GPU; use the original .onnx",
    ".trt": "a TensorRT engine, compiled for one GPU; use the original .onnx",
    ".pte": "an ExecuTorch program; use the original .pt2",
    ".ort": "a model in ONNX Runtime's own format; use the original .onnx",
    ".xml": "not a supported model file; for OpenVINO use the original .onnx",
    ".npz": "arrays without a model",
    ".pkl": "a pickle; if you trust it, rename it to .pt and add {allow_pickle}",
}


def is_model_file(name: str) -> bool:
    """Return whether a model name is a model file."""
    suffix = Path(name).suffix.lower()
    if suffix in (*PROGRAM, *TORCH, *ONNX):
        return True
    return suffix in _FOREIGN and (Path(name).exists() or "/" in name)


def check_foreign(path: Path) -> None:
    """Reject files of other programs by their suffix."""
    what = _FOREIGN.get(path.suffix.lower())
    if what is not None:
        what = what.format(weights=argument("weights"), allow_pickle=argument("allow_pickle", True))
        raise FileFormatError(f"{path}: {what} ({READ})")
