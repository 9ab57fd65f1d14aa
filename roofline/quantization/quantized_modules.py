"""What a quantized layer is: the user's own, with quantizers of its weights and of what it reads.

A layer's weights have a parametrization, whose first part is the quantizer; a child
``input_quantizer``, applied by a hook before the layer runs, quantizes what it reads. What training
changes stays ``parametrizations.weight.original``, in floats.
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

# torch gives such a layer a class of its own, which pickle cannot find by its name, and which a
# deep copy shares with the original: to change the one would change the other.


def made_copyable(module: torch.nn.Module) -> None:
    """Lets a parametrized module be pickled, and be copied with a class of the copy's own."""
    kind: Any = type(module)
    own: Mapping[str, Any] = vars(kind)
    # torch's own refuse to pickle, and share the class.
    for name in ("__getstate__", "__deepcopy__"):
        if name in own:
            delattr(kind, name)
    kind.__reduce_ex__ = _reduced


def _reduced(module: torch.nn.Module, protocol: object) -> tuple[Any, ...]:
    before = parametrize.type_before_parametrizations(module)
    parametrizations: Any = module.parametrizations
    return _bare, (before, tuple(parametrizations)), dict(module.__dict__)


def _bare(kind: type[torch.nn.Module], names: tuple[str, ...]) -> torch.nn.Module:
    """A module of that class, parametrized under these names, for its attributes to be put in."""
    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    for name in names:
        module.register_buffer(name, torch.empty(0))
        parametrize.register_parametrization(module, name, torch.nn.Identity())
    module.__dict__.clear()
    made_copyable(module)
    return module


TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
LAYERS = (*CONVOLUTIONS, nn.Linear)
"""The classes whose products can be quantized."""

BITS_NOTED = "quantized_bits"
"""Under which a state dict's metadata keep the bits of a layer."""

HOW_NOTED = "quantized_how"
"""And how it is quantized, besides, in words."""


QUANTIZE_INPUT = "quantize_input"
"""The name of the hook that quantizes what a module reads."""


class ChannelScale(nn.Module):
    """Multiplies quantized weights by a number for each output channel: a folded batch norm.

    It stands behind the quantizer, so that codes and clipping are those before folding.
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
        # Rows are inputs, group by group; columns the outputs of the row's own group.
        by_group = self.scale.reshape(self.groups, 1, -1)
        rows = by_group.expand(-1, weight.shape[0] // self.groups, -1)
        return weight * rows.reshape(weight.shape[0], -1, *behind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedLayer:
    """A layer with quantizers, by the qualified name of its module.

    ``bits`` are 32 where there is no quantizer. ``weight_quantizer`` gives codes of
    `float_weight`, ``input_quantizer`` those of the first argument.
    """

    name: str
    module: nn.Module
    bits: LayerBits
    weight_quantizer: WeightQuantizer | None
    input_quantizer: PACT | None

    @property
    def float_weight(self) -> torch.Tensor:
        """The weights that training changes, as they are before they are quantized."""
        if self.weight_quantizer is not None:
            return parametrization(self.module).original
        weight: Any = self.module.weight
        return weight

    @property
    def channel_scale(self) -> torch.Tensor | None:
        """What quantized weights are multiplied by, one factor for each output channel.

        None where no batch norm was folded into the layer; of several it is the product. The weight
        is this times the value of the code.
        """
        if self.weight_quantizer is None:
            return None
        parts = parametrization(self.module)
        scales = [each.scale for each in parts if isinstance(each, ChannelScale)]
        return functools.reduce(torch.mul, scales) if scales else None


def quantized_layers(model: nn.Module) -> Mapping[str, QuantizedLayer]:
    """The quantized layers of a model by their qualified names, in the order of its modules.

    Layers that stay in floats altogether are not among them.
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


def quantized_entrances(model: nn.Module) -> Mapping[str, PACT]:
    """Quantizers of what whole blocks read, for shortcuts in few bits, by the names of blocks."""
    return {
        name: quantizer
        for name, module in model.named_modules()
        if not isinstance(module, LAYERS) and (quantizer := input_quantizer_of(module)) is not None
    }


def weight_quantizer_of(module: nn.Module) -> WeightQuantizer | None:
    """The quantizer of a module's weights, if they have one."""
    if not parametrize.is_parametrized(module, "weight"):
        return None
    first: Any = parametrization(module)[0]
    return first if isinstance(first, WeightQuantizer) else None


def input_quantizer_of(module: nn.Module) -> PACT | None:
    """The quantizer of a module's first argument, if it has one."""
    found = getattr(module, "input_quantizer", None)
    return found if isinstance(found, PACT) else None


def put_weight_quantizer(module: nn.Module, quantizer: WeightQuantizer) -> None:
    """Has a layer compute with quantized weights."""
    parametrize.register_parametrization(module, "weight", quantizer)
    module.get_submodule("parametrizations").train(module.training)
    made_copyable(module)
    module.register_state_dict_post_hook(note_bits)


def put_input_quantizer(module: nn.Module, quantizer: PACT, *, is_applied: bool = True) -> None:
    """Has a module read its first argument quantized."""
    module.add_module("input_quantizer", quantizer)
    if is_applied:
        number = module.register_forward_pre_hook(quantize_input, with_kwargs=True).id
        # Numbers begin anew in each process: a hook there could take that of one that was pickled.
        for hooks in (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs):
            kept: Any = hooks
            kept[QUANTIZE_INPUT] = kept.pop(number)
    module.register_state_dict_post_hook(note_bits)


def quantize_input(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Runs before a module: its first argument, as its quantizer leaves it."""
    quantizer: Any = module.input_quantizer
    if args:
        return (quantizer(args[0]), *args[1:]), kwargs
    name = _first_argument(type(module))
    return args, {**kwargs, name: quantizer(kwargs[name])} if name in kwargs else kwargs


def note_bits(
    module: nn.Module, state: Mapping[str, Any], prefix: str, metadata: dict[str, Any]
) -> None:
    """Runs when a state dict is made: its metadata say how a module is quantized.

    The tensors alone would fit any width, and other scales.
    """
    weight, activations = weight_quantizer_of(module), input_quantizer_of(module)
    metadata[BITS_NOTED] = [
        FLOAT_BITS if weight is None else weight.bits,
        FLOAT_BITS if activations is None else activations.bits,
    ]
    how = metadata[HOW_NOTED] = dict[str, str]()
    if weight is not None:
        how["levels of weights"] = str(weight.levels)
        how["scales of weights"] = "by channel" if weight.per_channel else "one for all"
    if activations is not None:
        how["activations"] = "with a sign" if activations.signed else "without a sign"


@functools.cache
def _first_argument(kind: type[nn.Module]) -> str:
    return list(inspect.signature(kind.forward).parameters)[1]


def parametrization(module: nn.Module) -> parametrize.ParametrizationList:
    """What is between a layer's weight and what it keeps of it."""
    parametrizations: Any = module.parametrizations
    return parametrizations["weight"]


def is_plain_layer(module: nn.Module) -> bool:
    """Whether it is a layer that computes just as torch's own class does."""
    kind = parametrize.type_before_parametrizations(module)
    base: Any = next((each for each in LAYERS if issubclass(kind, each)), None)
    if base is None or kind.forward is not base.forward or "forward" in vars(module):
        return False
    return getattr(kind, "_conv_forward", None) is getattr(base, "_conv_forward", None)
