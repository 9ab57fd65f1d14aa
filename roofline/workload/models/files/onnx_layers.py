"""ONNX layers by torch operators: GEMM, attention, convolutions, pooling, norms, resizing, RNNs.

Weights of recurrent layers are converted to torch's order when the file is read.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import DTYPES, Graph, Node
from roofline.workload.models.files.onnx_operators import (
    UnsupportedSemanticsError,
    integers,
    numbers,
    operator,
)

# -- matrix products and attention -----------------------------------------------------------------


@operator("Gemm", "com.microsoft.FusedMatMul")
def _general_product(node: Node, x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return alpha x y + beta bias, by torch's linear layer where it is one."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    is_gemm = node.operator == "Gemm"
    x, turned = (
        (each.t() if is_gemm else each.transpose(-1, -2)) if node.get(name, 0) else each
        for name, each in (("transA", x), ("transB", y))
    )
    is_vector = bias is None or (bias.dim() == 1 and bias.shape[0] != 1)
    if is_gemm and turned is not y and alpha == 1 and beta == 1 and is_vector:
        return functional.linear(x, y, bias)
    if bias is not None:
        return torch.addmm(bias, x, turned, beta=beta, alpha=alpha)
    product = torch.matmul(x, turned)
    return product if alpha == 1 else alpha * product


@operator("Attention")
def _attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    if node.get("softcap", 0.0) or node.given_outputs > 3:
        raise UnsupportedSemanticsError("attention with a soft cap, or with scores as output")
    if mask is not None and node.get("is_causal", 0):
        raise UnsupportedSemanticsError("causal attention with a mask")
    is_flat = query.dim() == 3
    if is_flat:
        heads, shared = node["q_num_heads"], node["kv_num_heads"]
        query, key, value = (
            each.unflatten(-1, (many, -1)).transpose(1, 2)
            for each, many in ((query, heads), (key, shared), (value, shared))
        )
    if past_key is not None and past_value is not None:
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        mask,
        is_causal=bool(node.get("is_causal", 0)),
        scale=node.get("scale"),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    result = result.transpose(1, 2).flatten(2) if is_flat else result
    return (result, key, value) if len(node.outputs) > 1 else result


@operator("Softmax", "LogSoftmax")
def _softmax(node: Node, x: Tensor) -> Tensor:
    """Return softmax along an axis; before opset 13, along all axes from it."""
    softmax = torch.softmax if node.operator == "Softmax" else torch.log_softmax
    if node.opset >= 13:
        return softmax(x, node.get("axis", -1))
    axis = node.get("axis", 1) % max(x.dim(), 1)
    if axis == x.dim() - 1:
        return softmax(x, axis)
    return softmax(x.flatten(axis), axis).reshape(x.shape)


# -- convolutions and pooling ----------------------------------------------------------------------


def _sizes_per_axis(node: Node, name: str, dimensions: int, default: int = 1) -> list[int]:
    return list(node.get(name) or [default] * dimensions)


def _strides_and_dilations(node: Node, dimensions: int) -> tuple[list[int], list[int]]:
    """Return strides and dilations."""
    return _sizes_per_axis(node, "strides", dimensions), _sizes_per_axis(
        node, "dilations", dimensions
    )


def _padded(
    node: Node, x: Tensor, kernel: Sequence[int], value: float | None = 0.0
) -> tuple[Tensor, list[int]]:
    """Return the operand, and its padding, equal at both ends of each dimension as in torch.

    For unequal padding the operand itself is padded by `value`.
    """
    dimensions = len(kernel)
    begins, ends = [0] * dimensions, [0] * dimensions
    how = node.get("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        pads = _sizes_per_axis(node, "pads", 2 * dimensions, 0)
        begins, ends = pads[:dimensions], pads[dimensions:]
    elif how != "VALID":
        windows = zip(x.shape[2:], kernel, *_strides_and_dilations(node, dimensions), strict=True)
        for axis, (size, each, stride, dilation) in enumerate(windows):
            results = -(-size // stride)
            total = max(0, (results - 1) * stride + dilation * (each - 1) + 1 - size)
            halves = total // 2, total - total // 2
            begins[axis], ends[axis] = halves if how == "SAME_UPPER" else reversed(halves)
    if begins == ends:
        return x, begins
    if value is None:
        raise UnsupportedSemanticsError("average pooling with unequal padding")
    pairs = zip(reversed(begins), reversed(ends), strict=True)
    x = functional.pad(x, [each for pair in pairs for each in pair], value=value)
    return x, [0] * dimensions


@operator("Conv")
def _convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    strides, dilations = _strides_and_dilations(node, weight.dim() - 2)
    x, padding = _padded(node, x, weight.shape[2:])
    none, group = [0] * len(padding), node.get("group", 1)
    return torch.convolution(x, weight, bias, strides, padding, dilations, False, none, group)


@operator("ConvTranspose")
def _transposed_convolution(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return a transposed convolution; unequal padding is cut off the result."""
    dimensions = weight.dim() - 2
    if node.get("output_shape") or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        raise UnsupportedSemanticsError("a transposed convolution with a given output shape")
    pads = _sizes_per_axis(node, "pads", 2 * dimensions, 0)
    begins, ends = pads[:dimensions], pads[dimensions:]
    least = [min(pair) for pair in zip(begins, ends, strict=True)]
    strides, dilations = _strides_and_dilations(node, dimensions)
    more, group = _sizes_per_axis(node, "output_padding", dimensions, 0), node.get("group", 1)
    result = torch.convolution(x, weight, bias, strides, least, dilations, True, more, group)
    for axis in range(dimensions):
        low, high = begins[axis] - least[axis], ends[axis] - least[axis]
        if low or high:
            result = result.narrow(axis + 2, low, result.shape[axis + 2] - low - high)
    return result


