"""Profile of a machine: its host and all of its ceilings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from roofline.core import files
from roofline.core.blocks import Block, View
from roofline.core.text import counted
from roofline.core.units import format_si
from roofline.errors import HardwareError, argument, did_you_mean
from roofline.machine.hardware.ceilings import (
    HUGE_PAGE_FAULT,
    PAGE_FAULT,
    Bandwidth,
    BandwidthCurve,
    Clock,
    ComputeCeiling,
    LatencyCurve,
    Link,
    MemoryLevel,
    Overhead,
    Provenance,
    check_name,
    check_positive,
    check_unique,
    describe_level,
)
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Device = Literal["cpu", "cuda", "mps", "vulkan"]
"""Device types by torch's names; schema version 1 has only cpu and cuda."""


Effort = Literal["quick", "default", "thorough", "unspecified"]
"""Duration of the measurement; ``unspecified`` for data sheets and before version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Identity of the measured host, and its software.

    ``instruction_sets`` are supported by the CPU *and* enabled by the operating system.
    ``versions`` determine which library ceilings are valid.
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
        """Return the differences of the fingerprints as text; ``""`` if equal."""
        parts = [
            f"{what} {quote}{before}{quote} → {quote}{after}{quote}"
            for what, quote, before, after in (
                ("CPU model", "'", self.cpu_model, other.cpu_model),
                ("architecture", "", self.architecture, other.architecture),
                ("available CPUs", "", self.available_cpus, other.available_cpus),
            )
            if before != after
        ]
        here, there = set(self.instruction_sets), set(other.instruction_sets)
        for sets, what in ((here - there, "removed"), (there - here, "added")):
            if sets:
                parts.append(f"instruction sets {what}: {', '.join(sorted(sets))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HardwareProfile(Result):
    """Measured or documented ceilings of a machine.

    Rows are figures in SI units (``measure``): ``what`` is compute, bandwidth, latency, capacity,
    clock, overhead or link; ``subject`` is its data type, level, call or link. For times, peak is
    the shortest and sustained the median.

    ``device`` is torch's name of the device type; ``threads`` the number of threads of
    multi-threaded figures, 1 for devices other than CPUs; ``aliases`` other names (driver names,
    names in published data); ``multiprocessors`` the number of SMs, compute units or GPU cores,
    ``power_limit_w`` the power of the board in watts (None: unknown); ``memory`` runs from the
    nearest level to the farthest; ``overheads`` are costs of calls; ``links`` lead to other
    memories and processes; cache sizes are derived from the curves; ``effort`` is the duration of
    the measurement; ``conditions`` are its disturbances (contention, quota, steal …).
    """

    kind: ClassVar = "hardware"
    made_by: ClassVar = "roofline measure -o FILE.toml"
    suffixes: ClassVar = (".toml", *Result.suffixes)
    columns: ClassVar = {
        **dict.fromkeys(("what", "kind", "subject", "unit", "kernel"), "string"),
        "threads": "Int64",
        "measure": "string",
        **dict.fromkeys(("peak", "sustained", "spread", "theoretical", "loss"), "Float64"),
        **dict.fromkeys(("write_allocate", "doubt", "source", "reference", "date"), "string"),
    }

    name: str
    device: Device
    threads: int
    description: str = ""
    aliases: tuple[str, ...] = ()
    multiprocessors: int | None = None
    power_limit_w: float | None = None
    host: Host | None = None
    effort: Effort = "unspecified"
    clock: Clock | None = None
    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    links: tuple[Link, ...] = ()
    bandwidth_curves: tuple[BandwidthCurve, ...] = ()
    latency_curve: LatencyCurve | None = None
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("threads", self.threads)
        if not self.has_threads and self.threads != 1:
            raise ValueError(f"threads must be 1 for device '{self.device}', got {self.threads}")
        for name in ("multiprocessors", "power_limit_w"):
            check_positive(name, getattr(self, name))
            if self.has_threads and getattr(self, name) is not None:
                raise ValueError(f"{name} must be omitted for device '{self.device}'")
        for alias in self.aliases:
            check_name("alias", alias)
        check_unique("aliases", self.aliases)
        check_unique("memory level names", (level.name for level in self.memory))
        for nearer, farther in itertools.pairwise(self.memory):
            _check_order(nearer, farther)
        # Name, unique label and threads of each figure.
        figures: dict[str, list[tuple[str, str, int]]] = {
            "compute ceiling": [
                (each.label, f"{each.kind} {each.label}", each.threads) for each in self.compute
            ],
            "bandwidth": [
                (
                    f"{level.name} {each.kernel}",
                    f"{each.kind} {level.name} {each.kernel}",
                    each.threads,
                )
                for level in self.memory
                for each in level.bandwidth
            ],
            "overhead": [(each.name, each.name, each.threads) for each in self.overheads],
            "link": [
                (way := f"{each.source} to {each.target}", f"{way} {each.kernel}", each.threads)
                for each in self.links
            ],
            "bandwidth curve": [
                (each.kernel, each.kernel, each.threads) for each in self.bandwidth_curves
            ],
        }
        for what, found in figures.items():
            check_unique(f"{what}s", (f"{label}, {threads} threads" for _, label, threads in found))
            for name, _, threads in found:
                if threads > self.threads:
                    raise ValueError(
                        f"{what} '{name}' has {threads} threads, but the machine has {self.threads}"
                    )

    @property
    def has_threads(self) -> bool:
        """True for CPUs; other devices have no choice of threads."""
        return self.device == "cpu"

    @property
    def has_single_memory_level(self) -> bool:
        """True if there is a single memory level."""
        return len(self.memory) == 1

    @property
    def memory_capacity_bytes(self) -> int | None:
        """Capacity of main memory, in bytes; None: unknown."""
        return self.memory[-1].capacity_bytes if self.memory else None

    @property
    def date(self) -> str:
        """Newest date of its provenances, ISO 8601; ``""`` if there is none."""
        return max((each.date for each in self.provenances()), default="")

    @property
    def ceilings_clock_hz(self) -> float | None:
        """Core clock of the compute ceilings, in Hz; None: unknown."""
        clocks = [each.clock_hz for each in self.compute if each.kind == "hardware"]
        return max((each for each in clocks if each is not None), default=None)

    def page_fault_s(self, *, huge: bool = False) -> dict[int, float]:
        """Return the cost of a minor page fault in seconds, by threads; empty if not measured.

        Args:
            huge: of a transparent huge page, not of a 4 KiB page.
        """
        name = HUGE_PAGE_FAULT if huge else PAGE_FAULT
        return {each.threads: each.time.median_s for each in self.overheads if each.name == name}

    def at_clock(self, clock_hz: float) -> HardwareProfile:
        """Return the profile with clock-dependent ceilings raised to `clock_hz`.

        Ceilings at a higher clock stay unchanged, so minimum times hold at either clock.
        """
        return replace(
            self,
            compute=tuple(_at_clock(each, clock_hz, "flop_per_s") for each in self.compute),
            memory=tuple(
                replace(
                    level,
                    bandwidth=tuple(
                        _at_clock(each, clock_hz, "bytes_per_s") for each in level.bandwidth
                    ),
                )
                for level in self.memory
            ),
        )

    def provenances(self) -> Iterable[Provenance]:
        """Yield the provenance of every ceiling."""
        for ceiling in self.compute:
            yield ceiling.provenance
        for level in self.memory:
            for bandwidth in level.bandwidth:
                yield bandwidth.provenance

    @property
    def summary(self) -> str:
        """The verdict: peak, memory bandwidth, ridge point."""
        from roofline.machine.report import headline

        return headline(self)

    def rows(self) -> Iterable[tuple[Any, ...]]:
        from roofline.machine.quantities import quantities_of

        for each in quantities_of(self):
            of = each.provenance
            yield (
                *(*each.identity, each.threads, each.measure, each.peak, each.sustained),
                *(each.spread, each.theoretical_per_s, each.loss),
                *(each.write_allocate, each.doubt),
                *((of.source, of.reference, of.date) if of else (None, None, None)),
            )

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, tables of ceilings, levels, curves and overheads, and sources."""
        from roofline.machine.report import profile_blocks

        return profile_blocks(self, view)

    def contradictions(self) -> Iterable[str]:
        """Return an error if the profile has no ceiling."""
        if not self.memory and not self.compute:
            yield "has neither compute ceilings nor memory levels"

    def render(self, format: str, view: View | None = None, **picture: Any) -> str | bytes:
        """Return the profile in a format; also ``toml``, for `read_profile`."""
        if format == "toml":
            return profile_to_toml(self)
        return Result.render(self, format, view, **picture)

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        from roofline.machine.drawing import height_of

        return Result._figure(self, make, width_inch, height_inch or height_of(self), options)

    def draw(self, figure: Figure) -> None:
        """Draw the roofline, peaks against theoretical peaks, and curves over the working set."""
        from roofline.machine.drawing import draw_profile

        draw_profile(figure, self)

    def check_threads(self, threads: int) -> int:
        """Return `threads` if this machine has as many.

        Raises:
            HardwareError: fewer than one, or more than the machine has.
        """
        if not self.has_threads and threads != 1:
            raise HardwareError(
                f"{argument('threads', threads)} has no effect on '{self.name}', a {self.device}"
                f" device; leave {argument('threads')} out"
            )
        if not 1 <= threads <= self.threads:
            raise HardwareError(
                f"{argument('threads', threads)} does not fit '{self.name}': choose 1 to"
                f" {self.threads}"
            )
        return threads


