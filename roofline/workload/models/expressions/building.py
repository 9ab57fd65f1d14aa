"""Modules of designs: each layer of torch, and what the user's own files and packages make."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import Signature
from typing import Any

from torch import nn

from roofline.errors import InputError, ModelError, nearest
from roofline.foundation.dtypes import dtype
from roofline.foundation.places import PlacedError
from roofline.foundation.units import format_shape, parse_shape
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source, build
from roofline.workload.models.expressions.fitting import Piece, check_fit, leaves
from roofline.workload.models.expressions.layers import (
    call_of,
    convolution_rank,
    layer_class,
    layer_names,
    rank_of,
    takes_indices,
)
from roofline.workload.models.expressions.parsing import parsed
from roofline.workload.models.expressions.syntax import (
    Design,
    Group,
    Layer,
    Part,
    Repeat,
    Shape,
    layers_of,
    unbound,
    whole,
    with_values,
)
from roofline.workload.models.libraries.availability import said
from roofline.workload.torch_dtypes import dtype_for


def inputs_of(design: Design, pieces: Sequence[Piece]) -> tuple[InputRequest, ...]:
    """What is written after ``@``, as inputs; spatial sizes get the channels of the first layer.

    Raises:
        PlacedError: the first layer takes another number of inputs, or does not say its channels.
    """
    first = next(leaves(pieces))
    if design.shapes and first.is_torchs:
        _check_number(first, design)
    is_index = takes_indices(first.module)
    requests: list[InputRequest] = []
    for shape in design.shapes:
        sizes = tuple(whole(each, design.text) for each in shape.sizes)
        if len(design.shapes) == 1:
            sizes = _full(sizes, shape, pieces, design.text)
        kind = shape.dtype or ("int64" if is_index else "")
        try:
            parse_shape(format_shape(sizes))
            request = InputRequest(shape=sizes, dtype=dtype(kind) if kind else None)
            dtype_for(request, None)
        except InputError as error:
            raise PlacedError(str(error), design.text, shape.at) from None
        requests.append(request)
    return tuple(requests)


def _check_number(first: Piece, design: Design) -> None:
    signature = inspect.signature(first.module.forward)
    names = list(signature.parameters)
    needed = [
        name for name in names if signature.parameters[name].default is inspect.Parameter.empty
    ]
    count = len(design.shapes)
    if count < len(needed):
        raise PlacedError(
            f"{first.part} takes {len(needed)} inputs ({', '.join(needed)}), but {count} is"
            " written: write all of them, as in @1x8x64,1x8x64",
            design.text,
            design.shapes[0].at,
        )
    if count > len(names):
        raise PlacedError(
            f"{first.part} takes {'one input' if len(names) == 1 else f'{len(names)} inputs'},"
            f" but {count} are written",
            design.text,
            design.shapes[len(names)].at,
        )


def _full(
    sizes: tuple[int, ...], shape: Shape, pieces: Sequence[Piece], text: str
) -> tuple[int, ...]:
    """The shape, with a batch of 1 and the channels where only spatial sizes are written."""
    for piece in leaves(pieces):
        if not piece.is_torchs:
            break
        rank = rank_of(piece.module)
        if rank is None and _keeps_shapes(piece.module):
            continue
        if rank is None or rank != len(sizes):
            break
        module: Any = piece.module
        channels = getattr(module, "in_channels", getattr(module, "num_features", None))
        if channels is None:
            example = format_shape((1, 64, *sizes))
            raise PlacedError(
                f"{piece.part} does not say how many channels there are: write all sizes,"
                f" such as @{example}",
                text,
                shape.at,
            )
        return (1, channels, *sizes)
    return sizes


def _keeps_shapes(module: nn.Module) -> bool:
    """Whether it is an activation, a dropout or the identity."""
    home = type(module).__module__
    return home.endswith((".activation", ".dropout")) or isinstance(module, nn.Identity)


MOST_LAYERS = 1000

_WINDOWS = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""The sizes of a convolution's window, and the least that each can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factory:
    """What makes a model that is no layer of torch's.

    ``make`` is called within a context that ``around`` makes; where ``signature`` is None it takes
    no arguments. ``notes`` say what was decided for it.
    """

    make: Callable[..., Any]
    signature: Signature | None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    notes: tuple[str, ...] = ()


Find = Callable[[str, str], Factory | None]
"""What finds the factory of that home (a file, a package, a library, ``""``) and that name."""


class Chain(nn.Sequential):
    """Layers one after another; the first takes all inputs, and each other what is before it."""

    def forward(self, *inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What the last one gives."""
        first, *others = self
        value = first(*inputs)
        for each in others:
            value = each(value)
        return value


