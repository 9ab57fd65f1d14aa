"""What a model asks for that no formula counts, and how one for it would begin."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.foundation.blocks import Block, Code, Column, Grid, View, notes
from roofline.foundation.rows import fields_of
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_bytes, format_shape
from roofline.result import Result
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.runs import Run
from roofline.workload.tensors import InputSpec, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOperator:
    """An operator of unknown FLOP: its calls, their traffic in bytes, and where they are.

    ``formula`` is the one that it has, but not for complex numbers; ``""``: there is none.
    ``examples`` are operands of its calls, each once (``"4x8, 8 -> 4x8"``), ``modules`` the paths
    that they are in, ``stub`` the beginning of a formula for it (``""`` where it has one).
    """

    op: str
    formula: str = ""
    calls: int
    traffic_bytes: int
    examples: tuple[str, ...]
    modules: tuple[str, ...]
    phases: tuple[Phase, ...]
    stub: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Missing(Result):
    """What of a model's operators has no formula; `calls` and `operators` are all but free ones."""

    kind: ClassVar = "missing operators"
    made_by: ClassVar = "roofline operators --missing MODEL -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md")
    columns: ClassVar = {
        "op": "string",
        "formula": "string",
        "calls": "Int64",
        "traffic_bytes": "Int64",
        "phases": "string",
        "modules": "string",
        "examples": "string",
    }

    model: str
    inputs: tuple[InputSpec, ...]
    run: Run
    calls: int
    operators: int
    missing: tuple[MissingOperator, ...]
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How many calls and operators are of unknown FLOP."""
        if not self.calls:
            nothing = "nothing is missing: it calls no operator that computes or moves anything"
            return f"{self.model}: {nothing}"
        calls, operators = counted(self.calls, "operator call"), counted(self.operators, "operator")
        if not self.missing:
            return f"{self.model}: nothing is missing: {calls} of {operators} all have formulas"
        of = sum(each.calls for each in self.missing)
        return (
            f"{self.model}: FLOP are unknown of {of} of {calls} and of {len(self.missing)} of"
            f" {operators}"
        )

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each operator; several of a kind in a cell are set apart by ``; ``."""
        for cells in fields_of(self.columns, self.missing):
            yield [*cells[:4], *("; ".join(each) for each in cells[4:])]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the operators, those that move most first, and the beginnings of formulas."""
        del view
        if self.missing:
            yield Grid(
                title="Operators of unknown FLOP (their bytes are counted)",
                columns=(
                    Column(heading="operator"),
                    Column(heading="calls", align="right"),
                    Column(heading="bytes", align="right"),
                    Column(heading="reads -> writes", sacrifice=2, least=24),
                    Column(heading="in", sacrifice=1, least=16, cut="start"),
                    Column(heading="why"),
                ),
                rows=tuple(
                    (
                        *(each.op, str(each.calls), format_bytes(each.traffic_bytes)),
                        each.examples[0] + _more(each.examples),
                        (each.modules[0] or "(model)") + _more(each.modules),
                        "complex numbers" if each.formula else "no formula",
                    )
                    for each in self.missing
                ),
            )
        yield from notes("Warnings", self.warnings, urgent=True)
        if stubs := self.stubs:
            yield Code(text=stubs.rstrip("\n"))

    @property
    def stubs(self) -> str:
        """The beginnings of the formulas that are missing, as Python; ``""`` where none is."""
        stubs = [
            f"# {printable(each.examples[0])}\n{each.stub}" for each in self.missing if each.stub
        ]
        return "\n\n".join(["import roofline\n", *stubs]) if stubs else ""


def _more(values: Sequence[str]) -> str:
    return f" and {len(values) - 1} more" if len(values) > 1 else ""


Parameters = Callable[[OperatorRecord], Sequence[str]]
"""Gives the names of an operator's arguments."""


def missing_in(
    records: Iterable[OperatorRecord], parameters: Parameters
) -> tuple[MissingOperator, ...]:
    """The operators of unknown FLOP, those that move most first."""
    calls: dict[str, list[OperatorRecord]] = {}
    for each in records:
        if each.state is State.UNKNOWN:
            calls.setdefault(each.op, []).append(each)
    found = [_missing(op, of_it, parameters) for op, of_it in calls.items()]
    return tuple(sorted(found, key=lambda each: (-each.traffic_bytes, each.op)))


def _missing(op: str, calls: list[OperatorRecord], parameters: Parameters) -> MissingOperator:
    first = calls[0]
    return MissingOperator(
        op=op,
        formula=first.formula,
        calls=len(calls),
        traffic_bytes=sum(each.work.traffic_bytes for each in calls),
        examples=tuple(dict.fromkeys(map(_operands, calls))),
        modules=tuple(dict.fromkeys(each.module_path for each in calls)),
        phases=tuple(dict.fromkeys(each.phase for each in calls)),
        stub="" if first.formula else stub(op, parameters(first)),
    )


def _operands(call: OperatorRecord) -> str:
    def shapes(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(
            format_shape(each.shape)
            + ("" if each.dtype.name == "float32" else f":{each.dtype.name}")
            for each in specs
        )

    return f"{shapes(call.inputs)} -> {shapes(call.outputs)}".strip()


def stub(op: str, parameters: Sequence[str]) -> str:
    """The beginning of a formula for `op`, to be pasted: without its numbers it counts nothing."""
    name = op.rpartition(".")[2]
    # What Python takes for a word of its own arrives in **_.
    names = [each for each in parameters if each.isidentifier() and not keyword.iskeyword(each)]
    if keyword.iskeyword(name) or not name.isidentifier():
        name = f"{op.partition('.')[0]}_{name}"
    return (
        f'@roofline.formula("{op}")\n'
        f"def {name}({', '.join([*names, 'output', '**_'])}):\n"
        '    """What one call takes, in words."""\n'
        "    return roofline.Flop(macs=..., other=...)\n"
    )
