"""Models out of TorchScript files, as torch.jit.save writes them."""

from __future__ import annotations

import re
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.text import printable
from roofline.workload.models.building import Source
from roofline.workload.models.files.inspection import Archive
from roofline.workload.models.files.quiet import reading

_JIT: Any = torch.jit
_MOST_CODE_BYTE = 2**27
_FILE_CALL = re.compile(r"\b(?:torch|ops\.aten)\.(from_file|save|load)\b")
_FOREIGN_CALL = re.compile(r"\bops\.(?!aten\.|prim\.|quantized\.|torchvision\.|prepacked\.)(\w+)")


def is_torchscript(archive: Archive) -> bool:
    """Whether a zip that torch wrote holds code."""
    return bool(archive.within("code/"))


def torchscript_source(archive: Archive) -> Source:
    """The model in a TorchScript file.

    Its pickles know no other classes than its own, and its code no other functions than torch's
    operators; those that open files are refused.

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
    for name in archive.within("code/"):
        if not name.endswith(".py"):
            continue
        text = archive.read(name, most_byte=_MOST_CODE_BYTE).decode("utf-8", "replace")
        if found := _FILE_CALL.search(text):
            raise FileFormatError(
                f"{path}: not opened: its code calls '{found[1]}', which opens files"
            )
        if found := _FOREIGN_CALL.search(text):
            known = printable(found[1])
            if not hasattr(torch.ops, known) or not dir(getattr(torch.ops, known)):
                raise FileFormatError(
                    f"{path}: its code calls operators of '{known}', which are not loaded here"
                )
