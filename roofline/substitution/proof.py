"""That a rewritten graph computes what the model computes: outputs compared, not believed."""

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
from roofline.substitution.graphs.building import built
from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import (
    INPUT,
    Argument,
    Graph,
    TensorType,
    Weight,
    mapped,
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
"""What the largest difference may be, as a fraction of the largest reference value."""

_OWN_ERRORS = 4.0
"""Where the original itself is farther than the limit from what it computes in float64, its result
may be as many times its own error away: both round, in another order."""

_LEAST_ERROR = 1e-70
"""Smaller errors are 0: files hold no such numbers."""

_FLOATING = ("float16", "bfloat16", "float32", "float64")

# -- inputs of every kind, and other weights -------------------------------------------------------


Kind = Callable[[torch.Tensor], torch.Tensor]
"""A kind of inputs, made of normal noise."""


KINDS: Mapping[str, Kind] = {
    "noise": lambda noise: noise,
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "large": lambda noise: noise * 1e3,
    "tiny": lambda noise: noise * 1e-6,
    "negative": lambda noise: -noise.abs(),
}
_CONSTANT = {"zeros": 0, "ones": 1}
"""Kinds of which indices are one number, too."""


def trials(inputs: Inputs, most: Mapping[int, int]) -> Iterator[tuple[str, Inputs]]:
    """Inputs of every kind, the plain noise first; last those that the user gave. `most` are the
    rows of tables that inputs are indices of, see `most_indices`."""
    places = {id(request): place for place, (_, request) in enumerate(inputs.requests())}
    for kind in KINDS:
        generator = torch.Generator().manual_seed(_SEED)
        made = Inputs()
        made.args, made.kwargs = inputs.build(
            lambda request, kind=kind, generator=generator: InputRequest(
                shape=request.shape,
                like=_made(request, kind, generator, most.get(places[id(request)], 2)),
            )
        )
        yield kind, made
    if any(_is_given(request) for _, request in inputs.requests()):
        yield "given", inputs


def _is_given(request: InputRequest) -> bool:
    return request.like is not None and tuple(request.like.shape) == request.shape


def _made(request: InputRequest, kind: str, generator: torch.Generator, most: int) -> torch.Tensor:
    """A tensor of a kind; indices and flags that were given stay, for a model takes not all."""
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


def most_indices(graph: Graph) -> dict[int, int]:
    """How many rows the tables have that the inputs of a graph are indices of, by input.

    Inputs are numbered in their order; those that are no indices are not there.
    """
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
    """Other numbers for a model's parameters and for the statistics of its norms.

    Variances and the scales of norms are positive, matrices as large as keeps what they are
    multiplied with about as large. Other buffers mean something (masks, positions), and stay.
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
    """What weights are, by name: positive (variances, scales of norms), means, or parameters."""
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
        # A variance is one wherever else it is taken, and then a mean.
        for name in names.get("running_mean", ()):
            if found.get(name) != "positive":
                found[name] = "mean"
        positive = names.get("running_var", set[str]())
        if is_norm:
            positive |= names.get("weight", set[str]())
        found |= dict.fromkeys(positive, "positive")
    return found


def weights_in_type(
    captured: CapturedModel, weights: Mapping[str, torch.Tensor] | None, dtype: str
) -> dict[str, torch.Tensor]:
    """A model's weights, or others, in one floating type, those that are tied staying so."""
    to = torch_dtype(dtype)
    found = weights or captured.weights
    made = {
        id(each): each.detach().to(to) if each.is_floating_point() else each
        for each in found.values()
    }
    return {name: made[id(each)] for name, each in found.items()}


def in_type(graph: Graph, dtype: str) -> Graph:
    """A graph that computes all that is floating in one type, and makes its weights in it."""
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
            arguments=tuple((name, mapped(each, changed)) for name, each in node.arguments),
            outputs=tuple(each and changed_type(each) for each in node.outputs),
        )
        for number, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, outputs=tuple(map(changed, graph.outputs)))


# -- proofs ----------------------------------------------------------------------------------------


