"""Quantised layers that compute with whole numbers: codes in, sums of integers, one scaling.

Sums are kept in int32 wherever the layer's own weights cannot bring one to 2^31, whatever codes
come in; else in int64. So none of them is ever rounded, and none overflows. Scales are float64: an
int32 sum fits into one, and not into float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from roofline.errors import InputError
from roofline.quantization.grids import integers, widened
from roofline.quantization.quantized_modules import TRANSPOSED, QuantizedLayer
from roofline.quantization.quantizers import PACT

# All take codes and weights in the type that they sum up in (int32, or int64), and give that type.
# A convolution is one matrix product for each place of its kernel, so that no windows are copied
# out.

Pads = Sequence[tuple[int, int]]
"""For each dimension of space, what is added before and behind."""


def linear(codes: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``codes @ weights.T`` over the last dimension.

    Args:
        codes: of any shape that ends with the number of inputs.
    """
    rows = codes.reshape(-1, codes.shape[-1])
    return (rows @ weights.T).reshape(*codes.shape[:-1], weights.shape[0])


def convolution(
    codes: torch.Tensor,
    weights: torch.Tensor,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """A convolution over what is padded already.

    Args:
        stride: for each dimension of space, as are ``dilation``.
    """
    kernel = weights.shape[2:]
    sizes = [
        (size - spread * (extent - 1) - 1) // step + 1
        for size, spread, extent, step in zip(
            codes.shape[2:], dilation, kernel, stride, strict=True
        )
    ]
    result = codes.new_zeros((codes.shape[0], weights.shape[0], *sizes))
    for place in _places(kernel):
        seen = [
            slice(start * spread, start * spread + step * (size - 1) + 1, step)
            for start, spread, step, size in zip(place, dilation, stride, sizes, strict=True)
        ]
        matrices = weights[(slice(None), slice(None), *place)]
        result += _by_groups(codes[(slice(None), slice(None), *seen)], matrices, groups)
    return result


def transposed_convolution(
    codes: torch.Tensor,
    weights: torch.Tensor,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """What torch calls a transposed convolution: each input is spread by the kernel."""
    kernel, sizes = weights.shape[2:], codes.shape[2:]
    spread_sizes = [
        step * (size - 1) + spread * (extent - 1) + 1 + more
        for step, size, spread, extent, more in zip(
            stride, sizes, dilation, kernel, output_padding, strict=True
        )
    ]
    result = codes.new_zeros((codes.shape[0], weights.shape[0], *spread_sizes))
    for place in _places(kernel):
        reached = [
            slice(start * spread, start * spread + step * (size - 1) + 1, step)
            for start, spread, step, size in zip(place, dilation, stride, sizes, strict=True)
        ]
        matrices = weights[(slice(None), slice(None), *place)]
        result[(slice(None), slice(None), *reached)] += _by_groups(codes, matrices, groups)
    kept = [slice(cut, size - cut) for cut, size in zip(padding, spread_sizes, strict=True)]
    return result[(slice(None), slice(None), *kept)]


def padded(codes: torch.Tensor, pads: Pads, mode: str) -> torch.Tensor:
    """Codes with a border, as convolutions add it.

    Args:
        mode: ``zeros``, ``reflect``, ``replicate`` or ``circular``.
    """
    if not any(before or behind for before, behind in pads):
        return codes
    if mode == "zeros":
        flat = [size for pair in reversed(pads) for size in pair]
        return functional.pad(codes, flat)
    for dimension, pair in enumerate(pads, start=2):
        if any(pair):
            # torch pads integers with zeros alone: what it would copy is found by positions.
            positions = torch.arange(codes.shape[dimension], dtype=torch.float64)
            found = functional.pad(positions[None, None], pair, mode=mode)[0, 0].to(torch.int64)
            codes = codes.index_select(dimension, found.to(codes.device))
    return codes


def _by_groups(codes: torch.Tensor, matrices: torch.Tensor, groups: int) -> torch.Tensor:
    """The product over channels at every position.

    ``matrices`` are output channels by input channels of a group.
    """
    batch, _, *sizes = codes.shape
    channels, inputs = matrices.shape
    positions = math.prod(sizes)
    columns = codes.reshape(batch, groups, inputs, positions).permute(1, 2, 0, 3)
    columns = columns.reshape(groups, inputs, batch * positions)
    summed = torch.bmm(matrices.reshape(groups, channels // groups, inputs), columns)
    return summed.reshape(channels, batch, *sizes).transpose(0, 1)


def _places(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(extent) for extent in kernel))


class Requantization(nn.Module):
    """What stands between the sums of one layer and the codes of the next.

    Args:
        quantizer: of what the next layer reads.
        norm: a batch norm between them, as it is in inference.
        has_relu: whether what is negative becomes 0 before it is quantised.
    """

    multiplier: Tensor | None
    shift: Tensor | None

    def __init__(self, quantizer: PACT, *, norm: nn.Module | None, has_relu: bool) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.has_relu = has_relu
        multiplier, shift = (None, None) if norm is None else _folded(norm)
        self.register_buffer("multiplier", multiplier)
        self.register_buffer("shift", shift)

    def forward(self, values: Tensor) -> Tensor:
        """Codes in the smallest type that holds them: uint8, int8 where signed, or int32."""
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


def _folded(norm: Any) -> tuple[Tensor, Tensor]:
    """A batch norm's multiplier and shift in inference, in float64."""
    deviation = (norm.running_var.to(torch.float64) + norm.eps).sqrt()
    multiplier = 1 / deviation if norm.weight is None else norm.weight.detach() / deviation
    shift = -norm.running_mean * multiplier
    return multiplier, shift if norm.bias is None else shift + norm.bias.detach()


_WIDEST = {torch.int32: 2**31 - 1, torch.int64: 2**63 - 1}


class IntegerLayer(nn.Module):
    """A quantised layer whose product is one of whole numbers.

    It takes floats, which it quantises, or, where it ``takes_codes``, those that the layer before
    it gives. It gives floats, or the next layer's codes where it has a ``requantization``.

    Args:
        layer: with quantised weights, and a quantiser of what it reads.
        weights: its codes, output channels first.
    """

    whole: Tensor
    scale: Tensor
    bias: Tensor | None
    requantization: Requantization | None

    def __init__(self, layer: QuantizedLayer, weights: Tensor, alpha: Tensor) -> None:
        super().__init__()
        quantizer, activations = layer.weight_quantizer, layer.input_quantizer
        assert quantizer is not None
        assert activations is not None
        module: Any = layer.module
        whole = integers(weights, quantizer.levels)
        self.accumulator = accumulator(whole, activations.steps)
        self.register_buffer("whole", whole.to(self.accumulator))
        # As the float layer rounds it: within one rounding of the values that it multiplies.
        scale = (widened(alpha) / (quantizer.levels - 1)).to(torch.float64)
        if scale.dim() and len(scale) < len(whole):
            # A transposed convolution has the same scales in each of its groups.
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
        """What the whole numbers stand for, as the layer had it; some models ask for its type."""
        behind = (1,) * (self.whole.dim() - 1)
        scale = self.scale.reshape(-1, *behind) if self.scale.dim() else self.scale
        return (self.whole * scale).to(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result, in the type of its weights, or as codes of the next layer.

        Raises:
            InputError: activations that have no codes (NaN), or are no floating-point numbers.
        """
        return self._finished(self.accumulate(self._codes(x)))

    def accumulate(self, codes: Tensor) -> Tensor:
        """Sums of products of codes with whole weights, exact."""
        raise NotImplementedError

    def scaled(self, sums: Tensor) -> Tensor:
        """What sums stand for, with the bias, in float64."""
        quantizer = self.input_quantizer
        step = (widened(quantizer.alpha.detach()) / quantizer.steps).to(torch.float64)
        values = sums.to(torch.float64) * self._along(self.scale * step)
        return values if self.bias is None else values + self._along(self.bias)

    def _codes(self, x: Tensor) -> Tensor:
        # A part of a model may be called on its own, with floats.
        is_codes = self.takes_codes and not x.is_floating_point()
        codes = x if is_codes else self.input_quantizer.codes(x)[0]
        return codes.to(self.accumulator)

    def _finished(self, sums: Tensor) -> Tensor:
        values = self.scaled(sums)
        return values.to(self.dtype) if self.requantization is None else self.requantization(values)

    def _along(self, by_channel: Tensor) -> Tensor:
        """Numbers by output channel, so shaped that they meet the layer's results."""
        return by_channel

    def extra_repr(self) -> str:
        codes = ", takes codes" if self.takes_codes else ""
        kind = str(self.accumulator).removeprefix("torch.")
        return f"weights {tuple(self.whole.shape)}, sums {kind}{codes}"


class IntegerLinear(IntegerLayer):
    """A linear layer in whole numbers."""

    def accumulate(self, codes: Tensor) -> Tensor:
        """Sums of products of codes with whole weights, exact."""
        return linear(codes, self.whole)


class IntegerConvolution(IntegerLayer):
    """A convolution in whole numbers, of any number of dimensions, transposed or not."""

    def __init__(self, layer: QuantizedLayer, weights: Tensor, alpha: Tensor) -> None:
        super().__init__(layer, weights, alpha)
        module: Any = layer.module
        self.dimensions = len(module.kernel_size)
        self.stride: tuple[int, ...] = module.stride
        self.dilation: tuple[int, ...] = module.dilation
        self.groups: int = module.groups
        self.is_transposed = isinstance(module, TRANSPOSED)
        self.pads = _pads(module)
        self.padding_mode: str = module.padding_mode
        self.output_padding: tuple[int, ...] = module.output_padding

    @property
    def weight(self) -> Tensor:
        """What the whole numbers stand for, as the layer had it; some models ask for its type."""
        weight = super().weight
        return _exchanged(weight, self.groups) if self.is_transposed else weight

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The layer's result, in the type of its weights, or as codes of the next layer.

        Raises:
            InputError: activations that have no codes (NaN), or are no floating-point numbers; or
                an `output_size` that the convolution cannot give.
        """
        if output_size is None:
            return super().forward(x)
        output_padding = self._output_padding(x.shape, output_size)
        return self._finished(self._convolved(self._codes(x), output_padding))

    def accumulate(self, codes: Tensor) -> Tensor:
        """Sums of products of codes with whole weights, exact."""
        return self._convolved(codes, self.output_padding)

    def _convolved(self, codes: Tensor, output_padding: Sequence[int]) -> Tensor:
        if codes.dim() == self.dimensions + 1:
            return self._convolved(codes.unsqueeze(0), output_padding).squeeze(0)
        if self.is_transposed:
            return transposed_convolution(
                codes,
                self.whole,
                stride=self.stride,
                padding=[before for before, _ in self.pads],
                output_padding=output_padding,
                dilation=self.dilation,
                groups=self.groups,
            )
        return convolution(
            padded(codes, self.pads, self.padding_mode),
            self.whole,
            stride=self.stride,
            dilation=self.dilation,
            groups=self.groups,
        )

    def _along(self, by_channel: Tensor) -> Tensor:
        if by_channel.dim() == 0:
            return by_channel
        return by_channel.reshape(-1, *(1,) * self.dimensions)

    def _output_padding(self, shape: Sequence[int], asked: Sequence[int]) -> tuple[int, ...]:
        sizes = zip(
            shape[-self.dimensions :],
            self.stride,
            self.pads,
            self.dilation,
            self.whole.shape[2:],
            asked[-self.dimensions :],
            strict=True,
        )
        found = tuple(
            wanted - (step * (size - 1) - sum(pair) + spread * (extent - 1) + 1)
            for size, step, pair, spread, extent, wanted in sizes
        )
        if any(not 0 <= more < step for more, step in zip(found, self.stride, strict=True)):
            raise InputError(
                f"output_size {tuple(asked)}: a transposed convolution of stride {self.stride}"
                f" cannot give it from {tuple(shape)}"
            )
        return found


def integer_layer(layer: QuantizedLayer) -> IntegerLayer:
    """A quantised layer as one that computes with whole numbers.

    Raises:
        InputError: scales by other channels than those of the output, or sums that not even int64
            holds.
    """
    quantizer, module = layer.weight_quantizer, layer.module
    assert quantizer is not None
    is_transposed = isinstance(module, TRANSPOSED)
    if quantizer.per_channel and quantizer.axis != int(is_transposed):
        raise InputError(
            f"its scales stand along axis {quantizer.axis} of the weight, its output channels along"
            f" axis {int(is_transposed)}: no sum can be scaled; quantise it per output channel"
        )
    codes, alpha = quantizer.codes(layer.float_weight)
    if isinstance(module, nn.Linear):
        return IntegerLinear(layer, codes, alpha)
    if is_transposed:
        groups: Any = module.groups
        codes = _exchanged(codes, groups)
    return IntegerConvolution(layer, codes, alpha)


def _exchanged(weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution with output channels first; of that, as it was."""
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)


def accumulator(whole: Tensor, most: int) -> torch.dtype:
    """The type that holds every sum: int32 where it does, else int64.

    Raises:
        InputError: sums that not even int64 holds.
    """
    magnitudes = whole.flatten(1).to(torch.int64).abs().sum(dim=1)
    largest = most * int(magnitudes.max())
    for dtype, widest in _WIDEST.items():
        if largest <= widest:
            return dtype
    raise InputError(f"its sums may reach {largest}, which int64 does not hold")


def _pads(module: Any) -> tuple[tuple[int, int], ...]:
    """What a convolution adds before and behind each dimension of space."""
    if module.padding == "valid":
        return ((0, 0),) * len(module.kernel_size)
    if module.padding == "same":
        added = [
            spread * (extent - 1)
            for spread, extent in zip(module.dilation, module.kernel_size, strict=True)
        ]
        return tuple((both // 2, both - both // 2) for both in added)
    return tuple((size, size) for size in module.padding)
