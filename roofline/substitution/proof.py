"""Output comparison of rewritten graphs with the original model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch.utils import _pytree as pytree

from roofline.run import Run
from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import (
    INPUT,
    Argument,
    Graph,
    TensorType,
    Weight,
    map_argument,
    values_in,
)
from roofline.substitution.result import Proof
from roofline.workload.capture.prepared_model import prepare_model
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.training import StepListener
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.torch_dtypes import input_dtype, torch_dtype

_SEED = 0

LIMITS = {"float64": 1e-10, "float32": 1e-5}
"""Largest accepted difference, as a fraction of the largest reference value."""

_OWN_ERRORS = 4.0
"""Limit in units of the original's own error against float64, if that exceeds the fixed limit: both
round, in different order.
"""

_LEAST_ERROR = 1e-70
"""Smaller errors are 0: files cannot hold such numbers."""

WHOLE = "own, whole model"

_FLOATING = ("float16", "bfloat16", "float32", "float64")

# -- trial inputs and weights ----------------------------------------------------------------------


Kind = Callable[[torch.Tensor], torch.Tensor]
"""Kind of input, derived from normal noise."""


KINDS: Mapping[str, Kind] = {
    "noise": lambda noise: noise,
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "large": lambda noise: noise * 1e3,
    "tiny": lambda noise: noise * 1e-6,
    "negative": lambda noise: -noise.abs(),
}
_CONSTANT = {"zeros": 0, "ones": 1}
"""Kinds that also apply to indices, as one number."""


def trial_inputs(inputs: Inputs, most: Mapping[int, int]) -> Iterator[tuple[str, Inputs]]:
    """Yield inputs of every kind, noise first, the user's own last.

    `most` are table sizes of index inputs, see `index_limits`.
    """
    places = {id(request): place for place, (_, request) in enumerate(inputs.requests())}
    for kind in KINDS:
        generator = torch.Generator().manual_seed(_SEED)
        made = Inputs()
        made.args, made.kwargs = inputs.build(
            lambda request, kind=kind, generator=generator: InputRequest(
                shape=request.shape,
                like=_make_input(request, kind, generator, most.get(places[id(request)], 2)),
            )
        )
        yield kind, made
    if any(_is_given(request) for _, request in inputs.requests()):
        yield "given", inputs


def _is_given(request: InputRequest) -> bool:
    return request.like is not None and tuple(request.like.shape) == request.shape


def _make_input(
    request: InputRequest, kind: str, generator: torch.Generator, most: int
) -> torch.Tensor:
    """Return a tensor of a kind; given indices and flags stay, as models may not accept others."""
    dtype, shape = input_dtype(request, None), request.shape
    if dtype.is_floating_point or dtype.is_complex:
        if kind in _CONSTANT:
            return torch.full(shape, _CONSTANT[kind], dtype=dtype)
        return KINDS[kind](torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    if request.like is not None and _is_given(request):
        return request.like
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    if kind in _CONSTANT:
        return torch.full(shape, min(_CONSTANT[kind], most - 1), dtype=dtype)
    return torch.randint(0, most, shape, generator=generator, dtype=dtype)


def index_limits(graph: Graph) -> dict[int, int]:
    """Return the number of table rows for each input that holds indices, by input number."""
    found: dict[int, int] = {}
    inputs = [number for number, node in graph.nodes.items() if node.op == INPUT]
    for place, start in enumerate(inputs):
        reached = {start}
        for number, node in graph.nodes.items():
            if not any(value.node in reached for value in node.values()):
                continue
            if node.op == "aten.embedding":
                table = node["weight"]
                if any(value.node in reached for value in values_in(node["indices"])):
                    rows = graph.type_of(table).shape[0]
                    found[place] = min(rows, found.get(place, rows))
            elif not any(each and _is_numeric(each.dtype) for each in node.outputs):
                reached.add(number)
    return found


def _is_numeric(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


def random_weights(captured: CapturedModel) -> dict[str, torch.Tensor]:
    """Return random parameters and norm statistics for a model.

    Variances and norm scales are positive; matrices keep the magnitude of activations. Other
    buffers have a meaning (masks, positions) and stay.
    """
    generator = torch.Generator().manual_seed(_SEED)
    roles = _roles(captured.graph)
    found: dict[str, torch.Tensor] = {}
    made: dict[tuple[object, ...], torch.Tensor] = {}
    for name, tensor in captured.weights.items():
        role, shape = roles.get(name), tensor.shape
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), shape)
        is_kept = role is None and key not in made
        if is_kept or not tensor.is_floating_point():
            found[name] = tensor
            continue
        if key not in made:
            if role == "positive":
                numbers = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
            else:
                is_small = role == "mean" or tensor.dim() < 2
                scale = 0.1 if is_small else 1.5 / math.sqrt(max(1, math.prod(shape[1:])))
                numbers = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
            made[key] = torch.empty_like(tensor).copy_(numbers)
        found[name] = made[key]
    return found


_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")


def _roles(graph: Graph) -> dict[str, str]:
    """Return the role of each weight, by name: positive (variances, norm scales), mean, or
    parameter.
    """
    found: dict[str, str] = {}
    for node in graph.nodes.values():
        is_norm = any(each in node.op for each in _NORMS)
        names = {
            name: {each.name for each in value.originals()}
            for name, value in node.arguments
            if isinstance(value, Weight)
        }
        originals = [each for weight in node.weights() for each in weight.originals()]
        for name in (each.name for each in originals if each.is_parameter):
            found.setdefault(name, "parameter")
        # The role "positive" takes precedence, then "mean".
        for name in names.get("running_mean", ()):
            if found.get(name) != "positive":
                found[name] = "mean"
        positive = names.get("running_var", set[str]())
        if is_norm:
            positive |= names.get("weight", set[str]())
        found |= dict.fromkeys(positive, "positive")
    return found


def cast_weights(
    captured: CapturedModel, weights: Mapping[str, torch.Tensor] | None, dtype: str
) -> dict[str, torch.Tensor]:
    """Return weights in one floating-point type; tied ones stay tied."""
    to = torch_dtype(dtype)
    found = weights or captured.weights
    made = {
        id(each): each.detach().to(to) if each.is_floating_point() else each
        for each in found.values()
    }
    return {name: made[id(each)] for name, each in found.items()}


def cast_graph(graph: Graph, dtype: str) -> Graph:
    """Return a graph that computes, and creates its weights, in one floating-point type."""
    types = {torch_dtype(name): torch_dtype(dtype) for name in _FLOATING}
    weights: dict[str, Weight] = {}

    def changed_type(type: TensorType) -> TensorType:
        return replace(type, dtype=dtype) if type.dtype in _FLOATING else type

    def changed(part: Argument) -> Argument:
        if isinstance(part, Weight):
            return changed_weight(part)
        return types.get(part, part) if isinstance(part, torch.dtype) else part

    def changed_weight(weight: Weight) -> Weight:
        if weight.key not in weights:
            weights[weight.key] = Weight(
                type=changed_type(weight.type),
                is_parameter=weight.is_parameter,
                name=weight.name,
                made_by=weight.made_by,
                of=tuple(map(changed_weight, weight.of)),
                options=weight.options,
            )
        return weights[weight.key]

    nodes = {
        number: replace(
            node,
            arguments=tuple((name, map_argument(each, changed)) for name, each in node.arguments),
            outputs=tuple(each and changed_type(each) for each in node.outputs),
        )
        for number, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, outputs=tuple(map(changed, graph.outputs)))


# -- proofs ----------------------------------------------------------------------------------------


class Prover:
    """Output comparison of rewritten graphs with the unchanged original model.

    With the model's own weights, the reference is the model itself; in float64 the captured graph,
    if the model converts to other types. With random weights, which no rule can exploit, it is the
    captured graph. Own weights run on noise, edge inputs and given tensors, in float64 and float32.
    ``limits`` are table sizes of index inputs, if the graph is not that of the model. ``whole``
    returns the proofs of a model whose modules alone were captured. ``on_compare`` is called before
    each comparison.
    """

    def __init__(
        self,
        original: torch.nn.Module,
        captured: CapturedModel,
        inputs: Inputs,
        *,
        limits: Mapping[int, int] | None = None,
        whole: Callable[[Graph], tuple[Proof, ...]] = lambda _: (),
        on_compare: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_compare, self._whole = on_compare, whole
        self._original = original
        self._captured = captured
        self._is_graph_of_model = limits is None
        limits = index_limits(captured.graph) if limits is None else limits
        self._trials = dict(trial_inputs(inputs, limits))
        self._weights: dict[tuple[str, str], dict[str, torch.Tensor]] = {}
        self._references: dict[tuple[str, str, str], Any] = {}

    def prove(self, graph: Graph) -> tuple[Proof, ...]:
        """Return the proofs of a graph, whether they hold or not.

        Types that the model itself does not support are left out.
        """
        self._on_compare()
        found: list[Proof | None] = []
        for weights, dtype in product(("own", "random"), LIMITS):
            # Derived weights are computed again for each type.
            result = self._built(graph, weights, dtype)
            inputs = self._trials if weights == "own" else _WITH_RANDOM_WEIGHTS
            found += [self._proof(result, weights, dtype, each) for each in inputs]
        return (*(each for each in found if each is not None), *self._whole(graph))

    def compare(self, result: torch.nn.Module) -> tuple[Proof, ...]:
        """Return the proofs of a module in the model's own type, to which weights are rounded."""
        types = (each.dtype for each in self._original.parameters() if each.is_floating_point())
        dtype = str(next(types, torch.float32)).removeprefix("torch.")
        found = [self._proof(result, "own", dtype, each) for each in self._trials]
        return tuple(replace(each, weights=WHOLE) for each in found if each)

    def fails(self, graph: Graph, like: Proof) -> bool:
        if like.weights == WHOLE:
            return not all(each.holds for each in self._whole(graph))
        result = self._built(graph, like.weights, like.dtype)
        proof = self._proof(result, like.weights, like.dtype, like.inputs)
        return proof is not None and not proof.holds

    def _built(self, graph: Graph, weights: str, dtype: str) -> torch.nn.Module:
        if (weights, dtype) not in self._weights:
            # One set at a time, to limit memory.
            self._weights.clear()
            by_name = None if weights == "own" else random_weights(self._captured)
            self._weights[weights, dtype] = cast_weights(self._captured, by_name, dtype)
        given = self._weights[weights, dtype]
        return build_module(self._captured, cast_graph(graph, dtype), weights=given)

    def _reference(self, weights: str, dtype: str, inputs: str) -> Any:
        """Return the reference outputs; None: the model does not run in this type."""
        key = weights, dtype, inputs
        if key not in self._references:
            try:
                model = (
                    self._original
                    if weights == "own"
                    else self._built(self._captured.graph, weights, dtype)
                )
                expected = run_model(model, self._trials[inputs], dtype)
                if self._is_graph_of_model and (weights, dtype) == ("own", "float64"):
                    # A model that converts to float32 still does so in float64; its graph does not.
                    # In float32, the reference is the model itself.
                    graph = self._built(self._captured.graph, weights, dtype)
                    whole = run_model(graph, self._trials[inputs], dtype)
                    if largest_error(expected, whole) > LIMITS[dtype]:
                        expected = whole
                self._references[key] = expected
            # Models may raise anything for unsupported types.
            except Exception:
                self._references[key] = None
        return self._references[key]

    def _proof(
        self, result: torch.nn.Module, weights: str, dtype: str, inputs: str
    ) -> Proof | None:
        expected = self._reference(weights, dtype, inputs)
        if expected is None:
            return None
        try:
            got = run_model(result, self._trials[inputs], dtype)
        # The result must run where the model runs.
        except Exception:
            got = None
        limit = LIMITS.get(dtype, 0.0)
        exact = self._reference(weights, "float64", inputs) if dtype != "float64" else None
        if exact is not None:
            own_error = largest_error(exact, expected)
            limit = max(limit, _OWN_ERRORS * own_error if own_error < 1 else 0.0)
        return Proof(
            dtype=dtype,
            inputs=inputs,
            weights=weights,
            largest_error=largest_error(expected, got),
            limit=limit,
            same_argmax=same_argmax(expected, got),
        )