_Ceiling = TypeVar("_Ceiling", ComputeCeiling, Bandwidth)


def _at_clock(ceiling: _Ceiling, clock_hz: float, unit: str) -> _Ceiling:
    before = ceiling.clock_hz
    if ceiling.kind != "hardware" or before is None or clock_hz <= before:
        return ceiling
    origin = ceiling.provenance
    scaled = f"scaled from {format_si(before, 'Hz')} to {format_si(clock_hz, 'Hz')}"
    note = "; ".join(filter(None, (origin.note, scaled)))
    rates = {
        name: getattr(ceiling, name) * clock_hz / before
        for name in (f"peak_{unit}", f"sustained_{unit}")
    }
    where = replace(origin, source="derived", note=note)
    return replace(ceiling, **rates, clock_hz=clock_hz, provenance=where)


def _check_order(nearer: MemoryLevel, farther: MemoryLevel) -> None:
    """Raise ValueError if a farther level is smaller than a nearer one."""
    if farther.capacity_bytes is None:
        return
    if nearer.capacity_bytes is None or nearer.capacity_bytes > farther.capacity_bytes:
        raise ValueError(
            f"memory levels must be ordered nearest first, got {describe_level(nearer)} before"
            f" {describe_level(farther)}"
        )


def describe_threads(profile: HardwareProfile, threads: int) -> str:
    """Return the computing part of a machine: ``"16 threads"``, or ``"cuda device"``."""
    if not profile.has_threads:
        return f"{profile.device} device"
    return f"{counted(threads, 'thread')}"


