"""Quantized layers: user modules with quantizers of weights and inputs.

The weight has a parametrization that begins with the quantizer. A child module ``input_quantizer``
quantizes the input in a forward pre-hook. The trained float weight is
``parametrizations.weight.original``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from roofline.quantization.policy import FLOAT_BITS, LayerBits
from roofline.quantization.quantizers import PACT, WeightQuantizer

# torch creates a class per parametrized layer. Pickle cannot find it by name, and a deep copy would
# share it with the original.


def make_copyable(module: torch.nn.Module) -> None:
    """Enable pickling and deep copies of a parametrized module."""
    kind: Any = type(module)
    own: Mapping[str, Any] = vars(kind)
    # torch's own methods refuse to pickle, and share the class.
    for name in ("__getstate__", "__deepcopy__"):
        if name in own:
            delattr(kind, name)
    kind.__reduce_ex__ = _reduced


def _reduced(module: torch.nn.Module, protocol: object) -> tuple[Any, ...]:
    before = parametrize.type_before_parametrizations(module)
    parametrizations: Any = module.parametrizations
    return _bare, (before, tuple(parametrizations)), dict(module.__dict__)


def _bare(kind: type[torch.nn.Module], names: tuple[str, ...]) -> torch.nn.Module:
    """Return a module of a class, parametrized under these names, without attributes."""
    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    for name in names:
        module.register_buffer(name, torch.empty(0))
        parametrize.register_parametrization(module, name, torch.nn.Identity())
    module.__dict__.clear()
    make_copyable(module)
    return module


TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
LAYERS = (*CONVOLUTIONS, nn.Linear)
"""Layer classes that can be quantized."""

BITS_KEY = "quantized_bits"
"""Key of a layer's bits in the metadata of a state dict."""

SETTINGS_KEY = "quantized_how"
"""Key of its other quantizer settings, as text."""


QUANTIZE_INPUT = "quantize_input"
"""Name of the hook that quantizes module inputs."""


