"""ONNX operators that resize images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import numbers, operator

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@operator("Resize")
def resize(
    node: Node,
    x: Tensor,
    _region: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """To sizes, or by scales, as far as torch places pixels so."""
    if node.get("axes"):
        raise NotImplementedError("a resize of some axes")
    return _resized(
        node, x, scales, sizes, node.get("coordinate_transformation_mode", "half_pixel")
    )


@operator("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor) -> Tensor:
    """What Resize was before opset 10."""
    return _resized(node, x, scales, None, "asymmetric")


def _resized(
    node: Node, x: Tensor, scales: Tensor | None, sizes: Tensor | None, places: str
) -> Tensor:
    if sizes is not None and sizes.numel():
        target = [int(each) for each in numbers(sizes)][2:]
    elif scales is not None:
        factors = numbers(scales)
        target = [int(size * each) for size, each in zip(x.shape, factors, strict=True)][2:]
    else:
        raise NotImplementedError("a resize without sizes and scales")
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        is_exact = places in ("half_pixel", "pytorch_half_pixel")
        return functional.interpolate(x, target, mode="nearest-exact" if is_exact else "nearest")
    name = _LINEAR[len(target)] if mode == "linear" else "bicubic"
    if places not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise NotImplementedError(f"a resize whose pixels lie as '{places}' says")
    return functional.interpolate(x, target, mode=name, align_corners=places == "align_corners")


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
