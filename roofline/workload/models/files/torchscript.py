"""Models out of TorchScript files, as torch.jit.save writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import Archive
from roofline.workload.models.files.quiet import reading

_JIT: Any = torch.jit
_MOST_CODE_BYTE = 2**27

_TEXTS = re.compile(
    r"(#[^\n]*)"
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"""(?:\\.|[^\\])*?"""'
    r"|'(?:\\.|[^'\\\n])*'"
    r'|"(?:\\.|[^"\\\n])*"',
    re.DOTALL,
)
"""Texts as TorchScript reads them, and comments, in which quotes begin nothing."""

_OPENING = re.compile(r"\b(from_file|save|read_file|write_file|load_library|rpc_\w+)\b")
"""Functions that open files or speak to other machines, by whatever way they are named."""

_CALLED = re.compile(r"(?<![.\w])ops\.(\w+)\.(\w+)")
_OWN = ("aten", "prim", "prims", "quantized", "prepacked", "mkldnn", "mkldnn_prepacked", "sparse")
_CLASS = re.compile(r"__torch__[.\n]torch[.\n]classes[.\n](\w+)")
_KNOWN_CLASSES = ("quantized", "rnn", "sparse", "xnnpack", "mkldnn", "ao")
_PICKLES = ("data.pkl", "constants.pkl")


def is_torchscript(archive: Archive) -> bool:
    """Whether a zip that torch wrote holds code."""
    return bool(archive.within("code/"))


def torchscript_source(archive: Archive) -> Source:
    """The model in a TorchScript file.

    Its pickles know no other classes than its own, and its code no other functions than torch's
    operators. Some of it runs while it is read, so that it is looked through before.

    Args:
        archive: the file.

    Raises:
        FileFormatError: it is damaged, or its code opens files.
    """
    path = archive.path
    _check_code(archive)
    with reading(path, "torch.jit"):
        script: Any = torch.jit.load(str(path), map_location="cpu")
    return Source(name=str(path), module=Scripted(script))


class Scripted(torch.nn.Module):
    """A TorchScript module that runs as it is written: each pass calls the same operators."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.script = script
        self.takes = tuple(each.name for each in script.forward.schema.arguments[1:])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it, without the compiler that rewrites it after the first passes."""
        with _JIT.optimized_execution(False):
            return self.script(*args, **kwargs)


def _check_code(archive: Archive) -> None:
    path = archive.path
    for text in _codes(archive):
        if found := _OPENING.search(text):
            raise FileFormatError(
                f"{path}: not opened: its code calls '{found[1]}', which opens files"
            )
        for found in _CALLED.finditer(text):
            _check_operator(archive, found[1], found[2])
        _check_classes(archive, text)
    for name in archive.size_byte:
        if name.lower() in _PICKLES:
            content = archive.read(name, most_byte=_MOST_CODE_BYTE)
            _check_classes(archive, content.decode("latin-1"))


def _codes(archive: Archive) -> Iterator[str]:
    """The code of a file without texts, which may say anything."""
    for name in archive.size_byte:
        # torch finds members whatever the case of their names.
        if name.lower().startswith("code/") and name.lower().endswith(".py"):
            text = archive.read(name, most_byte=_MOST_CODE_BYTE).decode("utf-8", "replace")
            yield _TEXTS.sub(lambda found: found[1] or "''", text)


def _check_classes(archive: Archive, text: str) -> None:
    """Refuses classes of libraries that are no part of models, such as those that connect."""
    for found in _CLASS.finditer(text):
        if found[1] not in _KNOWN_CLASSES:
            raise FileFormatError(
                f"{archive.path}: not opened: it makes what is of '{printable(found[1])[:60]}',"
                " which is no part of a model"
            )


def _check_operator(archive: Archive, namespace: str, name: str) -> None:
    """Refuses operators that are not loaded: torch would say so in many lines."""
    if namespace in _OWN or hasattr(getattr(torch.ops, namespace), name):
        return
    raise FileFormatError(
        f"{archive.path}: its code calls operators of '{printable(namespace)}', which are not"
        " loaded here; import the package that brings them, from Python"
    )
