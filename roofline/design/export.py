"""Result of `export`: operators and outputs of exported files against the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.core.blocks import (
    Block,
    Column,
    Grid,
    KeyValueBlock,
    View,
    number_column,
    warning_notes,
)
from roofline.core.rows import fields_of
from roofline.core.units import MISSING, format_bytes, format_flop, format_shape, format_si
from roofline.result import Result
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import InputSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """Operator with different FLOP in model and file, and the reason."""

    op: str
    calls_before: int
    calls_after: int
    flop_before: int | None
    flop_after: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """Exported file, read again.

    ``largest_error`` is the largest difference of outputs from the model's, over the largest value
    of the output. ``unknown_operators`` calls have unknown FLOP, in no sum.
    """

    path: str
    format: str
    opset: int | None
    size_bytes: int
    largest_error: float
    limit: float
    macs: int
    flop: int
    unknown_operators: int
    changes: tuple[OperatorChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Export(Result):
    """Exported model; ``macs`` and ``flop`` are those of one pass.

    ``unknown_operators`` calls have unknown FLOP, in no sum.
    """

    kind: ClassVar = "export"
    made_by: ClassVar = "roofline export MODEL -o FILE.onnx --format json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        **dict.fromkeys(("path", "format"), "string"),
        **dict.fromkeys(("opset", "size_bytes"), "Int64"),
        **dict.fromkeys(("largest_error", "limit"), "Float64"),
        **dict.fromkeys(("macs", "flop", "unknown_operators"), "Int64"),
    }

    model: str
    inputs: tuple[InputSpec, ...]
    macs: int
    flop: int
    unknown_operators: int
    files: tuple[ExportedFile, ...]
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Verdict: output difference, and MACs against the model."""
        worst = max(each.largest_error for each in self.files)
        counted = "MACs differ from the model"
        if all(each.macs == self.macs for each in self.files):
            counted = f"equal MACs ({format_si(self.macs, '', 4)})"
        names = " and ".join(each.path for each in self.files)
        difference = f"differ by {worst:.1e} of the largest value" if worst else "are equal"
        return f"{names}: outputs of file and {self.model} {difference}; {counted}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per file."""
        return fields_of(self.columns, self.files)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the files and their operators with different FLOP."""
        if self.inputs:
            given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in self.inputs)
            yield KeyValueBlock(lines=(("Model", self.model), ("Input", given)))

        def named(each: Export | ExportedFile) -> tuple[str, str, str]:
            if isinstance(each, Export):
                return "(the model)", MISSING, MISSING
            opset = f" (opset {each.opset})" if each.opset else ""
            error = f"{each.largest_error:.1e} ≤ {each.limit:.0e}"
            return each.path + opset, format_bytes(each.size_bytes), error

        yield Grid(
            title="Exported files",
            columns=(
                Column(heading="file", least=12, cut="start"),
                *map(number_column, ("size", "output difference", "MACs", "FLOP")),
                number_column("unknown operators", 1),
            ),
            rows=tuple(
                (
                    *named(each),
                    f"{each.macs:,}",
                    format_flop(each.flop),
                    f"{each.unknown_operators}",
                )
                for each in (self, *self.files)
            ),
        )
        yield from (_changes(each) for each in self.files if each.changes)
        yield from warning_notes(self.warnings, view)


def _changes(file: ExportedFile) -> Grid:
    numbers = map(number_column, ("calls", "calls in file", "FLOP", "FLOP in file"))
    columns = (Column(heading="operator"), *numbers, Column(heading="reason", least=30))
    rows = tuple(
        (
            *(each.op.removeprefix("aten."), str(each.calls_before), str(each.calls_after)),
            *(format_flop(each.flop_before), format_flop(each.flop_after)),
            each.reason or "not explained",
        )
        for each in file.changes
    )
    title = f"Operators with different FLOP in {file.path}"
    return Grid(title=title, columns=columns, rows=rows)


def sums_of(records: Iterable[OperatorRecord]) -> tuple[int, int, int]:
    """Return the MACs and FLOP of records, and the number of unknown operators."""
    macs = flop = unknown = 0
    for each in records:
        if each.state is State.UNKNOWN:
            unknown += 1
        else:
            macs += each.work.macs or 0
            flop += each.work.flop or 0
    return macs, flop, unknown


def changes_between(
    before: Sequence[OperatorRecord], after: Sequence[OperatorRecord]
) -> tuple[OperatorChange, ...]:
    """Return the operators with different FLOP, largest difference first."""
    sides = _Side(before), _Side(after)
    names = {**sides[0].calls, **sides[1].calls}
    differing = [name for name in names if len({each.flop_of(name) for each in sides}) > 1]
    gone = {name for name in differing if sides[1].calls[name] < sides[0].calls[name]}
    found = [
        OperatorChange(
            op=name,
            calls_before=sides[0].calls[name],
            calls_after=sides[1].calls[name],
            flop_before=sides[0].flop_of(name),
            flop_after=sides[1].flop_of(name),
            reason=_reason(name, gone, *sides),
        )
        for name in differing
    ]
    return tuple(
        sorted(found, key=lambda each: -abs((each.flop_after or 0) - (each.flop_before or 0)))
    )


class _Side:
    """Calls, FLOP and biased calls by operator."""

    def __init__(self, records: Iterable[OperatorRecord]) -> None:
        self.calls: Counter[str] = Counter()
        self.biased: Counter[str] = Counter()
        self._flop: dict[str, int | None] = {}
        for each in records:
            # In-place operators count as their functional form.
            name = each.op.removesuffix("_")
            flop = each.work.flop if each.state is not State.UNKNOWN else None
            known = self._flop.get(name, 0)
            self._flop[name] = None if known is None or flop is None else known + flop
            self.calls[name] += 1
            is_biased = name == "aten.convolution" and len(each.inputs) > 2
            self.biased[name] += is_biased or name == "aten.addmm"

    def flop_of(self, name: str) -> int | None:
        return self._flop.get(name, 0)


# -- reasons ---------------------------------------------------------------------------------------

_BATCH_NORMS = ("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training")

_WHOLE = {
    "aten._scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten._scaled_dot_product_attention_math": "attention",
    "aten._native_multi_head_attention": "multi-head attention",
    "aten._transformer_encoder_layer_fwd": "an encoder layer",
    "aten.gelu": "GELU",
    "aten.silu": "SiLU",
    "aten.mish": "Mish",
    "aten.hardswish": "hard swish",
    "aten.hardsigmoid": "hard sigmoid",
    "aten.native_layer_norm": "layer norm",
    "aten.native_group_norm": "group norm",
    "aten._fused_rms_norm": "RMS norm",
    "aten.linalg_vector_norm": "a norm",
    "aten.addmm": "a matrix product with a bias",
    "aten.addcmul": "a product and an addition",
    "aten.var_mean": "mean and variance",
    "aten.mkldnn_rnn_layer": "a recurrent layer",
    "aten.log_sigmoid_forward": "log sigmoid",
    "aten.rsqrt": "an inverse square root",
    "aten.elu": "ELU",
    "aten.pow": "a power",
    "aten.rsub": "a difference",
}
"""Operators that formats may decompose."""


_NO_BIAS = "a bias of zeros was removed by the export"
_MASKED = tuple(name for name, what in _WHOLE.items() if what == "attention")
_PRODUCTS = ("aten.convolution", "aten.addmm", "aten.mm")


def _reason(name: str, gone: set[str], before: _Side, after: _Side) -> str:
    first, second = before.flop_of(name), after.flop_of(name)
    if first is None or second is None:
        return "unknown FLOP"
    if name in _BATCH_NORMS and second < first:
        return "folded into the preceding layer by the export"
    if name in _PRODUCTS and sum(after.calls[each] for each in _PRODUCTS) == sum(
        before.calls[each] for each in _PRODUCTS
    ):
        # Equal products: only additions differ.
        if name == "aten.convolution" and after.biased[name] > before.biased[name]:
            return "bias of a folded batch norm" if gone & set(_BATCH_NORMS) else ""
        lost = before.biased["aten.addmm"] - after.biased["aten.addmm"]
        added = after.calls["aten.add"] - before.calls["aten.add"]
        if name != "aten.convolution" and lost > max(added, 0):
            return _NO_BIAS
    if name in _MASKED and second > first and after.calls[name] == before.calls[name]:
        return "explicit attention mask, absent in the model"
    if name in _WHOLE and second < first:
        return f"{_WHOLE[name]} is decomposed in the file"
    written_out = list(dict.fromkeys(_WHOLE[each] for each in sorted(gone) if each in _WHOLE))
    if written_out and second > first:
        *several, last = written_out
        return f"part of decomposed {', '.join(several)}{' or ' * bool(several)}{last}"
    if name == "aten.convolution" and after.biased[name] < before.biased[name]:
        return _NO_BIAS
    if name not in _PRODUCTS and second < first:
        return "computed or merged by the export"
    return ""
