"""Batch-norm folding for inference, with unchanged codes.

A batch norm scales and shifts each channel. For a quantized layer, the factor is stored next to the
codes (`ChannelScale`, after the quantizer in the weight's parametrization), so that clipping and
codes stay the same. Float weights are multiplied. The shift becomes part of the bias.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from roofline.quantization.quantized_modules import (
    ChannelScale,
    is_plain_layer,
    weight_quantizer_of,
)
from roofline.quantization.tracing import SignFlow, base_name, records_of
from roofline.workload.operators import OperatorRecord

_PRODUCTS = ("convolution", "linear", "addmm", "mm")
_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


def fold_batch_norms(model: nn.Module, inputs: Any = None) -> nn.Module:
    """Return a copy for inference, with batch norms folded into the layers before them.

    Folded are batch norms with running statistics that are the only reader of a layer, if both run
    once. After linear layers, this requires `inputs` to prove that the layer writes matrices.
    Modified batch norms (with activations or hooks), and layers with computed or shared float
    weights, are kept; a warning names the kept ones.

    Args:
        model: trained result of `quantize_model`; stays unchanged.
        inputs: as for `quantize_model`.

    Raises:
        ModelError: the order of operators cannot be determined.
        InputError: invalid `inputs`.
    """
    records = records_of(model, inputs)
    folded = copy.deepcopy(model)
    for layer, norm in list(_find_pairs(model, records, has_shapes=inputs is not None)):
        _fold(folded.get_submodule(layer), folded.get_submodule(norm))
        parent, _, name = norm.rpartition(".")
        setattr(folded.get_submodule(parent), name, nn.Identity())
    folded.eval()
    left = [name for name, module in folded.named_modules() if isinstance(module, _BatchNorm)]
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        fix = "" if inputs is not None else "; give inputs=… if it follows a linear layer"
        warnings.warn(f"not folded: {', '.join(left[:5])}{more}{fix}", UserWarning, stacklevel=2)
    return folded


def _find_pairs(
    model: nn.Module, records: Sequence[OperatorRecord], *, has_shapes: bool
) -> Iterator[tuple[str, str]]:
    """Yield names of layers, each with the batch norm that can be folded into it."""
    flow = SignFlow(records)
    modules = dict(model.named_modules(remove_duplicate=False))
    names = Counter(map(id, modules.values()))
    owners = Counter(
        id(each) for module in model.modules() for each in module.parameters(recurse=False)
    )
    products = Counter(each.module_path for each in records if base_name(each.op) in _PRODUCTS)
    norms = Counter(each.module_path for each in records if "batchnorm" in base_name(each.op))
    for place, record in enumerate(records):
        if "batchnorm" not in base_name(record.op) or not flow.writers[place]:
            continue
        writer = flow.writers[place][0]
        if writer is None or base_name(records[writer].op) not in _PRODUCTS:
            continue
        path = records[writer].module_path
        layer, norm = modules.get(path), modules.get(record.module_path)
        if layer is None or not is_plain_layer(layer) or layer._forward_hooks:
            continue
        if not isinstance(norm, _BatchNorm) or not _is_plain(norm):
            continue
        is_alone = products[path] == 1 and norms[record.module_path] == 1
        is_matrix = has_shapes and len(records[writer].outputs[0].shape) == 2
        if (
            is_alone
            and norm.running_mean is not None
            and names[id(layer)] == names[id(norm)] == 1
            and (weight_quantizer_of(layer) is not None or owners[id(layer.weight)] == 1)
            and flow.has_single_reader(writer)
            and _channels(layer) == norm.num_features
            and (is_matrix or not isinstance(layer, nn.Linear))
            and record.inputs[0].shape == records[writer].outputs[0].shape
        ):
            yield path, record.module_path


def _is_plain(norm: nn.Module) -> bool:
    """Return whether the module computes as torch's own batch norm, without hooks."""
    is_own = type(norm).forward in _FORWARDS and "forward" not in vars(norm)
    return is_own and not norm._forward_hooks and not norm._forward_pre_hooks


def _channels(layer: Any) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)


def _fold(layer: Any, norm: Any) -> None:
    kind = layer.weight.dtype
    with torch.no_grad():
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        scale = (variance + norm.eps).rsqrt()
        shift = torch.zeros_like(mean) if layer.bias is None else layer.bias.double()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        shift = (shift - mean) * scale
        if norm.bias is not None:
            shift = shift + norm.bias.double()
        by_channel = ChannelScale(scale.to(kind), layer)
        if weight_quantizer_of(layer) is not None:
            parametrize.register_parametrization(layer, "weight", by_channel)
        else:
            layer.weight.copy_(by_channel(layer.weight))
        layer.bias = nn.Parameter(shift.to(kind))
