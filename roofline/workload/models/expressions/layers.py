"""The layers of torch that a design can have, found from `torch.nn` by class: what they take, and
whether each takes what the one before it gives."""

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
    """Return the arguments of a layer by their names; PlacedError where they do not fit."""
    given, takes = layer.arguments or (), signature.parameters
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in takes.values())
    for each in given:
        if each.name and each.name not in takes and not takes_any:
            raise design.error(
                f"{layer.full_name} takes no argument '{each.name}'"
                f"{did_you_mean(each.name, takes)} (it takes {', '.join(takes) or 'none'})",
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
            f"{layer.full_name}: {error}; it is written {layer.full_name}({form})", layer
        ) from None


def signature_of(factory: Callable[..., Any]) -> Signature:
    """What a factory takes; anything, where Python does not know."""
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def is_needed(parameter: Parameter) -> bool:
    """Return whether a function cannot be called without an argument."""
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in many


class _FirstOutput:
    """Gives a recurrent layer's output, without its last state."""

    def forward(self, *inputs: Any) -> Any:
        return super().forward(*inputs)[0]  # type: ignore[misc]


class _SelfAttention:
    """Attends to its only input, or to a second and third; gives no weights."""

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
"""Layers that give more than one tensor, or take one thrice; their parameters are torch's own."""

_ALIASES = {"attention": "multiheadattention"}

_DEFAULTS: Mapping[str, tuple[Any, Any]] = {
    # Shapes begin with the batch in all other layers, and --batch replaces the first size.
    "batch_first": (False, True),
    # Of softmax, which warns where it is not said.
    "dim": (None, -1),
}
"""Arguments that are taken to be other than what torch takes them to be: its default, and ours."""

_EXCLUDED_ARGUMENTS = ("device", "dtype")
"""What `--device` and `--dtype` say."""


class LayerClass:
    """A layer that a design can have: ``name`` is how it is written, without underscores."""

    def __init__(self, name: str, kind: type[nn.Module]) -> None:
        self.name = name
        self.kind = kind
        self.signature = _signature(kind)
        mixin = _FORWARD.get(kind)
        # A subclass of the same name, so that tables call it what torch calls it.
        self._made: type[nn.Module] = type(kind.__name__, (mixin, kind), {}) if mixin else kind

    def make(self, bound: BoundArguments) -> nn.Module:
        """Return the layer with these arguments; raises whatever torch says against them."""
        takes = self.signature.parameters
        added = {
            name: ours
            for name, (torchs, ours) in _DEFAULTS.items()
            if name in takes and takes[name].default is torchs and name not in bound.arguments
        }
        return self._made(*bound.args, **bound.kwargs, **added)


def layer_class(name: str) -> LayerClass | None:
    """The layer that is written so, with or without underscores; None if torch has none."""
    plain = normalize_layer_name(name)
    return _layers().get(_ALIASES.get(plain, plain))


def layer_names() -> tuple[str, ...]:
    """The names of all layers as they are written: ``conv2d``, ``attention`` …"""
    return tuple(sorted([*_layers(), *_ALIASES]))


@functools.cache
def _layers() -> Mapping[str, LayerClass]:
    found: dict[str, LayerClass] = {}
    for name in layer_class_names(dir(nn)):
        kind = getattr(nn, name)
        if not isinstance(kind, type) or not issubclass(kind, nn.Module) or name in CONTAINERS:
            continue
        # The forward of a container has no argument of its own.
        if any(each.kind is not each.VAR_POSITIONAL for each in _parameters(kind.forward)):
            found[normalize_layer_name(name)] = LayerClass(normalize_layer_name(name), kind)
    return found


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def _signature(kind: type[nn.Module]) -> Signature:
    parameters = _parameters(kind.__init__)
    if issubclass(kind, nn.RNNBase):
        # torch declares *args; the mode is the class's own.
        parameters = [each for each in _parameters(nn.RNNBase.__init__) if each.name != "mode"]
        if kind is nn.RNN:
            kind_of_one = Parameter.POSITIONAL_OR_KEYWORD
            parameters.insert(3, Parameter("nonlinearity", kind_of_one, default="tanh"))
    elif kind.__init__ is nn.Module.__init__:
        parameters = []
    return Signature([each for each in parameters if each.name not in _EXCLUDED_ARGUMENTS])


# -- what they take --------------------------------------------------------------------------------


def spatial_rank(layer: nn.Module) -> int | None:
    """How many spatial dimensions a layer of torch has, as its name says; None for any."""
    name = type(layer).__name__
    return int(name[-2]) if name.endswith(("1d", "2d", "3d")) and "Dropout" not in name else None


def convolution_rank(kind: type[nn.Module]) -> int:
    """How many spatial dimensions a class of convolutions has; 0 for other layers."""
    return int(kind.__name__[-2]) if issubclass(kind, _ConvNd) else 0


