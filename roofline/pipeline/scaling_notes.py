"""What to know beside the numbers of training on several ranks, in words."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.analysis import Analysis
from roofline.foundation.text import counted
from roofline.scaling.links import Wire
from roofline.scaling.ranks import Step
from roofline.scaling.settings import Settings
from roofline.workload.tensors import Role

_SHOWN = 3


def notes_on(step: Step, settings: Settings, wire: Wire | None) -> Iterable[str]:
    """A line for each.

    Args:
        step: on one rank.
        settings: how ranks train.
        wire: the link between them.
    """
    if unused := step.unused:
        names = ", ".join(unused[:_SHOWN])
        more = len(unused) - _SHOWN
        yield (
            f"no gradient reaches {names}{f' and {more} more' if more > 0 else ''}:"
            " DistributedDataParallel takes that only with find_unused_parameters=True, and these"
            " are the buckets that it sends then, with zeros for what is unused"
        )
    if line := _kept_wide(step.analysis):
        yield line
    is_in_host = wire is not None and wire.is_in_host and settings.ranks > 1
    if step.slowdown is not None:
        yield (
            f"{settings.ranks} processes of this host were timed side by side: computing takes"
            f" {step.slowdown:.2f} × as long as for one, which is in these times"
        )
    elif is_in_host:
        yield (
            "ranks of one host slow each other down, which is not in these times; --measured with"
            " a model by its name, and --threads 1, say, finds out by how much"
        )
    if is_in_host and settings.ranks > 2:
        yield (
            "the link was measured between two processes of this host; more of them share its cores"
            " and memory, which is not in these times"
        )
    if settings.ranks > 1:
        yield (
            "every two ranks are taken to have a link of their own, and all of them to compute"
            " equally fast"
        )
    if settings.sharded and settings.ranks > 1:
        yield (
            "parameters are taken to go to all ranks in one exchange after the update; torch sends"
            " them one by one, so their latencies may be more"
        )


def _kept_wide(analysis: Analysis) -> str:
    """In which types mixed precision keeps parameters and batch norms; `""` where it is none."""
    run = analysis.run
    if not run.autocast:
        return ""
    norms = [row for row in analysis.operators if "batch_norm" in row.op and row.phase == "forward"]
    kept = {
        str(spec.dtype)
        for row in norms
        for spec in row.inputs
        if spec.role in (Role.PARAMETER, Role.BUFFER)
    }
    batch_norms = ""
    if norms:
        count = f"{counted(len(norms), 'batch norm')}"
        batch_norms = (
            f"; parameters and statistics of {count} are kept in {', '.join(sorted(kept))}"
        )
    return (
        f"mixed precision computes in {run.autocast}, and casts each time; parameters, their"
        f" gradients and so the buckets stay as they are{batch_norms}"
    )
