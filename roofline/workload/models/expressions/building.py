"""Modules of designs: layers of torch, and models of the user's files and packages."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import Signature
from typing import Any

from torch import nn

from roofline.core.dtypes import dtype
from roofline.core.source_errors import PlacedError
from roofline.core.units import format_shape, parse_shape
from roofline.errors import InputError, ModelError, did_you_mean
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source, build
from roofline.workload.models.expressions.layers import (
    Piece,
    bind_arguments,
    check_shapes,
    convolution_rank,
    layer_class,
    layer_names,
    leaves,
    spatial_rank,
    takes_indices,
)
from roofline.workload.models.expressions.reading import parse_design
from roofline.workload.models.expressions.syntax import (
    Design,
    Group,
    Layer,
    Part,
    Repeat,
    Shape,
    Value,
)
from roofline.workload.models.libraries.availability import describe_error
from roofline.workload.torch_dtypes import input_dtype

MAX_LAYERS = 1000

_WINDOWS = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""Window arguments of a convolution, with their minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factory:
    """Factory of a model that is not a torch layer.

    ``make`` is called inside the context ``around()``; it takes no arguments if ``signature`` is
    None. ``notes`` explain choices.
    """

    make: Callable[..., Any]
    signature: Signature | None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    notes: tuple[str, ...] = ()


Find = Callable[[str, str], Factory | None]
"""Lookup of a factory by home (a file, a package, a library, ``""``) and name."""


class Chain(nn.Sequential):
    """Layers in sequence; the first takes all inputs."""

    def forward(self, *inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the output of the last layer."""
        first, *others = self
        value = first(*inputs)
        for each in others:
            value = each(value)
        return value


class Residual(Chain):
    """Layers in sequence, with the first input added to their output."""

    def forward(self, *inputs: Any) -> Any:
        """Return the sum."""
        return super().forward(*inputs) + inputs[0]


def design_source(text: str, find: Find) -> Source:
    """Return the model written as `text`, without weights, and its inputs."""
    design = parse_design(text)
    if design.variables:
        raise design.unbound_error(design.variables[0])
    builder = _Builder(design, find)
    source = builder.source(str(design))
    inputs = _inputs(design, builder.pieces)
    if inputs:
        check_shapes(builder.pieces, inputs, design)
    return replace(source, default_inputs=inputs, notes=(*builder.notes, *source.notes))


class _Builder:
    """Creates the module of one design, any number of times."""

    def __init__(self, design: Design, find: Find) -> None:
        self._design = design
        if (count := sum(map(_layer_count, design.parts))) > MAX_LAYERS:
            repeats = (each for each in design.parts if isinstance(each, Repeat))
            raise design.error(
                f"too many layers in a design: {count:,}, at most {MAX_LAYERS:,}; write larger"
                " models in Python: file.py:Model",
                next(repeats, design.parts[0]),
            )
        self._factories = {
            layer: self._factory(layer, find)
            for layer in design.layers
            if layer.home or not layer_class(layer.name)
        }
        self.notes = tuple(note for each in self._factories.values() for note in each.notes)
        self._failing: Layer | None = None
        self.pieces: tuple[Piece, ...] = ()

    def _factory(self, layer: Layer, find: Find) -> Factory:
        try:
            factory = find(layer.home, layer.name)
        except PlacedError:
            raise
        except InputError as error:
            raise self._design.error(str(error), layer) from error
        if factory is None:
            hint = did_you_mean(layer.name.lower(), [*layer_names(), "residual"])
            raise self._design.error(
                f"unknown layer '{layer.name}'{hint} (expected a torch.nn layer in lower case,"
                " residual(…), a model name, file.py:Model or package.module:factory)",
                layer,
            )
        if factory.signature is None and layer.arguments:
            raise self._design.error(
                f"{layer.full_name} takes no arguments in a design", layer.arguments[0]
            )
        return factory

    def source(self, name: str) -> Source:
        """Return the module, without weights if possible."""
        try:
            return build(name, self._made, self._around)
        except ModelError as error:
            if isinstance(error, PlacedError) or self._failing is None:
                raise
            raise self._design.error(str(error), self._failing) from error

    @contextmanager
    def _around(self) -> Iterator[None]:
        with ExitStack() as stack:
            for factory in self._factories.values():
                stack.enter_context(factory.around())
            yield

    def _made(self) -> nn.Module:
        pieces = self.pieces = tuple(self._pieces(self._design.parts))
        only = self._design.parts[0]
        if len(pieces) == 1 and isinstance(only, Layer) and only in self._factories:
            # Same module paths as for file.py:Block without a shape.
            return pieces[0].module
        return _chained(Chain, pieces)

    def _pieces(self, parts: Sequence[Part]) -> Iterator[Piece]:
        for part in parts:
            match part:
                case Group(is_residual=False):
                    yield from self._pieces(part.parts)
                case Repeat():
                    for _ in range(_integer(part.count)):
                        yield self._piece(part.part)
                case _:
                    yield self._piece(part)

    def _piece(self, part: Layer | Group) -> Piece:
        if isinstance(part, Group):
            inner = tuple(self._pieces(part.parts))
            module = _chained(Residual if part.is_residual else Chain, inner)
            return Piece(part=part, module=module, is_torch_layer=False, inner=inner)
        if factory := self._factories.get(part):
            return Piece(part=part, module=self._own_layer(part, factory), is_torch_layer=False)
        return Piece(part=part, module=self._torch_layer(part), is_torch_layer=True)

    def _torch_layer(self, layer: Layer) -> nn.Module:
        kind = layer_class(layer.name)
        assert kind is not None
        bound = bind_arguments(layer, kind.signature, self._design)
        for name, value in bound.arguments.items():
            if wrong := _size_problem(kind.kind, name, value):
                raise self._design.error(f"{layer}: {name} {wrong}", layer)
        try:
            return kind.make(bound)
        except Exception as error:
            # torch's messages about arguments, without the type of the exception.
            is_plain = isinstance(error, (ValueError, RuntimeError, AssertionError)) and str(error)
            why = " ".join(str(error).split()) if is_plain else describe_error(error)
            raise self._design.error(f"{layer}: {why}", layer) from error

    def _own_layer(self, layer: Layer, factory: Factory) -> nn.Module:
        signature = factory.signature or Signature()
        bound = bind_arguments(layer, signature, self._design)
        self._failing = layer
        made = factory.make(*bound.args, **bound.kwargs)
        if not isinstance(made, nn.Module):
            kind = type(made).__name__
            raise self._design.error(
                f"{layer.full_name}: expected a torch.nn.Module, got {kind}",
                layer,
            )
        self._failing = None
        return made


