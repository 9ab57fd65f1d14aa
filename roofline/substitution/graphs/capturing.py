"""Capture of a model as a graph of operators, with torch.export, else torch.fx."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, cast

import torch
from torch import fx
from torch.fx._symbolic_trace import PH

from roofline.core.progress import suppress_output
from roofline.core.text import printable
from roofline.errors import ModelError, RooflineError, error_text
from roofline.substitution.graphs.conversion import Conversion, GraphConversionError
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
    """Tensor, constant, or container.

    ``number`` is that of a tensor, ``constant`` a non-tensor value. Containers have a class
    (``type``), ``keys`` (positions, keys or field names), and ``items``.
    """

    kind: Kind
    number: int = -1
    constant: Any = None
    type: Any = None
    keys: tuple[Any, ...] = ()
    items: tuple[Structure, ...] = ()

    def filled(self, tensors: Sequence[Any]) -> Any:
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
        """Yield tensors and constants with their paths: container kinds and keys."""
        if not self.keys and self.kind in ("tensor", "constant"):
            yield (), self
        for key, each in zip(self.keys, self.items, strict=True):
            for path, leaf in each.leaves():
                yield ((self.kind, key), *path), leaf


def structure_of(value: Any, tensors: list[Any], where: str) -> Structure:
    """Return the structure of a value; its tensors are appended to `tensors`, with repetitions.

    Raises:
        ModelError: a container that cannot be rebuilt; `where` names it.
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
        # 1, 1.0 and True are equal.
        return Structure(kind="constant", constant=value, type=of)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise ModelError(f"{where} is a number that depends on tensor values")
    fix = "use tensors, numbers, and tuples, lists, dictionaries or dataclasses of them"
    if "Cache" in of.__name__:
        fix = "call it with use_cache=False"
    raise ModelError(f"{where} is of unsupported type {of.__name__}; {fix}")


_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)


