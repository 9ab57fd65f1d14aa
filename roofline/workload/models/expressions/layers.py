"""Layers of `torch.nn` in designs: their arguments, and the check of shapes between them."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import BoundArguments, Parameter, Signature
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.rnn import RNNCellBase

from roofline.core.units import format_shape
from roofline.errors import did_you_mean, error_text
from roofline.workload.inputs import InputRequest
from roofline.workload.models.expressions.syntax import Design, Group, Layer
from roofline.workload.models.libraries.names import (
    CONTAINERS,
    layer_class_names,
    normalize_layer_name,
)
from roofline.workload.torch_dtypes import input_dtype


def bind_arguments(layer: Layer, signature: Signature, design: Design) -> BoundArguments:
    """Return the arguments of a layer by name; PlacedError if they do not fit."""
    given, takes = layer.arguments or (), signature.parameters
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in takes.values())
    for each in given:
        if each.name and each.name not in takes and not takes_any:
            raise design.error(
                f"{layer.full_name} has no argument '{each.name}'"
                f"{did_you_mean(each.name, takes)} (arguments: {', '.join(takes) or 'none'})",
                each,
            )
    args = tuple(each.value for each in given if not each.name)
    kwargs: dict[str, object] = {each.name: each.value for each in given if each.name}
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        needed = [name for name, each in takes.items() if is_needed(each)]
        optional = [name for name in takes if name not in needed]
        if not needed:
            needed, optional = optional[:2], optional[2:]
        form = ", ".join([*needed, *(["…"] if optional else [])])
        raise design.error(
            f"{layer.full_name}: {error}; write {layer.full_name}({form})", layer
        ) from None


def signature_of(factory: Callable[..., Any]) -> Signature:
    """Return the signature of a factory; any arguments, if Python knows none."""
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def is_needed(parameter: Parameter) -> bool:
    """Return whether an argument is required."""
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in many


class _FirstOutput:
    """Returns a recurrent layer's output without its last state."""

    def forward(self, *inputs: Any) -> Any:
        return super().forward(*inputs)[0]  # type: ignore[misc]


class _SelfAttention:
    """Self-attention on one input, else attention on key and value; returns no weights."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
    ) -> torch.Tensor:
        key = query if key is None else key
        value = key if value is None else value
        return super().forward(query, key, value, need_weights=False)[0]  # type: ignore[misc]


_FORWARD: Mapping[type[nn.Module], type] = {
    nn.LSTM: _FirstOutput,
    nn.GRU: _FirstOutput,
    nn.RNN: _FirstOutput,
    nn.LSTMCell: _FirstOutput,
    nn.MultiheadAttention: _SelfAttention,
}
"""Mixins for layers with several results, or with one input as query, key and value."""

_ALIASES = {"attention": "multiheadattention"}

_DEFAULTS: Mapping[str, tuple[Any, Any]] = {
    # In all other layers the batch comes first, and --batch replaces dimension 0.
    "batch_first": (False, True),
    # Softmax warns without it.
    "dim": (None, -1),
}
"""Arguments with another default in designs: torch's default, and ours."""

_EXCLUDED_ARGUMENTS = ("device", "dtype")
"""Set by `--device` and `--dtype`."""


class LayerClass:
    """A layer for designs; ``name`` is written without underscores."""

    def __init__(self, name: str, kind: type[nn.Module]) -> None:
        self.name = name
        self.kind = kind
        self.signature = _signature(kind)
        mixin = _FORWARD.get(kind)
        # A subclass of the same name, so that tables show torch's name.
        self._made: type[nn.Module] = type(kind.__name__, (mixin, kind), {}) if mixin else kind

    def make(self, bound: BoundArguments) -> nn.Module:
        """Return the layer with these arguments; exceptions of torch pass through."""
        takes = self.signature.parameters
        added = {
            name: ours
            for name, (torchs, ours) in _DEFAULTS.items()
            if name in takes and takes[name].default is torchs and name not in bound.arguments
        }
        return self._made(*bound.args, **bound.kwargs, **added)


def layer_class(name: str) -> LayerClass | None:
    """Return the layer of that name, with or without underscores, or None."""
    plain = normalize_layer_name(name)
    return _layers().get(_ALIASES.get(plain, plain))


