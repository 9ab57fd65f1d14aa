"""compare: models side by side on one machine, analysed here or saved before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, read_analysis
from roofline.design.comparison import Comparison
from roofline.errors import InputError
from roofline.pipeline.analyses import analyze
from roofline.pipeline.machines import Hardware, Progress

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.analyses import Model


def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int = 0,
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
    device: str = "cpu",
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Models side by side: work, memory, intensity, bound and times, with ratios to one of them.

    Args:
        models: at least two modules, names, saved analyses (``.json``) or `Analysis` values.
        inputs: as for `analyze`, the same for all that are analysed here.
        reference: the index of the model that ratios refer to.
        names: what to call them; by default what they are called.
        hardware, dtype, batch, seq, threads, cold, train, optimizer, loss, autocast,
            channels_last, device, progress: as for `analyze`.

    Raises:
        InputError: fewer than two models, or analyses of different hardware or threads; and
            whatever `analyze` raises.
    """
    if len(models) < 2:
        raise InputError("a comparison takes at least two models; write roofline compare A B")
    saved = [each for each in models if _is_saved(each)]
    changes = {
        "--input": inputs,
        "--dtype": dtype,
        "--batch": batch,
        "--seq": seq,
        "--train": train or None,
        "--autocast": autocast,
        "--channels-last": channels_last or None,
        "--device": None if device == "cpu" else device,
    }
    for option, given in changes.items():
        if saved and given is not None:
            raise InputError(
                f"{option} cannot change an analysis that is saved ({saved[0]}): name its model"
            )
    if len(saved) == len(models):
        for option, given in {"--hardware": hardware, "--threads": threads}.items():
            if given is not None:
                raise InputError(f"{option} has no effect: all of these are saved analyses")
    analyses: list[Analysis] = []
    for model in models:
        if isinstance(model, Analysis):
            analyses.append(model)
        elif isinstance(model, str) and _is_saved(model):
            analyses.append(read_analysis(model))
        else:
            analysis = analyze(
                model,
                inputs,
                hardware=hardware,
                dtype=dtype,
                batch=batch,
                seq=seq,
                threads=threads,
                cold=cold,
                train=train,
                optimizer=optimizer,
                loss=loss,
                autocast=autocast,
                channels_last=channels_last,
                device=device,
                progress=progress,
            )
            analyses.append(analysis)
    return Comparison.of(analyses, reference=reference, names=names)


def _is_saved(model: object) -> bool:
    return isinstance(model, Analysis) or (isinstance(model, str) and model.endswith(".json"))