_FIX = "run `roofline measure` for a new profile, or see `roofline hardware show 10980xe`"


def read_profile(path: Path) -> HardwareProfile:
    """Return the hardware profile in a TOML file.

    Raises:
        FileFormatError: unreadable, not TOML, a newer version, or wrong keys or values.
    """
    data = files.read_toml(path, fix=_FIX)
    try:
        data = _expanded(data, data.pop("sources", {}), str(path))
    except RecursionError:
        raise files.refused(str(path), "nested too deeply", _FIX) from None
    return HardwareProfile.from_data(data, file=str(path))


def _expanded(data: Any, sources: Any, file: str, key: str = "") -> Any:
    """Return `data` with references to the tables `sources` expanded.

    ``provenance = "KEY"`` is the table ``[sources.KEY]``; ``{ from = "KEY", note = "…" }`` adds
    keys.
    """
    if isinstance(data, list):
        return [_expanded(each, sources, file) for each in cast("list[Any]", data)]
    if key in ("provenance", "capacity_provenance"):
        own = cast("dict[str, Any]", data if isinstance(data, dict) else {"from": data})
        if "from" in own:
            named = own["from"]
            known = cast("dict[str, Any]", sources) if isinstance(sources, dict) else {}
            found = known.get(named) if isinstance(named, str) else None
            if not isinstance(found, dict):
                what = f"no table [sources.{named}] for this {key}{did_you_mean(str(named), known)}"
                raise files.refused(file, what, _FIX)
            more = {name: own[name] for name in own if name != "from"}
            return {**cast("dict[str, Any]", found), **more}
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {name: _expanded(each, sources, file, name) for name, each in items}
    return data


def profile_to_toml(profile: HardwareProfile) -> str:
    """Return the profile as TOML; `read_profile` restores an equal profile."""
    import tomli_w

    return tomli_w.dumps(_without_none(profile.to_data()))


def _without_none(data: Any) -> Any:
    # TOML has no null: an absent key has the default None.
    match data:
        case dict():
            return {k: _without_none(v) for k, v in data.items() if v is not None}  # pyright: ignore
        case list():
            return [_without_none(item) for item in data]  # pyright: ignore
        case _:
            return data
