"""Files by suffix and first bytes, and names of models that carry weights; imports no torch."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Self

from roofline.core.text import printable
from roofline.errors import FileFormatError, ModelError


class StoredModel(str):
    """The name of a model, wherever one is taken, with the file of its weights.

    It is a text, so that it goes where names go: into results, messages and other processes.

    Args:
        name: a file (``"model.pt2"``, ``"model.pt"``, ``"model.onnx"``), or with ``weights`` what
            makes the model (``"file.py:Model"``).
        weights: a file with a ``state_dict``.
        allow_pickle: whether what can only be unpickled may be; that runs what the file says.
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
_WEB_PAGE = "a web page and not the file (the download failed)"

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
    *((0, each, _WEB_PAGE) for each in (b"<!DOCTYPE", b"<!doctype", b"<html")),
)

ZIP = "zip"
PICKLE = "pickle"
UNKNOWN = ""


def file_kind(path: Path) -> str:
    """Return the kind of a file by its first bytes; refuses what is no file or no model."""
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


PROGRAM = (".pt2",)
TORCH = (".pt", ".pth", ".ts", ".torchscript", ".jit", ".bin", ".ckpt")
ONNX = (".onnx",)

SUFFIXES = (*PROGRAM, *TORCH[:2], *ONNX)
"""Those that are told and completed."""

_FOREIGN = {
    ".safetensors": "weights alone, and no model; give what makes the model, and the weights:"
    " file.py:Model --weights FILE",
    ".gguf": "weights for llama.cpp, and no model",
    ".h5": "a Keras model; export it as .onnx",
    ".keras": "a Keras model; export it as .onnx",
    ".pb": "a TensorFlow graph; export it as .onnx",
    ".tflite": "a TensorFlow Lite model; export it as .onnx",
    ".mlmodel": "a Core ML model; export the model it was made of as .pt2 or .onnx",
    ".mlpackage": "a Core ML model; export the model it was made of as .pt2 or .onnx",
    ".engine": "an engine of TensorRT, compiled for one GPU; give the .onnx that it was made of",
    ".trt": "an engine of TensorRT, compiled for one GPU; give the .onnx that it was made of",
    ".pte": "a program for ExecuTorch; give the .pt2 that it was made of",
    ".ort": "a model in ONNX Runtime's own format; give the .onnx that it was made of",
    ".xml": "no model that is read here; of OpenVINO, give the .onnx that it was made of",
    ".npz": "arrays, and no model",
    ".pkl": "a pickle; rename it to .pt and add --allow-pickle if you trust it",
}


def is_model_file(name: str) -> bool:
    """Whether a name of a model is that of a file with a model in it."""
    suffix = Path(name).suffix.lower()
    if suffix in (*PROGRAM, *TORCH, *ONNX):
        return True
    return suffix in _FOREIGN and (Path(name).exists() or "/" in name)


def check_foreign(path: Path) -> None:
    """Refuse files of other programs by their suffix."""
    what = _FOREIGN.get(path.suffix.lower())
    if what is not None:
        raise FileFormatError(f"{path}: {what} ({READ})")
