"""ONNX operators by torch operators: elementwise, shapes, reductions, gather and scatter.

A function takes the node and its operands (None for omitted ones), and returns a tensor or a tuple.
The torch operators that it calls are counted: a single one where torch has it. Layers are in
`onnx_layers`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from roofline.core.text import printable
from roofline.errors import ModelError
from roofline.workload.models.files.onnx_graph import DTYPES, Node, Value, dtype_of

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

RANDOM = frozenset(
    {
        *("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
        *("Bernoulli", "Multinomial"),
    }
)
"""Operators with random results."""


class UnsupportedSemanticsError(Exception):
    """A use of an operator without torch equivalent: its FLOP are unknown."""


def operator(*names: str) -> Callable[[F], F]:
    """Register a function for ONNX operators; names in other domains have the domain as prefix."""

    def decorate(function: F) -> F:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return decorate


def _numbers_or_none(tensor: Tensor) -> list[Any] | None:
    """Return the values of a tensor in order; None for a fake tensor."""
    with _disable_current_modes():
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return None
        return tensor.detach().reshape(-1).tolist()


def numbers(tensor: Tensor) -> list[Any]:
    """Return the values of a tensor in order; RuntimeError for a fake tensor."""
    found = _numbers_or_none(tensor)
    if found is None:
        raise RuntimeError("a size depends on the values of a fake tensor")
    return found


def integers(tensor: Tensor) -> list[int]:
    """Return the values of a tensor as integers; raises like `numbers`."""
    return [int(each) for each in numbers(tensor)]


def _number(tensor: Tensor) -> float | None:
    found = _numbers_or_none(tensor)
    return None if found is None else found[0]


def attribute_or_input(node: Node, name: str, operand: Tensor | None) -> list[int] | None:
    """Return integers that are an attribute or, in newer opsets, an input; None if omitted."""
    if operand is not None:
        return integers(operand)
    found: Iterable[int] | None = node.get(name)
    return None if found is None else [int(each) for each in found]


# -- tables of operators with one torch equivalent -------------------------------------------------

_UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    **{
        name.capitalize(): getattr(torch, name)
        for name in (
            *("abs", "neg", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "asinh", "acosh", "atanh", "tanh", "erf", "sign", "floor", "ceil"),
            *("round", "reciprocal", "relu", "sigmoid", "selu"),
        )
    },
    "IsNaN": torch.isnan,
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Mish": functional.mish,
    "Softsign": functional.softsign,
    "Softplus": functional.softplus,
    "HardSwish": functional.hardswish,
    "Identity": lambda x: x,
    "NonZero": lambda x: torch.nonzero(x).t(),
    "GlobalAveragePool": lambda x: torch.mean(x, list(range(2, x.dim())), keepdim=True),
    "GlobalMaxPool": lambda x: torch.amax(x, list(range(2, x.dim())), keepdim=True),
    "RandomNormalLike": torch.randn_like,
    "RandomUniformLike": torch.rand_like,
}
_BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Div": lambda x, y: (
        torch.div(x, y) if _are_real(x, y) else torch.div(x, y, rounding_mode="trunc")
    ),
}
_WITH_ATTRIBUTES: Mapping[str, Function] = {
    # Activations.
    "LeakyRelu": lambda node, x: functional.leaky_relu(x, node.get("alpha", 0.01)),
    "Elu": lambda node, x: functional.elu(x, node.get("alpha", 1.0)),
    "Celu": lambda node, x: functional.celu(x, node.get("alpha", 1.0)),
    "ThresholdedRelu": lambda node, x: functional.threshold(x, node.get("alpha", 1.0), 0.0),
    **dict.fromkeys(
        ("Gelu", "com.microsoft.Gelu"),
        lambda node, x: functional.gelu(x, approximate=node.get("approximate", "none")),
    ),
    "com.microsoft.FastGelu": lambda _, x, bias=None: functional.gelu(
        x if bias is None else x + bias, approximate="tanh"
    ),
    "com.microsoft.QuickGelu": lambda node, x: x * torch.sigmoid(x * node.get("alpha", 1.702)),
    "Swish": lambda node, x: (
        functional.silu(x)
        if (alpha := node.get("alpha", 1.0)) == 1.0
        else x * torch.sigmoid(x * alpha)
    ),
    # Several operands.
    "MatMul": lambda _, x, y: torch.matmul(x, y),
    "Mod": lambda node, x, y: (torch.fmod if node.get("fmod", 0) else torch.remainder)(x, y),
    "Max": lambda _, *of: functools.reduce(torch.maximum, of),
    "Min": lambda _, *of: functools.reduce(torch.minimum, of),
    "Sum": lambda _, *of: functools.reduce(torch.add, of),
    "Mean": lambda _, *of: functools.reduce(torch.add, of) / len(of),
    "Where": lambda _, *of: torch.where(*of),
    "Concat": lambda node, *of: torch.cat(of, node["axis"]),
    "Einsum": lambda node, *of: torch.einsum(node["equation"], *of),
    "Range": lambda _, *of: torch.arange(*(numbers(each)[0] for each in of), dtype=of[0].dtype),
    # Types and positions.
    "Cast": lambda node, x: x.to(dtype_of(Path(node.name), node["to"], node.name)),
    "CastLike": lambda _, x, like: x.to(like.dtype),
    "ArgMax": lambda node, x: torch.argmax(x, node.get("axis", 0), keepdim=_keeps(node)),
    "ArgMin": lambda node, x: torch.argmin(x, node.get("axis", 0), keepdim=_keeps(node)),
    "GatherElements": lambda node, x, indices: torch.gather(
        x, node.get("axis", 0), indices.to(torch.int64)
    ),
    # Shapes.
    "Transpose": lambda node, x: x.permute(node.get("perm") or list(reversed(range(x.dim())))),
    "Expand": lambda _, x, shape: x.expand(torch.broadcast_shapes(x.shape, tuple(integers(shape)))),
    "Tile": lambda _, x, repeats: x.repeat(integers(repeats)),
    "Trilu": lambda node, x, diagonal=None: (torch.triu if node.get("upper", 1) else torch.tril)(
        x, 0 if diagonal is None else integers(diagonal)[0]
    ),
    # Normalization and grids.
    "InstanceNormalization": lambda node, x, scale, bias: functional.instance_norm(
        x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5)
    ),
    "LpNormalization": lambda node, x: functional.normalize(
        x, float(node.get("p", 2)), node.get("axis", -1)
    ),
    "LRN": lambda node, x: functional.local_response_norm(
        x, node["size"], node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    ),
    "AffineGrid": lambda node, theta, size: functional.affine_grid(
        theta, integers(size), bool(node.get("align_corners", 0))
    ),
}


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((each % x.dim() for each in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


_REDUCTIONS: Mapping[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceMean": lambda x, axes, keep: torch.mean(x, axes, keepdim=keep),
    "ReduceSum": lambda x, axes, keep: torch.sum(x, axes, keepdim=keep, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
}


def _keeps(node: Node) -> bool:
    return bool(node.get("keepdims", 1))


def _are_real(x: Tensor, y: Tensor) -> bool:
    return x.is_floating_point() or y.is_floating_point() or x.is_complex()


def _call_unary(function: Callable[[Tensor], Tensor], _node: Node, x: Tensor) -> Tensor:
    return function(x)


def _call_binary(
    function: Callable[[Tensor, Tensor], Tensor], node: Node, x: Tensor, y: Tensor
) -> Tensor:
    if node.opset < 7 and node.get("broadcast") and "axis" in node.attributes:
        # The axis aligns the dimensions of the second operand with the first.
        behind = x.dim() - node["axis"] % x.dim() - y.dim()
        y = y.reshape(*y.shape, *[1] * behind)
    return function(x, y)


def _call_reduction(
    function: Function, node: Node, x: Tensor, axes: Tensor | None = None
) -> Tensor:
    along = attribute_or_input(node, "axes", axes)
    if not along and node.get("noop_with_empty_axes", 0):
        return x
    return function(x, along or list(range(x.dim())), _keeps(node))


FUNCTIONS: dict[str, Function] = {
    **_WITH_ATTRIBUTES,
    **{name: functools.partial(_call_unary, each) for name, each in _UNARY.items()},
    **{name: functools.partial(_call_binary, each) for name, each in _BINARY.items()},
    **{name: functools.partial(_call_reduction, each) for name, each in _REDUCTIONS.items()},
}
"""Functions of known operators, by full name."""


# -- elementwise -----------------------------------------------------------------------------------


@operator("Pow")
def _power(_node: Node, x: Tensor, exponent: Tensor) -> Tensor:
    """Return a power in the type of the base; a known exponent is a number, as in eager code."""
    if exponent.numel() == 1 and not exponent.requires_grad:
        found = _number(exponent)
        if found is not None:
            return torch.pow(x, int(found) if float(found).is_integer() else found).to(x.dtype)
    return torch.pow(x, exponent).to(x.dtype)


@operator("Clip")
def _clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    least = node.get("min") if low is None else _number(low)
    most = node.get("max") if high is None else _number(high)
    if (low is not None and least is None) or (high is not None and most is None):
        return torch.clamp(x, low, high)
    if least is None and most is None:
        return x
    return functional.relu6(x) if (least, most) == (0, 6) else torch.clamp(x, least, most)


@operator("PRelu")
def _prelu(_node: Node, x: Tensor, slope: Tensor) -> Tensor:
    is_by_channel = slope.dim() == x.dim() - 1 and slope.numel() == slope.shape[0] == x.shape[1]
    if slope.numel() == 1 or is_by_channel:
        return functional.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def _hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """Return a hard sigmoid; torch has that of slope 1/6."""
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return functional.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0, 1)


@operator("CumSum")
def _cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    """Return sums along an axis, from either end, inclusive or exclusive."""
    dimension, is_reverse = integers(axis)[0], node.get("reverse", 0)
    x = torch.flip(x, (dimension,)) if is_reverse else x
    result = torch.cumsum(x, dimension)
    if node.get("exclusive", 0):
        result = result - x
    return torch.flip(result, (dimension,)) if is_reverse else result


@operator("Dropout")
def _dropout(node: Node, x: Tensor, _ratio: Any = None, training: Tensor | None = None) -> Any:
    """Return the operand: inference only; the mask is all true."""
    if training is not None and _number(training) != 0:
        raise UnsupportedSemanticsError("dropout in training mode")
    return x if len(node.outputs) == 1 else (x, torch.ones_like(x, dtype=torch.bool))


@operator("IsInf")
def _is_infinite(node: Node, x: Tensor) -> Tensor:
    if not node.get("detect_negative", 1):
        return torch.isposinf(x)
    return torch.isinf(x) if node.get("detect_positive", 1) else torch.isneginf(x)


@operator("TopK")
def _top_k(node: Node, x: Tensor, count: Tensor | None = None) -> tuple[Tensor, ...]:
    many = integers(count)[0] if count is not None else node["k"]
    is_largest, is_sorted = (bool(node.get(name, 1)) for name in ("largest", "sorted"))
    return tuple(torch.topk(x, many, node.get("axis", -1), is_largest, is_sorted))


# -- shapes ----------------------------------------------------------------------------------------


@operator("Reshape")
def _reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Reshape; size 0 keeps the old size, -1 is inferred."""
    sizes = integers(shape)
    if not node.get("allowzero", 0):
        sizes = [x.shape[place] if each == 0 else each for place, each in enumerate(sizes)]
    return torch.reshape(x, sizes)