def _size_problem(kind: type[nn.Module], name: str, value: object) -> str:
    """Return the error of an argument for which torch needs minutes, or fails only when it runs."""
    if name.endswith("_layers") and isinstance(value, int) and value > MAX_LAYERS:
        return f"must be at most {MAX_LAYERS:,}, got {value:,}"
    rank = convolution_rank(kind)
    if not rank or name not in _WINDOWS:
        return ""
    if isinstance(value, tuple) and len(value) != rank:
        return f"expects {f'{rank} numbers or ' * (rank > 1)}one, got {len(value)}"
    least = _WINDOWS[name]
    numbers: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    is_less = any(isinstance(each, int) and each < least for each in numbers)
    return f"must be at least {least}" if is_less else ""


def _chained(kind: type[Chain], pieces: Sequence[Piece]) -> Chain:
    """Return the pieces in a module, named by their kind: ``conv2d``, ``relu``, ``conv2d_2`` …"""
    chain = kind()
    seen = Counter[str]()
    for piece in pieces:
        part = piece.part
        if isinstance(part, Group):
            name = "residual" if part.is_residual else "group"
        else:
            known = None if part.home else layer_class(part.name)
            name = known.name if known else part.name.replace(".", "_")
        seen[name] += 1
        while (found := f"{name}_{seen[name]}" if seen[name] > 1 else name) in chain._modules:
            seen[name] += 1
        chain.add_module(found, piece.module)
    return chain


def _layer_count(part: Part) -> int:
    """Return the number of layers, repetitions included."""
    match part:
        case Group():
            return sum(map(_layer_count, part.parts))
        case Repeat():
            return _integer(part.count) * _layer_count(part.part)
        case Layer():
            return 1


def _integer(value: Value) -> int:
    """Return a size or count of a design without variables."""
    assert isinstance(value, int)
    return value


# -- inputs ----------------------------------------------------------------------------------------


def _inputs(design: Design, pieces: Sequence[Piece]) -> tuple[InputRequest, ...]:
    """Return the inputs written after ``@``; spatial sizes get the channels of the first layer."""
    first = next(leaves(pieces))
    if design.shapes and first.is_torch_layer:
        _check_number(first, design)
    requests: list[InputRequest] = []
    for shape in design.shapes:
        sizes = tuple(map(_integer, shape.sizes))
        if len(design.shapes) == 1:
            sizes = _with_channels(sizes, shape, pieces, design)
        kind = shape.dtype or ("int64" if takes_indices(first.module) else "")
        try:
            parse_shape(format_shape(sizes))
            request = InputRequest(shape=sizes, dtype=dtype(kind) if kind else None)
            input_dtype(request, None)
        except InputError as error:
            raise design.error(str(error), shape) from None
        requests.append(request)
    return tuple(requests)


def _check_number(first: Piece, design: Design) -> None:
    takes = inspect.signature(first.module.forward).parameters
    needed = [name for name, each in takes.items() if each.default is inspect.Parameter.empty]
    count = len(design.shapes)
    if count < len(needed):
        raise design.error(
            f"{first.part} expects {len(needed)} inputs ({', '.join(needed)}), got {count}; write"
            " all shapes, as in @1x8x64,1x8x64",
            design.shapes[0],
        )
    if count > len(takes):
        raise design.error(
            f"{first.part} expects {'one input' if len(takes) == 1 else f'{len(takes)} inputs'},"
            f" got {count}",
            design.shapes[len(takes)],
        )


def _with_channels(
    sizes: tuple[int, ...], shape: Shape, pieces: Sequence[Piece], design: Design
) -> tuple[int, ...]:
    """Return the shape; spatial sizes alone get a batch of 1 and the channels."""
    for piece in leaves(pieces):
        if not piece.is_torch_layer:
            break
        module: Any = piece.module
        rank = spatial_rank(module)
        home = type(module).__module__
        if rank is None and (
            home.endswith((".activation", ".dropout")) or isinstance(module, nn.Identity)
        ):
            # Layers that keep the shape.
            continue
        if rank is None or rank != len(sizes):
            break
        channels = getattr(module, "in_channels", getattr(module, "num_features", None))
        if channels is None:
            raise design.error(
                f"{piece.part} has no number of channels: write all sizes, such as"
                f" @{format_shape((1, 64, *sizes))}",
                shape,
            )
        return (1, channels, *sizes)
    return sizes