class FlatModule(torch.nn.Module):
    def __init__(
        self,
        model: torch.nn.Module,
        given: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
        inputs: Sequence[str],
        note: Callable[[Structure], None],
        name: str,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.is_eager = True
        self._given = given
        # A function: torch.export restores the containers of a module.
        self._note = note
        self._called = name

    def forward(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        results: list[Any] = []
        with _hide_export() if self.is_eager else contextlib.nullcontext():
            args, kwargs = self._given(tensors)
            result = self.model(*args, **kwargs)
        self._note(structure_of(result, results, f"{self._called}: its result"))
        return tuple(results)


@contextlib.contextmanager
def _hide_export() -> Iterator[None]:
    """Hide torch.export from models, so that they run their eager code path."""
    home = torch.compiler
    before = home._is_compiling_flag, home._is_exporting_flag
    home._is_compiling_flag = home._is_exporting_flag = False
    try:
        yield
    finally:
        home._is_compiling_flag, home._is_exporting_flag = before


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Call signature and result structure of a model.

    ``parameters`` are those of ``forward``; ``arguments`` the structures of their values by name,
    with tensors numbered as graph inputs. ``result`` has tensors numbered as graph outputs.
    """

    parameters: tuple[inspect.Parameter, ...]
    arguments: tuple[tuple[str, Structure], ...]
    result: Structure


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedModel:
    """Model as a graph.

    ``weights`` are the model's own tensors read by the graph, by name, not copied. ``notes``
    describe differences between graph and model.
    """

    name: str
    graph: Graph
    weights: Mapping[str, torch.Tensor]
    by: Literal["torch.export", "torch.fx"]
    form: CallForm
    notes: tuple[str, ...] = ()


def capture_graph(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "the model",
    operators: Operators | None = None,
) -> CapturedModel:
    """Return the graph that `module` computes in eval mode for inputs of these sizes.

    The module stays unchanged.

    Raises:
        ModelError: `name` cannot be captured.
    """
    name = printable(name)
    try:
        signature = inspect.signature(module.forward)
        bound = signature.bind(*args, **(kwargs or {}))
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name}: invalid arguments: {error_text(error)}") from None
    tensors: list[torch.Tensor] = []
    arguments = tuple(
        (each, structure_of(value, tensors, f"{name}: its argument '{each}'"))
        for each, value in bound.arguments.items()
    )

    def given(tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        filled = OrderedDict((each, structure.filled(tensors)) for each, structure in arguments)
        # Keywords stay keywords: wrappers of forward may take some themselves.
        named = {each: filled.pop(each) for each in kwargs or () if each in signature.parameters}
        found = inspect.BoundArguments(signature, filled)
        return found.args, {**named, **found.kwargs}

    results: list[Structure] = []
    inputs = [
        each + "".join(f".{key}" if kind == "dataclass" else f"[{key!r}]" for kind, key in path)
        for each, structure in arguments
        for path, leaf in structure.leaves()
        if leaf.kind == "tensor"
    ]
    flat = FlatModule(module, given, inputs, results.append, name)
    with capture_lock, _preserve_state(module, [list(args), dict(kwargs or {})]):
        module.eval()
        by, conversion, notes = _convert(flat, tensors, operators or Operators(), name)
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
        notes=(*notes, *conversion.notes, *_fast_path_notes(module)),
    )


def _convert(
    flat: FlatModule, tensors: list[torch.Tensor], operators: Operators, name: str
) -> tuple[Literal["torch.export", "torch.fx"], Conversion, tuple[str, ...]]:
    failures: list[_ExportError] = []
    for flat.is_eager in (True, False):
        try:
            return "torch.export", *_export(flat, flat, tensors, operators, name)
        except _ExportError as error:
            failures.append(error)
    why = failures[-1]
    try:
        with _restore_buffers(flat.model):
            traced = fx.symbolic_trace(flat, {"tensors": (PH,) * len(tensors)})
        conversion, notes = _export(traced, flat, tensors, operators, name)
    except KeyboardInterrupt:
        raise
    # The error of torch.export is more informative.
    except BaseException:
        raise ModelError(str(why)) from why.__cause__
    text = str(why).removeprefix(f"{name} cannot be captured: ")
    return "torch.fx", conversion, (f"captured with torch.fx; torch.export failed: {text}", *notes)


class _ExportError(ModelError):
    """Failure of torch.export; another method may succeed."""


@contextlib.contextmanager
def _restore_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Restore buffers afterwards: torch.fx executes operators without inputs at once."""
    before = [
        (each, each._version, each.detach().clone()) for each in model.buffers() if not each.is_meta
    ]
    try:
        yield
    finally:
        for each, version, content in before:
            if each._version != version:
                each.copy_(content)


def _export(
    root: torch.nn.Module,
    flat: FlatModule,
    tensors: list[torch.Tensor],
    operators: Operators,
    name: str,
) -> tuple[Conversion, tuple[str, ...]]:
    """Return the graph from torch.export, with copies if the model writes to parts of tensors."""
    try:
        program = torch.export.export(root, (tuple(tensors),), strict=False)
        try:
            return Conversion(program, flat.model, flat.inputs, operators), ()
        except GraphConversionError:
            program = program.run_decompositions({})
            note = "writes to parts of tensors are copies in the graph"
            return Conversion(program, flat.model, flat.inputs, operators), (note,)
    except (GraphConversionError, RewriteError, RooflineError) as error:
        text = str(error).removeprefix(f"{name}: ")
        raise ModelError(f"{name} cannot be captured: {text}") from error
    except KeyboardInterrupt:
        raise
    # Models may raise anything, even SystemExit.
    except BaseException as error:
        text = f"{_describe_error(error)}{_error_location(error, flat.model)}"
        raise _ExportError(f"{name} cannot be captured: {text}") from error


_NO_FAKE = re.compile(
    r"(?:UnsupportedOperatorException: |no fake impl registered for <CustomOpDef\()([\w:.]+)"
)


def _describe_error(error: BaseException) -> str:
    text = error_text(error)
    if "data-dependent" in text:
        return "its control flow depends on tensor values"
    if missing := _NO_FAKE.search(f"{type(error).__name__}: {text}"):
        return (
            f"operator {missing[1]} has no fake kernel; register one with"
            " torch.library.register_fake"
        )
    text = text.partition(" For more information")[0]
    return f"{type(error).__name__}: {printable(text[:300])}"


def _error_location(error: BaseException, model: torch.nn.Module) -> str:
    paths = {id(module): path for path, module in model.named_modules()}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    running = [each for frame in frames if id(each := frame.f_locals.get("self")) in paths]
    if not running:
        return ""
    path = paths[id(running[-1])]
    return f", in {path or 'the model itself'} ({type(running[-1]).__name__})"


def _fast_path_notes(module: torch.nn.Module) -> Iterator[str]:
    kinds = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)
    if torch.backends.mha.get_fastpath_enabled() and any(
        isinstance(each, kinds) for each in module.modules()
    ):
        yield (
            "the graph contains the parts of attention; in torch's fast path for transformers,"
            " the model calls one operator instead"
        )


@contextlib.contextmanager
def _preserve_state(module: torch.nn.Module, given: list[Any]) -> Iterator[None]:
    """Preserve the state of model and process, and suppress torch's output."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        restore_state(module, given),
        # No conversion runs on the weights themselves.
        restore_tensors(module, given, but=weight_storages(module)),
        restore_process_state(),
        without_stack_traces(),
        suppress_output(),
        torch.no_grad(),
    ):
        yield
