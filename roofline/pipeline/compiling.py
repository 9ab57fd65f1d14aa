"""analyze_compiled: what torch.compile makes of a model, beside its eager pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roofline.design.compilation import Compilation
from roofline.errors import InputError
from roofline.foundation.progress import Progress
from roofline.pipeline.advising import with_findings
from roofline.pipeline.analyses import captured_pass, known_machines, placed_on
from roofline.pipeline.machines import Hardware
from roofline.pipeline.runs import RunOptions, check_counts

if TYPE_CHECKING:
    import torch

    Model = torch.nn.Module | Callable[..., Any] | str


def analyze_compiled(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    train: bool = False,
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> Compilation:
    """The kernels that Inductor generates for a model, beside the operators that eager torch calls.

    Dynamo, Inductor's scheduler and its code generator run as `torch.compile(model)` runs them; the
    generated C++ is not built, and no weights are needed where fake tensors do. Bytes, launches and
    buffers are Inductor's own. Where they cannot be had, ``compiled.why_not`` says why.

    Args:
        model, inputs, hardware, dtype, batch, seq, threads, cold, train, optimizer, loss, autocast,
            channels_last, device, progress: as for `analyze`.

    Raises:
        ModelError: the model is unknown, cannot be built, rejects its inputs, or is compiled
            already.
        InputError: inputs, data type or batch are wrong.
        HardwareError: unknown hardware, or it does not have so many threads.
    """
    if isinstance(hardware, (list, tuple, set)):
        raise InputError("hardware: one machine, whose caches change nothing of what is generated")
    options = RunOptions(
        dtype=dtype,
        train=train,
        optimizer=optimizer,
        loss=loss,
        autocast=autocast,
        channels_last=channels_last,
        device=device,
    )
    check_counts(batch=batch, seq=seq, threads=threads, inputs=inputs)
    (known,) = known_machines([hardware], threads)
    run = options.run(known.device)
    captured = captured_pass(model, inputs, options, run=run, batch=batch, seq=seq)
    from roofline.workload.capture.inductor import compiled_pass

    asked = captured.workload
    compiled = compiled_pass(
        asked.source.module,
        asked.given,
        run=run,
        teaching=options.teaching(),
        rebuild=asked.source.rebuild,
    )
    analysis = placed_on(captured, known, threads=threads, cold=cold, progress=progress)
    return Compilation(analysis=with_findings(analysis, hardware), compiled=compiled)
