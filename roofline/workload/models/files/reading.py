"""Models from files: checked first, then opened by their format."""

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
from roofline.core.text import NOTE, printable
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
    """Silence torch while it reads `path` by `how`, and report errors as FileFormatError."""
    try:
        with suppress_output(), torch.random.fork_rng(devices=[]):
            yield
    except RooflineError:
        raise
    # Damaged files may fail anywhere in torch, with any exception.
    except Exception as error:
        # The warnings that it refers to are not shown.
        text = printable(error_text(error)).partition(" Please check the warnings above")[0]
        text = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]} …"
        raise FileFormatError(
            f"{path}: {how} cannot read it: {type(error).__name__}: {text}"
        ) from error


def unpickled(path: Path) -> str:
    """Return the note on a trusted file."""
    allowed = argument("allow_pickle", True)
    return f"{NOTE}{path.name}: unpickled ({allowed}), which runs code in the file"


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
"""String literals of TorchScript, and comments, in which quotes have no meaning."""

_OPENING = re.compile(r"\b(from_file|save|read_file|write_file|load_library|rpc_\w+)\b")
"""Functions that open files or connect to other machines, in any namespace."""

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
    """Return the model in a TorchScript file, after a check of its code: some runs on loading."""
    path = archive.path
    for name in archive.size_bytes:
        # torch ignores the case of names.
        is_code = name.lower().startswith("code/") and name.lower().endswith(".py")
        if is_code or name.lower() in _PICKLES:
            content = archive.read(name, max_bytes=_MAX_CODE_BYTES)
            _check_code(path, content.decode("utf-8", "replace"), is_code=is_code)
    with _reading(path, "torch.jit"):
        script: Any = torch.jit.load(str(path), map_location="cpu")
    return Source(name=str(path), module=Scripted(script))


class Scripted(torch.nn.Module):
    """A TorchScript module that runs as written: each pass calls the same operators."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.script = script
        self.takes = tuple(each.name for each in script.forward.schema.arguments[1:])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it without the profiling executor, which rewrites it after the first passes."""
        with _JIT.optimized_execution(False):
            return self.script(*args, **kwargs)


def _check_code(path: Path, text: str, *, is_code: bool) -> None:
    """Reject code that opens files or connects to other machines, and unknown operators."""
    if is_code:
        # String literals may contain anything.
        text = _TEXTS.sub(lambda found: found[1] or "''", text)
    for found in _CLASS.finditer(text):
        if found[1] not in _KNOWN_CLASSES:
            raise FileFormatError(
                f"{path}: not opened: it uses the class '{printable(found[1])[:60]}', which is not"
                " part of a model"
            )
    if is_code and (found := _OPENING.search(text)):
        raise FileFormatError(f"{path}: not opened: its code calls '{found[1]}', which opens files")
    for namespace, name in _CALLED.findall(text) if is_code else ():
        if namespace not in _TORCH_NAMESPACES and not hasattr(getattr(torch.ops, namespace), name):
            # torch's own message has many lines.
            raise FileFormatError(
                f"{path}: its code calls operators of '{printable(namespace)}', which are not"
                " loaded; import their package first, in Python"
            )


def _exported(path: Path, *, allow_pickle: bool) -> Source:
    """Return the model in a .pt2 file, with its exported inputs."""
    archive = open_archive(path)
    types = output_types(check_program_file(archive, allow_pickle=allow_pickle))
    if any(each.startswith("transformers.") for each in types):
        # torch looks up the library's types by name.
        library, reason = library_or_reason("transformers")
        if library is None:
            raise FileFormatError(
                f"{path}: it returns {types[0]}, but transformers is not available: {reason}"
            )
        importlib.import_module("transformers.modeling_outputs")
    with _reading(path, "torch.export"):
        exported = torch.export.load(path)
        try:
            module = torch.export.unflatten(exported)
        # unflatten rejects programs that share modules or change their inputs.
        except Exception:
            # Guards on shapes are code in the file.
            has_guards = "check_guards" in inspect.signature(exported.module).parameters
            module = exported.module(**({"check_guards": False} if has_guards else {}))
    inputs, notes = _inputs(path.name, exported)
    return Source(
        name=str(path),
        module=module,
        default_inputs=inputs,
        input_notes=notes,
        notes=(unpickled(path),) if allow_pickle else (),
    )


def _inputs(
    name: str, exported: torch.export.ExportedProgram
) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """Return the exported inputs; none if they are not tensors only."""
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
    return requests, (f"{NOTE}{name} runs on inputs of its exported shapes",)


# -- files of torch.save: unpickled only if the user allows it -------------------------------------


def _load_saved(path: Path, *, allow_pickle: bool) -> Any:
    """Return the object in a file of torch.save; unpickled only if allowed."""
    is_zip = file_kind(path) == ZIP
    if is_zip and "data.pkl" not in open_archive(path):
        raise FileFormatError(f"{path}: a zip, but not of torch.save: no member 'data.pkl'")
    try:
        with _reading(path, "torch.load"):
            return torch.load(path, weights_only=True, map_location="cpu", mmap=is_zip)
    except FileFormatError as error:
        if not allow_pickle and "Weights only load failed" in str(error.__cause__):
            raise FileFormatError(
                f"{path}: a pickle{refused_import(error.__cause__)}, and unpickling runs code in"
                f" the file; if you trust it, add {argument('allow_pickle', True)}; else save it"
                " with torch.export.save, or its state_dict()"
            ) from None
        if not allow_pickle:
            raise
    with _reading(path, "torch.load"):
        return torch.load(path, weights_only=False, map_location="cpu")


