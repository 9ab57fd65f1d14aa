"""missing_operators: what a model asks for that no formula counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.errors import InputError
from roofline.pipeline.runs import RunOptions
from roofline.workload.formulas.missing import Missing, missing_in
from roofline.workload.operators import OperatorRecord, State

if TYPE_CHECKING:
    from roofline.pipeline.analyses import Model


def missing_operators(
    model: Model,
    inputs: Any = None,
    *,
    run: RunOptions | None = None,
    batch: int | None = None,
    seq: int | None = None,
) -> Missing:
    """The operators of one pass of a model whose FLOP no formula counts; it needs no machine.

    Args:
        model, inputs, batch, seq: as for `roofline.analyze`.
        run: how it is run; by default inference as it is.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs or options are wrong.
    """
    options = run or RunOptions()
    asked = options.run()
    for option, value in (("--batch", batch), ("--seq", seq)):
        if value is not None and (type(value) is not int or value < 1):
            raise InputError(f"{option} {value}: must be a whole number from 1")
    if seq is not None and inputs is not None:
        raise InputError(f"--seq {seq} has no effect beside --input; write {seq} into its shape")

    from roofline.workload.capture.passes import capture
    from roofline.workload.inputs import inputs_for, inputs_of
    from roofline.workload.models import sources
    from roofline.workload.torch_dtypes import input_specs, torch_dtype

    given = inputs_of(inputs)
    source = (
        sources.load(model, seq=seq) if isinstance(model, str) else sources.given(model, seq=seq)
    )
    given = inputs_for(source.module, given, source.default_inputs, name=source.name, batch=batch)
    captured = capture(
        source.module,
        given,
        name=source.name,
        run=asked,
        teaching=options.teaching(),
        rebuild=source.rebuild,
    )
    working = [each for each in captured.records if each.state is not State.FREE]
    input_notes = source.input_notes if inputs is None else ()
    return Missing(
        model=source.name,
        inputs=input_specs(given, torch_dtype(asked.dtype) if asked.dtype else None),
        run=captured.run,
        calls=len(working),
        operators=len({each.op for each in working}),
        missing=missing_in(working, _parameters),
        warnings=(*source.notes, *input_notes, *captured.notes),
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
