"""missing_operators: what a model asks for that no formula counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from roofline.pipeline.runs import captured_workload, workload_of
from roofline.run import PassKeywords, RunOptions, takes
from roofline.workload.formulas.catalogue import Missing, missing_in
from roofline.workload.operators import OperatorRecord, State

if TYPE_CHECKING:
    from roofline.pipeline.analyses import Model


@takes(PassKeywords)
def missing_operators(model: Model, inputs: Any = None, **run: Unpack[PassKeywords]) -> Missing:
    """The operators of one pass of a model whose FLOP no formula counts; it needs no machine.

    Args:
        model, inputs: as for `roofline.analyze`.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs or options are wrong.
    """
    options = RunOptions.of(inputs, **run)
    asked = options.run()
    workload = workload_of(model, inputs, run=asked, batch=options.batch, seq=options.seq)
    captured = captured_workload(workload, options, run=asked)
    working = [each for each in captured.capture.records if each.state is not State.FREE]
    return Missing(
        model=workload.source.name,
        inputs=workload.specs,
        run=captured.capture.run,
        calls=len(working),
        operators=len({each.op for each in working}),
        missing=missing_in(working, _parameters),
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
