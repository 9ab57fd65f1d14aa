"""Single rewrites against the clock: does the sign of the cost tell what pays?

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python benchmarks/optimize_decisions.py /tmp/decisions            # goes on where it was
    python benchmarks/optimize_decisions.py /tmp/decisions --only pairs
    python benchmarks/optimize_decisions.py /tmp/decisions --table    # only the table
    python benchmarks/optimize_decisions.py /tmp/decisions --quick    # a few rounds; table in there

It writes optimize_decisions-HOST.md beside itself. Each subject is a small module in which a rule
can be applied once. The rewrite is made whatever it costs; both graphs are costed, by predictions
and by operators measured on their own, and timed in turn. Batch 1 on one thread where nothing else
stands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from networks.cases import NETWORKS, SMALL
from optimize_rows import Row, Table, about_the_machine, failed, in_turn, interval, ratio, run
from torch import nn

from roofline.core.units import format_percent, format_s

# Channels, side of the image, and filters of the two convolutions.
SHAPES = (
    *((32, 14, 32, 32), (64, 7, 64, 64), (64, 56, 64, 64), (16, 54, 64, 64), (32, 27, 128, 128)),
    *((64, 13, 256, 256), (192, 35, 64, 48), (192, 28, 64, 96), (480, 14, 192, 96)),
    *((832, 7, 256, 160), (1280, 8, 320, 384)),
)
KERNELS = ((1, 1), (1, 3), (3, 3))
LAYOUTS = ("NCHW", "NHWC")


class Pair(nn.Module):
    """Two convolutions of one image."""

    def __init__(self, channels: int, filters: Sequence[int], kernels: Sequence[int]) -> None:
        super().__init__()
        self.one, self.other = (
            nn.Conv2d(channels, count, kernel, padding=kernel // 2)
            for count, kernel in zip(filters, kernels, strict=True)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What both give."""
        return self.one(x), self.other(x)


class Attention(nn.Module):
    """The three products of a self-attention."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What they give."""
        return self.query(x), self.key(x), self.value(x)


