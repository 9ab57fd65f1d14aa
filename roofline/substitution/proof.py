"""That a rewritten graph computes what the model computes: outputs compared, not believed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from roofline.run import Run
from roofline.substitution.graphs.building import built
from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.graphs.trial_inputs import most_indices, trials
from roofline.substitution.graphs.trial_weights import (
    in_type,
    random_weights,
    weights_in_type,
)
from roofline.substitution.result import Proof
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.stage import staged
from roofline.workload.inputs import Inputs

LIMITS = {"float64": 1e-10, "float32": 1e-5}
"""What the largest difference may be, as a fraction of the largest reference value."""

_OWN_ERRORS = 4.0
"""Where the original itself is farther than the limit from what it computes in float64, its result
may be as many times its own error away: both round, in another order."""

_LEAST_ERROR = 1e-70
"""Smaller errors are 0: files hold no such numbers."""

_SEED = 0


class _Listener:
    """Nothing that a pass of inference tells is of interest."""

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing was running."""
        yield

    def enter(self, phase: Any) -> None:
        """Nothing depends on it."""

    def own(self, tensors: Any, path: str) -> None:
        """Nothing depends on it."""


class Prover:
    """Compares what graphs compute with the model that they were rewritten from.

    With the model's own weights the reference is the model itself; with random ones, which
    know no batch norms that do nothing, it is the graph that was captured. With its own it runs on
    noise, on edge inputs, and on the user's own where tensors were given; in float64 and in
    float32.

    Args:
        original: the model, with its weights; it is left as it was.
        captured: what was captured of it.
        inputs: what it is called with: types and sizes, and values where tensors were given.
    """

    def __init__(self, original: torch.nn.Module, captured: CapturedModel, inputs: Inputs) -> None:
        self._original = original
        self._captured = captured
        self._trials = dict(trials(inputs, most_indices(captured.graph)))
        self._weights: dict[tuple[str, str], dict[str, torch.Tensor]] = {}
        self._references: dict[tuple[str, str, str], Any] = {}

    def prove(self, graph: Graph) -> tuple[Proof, ...]:
        """The proofs of a graph, whether they hold or not.

        None are in a type that the model itself cannot run in.
        """
        found: list[Proof] = []
        for weights in ("own", "random"):
            for dtype in LIMITS:
                # Weights that rules make are made anew for each: in float64 from such.
                result = self._built(graph, weights, dtype)
                for inputs in self._trials:
                    if weights == "random" and inputs not in _WITH_RANDOM_WEIGHTS:
                        continue
                    proof = self._proof(result, weights, dtype, inputs)
                    if proof is not None:
                        found.append(proof)
        return tuple(found)

    def fails(self, graph: Graph, like: Proof) -> bool:
        """Whether a graph fails what another one failed."""
        result = self._built(graph, like.weights, like.dtype)
        proof = self._proof(result, like.weights, like.dtype, like.inputs)
        return proof is not None and not proof.holds

    def _built(self, graph: Graph, weights: str, dtype: str) -> torch.nn.Module:
        return built(
            self._captured, in_type(graph, dtype), weights=self._weights_of(weights, dtype)
        )

    def _weights_of(self, weights: str, dtype: str) -> dict[str, torch.Tensor]:
        if (weights, dtype) not in self._weights:
            # One set at a time: a model may take a good part of the memory.
            self._weights.clear()
            by_name = None if weights == "own" else random_weights(self._captured)
            self._weights[weights, dtype] = weights_in_type(self._captured, by_name, dtype)
        return self._weights[weights, dtype]

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
        staged(model, inputs, run, Reals(run)) as stage,
    ):
        torch.manual_seed(_SEED)
        result, _ = stage.step(_Listener())
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
