"""Two machines held against each other: ceiling by ceiling, level by level, ridge by ridge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline.design.hardware_quantities import quantities_of
from roofline.foundation.dtypes import DType
from roofline.machine.hardware import HardwareProfile
from roofline.placement import ComputeRoof, LevelRoof, Roof, ridge_flop_per_byte

ALL = "all"
"""How many threads a ceiling is for that is for as many as its machine has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one kernel reaches on both machines, in flop/s or byte/s; None: not known of that one.

    ``name`` is what must be the same of both to compare them: data type, unit, kernel and kind of
    a ceiling, level, kernel and kind of a memory. ``threads`` is a number, or ``"all"``: as many
    as each machine has, which may differ. Of what takes time, ``peaks`` are the shortest and
    ``sustained`` the medians, in s.
    """

    name: tuple[str, ...]
    threads: str
    peaks: tuple[float | None, float | None]
    sustained: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfType:
    """The highest hardware ceiling of a data type on each machine, with all its threads.

    ``ridges_flop_per_byte`` are where they meet the roof of the farthest memory level.
    """

    dtype: DType
    units: tuple[ComputeRoof | None, ComputeRoof | None]
    ridges_flop_per_byte: tuple[float | None, float | None]

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Both ceilings in flop/s."""
        first, second = self.units
        return first and first.flop_per_s, second and second.flop_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareDifference:
    """Two machines; every pair is in their order, and a ratio is the second's over the first's."""

    machines: tuple[HardwareProfile, HardwareProfile]

    @property
    def names(self) -> tuple[str, str]:
        """What they are called; numbered if that is the same."""
        first, second = (each.name for each in self.machines)
        return (f"{first} (1)", f"{second} (2)") if first == second else (first, second)

    @property
    def same(self) -> bool:
        """Whether nothing at all differs but the names."""
        first, second = self.machines
        return _unnamed(first) == _unnamed(second)

    @property
    def best(self) -> tuple[BestOfType, ...]:
        """The highest ceiling of every data type that either machine knows, widest type first.

        That for multiply-adds, which models are made of: not of additions beside them.
        """
        found = [Roof(each, each.threads).of_products for each in self.machines]
        memories = self.memories
        best: list[BestOfType] = []
        for each in sorted({*found[0], *found[1]}, key=lambda each: (-each.bits, each.name)):
            units = found[0].get(each), found[1].get(each)
            ridges = _ridge(units[0], memories[0]), _ridge(units[1], memories[1])
            best.append(BestOfType(dtype=each, units=units, ridges_flop_per_byte=ridges))
        return tuple(best)

    @property
    def memories(self) -> tuple[LevelRoof | None, LevelRoof | None]:
        """The farthest memory level of each, with the rate of its fastest kernel."""
        first, second = (Roof(each, each.threads).levels for each in self.machines)
        return first[-1] if first else None, second[-1] if second else None

    @property
    def compute(self) -> tuple[Rates, ...]:
        """Every compute ceiling, hardware and library; ``name`` is (dtype, unit, kernel, kind)."""
        return _joined(*map(_compute, self.machines))

    @property
    def memory(self) -> tuple[Rates, ...]:
        """Every bandwidth, hardware and library; ``name`` is (level, kernel, kind)."""
        return _joined(*map(_memory, self.machines))

    @property
    def times(self) -> tuple[Rates, ...]:
        """Latencies of memory levels and what calls cost, in s; ``name`` is (subject, what)."""
        return _joined(*map(_times, self.machines))

    @property
    def host_difference(self) -> str | None:
        """What differs in the hosts' fingerprints, ``""`` if nothing; None: not known of both."""
        first, second = (each.host for each in self.machines)
        return first.difference(second) if first and second else None

    def to_data(self) -> dict[str, Any]:
        """The difference as plain data; rates in flop/s and byte/s, None where one is unknown."""
        first, second = self.names
        return {
            "schema_version": 1,
            "kind": "hardware difference",
            "first": first,
            "second": second,
            "same": self.same,
            "best": [
                {
                    "dtype": each.dtype.name,
                    **_pair("unit", _labels(each.units)),
                    **_pair("flop_per_s", each.rates),
                    "ratio": ratio(each.rates),
                    **_pair("ridge_flop_per_byte", each.ridges_flop_per_byte),
                    "ridge_ratio": ratio(each.ridges_flop_per_byte),
                }
                for each in self.best
            ],
            "compute": [
                _row(each, ("dtype", "unit", "kernel", "kind"), "flop_per_s")
                for each in self.compute
            ],
            "memory": [
                _row(each, ("level", "kernel", "kind"), "byte_per_s") for each in self.memory
            ],
            "times": [
                {
                    **dict(zip(("subject", "what"), each.name, strict=True)),
                    "threads": each.threads,
                    **_pair("median_s", each.sustained),
                    "median_ratio": ratio(each.sustained),
                }
                for each in self.times
            ],
            "host_difference": self.host_difference,
        }


