"""The profile of a machine: compute ceilings and memory levels, every number with its provenance.

The roofline model's ceilings: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful
Visual Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roofline.errors import FileFormatError, HardwareError
from roofline.foundation import schema
from roofline.foundation.dtypes import DType
from roofline.foundation.units import format_capacity

SCHEMA_VERSION = 1
"""Of hardware profiles; a profile with a newer one is refused."""

MemoryKernel = Literal[
    "read", "write", "copy", "triad", "update", "write-nt", "copy-nt", "triad-nt", "unspecified"
]
"""What was run; ``unspecified`` where a document gives one figure for a level and no kernel."""


def _positive(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{name} must be greater than 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a number comes from.

    ``date`` is ISO 8601, of the measurement or the document, and empty where that is not known;
    ``reference`` names the document or the method; ``note`` adds what a reader must know to
    judge it (contention, throttling, sparsity …).
    """

    source: Literal["measured", "datasheet"]
    reference: str
    date: str
    tool_version: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCeiling:
    """Floating-point operations per second that one kernel reaches on `threads` threads.

    ``peak`` is a high quantile of short bursts and enters bounds; ``sustained`` is their median and
    enters predictions; ``spread`` is interquartile range over median (None for data sheets).

    Raises:
        ValueError: a rate or thread count that is not positive, or sustained above peak.
    """

    kind: Literal["hardware", "library"]
    kernel: str
    dtype: DType
    unit: str
    threads: int
    peak_flop_per_s: float
    sustained_flop_per_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        _positive("threads", self.threads)
        _positive("peak_flop_per_s", self.peak_flop_per_s)
        _positive("sustained_flop_per_s", self.sustained_flop_per_s)
        if self.sustained_flop_per_s > self.peak_flop_per_s:
            raise ValueError(
                f"sustained_flop_per_s ({self.sustained_flop_per_s:g}) must not exceed"
                f" peak_flop_per_s ({self.peak_flop_per_s:g})"
            )

    @property
    def label(self) -> str:
        """How tables and pictures name it: ``"float32 avx512 fma"``."""
        return f"{self.dtype} {self.unit} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes per second that one memory kernel moves on `threads` threads.

    Bytes are those the kernel's loads and stores name (STREAM's counting: the read for ownership of
    a plain store is not counted). ``peak``, ``sustained`` and ``spread`` as in `ComputeCeiling`.

    Raises:
        ValueError: a rate or thread count that is not positive, or sustained above peak.
    """

    kernel: MemoryKernel
    threads: int
    peak_byte_per_s: float
    sustained_byte_per_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        _positive("threads", self.threads)
        _positive("peak_byte_per_s", self.peak_byte_per_s)
        _positive("sustained_byte_per_s", self.sustained_byte_per_s)
        if self.sustained_byte_per_s > self.peak_byte_per_s:
            raise ValueError(
                f"sustained_byte_per_s ({self.sustained_byte_per_s:g}) must not exceed"
                f" peak_byte_per_s ({self.peak_byte_per_s:g})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of memory, with the bandwidths measured from it.

    ``capacity_byte`` is that of one instance (None: no limit known, as for DRAM). A ``private``
    level exists once per core: k threads have k times its capacity.

    Raises:
        ValueError: a capacity that is not positive, or no bandwidth.
    """

    name: str
    capacity_byte: int | None = None
    scope: Literal["private", "shared"]
    bandwidth: tuple[Bandwidth, ...]

    def __post_init__(self) -> None:
        _positive("capacity_byte", self.capacity_byte)
        if not self.bandwidth:
            raise ValueError(f"memory level '{self.name}' has no bandwidth")

    def capacity_for(self, threads: int) -> int | None:
        """Bytes that `threads` threads can hold in this level; None: no limit known."""
        if self.capacity_byte is None:
            return None
        return self.capacity_byte * (threads if self.scope == "private" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What identifies the machine that a profile was measured on, and the software it ran.

    ``instruction_sets`` are those the CPU has *and* the operating system enabled.
    `difference` compares the fingerprint (CPU model, instruction sets, available CPUs);
    ``versions`` say which library ceilings still hold.
    """

    cpu_model: str
    architecture: str
    operating_system: str
    instruction_sets: tuple[str, ...]
    available_cpus: int
    versions: dict[str, str] = field(default_factory=dict[str, str])

    def difference(self, other: Host) -> str:
        """What differs in the fingerprints, in words; ``""`` if they are the same."""
        parts: list[str] = []
        if self.cpu_model != other.cpu_model:
            parts.append(f"CPU model '{self.cpu_model}' became '{other.cpu_model}'")
        if self.architecture != other.architecture:
            parts.append(f"architecture {self.architecture} became {other.architecture}")
        if self.available_cpus != other.available_cpus:
            parts.append(f"available CPUs {self.available_cpus} became {other.available_cpus}")
        gone = set(self.instruction_sets) - set(other.instruction_sets)
        new = set(other.instruction_sets) - set(self.instruction_sets)
        if gone:
            parts.append(f"instruction sets {', '.join(sorted(gone))} are gone")
        if new:
            parts.append(f"instruction sets {', '.join(sorted(new))} are new")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """A machine's measured or documented ceilings.

    ``threads`` is the number of threads that "all" means; ``memory`` runs from the nearest level
    to the farthest; ``overheads`` are times in seconds by name; ``conditions`` are what the
    measurement noticed about itself (contention, quota, steal …), in words.

    Raises:
        ValueError: no memory level, thread counts above ``threads``, or names that occur twice.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    device: Literal["cpu", "cuda"]
    threads: int
    description: str = ""
    host: Host | None = None
    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    overheads: dict[str, float] = field(default_factory=dict[str, float])
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive("threads", self.threads)
        names = [level.name for level in self.memory]
        if len(set(names)) < len(names):
            raise ValueError(f"memory level names must differ, got {', '.join(names)}")
        for ceiling in self.compute:
            if ceiling.threads > self.threads:
                raise ValueError(
                    f"compute ceiling '{ceiling.label}' is for {ceiling.threads} threads,"
                    f" but the machine has {self.threads}"
                )
        for level in self.memory:
            for bandwidth in level.bandwidth:
                if bandwidth.threads > self.threads:
                    raise ValueError(
                        f"bandwidth '{level.name} {bandwidth.kernel}' is for {bandwidth.threads}"
                        f" threads, but the machine has {self.threads}"
                    )

    @property
    def knows_only_dram(self) -> bool:
        """Whether there is a single memory level, so that every operand is charged to it."""
        return len(self.memory) == 1

    @property
    def date(self) -> str:
        """The newest date among its provenances, ISO 8601; ``""`` if there are none."""
        return max((each.date for each in self.provenances()), default="")

    def provenances(self) -> Iterable[Provenance]:
        """The provenance of every ceiling."""
        for ceiling in self.compute:
            yield ceiling.provenance
        for level in self.memory:
            for bandwidth in level.bandwidth:
                yield bandwidth.provenance

    def check_threads(self, threads: int) -> int:
        """`threads` if this machine has as many.

        Raises:
            HardwareError: fewer than one, or more than the machine has.
        """
        if not 1 <= threads <= self.threads:
            raise HardwareError(
                f"--threads {threads} does not fit '{self.name}': choose 1 to {self.threads}"
            )
        return threads


def describe_level(level: MemoryLevel) -> str:
    """A memory level in words: ``"L2 (1 MiB per core)"``."""
    if level.capacity_byte is None:
        return level.name
    per_core = " per core" if level.scope == "private" else ""
    return f"{level.name} ({format_capacity(level.capacity_byte)}{per_core})"


_FIX = "run `roofline measure` for a new profile, or compare with `roofline hardware show 10980xe`"


def read_profile(path: Path) -> HardwareProfile:
    """The hardware profile in a TOML file.

    Raises:
        FileFormatError: not readable, not TOML, a newer version, or wrong keys or values.
    """
    return profile_from_data(schema.read_toml(path, fix=_FIX), file=str(path))


def profile_from_data(data: Any, *, file: str) -> HardwareProfile:
    """The hardware profile in plain data, as TOML or a saved analysis holds it."""
    schema.check_version(data, newest=SCHEMA_VERSION, file=file, fix=_FIX)
    profile = schema.from_data(HardwareProfile, data, file=file, fix=_FIX)
    if not profile.memory and not profile.compute:
        raise FileFormatError(f"{file}: has neither compute ceilings nor memory levels; {_FIX}")
    return profile


def profile_to_toml(profile: HardwareProfile) -> str:
    """The profile as TOML text; `read_profile` gives an equal profile back."""
    import tomli_w

    return tomli_w.dumps(_without_none(schema.to_data(profile)))


def _without_none(data: Any) -> Any:
    # TOML has no null: an absent key is read as its default, which is None wherever it may be.
    match data:
        case dict():
            return {k: _without_none(v) for k, v in data.items() if v is not None}  # pyright: ignore
        case list():
            return [_without_none(item) for item in data]  # pyright: ignore
        case _:
            return data
