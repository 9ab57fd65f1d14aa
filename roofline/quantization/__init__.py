"""Lower precision: what-if estimates under the roofline, and training with PACT and SAWB.

Names are loaded on first use: importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.quantization.clipping import calibrate_clipping as calibrate_clipping
    from roofline.quantization.clipping import load_quantized as load_quantized
    from roofline.quantization.clipping import parameter_groups as parameter_groups
    from roofline.quantization.folding import fold_batch_norms as fold_batch_norms
    from roofline.quantization.integer_models import integer_model as integer_model
    from roofline.quantization.packed_files import pack as pack
    from roofline.quantization.packed_files import unpack as unpack
    from roofline.quantization.packed_models import load_packed as load_packed
    from roofline.quantization.packed_models import packed_state as packed_state
    from roofline.quantization.policy import LayerBits as LayerBits
    from roofline.quantization.policy import Policy as Policy
    from roofline.quantization.quantized_modules import quantized_layers as quantized_layers
    from roofline.quantization.quantizers import PACT as PACT
    from roofline.quantization.quantizers import SAWB as SAWB
    from roofline.quantization.quantizers import MaxAbs as MaxAbs
    from roofline.quantization.quantizing import quantize_model as quantize_model

_NAMES = {
    "clipping": "calibrate_clipping load_quantized parameter_groups",
    "folding": "fold_batch_norms",
    "integer_models": "integer_model",
    "packed_files": "pack unpack",
    "packed_models": "load_packed packed_state",
    "policy": "LayerBits Policy",
    "quantized_modules": "quantized_layers",
    "quantizers": "MaxAbs PACT SAWB",
    "quantizing": "quantize_model",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roofline.quantization' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
