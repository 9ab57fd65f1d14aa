"""A quantised model that computes with the integer codes, and gives what it gave in floats."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from roofline.errors import InputError, ModelError, said_by
from roofline.quantization.integer_layers import IntegerLayer, Requantization, integer_layer
from roofline.quantization.quantized_modules import QUANTIZE_INPUT, QuantizedLayer, quantized_layers
from roofline.quantization.quantizers import PACT

_RELUS = (torch.relu, torch.relu_, functional.relu, functional.relu_)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""In inference."""

_MOVERS = (nn.Flatten, nn.MaxPool2d, nn.MaxPool3d)
_MOVING = (torch.flatten, functional.max_pool2d, functional.max_pool3d)
_MOVES = ("flatten", "view", "reshape", "contiguous")


def integer_model(model: nn.Module) -> nn.Module:
    """A copy of a quantised model, for inference, whose layers multiply and sum whole numbers.

    Each layer with quantisers of its weights and of what it reads becomes an `IntegerLayer`. From
    one to the next go codes wherever nothing else reads them, and nothing but a batch norm, ReLUs,
    pooling of maxima and changes of shape stand between; around all else (additions, softmax,
    layers in floats, or with hooks) are floats. Outputs are those of the quantised model, but
    for the rounding of its float sums: a value that comes as near to the middle between two codes
    as that may get the other one.

    Args:
        model: what `quantize_model` or `load_packed` gave; it stays as it is.

    Raises:
        InputError: no layer has both quantisers, or a weight has no codes.
        ModelError: the model cannot be copied.
    """
    try:
        result = copy.deepcopy(model).eval()
    # A model's own tensors may refuse, with anything.
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__} cannot be copied ({said_by(error)}); detach the tensors that"
            " it keeps from their graphs"
        ) from None
    replaced: dict[nn.Module, nn.Module] = {}
    for name, layer in quantized_layers(result).items():
        if not _can_be_replaced(layer):
            continue
        try:
            replaced[layer.module] = integer_layer(layer).eval()
        except InputError as error:
            raise InputError(f"{name or type(model).__name__}: {error}") from None
    if not replaced:
        raise InputError(
            f"{type(model).__name__} has no layer whose weights and activations are both"
            " quantised, and that has no hooks; make them with quantize_model first"
        )
    result = _with(result, replaced)
    for link in _links(result):
        result = _linked(result, link)
    return result


def integer_layers(model: nn.Module) -> Mapping[str, IntegerLayer]:
    """The layers of a model that compute with whole numbers, by their qualified names."""
    return {name: each for name, each in model.named_modules() if isinstance(each, IntegerLayer)}


def _can_be_replaced(layer: QuantizedLayer) -> bool:
    """Whether it has both quantisers; and no hooks of users, who expect what it is in floats."""
    hooks = {*layer.module._forward_hooks, *layer.module._forward_pre_hooks} - {QUANTIZE_INPUT}
    return layer.weight_quantizer is not None and layer.input_quantizer is not None and not hooks


def _with(model: nn.Module, replaced: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The model with modules in the place of others, under all of their names."""
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
    """Two layers with nothing between them but what a requantisation does."""

    writer: IntegerLayer
    reader: IntegerLayer
    norm: nn.Module | None
    has_relu: bool


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, (IntegerLayer, PACT))
        return own or super().is_leaf_module(m, module_qualified_name)


def _linked(model: nn.Module, link: _Link) -> nn.Module:
    link.writer.requantization = Requantization(
        link.reader.input_quantizer, norm=link.norm, has_relu=link.has_relu
    ).eval()
    link.reader.takes_codes = True
    return model if link.norm is None else _with(model, {link.norm: nn.Identity()})


def _links(model: nn.Module) -> list[_Link]:
    """All of them; none of a model whose code torch.fx cannot follow."""
    if isinstance(model, IntegerLayer) or _has_options(model):
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What a model keeps of a pass, proxies now, it keeps in a copy.
            graph = _Tracer().trace(copy.deepcopy(model))
    # It runs the model's own code, which may take no proxies, and raise anything.
    except Exception:
        return []
    modules = {
        node: model.get_submodule(str(node.target))
        for node in graph.nodes
        if node.op == "call_module"
    }
    calls = Counter(modules.values())
    found = (
        _link(node, module, modules, calls)
        for node, module in modules.items()
        if isinstance(module, IntegerLayer) and calls[module] == 1
    )
    return [each for each in found if each is not None]


def _has_options(model: nn.Module) -> bool:
    """Whether it can be called in ways that one trace does not tell of."""
    parameters = inspect.signature(model.forward).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(
        each.default is not inspect.Parameter.empty or each.kind in variable for each in parameters
    )


def _link(
    node: fx.Node,
    writer: IntegerLayer,
    modules: Mapping[fx.Node, nn.Module],
    calls: Mapping[nn.Module, int],
) -> _Link | None:
    """The layer that reads what one writes, where codes can go from the one to the other."""
    link = _Link(writer=writer, reader=writer, norm=None, has_relu=False)
    has_moved = False
    while True:
        if len(node.users) != 1:
            return None
        before, node = node, next(iter(node.users))
        if node.all_input_nodes != [before] or not node.args or node.args[0] is not before:
            return None
        module = modules.get(node)
        if isinstance(module, IntegerLayer):
            link.reader = module
            return link if calls[module] == 1 and len(node.args) == 1 else None
        if module is not None and (module._forward_hooks or module._forward_pre_hooks):
            return None
        if module is not None and _is_norm(module):
            if calls[module] > 1 or link.norm is not None or link.has_relu or has_moved:
                return None
            link.norm = module
        elif isinstance(module, nn.ReLU) or _calls(node, _RELUS, ("relu", "relu_")):
            link.has_relu = True
        elif isinstance(module, _MOVERS) or _calls(node, _MOVING, _MOVES):
            has_moved = True
        elif not isinstance(module, _NOTHING):
            return None


def _is_norm(module: Any) -> bool:
    return isinstance(module, _NORMS) and module.running_mean is not None and not module.training


def _calls(node: fx.Node, functions: tuple[Any, ...], methods: tuple[str, ...]) -> bool:
    if node.op == "call_function":
        return node.target in functions
    return node.op == "call_method" and node.target in methods