def layer_names() -> tuple[str, ...]:
    """Return the names of all layers in designs: ``conv2d``, ``attention`` …"""
    return tuple(sorted([*_layers(), *_ALIASES]))


@functools.cache
def _layers() -> Mapping[str, LayerClass]:
    found: dict[str, LayerClass] = {}
    for name in layer_class_names(dir(nn)):
        kind = getattr(nn, name)
        if not isinstance(kind, type) or not issubclass(kind, nn.Module) or name in CONTAINERS:
            continue
        # The forward of a container has only *args.
        if any(each.kind is not each.VAR_POSITIONAL for each in _parameters(kind.forward)):
            found[normalize_layer_name(name)] = LayerClass(normalize_layer_name(name), kind)
    return found


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def _signature(kind: type[nn.Module]) -> Signature:
    parameters = _parameters(kind.__init__)
    if issubclass(kind, nn.RNNBase):
        # torch declares *args; the class sets the mode.
        parameters = [each for each in _parameters(nn.RNNBase.__init__) if each.name != "mode"]
        if kind is nn.RNN:
            kind_of_one = Parameter.POSITIONAL_OR_KEYWORD
            parameters.insert(3, Parameter("nonlinearity", kind_of_one, default="tanh"))
    elif kind.__init__ is nn.Module.__init__:
        parameters = []
    return Signature([each for each in parameters if each.name not in _EXCLUDED_ARGUMENTS])


# -- expected inputs -------------------------------------------------------------------------------


def spatial_rank(layer: nn.Module) -> int | None:
    """Return the number of spatial dimensions in a layer's name; None for any."""
    name = type(layer).__name__
    return int(name[-2]) if name.endswith(("1d", "2d", "3d")) and "Dropout" not in name else None


def convolution_rank(kind: type[nn.Module]) -> int:
    """Return the number of spatial dimensions of a convolution; 0 for other layers."""
    return int(kind.__name__[-2]) if issubclass(kind, _ConvNd) else 0


def takes_indices(layer: nn.Module) -> bool:
    """Return whether a layer takes indices."""
    return isinstance(layer, (nn.Embedding, nn.EmbeddingBag))


_INPUT_SIZES: Mapping[tuple[type[nn.Module], ...], str] = {
    (_ConvNd,): "in_channels",
    (_NormBase,): "num_features",
    (nn.GroupNorm,): "num_channels",
    (nn.Linear,): "in_features",
    (nn.RNNBase, RNNCellBase): "input_size",
    (nn.MultiheadAttention,): "embed_dim",
    (nn.TransformerEncoderLayer,): "self_attn.embed_dim",
}
_OF_CHANNELS = ("in_channels", "num_features", "num_channels")


# -- shapes between layers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a design with its module; ``inner`` are the parts of a group."""

    part: Layer | Group
    module: nn.Module
    is_torch_layer: bool
    inner: tuple[Piece, ...] = ()


