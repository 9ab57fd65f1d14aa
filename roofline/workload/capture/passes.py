"""Captures a model: one recorded pass, on fake tensors, or on real ones where it needs values.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import psutil
import torch
from torch.utils._python_dispatch import _disable_current_modes

from roofline.errors import ModelError, RooflineError
from roofline.foundation.units import format_bytes
from roofline.workload.capture.compiled import path_of_own
from roofline.workload.capture.failures import NoFakesError, PassError, model_error, ran_elsewhere
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import OnCall as OnCall
from roofline.workload.capture.single_pass import Capture as Capture
from roofline.workload.capture.single_pass import single_pass
from roofline.workload.capture.training import Teaching as Teaching
from roofline.workload.inputs import Inputs
from roofline.workload.runs import Run

one_at_a_time = threading.RLock()
"""Hooks are global, and a model's own tensors are away while it runs: one capture at a time."""


_QUICK_BYTE = 2**28
"""Weights up to this size are made in well under a second: any failure is worth a second try."""

_FREE_MEMORY_SHARE = 0.25
"""Of the free memory, the most that the weights of a real pass may take: they are there twice, and
activations come on top."""


def capture(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run | None = None,
    teaching: Teaching | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
    on_call: Callable[[], OnCall] | None = None,
) -> Capture:
    """Runs `model` once on fake tensors: in eval mode without gradients, or a step of training.

    Where that fails for something that fake tensors cannot do (control flow that depends on values,
    code that leaves torch), it runs once more on real ones, and ``notes`` say so.

    Args:
        model: any module, built for real or on the meta device; it is left as it was.
        inputs: what it is called with.
        name: what messages call the model.
        run: in which types and layout it is run, and whether it is trained; by default inference
            as it is.
        teaching: how it is trained, if it is.
        rebuild: makes the model with its weights, where `model` has none.
        on_call: makes what is told of each call that is recorded; asked anew for every pass that is
            tried, so that the last one made was told of the calls in ``records``.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    asked = _Asked(model, inputs, name, run or Run(), teaching or Teaching(), on_call)
    # What looks on at its caller has no part in it.
    with one_at_a_time, _disable_current_modes():
        try:
            return asked.captured(Fakes(asked.run))
        except NoFakesError as reason:
            said, why, is_worth_it = ModelError(str(reason)), "it is TorchScript", True
            first = None
        except PassError as failure:
            said, why, is_worth_it = failure.said, failure.reason, failure.is_fakes_fault
            first = failure
        byte = sum(
            each.nbytes
            for each in (*model.parameters(), *model.buffers())
            if each.layout is torch.strided
        )
        if byte > _QUICK_BYTE and not is_worth_it:
            raise said from said.__cause__
        if not has_room_for(byte):
            raise ModelError(
                f"{said} (its {format_bytes(byte)} of weights are too many to run it for real)"
            ) from said.__cause__
        try:
            with torch.random.fork_rng(devices=[]):
                # The same noise every time, so that the same command gives the same answer.
                torch.manual_seed(0)
                real = with_weights(model, rebuild)
                if real is None:
                    raise said from said.__cause__
                captured = replace(asked, model=real).captured(Reals(asked.run))
        except PassError as second:
            # Two reasons for two passes: where the first was no fault of the fakes, it is the one.
            is_another = first is not None and type(first.error) is not type(second.error)
            if is_another and not is_worth_it:
                raise said from said.__cause__
            raise second.said from second.error
        real = "for real" if asked.run.device == "cpu" else "for real and on the CPU"
        kind = "the given inputs" if _all_given(inputs) else "inputs of noise and zeros"
        return replace(
            captured,
            notes=(
                f"{name} ran {real}, on {kind} ({why}): what it does with others may differ",
                *captured.notes,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pass that is asked for."""

    model: torch.nn.Module
    inputs: Inputs
    name: str
    run: Run
    teaching: Teaching
    on_call: Callable[[], OnCall] | None

    def captured(self, tensors: Fakes | Reals) -> Capture:
        paths: dict[int, str] = {}
        lesson = self.teaching.lesson() if self.run.train else None
        on_call = self.on_call() if self.on_call is not None else None
        try:
            paths.update(
                {id(module): path_of_own(path) for path, module in self.model.named_modules()}
            )
            return single_pass(self.model, self.inputs, paths, self.run, tensors, lesson, on_call)
        except (KeyboardInterrupt, RooflineError, NoFakesError):
            raise
        # A model may raise anything, SystemExit too; none of it may end in a traceback.
        except BaseException as error:
            if tensors.were_used_elsewhere:
                # A pass on real tensors would not see that.
                raise ran_elsewhere("a part of it") from error
            raise PassError(model_error(error, self.name, paths), error) from error


def has_room_for(weight_bytes: int) -> bool:
    """Whether there is memory to run a model with weights of so many bytes for real."""
    return weight_bytes <= _FREE_MEMORY_SHARE * psutil.virtual_memory().available


def with_weights(
    model: torch.nn.Module, rebuild: Callable[[], torch.nn.Module] | None
) -> torch.nn.Module | None:
    """The model with real tensors in it; None where there is no way to get them.

    Args:
        model: as it was given or built.
        rebuild: makes it with its weights, where it was built without.
    """
    if not any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        return model
    if rebuild is None:
        return None
    try:
        return rebuild()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _all_given(inputs: Inputs) -> bool:
    return all(
        request.like is not None and tuple(request.like.shape) == request.shape
        for _, request in inputs.requests()
    )
