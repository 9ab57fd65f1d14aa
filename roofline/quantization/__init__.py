"""Lower precision: what it would be worth under the roof, and PACT and SAWB to get there.

The names below are loaded when they are first used: importing this room imports no torch.
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

_HOME = {
    "LayerBits": "policy",
    "MaxAbs": "quantizers",
    "PACT": "quantizers",
    "Policy": "policy",
    "SAWB": "quantizers",
    "calibrate_clipping": "clipping",
    "fold_batch_norms": "folding",
    "integer_model": "integer_models",
    "load_packed": "packed_models",
    "load_quantized": "clipping",
    "pack": "packed_files",
    "packed_state": "packed_models",
    "parameter_groups": "clipping",
    "quantize_model": "quantizing",
    "quantized_layers": "quantized_modules",
    "unpack": "packed_files",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roofline.quantization' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
