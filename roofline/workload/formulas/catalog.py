"""Operators with a formula, with their FLOP and bytes in words, and operators without one."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from roofline.core.blocks import (
    Block,
    Choice,
    Code,
    Column,
    Grid,
    KeyValueBlock,
    View,
    notes,
    warning_notes,
)
from roofline.core.rows import fields_of
from roofline.core.text import counted, printable
from roofline.core.units import format_bytes, format_shape
from roofline.errors import InputError, argument, did_you_mean
from roofline.result import Result
from roofline.run import Run
from roofline.workload.formulas.registry import Formula, file_of, find, known
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import InputSpec, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOperator:
    """Operator of unknown FLOP: calls, their traffic in bytes, and locations.

    ``formula`` is its formula that does not hold for complex numbers; ``""``: it has none.
    ``examples`` are the distinct operands of its calls (``"4x8, 8 -> 4x8"``), ``modules`` the paths
    of the calling modules, ``stub`` the beginning of a formula (``""`` where it has one).
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
    """Operators of a model without a formula; `calls` and `operators` count all but free ones."""

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
        """Calls and operators of unknown FLOP, in words."""
        if not self.calls:
            return f"{self.model}: no missing operators: no operator computes or moves anything"
        calls, operators = counted(self.calls, "call"), counted(self.operators, "operator")
        if not self.missing:
            return f"{self.model}: no missing operators: {calls} of {operators} have formulas"
        of = sum(each.calls for each in self.missing)
        return f"{self.model}: unknown FLOP in {of} of {calls}, {len(self.missing)} of {operators}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per operator; several values in a cell are separated by ``; ``."""
        for cells in fields_of(self.columns, self.missing):
            yield [*cells[:4], *("; ".join(each) for each in cells[4:])]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the operators by falling traffic, and the beginnings of formulas."""
        if self.missing:
            yield Grid(
                title="Operators of unknown FLOP by traffic",
                columns=(
                    Column(heading="Op"),
                    Column(heading="Calls", align="right"),
                    Column(heading="Bytes", align="right"),
                    Column(heading="Inputs -> outputs", drop_priority=2, least=24),
                    Column(heading="Module", drop_priority=1, least=16, cut="start"),
                    Column(heading="Reason"),
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
        yield from warning_notes(self.warnings, view)
        if stubs := self.stubs:
            yield Code(text=stubs.rstrip("\n"))

    @property
    def stubs(self) -> str:
        """Beginnings of the missing formulas, as Python; ``""`` if none is missing."""
        stubs = [
            f"# {printable(each.examples[0])}\n{each.stub}" for each in self.missing if each.stub
        ]
        return "\n\n".join(["import roofline\n", *stubs]) if stubs else ""


def _more(values: Sequence[str]) -> str:
    return f" and {len(values) - 1} more" if len(values) > 1 else ""


Parameters = Callable[[OperatorRecord], Sequence[str]]
"""Returns the names of an operator's arguments."""


def find_missing(
    records: Iterable[OperatorRecord], parameters: Parameters
) -> tuple[MissingOperator, ...]:
    """Return the operators of unknown FLOP by falling traffic."""
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
        stub="" if first.formula else formula_stub(op, parameters(first)),
    )