@operator("Flatten")
def _flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return torch.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Unsqueeze")
def _unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    places = attribute_or_input(node, "axes", axes) or []
    rank = x.dim() + len(places)
    for place in sorted(each % rank for each in places):
        x = x.unsqueeze(place)
    return x


@operator("Squeeze")
def _squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    places = attribute_or_input(node, "axes", axes)
    if places is None:
        return x.squeeze()
    return x.squeeze(tuple(places)) if places else x


@operator("Split")
def _split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Split into parts of given or equal sizes."""
    axis = node.get("axis", 0)
    same = -(-x.shape[axis] // len(node.outputs))
    return tuple(torch.split(x, attribute_or_input(node, "split", sizes) or same, axis))


@operator("Slice")
def _slices(node: Node, x: Tensor, *operands: Tensor | None) -> Tensor:
    starts, ends, axes, steps = (*operands, None, None, None, None)[:4]
    begin, end = (
        integers(operand) if operand is not None else node[name]
        for name, operand in (("starts", starts), ("ends", ends))
    )
    along = attribute_or_input(node, "axes", axes) or list(range(len(begin)))
    stride = integers(steps) if steps is not None else [1] * len(begin)
    for along_axis, first, last, step in zip(along, begin, end, stride, strict=True):
        axis = along_axis % x.dim()
        size = x.shape[axis]
        if step > 0:
            x = x[(slice(None),) * axis + (slice(*slice(first, last, step).indices(size)),)]
        else:
            places = range(size)[slice(first, last if last >= -size else None, step)]
            x = torch.index_select(x, axis, torch.tensor(list(places), dtype=torch.int64))
    return x


@operator("Constant")
def _constant(node: Node) -> Tensor:
    if node.get("value") is not None:
        return node["value"]
    for name, each in node.attributes.items():
        if kind := {"value_float": torch.float32, "value_int": torch.int64}.get(name.rstrip("s")):
            return torch.tensor(each, dtype=kind)
    raise UnsupportedSemanticsError("a string or sparse constant")


@operator("ConstantOfShape")
def _constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    value, sizes = node.get("value"), integers(shape)
    if value is None:
        return torch.zeros(sizes)
    return torch.full(sizes, numbers(value)[0], dtype=value.dtype)


@operator("EyeLike")
def _eye_like(node: Node, x: Tensor) -> Tensor:
    kind = dtype_of(Path(node.name), node["dtype"], node.name) if node.get("dtype") else x.dtype
    ones, offset = torch.ones(tuple(x.shape), dtype=kind), node.get("k", 0)
    return torch.triu(torch.tril(ones, offset), offset)


@operator("Pad")
def _pad(node: Node, x: Tensor, *operands: Tensor | None) -> Tensor:
    """Pad both ends of axes, by a value, edge or reflection."""
    pads, value, axes = (*operands, None, None, None)[:3]
    sizes = attribute_or_input(node, "pads", pads) or []
    along = attribute_or_input(node, "axes", axes) or list(range(x.dim()))
    both = {axis % x.dim(): (sizes[i], sizes[i + len(along)]) for i, axis in enumerate(along)}
    order = [each for axis in reversed(range(x.dim())) for each in both.get(axis, (0, 0))]
    while len(order) > 2 and order[-2:] == [0, 0]:
        order = order[:-2]
    mode: str = node.get("mode", "constant")
    if mode != "constant":
        return functional.pad(x, order, {"edge": "replicate", "wrap": "circular"}.get(mode, mode))
    filling = numbers(value)[0] if value is not None else node.get("value", 0.0)
    return functional.pad(x, order, value=filling)


@operator("CenterCropPad")
def _center_crop_pad(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    along = node.get("axes") or list(range(x.dim()))
    for axis, size in zip(along, integers(shape), strict=True):
        missing = size - x.shape[axis]
        if missing < 0:
            x = x.narrow(axis, -missing // 2, size)
        elif missing:
            ends = (missing // 2, missing - missing // 2)
            before, after = (
                x.new_zeros([*x.shape[:axis], each, *x.shape[axis + 1 :]]) for each in ends
            )
            x = torch.cat([before, x, after], axis)
    return x


@operator("DepthToSpace")
def _depth_to_space(node: Node, x: Tensor) -> Tensor:
    """Rearrange channels into pixels; torch's pixel shuffle is the mode CRD."""
    block = node["blocksize"]
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    fewer = channels // block**2
    parts = x.reshape(batch, block, block, fewer, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(batch, fewer, height * block, width * block)


@operator("SpaceToDepth")
def _space_to_depth(node: Node, x: Tensor) -> Tensor:
    block = node["blocksize"]
    batch, channels, height, width = x.shape
    rows, columns = height // block, width // block
    parts = x.reshape(batch, channels, rows, block, columns, block).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(batch, channels * block**2, rows, columns)


# -- gather and scatter ----------------------------------------------------------------------------

_FEW = 4096


@operator("Gather")
def _gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """Gather slices along an axis; rows of a table by torch's embedding."""
    axis = node.get("axis", 0) % max(x.dim(), 1)
    known = _numbers_or_none(indices) if indices.numel() <= _FEW else None
    if known is not None and not indices.dim():
        return x.select(axis, int(known[0]))
    if known is not None and min(known, default=0) < 0:
        indices = torch.tensor([each % x.shape[axis] for each in known]).reshape(indices.shape)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return functional.embedding(indices, x)
    chosen = torch.index_select(x, axis, indices.reshape(-1))
    return chosen.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@operator("GatherND")
def _gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    if node.get("batch_dims", 0):
        raise UnsupportedSemanticsError("GatherND with batch dimensions")
    return x[tuple(indices.unbind(-1))]


@operator("ScatterElements", "Scatter")
def _scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    indices = indices.to(torch.int64)
    if how == "none":
        return torch.scatter(x, axis, indices, updates)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[how]
    return torch.scatter_reduce(x, axis, indices, updates, name)


@operator("ScatterND")
def _scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    how = node.get("reduction", "none")
    if how not in ("none", "add"):
        raise UnsupportedSemanticsError(f"ScatterND with reduction {how}")
    return torch.index_put(x, tuple(indices.unbind(-1)), updates, accumulate=how == "add")


@operator("OneHot")
def _one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    classes = integers(depth)[0]
    hot = functional.one_hot(indices.to(torch.int64) % classes, classes)
    off, on = numbers(values)
    result = torch.where(hot > 0, on, off).to(values.dtype)
    return result.movedim(-1, node.get("axis", -1))


# -- unknown operators: their bytes are counted, their FLOP are unknown ----------------------------

# Not in the file of the model's class, whose caches are cleared after a pass.

NAMESPACE = "onnx_operator"
"""Namespace in results: ``onnx_operator.FancyAttention``."""

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_DTYPES = tuple(DTYPES.values())


def call_unknown(
    node: Node, operands: Sequence[Tensor | None], known: Mapping[str, Value], *, title: str
) -> tuple[Tensor | None, ...]:
    """Return the results of an unknown operator, with the shapes declared in the file.

    Omitted outputs are None. Raises ModelError if the file declares no shape.
    """
    name = printable(node.full_name)[:80]
    sizes, ranks, kinds = list[int](), list[int](), list[int]()
    for value in (known.get(output) for output in node.outputs if output):
        shape = value.shape if value is not None else None
        found = [each for each in shape or () if isinstance(each, int) and each >= 0]
        if value is None or shape is None or len(found) != len(shape):
            raise ModelError(
                f"{title}: unknown ONNX operator {name} ('{printable(node.name)[:60]}') without a"
                " declared output shape; run onnx.shape_inference.infer_shapes on the model, or"
                " export it as .pt2"
            )
        sizes += found
        ranks.append(len(found))
        kinds.append(_DTYPES.index(value.dtype))
    safe = re.sub(r"[^A-Za-z0-9]", "_", name)
    call = _torch_operator(safe if safe[:1].isalpha() else f"operator_{safe}")
    results = iter(call([each for each in operands if each is not None], sizes, ranks, kinds))
    return tuple(next(results) if output else None for output in node.outputs)


@functools.cache
def _torch_operator(name: str) -> Any:
    """Return the torch operator of that name, defined on first use."""
    _LIBRARY.define(f"{name}(Tensor[] inputs, int[] sizes, int[] ranks, int[] kinds) -> Tensor[]")

    def results(
        inputs: list[Tensor], sizes: list[int], ranks: list[int], kinds: list[int]
    ) -> list[Tensor]:
        left = iter(sizes)
        device = inputs[0].device if inputs else torch.device("cpu")
        return [
            torch.empty([next(left) for _ in range(rank)], dtype=_DTYPES[kind], device=device)
            for rank, kind in zip(ranks, kinds, strict=True)
        ]

    def refuse(*_: Any) -> Any:
        raise ModelError(f"unknown ONNX operator {name}: it can be counted, but not run")

    torch.library.register_fake(f"{NAMESPACE}::{name}", results, lib=_LIBRARY)
    _LIBRARY.impl(name, refuse, "CPU")
    return getattr(getattr(torch.ops, NAMESPACE), name)
