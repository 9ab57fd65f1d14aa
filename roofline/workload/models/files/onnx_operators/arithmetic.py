"""Elementwise ONNX operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import (
    OtherwiseError,
    numbers,
    operator,
)
from roofline.workload.models.files.onnx_tensors import dtype_of

_ONE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Neg": torch.neg,
    "Sqrt": torch.sqrt,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tan": torch.tan,
    "Asin": torch.asin,
    "Acos": torch.acos,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Asinh": torch.asinh,
    "Acosh": torch.acosh,
    "Atanh": torch.atanh,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Sign": torch.sign,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Round": torch.round,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "IsNaN": torch.isnan,
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Mish": functional.mish,
    "Softsign": functional.softsign,
    "Softplus": functional.softplus,
    "HardSwish": functional.hardswish,
    "Selu": torch.selu,
}
_TWO: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
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
}
_SEVERAL: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Sum": torch.add,
}


def _register() -> None:
    for name, one in _ONE.items():
        operator(name)(functools.partial(_one, one))
    for name, two in _TWO.items():
        operator(name)(functools.partial(_two, two))
    for name, several in _SEVERAL.items():
        operator(name)(functools.partial(_several, several))


def _one(function: Callable[[Tensor], Tensor], _node: Node, x: Tensor) -> Tensor:
    return function(x)


def _two(function: Callable[[Tensor, Tensor], Tensor], node: Node, x: Tensor, y: Tensor) -> Tensor:
    return function(x, _placed(node, x, y))


def _placed(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """The second operand; before opset 7 an axis said where its dimensions lie in the first."""
    if node.opset >= 7 or not node.get("broadcast") or "axis" not in node.attributes:
        return y
    behind = x.dim() - node["axis"] % x.dim() - y.dim()
    return y.reshape(*y.shape, *[1] * behind)


def _several(
    function: Callable[[Tensor, Tensor], Tensor], _node: Node, *operands: Tensor
) -> Tensor:
    return functools.reduce(function, operands)


_register()


@operator("Div")
def division(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Of whole numbers it gives whole numbers, towards zero."""
    y = _placed(node, x, y)
    if x.is_floating_point() or y.is_floating_point() or x.is_complex():
        return torch.div(x, y)
    return torch.div(x, y, rounding_mode="trunc")


@operator("Mod")
def modulo(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """With the sign of the divisor, or with ``fmod`` of what is divided."""
    return torch.fmod(x, y) if node.get("fmod", 0) else torch.remainder(x, y)


@operator("Pow")
def power(_node: Node, x: Tensor, exponent: Tensor) -> Tensor:
    """In the type of the base; a known exponent is a number, as eager code has it."""
    if exponent.numel() == 1 and not exponent.requires_grad:
        found = _number(exponent)
        if found is not None:
            return torch.pow(x, int(found) if float(found).is_integer() else found).to(x.dtype)
    return torch.pow(x, exponent).to(x.dtype)


def _number(tensor: Tensor) -> float | None:
    try:
        return numbers(tensor)[0]
    except RuntimeError:
        return None


@operator("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Between two numbers, of which either may be left out."""
    least = node.get("min") if low is None else _number(low)
    most = node.get("max") if high is None else _number(high)
    if (low is not None and least is None) or (high is not None and most is None):
        return torch.clamp(x, low, high)
    if least is None and most is None:
        return x
    if (least, most) == (0, 6):
        return functional.relu6(x)
    return torch.clamp(x, least, most)


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """A slope below zero."""
    return functional.leaky_relu(x, node.get("alpha", 0.01))


@operator("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    """An exponential below zero."""
    return functional.elu(x, node.get("alpha", 1.0))


@operator("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    """An exponential below zero, continuous in its slope."""
    return functional.celu(x, node.get("alpha", 1.0))


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    """Zero up to a threshold."""
    return functional.threshold(x, node.get("alpha", 1.0), 0.0)


@operator("PRelu")
def prelu(_node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """A learned slope below zero."""
    is_by_channel = slope.dim() == x.dim() - 1 and slope.numel() == slope.shape[0] == x.shape[1]
    if slope.numel() == 1 or is_by_channel:
        return functional.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """A line between 0 and 1; torch has that of the slope 1/6."""
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return functional.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0, 1)


@operator("Gelu", "com.microsoft.Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    """Exact, or by tanh."""
    return functional.gelu(x, approximate=node.get("approximate", "none"))


@operator("com.microsoft.FastGelu")
def fast_gelu(_node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """By tanh, after a bias."""
    return functional.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("com.microsoft.QuickGelu")
def quick_gelu(node: Node, x: Tensor) -> Tensor:
    """By a sigmoid of alpha times the value."""
    return x * torch.sigmoid(x * node.get("alpha", 1.702))


@operator("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    """The value times its sigmoid."""
    alpha = node.get("alpha", 1.0)
    return functional.silu(x) if alpha == 1.0 else x * torch.sigmoid(x * alpha)


@operator("Mean")
def mean(_node: Node, *operands: Tensor) -> Tensor:
    """Of several tensors."""
    return functools.reduce(torch.add, operands) / len(operands)


@operator("Where")
def where(_node: Node, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of two tensors by a third."""
    return torch.where(condition, x, y)


@operator("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    """Into the type that the node says."""
    return x.to(dtype_of(Path(node.name), node["to"], node.name))


@operator("CastLike")
def cast_like(_node: Node, x: Tensor, like: Tensor) -> Tensor:
    """Into the type of another tensor."""
    return x.to(like.dtype)


@operator("CumSum")
def cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    """Along an axis, from either end, with the element itself or without."""
    dimension = int(numbers(axis)[0])
    given = torch.flip(x, (dimension,)) if node.get("reverse", 0) else x
    result = torch.cumsum(given, dimension)
    if node.get("exclusive", 0):
        result = result - given
    return torch.flip(result, (dimension,)) if node.get("reverse", 0) else result


@operator("Identity")
def identity(_node: Node, x: Tensor) -> Tensor:
    """The same."""
    return x


@operator("Dropout")
def dropout(node: Node, x: Tensor, _ratio: Any = None, training: Tensor | None = None) -> Any:
    """Nothing, in inference; its mask is all true."""
    if training is not None and _number(training) != 0:
        raise OtherwiseError("dropout in training mode")
    if len(node.outputs) == 1:
        return x
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("IsInf")
def is_infinite(node: Node, x: Tensor) -> Tensor:
    """Whether it is infinite, or infinite with one of the signs."""
    if not node.get("detect_negative", 1):
        return torch.isposinf(x)
    return torch.isinf(x) if node.get("detect_positive", 1) else torch.isneginf(x)
