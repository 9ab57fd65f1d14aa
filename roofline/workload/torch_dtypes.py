"""Conversion between torch's data types and ours."""

from __future__ import annotations

import functools

import torch

from roofline.core.dtypes import DType, dtype
from roofline.errors import InputError
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.tensors import InputSpec


@functools.cache
def dtype_of(torch_dtype: torch.dtype) -> DType:
    """Return our data type for torch's."""
    return dtype(str(torch_dtype).removeprefix("torch."))


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's data type called `name`."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"unknown torch dtype '{name}'; use float32, bfloat16, float16 or float64")
    return found


def input_dtype(request: InputRequest, change: torch.dtype | None) -> torch.dtype:
    """Return the type of an input: as requested, of the given tensor, `change`, or the default."""
    if request.dtype is not None:
        kind = torch_dtype(request.dtype.name)
        if request.like is None and request.dtype.name.startswith(("qint", "quint")):
            raise InputError(f"input dtype {request.dtype} needs a tensor, not a shape")
        return kind
    if request.like is not None and not (change and request.like.is_floating_point()):
        return request.like.dtype
    return change or torch.get_default_dtype()


def input_specs(inputs: Inputs, change: torch.dtype | None) -> tuple[InputSpec, ...]:
    """Return name, shape and data type of every input tensor."""
    return tuple(
        InputSpec(name=name, shape=request.shape, dtype=dtype_of(input_dtype(request, change)))
        for name, request in inputs.requests()
    )
