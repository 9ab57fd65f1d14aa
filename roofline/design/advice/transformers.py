"""Rules on transformers: attention, KV heads, repeated tables, operators written out, types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from roofline.analysis import Finding, OperatorRow, fits
from roofline.analysis.words import short_op
from roofline.core.dtypes import dtype
from roofline.core.text import counted
from roofline.core.units import format_bytes, format_memory, format_s
from roofline.design.advice.subject import (
    Alternative,
    Proposal,
    Saving,
    Subject,
    attention_like,
    fused_like,
    is_linear,
    minimum_s,
)
from roofline.placement import Roof, arithmetic_dtype
from roofline.workload.dataflow import Reading
from roofline.workload.fusion_kinds import aten, ends_with_row, is_concatenation, is_copy, is_random
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from roofline.workload.work import COUNTS, Work, traffic_of

_LONGEST = 8  # Operators between two that belong together

# -- attention -------------------------------------------------------------------------------------

_PRODUCTS = ("aten.bmm", "aten.baddbmm", "aten.mm")


def written_attention(subject: Subject) -> list[tuple[list[OperatorRow], Alternative]]:
    """Return the operators of each attention written out, and the fused one."""
    found: list[tuple[list[OperatorRow], Alternative]] = []
    for softmax in subject.working:
        if softmax.op.endswith("_softmax") and softmax.type == "softmax" and _is_of_keys(softmax):
            before, behind = _scores(subject, softmax), _values(subject, softmax)
            is_pair = before and behind and min(len(before[0].inputs), len(behind[-1].inputs)) > 1
            if is_pair and _is_inner(subject, [*before, softmax, *behind]):
                products = before[0], behind[-1]
                copies = [each for row in products for each in _copied_operands(subject, row)]
                readers = subject.readers(behind[-1])
                copies += readers if len(readers) == 1 and is_copy(readers[0].record) else []
                rows = [*copies, *before, softmax, *behind]
                device = subject.analysis.hardware.device
                found.append((rows, attention_like(rows, *products, device)))
    return found


def _is_of_keys(softmax: OperatorRow) -> bool:
    last = len(softmax.outputs[0].shape) - 1
    return softmax.attributes.get("dim", last) in (-1, last)


def _is_inner(subject: Subject, rows: Sequence[OperatorRow]) -> bool:
    """Return True if others in the forward pass read the last result alone."""
    inside = {row.index for row in rows}
    readers = (reader for row in rows[:-1] for reader in subject.readers(row))
    return all(each.index in inside or each.phase != "forward" for each in readers)


def _is_product(row: OperatorRow) -> bool:
    return row.op in _PRODUCTS and bool(row.macs) and not is_linear(row)


_MASKS = ("masked_fill", "where", "_to_copy", "nan_to_num", "native_dropout", "_fused_dropout")
_BIASES = ("add", "sub")
_FACTORS = ("mul", "div", "maximum")
"""Operators around a softmax that fused attention has, or that factors of its operands replace."""


def _is_of_attention(subject: Subject, row: OperatorRow, biases: Sequence[str] = ()) -> bool:
    name = short_op(row).removesuffix("_")
    if name not in _FACTORS:
        return name in (*_MASKS, *biases) or is_copy(row.record)
    if len(row.inputs) == 1 and "other" not in row.attributes:
        # The square of scores or probabilities.
        return False
    elements, operands = row.outputs[0].elements, range(len(row.inputs))
    whole = [place for place in operands if row.inputs[place].elements == elements]
    return len(whole) == 1 or any(_is_drawn(subject, row, place) for place in whole)


def _is_drawn(subject: Subject, row: OperatorRow, operand: int) -> bool:
    """Return True for a mask of dropout: a random number, or a multiple of it."""
    mask = subject.writer(row, operand)
    made = mask and (mask, subject.writer(mask))
    return any(each is not None and is_random(each.record) for each in made or ())


def _scores(subject: Subject, row: OperatorRow, left: int = _LONGEST) -> list[OperatorRow]:
    """Return the product that scores come from, and the operators between; [] without one."""
    for operand, reading in enumerate(subject.flow.read[row.index]):
        writer = subject.writer(row, operand)
        if writer is None or reading.spec.elements != row.outputs[0].elements:
            continue
        if _is_product(writer):
            return [writer]
        is_between = left and _is_of_attention(subject, writer, _BIASES)
        if is_between and (before := _scores(subject, writer, left - 1)):
            return [*before, writer]
    return []


def _values(subject: Subject, row: OperatorRow, left: int = _LONGEST) -> list[OperatorRow]:
    """Return the operators up to the product with probabilities on its left; [] without one."""
    elements, keys = row.outputs[0].elements, row.outputs[0].shape[-1]
    for reader in subject.readers(row):
        if _is_product(reader) and reader.inputs[-2:][0].elements == elements:
            left_side = reader.inputs[-2:][0]
            # The transposed probabilities are sums over queries.
            is_square = left_side.shape[-2] == keys and left_side.layout == "strided"
            return [] if left_side.shape[-1] != keys or is_square else [reader]
        is_between = left and reader.outputs and _is_of_attention(subject, reader)
        if is_between and reader.outputs[0].elements == elements:
            behind = _values(subject, reader, left - 1)
            if behind:
                return [reader, *behind]
    return []


def _copied_operands(subject: Subject, product: OperatorRow) -> Iterator[OperatorRow]:
    for operand in range(len(product.inputs)):
        copy = subject.writer(product, operand)
        if copy is not None and is_copy(copy.record) and subject.readers(copy) == [product]:
            yield copy


def attention_written_out(subject: Subject) -> list[Proposal]:
    """Find a product, softmax and a product, which write and read all scores."""

    def evidence(groups: list[list[OperatorRow]]) -> str:
        rows = list(chain.from_iterable(groups))
        scores = sum(max(e.outputs[0].byte for e in group) for group in groups)
        return (
            f"{counted(len(groups), 'time')} a product, softmax and a product"
            f" ({counted(len(rows), 'operator')}): {subject.share(rows)}; scores of"
            f" {format_bytes(scores)} are written and read between them"
        )

    return subject.instead(
        "attention written out",
        written_attention(subject),
        evidence=evidence,
        change="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        is_timed=True,
    )


_REPEATS = ("aten.repeat", "aten.repeat_interleave", "aten.expand_copy")


def _repeats_heads(row: OperatorRow, factor: int) -> bool:
    """Return True if a copy repeats an inner dimension; records have no strides."""
    shape = row.outputs[0].shape
    if times := row.attributes.get("repeats"):
        return len(shape) > 3 and bool(times[0] == 1)
    # A batch of as many samples as heads cannot be told apart.
    return factor in shape[-3:-1] and len(shape) > 3 + (factor == shape[0])


def expanded_heads(subject: Subject) -> list[Proposal]:
    """Find keys and values copied for every query head of their group."""
    products = {
        row.index for rows, _ in written_attention(subject) for row in rows if _is_product(row)
    }

    def feeds_attention(row: OperatorRow, left: int = 3) -> bool:
        for reader in subject.readers(row):
            operands = subject.flow.read[reader.index]
            places = [
                place
                for place, each in enumerate(operands)
                if each.value and each.value.writer == row.index
            ]
            if reader.type == "attention" and {1, 2} & {*places}:
                return True
            if reader.index in products and len(operands) - 1 in places:
                return True
            if left and is_copy(reader.record) and feeds_attention(reader, left - 1):
                return True
        return False

    rows: list[OperatorRow] = []
    factors: set[int] = set()
    for row in subject.working:
        if (is_copy(row.record) or row.op in _REPEATS) and row.inputs and row.outputs:
            factor, rest = divmod(row.outputs[0].elements, row.inputs[0].distinct_elements or 1)
            if factor > 1 and not rest and _repeats_heads(row, factor) and feeds_attention(row):
                rows.append(row)
                factors.add(factor)
    return subject.without(
        "expanded KV heads",
        rows,
        evidence=f"{counted(len(rows), 'copy', 'copies')} of keys or values"
        f" {' or '.join(f'{each}×' for each in sorted(factors))}"
        f" ({format_bytes(sum(row.traffic_bytes for row in rows))} of traffic):"
        f" {subject.share(rows)}",
        change="scaled_dot_product_attention(q, k, v, enable_gqa=True), without repeat_interleave"
        " or expand",
    )


# -- operators computed again ----------------------------------------------------------------------


_FILLS = aten("zeros_like ones_like full_like new_zeros new_ones new_full")
"""Operators that take only the shape and type of their operand."""


def repetitions(subject: Subject) -> list[tuple[OperatorRow, OperatorRow]]:
    """Return operators that compute what an earlier one computed, each with the first one."""
    first: dict[object, OperatorRow] = {}
    same: dict[int, int] = {}
    found: list[tuple[OperatorRow, OperatorRow]] = []

    def operand(each: Reading) -> object:
        spec, source = each.spec, (each.spec.storage, 0)
        if each.value is not None:
            values = [value for _, value in subject.flow.written[each.value.writer]]
            source = same[each.value.writer], 1 + values.index(each.value)
        elif each.latest_writer is not None:
            return object()
        shift = spec.offset_bytes - (each.value.first if each.value else 0)
        return source, shift, spec.shape, spec.dtype, spec.layout, spec.distinct_elements

    for row in subject.working:
        same[row.index] = row.index
        stays = all(subject.last_write[each.storage] == row.index for each in row.outputs)
        if not (row.op.startswith("aten.") and row.outputs and row.state is State.COUNTED):
            continue
        if not stays or is_random(row.record) or any(e.role.persists for e in row.outputs):
            continue
        key = (
            *(row.op, repr(sorted(row.attributes.items()))),
            () if row.op in _FILLS else tuple(map(operand, subject.flow.read[row.index])),
            tuple((each.shape, each.dtype, each.layout) for each in row.outputs),
        )
        earlier = first.setdefault(key, row)
        same[row.index] = earlier.index
        if earlier is not row:
            found.append((row, earlier))
    return found


def repeated_computation(subject: Subject) -> list[Proposal]:
    """Find operators that compute again what an earlier one computed: masks, tables, casts."""
    rows = [row for row, earlier in repetitions(subject) if row.phase == earlier.phase]
    ops = dict.fromkeys(map(short_op, sorted(rows, key=lambda row: -row.traffic_bytes)))
    return subject.without(
        "repeated computation",
        rows,
        evidence=f"{counted(len(rows), 'operator')} ({', '.join([*ops][:4])}) with the operands of"
        f" an earlier one: {subject.share(rows)}",
        change="compute masks and position tables once, before the layers (register_buffer, or an"
        " argument of the layers)",
    )


def checkpointing(subject: Subject) -> list[Proposal]:
    """Find recomputation in the backward pass without need, and need without recomputation."""
    analysis, capacity = subject.analysis, subject.analysis.hardware.memory_capacity_bytes
    peak = analysis.peak
    if not (analysis.run.train and peak and capacity):
        return []
    again = [
        row
        for row, earlier in repetitions(subject)
        if (row.phase, earlier.phase) == ("backward", "forward")
    ]
    kept_bytes = sum(spec.byte for row in again for spec in row.outputs)
    if again and fits(peak.byte + kept_bytes, capacity):
        return subject.without(
            "needless checkpointing",
            again,
            evidence=f"{counted(len(again), 'operator')} of the forward pass again in the backward"
            f" pass: {subject.share(again)}; peak {format_bytes(peak.byte)}, without recomputation"
            f" at most {format_bytes(peak.byte + kept_bytes)} of {format_memory(capacity)}",
            change="call the blocks without torch.utils.checkpoint",
        )
    if analysis.fits is not False or again:
        return []
    forward_s = subject.taken_s(row for row in subject.working if row.phase == "forward")
    finding = Finding(
        rule="checkpointing",
        evidence=f"peak {format_bytes(peak.byte)} of {format_memory(capacity)},"
        f" {format_bytes(peak.activation_bytes)} of it activations; recomputation costs at most"
        f" one more forward pass ({format_s(forward_s or None)} {subject.kind} time)",
        change="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for every block",
    )
    return [Proposal(finding=finding)]


# -- operators written out -------------------------------------------------------------------------


def _with_sources(
    subject: Subject, members: Iterable[OperatorRow], ops: Sequence[str], shared: Sequence[str] = ()
) -> list[OperatorRow]:
    """Add the operators of these names that only the members read.

    Those of `shared` may have several readers among them.
    """
    inside = {row.index: row for row in members}
    front = [*inside.values()]
    while front:
        row = front.pop()
        for operand in range(len(row.inputs)):
            source = subject.writer(row, operand)
            if source is None or source.index in inside or short_op(source) not in (*ops, *shared):
                continue
            readers = subject.readers(source)
            is_inner = len(readers) == 1 or short_op(source) in shared
            if is_inner and all(reader.index in inside for reader in readers):
                inside[source.index] = source
                front.append(source)
                # What it reads may now have all its readers inside.
                front += [inside[each] for each in inside if each != source.index]
    return [inside[index] for index in sorted(inside)]


_SCALES = ("mul", "div", "reciprocal", "add", "_to_copy")
_NEAR = ("sub", "_to_copy")


def _normalized(
    subject: Subject, mean: OperatorRow
) -> tuple[tuple[OperatorRow, ...], set[int]] | None:
    """Return a mean of squares or a variance of rows, and the storages of its operand.

    These are also those before a cast or the subtraction of a mean. None for other reductions.
    """
    first = mean
    if short_op(mean) != "var":
        square = subject.writer(mean) if short_op(mean) in ("mean", "sum") else None
        if square is None or len(square.inputs) != 1 or not _is_square(square):
            return None
        first = square
    operand = mean.inputs[0]
    is_of_rows = operand.elements == mean.outputs[0].elements * math.prod(operand.shape[-1:])
    if not (is_of_rows and ends_with_row(mean.record)):
        return None
    # Operands in traces are the latest results of their size.
    storages = {first.inputs[0].storage, *(each.storage for each in first.outputs)}
    made = subject.writer(first)
    if made is not None and short_op(made) in _NEAR:
        storages.add(made.inputs[0].storage)
    return tuple({row.index: row for row in (mean, first)}.values()), storages


def _is_square(row: OperatorRow) -> bool:
    if short_op(row) == "pow":
        return row.attributes.get("exponent", 2) == 2
    return short_op(row) == "square" or (short_op(row) == "mul" and "other" not in row.attributes)


def _scales_operand(
    subject: Subject, scale: OperatorRow, by: OperatorRow, storages: set[int]
) -> bool:
    """Return True if the operand of these storages is scaled, also less its mean, or cast."""
    for place, each in enumerate(scale.inputs):
        if each.storage != by.outputs[0].storage:
            made = subject.writer(scale, place)
            is_near = made is not None and short_op(made) in _NEAR
            near = {made.inputs[0].storage} if made is not None and is_near else set[int]()
            is_dividend = place == 0 or short_op(scale) != "div"
            return is_dividend and not storages.isdisjoint({each.storage, *near})
    return False


def _normalizations(subject: Subject) -> Iterator[list[OperatorRow]]:
    """Yield mean, root and product with the operand: RMSNorm, or LayerNorm with deviations."""
    for root in subject.working:
        if short_op(root) not in ("rsqrt", "sqrt"):
            continue
        members, mean = [root], subject.writer(root)
        # torch.nn.RMSNorm, where torch has no kernel of it, adds in place: it is not matched.
        while mean is not None and short_op(mean) in ("add", "clamp_min"):
            members.append(mean)
            mean = subject.writer(mean)
        found = _normalized(subject, mean) if mean is not None else None
        if mean is None or found is None:
            continue
        members += found[0]
        elements, factor = mean.inputs[0].elements, "mul" if short_op(root) == "rsqrt" else "div"
        row, is_scaled = root, False
        while len(readers := subject.readers(row)) == 1 and short_op(readers[0]) in _SCALES:
            scale = readers[0]
            others = [each for each in scale.inputs if each.storage != row.outputs[0].storage]
            if any(each.elements >= elements for each in others):
                # Once scaled, other operands are weights; one of full size is a gate or residual.
                is_operand = short_op(scale) == factor and not is_scaled
                if not (is_operand and _scales_operand(subject, scale, row, found[1])):
                    break
                is_scaled = True
            elif short_op(scale) == "reciprocal":
                factor = "mul"
            members.append(row := scale)
        if is_scaled:
            yield _with_sources(
                subject,
                members,
                ("mean",),
                ("pow", "square", "sub", "_to_copy"),
            )


def _gelus(subject: Subject) -> Iterator[list[OperatorRow]]:
    """Yield x * (1 + tanh(x + x ** 3)) or x * (1 + erf(x)), with their factors."""
    for curve in subject.working:
        if short_op(curve) not in ("tanh", "erf"):
            continue
        members = [curve]
        for name, operands in (("add", 1), ("mul", 2)):
            readers = subject.readers(members[-1])
            found = [(short_op(each), len(each.inputs)) for each in readers]
            if found == [(name, operands)]:
                members += readers
        if len(members) == 3:
            found = _with_sources(subject, members, ("mul", "div", "add", "pow"))
            cubes = sum(short_op(row) in ("pow", "mul") for row in found if row.index < curve.index)
            if (short_op(curve) == "erf" or cubes > 2) and _is_unary(subject, found):
                yield found


def _is_unary(subject: Subject, rows: Sequence[OperatorRow]) -> bool:
    """Return True if operators read one tensor from others, apart from scalars."""
    inside = {row.index for row in rows}
    readings = (each for row in rows for each in subject.flow.read[row.index])
    outside = (each for each in readings if each.latest_writer not in inside)
    return len({each.key for each in outside if each.spec.elements > 1}) == 1


def _rotations(subject: Subject) -> Iterator[list[OperatorRow]]:
    """Yield x * cos + cat(-x2, x1) * sin."""
    for turned in subject.working:
        if not is_concatenation(turned.record) or len(turned.inputs) != 2:
            continue
        negative = next((e for n in (0, 1) if (e := subject.writer(turned, n))), None)
        readers = subject.readers(turned)
        if negative is None or short_op(negative) != "neg" or len(readers) != 1:
            continue
        sums = subject.readers(readers[0])
        if short_op(readers[0]) == "mul" and len(sums) == 1 and short_op(sums[0]) == "add":
            found = _with_sources(subject, [turned, readers[0], sums[0]], ("neg", "mul"))
            if len(found) == _OF_ROTATION:
                yield found


_OF_ROTATION = 5  # Operators


def written_out(subject: Subject) -> list[Proposal]:
    """Find normalizations, GELU and rotary embeddings made of single operators."""
    found: list[Proposal] = []
    compiled = "torch.compile, which makes one kernel of it"
    norm = "torch.nn.RMSNorm, or torch.nn.LayerNorm if it subtracts the mean"
    if subject.analysis.hardware.device == "cpu":
        norm = (
            f"{compiled} (on CPUs, torch.nn.RMSNorm is the same operators), or torch.nn.LayerNorm"
        )
    gelu = "torch.nn.functional.gelu(x), with approximate='tanh' for tanh"
    for name, finder, change in (
        ("normalization", _normalizations, norm),
        ("GELU", _gelus, gelu),
        ("rotary embedding", _rotations, compiled),
    ):

        def evidence(groups: list[list[OperatorRow]], name: str = name) -> str:
            rows = list(chain.from_iterable(groups))
            byte = format_bytes(sum(row.traffic_bytes for row in rows))
            return (
                f"{counted(len(groups), name)} of {counted(len(rows), 'operator')}"
                f" ({byte} of traffic): {subject.share(rows)}"
            )

        groups = [(rows, fused_like(subject.flow, rows)) for rows in finder(subject)]
        rule = f"{name} written out"
        found += subject.instead(rule, groups, evidence=evidence, change=change)
    return found


COMPILED = "torch.compile"
"""Rule whose finding is tried in the whole model."""


def compilation(subject: Subject) -> list[Proposal]:
    """Find the time that compilation saves: predicted, else that of fused kernels at most.

    These go down to their minimum times, without time outside operators (dispatch overhead, page
    faults); products take as long as before.
    """
    kernels: dict[int, list[OperatorRow]] = {}
    for row in subject.working:
        if row.chain is not None:
            kernels.setdefault(row.chain, []).append(row)
    fused = {chain: rows for chain, rows in kernels.items() if len(rows) > 1}
    saved_s = byte = fused_byte = 0.0
    for rows in fused.values():
        products = [row for row in rows if row.macs]
        least_s = rows[0].fused_min_time_s
        if least_s is not None:
            least_s = subject.taken_s(products) + max(0.0, least_s - minimum_s(products))
            saved_s += max(0.0, subject.taken_s(rows) - least_s)
        byte += sum(row.traffic_bytes for row in rows)
        fused_byte += sum(row.fused_bytes or 0 for row in rows)
    if saved_s <= 0:
        return []
    number = sum(map(len, fused.values()))
    outside_s = max(0.0, subject.pass_s - subject.taken_s(subject.working))
    after_s = max(0.0, subject.pass_s - saved_s - outside_s)
    compiled = None if subject.is_measured else subject.analysis.compiled_prediction
    if compiled is not None:
        after_s = min(subject.pass_s, compiled.predicted_s)
    return subject.finding(
        COMPILED,
        (),
        Saving(before_s=subject.pass_s, after_s=after_s),
        basis="at most" if compiled is None else "estimate",
        evidence=f"{counted(number, 'operator')} fit into {counted(len(fused), 'kernel')} by"
        f" operator fusion: traffic {format_bytes(fused_byte)} instead of {format_bytes(byte)}",
        change="model = torch.compile(model)",
    )


# -- types -----------------------------------------------------------------------------------------


def float32_products(subject: Subject) -> list[Proposal]:
    """Find products in float32 in a pass whose other products are in 16-bit types.

    In measured passes on GPUs, also if all of them are in float32.
    """
    by_type: dict[str, list[OperatorRow]] = {}
    for row in subject.working:
        if row.macs:
            name = str(arithmetic_dtype((*row.inputs, *row.outputs)))
            by_type.setdefault(name, []).append(row)
    flop = {name: sum(row.flop or 0 for row in rows) for name, rows in by_type.items()}
    small = max(("bfloat16", "float16"), key=lambda name: flop.get(name, 0))
    is_island = flop.get(small, 0) > flop.get("float32", 0)
    roof = Roof(subject.analysis.hardware, subject.analysis.threads)
    fast, slow = roof.compute(dtype(small)), roof.compute(dtype("float32"))
    is_gpu = subject.is_measured and roof.profile.device != "cpu"
    if not (is_island or is_gpu) or not (fast and slow and fast.flop_per_s > slow.flop_per_s):
        return []
    groups = [([row], _in_type(row, small)) for row in by_type.get("float32", ())]

    def evidence(groups: list[list[OperatorRow]]) -> str:
        rows = list(chain.from_iterable(groups))
        return (
            f"{counted(len(rows), 'product')} in float32: {subject.share(rows)}; {small} units are"
            f" {fast.flop_per_s / slow.flop_per_s:.1f}× faster"
        )

    return subject.instead(
        "float32 island" if is_island else "lower precision",
        groups,
        evidence=evidence,
        change=f"keep them in {small}: no .float() and no autocast(enabled=False) around them"
        if is_island
        else f"model.to(torch.{small}), or torch.autocast(device, torch.{small})",
    )


def _in_type(row: OperatorRow, name: str) -> Alternative:
    inputs, outputs = (
        tuple(replace(e, dtype=dtype(name)) if e.dtype.kind == "float" else e for e in specs)
        for specs in (row.inputs, row.outputs)
    )
    work = Work(**{name: getattr(row, name) for name in COUNTS}, **traffic_of(inputs, outputs))
    record = replace(row.record, inputs=inputs, outputs=outputs, work=work)
    share = work.traffic_bytes / row.traffic_bytes if row.traffic_bytes else 0.0
    byte = {level: round(each * share) for level, each in row.level_bytes.items()}
    return Alternative(record=record, level_bytes=byte)


_LEAST_BITS = 16  # Of weights that are not quantized


def weight_casts(subject: Subject) -> list[Proposal]:
    """Find casts of parameters to another floating type in inference, the same in every pass."""
    if any(row.phase != "forward" for row in subject.working):
        return []
    rows = [
        row
        for row in subject.working
        if row.op == "aten._to_copy"
        and row.inputs
        and row.inputs[0].role is Role.PARAMETER
        and row.inputs[0].dtype.kind == row.outputs[0].dtype.kind == "float"
        and row.inputs[0].dtype != row.outputs[0].dtype
        # Weights of fewer bits are quantized: they stay so in memory.
        and row.inputs[0].dtype.bits >= _LEAST_BITS
    ]
    types = sorted({f"{row.inputs[0].dtype} → {row.outputs[0].dtype}" for row in rows})
    return subject.without(
        "weight casts",
        rows,
        evidence=f"{counted(len(rows), 'parameter')} cast in every pass ({', '.join(types)},"
        f" {format_bytes(sum(row.traffic_bytes for row in rows))} of traffic):"
        f" {subject.share(rows)}",
        change="cast the weights once: model.to(dtype), instead of .to(dtype) in forward or"
        " autocast",
    )


def rewritten_rows(subject: Subject) -> frozenset[int]:
    """Return the operators that attention or normalizations written out consist of."""
    groups = [rows for rows, _ in written_attention(subject)]
    return frozenset(row.index for rows in (*groups, *_normalizations(subject)) for row in rows)
