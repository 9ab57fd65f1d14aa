"""What torch.compile makes of a pass: the kernels that Inductor generates, and its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.workload.operators import Phase

Part = Literal["forward", "loss", "backward", "optimizer"]
"""Of a pass, in the order in which they run."""

KernelKind = Literal["generated", "library"]
"""``generated``: a function that Inductor writes; ``library``: a kernel of torch that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One launch: what its caller calls once.

    ``loops`` is how many loop nests of Inductor's schedule are in it, one behind the other (1 for a
    library's). ``operators`` are the aten operators that it does, or parts of, in the order of the
    graph, each once for every module; ``modules`` the paths of the modules that called them.
    ``read_bytes`` and ``written_bytes`` are those of the schedule: every buffer once for each loop
    nest, but for what stays inside it; None where Inductor does not know them.
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
        """Bytes read and written; None where Inductor does not know them."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """One graph that Inductor compiled, and how often a pass calls it.

    ``kernels`` are in the order of their launches. ``buffers`` is how many intermediate buffers it
    has, ``reused`` how many of them take the memory of one that is no longer needed;
    ``allocated_bytes`` is what it allocates in all, ``peak_bytes`` the most of that which is alive
    at once, results included and inputs not.
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
    """An operator that a compiled pass calls outside of its graphs, as eager torch does.

    ``part`` is when: in the ``forward`` pass (between graphs), in the ``loss``, in the ``backward``
    pass (of what is outside in the other two), or in the ``optimizer``.
    """

    op: str
    part: Part
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPass:
    """One pass under torch.compile, as Inductor scheduled it; `why_not` where that is not known.

    ``breaks`` are the reasons for which the model became several graphs, as torch tells them;
    ``outside`` what runs outside of graphs. ``notes`` say how it was compiled. Where ``why_not``
    says something, everything else is empty.
    """

    compiler: str
    graphs: tuple[CompiledGraph, ...] = ()
    breaks: tuple[str, ...] = ()
    outside: tuple[EagerCalls, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""

    def __post_init__(self) -> None:
        if self.why_not and self.graphs:
            raise ValueError("what is not available has no graphs")

    def launches(self, phase: Phase | None = None) -> int:
        """How many kernels a pass launches from its graphs; those of one phase where given."""
        return sum(calls for _, calls in self._kernels(phase))

    def launches_of(self, kind: KernelKind, phase: Phase | None = None) -> int:
        """How many of the launches are of a kind."""
        return sum(calls for kernel, calls in self._kernels(phase) if kernel.kind == kind)

    def known_bytes(self, phase: Phase | None = None) -> int:
        """The traffic in bytes of those launches whose bytes are known."""
        return sum((kernel.traffic_bytes or 0) * calls for kernel, calls in self._kernels(phase))

    def unknown_launches(self, phase: Phase | None = None) -> int:
        """How many launches move an unknown number of bytes."""
        return sum(calls for kernel, calls in self._kernels(phase) if kernel.traffic_bytes is None)

    def called_outside(self, part: Part) -> int:
        """How many operators a pass calls outside of its graphs, in a part of it."""
        return sum(each.calls for each in self.outside if each.part == part)

    def _kernels(self, phase: Phase | None) -> Iterable[tuple[CompiledKernel, int]]:
        for graph in self.graphs:
            if phase in (None, graph.phase):
                for kernel in graph.kernels:
                    yield kernel, graph.calls


def peak_bytes(steps: Sequence[tuple[str, int]]) -> int:
    """The most bytes that are alive at once, of buffers that come and go.

    ``steps`` are in their order the name of a buffer and its bytes as it comes, or its name and -1
    as it goes. One that goes and never came is no buffer of the graph, such as an input.
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
