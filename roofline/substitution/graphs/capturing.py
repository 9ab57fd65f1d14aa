"""Captures a model as a graph of operators, with torch.export or else torch.fx."""

from __future__ import annotations

import contextlib
import inspect
import io
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, cast

import torch
from torch import fx
from torch.fx._symbolic_trace import PH

from roofline.core.progress import quiet
from roofline.core.text import printable
from roofline.errors import ModelError, RooflineError, error_text
from roofline.substitution.graphs.conversion import Conversion, NotExpressibleError
from roofline.substitution.graphs.graph import Graph, RewriteError
from roofline.substitution.graphs.operators import Operators
from roofline.workload.capture.passes import capture_lock
from roofline.workload.capture.restoration import (
    restore_process_state,
    restore_state,
    restore_tensors,
    weight_storages,
    without_stack_traces,
)

Kind = Literal["tensor", "constant", "sequence", "named tuple", "mapping", "dataclass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A tensor, a constant, or a container.

    ``number`` is the tensor's; ``constant`` what is no tensor. Of containers, ``type`` is the
    class, ``keys`` are positions, keys or names of fields, and ``items`` what is there.
    """

    kind: Kind
    number: int = -1
    constant: Any = None
    type: Any = None
    keys: tuple[Any, ...] = ()
    items: tuple[Structure, ...] = ()

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The same containers with other tensors."""
        items = [each.filled(tensors) for each in self.items]
        match self.kind:
            case "tensor":
                return tensors[self.number]
            case "constant":
                return self.constant
            case "sequence":
                return self.type(items)
            case "mapping":
                return self.type(zip(self.keys, items, strict=True))
            case "named tuple":
                return self.type(*items)
            case "dataclass":
                return self.type(**dict(zip(self.keys, items, strict=True)))

    def leaves(self) -> Iterator[tuple[tuple[tuple[Kind, Any], ...], Structure]]:
        """What is no container, and the steps that lead to it: kinds of containers, and keys."""
        if not self.keys and self.kind in ("tensor", "constant"):
            yield (), self
        for key, each in zip(self.keys, self.items, strict=True):
            for path, leaf in each.leaves():
                yield ((self.kind, key), *path), leaf


def structure_of(value: Any, tensors: list[Any], where: str) -> Structure:
    """What a value is made of; its tensors are added to `tensors`, one that is there again once
    more.

    A ModelError, in which it is called `where`: a container that could not be made again.
    """

    def inside(keys: Sequence[Any], values: Sequence[Any], kind: Kind) -> Structure:
        items = tuple(
            structure_of(each, tensors, f"{where}[{key!r}]")
            for key, each in zip(keys, values, strict=True)
        )
        return Structure(kind=kind, type=of, keys=tuple(keys), items=items)

    of: Any = cast("type[Any]", type(value))
    if isinstance(value, (torch.Tensor, torch.fx.Proxy)):
        tensors.append(value)
        return Structure(kind="tensor", number=len(tensors) - 1)
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.init]
        return inside(names, [getattr(value, name) for name in names], "dataclass")
    if isinstance(value, Mapping) and of in (dict, OrderedDict):
        known = cast("Mapping[Any, Any]", value)
        return inside(list(known), list(known.values()), "mapping")
    if isinstance(value, (list, tuple)):
        sequence = cast("Sequence[Any]", value)
        positions = list(range(len(sequence)))
        if of in (list, tuple):
            return inside(positions, sequence, "sequence")
        if issubclass(of, tuple) and hasattr(of, "_fields"):
            return inside(positions, sequence, "named tuple")
    if value is None or isinstance(value, _CONSTANTS):
        return Structure(kind="constant", constant=value)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise ModelError(f"{where} is a number that depends on the values in a tensor")
    fix = "use tensors, numbers, and tuples, lists, dictionaries or dataclasses of them"
    if "Cache" in of.__name__:
        fix = "call it with use_cache=False"
    raise ModelError(f"{where} is of type {of.__name__}, which cannot be made again; {fix}")


