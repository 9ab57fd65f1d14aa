"""What the compiler made of a kernel: its hot loop in the assembly, and whether it is clean.

A ceiling measured with a loop that keeps its sums in memory would be too low and look true, so a
kernel whose code is not what it declares is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from roofline.errors import MeasurementError
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import VECTORS, StreamKernel

Kernel = ComputeKernel | StreamKernel

_LABEL = re.compile(r"\s*([.\w$]+):")
_JUMP = re.compile(r"\s*(?:j[a-z]+|b|b\.[a-z]+|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\d+,)\s+([.\w$]+)\s*$")
_STACK = re.compile(r"\(%[re](?:sp|bp)\b|\[(?:sp|x29|fp)\b")
_NON_TEMPORAL = re.compile(r"\s(?:vmovnt|movnt|stnp)")
_COMMENT = re.compile(r"(##|//|#(?![-\d])|;).*")

_LOOP_CONTROL = 8
"""Instructions besides those wanted that a compute loop may have: counter, comparison, branch."""


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The instructions of a kernel's loop, one a line, without labels, directives and comments."""

    instructions: tuple[str, ...]

    def count(self, pattern: str) -> int:
        """Instructions that begin with the regular expression `pattern`."""
        wanted = re.compile(pattern)
        return sum(1 for line in self.instructions if wanted.match(line))

    @property
    def stack_accesses(self) -> int:
        """Instructions that touch the stack: values that did not fit into the registers."""
        return sum(1 for line in self.instructions if _STACK.search(line))

    @property
    def non_temporal_stores(self) -> int:
        """Stores that go past the caches."""
        return sum(1 for line in self.instructions if _NON_TEMPORAL.match(" " + line))


def hot_loop(assembly: str) -> HotLoop:
    """The longest loop of the function ``kernel`` in an assembly text.

    Raises:
        MeasurementError: there is no such function, or no loop in it.
    """
    lines = _function(assembly, "kernel")
    labels = {match[1]: i for i, line in enumerate(lines) if (match := _LABEL.match(line))}
    loops = [
        lines[labels[match[1]] : i + 1]
        for i, line in enumerate(lines)
        if (match := _JUMP.match(line)) and labels.get(match[1], i) < i
    ]
    if not loops:
        raise MeasurementError("the compiled kernel has no loop; this is a defect of roofline")
    body = max(loops, key=len)
    return HotLoop(
        tuple(
            text
            for line in body
            if (text := line.strip()) and not text.startswith(".") and not _LABEL.match(line)
        )
    )


def _function(assembly: str, name: str) -> list[str]:
    lines = [_COMMENT.sub("", line) for line in assembly.splitlines()]
    starts = [
        i
        for i, line in enumerate(lines)
        if (match := _LABEL.match(line)) and match[1].removeprefix("_") == name
    ]
    if not starts:
        raise MeasurementError(f"the compiled code has no function '{name}'")
    first = starts[0]
    last = first + 1
    while last < len(lines) and not re.match(r"\.?L?func_end|\s*\.cfi_endproc", lines[last]):
        last += 1
    return lines[first:last]


def check(kernel: Kernel, assembly: str) -> HotLoop:
    """The hot loop of a compiled kernel that is what the kernel declares.

    Raises:
        MeasurementError: values spilled to the stack, or the wanted instructions are missing.
    """
    loop = hot_loop(assembly)
    if loop.stack_accesses:
        raise MeasurementError(
            f"kernel '{kernel.label}' spills: {loop.stack_accesses} stack accesses in its loop;"
            " use fewer accumulators"
        )
    if isinstance(kernel, ComputeKernel):
        found = loop.count(kernel.mnemonic)
        others = len(loop.instructions) - found
        if found != kernel.instructions or others > _LOOP_CONTROL:
            raise MeasurementError(
                f"kernel '{kernel.label}' was compiled to {found} of {kernel.instructions} wanted"
                f" instructions and {others} others"
            )
    elif kernel.non_temporal and not 0 < loop.non_temporal_stores <= VECTORS:
        raise MeasurementError(f"kernel '{kernel.label}' was compiled without non-temporal stores")
    return loop
