"""Entry points `crosscheck` and `missing_operators`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.core.text import counted
from roofline.core.units import format_bytes
from roofline.counters import Crosscheck
from roofline.pipeline.runs import build_workload
from roofline.run import PassKeywords, RunOptions, ShapeKeywords, takes
from roofline.workload.operators import OperatorRecord, State

if TYPE_CHECKING:
    from roofline.counters.peers import PeerCounter
    from roofline.counters.subject import Subject
    from roofline.pipeline.analyses import Model
    from roofline.run import Loss
    from roofline.workload.formulas.catalog import Missing


class CrosscheckKeywords(ShapeKeywords, total=False):
    """Run options; see `roofline.run.RunOptions`."""

    train: bool
    loss: Loss | None


@takes(CrosscheckKeywords)
def crosscheck(model: Model, inputs: Any = None, **run: Unpack[CrosscheckKeywords]) -> Crosscheck:
    """Compare MACs and FLOP of a pass with other counters, and explain differences.

    torch's FlopCounterMode, fvcore, DeepSpeed's profiler and torchlens run if installed, each on a
    copy of the model with weights, if these fit into a quarter of free memory. They run in
    isolation: output is suppressed, errors are reported, patches are undone.

    Args:
        model, inputs: as for `analyze`. `train`: forward and backward pass; most counters count the
            forward pass only.

    Raises:
        ModelError: unknown model, or one that cannot be built or called with its inputs.
        InputError: invalid inputs, data type or batch.
    """
    options = RunOptions.of(inputs, **run)
    train, loss = options.train, options.loss
    options = replace(options, optimizer="none" if train else None)
    from roofline.counters.peers import PEERS, NotRunError, run_counter
    from roofline.counters.subject import default_loss, fake_subject, real_subject
    from roofline.workload.capture.passes import fits_in_memory, weights_bytes
    from roofline.workload.capture.restoration import (
        restore_state,
        restore_tensors,
        weight_storages,
    )
    from roofline.workload.torch_dtypes import torch_dtype

    asked = build_workload(model, inputs, options)
    captured, task = asked.captured(), asked.run
    source, given, records = asked.source, asked.given, captured.capture.records
    wanted = torch_dtype(task.dtype) if task.dtype else None
    trained_with = (loss or default_loss) if train else None
    has_room = fits_in_memory(weights_bytes(source.module))

    def subject(peer: PeerCounter) -> Subject:
        if has_room:
            return real_subject(source.module, given, wanted, source.rebuild, trained_with)
        if peer.needs_weights:
            byte = weights_bytes(source.module)
            raise NotRunError(
                f"requires weights, and {format_bytes(byte)} exceed a quarter of free memory"
            )
        return fake_subject(source.module, given, wanted, trained_with)

    work = [record.work for record in records if record.state is not State.UNKNOWN]
    unknown = [record for record in records if record.state is State.UNKNOWN]
    warnings = list(captured.notes)
    if unknown:
        names = ", ".join(sorted({record.op for record in unknown}))
        warnings.append(
            f"operators without a formula: {counted(len(unknown), 'call')} of {names}; their FLOP"
            " are unknown and missing in our numbers"
        )
    # Copies of modules share closures, which may refer to the module itself.
    with (
        restore_state(source.module),
        restore_tensors(source.module, but=() if has_room else weight_storages(source.module)),
    ):
        counters = tuple(
            counted for peer in PEERS for counted in run_counter(peer, subject, records)
        )
    return Crosscheck(
        model=source.name,
        inputs=asked.specs,
        train=train,
        macs=sum(each.macs or 0 for each in work),
        flop=sum(each.flop or 0 for each in work),
        unknown_operators=len(unknown),
        counters=counters,
        warnings=tuple(warnings),
    )


@takes(PassKeywords)
def missing_operators(model: Model, inputs: Any = None, **run: Unpack[PassKeywords]) -> Missing:
    """Return the operators of a pass without a FLOP formula.

    Args:
        model, inputs: as for `roofline.analyze`.

    Raises:
        ModelError: unknown model, or one that cannot be built or called with its inputs.
        InputError: invalid inputs or options.
    """
    from roofline.workload.formulas.catalog import Missing, find_missing

    options = RunOptions.of(inputs, **run)
    captured = build_workload(model, inputs, options).captured()
    working = [each for each in captured.capture.records if each.state is not State.FREE]
    return Missing(
        model=captured.name,
        inputs=captured.inputs,
        run=captured.capture.run,
        calls=len(working),
        operators=len({each.op for each in working}),
        missing=find_missing(working, _parameters),
        warnings=captured.notes,
    )


def _parameters(call: OperatorRecord) -> tuple[str, ...]:
    """Return the argument names of the called overload."""
    import torch

    space, _, name = call.op.partition(".")
    packet: Any = getattr(getattr(torch.ops, space), name)
    overloads = [getattr(packet, each)._schema for each in packet.overloads()]
    named = [tuple(each.name for each in schema.arguments) for schema in overloads]
    fitting = [each for each in named if set(call.attributes) <= set(each)]
    return min(fitting or named, key=len, default=())