def takes_indices(layer: nn.Module) -> bool:
    """Whether a layer of torch looks rows up."""
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


# -- does each take what it gets -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a design and the module that was made of it; ``inner`` are those of a group."""

    part: Layer | Group
    module: nn.Module
    is_torch_layer: bool
    inner: tuple[Piece, ...] = ()


def leaves(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The layers among `pieces`, those of groups too, in the order in which they run."""
    for piece in pieces:
        if piece.inner:
            yield from leaves(piece.inner)
        else:
            yield piece


class _UnknownError(Exception):
    """What a layer gives cannot be known without values."""


def check_shapes(pieces: Sequence[Piece], inputs: Sequence[InputRequest], design: Design) -> None:
    """Run the layers on the meta device; PlacedError where one does not take what it gets."""
    found = list(leaves(pieces))
    if len(found) == 1 and not found[0].is_torch_layer:
        # Nothing is before it, and the pass itself says which of its own modules fails.
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
    """Runs pieces; knows whether there was a layer before."""

    def __init__(self, design: Design) -> None:
        self._error = design.error
        self._is_first = True

    def chain(self, pieces: Sequence[Piece], values: Sequence[Any]) -> Any:
        """What the last piece gives of `values`."""
        for piece in pieces:
            values = [self._group(piece, values) if piece.inner else self._layer(piece, values)]
        return values[0]

    def _group(self, piece: Piece, values: Sequence[Any]) -> Any:
        given = self.chain(piece.inner, values)
        before, after = _format_shapes(values[:1]), _format_shapes([given])
        if isinstance(piece.part, Group) and piece.part.is_residual and before != after:
            raise self._error(
                f"residual: what it gives, {after}, cannot be added to its input, {before}",
                piece.part,
            )
        return given

    def _layer(self, piece: Piece, values: Sequence[Any]) -> Any:
        source = "the input" if self._is_first else "the layer before"
        self._is_first = False
        if piece.is_torch_layer and (wrong := _input_problem(piece.module, values[0])):
            raise self._error(f"{piece.part} takes {wrong[0]} from {source}{wrong[1]}", piece.part)
        module = piece.module if piece.is_torch_layer else _copy(piece.module)
        try:
            given = _run_layer(module, values)
        except Exception as error:
            is_missing = isinstance(error, NotImplementedError)
            if not piece.is_torch_layer and (is_missing or "meta" in error_text(error).lower()):
                raise _UnknownError from error
            raise self._error(
                f"{piece.part} does not take {_format_shapes(values)} from {source}: {error_text(error)}",
                piece.part,
            ) from error
        if isinstance(given, torch.Tensor) and not given.numel():
            raise self._error(
                f"{piece.part} gives nothing of {_format_shapes(values)}: {_format_shapes([given])}",
                piece.part,
            )
        return given


def _input_problem(module: nn.Module, value: Any) -> tuple[str, str] | None:
    """What a layer of torch takes and does not get, and what to do; None where it fits."""
    if not isinstance(value, torch.Tensor):
        return f"a tensor, but gets a {type(value).__name__}", ""
    has_weights = not takes_indices(module) and any(True for _ in module.parameters())
    if has_weights and not (value.is_floating_point() or value.is_complex()):
        # Without memory torch computes these too.
        kind = str(value.dtype).removeprefix("torch.")
        return f"floating-point numbers, but gets {kind}", ""
    demand = next((each for kinds, each in _INPUT_SIZES.items() if isinstance(module, kinds)), None)
    if demand is None:
        return None
    size, shape, what, place = operator.attrgetter(demand)(module), value.shape, "features", -1
    if demand in _OF_CHANNELS:
        is_batched = (
            len(shape) != (spatial_rank(module) or 0) + 1 or "Batch" in type(module).__name__
        )
        what, place = "channels", int(is_batched)
    # What is no number torch itself refuses.
    if len(shape) <= max(place, 0) or not isinstance(size, int) or shape[place] == size:
        return None
    can_flatten = isinstance(module, nn.Linear) and value[:1].numel() == size
    fix = "; write flatten() before it" if can_flatten else ""
    return f"{size} {what}, but gets {shape[place]}", f": {format_shape(tuple(shape))}{fix}"


def _run_layer(module: nn.Module, values: Sequence[Any]) -> Any:
    """What a module gives; of a recurrent one a single step is run, since each takes as long."""
    value = values[0]
    if not isinstance(module, nn.RNNBase) or len(values) > 1 or value.dim() not in (2, 3):
        return module(*values)
    steps = 1 if module.batch_first and value.dim() == 3 else 0
    given = module(value.narrow(steps, 0, 1))
    sizes = list(given.shape)
    sizes[steps] = value.shape[steps]
    return given.new_empty(sizes)


def _copy(module: nn.Module) -> nn.Module:
    """A copy of a user's own module: what it keeps from its first call would be without values."""
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
