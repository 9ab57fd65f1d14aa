"""ONNX operators that resize images."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import (
    OtherwiseError,
    numbers,
    operator,
)

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
_HALF = ("half_pixel", "pytorch_half_pixel")


@operator("Resize")
def resize(
    node: Node,
    x: Tensor,
    region: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """To sizes, or by scales, as far as torch places pixels so."""
    if node.opset < 11:
        # There was no region before, and pixels lay as torch's nearest ones do.
        return _resized(node, x, _target(x, region, None), "asymmetric")
    if node.get("axes") or node.get("antialias", 0) or node.get("exclude_outside", 0):
        raise OtherwiseError("a resize of some axes, or one that weighs pixels otherwise")
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise OtherwiseError("a resize that keeps the ratio of sides")
    places = node.get("coordinate_transformation_mode", "half_pixel")
    return _resized(node, x, _target(x, scales, sizes), places)


@operator("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    """What Resize was before opset 10; before opset 9 its scales were an attribute."""
    if scales is None:
        scales = torch.tensor(node["scales"], dtype=torch.float64)
    return _resized(node, x, _target(x, scales, None), "asymmetric")


def _target(x: Tensor, scales: Tensor | None, sizes: Tensor | None) -> list[int]:
    """The shape that is asked for.

    Raises:
        OtherwiseError: it is not told, or samples or channels are resized too.
    """
    if sizes is not None and sizes.numel():
        target = [int(each) for each in numbers(sizes)]
    elif scales is not None and scales.numel():
        # The products are float32, as ONNX's runtimes compute them: 10 * 0.7 is 7 there.
        pairs = zip(x.shape, numbers(scales), strict=True)
        target = [int(ctypes.c_float(size * each).value) for size, each in pairs]
    else:
        raise OtherwiseError("a resize without sizes and scales")
    if target[:2] != list(x.shape[:2]) or len(target) != x.dim() or x.dim() not in (3, 4, 5):
        raise OtherwiseError("a resize of samples or channels")
    return target[2:]


def _resized(node: Node, x: Tensor, target: list[int], places: str) -> Tensor:
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        return _nearest(node, x, target, places)
    if places not in (*_HALF, "align_corners") or mode not in ("linear", "cubic"):
        raise OtherwiseError(f"a resize whose pixels lie as '{places}' says")
    if mode == "cubic" and (x.dim() != 4 or node.get("cubic_coeff_a", -0.75) != -0.75):
        raise OtherwiseError("a cubic resize of another curve")
    name = _LINEAR[len(target)] if mode == "linear" else "bicubic"
    return functional.interpolate(x, target, mode=name, align_corners=places == "align_corners")


def _nearest(node: Node, x: Tensor, target: list[int], places: str) -> Tensor:
    """By torch's own operator where it takes the same pixels, else axis by axis."""
    how = node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
    if places == "asymmetric" and how == "floor":
        return functional.interpolate(x, target, mode="nearest")
    place, rounded = _PLACES.get(places), _ROUNDED.get(how)
    if place is None or rounded is None:
        raise OtherwiseError(f"a resize whose pixels lie as '{places}' says, by '{how}'")
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
"""Where a pixel of the result lies in the image: of its place, the old size and the new one."""

_ROUNDED: Mapping[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda place: math.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: math.floor(place + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


@operator("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Pixels at the places of a grid."""
    mode: str = node.get("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return functional.grid_sample(
        x,
        grid,
        mode,
        node.get("padding_mode", "zeros"),
        bool(node.get("align_corners", 0)),
    )


@operator("AffineGrid")
def affine_grid(node: Node, theta: Tensor, size: Tensor) -> Tensor:
    """The places of a grid after an affine map."""
    sizes = [int(each) for each in numbers(size)]
    return functional.affine_grid(theta, sizes, bool(node.get("align_corners", 0)))


@operator("CenterCropPad")
def center_crop_pad(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Cropped or padded around the middle."""
    along = node.get("axes") or list(range(x.dim()))
    for axis, size in zip(along, (int(each) for each in numbers(shape)), strict=True):
        missing = size - x.shape[axis]
        if missing < 0:
            x = x.narrow(axis, -missing // 2, size)
        elif missing:
            before = list(x.shape), list(x.shape)
            before[0][axis], before[1][axis] = missing // 2, missing - missing // 2
            x = torch.cat([x.new_zeros(before[0]), x, x.new_zeros(before[1])], axis)
    return x