_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@operator("MaxPool")
def _max_pool(node: Node, x: Tensor) -> Tensor | tuple[Tensor, ...]:
    kernel, is_ceil = list(node["kernel_shape"]), bool(node.get("ceil_mode", 0))
    if node.given_outputs > 1:
        raise UnsupportedSemanticsError("max pooling with indices")
    x, padding = _padded(node, x, kernel, -math.inf)
    strides, dilations = _strides_and_dilations(node, len(kernel))
    return _MAX[len(kernel)](x, kernel, strides, padding, dilations, is_ceil)


@operator("AveragePool")
def _average_pool(node: Node, x: Tensor) -> Tensor:
    kernel = list(node["kernel_shape"])
    if any(each != 1 for each in node.get("dilations") or ()):
        raise UnsupportedSemanticsError("dilated average pooling")
    counts_padding = bool(node.get("count_include_pad", 0))
    x, padding = _padded(node, x, kernel, 0.0 if counts_padding else None)
    strides, is_ceil = _sizes_per_axis(node, "strides", len(kernel)), bool(node.get("ceil_mode", 0))
    counts_padding = counts_padding or not any(padding)
    return _AVERAGE[len(kernel)](x, kernel, strides, padding, is_ceil, counts_padding)


# -- normalizations --------------------------------------------------------------------------------


def _epsilon(node: Node) -> float:
    return node.get("epsilon", 1e-5)


def _normalized(node: Node, x: Tensor) -> tuple[int, ...]:
    """Return the sizes of normalized dimensions."""
    return tuple(x.shape[node.get("axis", -1) % x.dim() :])


@operator("BatchNormalization")
def _batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    if node.get("training_mode", 0):
        raise UnsupportedSemanticsError("batch norm in training mode; export in eval mode")
    return functional.batch_norm(x, mean, variance, scale, bias, eps=_epsilon(node))


@operator("LayerNormalization")
def _layer_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return a layer norm, with mean and inverse deviation if they are outputs."""
    shape = _normalized(node, x)
    if scale.shape != shape:
        scale = scale.expand(shape)
        bias = bias.expand(shape) if bias is not None else None
    if node.given_outputs == 1:
        return (functional.layer_norm(x, shape, scale, bias, _epsilon(node)),)
    return tuple(torch.native_layer_norm(x, shape, scale, bias, _epsilon(node)))


@operator("SkipLayerNormalization", "com.microsoft.SkipLayerNormalization")
def _skip_layer_norm(
    node: Node,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    before: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return a layer norm of a sum."""
    total = x + skip if before is None else x + skip + before
    result = functional.layer_norm(total, (x.shape[-1],), scale, bias, _epsilon(node))
    return result, total, total, total


