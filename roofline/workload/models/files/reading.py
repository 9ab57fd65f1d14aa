"""A model out of a file: looked into first, then opened by what it is."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from roofline.core.dtypes import dtype
from roofline.core.progress import suppress_output
from roofline.core.text import printable
from roofline.core.units import format_shape
from roofline.errors import (
    FileFormatError,
    InputError,
    ModelError,
    RooflineError,
    argument,
    did_you_mean,
    error_text,
)
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import Archive, open_archive
from roofline.workload.models.files.formats import (
    ONNX,
    PICKLE,
    PROGRAM,
    READ,
    ZIP,
    StoredModel,
    check_foreign,
    file_kind,
    is_model_file,
)
from roofline.workload.models.files.programs import check_program_file, output_types, refused_import
from roofline.workload.models.libraries.availability import library_or_reason

_MAX_MESSAGE = 200


@contextlib.contextmanager
def _reading(path: Path, how: str) -> Iterator[None]:
    """While torch reads `path` by `how`: silent, and what it raises is one line about the file."""
    try:
        with suppress_output(), torch.random.fork_rng(devices=[]):
            yield
    except RooflineError:
        raise
    # What is damaged may fail anywhere in torch, and with anything.
    except Exception as error:
        # What it points to was logged, and is not shown.
        said = printable(error_text(error)).partition(" Please check the warnings above")[0]
        said = said if len(said) <= _MAX_MESSAGE else f"{said[:_MAX_MESSAGE]} …"
        raise FileFormatError(
            f"{path}: {how} cannot read it: {type(error).__name__}: {said}"
        ) from error


UNPICKLED = "it was unpickled (--allow-pickle), which runs whatever code is in a file"
"""What results say of a file that was trusted."""


# -- TorchScript -----------------------------------------------------------------------------------

_JIT: Any = torch.jit
_MAX_CODE_BYTES = 2**27

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
_TORCH_NAMESPACES = (
    "aten",
    "prim",
    "prims",
    "quantized",
    "prepacked",
    "mkldnn",
    "mkldnn_prepacked",
    "sparse",
)
_CLASS = re.compile(r"__torch__[.\n]torch[.\n]classes[.\n](\w+)")
_KNOWN_CLASSES = ("quantized", "rnn", "sparse", "xnnpack", "mkldnn", "ao")
_PICKLES = ("data.pkl", "constants.pkl")


def _torchscript(archive: Archive) -> Source:
    """The model in a TorchScript file, whose code is looked through: some runs while it is read."""
    path = archive.path
    for name in archive.size_bytes:
        # torch finds members whatever the case of their names.
        is_code = name.lower().startswith("code/") and name.lower().endswith(".py")
        if is_code or name.lower() in _PICKLES:
            content = archive.read(name, max_bytes=_MAX_CODE_BYTES)
            _check_code(path, content.decode("utf-8", "replace"), is_code=is_code)
    with _reading(path, "torch.jit"):
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
        if namespace not in _TORCH_NAMESPACES and not hasattr(getattr(torch.ops, namespace), name):
            # torch would say so in many lines.
            raise FileFormatError(
                f"{path}: its code calls operators of '{printable(namespace)}', which are not"
                " loaded here; import the package that brings them, from Python"
            )


def _exported(path: Path, *, allow_pickle: bool) -> Source:
    """The model in a .pt2 file, and the inputs that it was exported with."""
    archive = open_archive(path)
    types = output_types(check_program_file(archive, allow_pickle=allow_pickle))
    if any(each.startswith("transformers.") for each in types):
        # torch asks for the library's types by name.
        library, reason = library_or_reason("transformers")
        if library is None:
            raise FileFormatError(
                f"{path}: it gives {types[0]}, and transformers is not available: {reason}"
            )
        importlib.import_module("transformers.modeling_outputs")
    with _reading(path, "torch.export"):
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
        notes=(f"{path.name}: {UNPICKLED}",) if allow_pickle else (),
    )


def _inputs(
    name: str, exported: torch.export.ExportedProgram
) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """The inputs that it was exported with; none where they are not tensors alone."""
    examples: Any = exported.example_inputs
    if not isinstance(examples, tuple) or [type(each) for each in examples] != [tuple, dict]:
        return (), ()
    given = [*(("", each) for each in examples[0]), *examples[1].items()]
    if not given or not all(isinstance(each, torch.Tensor) for _, each in given):
        return (), ()
    kinds = [str(each.dtype).removeprefix("torch.") for _, each in given]
    requests = tuple(
        InputRequest(
            name=key, shape=tuple(each.shape), dtype=None if kind == "float32" else dtype(kind)
        )
        for (key, each), kind in zip(given, kinds, strict=True)
    )
    return requests, (f"{name} is run on inputs of the shapes that it was exported with",)


# -- what torch.save wrote: unpickled only where the user says so ----------------------------------


def _load_saved(path: Path, *, allow_pickle: bool) -> Any:
    """What torch.save wrote into a file; what only running its code would tell, where allowed."""
    is_zip = file_kind(path) == ZIP
    if is_zip and "data.pkl" not in open_archive(path):
        raise FileFormatError(
            f"{path}: a zip, but nothing that torch wrote: there is no 'data.pkl' in it"
        )
    try:
        with _reading(path, "torch.load"):
            return torch.load(path, weights_only=True, map_location="cpu", mmap=is_zip)
    except FileFormatError as error:
        if not allow_pickle and "Weights only load failed" in str(error.__cause__):
            raise FileFormatError(
                f"{path}: a pickle{refused_import(error.__cause__)}, and unpickling runs what a"
                f" file says; add {argument('allow_pickle', True)} if you trust it, or save it with"
                " torch.export.save, or its state_dict()"
            ) from None
        if not allow_pickle:
            raise
    with _reading(path, "torch.load"):
        return torch.load(path, weights_only=False, map_location="cpu")


def _pickled(path: Path, *, allow_pickle: bool) -> Source:
    """The module that `torch.save` pickled into a file."""
    found = _load_saved(path, allow_pickle=allow_pickle)
    if isinstance(found, torch.nn.Module):
        return Source(name=str(path), module=found, notes=(f"{path.name}: {UNPICKLED}",))
    if isinstance(found, Mapping):
        raise ModelError(
            f"{path}: it holds weights and no model; give what makes the model (file.py:Model),"
            f" and {argument('weights', path.name)}"
        )
    raise ModelError(f"{path}: it holds {_type_name(found)}, not a torch.nn.Module")


def _weights_in(path: Path, *, allow_pickle: bool) -> Mapping[str, torch.Tensor]:
    """Return the weights in a file; those of a checkpoint lie under the key of its model."""
    kind = file_kind(path)
    if path.suffix.lower() == ".safetensors":
        with _reading(path, "safetensors"):
            if found := load_file(path):
                return found
        raise ModelError(f"{path}: there are no weights in it")
    if kind not in (ZIP, PICKLE):
        raise FileFormatError(
            f"{path}: no weights that are read here; they are read from what torch.save wrote, and"
            " from .safetensors"
        )
    archive = open_archive(path) if kind == ZIP else None
    if archive and (archive.within("code/") or "models/model.json" in archive):
        raise ModelError(
            f"{path}: this is a whole model and not weights alone; give it as the model, without"
            f" {argument('weights')}"
        )
    found = _load_saved(path, allow_pickle=allow_pickle)
    if isinstance(found, torch.nn.Module):
        found = found.state_dict()
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not found:
        raise ModelError(f"{path}: there are no weights in it but {_type_name(found)}")
    for name, each in found.items():
        if not isinstance(name, str) or not isinstance(each, torch.Tensor):
            raise ModelError(
                f"{path}: '{printable(str(name))[:60]}' in it is {_type_name(each)}, not a tensor;"
                " save model.state_dict() alone"
            )
    return found


def _with_weights(source: Source, path: Path, weights: Mapping[str, torch.Tensor]) -> Source:
    """The model with weights from a file in it; types are changed into the model's."""
    own = source.module.state_dict()
    missing = [each for each in own if each not in weights]
    unexpected = [each for each in weights if each not in own]
    differences: list[str] = []
    if missing:
        differences.append(
            f"{len(missing)} weights of {source.name} are not in it ('{missing[0]}')"
        )
    if unexpected:
        first = printable(unexpected[0])[:80]
        differences.append(
            f"{len(unexpected)} in it are not in the model ('{first}'){did_you_mean(first, missing)}"
        )
        prefix = f"{unexpected[0].partition('.')[0]}."
        if all(each.startswith(prefix) and each.removeprefix(prefix) in own for each in unexpected):
            differences.append(f"all of them begin with '{prefix}': save the weights without it")
    if differences:
        raise ModelError(f"{path}: {'; '.join(differences)}")
    for name, each in weights.items():
        is_other = each.is_complex() != own[name].is_complex()
        if is_other or each.layout != torch.strided or each.is_quantized:
            raise ModelError(
                f"{path}: '{printable(name)[:80]}' is a tensor of another kind, not plain numbers"
            )
        if each.shape != own[name].shape:
            raise ModelError(
                f"{path}: '{name}' is {format_shape(tuple(each.shape))}, in {source.name} it is"
                f" {format_shape(tuple(own[name].shape))}"
            )
    module = source.module if source.rebuild is None else source.rebuild()
    module.load_state_dict(dict(weights))
    notes = (*source.notes, f"its weights are those in {path.name}")
    return replace(source, module=module, notes=notes, rebuild=None)


