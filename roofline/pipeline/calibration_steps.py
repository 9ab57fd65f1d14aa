"""What a calibration measures at a stretch, in which types, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from roofline.errors import InputError
from roofline.latency.curriculum import Subject
from roofline.latency.samples import INT8
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.runs import RunOptions

_NATIVE_HALF = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that compute in bfloat16: without them nobody runs a model in it for speed."""

_NATIVE_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8")
"""The same of int8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The types and numbers of threads that all subjects are measured in."""

    dtypes: tuple[str, ...]
    threads: tuple[int, ...]

    @classmethod
    def of(
        cls,
        profile: HardwareProfile,
        dtypes: Sequence[str] | None,
        int8_problem: Callable[[], str],
    ) -> Settings:
        """Those of a machine.

        Args:
            profile: the machine's.
            dtypes: which types were asked for; None: those that the CPU computes in.
            int8_problem: says why torch cannot compute in int8; ``""``: it can.

        Raises:
            InputError: a type that there is not.
        """
        chosen = tuple(dict.fromkeys(dtypes)) if dtypes else _native(profile)
        for each in chosen:
            if each != INT8:
                RunOptions(dtype=each).run()
        problem = int8_problem() if INT8 in chosen else ""
        if problem and dtypes:
            raise InputError(f"--dtype {INT8}: {problem}; leave it out")
        most = profile.threads
        return cls(
            dtypes=tuple(each for each in chosen if not (problem and each == INT8)),
            threads=(most, 1) if most > 1 else (1,),
        )

    @property
    def floating(self) -> tuple[str, ...]:
        """The types that the tensors of any model can be taken to have."""
        return tuple(each for each in self.dtypes if each != INT8)


def computes_in_bfloat16(profile: HardwareProfile) -> bool:
    """Whether the CPU has instructions for it; without, it is converted at every step."""
    return _has(profile, _NATIVE_HALF)


def _has(profile: HardwareProfile, instruction_sets: Sequence[str]) -> bool:
    return profile.host is not None and bool({*profile.host.instruction_sets} & {*instruction_sets})


def _native(profile: HardwareProfile) -> tuple[str, ...]:
    """float32, and what the CPU has instructions for besides."""
    half = ("bfloat16",) if computes_in_bfloat16(profile) else ()
    int8 = (INT8,) if _has(profile, _NATIVE_INT8) else ()
    return ("float32", *half, *int8)


def int8_problem() -> str:
    """Why torch cannot compute in int8 here; ``""``: it can."""
    from roofline.quantization.modules.companions import why_no_int8

    return why_no_int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A subject in one type: what is measured at a stretch."""

    subject: Subject
    dtype: str

    @property
    def key(self) -> str:
        """What tells it from others."""
        layout = " channels-last" if self.subject.channels_last else ""
        return f"{self.subject.name} {self.dtype}{layout}"


def steps_of(subjects: Sequence[Subject], dtypes: Sequence[str], done: set[str]) -> list[Step]:
    """Each subject in each type, but for those that were done."""
    steps = (Step(subject=each, dtype=dtype) for each in subjects for dtype in dtypes)
    return [each for each in steps if each.key not in done]


def mixed(first: Sequence[Step], second: Sequence[Step], *, every: int) -> list[Step]:
    """One of the `second` behind every so many of the `first`, and what is left of either."""
    found: list[Step] = []
    others = iter(second)
    for place in range(0, len(first), every):
        found += [*first[place : place + every], *islice(others, 1)]
    return [*found, *others]