_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)


class Flat(torch.nn.Module):
    """Takes tensors and gives tensors; what they are to the model is known here."""

    def __init__(
        self,
        model: torch.nn.Module,
        given: Callable[[Sequence[Any]], inspect.BoundArguments],
        inputs: Sequence[str],
        note: Callable[[Structure], None],
        name: str,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.is_eager = True
        self._given = given
        # A function, for torch.export puts back what the containers of a module hold.
        self._note = note
        self._called = name

    def forward(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        results: list[Any] = []
        with _as_if_eager() if self.is_eager else contextlib.nullcontext():
            given = self._given(tensors)
            result = self.model(*given.args, **given.kwargs)
        self._note(structure_of(result, results, f"{self._called}: what it returns"))
        return tuple(results)


@contextlib.contextmanager
def _as_if_eager() -> Iterator[None]:
    """Models that ask hear that nobody exports them, and do what they do when they just run."""
    home = torch.compiler
    before = home._is_compiling_flag, home._is_exporting_flag
    home._is_compiling_flag = home._is_exporting_flag = False
    try:
        yield
    finally:
        home._is_compiling_flag, home._is_exporting_flag = before


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """How a model is called, and what it returns.

    ``parameters`` are those of its ``forward``; ``arguments`` what each of them was given, by name;
    tensors in it have the numbers of the graph's inputs. ``result`` is what it returns; tensors in
    it have the numbers of the graph's outputs.
    """

    parameters: tuple[inspect.Parameter, ...]
    arguments: tuple[tuple[str, Structure], ...]
    result: Structure


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedModel:
    """A model as a graph.

    ``weights`` are its own tensors that the graph takes, by name, not copied. ``notes`` say what
    about the graph is otherwise than the model.
    """

    name: str
    graph: Graph
    weights: Mapping[str, torch.Tensor]
    by: Literal["torch.export", "torch.fx"]
    form: CallForm
    notes: tuple[str, ...] = ()


def captured(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "the model",
    operators: Operators | None = None,
) -> CapturedModel:
    """The graph of what `module` computes in eval mode, for inputs of these sizes.

    A ModelError says what of the model, called `name`, cannot be captured, and why. It is left as
    it was.
    """
    name = printable(name)
    try:
        signature = inspect.signature(module.forward)
        bound = signature.bind(*args, **(kwargs or {}))
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} is not called like that: {error_text(error)}") from None
    tensors: list[torch.Tensor] = []
    arguments = tuple(
        (each, structure_of(value, tensors, f"{name}: its argument '{each}'"))
        for each, value in bound.arguments.items()
    )

    def given(tensors: Sequence[Any]) -> inspect.BoundArguments:
        filled = OrderedDict((each, structure.filled(tensors)) for each, structure in arguments)
        return inspect.BoundArguments(signature, filled)

    results: list[Structure] = []
    inputs = [
        each + "".join(f".{key}" if kind == "dataclass" else f"[{key!r}]" for kind, key in path)
        for each, structure in arguments
        for path, leaf in structure.leaves()
        if leaf.kind == "tensor"
    ]
    flat = Flat(module, given, inputs, results.append, name)
    with capture_lock, _undisturbed(module, [list(args), dict(kwargs or {})]):
        module.eval()
        by, conversion, notes = _converted(flat, tensors, operators or Operators(), name)
    return CapturedModel(
        name=name,
        graph=conversion.graph,
        weights=conversion.weights,
        by=by,
        form=CallForm(
            parameters=tuple(
                each.replace(annotation=each.empty) for each in signature.parameters.values()
            ),
            arguments=arguments,
            result=results[-1],
        ),
        notes=(*notes, *conversion.notes, *_fast_path(module)),
    )


def _converted(
    flat: Flat, tensors: list[torch.Tensor], operators: Operators, name: str
) -> tuple[Literal["torch.export", "torch.fx"], Conversion, tuple[str, ...]]:
    failures: list[_ExportError] = []
    for flat.is_eager in (True, False):
        try:
            return "torch.export", *_exported(flat, flat, tensors, operators, name)
        except _ExportError as error:
            failures.append(error)
    why = failures[-1]
    try:
        with _buffers_kept(flat.model):
            traced = fx.symbolic_trace(flat, {"tensors": (PH,) * len(tensors)})
        conversion, notes = _exported(traced, flat, tensors, operators, name)
    except KeyboardInterrupt:
        raise
    # What torch.export said is more of what is wrong with the model.
    except BaseException:
        raise ModelError(str(why)) from why.__cause__
    said = str(why).removeprefix(f"{name} cannot be captured: ")
    return "torch.fx", conversion, (f"torch.export failed, so torch.fx did it: {said}", *notes)


class _ExportError(ModelError):
    """torch.export could not, where another way may."""


@contextlib.contextmanager
def _buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    """Puts back what buffers held: torch.fx runs at once what takes no input."""
    before = [
        (each, each._version, each.detach().clone()) for each in model.buffers() if not each.is_meta
    ]
    try:
        yield
    finally:
        for each, version, content in before:
            if each._version != version:
                each.copy_(content)


def _exported(
    root: torch.nn.Module,
    flat: Flat,
    tensors: list[torch.Tensor],
    operators: Operators,
    name: str,
) -> tuple[Conversion, tuple[str, ...]]:
    """The graph by torch.export; once more with copies where the model writes parts of tensors."""
    try:
        program = torch.export.export(root, (tuple(tensors),), strict=False)
        try:
            return Conversion(program, flat.model, flat.inputs, operators), ()
        except NotExpressibleError:
            program = program.run_decompositions({})
            note = "what the model writes into parts of tensors is copied in the graph"
            return Conversion(program, flat.model, flat.inputs, operators), (note,)
    except (NotExpressibleError, RewriteError, RooflineError) as error:
        said = str(error).removeprefix(f"{name}: ")
        raise ModelError(f"{name} cannot be captured: {said}") from error
    except KeyboardInterrupt:
        raise
    # A model may raise anything, SystemExit too; none of it may end in a traceback.
    except BaseException as error:
        said = f"{_in_words(error)}{_where(error, flat.model)}"
        raise _ExportError(f"{name} cannot be captured: {said}") from error


def _in_words(error: BaseException) -> str:
    said = error_text(error)
    if "data-dependent" in said:
        return "what it does depends on the values in a tensor"
    said = said.partition(" For more information")[0]
    return f"{type(error).__name__}: {printable(said[:300])}"


def _where(error: BaseException, model: torch.nn.Module) -> str:
    """The innermost module that was running."""
    paths = {id(module): path for path, module in model.named_modules()}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    running = [each for frame in frames if id(each := frame.f_locals.get("self")) in paths]
    if not running:
        return ""
    path = paths[id(running[-1])]
    return f", in {path or 'the model itself'} ({type(running[-1]).__name__})"


def _fast_path(module: torch.nn.Module) -> Iterator[str]:
    kinds = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)
    if torch.backends.mha.get_fastpath_enabled() and any(
        isinstance(each, kinds) for each in module.modules()
    ):
        yield (
            "the graph has attention as its parts; the model itself calls one operator for them"
            " where torch's fast path for transformers takes it"
        )


@contextlib.contextmanager
def _undisturbed(module: torch.nn.Module, given: list[Any]) -> Iterator[None]:
    """Leaves model and process as they were, and keeps what torch says on the way to itself."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        restore_state(module, given),
        # No conversion runs on the weights themselves.
        restore_tensors(module, given, but=weight_storages(module)),
        restore_process_state(),
        without_stack_traces(),
        quiet(),
        torch.no_grad(),
    ):
        yield
