"""What a model became in a file: its operators beside those there were, and why they differ."""

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
    """An operator whose FLOP in the file are not those in the model, and the reason."""

    op: str
    calls_before: int
    calls_after: int
    flop_before: int | None
    flop_after: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that was written, and what it gives and asks for when it is read again.

    ``largest_error`` is the largest difference of its outputs from the model's, as a fraction of
    the largest value of the output. ``unknown_operators`` calls have unknown FLOP, in no sum.
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
    """A model that was written into files; ``macs`` and ``flop`` are of one of its passes.

    ``unknown_operators`` calls have unknown FLOP, which are in no sum.
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
        """How far the files compute the same as the model."""
        worst = max(each.largest_error for each in self.files)
        is_one = len(self.files) == 1
        counted = "multiply-adds differ from the model's"
        if all(each.macs == self.macs for each in self.files):
            counted = f"{'its' if is_one else 'their'} multiply-adds are those of the model"
            counted += f" ({format_si(self.macs, '', 4)})"
        names = " and ".join(each.path for each in self.files)
        what = f"{'gives' if is_one else 'give'} {'what' if worst else 'exactly what'}"
        within = f" to {worst:.1e} of the largest value" if worst else ""
        return f"{names} {what} {self.model} gives{within}; {counted}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each file."""
        return fields_of(self.columns, self.files)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the files as they were read again, and the operators that differ in each."""
        if self.inputs:
            given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in self.inputs)
            yield KeyValueBlock(lines=(("input", given),))

        def named(each: Export | ExportedFile) -> tuple[str, str, str]:
            if isinstance(each, Export):
                return "(the model)", MISSING, MISSING
            opset = f" (opset {each.opset})" if each.opset else ""
            error = f"{each.largest_error:.1e} ≤ {each.limit:.0e}"
            return each.path + opset, format_bytes(each.size_bytes), error

        yield Grid(
            title="Read again",
            columns=(
                Column(heading="file", least=12, cut="start"),
                *map(number_column, ("size", "largest difference", "multiply-adds", "FLOP")),
                number_column("operators of unknown FLOP", 1),
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
    numbers = map(number_column, ("calls", "in the file", "FLOP", "in the file"))
    columns = (Column(heading="operator"), *numbers, Column(heading="why", least=30))
    rows = tuple(
        (
            *(each.op.removeprefix("aten."), str(each.calls_before), str(each.calls_after)),
            *(format_flop(each.flop_before), format_flop(each.flop_after)),
            each.reason or "not explained",
        )
        for each in file.changes
    )
    return Grid(title=f"Operators with other FLOP in {file.path}", columns=columns, rows=rows)


def sums_of(records: Iterable[OperatorRecord]) -> tuple[int, int, int]:
    """Multiply-adds and FLOP of records, and how many of them are unknown."""
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
    """Return the operators whose FLOP differ, those that differ most first."""
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
    """Operators by name: how often each is called, its FLOP, and how many calls add a bias."""

    def __init__(self, records: Iterable[OperatorRecord]) -> None:
        self.calls: Counter[str] = Counter()
        self.biased: Counter[str] = Counter()
        self._flop: dict[str, int | None] = {}
        for each in records:
            # In place or not, it computes the same.
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
    "aten.addmm": "a product with a bias",
    "aten.addcmul": "a product that is added",
    "aten.var_mean": "mean and variance",
    "aten.mkldnn_rnn_layer": "a recurrent layer",
    "aten.log_sigmoid_forward": "log sigmoid",
    "aten.rsqrt": "an inverse square root",
    "aten.elu": "ELU",
    "aten.pow": "a power",
    "aten.rsub": "a difference",
}
"""Operators that a format may not have, so that they come as others that compute the same."""


_NO_BIAS = "a bias that is all zeros was left out when the model was exported"
_MASKED = tuple(name for name, what in _WHOLE.items() if what == "attention")
_PRODUCTS = ("aten.convolution", "aten.addmm", "aten.mm")


def _reason(name: str, gone: set[str], before: _Side, after: _Side) -> str:
    first, second = before.flop_of(name), after.flop_of(name)
    if first is None or second is None:
        return "its FLOP are unknown"
    if name in _BATCH_NORMS and second < first:
        return "folded into the weights of the layer before it when the model was exported"
    if name in _PRODUCTS and sum(after.calls[each] for each in _PRODUCTS) == sum(
        before.calls[each] for each in _PRODUCTS
    ):
        # The same products, so that only what is added to them differs.
        if name == "aten.convolution" and after.biased[name] > before.biased[name]:
            return "the bias that a folded batch norm left" if gone & set(_BATCH_NORMS) else ""
        lost = before.biased["aten.addmm"] - after.biased["aten.addmm"]
        added = after.calls["aten.add"] - before.calls["aten.add"]
        if name != "aten.convolution" and lost > max(added, 0):
            return _NO_BIAS
    if name in _MASKED and second > first and after.calls[name] == before.calls[name]:
        return "the mask, which the model itself leaves out where nothing is masked"
    if name in _WHOLE and second < first:
        return f"the file has {_WHOLE[name]} as other operators, which compute the same"
    written_out = list(dict.fromkeys(_WHOLE[each] for each in sorted(gone) if each in _WHOLE))
    if written_out and second > first:
        *several, last = written_out
        return f"part of {', '.join(several)}{' or ' * bool(several)}{last} in the file"
    if name == "aten.convolution" and after.biased[name] < before.biased[name]:
        return _NO_BIAS
    if name not in _PRODUCTS and second < first:
        return "computed once, when the model was exported, or merged with what is beside it"
    return ""
