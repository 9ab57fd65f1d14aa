"""Layers ranked by what they suffer from few bits, and bits for each of them under a budget."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from roofline.errors import InputError, ModelError, RooflineError, said_by
from roofline.foundation.progress import Progress, silent
from roofline.foundation.rows import sum_known
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes, format_s, format_shape
from roofline.pipeline.quantizing import Budget
from roofline.pipeline.runs import Workload, arguments_of, seeded
from roofline.pipeline.timing import real_model
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import (
    LayerSensitivity,
    LayerWhatIf,
    Proposal,
    Sensitivity,
    Side,
    WhatIf,
)
from roofline.quantization.sensitivity import (
    Option,
    candidates_of,
    cheapest,
    chosen,
    proposed_policy,
    ranked,
)
from roofline.run import Run

if TYPE_CHECKING:
    import torch

    from roofline.quantization.quantizers import PACT
    from roofline.workload.inputs import InputRequest, Inputs


def samples_for(asked: Workload, samples: Any) -> tuple[Inputs, str]:
    """What a model is run on, and that in words: ``"random numbers of 4x3x8x8"``.

    Args:
        samples: what is to be taken, as the inputs of `analyze`; None: the model's inputs.

    Raises:
        InputError: `samples` are none.
    """
    from roofline.workload.inputs import inputs_of

    given = asked.given if samples is None else inputs_of(samples)
    if given is None:
        raise InputError("samples: there are none; give tensors, as the inputs of a model")
    requests = [request for _, request in given.requests()]
    if not requests:
        return given, "no tensors"
    tensors = "the given inputs" if samples is None else "given samples"
    kinds = dict.fromkeys(_kind_words(each, tensors) for each in requests)
    shapes = ", ".join(format_shape(each.shape) for each in requests)
    return given, f"{' and '.join(kinds)} of {shapes}"


def _kind_words(request: InputRequest, tensors: str) -> str:
    """What `arguments_of` gives: a given tensor, else noise; where there is none, one number."""
    import torch

    from roofline.workload.torch_dtypes import dtype_for

    if request.like is not None and tuple(request.like.shape) == request.shape:
        return tensors
    kind = dtype_for(request, None)
    if kind.is_floating_point or kind.is_complex:
        return "random numbers"
    return "ones" if kind == torch.bool else "zeros"


_FLOAT_POLICY = Policy(weights=FLOAT_BITS, activations=FLOAT_BITS, first_last=FLOAT_BITS)

_REPEATED = 1e-4
"""The relative error up to which outputs are the same: sums need not be in the same order."""


class OutputErrors:
    """A copy of a model with its weights, in inference, and what it gives on some inputs.

    ``inputs`` says in words what these are, ``layers`` are the qualified names of what can be
    quantised where it is. Clipping values are calibrated on the same inputs, so that an error is
    that of layers that were not trained for their bits.

    Args:
        asked: the model and its inputs.
        run: how it is run.
        samples: what outputs are compared on, as the inputs of `analyze`; None: the model's inputs.
        per_channel: whether weights have a scale for each output channel.

    Raises:
        ModelError: the model has no weights, cannot be copied, raises, or gives nothing that errors
            can be computed of.
        InputError: `samples` are no inputs, or a layer cannot be quantised.
    """

    def __init__(self, asked: Workload, run: Run, samples: Any, *, per_channel: bool) -> None:
        self._name = asked.source.name
        self._per_channel = per_channel
        with seeded():
            # A model that is built here has random weights.
            built = real_model(asked)
        self._model = _copied(built, run, self._name)
        given, self.inputs = samples_for(asked, samples)
        self._batch = arguments_of(given, run)
        self._reference = self._outputs(self._model)
        if not self._reference or not all(map(_is_sound, self._reference)):
            raise ModelError(
                f"{self._name}: --sensitivity compares floating-point outputs, and the model gives"
                " none, or NaN or infinite ones, for its inputs; give others with samples="
            )
        if self._error(self._outputs(self._model), "a second pass") > _REPEATED:
            raise ModelError(
                f"{self._name} gives other outputs when it is called again with the same inputs, so"
                " --sensitivity cannot tell what few bits do to them; have it repeat itself"
            )
        self.layers = frozenset(
            self._clippings(replace(_FLOAT_POLICY, activations=8, first_last=8, shortcut="low"))
        )

    def of_each(
        self, wanted: Mapping[str, Sequence[LayerBits]], progress: Progress
    ) -> dict[tuple[str, LayerBits], float]:
        """The relative L2 error of the outputs with one layer alone quantised.

        Raises:
            ModelError: outputs are no longer finite.
        """
        found: dict[tuple[str, LayerBits], float] = {}
        calls = sum(map(len, wanted.values()))
        for place in range(max(map(len, wanted.values()), default=0)):
            here = {name: each[place] for name, each in wanted.items() if place < len(each)}
            activations = {
                name: LayerBits(weights=FLOAT_BITS, activations=each.activations)
                for name, each in here.items()
            }
            clippings = self._clippings(replace(_FLOAT_POLICY, layers=activations))
            for name, bits in here.items():
                progress(len(found) / calls, f"quantizing {name or self._name} to {bits.words}")
                found[name, bits] = self._alone(name, bits, clippings.get(name))
        return found

    def of_all(self, policy: Policy) -> float:
        """The relative L2 error of the outputs with all of a policy.

        Raises:
            ModelError: outputs are no longer finite.
        """
        known = {name: bits for name, bits in policy.layers.items() if name in self.layers}
        model = self._calibrated(replace(policy, layers=known))
        return self._error(self._outputs(model), "the proposed policy")

    def _clippings(self, policy: Policy) -> Mapping[str, PACT]:
        """What quantises the activations of each layer, calibrated on what floats give it."""
        from roofline.quantization import quantized_layers

        layers = quantized_layers(self._calibrated(policy))
        return {
            name: each.input_quantizer
            for name, each in layers.items()
            if each.input_quantizer is not None
        }

    def _alone(self, name: str, bits: LayerBits, clipping: PACT | None) -> float:
        layer = self._model.get_submodule(name)
        with _in_few_bits(layer, bits.weights, clipping, per_channel=self._per_channel):
            return self._error(self._outputs(self._model), f"layer '{name}' in {bits.words}")

    def _calibrated(self, policy: Policy) -> torch.nn.Module:
        from roofline.quantization import PACT, calibrate_clipping, quantize_model
        from roofline.workload.inputs import Inputs

        args, kwargs = self._batch
        given = Inputs(*args, **kwargs)
        with seeded(), warnings.catch_warnings():
            # What stays in floats is in the what-if; what reads only zeros makes no error.
            warnings.simplefilter("ignore")
            model = quantize_model(self._model, policy, given)
            if any(isinstance(each, PACT) for each in model.modules()):
                calibrate_clipping(model, [given])
        return model

    def _outputs(self, model: torch.nn.Module) -> list[torch.Tensor]:
        """The floating tensors that the model gives, in float64."""
        import torch
        from torch.utils import _pytree as pytree

        args, kwargs = self._batch
        with seeded(), torch.no_grad():
            try:
                result = model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except RooflineError:
                raise
            # The user's own code may raise anything.
            except Exception as error:
                raise ModelError(
                    f"{self._name} raised {type(error).__name__} in its forward pass:"
                    f" {printable(said_by(error)[:200])}"
                ) from error
        return [
            each.detach().to(torch.float64)
            for each in pytree.tree_leaves(result)
            if isinstance(each, torch.Tensor) and each.is_floating_point() and each.numel()
        ]

    def _error(self, outputs: Sequence[torch.Tensor], what: str) -> float:
        if [each.shape for each in outputs] != [each.shape for each in self._reference]:
            raise ModelError(
                f"{self._name}: {what} changes how many outputs there are, or their sizes, so that"
                " --sensitivity cannot compare them; give a part of the model where they stay"
            )
        pairs = list(zip(self._reference, outputs, strict=True))
        lost = math.fsum(float((one - two).square().sum()) for one, two in pairs)
        whole = math.fsum(float(one.square().sum()) for one, _ in pairs)
        if not math.isfinite(lost):
            raise ModelError(f"{self._name}: {what} makes outputs that are NaN or infinite")
        if not lost:
            return 0.0
        if not whole:
            raise ModelError(
                f"{self._name} gives only zeros for its inputs, so there are no relative errors;"
                " give others with samples="
            )
        return math.sqrt(lost / whole)


@contextmanager
def _in_few_bits(
    layer: torch.nn.Module, bits: int, clipping: PACT | None, *, per_channel: bool
) -> Iterator[None]:
    """A layer as `quantize_model` would leave it, while this is open."""
    from torch import nn

    from roofline.quantization.quantized_modules import TRANSPOSED, quantize_input
    from roofline.quantization.quantizers import weight_quantizer

    weight = layer._parameters["weight"]
    hook = None
    try:
        if bits != FLOAT_BITS and weight is not None:
            axis = 1 if isinstance(layer, TRANSPOSED) else 0
            quantizer = weight_quantizer(bits, per_channel=per_channel, axis=axis)
            layer._parameters["weight"] = nn.Parameter(quantizer(weight).detach())
        if clipping is not None:
            layer.add_module("input_quantizer", clipping)
            hook = layer.register_forward_pre_hook(quantize_input, with_kwargs=True)
        yield
    finally:
        layer._parameters["weight"] = weight
        if hook is not None:
            hook.remove()
            del layer._modules["input_quantizer"]


def _copied(model: torch.nn.Module, run: Run, name: str) -> torch.nn.Module:
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        made = copy.deepcopy(model).eval()
    # Locks, generators and tensors that were computed cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{name} cannot be copied, which --sensitivity takes: {type(error).__name__}:"
            f" {printable(said_by(error)[:200])}"
        ) from error
    return made.to(torch_dtype(run.dtype)) if run.dtype else made


def _is_sound(output: torch.Tensor) -> bool:
    return bool(output.isfinite().all())


Ask = Callable[[Policy], WhatIf]
"""Gives the what-if of a policy."""

Basis = Literal["prediction", "bound"]

Places = Mapping[str, Sequence[LayerWhatIf]]
"""By the qualified name of a module, each time that it runs."""

_TRIES = 8
"""Costs of layers add up but for what lies between them: so often the budget is changed."""


def places_of(what_if: WhatIf) -> Places:
    """The layers of a what-if by their modules, in the order of their first runs."""
    found: dict[str, list[LayerWhatIf]] = {}
    for each in what_if.layers:
        found.setdefault(each.layer.name.partition("#")[0], []).append(each)
    return found


def side_s(side: Side, basis: Basis) -> float | None:
    """Seconds of a layer; None where nobody knows them."""
    if basis == "bound":
        return side.eager_min_time_s
    return None if side.time is None else side.time.s


def whole_s(what_if: WhatIf, basis: Basis) -> float | None:
    """Seconds of the whole pass in few bits; None where nobody knows them."""
    if basis == "bound":
        return what_if.eager_min_time_after_s
    return None if what_if.after is None else what_if.after.s


def check_budget(budget: Budget, what_if: WhatIf, basis: Basis) -> None:
    """Refuses a budget of time where none is known, before minutes go into errors of layers."""
    if budget.time_s is not None and whole_s(what_if, basis) is None:
        raise _no_time("the whole pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What bits are chosen by, and from.

    ``asked`` is the what-if of the policy that was asked for, ``errors`` what each layer does to
    the outputs on its own, ``candidates`` the widths that each may have.
    """

    asked: WhatIf
    ask: Ask
    budget: Budget
    basis: Basis
    errors: Mapping[tuple[str, LayerBits], float]
    candidates: Mapping[str, Sequence[LayerBits]]

    @property
    def words(self) -> str:
        """``"a model of 1.00 MB"``, or a pass of so long, with what that is."""
        if self.budget.size_bytes is not None:
            return f"a model of {format_bytes(self.budget.size_bytes)}"
        what = "predicted" if self.basis == "prediction" else "by bounds"
        return f"a pass of {format_s(self.budget.time_s)}, {what}"

    def made(self) -> tuple[Policy, WhatIf, bool]:
        """The policy, what it comes to, and whether that keeps to the budget.

        Raises:
            InputError: the budget is a time, and none is known of a layer.
        """
        options = self._options()
        limit = self._limit
        most = limit - self._rest()
        least_harm = math.inf
        best: tuple[Policy, WhatIf] | None = None
        for _ in range(_TRIES):
            found = chosen(options, most)
            if found is None:
                break
            policy, then = self._of(found)
            over = self._cost(then) - limit
            harm = math.fsum(each.harm for each in found.values())
            if over <= 0 and harm < least_harm:
                least_harm, best = harm, (policy, then)
            if not least_harm:
                break
            # What the costs of layers do not tell: too much is taken back, what is left is given.
            most -= over
        if best is not None:
            return *best, True
        policy, then = self._of(cheapest(options))
        return policy, then, self._cost(then) <= limit

    @property
    def _limit(self) -> float:
        given = (self.budget.size_bytes, self.budget.time_s)
        return next(float(each) for each in given if each is not None)

    def _of(self, found: Mapping[str, Option]) -> tuple[Policy, WhatIf]:
        modules = [
            replace(each.layer, name=name)
            for name, places in places_of(self.asked).items()
            for each in places
        ]
        bits = {name: option.bits for name, option in found.items()}
        policy = proposed_policy(self.asked.policy, modules, bits)
        return policy, self.ask(policy)

    def _options(self) -> Mapping[str, Sequence[Option]]:
        """Each layer in all of its widths, with what it would need of the budget."""
        widths = dict.fromkeys(bits for each in self.candidates.values() for bits in each)
        then = {bits: places_of(self.ask(self._all_in(bits))) for bits in widths}
        options: dict[str, list[Option]] = {}
        for name, every in self.candidates.items():
            options[name] = []
            for bits in every:
                cost = self._layer_cost(then[bits][name])
                if cost is not None:
                    error = 0.0 if bits.is_float else self.errors[name, bits]
                    options[name].append(Option(bits=bits, error=error, cost=cost))
            if not options[name]:
                raise _no_time(f"layer '{name}'")
        return options

    def _all_in(self, bits: LayerBits) -> Policy:
        """The policy in which every layer that may have these bits has them."""
        named = {name: bits for name, each in self.candidates.items() if bits in each}
        return replace(self.asked.policy, layers={**self.asked.policy.layers, **named})

    def _rest(self) -> float:
        """What the model needs beside its layers: bytes, or seconds."""
        whole = self._cost(self.asked)
        of_layers = sum_known([self._layer_cost(each) for each in places_of(self.asked).values()])
        if of_layers is None:
            raise _no_time("one of the layers")
        return whole - of_layers

    def _layer_cost(self, places: Sequence[LayerWhatIf]) -> float | None:
        if self.budget.size_bytes is not None:
            # However often it runs, a model keeps a layer's weights once.
            return float(places[0].after.weight_bytes)
        return sum_known([side_s(each.after, self.basis) for each in places])

    def _cost(self, what_if: WhatIf) -> float:
        if self.budget.size_bytes is not None:
            return float(what_if.model_bytes_after)
        whole = whole_s(what_if, self.basis)
        if whole is None:
            raise _no_time("the whole pass")
        return whole


