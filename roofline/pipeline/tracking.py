"""track: cost of any torch code while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.design.gate.cost import Cost, Machine, counts_of
from roofline.errors import InputError
from roofline.pipeline.checking import today, versions
from roofline.pipeline.machines import Hardware, resolve_hardware, threads_on
from roofline.placement import Roof, place
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.tracking import Tracking


class Tracked:
    """Cost of a ``with roofline.track()`` block, available once the block has ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cost: Cost | None = None

    def __repr__(self) -> str:
        return f"<Tracked {self._name}: {'still running' if self._cost is None else self._cost}>"

    @property
    def cost(self) -> Cost:
        """Cost of the block.

        Raises:
            InputError: the block has not ended, or ended with an error.
        """
        if self._cost is None:
            raise InputError("cost: known only after the `with roofline.track()` block has ended")
        return self._cost

    @property
    def flop(self) -> int | None:
        """FLOP; None if an operator has no formula."""
        return self.cost.flop

    @property
    def macs(self) -> int | None:
        """MACs of matrix products and convolutions; None if an operator has no formula."""
        return self.cost.macs

    @property
    def traffic_bytes(self) -> int:
        """Bytes that operators read and wrote."""
        return self.cost.traffic_bytes

    @property
    def parameters(self) -> int:
        """Number of parameters of the model, or of those used."""
        return self.cost.parameters

    @property
    def peak_memory_bytes(self) -> int:
        """Peak memory of tensors that operators used, in bytes."""
        return self.cost.peak_memory_bytes

    @property
    def launches(self) -> int:
        """Number of calls of operators that are not free."""
        return self.cost.launches

    @property
    def eager_min_time_s(self) -> float | None:
        """Minimum time (eager) on the machine in seconds; None without a machine."""
        return self.cost.eager_min_time_s


@contextlib.contextmanager
def track(
    model: torch.nn.Module | None = None,
    *,
    name: str | None = None,
    hardware: Hardware | None = None,
    threads: int | None = None,
) -> Iterator[Tracked]:
    """Count FLOP, bytes and memory of the torch code in a ``with`` block.

    The code runs unchanged, on its own tensors. Operators of this thread are counted; code from
    torch.compile runs eagerly meanwhile. Blocks can be nested; a block in another thread waits for
    the end of this one.

    Args:
        model: module whose parameters are counted; None: parameters are those used.
        name: name in results; None: the class of the model, else ``"tracked"``.
        hardware: as for `analyze`, for a minimum time; None: counts only.
        threads: compute threads of the minimum time; None: all.

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
            f"track: expected a module or None, got {type(model).__name__}; the name in results is"
            " name="
        )
    if threads is not None and hardware is None:
        raise InputError(f"threads={threads} has no effect without hardware; name a machine")
    # Errors come before code that may take hours.
    roof = None
    if hardware is not None:
        profile, _ = resolve_hardware(hardware)
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
    # Which results other code reads, so what a compiler may leave out, is unknown: eager time only.
    return replace(
        cost, machine=Machine.of(roof.profile, roof.threads), eager_min_time_s=eager_min_time_s
    )
