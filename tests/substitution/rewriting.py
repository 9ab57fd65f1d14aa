"""Captures a small model, applies a rule to it, and builds what comes out: for tests of rules."""

from __future__ import annotations

import copy
import functools
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import CapturedModel, capture_graph
from roofline.substitution.graphs.counting import count_records
from roofline.substitution.graphs.graph import INPUT, Graph
from roofline.substitution.graphs.operators import Operators
from roofline.substitution.rules.rule import Match, Rule, select_rules
from roofline.workload.operators import State

OPERATORS = Operators()
"""Shared by all tests: what was called once is known."""


CONVOLUTIONS: tuple[tuple[Any, Any], ...] = (
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
)
"""Convolutions and norms by their dimensions less one."""


class Model(nn.Module):
    """A model of a function: of itself, with the parts that it is given, and of its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def sum_of(values: list[torch.Tensor]) -> torch.Tensor:
    """All of them, added one by one."""
    return functools.reduce(operator.add, values)


class Branches(nn.Module):
    """Modules that are given the same; what they give is returned, or put together."""

    def __init__(
        self, *branches: nn.Module, meet: Callable[[list[torch.Tensor]], Any] = tuple
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.meet = meet

    def forward(self, x: torch.Tensor) -> Any:
        return self.meet([branch(x) for branch in self.branches])


def tied_branches(*more: nn.Module, meet: Callable[[list[torch.Tensor]], Any] = tuple) -> nn.Module:
    """Branches of which the first two are convolutions of one kernel."""
    first, second = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)
    second.weight = first.weight
    return Branches(first, second, *more, meet=meet)


FLOAT64_TOLERANCE = 1e-10
FLOAT32_TOLERANCE = 1e-5
"""Of the largest value of the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A model before and after.

    ``before`` is a copy in float64 of the module that was given, ``graph`` what the rule made of
    ``capture.graph``, ``times`` how often it was applied, ``after`` the module of it.
    """

    before: torch.nn.Module
    capture: CapturedModel
    graph: Graph
    times: int
    after: torch.nn.Module


def rule_named(name: str) -> Rule:
    """The rule."""
    (rule,) = select_rules(name)
    return rule


def ops(graph: Graph) -> Counter[str]:
    """How often each operator is there, without ``aten.`` and inputs."""
    names = (node.op.removeprefix("aten.") for node in graph.nodes.values() if node.op != INPUT)
    return Counter(names)


def places(graph: Graph, name: str) -> list[tuple[Match, str]]:
    """Where a rule matches, and why it refuses to be applied there; ``""``: it does not."""
    rule = rule_named(name)
    return [(match, rule.refuses(graph, match)) for match in rule.pattern.matches(graph)]


def applied(graph: Graph, name: str, match: Match) -> Graph:
    """The graph after a rule was applied at a place."""
    return rule_named(name).applied(graph, match, OPERATORS.complete)


def applied_everywhere(graph: Graph, name: str, *, most: int = 100) -> tuple[Graph, int]:
    """The graph after a rule was applied at its first place, then at the first that is left, ..."""
    for times in range(most):
        match = next((match for match, refusal in places(graph, name) if not refusal), None)
        if match is None:
            return graph, times
        graph = applied(graph, name, match)
    return graph, most


def in_float64(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module for float64, in evaluation."""
    return copy.deepcopy(module).double().eval()


def counts(graph: Graph) -> tuple[int, int, int]:
    """Launches, byte, and FLOP of convolutions."""
    found = count_records(graph, OPERATORS).records
    working = [each for each in found if each.state is not State.FREE]
    flop = [each.work.flop for each in working if "conv" in each.op]
    return len(working), sum(each.work.traffic_bytes for each in working), sum(filter(None, flop))


def capture_of(module: torch.nn.Module, *args: Any, **kwargs: Any) -> CapturedModel:
    """What is captured of a module, as it is, which messages call "it"."""
    return capture_graph(module, args, kwargs, name="it", operators=OPERATORS)


def graph_of(module: torch.nn.Module, *inputs: Any) -> Graph:
    """The graph of a module, as it is."""
    return capture_of(module, *inputs).graph


def rewritten(module: torch.nn.Module, inputs: tuple[Any, ...], *names: str) -> Rewritten:
    """A model after rules were applied wherever they can be, one after the other, in float64."""
    before = in_float64(module)
    capture = capture_graph(before, _cast(inputs, torch.float64), operators=OPERATORS)
    graph, times = capture.graph, 0
    for name in names:
        graph, more = applied_everywhere(graph, name)
        times += more
    after = build_module(capture, graph)
    return Rewritten(before=before, capture=capture, graph=graph, times=times, after=after)


def assert_same_outputs(
    found: Rewritten, inputs: tuple[Any, ...], *, adds_inputs: bool = False
) -> None:
    """What both give differs by rounding only, in float64 and float32.

    Where outputs are sums with the inputs (`adds_inputs`), rounding errors follow the larger of
    both: an output may be small because its summands cancel.
    """
    with torch.no_grad():
        for dtype, tolerance in (
            (torch.float64, FLOAT64_TOLERANCE),
            (torch.float32, FLOAT32_TOLERANCE),
        ):
            given = _cast(inputs, dtype)
            expected = _flat(found.before.to(dtype)(*given))
            got = _flat(found.after.to(dtype)(*given))
            for reference, result in zip(expected, got, strict=True):
                assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
                scales = [reference, *(filter(_is_floating, given) if adds_inputs else ())]
                largest = max(each.abs().max() for each in scales)
                assert (result - reference).abs().max() <= tolerance * largest


def assert_rewrites(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    *names: str,
    times: int = 1,
    adds_inputs: bool = False,
) -> Rewritten:
    """Rules can be applied so many times, and leave what the model computes."""
    found = rewritten(module, inputs, *names)
    assert found.times == times
    assert_same_outputs(found, inputs, adds_inputs=adds_inputs)
    return found


def refusal(module: torch.nn.Module, inputs: tuple[Any, ...], name: str) -> str:
    """Why a rule refuses the only place, or all places, where it matches."""
    found = {reason for _, reason in places(graph_of(module, *inputs), name)}
    assert len(found) == 1, found
    return found.pop()


def _cast(inputs: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(each.to(dtype) if _is_floating(each) else each for each in inputs)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _flat(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if isinstance(result, dict) else result
    return [each for value in values for each in _flat(value)]


def with_random_norms(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module in evaluation, its parameters and batch norms' statistics drawn from a seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) * 2 + 0.25)
            elif buffer.is_floating_point():
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return module.eval()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal random numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
