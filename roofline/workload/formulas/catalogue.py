"""Every operator that has a formula, with what is counted of it in words."""

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
from roofline.errors import InputError, did_you_mean
from roofline.result import Result
from roofline.run import Run
from roofline.workload.formulas.registry import Formula, file_of, find, known
from roofline.workload.operators import OperatorRecord, Phase, State
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
        yield from warning_notes(self.warnings, view)
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


EACH_OPERAND_ONCE = "each operand once; views free; in place: read and written"
"""The bytes of an operator whose formula says nothing else."""

_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A formula for one operator, in words.

    ``key`` is the operator (``"aten.mm"``), ``flop_rule`` the first paragraph of what its function
    says of itself, ``flop_detail`` the others (``""``: it says no more), ``byte_rule`` which bytes
    are charged. ``file`` is relative to the folder that roofline is in, and absolute where the
    formula is the user's own; ``""`` and line 0 where the function has none.
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
    def where(self) -> str:
        """``file:line``; ``""`` where there is none."""
        return f"{self.file}:{self.line}" if self.file else ""


_TYPES = {"int": "Int64", "bool": "boolean", "str": "string"}
_SHORT, _, _MEANING = EACH_OPERAND_ONCE.partition("; ")
_FORMULAS = "roofline/workload/formulas/"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Operators(Result):
    """Operators that have a formula: those that were looked for, of `known` in all."""

    kind: ClassVar = "operators"
    made_by: ClassVar = "roofline operators -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md")
    columns: ClassVar = {each.name: _TYPES[str(each.type)] for each in fields(Entry)}

    known: int
    operators: tuple[Entry, ...]

    @property
    def summary(self) -> str:
        """How many operators have how many formulas."""
        count, rules = len(self.operators), len(shared_rules(self.operators))
        among = "" if count == self.known else f" of the {self.known}"
        return f"{count}{among} operators that have a formula: {counted(rules, 'formula')}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each operator."""
        return fields_of(self.columns, self.operators)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the operators, one a line where lines are long, else by formula, and notes."""
        del view
        rules = shared_rules(self.operators)
        headings = ("operator", "type", "FLOP", "bytes", "where")
        lines = Grid(
            title="",
            columns=tuple(Column(heading=each) for each in headings),
            rows=tuple(
                (each.key, each.type, _flop(each), _bytes(each), each.where)
                for each in self.operators
            ),
        )
        together = Grid(
            title="",
            columns=(Column(heading="operator"), Column(heading="type, FLOP, bytes, where")),
            rows=tuple(
                (
                    ", ".join(each.key.removeprefix("aten.") for each in rule),
                    f"{first.type}: {_flop(first)} Bytes: {_bytes(first)}."
                    f" ({first.where.removeprefix(_FORMULAS)})",
                )
                for rule in sorted(rules, key=lambda each: each[0].type)
                for first in rule[:1]
            ),
        )
        yield Choice(grids=(lines, together))
        if len(rules) == 1:
            # What there is no room for in a table of many.
            (first, *_), *_ = rules
            more = [("More", first.flop_detail)] if first.flop_detail else []
            of_complex = "counted" if first.is_for_complex else "of unknown FLOP, if it takes any"
            yield KeyValueBlock(lines=(*more, ("Complex numbers", of_complex)))
        yield from notes(
            "Notes",
            (
                f"{_SHORT}: {_MEANING}",
                "operators without a name space are aten's",
                "what a model needs and has no formula: roofline operators --missing MODEL",
            ),
        )


def _flop(entry: Entry) -> str:
    return entry.flop_rule or "not said: its function has no docstring"


def _bytes(entry: Entry) -> str:
    return _SHORT if entry.byte_rule == EACH_OPERAND_ONCE else entry.byte_rule


def catalogue() -> tuple[Entry, ...]:
    """All operators that have a formula, by name."""
    return tuple(entry_of(each) for _, each in sorted(known().items()))


def entry_of(formula: Formula) -> Entry:
    """What a formula says of itself."""
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
    """The operators that one formula counts in one way, together; in the order of the first."""
    found: dict[tuple[object, ...], list[Entry]] = {}
    for each in entries:
        same = (each.file, each.line, each.type, each.flop_rule, each.byte_rule)
        found.setdefault(same, []).append(each)
    return [tuple(each) for each in found.values()]


def of_type(entries: Sequence[Entry], type: str) -> tuple[Entry, ...]:
    """Those of a kind, such as ``"convolution"``."""
    types = sorted({each.type for each in entries})
    if type not in types:
        raise InputError(
            f"--type '{type}': there are {', '.join(types)}{did_you_mean(type, types)}"
        )
    return tuple(each for each in entries if each.type == type)


def matching(entries: Sequence[Entry], pattern: str) -> tuple[Entry, ...]:
    """Those whose name is `pattern`, else those that it fits: by ``*``, ``?`` or ``[…]``, with or
    without the name space, else as a part.

    The name of an in-place variant or an overload finds the formula that counts it.
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
    """The key of the formula that counts an operator as torch prints it; ``""`` if none does."""
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
        return "; roofline operators without a pattern lists all that have one"
    return f"; the nearest {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