def _pickled(path: Path, *, allow_pickle: bool) -> Source:
    """Return the module that `torch.save` pickled into a file."""
    found = _load_saved(path, allow_pickle=allow_pickle)
    if isinstance(found, torch.nn.Module):
        return Source(name=str(path), module=found, notes=(unpickled(path),))
    if isinstance(found, Mapping):
        raise ModelError(
            f"{path}: weights without a model; name a model factory (file.py:Model), and"
            f" {argument('weights', path.name)}"
        )
    raise ModelError(f"{path}: expected a torch.nn.Module, got {_type_name(found)}")


def _weights_in(path: Path, *, allow_pickle: bool) -> Mapping[str, torch.Tensor]:
    """Return the weights in a file; in a checkpoint, those under the key of its model."""
    kind = file_kind(path)
    if path.suffix.lower() == ".safetensors":
        with _reading(path, "safetensors"):
            if found := load_file(path):
                return found
        raise ModelError(f"{path}: no weights in the file")
    if kind not in (ZIP, PICKLE):
        raise FileFormatError(
            f"{path}: not a supported weight file; supported: files of torch.save, and .safetensors"
        )
    archive = open_archive(path) if kind == ZIP else None
    if archive and (archive.within("code/") or "models/model.json" in archive):
        raise ModelError(
            f"{path}: a whole model, not weights; use it as the model, without"
            f" {argument('weights')}"
        )
    found = _load_saved(path, allow_pickle=allow_pickle)
    if isinstance(found, torch.nn.Module):
        found = found.state_dict()
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not found:
        raise ModelError(f"{path}: expected weights, got {_type_name(found)}")
    for name, each in found.items():
        if not isinstance(name, str) or not isinstance(each, torch.Tensor):
            raise ModelError(
                f"{path}: '{printable(str(name))[:60]}': expected a tensor, got {_type_name(each)};"
                " save model.state_dict() only"
            )
    return found


def _with_weights(source: Source, path: Path, weights: Mapping[str, torch.Tensor]) -> Source:
    """Return the model with weights from a file, converted to the model's types."""
    own = source.module.state_dict()
    missing = [each for each in own if each not in weights]
    unexpected = [each for each in weights if each not in own]
    differences: list[str] = []
    if missing:
        differences.append(f"{len(missing)} weights of {source.name} are missing ('{missing[0]}')")
    if unexpected:
        first = printable(unexpected[0])[:80]
        differences.append(
            f"{len(unexpected)} unknown to the model ('{first}'){did_you_mean(first, missing)}"
        )
        prefix = f"{unexpected[0].partition('.')[0]}."
        if all(each.startswith(prefix) and each.removeprefix(prefix) in own for each in unexpected):
            differences.append(f"all of these begin with '{prefix}': save the weights without it")
    if differences:
        raise ModelError(f"{path}: {'; '.join(differences)}")
    for name, each in weights.items():
        is_other = each.is_complex() != own[name].is_complex()
        if is_other or each.layout != torch.strided or each.is_quantized:
            raise ModelError(
                f"{path}: '{printable(name)[:80]}' is not a plain tensor (complex, sparse or"
                " quantized)"
            )
        if each.shape != own[name].shape:
            raise ModelError(
                f"{path}: '{name}' has shape {format_shape(tuple(each.shape))}, {source.name}"
                f" expects {format_shape(tuple(own[name].shape))}"
            )
    module = source.module if source.rebuild is None else source.rebuild()
    module.load_state_dict(dict(weights))
    notes = (*source.notes, f"{NOTE}weights from {path.name}")
    return replace(source, module=module, notes=notes, rebuild=None)


def _type_name(found: object) -> str:
    return type(found).__name__ if found is not None else "nothing"


# -- all formats -----------------------------------------------------------------------------------


def file_source(name: str, *, allow_pickle: bool = False) -> Source:
    """Return the model in a file, with its weights and exported inputs."""
    path = Path(name)
    check_foreign(path)
    kind = file_kind(path)
    suffix = path.suffix.lower()
    if suffix in ONNX:
        if kind:
            raise FileFormatError(f"{path}: a {kind} file, not an ONNX model")
        from roofline.workload.models.files.onnx_models import onnx_source

        return onnx_source(path)
    if kind == ZIP:
        archive = open_archive(path)
        if suffix in PROGRAM or archive.within("models/"):
            return _exported(path, allow_pickle=allow_pickle)
        if archive.within("code/"):
            return _torchscript(archive)
    elif suffix in PROGRAM:
        raise FileFormatError(f"{path}: not a zip, as all .pt2 files are; {READ}")
    elif kind != PICKLE:
        raise FileFormatError(f"{path}: neither a zip nor a pickle of torch; {READ}")
    return _pickled(path, allow_pickle=allow_pickle)


def stored_source(model: StoredModel, load: Callable[[str], Source]) -> Source:
    """Return the model of a name with an optional file of weights."""
    is_file = is_model_file(model)
    if model.weights is None:
        if not is_file and model.allow_pickle:
            what = f"{argument('allow_pickle', True)} has no effect"
            raise InputError(f"{what} on '{model}': not a file")
        return file_source(model, allow_pickle=model.allow_pickle) if is_file else load(str(model))
    if is_file:
        raise InputError(
            f"{argument('weights')} {model.weights}: '{model}' has its own weights; name a model"
            f" factory, such as file.py:Model, or remove {argument('weights')}"
        )
    weights = _weights_in(model.weights, allow_pickle=model.allow_pickle)
    return _with_weights(load(str(model)), model.weights, weights)