class ChannelScale(nn.Module):
    """Factor per output channel of quantized weights, from a folded batch norm.

    Applied after the quantizer, so that codes and clipping stay the same.
    """

    scale: torch.Tensor

    def __init__(self, scale: torch.Tensor, layer: nn.Module) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.groups = int(getattr(layer, "groups", 1))
        self.is_transposed = isinstance(layer, TRANSPOSED)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        behind = (1,) * (weight.dim() - 2)
        if not self.is_transposed:
            return weight * self.scale.reshape(-1, 1, *behind)
        # Rows are inputs, grouped; columns are outputs of the row's group.
        by_group = self.scale.reshape(self.groups, 1, -1)
        rows = by_group.expand(-1, weight.shape[0] // self.groups, -1)
        return weight * rows.reshape(weight.shape[0], -1, *behind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedLayer:
    """Layer with quantizers, by its qualified module name.

    ``bits`` are 32 without a quantizer. ``weight_quantizer`` applies to `float_weight`,
    ``input_quantizer`` to the first argument.
    """

    name: str
    module: nn.Module
    bits: LayerBits
    weight_quantizer: WeightQuantizer | None
    input_quantizer: PACT | None

    @property
    def float_weight(self) -> torch.Tensor:
        """Trained weights before quantization."""
        if self.weight_quantizer is not None:
            return parametrization(self.module).original
        weight: Any = self.module.weight
        return weight

    @property
    def channel_scale(self) -> torch.Tensor | None:
        """Factor per output channel of quantized weights; None without a folded batch norm.

        Weights are this times the value of the codes.
        """
        if self.weight_quantizer is None:
            return None
        parts = parametrization(self.module)
        scales = [each.scale for each in parts if isinstance(each, ChannelScale)]
        return functools.reduce(torch.mul, scales) if scales else None


def quantized_layers(model: nn.Module) -> Mapping[str, QuantizedLayer]:
    """Return the quantized layers of a model by qualified name, in module order.

    Layers entirely in floats are not included.
    """
    found: dict[str, QuantizedLayer] = {}
    for name, module in model.named_modules():
        weight, activations = weight_quantizer_of(module), input_quantizer_of(module)
        if not isinstance(module, LAYERS) or (weight is None and activations is None):
            continue
        found[name] = QuantizedLayer(
            name=name,
            module=module,
            bits=LayerBits(
                weights=FLOAT_BITS if weight is None else weight.bits,
                activations=FLOAT_BITS if activations is None else activations.bits,
            ),
            weight_quantizer=weight,
            input_quantizer=activations,
        )
    return found


def entry_quantizers(model: nn.Module) -> Mapping[str, PACT]:
    """Return input quantizers of blocks with quantized shortcuts, by block name."""
    return {
        name: quantizer
        for name, module in model.named_modules()
        if not isinstance(module, LAYERS) and (quantizer := input_quantizer_of(module)) is not None
    }


def weight_quantizer_of(module: nn.Module) -> WeightQuantizer | None:
    if not parametrize.is_parametrized(module, "weight"):
        return None
    first: Any = parametrization(module)[0]
    return first if isinstance(first, WeightQuantizer) else None


def input_quantizer_of(module: nn.Module) -> PACT | None:
    found = getattr(module, "input_quantizer", None)
    return found if isinstance(found, PACT) else None


def attach_weight_quantizer(module: nn.Module, quantizer: WeightQuantizer) -> None:
    parametrize.register_parametrization(module, "weight", quantizer)
    module.get_submodule("parametrizations").train(module.training)
    make_copyable(module)
    module.register_state_dict_post_hook(note_bits)


def attach_input_quantizer(module: nn.Module, quantizer: PACT, *, is_applied: bool = True) -> None:
    module.add_module("input_quantizer", quantizer)
    if is_applied:
        number = module.register_forward_pre_hook(quantize_input, with_kwargs=True).id
        # Hook numbers restart in each process: a new hook could replace an unpickled one.
        for hooks in (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs):
            kept: Any = hooks
            kept[QUANTIZE_INPUT] = kept.pop(number)
    module.register_state_dict_post_hook(note_bits)


def quantize_input(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Quantize the first argument of a module (forward pre-hook)."""
    quantizer: Any = module.input_quantizer
    if args:
        return (quantizer(args[0]), *args[1:]), kwargs
    name = _first_argument(type(module))
    return args, {**kwargs, name: quantizer(kwargs[name])} if name in kwargs else kwargs


def note_bits(
    module: nn.Module, state: Mapping[str, Any], prefix: str, metadata: dict[str, Any]
) -> None:
    """Store bits and settings in the metadata of a state dict (post-hook).

    Tensors alone would fit any bit width.
    """
    weight, activations = weight_quantizer_of(module), input_quantizer_of(module)
    metadata[BITS_KEY] = [
        FLOAT_BITS if weight is None else weight.bits,
        FLOAT_BITS if activations is None else activations.bits,
    ]
    how = metadata[SETTINGS_KEY] = dict[str, str]()
    if weight is not None:
        how["levels of weights"] = str(weight.levels)
        how["scales of weights"] = "by channel" if weight.per_channel else "one for all"
    if activations is not None:
        how["activations"] = "with a sign" if activations.signed else "without a sign"


@functools.cache
def _first_argument(kind: type[nn.Module]) -> str:
    return list(inspect.signature(kind.forward).parameters)[1]


def parametrization(module: nn.Module) -> parametrize.ParametrizationList:
    parametrizations: Any = module.parametrizations
    return parametrizations["weight"]


def is_plain_layer(module: nn.Module) -> bool:
    """Return whether a layer computes exactly as torch's own class."""
    kind = parametrize.type_before_parametrizations(module)
    base: Any = next((each for each in LAYERS if issubclass(kind, each)), None)
    if base is None or kind.forward is not base.forward or "forward" in vars(module):
        return False
    return getattr(kind, "_conv_forward", None) is getattr(base, "_conv_forward", None)
