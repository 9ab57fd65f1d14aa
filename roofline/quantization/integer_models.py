"""Quantized models that compute with integer codes, with the results of the float version.

Layers multiply and accumulate integers, and scale once. Sums are int32 if the layer's weights
cannot overflow it for any input, else int64: they are exact. Scales are float64, which represents
every int32 sum, unlike float32.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from roofline.errors import InputError, ModelError, error_text
from roofline.quantization.quantized_modules import (
    QUANTIZE_INPUT,
    TRANSPOSED,
    QuantizedLayer,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT, integer_weights, widen

_RELUS = (torch.relu, torch.relu_, functional.relu, functional.relu_)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Modules that are identities in inference."""

_MOVERS = (nn.Flatten, nn.MaxPool2d, nn.MaxPool3d)
_MOVING = (torch.flatten, functional.max_pool2d, functional.max_pool3d)
_MOVES = ("flatten", "view", "reshape", "contiguous")

_WIDEST = {torch.int32: 2**31 - 1, torch.int64: 2**63 - 1}


class Requantization(nn.Module):
    """Conversion of sums to the codes of the next layer: batch norm, optional ReLU, `quantizer`."""

    multiplier: Tensor | None
    shift: Tensor | None

    def __init__(self, quantizer: PACT, *, norm: Any, has_relu: bool) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.has_relu = has_relu
        multiplier = shift = None
        if norm is not None:
            deviation = (norm.running_var.to(torch.float64) + norm.eps).sqrt()
            multiplier = 1 / deviation if norm.weight is None else norm.weight.detach() / deviation
            shift = -norm.running_mean * multiplier
            shift = shift if norm.bias is None else shift + norm.bias.detach()
        self.register_buffer("multiplier", multiplier)
        self.register_buffer("shift", shift)

    def forward(self, values: Tensor) -> Tensor:
        """Return codes in the smallest data type: uint8, int8 if signed, or int32."""
        if self.multiplier is not None and self.shift is not None:
            behind = (1,) * (values.dim() - 2)
            values = values * self.multiplier.reshape(-1, *behind)
            values = values + self.shift.reshape(-1, *behind)
        if self.has_relu:
            values = values.clamp(min=0)
        codes, _ = self.quantizer.codes(values)
        if self.quantizer.bits > 8:
            return codes
        return codes.to(torch.int8 if self.quantizer.signed else torch.uint8)


class IntegerLayer(nn.Module):
    """Quantized layer with integer arithmetic.

    It reads floats, which it quantizes, or codes with ``takes_codes``. It returns floats, or the
    next layer's codes with a ``requantization``.
    """

    whole: Tensor
    """Integer weights, output channels first."""
    scale: Tensor
    bias: Tensor | None
    requantization: Requantization | None

    def __init__(self, layer: QuantizedLayer) -> None:
        super().__init__()
        quantizer, activations = layer.weight_quantizer, layer.input_quantizer
        assert quantizer is not None
        assert activations is not None
        module: Any = layer.module
        self.is_transposed = isinstance(module, TRANSPOSED)
        self.groups: int = getattr(module, "groups", 1)
        axis = int(self.is_transposed)
        if quantizer.per_channel and quantizer.axis != axis:
            raise InputError(
                f"scales along axis {quantizer.axis} of the weight, but output channels along axis"
                f" {axis}; quantize per output channel"
            )
        codes, alpha = quantizer.codes(layer.float_weight)
        whole = integer_weights(self._exchanged(codes), quantizer.levels)
        magnitudes = whole.flatten(1).to(torch.int64).abs().sum(dim=1)
        largest = activations.steps * int(magnitudes.max())
        holding = [dtype for dtype, widest in _WIDEST.items() if largest <= widest]
        if not holding:
            raise InputError(f"sums of up to {largest} overflow int64")
        self.accumulator = holding[0]
        self.register_buffer("whole", whole.to(self.accumulator))
        # Rounded as in the float layer.
        scale = (widen(alpha) / (quantizer.levels - 1)).to(torch.float64)
        if scale.dim() and len(scale) < len(whole):
            # Groups of a transposed convolution share scales.
            scale = scale.repeat(len(whole) // len(scale))
        if layer.channel_scale is not None:
            scale = scale * layer.channel_scale
        self.register_buffer("scale", scale)
        bias = None if module.bias is None else module.bias.detach().to(torch.float64)
        self.register_buffer("bias", bias)
        self.dtype: torch.dtype = module.weight.dtype
        self.input_quantizer = activations
        self.takes_codes = False
        self.requantization = None

    @property
    def weight(self) -> Tensor:
        """Weights of the quantized layer; some models query their data type."""
        behind = (1,) * (self.whole.dim() - 1)
        scale = self.scale.reshape(-1, *behind) if self.scale.dim() else self.scale
        return self._exchanged((self.whole * scale).to(self.dtype))

    def forward(self, x: Tensor, *options: Any, **named: Any) -> Tensor:
        """Return the layer's result in the type of its weights, or as codes of the next layer."""
        # Parts of a model may be called separately, with floats.
        is_codes = self.takes_codes and not x.is_floating_point()
        codes = x if is_codes else self.input_quantizer.codes(x)[0]
        sums = self.accumulate(codes.to(self.accumulator), *options, **named)
        values = self.scaled(sums)
        return values.to(self.dtype) if self.requantization is None else self.requantization(values)

    def accumulate(self, codes: Tensor) -> Tensor:
        """Return exact sums of products of codes and integer weights."""
        rows = codes.reshape(-1, codes.shape[-1])
        return (rows @ self.whole.T).reshape(*codes.shape[:-1], self.whole.shape[0])

    def scaled(self, sums: Tensor) -> Tensor:
        """Return the float64 values of sums, with bias."""
        quantizer = self.input_quantizer
        step = (widen(quantizer.alpha.detach()) / quantizer.steps).to(torch.float64)
        values = sums.to(torch.float64) * self._along(self.scale * step)
        return values if self.bias is None else values + self._along(self.bias)

    def _along(self, by_channel: Tensor) -> Tensor:
        """Return values per output channel, reshaped to broadcast to the results."""
        spatial = self.whole.dim() - 2
        return by_channel.reshape(-1, *(1,) * spatial) if by_channel.dim() else by_channel

    def _exchanged(self, weight: Tensor) -> Tensor:
        """Return a transposed convolution's weight with output channels first, or back."""
        if not self.is_transposed:
            return weight
        return weight.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1)

    def extra_repr(self) -> str:
        codes = ", takes codes" if self.takes_codes else ""
        kind = str(self.accumulator).removeprefix("torch.")
        return f"weights {tuple(self.whole.shape)}, sums {kind}{codes}"


