"""The layers of torch that a design can have, found from `torch.nn` by class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.rnn import RNNCellBase

from roofline.errors import nearest
from roofline.workload.models.expressions.syntax import Design, Layer
from roofline.workload.models.libraries.names import TAKE_MODULES, plain_name, written_names


def call_of(
    layer: Layer, signature: Signature, design: Design
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The positional and the named arguments that `layer` is called with.

    Args:
        layer: as it is written.
        signature: what it takes, without ``self``.
        design: all that is written.

    Raises:
        PlacedError: too many arguments, one that it does not take, one that is missing.
    """
    given = layer.arguments or ()
    takes = signature.parameters
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in takes.values())
    for each in given:
        if each.name and each.name not in takes and not takes_any:
            names = f"it takes {', '.join(takes) or 'none'}"
            raise design.wrong(
                f"{layer.full_name} takes no argument '{each.name}'"
                f"{nearest(each.name, takes)} ({names})",
                each,
            )
    args = tuple(each.value for each in given if not each.name)
    kwargs: dict[str, object] = {each.name: each.value for each in given if each.name}
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise design.wrong(
            f"{layer.full_name}: {error}; it is written {_form(layer.full_name, signature)}", layer
        ) from None
    return args, kwargs


def signature_of(factory: Callable[..., Any]) -> Signature:
    """What a factory takes; anything, where Python does not know."""
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        many = [
            Parameter("args", Parameter.VAR_POSITIONAL),
            Parameter("kwargs", Parameter.VAR_KEYWORD),
        ]
        return Signature(many)


def is_needed(parameter: Parameter) -> bool:
    """Return whether a function cannot be called without an argument."""
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in many


def _form(name: str, signature: Signature) -> str:
    """How a layer is written: ``conv2d(in_channels, out_channels, kernel_size, …)``."""
    parameters = signature.parameters.values()
    needed = [each.name for each in parameters if is_needed(each)]
    optional = [each.name for each in parameters if not is_needed(each)]
    if not needed and optional:
        needed, optional = optional[:2], optional[2:]
    return f"{name}({', '.join([*needed, *(['…'] if optional else [])])})"


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

_NOT_SAID = ("device", "dtype")
"""What `--device` and `--dtype` say."""


class LayerClass:
    """A layer that a design can have: ``name`` is how it is written, without underscores."""

    def __init__(self, name: str, kind: type[nn.Module]) -> None:
        self.name = name
        self.kind = kind
        self.signature = _signature(kind)
        parameters = self.signature.parameters
        self._defaults = {
            name: value
            for name, (torchs, value) in _DEFAULTS.items()
            if name in parameters and parameters[name].default is torchs
        }
        mixin = _FORWARD.get(kind)
        # A subclass of the same name, so that tables call it what torch calls it.
        self._made: type[nn.Module] = type(kind.__name__, (mixin, kind), {}) if mixin else kind

    def make(self, *args: Any, **kwargs: Any) -> nn.Module:
        """The layer with these arguments.

        Raises:
            Exception: whatever torch says against them.
        """
        given = self.signature.bind(*args, **kwargs).arguments
        added = {name: value for name, value in self._defaults.items() if name not in given}
        return self._made(*args, **kwargs, **added)


def layer_class(name: str) -> LayerClass | None:
    """The layer that is written so, with or without underscores; None if torch has none."""
    plain = plain_name(name)
    return _layers().get(_ALIASES.get(plain, plain))


def layer_names() -> tuple[str, ...]:
    """The names of all layers as they are written: ``conv2d``, ``attention`` …"""
    return tuple(sorted([*_layers(), *_ALIASES]))


@functools.cache
def _layers() -> Mapping[str, LayerClass]:
    found: dict[str, LayerClass] = {}
    for name in written_names(dir(nn)):
        kind = getattr(nn, name)
        if isinstance(kind, type) and issubclass(kind, nn.Module) and _takes_tensors(kind):
            found[plain_name(name)] = LayerClass(plain_name(name), kind)
    return found


def _takes_tensors(kind: type[nn.Module]) -> bool:
    """Whether its forward has an argument of its own: those of containers have not."""
    names = [each for each in _parameters(kind.forward) if each.kind is not each.VAR_POSITIONAL]
    return bool(names) and kind.__name__ not in TAKE_MODULES


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
    return Signature([each for each in parameters if each.name not in _NOT_SAID])


# -- what they take --------------------------------------------------------------------------------


def rank_of(layer: nn.Module) -> int | None:
    """How many spatial dimensions a layer of torch has, as its name says; None for any."""
    name = type(layer).__name__
    return int(name[-2]) if name.endswith(("1d", "2d", "3d")) and "Dropout" not in name else None


def convolution_rank(kind: type[nn.Module]) -> int:
    """How many spatial dimensions a class of convolutions has; 0 for other layers."""
    return int(kind.__name__[-2]) if issubclass(kind, _ConvNd) else 0


def takes_indices(layer: nn.Module) -> bool:
    """Whether a layer of torch looks rows up."""
    return isinstance(layer, (nn.Embedding, nn.EmbeddingBag))


def takes_floats(layer: nn.Module) -> bool:
    """Whether a layer of torch computes with weights, which are no integers."""
    return not takes_indices(layer) and any(True for _ in layer.parameters())


def expected_sizes(layer: nn.Module, dimensions: int) -> tuple[int, int, str] | None:
    """A size that a layer of torch demands of a tensor: which dimension, how much, and of what.

    Returns:
        The dimension, its size and ``"channels"`` or ``"features"``; None where it demands none.
    """
    found: Any = layer
    for kinds, attribute in _DEMANDS.items():
        if isinstance(layer, kinds):
            position = -1
            what = "features"
            if attribute in _OF_CHANNELS:
                what = "channels"
                is_batched = (
                    dimensions != (rank_of(layer) or 0) + 1 or "Batch" in type(layer).__name__
                )
                position = 1 if is_batched else 0
            if dimensions <= max(position, 0):
                return None
            for step in attribute.split("."):
                found = getattr(found, step)
            # What is no number torch itself refuses.
            return (position, found, what) if isinstance(found, int) else None
    return None


_DEMANDS: Mapping[tuple[type[nn.Module], ...], str] = {
    (_ConvNd,): "in_channels",
    (_NormBase,): "num_features",
    (nn.GroupNorm,): "num_channels",
    (nn.Linear,): "in_features",
    (nn.RNNBase, RNNCellBase): "input_size",
    (nn.MultiheadAttention,): "embed_dim",
    (nn.TransformerEncoderLayer,): "self_attn.embed_dim",
}
_OF_CHANNELS = ("in_channels", "num_features", "num_channels")