def ratio(pair: tuple[float | None, float | None]) -> float | None:
    """The second of `pair` over the first; None where one is unknown."""
    first, second = pair
    return None if first is None or second is None else second / first


def _unnamed(profile: HardwareProfile) -> tuple[object, ...]:
    return (
        *(profile.device, profile.threads, profile.host),
        *(profile.compute, profile.memory, profile.overheads, profile.links, profile.clock),
    )


def _ridge(unit: ComputeRoof | None, memory: LevelRoof | None) -> float | None:
    return ridge_flop_per_byte(unit, memory) if unit and memory else None


_Key = tuple[tuple[str, ...], str]
_Found = Mapping[_Key, tuple[float, float]]


def _threads(profile: HardwareProfile, threads: int) -> str:
    return ALL if threads == profile.threads else str(threads)


def _compute(profile: HardwareProfile) -> _Found:
    return {
        (
            (each.dtype.name, each.unit, each.kernel, each.kind),
            _threads(profile, each.threads),
        ): (each.peak_flop_per_s, each.sustained_flop_per_s)
        for each in profile.compute
    }


def _memory(profile: HardwareProfile) -> _Found:
    return {
        ((level.name, each.kernel, each.kind), _threads(profile, each.threads)): (
            each.peak_byte_per_s,
            each.sustained_byte_per_s,
        )
        for level in profile.memory
        for each in level.bandwidth
    }


def _times(profile: HardwareProfile) -> _Found:
    return {
        ((each.subject, each.what), _threads(profile, each.threads or 1)): (
            each.peak,
            each.typical,
        )
        for each in quantities_of(profile)
        if each.measure == "s"
    }


def _joined(first: _Found, second: _Found) -> tuple[Rates, ...]:
    """What both know, in the first's order, then what only the first knows, then the second."""
    # Sorting is stable, and what only the second knows already comes last.
    keys = sorted({**first, **second}, key=lambda key: key not in first or key not in second)
    nothing = (None, None)
    return tuple(
        Rates(
            name=name,
            threads=threads,
            peaks=(first.get(key, nothing)[0], second.get(key, nothing)[0]),
            sustained=(first.get(key, nothing)[1], second.get(key, nothing)[1]),
        )
        for key in keys
        for name, threads in (key,)
    )


def _labels(units: tuple[ComputeRoof | None, ComputeRoof | None]) -> tuple[str | None, str | None]:
    first, second = units
    return first and first.label, second and second.label


def _pair(name: str, pair: tuple[object, object]) -> dict[str, object]:
    return {f"first_{name}": pair[0], f"second_{name}": pair[1]}


def _row(each: Rates, names: tuple[str, ...], unit: str) -> dict[str, Any]:
    return {
        **dict(zip(names, each.name, strict=True)),
        "threads": each.threads,
        **_pair(f"peak_{unit}", each.peaks),
        "peak_ratio": ratio(each.peaks),
        **_pair(f"sustained_{unit}", each.sustained),
        "sustained_ratio": ratio(each.sustained),
    }
