"""A call with tensors of its own: what is kept in many copies that take turns, what is computed
written again before every turn."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roofline.latency.measuring.calls import Argument, Call, StorageNeed, TensorNeed
from roofline.latency.measuring.gauges import Clock

_MOST_COPIES = 64
_MOST_COPY_BYTE = 2**30

_SHORTEST_S = 1e-9
"""Less than clocks tell apart: what took none of their ticks is not taken to take no time."""

_ROUND_BYTE = 64
"""Storages are as long as a multiple of it, so that any type fits in a whole number of times."""

_PATTERN_ELEMENTS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many copies there are of what is kept, and whether other memory is swept in addition,
    each time that they all had their turn; ``byte`` is what all arguments take."""

    copies: int
    is_swept: bool
    byte: int


def plan_for(storages: Sequence[StorageNeed], *, cycle_bytes: int, turns: int) -> Plan:
    """As many copies as are cold when their turn comes again, or that and other memory.

    Args:
        storages: of the call.
        cycle_bytes: what is touched between two uses of one, all memory together.
        turns: how many there will be, unless some are disturbed.
    """
    kept_bytes = sum(each.byte for each in storages if each.is_kept)
    made_bytes = sum(each.byte for each in storages if not each.is_kept)
    copies = 1
    if kept_bytes:
        # No more than have a turn.
        most = min(_MOST_COPIES, turns, _MOST_COPY_BYTE // kept_bytes)
        copies = max(1, min(math.ceil(cycle_bytes / kept_bytes), most))
    return Plan(
        copies=copies,
        is_swept=0 < copies * kept_bytes < cycle_bytes,
        # What is made is there twice.
        byte=copies * kept_bytes + 2 * made_bytes,
    )


class Turns:
    """A call with real arguments, made again and again; ``seconds`` are those of each.

    Args:
        call: what is called.
        plan: with how many copies.
        sweep: touches other memory.
        clock: seconds.
    """

    def __init__(
        self, call: Call, plan: Plan, *, sweep: Callable[[], None] | None, clock: Clock
    ) -> None:
        self.seconds: list[float] = []
        self._function = call.function
        self._clock = clock
        self._sweep = sweep
        self._turn = 0
        self._result: Any = None
        needs = call.storages
        made = {number: _memory(need) for number, need in enumerate(needs) if not need.is_kept}
        # The first argument last, so that it is the warmest: it is what was computed last.
        self._written = [(each, each.clone()) for _, each in sorted(made.items(), reverse=True)]
        self._copies: list[tuple[list[Any], dict[str, Any]]] = []
        for _ in range(plan.copies):
            kept = {number: _memory(need) for number, need in enumerate(needs) if need.is_kept}
            memory = made | kept
            args = [_real(value, memory) for value in call.args]
            self._copies.append((args, {name: _real(value, memory) for name, value in call.kwargs}))
        self._args, self._kwargs = self._copies[0]

    def prepare(self) -> None:
        """What comes before a call: memory is released, other copies have their turn, and the
        operator before writes what it computes."""
        self._result = None
        copy = self._turn % len(self._copies)
        self._turn += 1
        self._args, self._kwargs = self._copies[copy]
        if copy == 0 and self._sweep is not None:
            self._sweep()
        for memory, source in self._written:
            memory.copy_(source)

    def call(self) -> None:
        """The call, with nothing else between the readings of the clock: small operators take a few
        microseconds."""
        function, args, kwargs, clock = self._function, self._args, self._kwargs, self._clock
        start_s = clock()
        result = function(*args, **kwargs)
        end_s = clock()
        self.seconds.append(max(end_s - start_s, _SHORTEST_S))
        self._result = result


def _real(value: Argument, memory: Mapping[int, torch.Tensor]) -> Any:
    """An argument with tensors in the place of their descriptions."""
    if isinstance(value, TensorNeed):
        offset = value.offset_bytes // value.dtype.itemsize
        tensor = torch.empty(0, dtype=value.dtype)
        storage = memory[value.storage].untyped_storage()
        return tensor.set_(storage, offset, value.shape, value.stride)
    if isinstance(value, tuple):
        return [_real(each, memory) for each in value]
    return value


def _memory(need: StorageNeed) -> torch.Tensor:
    """Bytes for a storage, with what operators can compute with as they can with a model's own:
    numbers in (0, 1), which have a root and are probabilities; zeros, which are indices; truths."""
    byte = math.ceil(need.byte / _ROUND_BYTE) * _ROUND_BYTE
    memory = torch.empty(byte, dtype=torch.uint8)
    if need.dtype == torch.bool:
        return memory.fill_(1)
    if not (need.dtype.is_floating_point or need.dtype.is_complex):
        return memory.zero_()
    pattern = _pattern(need.dtype)
    elements = memory.view(need.dtype)
    whole = len(elements) // len(pattern) * len(pattern)
    elements[:whole].view(-1, len(pattern)).copy_(pattern)
    elements[whole:].copy_(pattern[: len(elements) - whole])
    return memory


@functools.cache
def _pattern(dtype: torch.dtype) -> torch.Tensor:
    """Noise, neither small nor large; the same in every process."""
    noise = torch.rand(_PATTERN_ELEMENTS, generator=torch.Generator().manual_seed(0))
    # Away from 0, whose neighbours take some CPUs a hundred times as long.
    return noise.mul_(0.75).add_(0.125).to(dtype)
