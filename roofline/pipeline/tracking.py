"""track: what code costs while it runs, whatever it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.design.gate.cost import Cost, Machine, counts_of
from roofline.errors import InputError
from roofline.pipeline.checking import today, versions
from roofline.pipeline.machines import Hardware, hardware_for, threads_on
from roofline.placement import Roof, place
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.tracking import Tracking


class Tracked:
    """What ran in a ``with roofline.track()`` block; complete once the block is left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cost: Cost | None = None

    def __repr__(self) -> str:
        return f"<Tracked {self._name}: {'still running' if self._cost is None else self._cost}>"

    @property
    def cost(self) -> Cost:
        """What it cost.

        Raises:
            InputError: the block was not left, or left by an error.
        """
        if self._cost is None:
            raise InputError("what is tracked is known once the `with roofline.track()` block ends")
        return self._cost

    @property
    def flop(self) -> int | None:
        """Floating-point operations; None where an operator has no formula."""
        return self.cost.flop

    @property
    def macs(self) -> int | None:
        """Multiply-adds of products and convolutions; None where an operator has no formula."""
        return self.cost.macs

    @property
    def traffic_bytes(self) -> int:
        """The bytes that operators read and wrote."""
        return self.cost.traffic_bytes

    @property
    def parameters(self) -> int:
        """Elements of the model's parameters, or of those that were touched."""
        return self.cost.parameters

    @property
    def peak_memory_bytes(self) -> int:
        """The most bytes that were alive at once, of what operators touched."""
        return self.cost.peak_memory_bytes

    @property
    def launches(self) -> int:
        """Calls of operators that are not free."""
        return self.cost.launches

    @property
    def eager_min_time_s(self) -> float | None:
        """The least seconds that it can take on the machine; None: none was asked for."""
        return self.cost.eager_min_time_s


@contextlib.contextmanager
def track(
    model: torch.nn.Module | None = None,
    *,
    name: str | None = None,
    hardware: Hardware | None = None,
    threads: int | None = None,
) -> Iterator[Tracked]:
    """Counts what runs in a ``with`` block: a pass, a step of training, or any other torch code.

    The code runs as ever, on its own tensors; results are what they would be. Operators of this
    thread are counted, and what torch.compile made runs as eager torch for as long. There is one
    such block at a time: in another thread, it waits for the end of this one. They may lie in each
    other.

    Args:
        model: its modules and all of its parameters are told apart; None: parameters are those that
            are touched.
        name: what results call it; None: the class of the model, else ``"tracked"``.
        hardware: as for `analyze`, for a bound in seconds; None: counts alone.
        threads: how many of its threads the bound is for; None: all.

    Raises:
        InputError: threads without hardware, or no module.
        HardwareError: unknown hardware, or it does not have so many threads.
        ModelError: something ran that cannot be counted, such as a sparse tensor, or a module of
            the model in another thread.
    """
    import torch

    from roofline.workload.capture.tracking import Tracking

    if model is not None and not isinstance(model, torch.nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"track: expected a module, or nothing, got {type(model).__name__}; what results are"
            " called is name="
        )
    if threads is not None and hardware is None:
        raise InputError(f"threads={threads} has no effect without hardware; name a machine")
    # Before what may take hours.
    roof = None
    if hardware is not None:
        profile, _ = hardware_for(hardware)
        roof = Roof(profile, threads_on(profile, threads, alone=True))
    tracking = Tracking(model)
    name = name or (type(model).__name__ if model is not None else "tracked")
    tracked = Tracked(name)
    with tracking.watch():
        yield tracked
    tracked._cost = _cost(name, tracking, roof)  # pyright: ignore[reportPrivateUsage]


def _cost(name: str, tracking: Tracking, roof: Roof | None) -> Cost:
    records = tracking.records
    reuse = trace_residency(records)
    cost = Cost(
        model=name,
        run=tracking.run,
        **counts_of(records),
        parameters=tracking.parameters,
        peak_memory_bytes=tracking.kept_bytes
        + reuse.peak_activation_bytes
        + reuse.peak_gradient_bytes,
        versions=versions(),
        date=today(),
    )
    if roof is None:
        return cost
    bounds = [each.eager_min_time_s for each in place(records, reuse, roof, cache="steady")]
    known = [each for each in bounds if each is not None]
    eager_min_time_s = sum(known) if len(known) == len(bounds) else None
    # What other code reads of its results afterwards, and so what a compiler may leave out, is not
    # seen from inside a block.
    return replace(
        cost,
        machine=Machine.of(roof.profile, roof.threads),
        eager_min_time_s=eager_min_time_s,
    )
