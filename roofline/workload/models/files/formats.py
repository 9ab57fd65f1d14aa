"""Which file is read how, by its suffix and by what is in it; imports no torch."""

from __future__ import annotations

from pathlib import Path

from roofline.errors import FileFormatError
from roofline.workload.models.files.inspection import READ

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
    """Refuses files of other programs by their suffix.

    Raises:
        FileFormatError: says what it is, and what to give in its place.
    """
    what = _FOREIGN.get(path.suffix.lower())
    if what is not None:
        raise FileFormatError(f"{path}: {what} ({READ})")
