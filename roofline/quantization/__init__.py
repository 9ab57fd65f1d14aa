"""Lower precision: what it would be worth under the roof, and PACT and SAWB to get there.

The names below are loaded when they are first used: importing this room imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.quantization.codes.integer_models import integer_model as integer_model
    from roofline.quantization.codes.packed_models import load_packed as load_packed
    from roofline.quantization.codes.packed_models import packed_state as packed_state
    from roofline.quantization.codes.packing import pack as pack
    from roofline.quantization.codes.packing import unpack as unpack
    from roofline.quantization.modules.checkpoints import load_quantized as load_quantized
    from roofline.quantization.modules.clipping import calibrate_clipping as calibrate_clipping
    from roofline.quantization.modules.folding import fold_batch_norms as fold_batch_norms
    from roofline.quantization.modules.parameter_groups import parameter_groups as parameter_groups
    from roofline.quantization.modules.quantized_layers import quantized_layers as quantized_layers
    from roofline.quantization.modules.quantizing import quantize_model as quantize_model
    from roofline.quantization.policy import LayerBits as LayerBits
    from roofline.quantization.policy import Policy as Policy
    from roofline.quantization.quantizers.max_abs import MaxAbs as MaxAbs
    from roofline.quantization.quantizers.pact import PACT as PACT
    from roofline.quantization.quantizers.sawb import SAWB as SAWB

_HOME = {
    "LayerBits": "policy",
    "MaxAbs": "quantizers.max_abs",
    "PACT": "quantizers.pact",
    "Policy": "policy",
    "SAWB": "quantizers.sawb",
    "calibrate_clipping": "modules.clipping",
    "fold_batch_norms": "modules.folding",
    "integer_model": "codes.integer_models",
    "load_packed": "codes.packed_models",
    "load_quantized": "modules.checkpoints",
    "pack": "codes.packing",
    "packed_state": "codes.packed_models",
    "parameter_groups": "modules.parameter_groups",
    "quantize_model": "modules.quantizing",
    "quantized_layers": "modules.quantized_layers",
    "unpack": "codes.packing",
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
