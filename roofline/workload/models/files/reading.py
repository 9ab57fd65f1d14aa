"""A model out of a file: looked into first, then opened by what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError, InputError
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import printable
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import Archive, archive_in
from roofline.workload.models.files.formats import (
    ONNX,
    PICKLE,
    PROGRAM,
    READ,
    ZIP,
    StoredModel,
    check_foreign,
    is_model_file,
    kind_of,
)
from roofline.workload.models.files.pickled import (
    TRUSTED,
    pickled_source,
    reading,
    weights_in,
    with_weights,
)
from roofline.workload.models.files.programs import check_program_file, output_types
from roofline.workload.models.libraries.availability import library_or_reason

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


def torchscript_source(archive: Archive) -> Source:
    """The model in a TorchScript file.

    Its pickles know no other classes than its own, and its code no other functions than torch's
    operators. Some of it runs while it is read, so that it is looked through before.

    Raises:
        FileFormatError: it is damaged, or its code opens files.
    """
    path = archive.path
    for name in archive.size_bytes:
        # torch finds members whatever the case of their names.
        is_code = name.lower().startswith("code/") and name.lower().endswith(".py")
        if is_code or name.lower() in _PICKLES:
            content = archive.read(name, max_bytes=_MOST_CODE_BYTE)
            _check_code(path, content.decode("utf-8", "replace"), is_code=is_code)
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


def _check_code(path: Path, text: str, *, is_code: bool) -> None:
    """Refuses what opens files or calls other machines, and operators that are not loaded."""
    if is_code:
        # Texts may say anything.
        text = _TEXTS.sub(lambda found: found[1] or "''", text)
    for found in _CLASS.finditer(text):
        if found[1] not in _KNOWN_CLASSES:
            raise FileFormatError(
                f"{path}: not opened: it makes what is of '{printable(found[1])[:60]}', which is no"
                " part of a model"
            )
    if is_code and (found := _OPENING.search(text)):
        raise FileFormatError(f"{path}: not opened: its code calls '{found[1]}', which opens files")
    for namespace, name in _CALLED.findall(text) if is_code else ():
        if namespace not in _OWN and not hasattr(getattr(torch.ops, namespace), name):
            # torch would say so in many lines.
            raise FileFormatError(
                f"{path}: its code calls operators of '{printable(namespace)}', which are not"
                " loaded here; import the package that brings them, from Python"
            )


def exported_program_source(path: Path, *, allow_pickle: bool) -> Source:
    """The model in a .pt2 file, and the inputs that it was exported with.

    Raises:
        FileFormatError: it is no exported program, or nothing that may be opened.
    """
    archive = archive_in(path)
    types = output_types(check_program_file(archive, allow_pickle=allow_pickle))
    if any(each.startswith("transformers.") for each in types):
        # torch asks for the library's types by name.
        library, reason = library_or_reason("transformers")
        if library is None:
            raise FileFormatError(
                f"{path}: it gives {types[0]}, and transformers is not available: {reason}"
            )
        importlib.import_module("transformers.modeling_outputs")
    with reading(path, "torch.export"):
        exported = torch.export.load(path)
        try:
            module = torch.export.unflatten(exported)
        # It refuses programs that share modules or change what they were given.
        except Exception:
            # Shapes would be checked by code that the file brings.
            has_guards = "check_guards" in inspect.signature(exported.module).parameters
            module = exported.module(**({"check_guards": False} if has_guards else {}))
    inputs, notes = _inputs(path.name, exported)
    return Source(
        name=str(path),
        module=module,
        default_inputs=inputs,
        input_notes=notes,
        notes=(f"{path.name}: {TRUSTED}",) if allow_pickle else (),
    )


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


def file_source(name: str, *, allow_pickle: bool = False) -> Source:
    """The model in a file, with its weights, and the inputs that it was exported with.

    Args:
        name: a path that ends in ``.pt2``, ``.pt``, ``.pth`` or ``.onnx``.
        allow_pickle: what can only be unpickled may be.

    Raises:
        ModelError: no such file, or none with a model in it.
        FileFormatError: it is cut short, damaged, of another program, or would run code.
    """
    path = Path(name)
    check_foreign(path)
    kind = kind_of(path)
    suffix = path.suffix.lower()
    if suffix in ONNX:
        if kind:
            raise FileFormatError(f"{path}: this is a {kind} file, not an ONNX model")
        from roofline.workload.models.files.onnx_models import onnx_source

        return onnx_source(path)
    if kind == ZIP:
        archive = archive_in(path)
        if suffix in PROGRAM or archive.within("models/"):
            return exported_program_source(path, allow_pickle=allow_pickle)
        if archive.within("code/"):
            return torchscript_source(archive)
    elif suffix in PROGRAM:
        raise FileFormatError(f"{path}: not a zip, which every .pt2 file is; {READ}")
    elif kind != PICKLE:
        raise FileFormatError(f"{path}: neither a zip nor a pickle, as torch writes them; {READ}")
    return pickled_source(path, allow_pickle=allow_pickle)


def stored_source(model: StoredModel, load: Callable[[str], Source]) -> Source:
    """The model that a name and a file of weights come to.

    Raises:
        InputError: weights beside a file that has its own, or nothing that a pickle could be in.
        ModelError, FileFormatError: as `file_source`, and where weights do not fit the model.
    """
    is_file = is_model_file(model)
    if model.weights is None:
        if not is_file and model.allow_pickle:
            raise InputError(f"--allow-pickle has no effect on '{model}': it is no file")
        return file_source(model, allow_pickle=model.allow_pickle) if is_file else load(str(model))
    if is_file:
        raise InputError(
            f"--weights {model.weights}: '{model}' brings its own; give what makes the model,"
            " as in file.py:Model, or leave --weights out"
        )
    weights = weights_in(model.weights, allow_pickle=model.allow_pickle)
    return with_weights(load(str(model)), model.weights, weights)
