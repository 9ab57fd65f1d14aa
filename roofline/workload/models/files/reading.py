"""A model out of a file: looked into first, then opened by what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roofline.errors import FileFormatError, InputError
from roofline.workload.models.building import Source
from roofline.workload.models.files.archives import archive_in
from roofline.workload.models.files.exported_programs import exported_program_source
from roofline.workload.models.files.formats import ONNX, PROGRAM, check_foreign, is_model_file
from roofline.workload.models.files.inspection import PICKLE, READ, ZIP, kind_of
from roofline.workload.models.files.pickled import pickled_source, weights_in, with_weights
from roofline.workload.models.files.stored import StoredModel
from roofline.workload.models.files.torchscript import is_torchscript, torchscript_source


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
        is_program = "models/model.json" in archive or archive.within("models/")
        if suffix in PROGRAM or is_program:
            return exported_program_source(path, allow_pickle=allow_pickle)
        if is_torchscript(archive):
            return torchscript_source(archive)
    elif suffix in PROGRAM:
        raise FileFormatError(f"{path}: not a zip, which every .pt2 file is; {READ}")
    elif kind != PICKLE:
        raise FileFormatError(f"{path}: neither a zip nor a pickle, as torch writes them; {READ}")
    return pickled_source(path, allow_pickle=allow_pickle)


def stored_source(model: StoredModel, load: Callable[[str], Source]) -> Source:
    """The model that a name and a file of weights come to.

    Args:
        model: as the user gave it.
        load: gives a model by its name.

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