class Residual(nn.Module):
    """x + convolution of x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape as the image's."""
        return x + self.convolution(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A module in which a rule is applied once; ``kind`` is what the table sums over."""

    name: str
    kind: str
    rule: str
    made: Callable[[], tuple[nn.Module, Sequence[torch.Tensor]]]


def _pair(
    shape: tuple[int, int, int, int], kernels: tuple[int, int], layout: str
) -> tuple[nn.Module, Sequence[torch.Tensor]]:
    channels, side, *filters = shape
    format = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    module = Pair(channels, filters, kernels)
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=format)
    return module, [torch.randn(1, channels, side, side).contiguous(memory_format=format)]


def _pairs(place: int) -> Iterator[Subject]:
    shape = SHAPES[place]
    channels, side, one, other = shape
    for kernels in KERNELS:
        for layout in LAYOUTS:
            same = kernels[0] == kernels[1]
            yield Subject(
                name=f"{channels}@{side} → {one} + {other}, {kernels[0]}x{kernels[0]}"
                f" + {kernels[1]}x{kernels[1]}, {layout}",
                kind="equal convolutions" if same else "enlarged convolutions",
                rule="merge-convolutions" if same else "enlarge-and-merge",
                made=functools.partial(_pair, shape, kernels, layout),
            )


def _named(name: str, batch: int) -> tuple[nn.Module, Sequence[torch.Tensor]]:
    network = {**NETWORKS, **SMALL}[name]
    return network.built(), network.tensors(batch)


def _chain(channels: int, side: int, filters: int, kernel: int) -> Any:
    convolution = nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False)
    image = torch.randn(1, channels, side, side)
    return nn.Sequential(convolution, nn.BatchNorm2d(filters), nn.ReLU()), [image]


def _pooled(channels: int, side: int, count: int) -> Any:
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(count)]
    return nn.Sequential(*layers, nn.MaxPool2d(2)), [torch.randn(1, channels, side, side)]


def _others() -> Iterator[Subject]:
    def subject(name: str, kind: str, rule: str, made: Callable[[], Any]) -> Subject:
        return Subject(name=name, kind=kind, rule=rule, made=made)

    for size in (256, 768):
        for tokens in (1, 16, 128):
            yield subject(
                f"queries, keys, values of {size}, {tokens} tokens",
                "linears",
                "merge-linears",
                lambda size=size, tokens=tokens: (Attention(size), [torch.randn(tokens, size)]),
            )
    for name, batch in (("Eight", 1), ("Eight", 64), ("ThirtyTwo", 1), ("ThirtyTwo", 64)):
        made = functools.partial(_named, name, batch)
        yield subject(f"{name}, batch {batch}", "linears", "merge-linears", made)
    for name in ("LSTM256", "LSTM1024"):
        for batch in (1, 16):
            made = functools.partial(_named, name, batch)
            yield subject(f"{name}, batch {batch}", "gates", "merge-gates", made)
    for name in ("Block48", "Block192"):
        for batch in (1, 16):
            made = functools.partial(_named, name, batch)
            yield subject(f"{name}, batch {batch}", "parallel sums", "sum-convolutions", made)
    for channels, side in ((16, 56), (64, 28), (256, 14)):
        yield subject(
            f"x + 3x3 of {channels}@{side}",
            "parallel sums",
            "absorb-residual",
            lambda channels=channels, side=side: (
                Residual(channels),
                [torch.randn(1, channels, side, side)],
            ),
        )
    for shape in ((64, 56, 64, 1), (64, 56, 64, 3), (256, 14, 512, 1), (512, 7, 512, 3)):
        channels, side, filters, kernel = shape
        made = functools.partial(_chain, *shape)
        name = f"{kernel}x{kernel} of {channels}@{side} → {filters}, batch norm"
        yield subject(name, "batch norms", "fold-batch-norm", made)
    for shape in ((32, 56, 2), (64, 28, 3), (128, 14, 4)):
        channels, side, count = shape
        made = functools.partial(_pooled, *shape)
        name = f"{count} 3x3 of {channels}@{side}, pooling"
        yield subject(name, "layout", "channels-last", made)


def _others_of(kind: str) -> Iterator[Subject]:
    return (each for each in _others() if each.kind == kind)


GROUPS: Mapping[str, Callable[[], Iterable[Subject]]] = {
    **{
        f"pairs {channels}@{side}": functools.partial(_pairs, place)
        for place, (channels, side, *_) in enumerate(SHAPES)
    },
    **{
        kind: functools.partial(_others_of, kind)
        for kind in ("linears", "gates", "parallel sums", "batch norms", "layout")
    },
}


def _computed(key: str, quick: bool) -> Row:
    torch.set_num_threads(1)
    found: list[Row] = []
    for subject in GROUPS[key]():
        torch.manual_seed(0)
        module, inputs = subject.made()
        said = {"name": subject.name, "kind": subject.kind, "rule": subject.rule}
        found.append({**said, **_tried(subject.rule, module.eval(), inputs, quick=quick)})
    return {"subjects": found}


def _tried(
    rule_name: str, module: nn.Module, inputs: Sequence[torch.Tensor], *, quick: bool
) -> Row:
    from roofline.substitution.graphs.building import build_module
    from roofline.substitution.graphs.capturing import capture_graph
    from roofline.substitution.graphs.graph import Editor
    from roofline.substitution.graphs.operators import Operators
    from roofline.substitution.rules.rule import select_rules

    operators = Operators()
    model = capture_graph(module, inputs, operators=operators)
    (rule,) = select_rules(rule_name)
    matches = [
        each for each in rule.pattern.matches(model.graph) if not rule.refuses(model.graph, each)
    ]
    if not matches:
        refusals = [rule.refuses(model.graph, each) for each in rule.pattern.matches(model.graph)]
        return {"refused": refusals[0] if refusals else "no such place"}
    match = max(matches, key=lambda each: len(each.numbers))
    editor = Editor(model.graph, operators.complete, rule.name)
    rule.rewrite(editor, match)
    graphs = (model.graph, editor.finished())
    input_bytes = sum(each.nbytes for each in inputs)
    costs = {
        basis: _costs(basis, graphs, operators, model, input_bytes, quick=quick)
        for basis in ("predicted", "measured")
    }
    before, after = (build_module(model, graph) for graph in graphs)
    timed = in_turn(before, after, inputs, rounds=5 if quick else 21)
    return {"costs": costs, **asdict(timed), "is_clear": timed.is_clear}


def _costs(
    basis: Any, graphs: Sequence[Any], operators: Any, model: Any, input_bytes: int, *, quick: bool
) -> list[float] | None:
    """Both graphs' seconds; None where they cannot be compared."""
    from roofline.pipeline.optimization_figures import weight_bytes
    from roofline.pipeline.optimization_machine import machine_for, open_costs
    from roofline.run import Run
    from roofline.substitution.graphs.counting import count_records
    from roofline.workload.residency import trace_residency

    def count(graph: Any, /, *, rest_bytes: int = 0) -> Any:
        return count_records(graph, operators, rest_bytes=rest_bytes)

    machine = machine_for(None, cost=basis, fused=False, threads=1, run=Run(), progress=None)
    peak_bytes = trace_residency(count(graphs[0]).records).peak_activation_bytes
    with open_costs(
        machine,
        count,
        pass_bytes=weight_bytes(graphs[0], model) + input_bytes + peak_bytes,
        force=quick,
        progress=lambda _: None,
        say=lambda _: None,
    ) as costs:
        before, after = (costs.cost(graph) for graph in graphs)
    return [before.total_s, after.total_s] if before.is_comparable(after) else None


def _subjects(rows: Sequence[Row]) -> list[Row]:
    found = [each for row in rows if "error" not in row for each in row["subjects"]]
    return [each for each in found if "refused" not in each]


def _is_right(subject: Row, basis: str) -> bool | None:
    """Whether the sign of the cost is the clock's; None where the clock or the cost has none."""
    costs = subject["costs"][basis]
    if not subject["is_clear"] or costs is None:
        return None
    return (costs[0] > costs[1]) == (subject["speedup"] > 1.0)


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    subjects = _subjects(rows)
    yield "# Single rewrites against the clock"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/optimize_decisions.py`."
    yield ""
    yield "Ratios are original over rewritten: above 1 the rewrite pays. *Clear*: by the clock one"
    yield "is faster by more than 5 %, and the interval from 10 to 90 % of rounds leaves 1 out."
    yield "Costs: predictions of `roofline calibrate`, and sums of operators timed on their own."
    yield ""
    yield from _by_kind(subjects)
    yield ""
    yield "## Each of them"
    yield ""
    yield "| rewrite | of | original | by clock | interval | predicted | measured | sign |"
    yield "|---|---|---:|---:|---:|---:|---:|---|"
    for each in subjects:
        ratios = [
            ratio(costs[0] / costs[1]) if (costs := each["costs"][basis]) else "–"
            for basis in ("predicted", "measured")
        ]
        yield (
            f"| {each['rule']} | {each['name']} | {format_s(each['before_s'])} |"
            f" {ratio(each['speedup'])} | {interval(each['speedup_low'], each['speedup_high'])} |"
            f" {' | '.join(ratios)} | {_words(each)} |"
        )
    refused = [
        each for row in rows if "error" not in row for each in row["subjects"] if "refused" in each
    ]
    if refused:
        yield ""
        yield "Refused by their rules:"
        yield ""
        for each in refused:
            yield f"* {each['rule']}, {each['name']}: {each['refused']}"
    yield from failed(rows)


def _words(subject: Row) -> str:
    if not subject["is_clear"]:
        return "unclear"
    wrong = [basis for basis in ("predicted", "measured") if _is_right(subject, basis) is False]
    return f"wrong: {', '.join(wrong)}" if wrong else "right"


def _by_kind(subjects: Sequence[Row]) -> Iterable[str]:
    yield "| rewrites | tried | clear | that pay | predicted right | measured right |"
    yield "|---|---:|---:|---:|---:|---:|"
    for kind in (*dict.fromkeys(each["kind"] for each in subjects), ""):
        part = [each for each in subjects if kind in ("", each["kind"])]
        clear = [each for each in part if each["is_clear"]]
        paying = sum(each["speedup"] > 1.0 for each in clear)
        shares = [_share(clear, basis) for basis in ("predicted", "measured")]
        yield (
            f"| {kind or '**all**'} | {len(part)} | {len(clear)} | {paying} |"
            f" {' | '.join(shares)} |"
        )


def _share(clear: Sequence[Row], basis: str) -> str:
    known = [right for each in clear if (right := _is_right(each, basis)) is not None]
    if not known:
        return "–"
    return f"{sum(known)} of {len(known)} ({format_percent(sum(known) / len(known))})"


TABLE = Table(name="optimize_decisions", keys=tuple(GROUPS), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