class IntegerConvolution(IntegerLayer):
    def __init__(self, layer: QuantizedLayer) -> None:
        super().__init__(layer)
        module: Any = layer.module
        self.dimensions = len(module.kernel_size)
        self.stride: tuple[int, ...] = module.stride
        self.dilation: tuple[int, ...] = module.dilation
        self.padding: Any = module.padding
        self.pads: tuple[int, ...] = tuple(module._reversed_padding_repeated_twice)
        self.padding_mode: str = module.padding_mode
        self.output_padding: tuple[int, ...] = module.output_padding

    def accumulate(self, codes: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        name = f"conv{'_transpose' * self.is_transposed}{self.dimensions}d"
        function: Callable[..., Tensor] = getattr(functional, name)
        options: dict[str, Any] = {"padding": self.padding}
        if self.is_transposed:
            options["output_padding"] = self.output_padding
            if output_size is not None:
                options["output_padding"] = self._output_padding(codes.shape, output_size)
        elif self.padding_mode != "zeros":
            codes, options["padding"] = self._padded(codes), 0
        # torch has no int32 kernels for these.
        is_wide = self.is_transposed or max(self.dilation) > 1
        kind = torch.int64 if is_wide else self.accumulator
        sums = function(
            codes.to(kind),
            self._exchanged(self.whole).to(kind),
            stride=self.stride,
            dilation=self.dilation,
            groups=self.groups,
            **options,
        )
        return sums.to(self.accumulator)

    def _padded(self, codes: Tensor) -> Tensor:
        """Return padded codes, by index: torch pads integers with zeros only."""
        for dimension in range(self.dimensions):
            pair = self.pads[2 * dimension : 2 * dimension + 2]
            if any(pair):
                positions = torch.arange(codes.shape[-1 - dimension], dtype=torch.float64)
                found = functional.pad(positions[None, None], pair, mode=self.padding_mode)[0, 0]
                indices = found.to(torch.int64).to(codes.device)
                codes = codes.index_select(codes.dim() - 1 - dimension, indices)
        return codes

    def _output_padding(self, shape: Sequence[int], asked: Sequence[int]) -> tuple[int, ...]:
        sizes = zip(
            shape[-self.dimensions :],
            self.stride,
            self.padding,
            self.dilation,
            self.whole.shape[2:],
            asked[-self.dimensions :],
            strict=True,
        )
        found = tuple(
            wanted - (step * (size - 1) - 2 * border + spread * (extent - 1) + 1)
            for size, step, border, spread, extent, wanted in sizes
        )
        if any(not 0 <= more < step for more, step in zip(found, self.stride, strict=True)):
            raise InputError(
                f"output_size {tuple(asked)}: impossible for a transposed convolution of stride"
                f" {self.stride} with input {tuple(shape)}"
            )
        return found


def integer_model(model: nn.Module) -> nn.Module:
    """Return a copy of a quantized model for inference, with integer arithmetic.

    Layers with quantized weights and inputs become an `IntegerLayer`. Codes pass directly to the
    next layer if only batch norm, ReLU, max pooling and reshapes are in between, with no other
    reader. Other operators (additions, softmax, float layers, or layers with hooks) use floats.
    Outputs equal those of the quantized model except for rounding of its float sums, which can
    change a value halfway between two codes.

    Args:
        model: result of `quantize_model` or `load_packed`; stays unchanged.

    Raises:
        InputError: no layer has both quantizers, or a weight has no codes.
        ModelError: the model cannot be copied.
    """
    try:
        result = copy.deepcopy(model).eval()
    # Copying may raise anything.
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__} cannot be copied ({error_text(error)}); detach its tensors"
            " from their graphs"
        ) from None
    replaced: dict[nn.Module, nn.Module] = {}
    for name, layer in quantized_layers(result).items():
        # User hooks expect the float layer.
        hooks = {*layer.module._forward_hooks, *layer.module._forward_pre_hooks} - {QUANTIZE_INPUT}
        if layer.weight_quantizer is None or layer.input_quantizer is None or hooks:
            continue
        kind = IntegerLayer if isinstance(layer.module, nn.Linear) else IntegerConvolution
        try:
            replaced[layer.module] = kind(layer).eval()
        except InputError as error:
            raise InputError(f"{name or type(model).__name__}: {error}") from None
    if not replaced:
        raise InputError(
            f"{type(model).__name__} has no layer with quantized weights and activations and"
            " without hooks; use quantize_model first"
        )
    result = _replace_modules(result, replaced)
    for link in _find_links(result):
        link.writer.requantization = Requantization(
            link.reader.input_quantizer, norm=link.norm, has_relu=link.has_relu
        ).eval()
        link.reader.takes_codes = True
        if link.norm is not None:
            result = _replace_modules(result, {link.norm: nn.Identity()})
    return result