class Prover:
    """Compares what graphs compute with the model that they were rewritten from, which stays as it
    was.

    With the model's own weights the reference is the model itself; with random ones, which know no
    batch norms that do nothing, it is the graph that was captured. With its own it runs on noise,
    on edge inputs, and on the user's own where tensors were given; in float64 and in float32.
    ``told`` is called before each graph is compared.
    """

    def __init__(
        self,
        original: torch.nn.Module,
        captured: CapturedModel,
        inputs: Inputs,
        *,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self._told = told
        self._original = original
        self._captured = captured
        self._trials = dict(trials(inputs, most_indices(captured.graph)))
        self._weights: dict[tuple[str, str], dict[str, torch.Tensor]] = {}
        self._references: dict[tuple[str, str, str], Any] = {}

    def prove(self, graph: Graph) -> tuple[Proof, ...]:
        """The proofs of a graph, whether they hold or not.

        None are in a type that the model itself cannot run in.
        """
        self._told()
        found: list[Proof | None] = []
        for weights, dtype in product(("own", "random"), LIMITS):
            # Weights that rules make are made anew for each: in float64 from such.
            result = self._built(graph, weights, dtype)
            inputs = self._trials if weights == "own" else _WITH_RANDOM_WEIGHTS
            found += [self._proof(result, weights, dtype, each) for each in inputs]
        return tuple(each for each in found if each is not None)

    def fails(self, graph: Graph, like: Proof) -> bool:
        """Whether a graph fails what another one failed."""
        result = self._built(graph, like.weights, like.dtype)
        proof = self._proof(result, like.weights, like.dtype, like.inputs)
        return proof is not None and not proof.holds

    def _built(self, graph: Graph, weights: str, dtype: str) -> torch.nn.Module:
        if (weights, dtype) not in self._weights:
            # One set at a time: a model may take a good part of the memory.
            self._weights.clear()
            by_name = None if weights == "own" else random_weights(self._captured)
            self._weights[weights, dtype] = weights_in_type(self._captured, by_name, dtype)
        given = self._weights[weights, dtype]
        return built(self._captured, in_type(graph, dtype), weights=given)

    def _reference(self, weights: str, dtype: str, inputs: str) -> Any:
        """What the model gives; None where it cannot run so."""
        key = weights, dtype, inputs
        if key not in self._references:
            try:
                model = (
                    self._original
                    if weights == "own"
                    else self._built(self._captured.graph, weights, dtype)
                )
                self._references[key] = outputs_of(model, self._trials[inputs], dtype)
            # A model may take no such type, and raise anything.
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
            got = outputs_of(result, self._trials[inputs], dtype)
        # What runs for the model must run for the result.
        except Exception:
            got = None
        limit = LIMITS[dtype]
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
"""Edges of inputs are tried with the model's own weights."""


def outputs_of(model: torch.nn.Module, inputs: Inputs, dtype: str) -> Any:
    """What a model gives in inference, with all that is floating in one type; it stays as it was.

    Noise that it draws is the same every time.
    """
    run = Run(dtype=dtype)
    with (
        torch.random.fork_rng(devices=[]),
        prepare_model(model, inputs, run, RealTensors(run)) as stage,
    ):
        torch.manual_seed(_SEED)
        result, _ = stage.step(StepListener())
        return _copied(result)


def _copied(result: Any) -> Any:
    """What a model gave, in tensors that nobody else has; dataclasses as names with values.

    Those that torch does not know could not be compared where they hold tensors.
    """

    def copied(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.detach().clone()
        if dataclasses.is_dataclass(each) and not isinstance(each, type):
            values = {field.name: getattr(each, field.name) for field in dataclasses.fields(each)}
            return type(each).__qualname__, _copied(values)
        return each

    return pytree.tree_map(copied, result)


# -- comparing -------------------------------------------------------------------------------------


def largest_error(expected: Any, got: Any) -> float:
    """The largest difference of two results over the largest reference value of its tensor.

    Infinite where they are not built alike, where one has NaN or an infinity and the other has not,
    and where whole numbers or flags differ.
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
    """The share of rows of scores whose largest is at the same place; None: there are no scores.

    Scores are floating tensors of two or three dimensions, a row along the last one. Where several
    of the reference are the largest, each of them is right.
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