class Residual(Chain):
    """Layers one after another, and the sum of what they give and their first input."""

    def forward(self, *inputs: Any) -> Any:
        """The sum."""
        return super().forward(*inputs) + inputs[0]


def design_source(text: str, find: Find) -> Source:
    """The model that is written as `text`, without weights, and the inputs that it says.

    Args:
        text: a design, such as ``conv2d(64,64,3,groups=64)+conv2d(64,64,1)@56x56``.
        find: finds the user's own models.

    Raises:
        PlacedError: it cannot be read, a variable has no value, there is no such layer, it does
            not take such arguments, or what the layer before gives.
        ModelError: a model of the user's own cannot be built.
    """
    asked = parsed(text)
    if variable := next(asked.variables(), None):
        raise unbound(variable, text)
    design = with_values(asked, {})
    name = str(design)
    builder = _Builder(design, find)
    source = builder.source(name)
    inputs = inputs_of(design, builder.pieces)
    if inputs:
        check_fit(builder.pieces, inputs, text)
    return Source(
        name=name,
        module=source.module,
        default_inputs=inputs,
        notes=(*builder.notes, *source.notes),
        rebuild=source.rebuild,
    )


class _Builder:
    """Makes the module of one design, as often as it is asked to."""

    def __init__(self, design: Design, find: Find) -> None:
        self._design = design
        self._text = design.text
        self._check_length(design.parts)
        self._factories: dict[Layer, Factory] = {}
        for layer in layers_of(design.parts):
            if layer.home or not layer_class(layer.name):
                self._factories[layer] = self._factory(layer, find)
        self._failing: Layer | None = None
        self.pieces: tuple[Piece, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided for the models that are not torch's."""
        return tuple(note for each in self._factories.values() for note in each.notes)

    def source(self, name: str) -> Source:
        """The module, without weights where it can be, and what makes it with them."""
        try:
            return build(name, self._made, self._around)
        except ModelError as error:
            if isinstance(error, PlacedError) or self._failing is None:
                raise
            raise PlacedError(str(error), self._text, self._failing.at) from error

    @contextmanager
    def _around(self) -> Iterator[None]:
        with ExitStack() as stack:
            for factory in self._factories.values():
                stack.enter_context(factory.around())
            yield

    def _made(self) -> nn.Module:
        pieces = tuple(self._pieces(self._design.parts))
        self.pieces = pieces
        only = self._design.parts[0]
        if len(pieces) == 1 and isinstance(only, Layer) and only in self._factories:
            # As file.py:Block is without a shape: its modules have the same paths.
            return pieces[0].module
        return _chained(Chain, pieces)

    def _pieces(self, parts: Sequence[Part]) -> Iterator[Piece]:
        for part in parts:
            match part:
                case Layer():
                    yield self._piece(part)
                case Group(is_residual=False):
                    yield from self._pieces(part.parts)
                case Group():
                    yield self._group(part)
                case Repeat():
                    yield from self._repeated(part)

    def _repeated(self, repeat: Repeat) -> Iterator[Piece]:
        for _ in range(whole(repeat.count, self._text)):
            inner = repeat.part
            if isinstance(inner, Group):
                yield self._group(inner)
            else:
                yield self._piece(inner)

    def _group(self, group: Group) -> Piece:
        pieces = tuple(self._pieces(group.parts))
        kind = Residual if group.is_residual else Chain
        return Piece(part=group, module=_chained(kind, pieces), is_torchs=False, inner=pieces)

    def _piece(self, layer: Layer) -> Piece:
        if factory := self._factories.get(layer):
            return Piece(part=layer, module=self._own(layer, factory), is_torchs=False)
        return Piece(part=layer, module=self._torchs(layer), is_torchs=True)

    def _torchs(self, layer: Layer) -> nn.Module:
        kind = layer_class(layer.name)
        assert kind is not None
        args, kwargs = call_of(layer, kind.signature, self._text)
        given = kind.signature.bind(*args, **kwargs).arguments
        self._check_inner_layers(layer, given)
        self._check_windows(layer, kind.kind, given)
        try:
            return kind.make(*args, **kwargs)
        except Exception as error:
            raise PlacedError(f"{layer}: {_why(error)}", self._text, layer.at) from error

    def _check_inner_layers(self, layer: Layer, given: Mapping[str, object]) -> None:
        """Refuses ``num_layers`` that torch would take minutes to make."""
        for name, value in given.items():
            if name.endswith("_layers") and isinstance(value, int) and value > MOST_LAYERS:
                raise PlacedError(
                    f"{layer.full_name}: {name} of {value:,} is too much: at most {MOST_LAYERS:,}",
                    self._text,
                    layer.at,
                )

    def _check_windows(
        self, layer: Layer, kind: type[nn.Module], given: Mapping[str, object]
    ) -> None:
        """Refuses kernels that torch makes, and then fails to run, or runs without memory only."""
        rank = convolution_rank(kind)
        for name, least in _WINDOWS.items() if rank else ():
            value = given.get(name)
            sizes = value if isinstance(value, tuple) else (value,)
            numbers = [each for each in sizes if isinstance(each, int)]
            if isinstance(value, tuple) and len(value) != rank:
                wrong = f"takes {f'{rank} numbers or ' * (rank > 1)}one, not {len(value)}"
            elif any(each < least for each in numbers):
                wrong = f"takes numbers from {least}"
            else:
                continue
            raise PlacedError(f"{layer}: {name} {wrong}", self._text, layer.at)

    def _own(self, layer: Layer, factory: Factory) -> nn.Module:
        args, kwargs = (), {}
        if factory.signature:
            args, kwargs = call_of(layer, factory.signature, self._text)
        self._failing = layer
        made = factory.make(*args, **kwargs)
        if not isinstance(made, nn.Module):
            raise PlacedError(
                f"{layer.full_name} gives {_with_article(type(made).__name__)},"
                " not a torch.nn.Module",
                self._text,
                layer.at,
            )
        self._failing = None
        return made

    def _factory(self, layer: Layer, find: Find) -> Factory:
        try:
            factory = find(layer.home, layer.name)
        except PlacedError:
            raise
        except InputError as error:
            raise PlacedError(str(error), self._text, layer.at) from error
        if factory is None:
            raise self._unknown(layer)
        if factory.signature is None and layer.arguments:
            raise PlacedError(
                f"{layer.full_name} takes no arguments here", self._text, layer.arguments[0].at
            )
        return factory

    def _unknown(self, layer: Layer) -> PlacedError:
        hint = nearest(layer.name.lower(), [*layer_names(), "residual"])
        return PlacedError(
            f"no layer is called '{layer.name}'{hint} (layers of torch.nn in small letters,"
            " residual(…), names of models, file.py:Model or package.module:factory)",
            self._text,
            layer.at,
        )

    def _check_length(self, parts: Sequence[Part]) -> None:
        count = _length(parts, self._text)
        if count > MOST_LAYERS:
            first = next((each for each in parts if isinstance(each, Repeat)), parts[0])
            raise PlacedError(
                f"{count:,} layers are too many for a design: at most {MOST_LAYERS:,};"
                " a larger model is one of your own: file.py:Model",
                self._text,
                first.at,
            )


def _chained(kind: type[Chain], pieces: Sequence[Piece]) -> Chain:
    """The pieces in a module, called by their kind: ``conv2d``, ``relu``, ``conv2d_2`` …"""
    chain = kind()
    seen = Counter[str]()
    for piece in pieces:
        name = _called(piece.part)
        seen[name] += 1
        while (found := f"{name}_{seen[name]}" if seen[name] > 1 else name) in chain._modules:
            seen[name] += 1
        chain.add_module(found, piece.module)
    return chain


def _called(part: Layer | Group) -> str:
    if isinstance(part, Group):
        return "residual" if part.is_residual else "group"
    known = None if part.home else layer_class(part.name)
    return known.name if known else part.name.replace(".", "_")


def _length(parts: Sequence[Part], text: str) -> int:
    """How many layers they are once they are repeated."""
    total = 0
    for part in parts:
        match part:
            case Layer():
                total += 1
            case Group():
                total += _length(part.parts, text)
            case Repeat():
                total += whole(part.count, text) * _length([part.part], text)
    return total


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _why(error: Exception) -> str:
    """What torch says against arguments, without what it says of its own code."""
    if isinstance(error, (ValueError, RuntimeError, AssertionError)) and str(error):
        return " ".join(str(error).split())
    return said(error)