@operator("GroupNormalization")
def _group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Return a group norm; before opset 21, with one scale per group."""
    groups = node["num_groups"]
    if scale.shape[0] != x.shape[1]:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, groups, scale, bias, _epsilon(node))


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    return functional.rms_norm(x, _normalized(node, x), scale, _epsilon(node))


# -- quantization ----------------------------------------------------------------------------------


@operator("DequantizeLinear")
def _dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    shape = _channel_shape(x, scale, node.get("axis", 1))
    codes = x.to(scale.dtype)
    if zero is not None:
        codes = codes - zero.to(scale.dtype).reshape(shape)
    return codes * scale.reshape(shape)


@operator("QuantizeLinear")
def _quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Quantize: divide by the scale, round, add the zero point, clamp."""
    shape = _channel_shape(x, scale, node.get("axis", 1))
    kind = zero.dtype if zero is not None else DTYPES.get(node.get("output_dtype", 2))
    if kind is None or kind.is_floating_point:
        raise UnsupportedSemanticsError("quantization to a type that is not an integer in torch")
    codes = torch.round(x / scale.reshape(shape))
    if zero is not None:
        codes = codes + zero.to(codes.dtype).reshape(shape)
    limits = torch.iinfo(kind)
    return torch.clamp(codes, limits.min, limits.max).to(kind)


def _channel_shape(x: Tensor, scale: Tensor, axis: int) -> tuple[int, ...]:
    """Return the shape that broadcasts a per-channel scale."""
    if scale.numel() == 1:
        return ()
    if scale.dim() != 1:
        raise UnsupportedSemanticsError("blockwise quantization")
    axis %= x.dim()
    return tuple(scale.numel() if each == axis else 1 for each in range(x.dim()))


