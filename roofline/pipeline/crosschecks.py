"""crosscheck, missing_operators: a model through other counters than ours, and what ours lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

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
    """How a model is counted; see `roofline.run.RunOptions` for each."""

    train: bool
    loss: Loss | None


@takes(CrosscheckKeywords)
def crosscheck(model: Model, inputs: Any = None, **run: Unpack[CrosscheckKeywords]) -> Crosscheck:
    """One pass of a model through other counters, and why their numbers are not ours.

    torch's FlopCounterMode, fvcore, DeepSpeed's profiler and torchlens are asked where they are
    installed, each on a copy of the model with weights, where these fit into a quarter of the free
    memory. What one of them prints, raises or leaves patched stays with it.

    Args:
        model, inputs: as for `analyze`. `train` is a forward and a backward pass; most counters
            see the forward pass only.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs, data type or batch are wrong.
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
            raise NotRunError(f"it needs the weights, and {format_bytes(byte)} are too many")
        return fake_subject(source.module, given, wanted, trained_with)

    work = [record.work for record in records if record.state is not State.UNKNOWN]
    unknown = [record for record in records if record.state is State.UNKNOWN]
    warnings = list(captured.notes)
    if unknown:
        names = ", ".join(sorted({record.op for record in unknown}))
        warnings.append(
            f"operators without a formula: {len(unknown)} calls of {names}; their FLOP is unknown"
            " and missing from our own number"
        )
    # Copies of modules share what their functions hold, which may be the module itself.
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
    """The operators of one pass of a model whose FLOP no formula counts; it needs no machine.

    Args:
        model, inputs: as for `roofline.analyze`.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs or options are wrong.
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
    """The arguments of the operator's overload that was called, by the names that are known."""
    import torch

    space, _, name = call.op.partition(".")
    packet: Any = getattr(getattr(torch.ops, space), name)
    overloads = [getattr(packet, each)._schema for each in packet.overloads()]
    named = [tuple(each.name for each in schema.arguments) for schema in overloads]
    fitting = [each for each in named if set(call.attributes) <= set(each)]
    return min(fitting or named, key=len, default=())