def _type_name(found: object) -> str:
    return f"a {type(found).__name__}" if found is not None else "nothing"


# -- any of them -----------------------------------------------------------------------------------


def file_source(name: str, *, allow_pickle: bool = False) -> Source:
    """Return the model in a file, with its weights, and the inputs it was exported with."""
    path = Path(name)
    check_foreign(path)
    kind = file_kind(path)
    suffix = path.suffix.lower()
    if suffix in ONNX:
        if kind:
            raise FileFormatError(f"{path}: this is a {kind} file, not an ONNX model")
        from roofline.workload.models.files.onnx_models import onnx_source

        return onnx_source(path)
    if kind == ZIP:
        archive = open_archive(path)
        if suffix in PROGRAM or archive.within("models/"):
            return _exported(path, allow_pickle=allow_pickle)
        if archive.within("code/"):
            return _torchscript(archive)
    elif suffix in PROGRAM:
        raise FileFormatError(f"{path}: not a zip, which every .pt2 file is; {READ}")
    elif kind != PICKLE:
        raise FileFormatError(f"{path}: neither a zip nor a pickle, as torch writes them; {READ}")
    return _pickled(path, allow_pickle=allow_pickle)


def stored_source(model: StoredModel, load: Callable[[str], Source]) -> Source:
    """Return the model that a name and a file of weights come to."""
    is_file = is_model_file(model)
    if model.weights is None:
        if not is_file and model.allow_pickle:
            what = f"{argument('allow_pickle', True)} has no effect"
            raise InputError(f"{what} on '{model}': it is no file")
        return file_source(model, allow_pickle=model.allow_pickle) if is_file else load(str(model))
    if is_file:
        raise InputError(
            f"{argument('weights')} {model.weights}: '{model}' brings its own; give what makes the"
            f" model, as in file.py:Model, or leave {argument('weights')} out"
        )
    weights = _weights_in(model.weights, allow_pickle=model.allow_pickle)
    return _with_weights(load(str(model)), model.weights, weights)