# -- resizing --------------------------------------------------------------------------------------

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@operator("Resize")
def _resize(
    node: Node,
    x: Tensor,
    region: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Resize to sizes or by scales, for pixel positions that torch supports."""
    if node.opset < 11:
        # Without region, and with pixel positions of torch's nearest mode.
        return _resized(node, x, _target(x, region, None), "asymmetric")
    if node.get("axes") or node.get("antialias", 0) or node.get("exclude_outside", 0):
        raise UnsupportedSemanticsError("a resize of some axes, or with antialiasing")
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedSemanticsError("a resize that keeps the aspect ratio")
    places = node.get("coordinate_transformation_mode", "half_pixel")
    return _resized(node, x, _target(x, scales, sizes), places)


@operator("Upsample")
def _upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    """Resize as before opset 10; before opset 9 the scales are an attribute."""
    if scales is None:
        scales = torch.tensor(node["scales"], dtype=torch.float64)
    return _resized(node, x, _target(x, scales, None), "asymmetric")


def _target(x: Tensor, scales: Tensor | None, sizes: Tensor | None) -> list[int]:
    """Return the requested spatial sizes."""
    if sizes is not None and sizes.numel():
        target = integers(sizes)
    elif scales is not None and scales.numel():
        # Products in float32, as in ONNX runtimes: 10 * 0.7 is 7 there.
        pairs = zip(x.shape, numbers(scales), strict=True)
        target = [int(ctypes.c_float(size * each).value) for size, each in pairs]
    else:
        raise UnsupportedSemanticsError("a resize without sizes and scales")
    if target[:2] != list(x.shape[:2]) or len(target) != x.dim() or x.dim() not in (3, 4, 5):
        raise UnsupportedSemanticsError("a resize of samples or channels")
    return target[2:]


def _resized(node: Node, x: Tensor, target: list[int], places: str) -> Tensor:
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        return _nearest(node, x, target, places)
    is_known = places in ("half_pixel", "pytorch_half_pixel", "align_corners")
    if not is_known or mode not in ("linear", "cubic"):
        raise UnsupportedSemanticsError(f"a resize with pixel positions '{places}'")
    if mode == "cubic" and (x.dim() != 4 or node.get("cubic_coeff_a", -0.75) != -0.75):
        raise UnsupportedSemanticsError("a cubic resize with another coefficient")
    name = _LINEAR[len(target)] if mode == "linear" else "bicubic"
    return functional.interpolate(x, target, mode=name, align_corners=places == "align_corners")


def _nearest(node: Node, x: Tensor, target: list[int], places: str) -> Tensor:
    """Resize to nearest pixels, by torch's operator if it is equal, else axis by axis."""
    how = node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
    if places == "asymmetric" and how == "floor":
        return functional.interpolate(x, target, mode="nearest")
    place, rounded = _PLACES.get(places), _ROUNDED.get(how)
    if place is None or rounded is None:
        raise UnsupportedSemanticsError(f"a resize with pixel positions '{places}' and '{how}'")
    for axis, size in enumerate(target, start=2):
        old = x.shape[axis]
        taken = [min(max(rounded(place(each, old, size)), 0), old - 1) for each in range(size)]
        x = torch.index_select(x, axis, torch.tensor(taken, dtype=torch.int64))
    return x


_PLACES: Mapping[str, Callable[[int, int, int], float]] = {
    "half_pixel": lambda each, old, new: (each + 0.5) * old / new - 0.5,
    "pytorch_half_pixel": lambda each, old, new: (each + 0.5) * old / new - 0.5 if new > 1 else 0.0,
    "asymmetric": lambda each, old, new: each * old / new,
    "align_corners": lambda each, old, new: each * (old - 1) / (new - 1) if new > 1 else 0.0,
}
"""Source position of a result pixel, by its position, the old size and the new one."""

_ROUNDED: Mapping[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda place: math.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: math.floor(place + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


@operator("GridSample")
def _grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    mode: str = node.get("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    padding, aligns = node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0))
    return functional.grid_sample(x, grid, mode, padding, aligns)


# -- recurrent layers ------------------------------------------------------------------------------

_TORCH_DOMAIN = "torch"
"""Domain of nodes with weights in torch's order."""

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""torch's gates in ONNX's order: input, output, forget, cell; update, reset, hidden."""

_DEFAULT_ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}


def convert_recurrent_weights(graph: Graph) -> Graph:
    """Return the graph with recurrent layers whose weights are in torch's order.

    Layers that torch cannot run (peepholes, other activations, computed weights) stay unchanged,
    and are unknown.
    """
    weights = dict(graph.weights)
    nodes = [
        _convert_node(node, weights) if node.operator in _GATES and not node.domain else node
        for node in graph.nodes
    ]
    used = {name for node in nodes for name in node.inputs} | set(graph.outputs)
    kept = {name: each for name, each in weights.items() if name in used}
    return replace(graph, nodes=tuple(nodes), weights=kept)


def _convert_node(node: Node, weights: dict[str, Tensor]) -> Node:
    """Return the node with torch's weights as inputs, and add these to `weights`."""
    x, inner_name, outer_name, bias_name, lengths, hidden_state, cell, peepholes = (
        *node.inputs,
        *[""] * 8,
    )[:8]
    inner, outer, bias = map(weights.get, (inner_name, outer_name, bias_name))
    # Weights must be in the file, with shapes of gates of one size.
    if inner is None or outer is None or inner.dim() != 3 or (bias_name and bias is None):
        return node
    order, directions = _GATES[node.operator], _directions(node)
    hidden = node.get("hidden_size", outer.shape[-1])
    rows = len(order) * hidden
    usual = _DEFAULT_ACTIVATIONS[node.operator] * directions
    if (
        rows <= 0
        or inner.shape[:2] != (directions, rows)
        or outer.shape != (directions, rows, hidden)
        or (bias is not None and bias.shape != (directions, 2 * rows))
        or peepholes
        or lengths
        or (node.get("activations") or usual) != usual
        or any(node.get(name, 0) for name in ("clip", "layout", "input_forget"))
        or node.get("direction", "forward") == "reverse"
        or (node.operator == "GRU" and not node.get("linear_before_reset", 0))
    ):
        return node
    made: dict[str, Tensor] = {}
    for direction in range(directions):
        parts = {"inner": inner[direction], "outer": outer[direction]}
        if bias is not None:
            parts["inner_bias"], parts["outer_bias"] = bias[direction].split(rows)
        for what, tensor in parts.items():
            gates = tensor.split(hidden)
            name = f"{inner_name}_{outer_name}_{direction}_{what}"
            made[name] = torch.cat([gates[each] for each in order])
    weights |= made
    inputs = (x, hidden_state, cell if node.operator == "LSTM" else "", *made)
    sized = {**node.attributes, "hidden_size": hidden}
    return replace(node, domain=_TORCH_DOMAIN, inputs=inputs, attributes=sized)


def _directions(node: Node) -> int:
    return 2 if node.get("direction") == "bidirectional" else 1


@operator("torch.LSTM", "torch.GRU", "torch.RNN")
def _recurrent(
    node: Node, x: Tensor, hidden: Tensor | None, cell: Tensor | None, *weights: Tensor
) -> tuple[Tensor, ...]:
    """Run one layer, in one or both directions; results are (steps, directions, samples, size)."""
    directions, size = _directions(node), node["hidden_size"]
    zeros = x.new_zeros((directions, x.shape[1], size))
    state: Any = zeros if hidden is None else hidden
    if node.operator == "LSTM":
        state = [state, zeros if cell is None else cell]
    layer: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[node.operator]
    has_bias = len(weights) == 4 * directions
    result, *last = layer(x, state, list(weights), has_bias, 1, 0.0, False, directions == 2, False)
    return result.unflatten(-1, (directions, size)).transpose(1, 2), *last