_WITH_RANDOM_WEIGHTS = ("noise", "negative")
"""Inputs for random weights; edge inputs use the model's own weights."""


def run_model(model: torch.nn.Module, inputs: Inputs, dtype: str) -> Any:
    """Return inference outputs of a model in one floating-point type, with a fixed seed."""
    run = Run(dtype=dtype)
    with (
        torch.random.fork_rng(devices=[]),
        prepare_model(model, inputs, run, RealTensors(run)) as stage,
    ):
        torch.manual_seed(_SEED)
        result, _ = stage.step(StepListener())
        return _copy_outputs(result)


def _copy_outputs(result: Any) -> Any:
    """Return outputs as separate tensors; dataclasses become names with values.

    Dataclasses unknown to torch could not be compared if they contain tensors.
    """

    def copied(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.detach().clone()
        if dataclasses.is_dataclass(each) and not isinstance(each, type):
            values = {field.name: getattr(each, field.name) for field in dataclasses.fields(each)}
            return type(each).__qualname__, _copy_outputs(values)
        return each

    return pytree.tree_map(copied, result)


# -- comparing -------------------------------------------------------------------------------------


def largest_error(expected: Any, got: Any) -> float:
    """Return the largest difference over the largest reference value of its tensor.

    Infinite if structures differ, NaN or infinity differ, or integers or flags differ.
    """
    leaves, spec = pytree.tree_flatten(expected)
    others, other_spec = pytree.tree_flatten(got)
    if spec != other_spec:
        return math.inf
    return max(
        (_difference(one, two) for one, two in zip(leaves, others, strict=True)), default=0.0
    )


def _difference(expected: Any, got: Any) -> float:
    if not isinstance(expected, torch.Tensor):
        return 0.0 if not isinstance(got, torch.Tensor) and expected == got else math.inf
    if not isinstance(got, torch.Tensor) or expected.shape != got.shape:
        return math.inf
    is_number = expected.is_floating_point() or expected.is_complex()
    if is_number != (got.is_floating_point() or got.is_complex()):
        return math.inf
    if not is_number:
        return 0.0 if torch.equal(expected, got) else math.inf
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected, got = expected.to(wide), got.to(wide)
    finite = torch.isfinite(expected)
    if not torch.equal(finite, torch.isfinite(got)):
        return math.inf
    others = torch.nan_to_num(expected[~finite]), torch.nan_to_num(got[~finite])
    if not torch.equal(*others) or not torch.equal(torch.isnan(expected), torch.isnan(got)):
        return math.inf
    difference = float((expected[finite] - got[finite]).abs().max()) if finite.any() else 0.0
    if not difference:
        return 0.0
    largest = float(expected[finite].abs().max())
    error = difference / largest if largest else math.inf
    return 0.0 if error < _LEAST_ERROR else error


def same_argmax(expected: Any, got: Any) -> float | None:
    """Return the fraction of rows with the same argmax; None: no scores.

    Scores are floating-point tensors of two or three dimensions, with rows along the last one. With
    ties in the reference, each of them counts as correct.
    """
    rows = same = 0
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=False)
    for one, two in pairs:
        if not _are_scores(one) or not _are_scores(two) or one.shape != two.shape:
            continue
        best = one.max(dim=-1).values
        chosen = one.gather(-1, two.argmax(dim=-1, keepdim=True)).squeeze(-1)
        rows += best.numel()
        same += int((chosen == best).sum() + (best.isnan() & chosen.isnan()).sum())
    return same / rows if rows else None


def _are_scores(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and 2 <= value.dim() <= 3
        and value.shape[-1] > 1
        and value.numel() > 0
    )