def _no_time(what: str) -> InputError:
    return InputError(
        f"--time-budget: no time is known of {what} on this machine; give a --size-budget"
    )


_FLOATS = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)

_PART_OF_ERRORS = 0.95
"""Of all the time, for progress."""


def sensitivity_of(
    asked: Workload,
    run: Run,
    what_if: WhatIf,
    *,
    ask: Ask,
    samples: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Quantises one layer at a time: what that does to the outputs, and what it saves.

    Args:
        samples: what outputs are compared on, as the inputs of `analyze`; None: the model's inputs.
        budget: within which bits for each layer are proposed; None: nothing is proposed.

    Raises:
        ModelError: the model has no weights, cannot be copied, raises, or gives nothing that errors
            can be computed of.
        InputError: `samples` are none, a layer cannot be quantised, or no time is known that a
            budget could be held against.
    """
    tell = progress or silent
    basis: Basis = "prediction" if _has_times(what_if) else "bound"
    if budget is not None:
        check_budget(budget, what_if, basis)
    tell(0.0, f"running {asked.source.name}")
    errors = OutputErrors(asked, run, samples, per_channel=what_if.policy.per_channel)
    places = places_of(what_if)
    own = {name: _own_bits(each) for name, each in places.items() if name in errors.layers}
    own = {name: bits for name, bits in own.items() if not bits.is_float}
    candidates = {} if budget is None else _candidates(places, what_if.policy, errors.layers)
    tried = {
        name: _distinct(own.get(name), candidates.get(name, ()))
        for name in places
        if name in errors.layers
    }
    found = errors.of_each(
        {name: each for name, each in tried.items() if each},
        lambda part, what: tell(_PART_OF_ERRORS * part, what),
    )
    result = Sensitivity(
        layers=ranked(
            _row(name, bits, places[name], found[name, bits], basis) for name, bits in own.items()
        ),
        basis=basis,
        inputs=errors.inputs,
        weights="the model's own" if asked.source.rebuild is None else "as it is built",
        unranked=_left(places, errors.layers),
    )
    if budget is None:
        return result
    tell(_PART_OF_ERRORS, "choosing bits for each layer")
    search = Search(
        asked=what_if, ask=ask, budget=budget, basis=basis, errors=found, candidates=candidates
    )
    policy, then, is_within = search.made()
    tell(_PART_OF_ERRORS, "running the proposed policy")
    return replace(
        result,
        proposal=Proposal(
            policy=policy,
            budget=search.words,
            is_within=is_within,
            model_bytes=then.model_bytes_after,
            time_s=whole_s(then, basis),
            error=errors.of_all(policy),
        ),
    )


def _left(places: Places, tried: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        f"layer '{name}' does not run as a module of its own, so its error is not known"
        for name, each in places.items()
        if name not in tried and not _own_bits(each).is_float
    )


def _own_bits(places: Sequence[LayerWhatIf]) -> LayerBits:
    """The most bits of its places, as `quantize_model` gives a module."""
    return LayerBits(
        weights=max(each.bits.weights for each in places),
        activations=max(each.bits.activations for each in places),
    )


def _candidates(
    places: Places, policy: Policy, quantizable: frozenset[str]
) -> Mapping[str, tuple[LayerBits, ...]]:
    """What each layer may have; floats for what cannot be quantised where it is."""
    return {
        name: _of_all_places(name, each, policy) if name in quantizable else (_FLOATS,)
        for name, each in places.items()
    }


def _of_all_places(
    name: str, places: Sequence[LayerWhatIf], policy: Policy
) -> tuple[LayerBits, ...]:
    """What a layer may have wherever it runs."""
    first, *others = (candidates_of(replace(each.layer, name=name), policy) for each in places)
    return tuple(each for each in first if all(each in other for other in others))


def _distinct(own: LayerBits | None, others: Sequence[LayerBits]) -> tuple[LayerBits, ...]:
    """The bits that are tried, each once; floats need not be."""
    every = (*((own,) if own is not None else ()), *others)
    return tuple(dict.fromkeys(each for each in every if not each.is_float))


def _row(
    name: str, bits: LayerBits, places: Sequence[LayerWhatIf], error: float, basis: Basis
) -> LayerSensitivity:
    before, after = (
        sum_known([side_s(side, basis) for side in sides])
        for sides in ([each.before for each in places], [each.after for each in places])
    )
    return LayerSensitivity(
        name=name,
        bits=bits,
        error=error,
        saved_s=None if before is None or after is None else before - after,
        saved_bytes=sum(each.before.traffic_bytes - each.after.traffic_bytes for each in places),
    )


def _has_times(what_if: WhatIf) -> bool:
    whole = what_if.before is not None and what_if.after is not None
    sides = [side for each in what_if.layers for side in (each.before, each.after)]
    return whole and all(side.time is not None for side in sides)