def leaves(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the layers in `pieces` and their groups, in execution order."""
    for piece in pieces:
        if piece.inner:
            yield from leaves(piece.inner)
        else:
            yield piece


class _UnknownError(Exception):
    """The output shape of a layer depends on values."""


def check_shapes(pieces: Sequence[Piece], inputs: Sequence[InputRequest], design: Design) -> None:
    """Run the layers on the meta device; PlacedError if one rejects its input."""
    found = list(leaves(pieces))
    if len(found) == 1 and not found[0].is_torch_layer:
        # A single model: the pass itself reports which of its modules fails.
        return
    values = [
        torch.empty(each.shape, dtype=input_dtype(each, None), device="meta") for each in inputs
    ]
    modules = [part for each in pieces for part in each.module.modules()]
    training = [each for each in modules if each.training]
    try:
        for each in training:
            each.training = False
        with torch.no_grad(), torch.device("meta"), suppress(_UnknownError):
            _ShapeCheck(design).chain(pieces, values)
    finally:
        for each in training:
            each.training = True


class _ShapeCheck:
    """Runs pieces and reports the first layer that rejects its input."""

    def __init__(self, design: Design) -> None:
        self._error = design.error
        self._is_first = True

    def chain(self, pieces: Sequence[Piece], values: Sequence[Any]) -> Any:
        """Return the output of the last piece."""
        for piece in pieces:
            values = [self._group(piece, values) if piece.inner else self._layer(piece, values)]
        return values[0]

    def _group(self, piece: Piece, values: Sequence[Any]) -> Any:
        given = self.chain(piece.inner, values)
        before, after = _format_shapes(values[:1]), _format_shapes([given])
        if isinstance(piece.part, Group) and piece.part.is_residual and before != after:
            raise self._error(
                f"residual: its output {after} does not match its input {before}",
                piece.part,
            )
        return given

    def _layer(self, piece: Piece, values: Sequence[Any]) -> Any:
        source = "the input" if self._is_first else "the previous layer"
        self._is_first = False
        if piece.is_torch_layer and (wrong := _input_problem(piece.module, values[0])):
            raise self._error(
                f"{piece.part} expects {wrong[0]} from {source}{wrong[1]}", piece.part
            )
        module = piece.module if piece.is_torch_layer else _copy(piece.module)
        try:
            given = _run_layer(module, values)
        except Exception as error:
            is_missing = isinstance(error, NotImplementedError)
            if not piece.is_torch_layer and (is_missing or "meta" in error_text(error).lower()):
                raise _UnknownError from error
            raise self._error(
                f"{piece.part} rejects {_format_shapes(values)} from {source}: {error_text(error)}",
                piece.part,
            ) from error
        if isinstance(given, torch.Tensor) and not given.numel():
            shapes = f"{_format_shapes([given])} for input {_format_shapes(values)}"
            raise self._error(f"{piece.part}: empty output {shapes}", piece.part)
        return given


def _input_problem(module: nn.Module, value: Any) -> tuple[str, str] | None:
    """Return the expected and the given input of a torch layer, and a fix; None if they fit."""
    if not isinstance(value, torch.Tensor):
        return f"a tensor, got {type(value).__name__}", ""
    has_weights = not takes_indices(module) and any(True for _ in module.parameters())
    if has_weights and not (value.is_floating_point() or value.is_complex()):
        # On the meta device torch accepts these too.
        kind = str(value.dtype).removeprefix("torch.")
        return f"floating-point numbers, got {kind}", ""
    demand = next((each for kinds, each in _INPUT_SIZES.items() if isinstance(module, kinds)), None)
    if demand is None:
        return None
    size, shape = operator.attrgetter(demand)(module), value.shape
    what, place = "input features", -1
    if demand in _OF_CHANNELS:
        is_batched = (
            len(shape) != (spatial_rank(module) or 0) + 1 or "Batch" in type(module).__name__
        )
        what, place = "input channels", int(is_batched)
    # torch itself rejects other types.
    if len(shape) <= max(place, 0) or not isinstance(size, int) or shape[place] == size:
        return None
    can_flatten = isinstance(module, nn.Linear) and value[:1].numel() == size
    fix = "; write flatten() before it" if can_flatten else ""
    return f"{size} {what}, got {shape[place]}", f": {format_shape(tuple(shape))}{fix}"


def _run_layer(module: nn.Module, values: Sequence[Any]) -> Any:
    """Return the output of a module; recurrent layers run a single step, as time adds up."""
    value = values[0]
    if not isinstance(module, nn.RNNBase) or len(values) > 1 or value.dim() not in (2, 3):
        return module(*values)
    steps = 1 if module.batch_first and value.dim() == 3 else 0
    given = module(value.narrow(steps, 0, 1))
    sizes = list(given.shape)
    sizes[steps] = value.shape[steps]
    return given.new_empty(sizes)


def _copy(module: nn.Module) -> nn.Module:
    """Return a copy of a user's module, so that it caches no meta tensors from this call."""
    if any(not each.is_meta for each in module.parameters()):
        raise _UnknownError
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise _UnknownError from error


def _format_shapes(values: Sequence[Any]) -> str:
    return ", ".join(
        format_shape(tuple(each.shape))
        if isinstance(each, torch.Tensor)
        else f"a {type(each).__name__}"
        for each in values
    )