def _operands(call: OperatorRecord) -> str:
    def shapes(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(
            format_shape(each.shape)
            + ("" if each.dtype.name == "float32" else f":{each.dtype.name}")
            for each in specs
        )

    return f"{shapes(call.inputs)} -> {shapes(call.outputs)}".strip()


def formula_stub(op: str, parameters: Sequence[str]) -> str:
    """Return the beginning of a formula for `op`; it fails until its numbers are filled in."""
    name = op.rpartition(".")[2]
    # Python keywords arrive in **_.
    names = [each for each in parameters if each.isidentifier() and not keyword.iskeyword(each)]
    if keyword.iskeyword(name) or not name.isidentifier():
        name = f"{op.partition('.')[0]}_{name}"
    return (
        f'@roofline.formula("{op}")\n'
        f"def {name}({', '.join([*names, 'output', '**_'])}):\n"
        '    """FLOP of one call, in words."""\n'
        "    return roofline.Flop(macs=..., other=...)\n"
    )


EACH_OPERAND_ONCE = "each operand once; views free; in place: read and written"
"""Bytes of an operator by default."""

_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A formula for one operator, in words.

    ``key`` is the operator (``"aten.mm"``), ``flop_rule`` the first paragraph of the docstring of
    its function, ``flop_detail`` the others, ``byte_rule`` the charged bytes. ``file`` is relative
    to the parent folder of roofline, absolute for formulas of the user; ``""`` and line 0 if
    unknown.
    """

    key: str
    type: str
    flop_rule: str
    flop_detail: str = ""
    byte_rule: str
    file: str
    line: int
    is_for_complex: bool
    is_user: bool

    @property
    def source(self) -> str:
        """``file:line``; ``""`` if unknown."""
        return f"{self.file}:{self.line}" if self.file else ""


_TYPES = {"int": "Int64", "bool": "boolean", "str": "string"}
_SHORT, _, _MEANING = EACH_OPERAND_ONCE.partition("; ")
_FORMULAS = "roofline/workload/formulas/"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Operators(Result):
    """Operators with a formula that match a query; `known` counts all of them."""

    kind: ClassVar = "operators"
    made_by: ClassVar = "roofline operators -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md")
    columns: ClassVar = {each.name: _TYPES[str(each.type)] for each in fields(Entry)}

    known: int
    operators: tuple[Entry, ...]

    @property
    def summary(self) -> str:
        """Numbers of operators and formulas, in words."""
        count, rules = len(self.operators), len(shared_rules(self.operators))
        among = "" if count == self.known else f" of {self.known}"
        return f"{count}{among} operators with a formula: {counted(rules, 'formula')}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per operator."""
        return fields_of(self.columns, self.operators)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the operators, one per line on wide terminals, else by formula, and notes."""
        del view
        rules = shared_rules(self.operators)
        headings = ("Operator", "Type", "FLOP", "Bytes", "Source")
        lines = Grid(
            title="",
            columns=tuple(Column(heading=each) for each in headings),
            rows=tuple(
                (each.key, each.type, _flop(each), _bytes(each), each.source)
                for each in self.operators
            ),
        )
        by_formula = Grid(
            title="",
            columns=(Column(heading="Operator"), Column(heading="Type, FLOP, bytes, source")),
            rows=tuple(
                (
                    ", ".join(each.key.removeprefix("aten.") for each in rule),
                    f"{first.type}: {_flop(first)} Bytes: {_bytes(first)}."
                    f" ({first.source.removeprefix(_FORMULAS)})",
                )
                for rule in sorted(rules, key=lambda each: each[0].type)
                for first in rule[:1]
            ),
        )
        yield Choice(grids=(lines, by_formula))
        if len(rules) == 1:
            (first, *_), *_ = rules
            details = [("Details", first.flop_detail)] if first.flop_detail else []
            of_complex = "counted" if first.is_for_complex else "unknown FLOP"
            yield KeyValueBlock(lines=(*details, ("Complex numbers", of_complex)))
        yield from notes(
            "Notes",
            (
                f"{_SHORT}: {_MEANING}",
                "operators without a namespace are aten's",
                "operators of a model without a formula: roofline operators --missing MODEL",
            ),
        )


def _flop(entry: Entry) -> str:
    return entry.flop_rule or "(no docstring)"


def _bytes(entry: Entry) -> str:
    return _SHORT if entry.byte_rule == EACH_OPERAND_ONCE else entry.byte_rule


def catalog() -> tuple[Entry, ...]:
    return tuple(entry_of(each) for _, each in sorted(known().items()))


def entry_of(formula: Formula) -> Entry:
    first, _, others = (inspect.getdoc(formula.function) or "").partition("\n\n")
    file, line = formula.row or file_of(formula.function)
    is_user = not Path(file).is_relative_to(_PACKAGE)
    if file and not is_user:
        file = Path(file).relative_to(_PACKAGE.parent).as_posix()
    elif file and not file.startswith("<"):
        file = str(Path(file).absolute())
    return Entry(
        key=formula.key,
        type=formula.type,
        flop_rule=" ".join(first.split()),
        flop_detail=" ".join(others.split()),
        byte_rule=formula.byte or EACH_OPERAND_ONCE,
        file=file,
        line=line,
        is_for_complex=formula.is_for_complex,
        is_user=is_user,
    )


def shared_rules(entries: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """Group operators that one formula counts in the same way, in the order of their first."""
    found: dict[tuple[object, ...], list[Entry]] = {}
    for each in entries:
        same = (each.file, each.line, each.type, each.flop_rule, each.byte_rule)
        found.setdefault(same, []).append(each)
    return [tuple(each) for each in found.values()]


def filter_by_type(entries: Sequence[Entry], type: str) -> tuple[Entry, ...]:
    types = sorted({each.type for each in entries})
    if type not in types:
        raise InputError(
            f"{argument('type', type)}: expected {', '.join(types)}{did_you_mean(type, types)}"
        )
    return tuple(each for each in entries if each.type == type)


def filter_by_name(entries: Sequence[Entry], pattern: str) -> tuple[Entry, ...]:
    """Return the entries whose name is `pattern`, else those that match it as a glob or contain it.

    A glob may omit the namespace. Names of in-place variants and overloads find their formula.
    """
    wanted = pattern.removeprefix("torch.ops.").replace("::", ".")
    exact = tuple(each for each in entries if each.key == wanted)
    if exact:
        return exact
    if re.search(r"[*?[]", wanted):
        fitting = tuple(
            each
            for each in entries
            if fnmatchcase(each.key, wanted) or fnmatchcase(each.key.partition(".")[2], wanted)
        )
    else:
        fitting = tuple(each for each in entries if wanted.lower() in each.key.lower())
    if not fitting and (key := _counted_as(wanted)):
        fitting = tuple(each for each in entries if each.key == key)
    if not fitting:
        raise InputError(f"no formula for '{pattern}'{_nearest_keys(wanted, entries)}")
    return fitting


def _counted_as(operator: str) -> str:
    """Return the key of the formula for an operator as torch prints it; ``""`` if none."""
    space, _, rest = operator.partition(".")
    name, _, overload = rest.partition(".")
    if not rest:
        space, name = "aten", operator
    found = find(f"{space}.{name}", overload)
    return found.key if found else ""


def _nearest_keys(wanted: str, entries: Sequence[Entry]) -> str:
    keys = {each.key.rpartition(".")[2]: each.key for each in reversed(entries)}
    keys |= {each.key: each.key for each in entries}
    close = get_close_matches(wanted, keys, n=6, cutoff=0.6)
    names = list(dict.fromkeys(keys[each] for each in close))[:3]
    if not names:
        return "; roofline operators without a pattern lists all"
    return f"; the nearest {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
