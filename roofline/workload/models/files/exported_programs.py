"""Models out of .pt2 files, as torch.export.save writes them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.dtypes import dtype
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import archive_in
from roofline.workload.models.files.pickled import TRUSTED
from roofline.workload.models.files.program_files import check_program_file
from roofline.workload.models.files.programs import output_types
from roofline.workload.models.files.quiet import reading
from roofline.workload.models.libraries.availability import library_or_reason


def exported_program_source(path: Path, *, allow_pickle: bool) -> Source:
    """The model in a .pt2 file, and the inputs that it was exported with.

    Args:
        path: the file, a zip.
        allow_pickle: what can only be unpickled may be.

    Raises:
        FileFormatError: it is no exported program, or nothing that may be opened.
    """
    archive = archive_in(path)
    program = check_program_file(archive, allow_pickle=allow_pickle)
    _make_known(path, program)
    with reading(path, "torch.export"):
        exported = torch.export.load(path)
        module = _module(exported)
    inputs, notes = _inputs(path.name, exported)
    return Source(
        name=str(path),
        module=module,
        default_inputs=inputs,
        input_notes=notes,
        notes=(f"{path.name}: {TRUSTED}",) if allow_pickle else (),
    )


def _module(exported: torch.export.ExportedProgram) -> torch.nn.Module:
    """The program as modules within each other where it tells them, else all of it in one."""
    try:
        return torch.export.unflatten(exported)
    # It refuses programs that share modules or change what they were given.
    except Exception:
        pass
    # Shapes would be checked by code that the file brings.
    has_guards = "check_guards" in inspect.signature(exported.module).parameters
    return exported.module(**({"check_guards": False} if has_guards else {}))


def _make_known(path: Path, program: Mapping[str, Any]) -> None:
    """Has the library imported whose outputs the program gives: torch asks for them by name."""
    names = output_types(program)
    if any(each.startswith("transformers.") for each in names):
        library, reason = library_or_reason("transformers")
        if library is None:
            raise FileFormatError(
                f"{path}: it gives {names[0]}, and transformers is not available: {reason}"
            )
        importlib.import_module("transformers.modeling_outputs")


def _inputs(
    name: str, exported: torch.export.ExportedProgram
) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """The inputs that it was exported with; none where they are not tensors alone."""
    examples = exported.example_inputs
    if not isinstance(examples, tuple) or len(examples) != 2:
        return (), ()
    positional, named = examples
    if not isinstance(positional, tuple) or not isinstance(named, dict):
        return (), ()
    given = [*(("", each) for each in positional), *named.items()]
    if not given or not all(isinstance(each, torch.Tensor) for _, each in given):
        return (), ()
    requests = tuple(
        InputRequest(
            name=key,
            shape=tuple(each.shape),
            dtype=None
            if each.dtype == torch.float32
            else dtype(str(each.dtype).removeprefix("torch.")),
        )
        for key, each in given
    )
    return requests, (f"{name} is run on inputs of the shapes that it was exported with",)
