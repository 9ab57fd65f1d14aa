"""A model as it is, and run or built in other ways, timed in turn in processes of their own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.design.model_comparison.measured_rounds import RoundTime
from roofline.errors import MeasurementError
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline.timing import Bench, measure_again, real_model
from roofline.pipeline.workloads import workload_of
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A model, and how it is run.

    ``folds`` are the modules of convolutions and of the batch norms that they take in.
    """

    model: Any
    inputs: Any
    batch: int | None
    seq: int | None
    run: Run
    threads: int
    folds: tuple[tuple[str, str], ...] = ()


def round_of(here: Bench, whole: Whole, effort: Effort) -> RoundTime:
    """Whole passes of a model; runs in a process of its own.

    Raises:
        ModelError: it raised.
        MeasurementError: what is to be folded are no modules that can be.
    """
    asked = workload_of(whole.model, whole.inputs, run=whole.run, batch=whole.batch, seq=whole.seq)
    model = real_model(asked)
    if whole.folds:
        model = folded(model, whole.folds)
    found = measure_again(here, asked, model, run=whole.run, threads=whole.threads, effort=effort)
    return RoundTime(times_s=found.sample.times_s, clock_hz=found.pace.clock_hz)


def folded(model: torch.nn.Module, pairs: Sequence[tuple[str, str]]) -> torch.nn.Module:
    """A copy of a model whose convolutions have taken in the batch norms behind them.

    Args:
        model: with its weights.
        pairs: the paths of each convolution and its norm.

    Raises:
        MeasurementError: one of them is another kind of module.
    """
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    changed = copy.deepcopy(model).eval()
    # Before any is replaced: one norm may stand behind several convolutions.
    found = [tuple(map(changed.get_submodule, pair)) for pair in pairs]
    for (first, second), (convolution, norm) in zip(pairs, found, strict=True):
        is_pair = isinstance(convolution, torch.nn.Conv2d)
        if not (is_pair and isinstance(norm, torch.nn.BatchNorm2d)):
            kinds = f"{type(convolution).__name__} and {type(norm).__name__}"
            raise MeasurementError(f"{kinds} cannot be folded by torch.nn.utils.fusion")
        _put(changed, first, fuse_conv_bn_eval(convolution, norm))
        _put(changed, second, torch.nn.Identity())
    return changed


def _put(model: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
