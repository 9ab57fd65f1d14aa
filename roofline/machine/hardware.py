"""The profile of a machine: compute ceilings and memory levels, every number with its provenance.

The roofline model's ceilings: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful
Visual Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roofline.errors import FileFormatError, HardwareError
from roofline.foundation import reading, schema
from roofline.foundation.dtypes import DType
from roofline.foundation.units import format_capacity
from roofline.machine.checks import (
    check_date,
    check_differ,
    check_from_zero,
    check_name,
    check_positive,
)

SCHEMA_VERSION = 2
"""Of hardware profiles: older ones are migrated, newer ones refused (docs/file-formats.md)."""

Device = Literal["cpu", "cuda", "mps", "vulkan"]
"""What computes: torch's own names of its types of devices. Version 1 knew only cpu and cuda."""

MemoryKernel = Literal[
    "read", "write", "copy", "triad", "update", "write-nt", "copy-nt", "triad-nt", "unspecified"
]
"""What was run; ``unspecified`` where a document gives one figure for a level and no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a number comes from.

    ``date`` is ISO 8601 (``2026-01-31``, ``2026-01`` or ``2026``), of the measurement or the
    document, and empty where that is not known; ``reference`` names the document or the method;
    ``note`` adds what a reader must know to judge it (contention, throttling, sparsity …).

    Raises:
        ValueError: no reference, or a date that is none.
    """

    source: Literal["measured", "datasheet"]
    reference: str
    date: str
    tool_version: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("reference must name a document or a method, got nothing")
        check_date("date", self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCeiling:
    """Floating-point operations per second that one kernel reaches on `threads` threads.

    ``peak`` is a high quantile of short bursts and enters bounds; ``sustained`` is their median and
    enters predictions; ``spread`` is interquartile range over median (None for data sheets).

    Raises:
        ValueError: a rate or thread count that is not positive, a negative spread, sustained above
            peak, or an empty name.
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
        check_name("kernel", self.kernel)
        check_name("unit", self.unit)
        check_positive("threads", self.threads)
        check_positive("peak_flop_per_s", self.peak_flop_per_s)
        check_positive("sustained_flop_per_s", self.sustained_flop_per_s)
        check_from_zero("spread", self.spread)
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
        ValueError: a rate or thread count that is not positive, a negative spread, or sustained
            above peak.
    """

    kernel: MemoryKernel
    threads: int
    peak_byte_per_s: float
    sustained_byte_per_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("threads", self.threads)
        check_positive("peak_byte_per_s", self.peak_byte_per_s)
        check_positive("sustained_byte_per_s", self.sustained_byte_per_s)
        check_from_zero("spread", self.spread)
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
        ValueError: an empty name, a capacity that is not positive, no bandwidth, or two of the same
            kernel and thread count.
    """

    name: str
    capacity_byte: int | None = None
    scope: Literal["private", "shared"]
    bandwidth: tuple[Bandwidth, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("capacity_byte", self.capacity_byte)
        if not self.bandwidth:
            raise ValueError(f"memory level '{self.name}' has no bandwidth")
        labels = (f"{each.kernel}, {each.threads} threads" for each in self.bandwidth)
        check_differ(f"the bandwidths of '{self.name}'", labels)

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

    Raises:
        ValueError: no available CPU.
    """

    cpu_model: str
    architecture: str
    operating_system: str
    instruction_sets: tuple[str, ...]
    available_cpus: int
    versions: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check_positive("available_cpus", self.available_cpus)

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

    ``device`` is torch's name of the type of device that computes; ``threads`` is the number of
    threads that "all" means, and 1 for a device other than a CPU, which computes as a whole;
    ``memory`` runs from the nearest level to the farthest; ``overheads`` are times in seconds by
    name; ``conditions`` are what the measurement noticed about itself (contention, quota, steal …),
    in words.

    Raises:
        ValueError: another version than `SCHEMA_VERSION`, thread counts above ``threads``, threads
            of a device that has none to choose, a negative overhead, an empty name, levels or
            ceilings that occur twice, or levels out of order.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    device: Device
    threads: int
    description: str = ""
    host: Host | None = None
    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    overheads: dict[str, float] = field(default_factory=dict[str, float])
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # What is in memory is of the newest version, and so is all that is written.
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {self.schema_version}")
        check_name("name", self.name)
        check_positive("threads", self.threads)
        if not self.has_threads and self.threads != 1:
            raise ValueError(
                f"threads must be 1 for device '{self.device}', which computes as a whole,"
                f" got {self.threads}"
            )
        for name, seconds in self.overheads.items():
            check_name("the key of an overhead", name)
            check_from_zero(f"overheads.{name}", seconds)
        check_differ("memory level names", (level.name for level in self.memory))
        check_differ(
            "compute ceilings",
            (f"{each.kind} {each.label}, {each.threads} threads" for each in self.compute),
        )
        for nearer, farther in itertools.pairwise(self.memory):
            _check_order(nearer, farther)
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
    def has_threads(self) -> bool:
        """Whether one can choose how many threads compute; other devices than CPUs are one."""
        return self.device == "cpu"

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
        if not self.has_threads and threads != 1:
            raise HardwareError(
                f"--threads {threads} does not fit '{self.name}': a {self.device} device computes"
                " as a whole; leave --threads out"
            )
        if not 1 <= threads <= self.threads:
            raise HardwareError(
                f"--threads {threads} does not fit '{self.name}': choose 1 to {self.threads}"
            )
        return threads


def _check_order(nearer: MemoryLevel, farther: MemoryLevel) -> None:
    """Refuses a level that could hold nothing that the one before it did not hold already."""
    if farther.capacity_byte is None:
        return
    if nearer.capacity_byte is None or nearer.capacity_byte > farther.capacity_byte:
        raise ValueError(
            f"memory must run from the nearest level to the farthest, but {describe_level(nearer)}"
            f" stands before {describe_level(farther)}"
        )


def describe_threads(profile: HardwareProfile, threads: int) -> str:
    """How much of a machine computes, in words: ``"16 threads"``, or ``"cuda device"``."""
    if not profile.has_threads:
        return f"{profile.device} device"
    return f"{threads} thread{'s' * (threads != 1)}"


def describe_level(level: MemoryLevel) -> str:
    """A memory level in words: ``"L2 (1 MiB per core)"``."""
    if level.capacity_byte is None:
        return level.name
    per_core = " per core" if level.scope == "private" else ""
    return f"{level.name} ({format_capacity(level.capacity_byte)}{per_core})"


_STEPS: Mapping[int, schema.Step] = {
    # Version 2 knows more devices; what version 1 says means the same in it.
    1: lambda profile: profile,
}

_FIX = "run `roofline measure` for a new profile, or compare with `roofline hardware show 10980xe`"


def read_profile(path: Path) -> HardwareProfile:
    """The hardware profile in a TOML file.

    Raises:
        FileFormatError: not readable, not TOML, a newer version, or wrong keys or values.
    """
    return profile_from_data(reading.read_toml(path, fix=_FIX), file=str(path))


def migrated_profile(data: Any, *, file: str, fix: str) -> dict[str, Any]:
    """The plain data of a profile as the newest version has it; its values are not yet checked.

    Raises:
        FileFormatError: no version, or a newer one.
    """
    return schema.migrated(data, _STEPS, newest=SCHEMA_VERSION, file=file, fix=fix)


def profile_from_data(data: Any, *, file: str) -> HardwareProfile:
    """The hardware profile in plain data, as TOML or a saved analysis holds it."""
    newest = migrated_profile(data, file=file, fix=_FIX)
    profile = schema.from_data(HardwareProfile, newest, file=file, fix=_FIX)
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
