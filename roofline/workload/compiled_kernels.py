"""A pass under torch.compile: Inductor's kernels and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.workload.operators import Phase

Part = Literal["forward", "loss", "backward", "optimizer"]
"""Parts of a pass, in execution order."""

KernelKind = Literal["generated", "library"]
"""``generated``: written by Inductor; ``library``: a kernel of torch that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One launch: a single call by its caller.

    ``loops`` counts its loop nests in Inductor's schedule (1 for a library kernel). ``operators``
    are the aten operators that it executes, at least in part, in graph order, each once per module;
    ``modules`` the paths of the calling modules. ``read_bytes`` and ``written_bytes`` are those of
    the schedule: every buffer once per loop nest, except internal ones; None if unknown to
    Inductor.
    """

    name: str
    kind: KernelKind
    loops: int = 1
    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    read_bytes: int | None
    written_bytes: int | None

    def __post_init__(self) -> None:
        if self.loops < 1:
            raise ValueError(f"a kernel has at least one loop, got {self.loops}")
        if (self.read_bytes is None) != (self.written_bytes is None):
            raise ValueError("read_bytes and written_bytes must be known or null together")
        if min(self.read_bytes or 0, self.written_bytes or 0) < 0:
            raise ValueError(f"bytes are negative: {self.read_bytes}, {self.written_bytes}")

    @property
    def traffic_bytes(self) -> int | None:
        """Bytes read and written; None if Inductor does not know them."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """One graph that Inductor compiled, and its calls per pass.

    ``kernels`` are in launch order. ``buffers`` counts intermediate buffers, ``reused`` those in
    the memory of an expired one; ``allocated_bytes`` is the sum of allocations, ``peak_bytes`` the
    peak of live ones, results included and inputs not.
    """

    phase: Phase
    calls: int
    kernels: tuple[CompiledKernel, ...]
    buffers: int
    reused: int
    allocated_bytes: int
    peak_bytes: int

    def __post_init__(self) -> None:
        numbers = (self.calls, self.buffers, self.reused, self.allocated_bytes, self.peak_bytes)
        if min(numbers) < 0:
            raise ValueError(f"a number is negative: {numbers}")
        if self.peak_bytes > self.allocated_bytes:
            raise ValueError(f"peak_bytes is {self.peak_bytes}, above allocated_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerCalls:
    """Operator calls of a compiled pass outside its graphs, as in eager torch.

    ``part`` is the ``forward`` pass (between graphs), the ``loss``, the ``backward`` pass (of calls
    outside graphs in the other two), or the ``optimizer``.
    """

    op: str
    part: Part
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPass:
    """One pass under torch.compile, as Inductor scheduled it; `why_not` if unavailable.

    ``breaks`` are torch's reasons for graph breaks; ``outside`` are calls outside graphs. ``notes``
    describe the compilation. With a ``why_not``, everything else is empty.
    """

    compiler: str
    graphs: tuple[CompiledGraph, ...] = ()
    breaks: tuple[str, ...] = ()
    outside: tuple[EagerCalls, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""

    def __post_init__(self) -> None:
        if self.why_not and self.graphs:
            raise ValueError("an unavailable pass has no graphs")

    def launches(self, phase: Phase | None = None) -> int:
        """Kernel launches of a pass from its graphs, or of one phase."""
        return sum(calls for _, calls in self._kernels(phase))

    def launches_of(self, kind: KernelKind, phase: Phase | None = None) -> int:
        return sum(calls for kernel, calls in self._kernels(phase) if kernel.kind == kind)

    def known_bytes(self, phase: Phase | None = None) -> int:
        """Traffic in bytes of launches with known bytes."""
        return sum((kernel.traffic_bytes or 0) * calls for kernel, calls in self._kernels(phase))

    def unknown_launches(self, phase: Phase | None = None) -> int:
        return sum(calls for kernel, calls in self._kernels(phase) if kernel.traffic_bytes is None)

    def called_outside(self, part: Part) -> int:
        """Operator calls outside graphs, in a part of the pass."""
        return sum(each.calls for each in self.outside if each.part == part)

    def _kernels(self, phase: Phase | None) -> Iterable[tuple[CompiledKernel, int]]:
        for graph in self.graphs:
            if phase in (None, graph.phase):
                for kernel in graph.kernels:
                    yield kernel, graph.calls


def peak_bytes(steps: Sequence[tuple[str, int]]) -> int:
    """Return the peak of live bytes, of buffers that come and go.

    ``steps`` are, in order, the name of a buffer and its bytes when allocated, or its name and -1
    when freed. Freed buffers that were never allocated are no buffers of the graph, such as inputs.
    """
    alive: dict[str, int] = {}
    most = now = 0
    for name, byte in steps:
        if byte < 0:
            now -= alive.pop(name, 0)
        else:
            now += byte - alive.get(name, 0)
            alive[name] = byte
            most = max(most, now)
    return most
