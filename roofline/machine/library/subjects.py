"""What is measured of the library: an operator, with the sizes that it may be measured at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.machine.hardware import MemoryKernel
from roofline.machine.hierarchy.working_sets import WorkingSet

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call at one size, made only when it is tried: ``work`` is its flop or byte."""

    size: str
    work: int
    make: Callable[[], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """An operator whose arithmetic is measured, on any number of threads; sizes rise."""

    kernel: str
    dtype: DType
    candidates: tuple[Candidate, ...]

    @property
    def label(self) -> str:
        """How progress and conditions name it: ``"float16 gemm"``."""
        return f"{self.dtype} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An element-wise operator over a working set; ``overhead_s`` is what it costs without any."""

    kernel: MemoryKernel
    working_set: WorkingSet
    candidates: tuple[Candidate, ...]
    overhead_s: float

    @property
    def label(self) -> str:
        """How progress and conditions name it: ``"L3 copy"``."""
        return f"{self.working_set.level} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A call whose arithmetic costs next to nothing; ``note`` says what it is."""

    name: str
    note: str
    candidates: tuple[Candidate, ...]

    @property
    def label(self) -> str:
        """How progress and conditions name it: ``"dispatch of linear"``."""
        return self.name


Subject = Arithmetic | Stream | Dispatch