def integer_layers(model: nn.Module) -> Mapping[str, IntegerLayer]:
    return {name: each for name, each in model.named_modules() if isinstance(each, IntegerLayer)}


def _replace_modules(model: nn.Module, replaced: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Return the model with modules replaced, under all of their names."""
    if model in replaced:
        return replaced[model]
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child is not None and child in replaced:
                module._modules[name] = replaced[child]
    return model


# -- codes from layer to layer ---------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class _Link:
    """Two layers with only a requantization in between."""

    writer: IntegerLayer
    reader: IntegerLayer
    norm: nn.Module | None
    has_relu: bool


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, (IntegerLayer, PACT))
        return own or super().is_leaf_module(m, module_qualified_name)


def _find_links(model: nn.Module) -> list[_Link]:
    """Return all links; none if torch.fx cannot trace the model."""
    parameters = inspect.signature(model.forward).parameters.values()
    # One trace does not cover optional arguments.
    has_options = any(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )
    if isinstance(model, IntegerLayer) or has_options:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # In a copy: the model may store proxies.
            graph = _Tracer().trace(copy.deepcopy(model))
    # Model code may raise anything for proxies.
    except Exception:
        return []
    modules = {
        node: model.get_submodule(str(node.target))
        for node in graph.nodes
        if node.op == "call_module"
    }
    calls = Counter(modules.values())
    found = (
        _find_link(node, module, modules, calls)
        for node, module in modules.items()
        if isinstance(module, IntegerLayer) and calls[module] == 1
    )
    return [each for each in found if each is not None]


def _find_link(
    node: fx.Node,
    writer: IntegerLayer,
    modules: Mapping[fx.Node, nn.Module],
    calls: Mapping[nn.Module, int],
) -> _Link | None:
    """Return the link from a layer to its only reader, if codes can pass between them."""
    link = _Link(writer=writer, reader=writer, norm=None, has_relu=False)
    has_moved = False
    while True:
        if len(node.users) != 1:
            return None
        before, node = node, next(iter(node.users))
        if node.all_input_nodes != [before] or not node.args or node.args[0] is not before:
            return None
        module: Any = modules.get(node)
        if isinstance(module, IntegerLayer):
            link.reader = module
            return link if calls[module] == 1 and len(node.args) == 1 else None
        if module is not None and (module._forward_hooks or module._forward_pre_hooks):
            return None
        if isinstance(module, _NORMS) and module.running_mean is not None and not module.training:
            if calls[module] > 1 or link.norm is not None or link.has_relu or has_moved:
                return None
            link.norm = module
        elif isinstance(module, nn.ReLU) or _calls(node, _RELUS, ("relu", "relu_")):
            link.has_relu = True
        elif isinstance(module, _MOVERS) or _calls(node, _MOVING, _MOVES):
            has_moved = True
        elif not isinstance(module, _NOTHING):
            return None


def _calls(node: fx.Node, functions: tuple[Any, ...], methods: tuple[str, ...]) -> bool:
    if node.op == "call_function":
        return node.target in functions
    return node.op == "call_method" and node.target in methods
