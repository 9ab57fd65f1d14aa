"""Theoretical and measured peak of each roofline ceiling, and their difference (loss)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.text import printable
from roofline.core.units import format_bytes_per_s, format_flop_per_s, format_percent
from roofline.errors import InputError, argument
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    HardwareProfile,
    MemoryLevel,
    Provenance,
    describe_threads,
)
from roofline.machine.roof import ComputeRoof, LevelRoof, MachineRoof, ceiling_text, line_name

_NOTHING_LOST = 0.001  # below the accuracy of any measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One roofline ceiling with its theoretical and its measured peak, in FLOP/s or byte/s.

    ``subject`` is a data type or a memory level; ``how`` derives the theoretical peak. Either peak
    may be None (unknown), never both.
    """

    what: Literal["compute", "memory"]
    subject: str
    label: str
    theoretical_per_s: float | None
    measured_per_s: float | None
    how: str = ""

    @property
    def loss(self) -> float | None:
        """Fraction of the theoretical peak that was not reached; negative if exceeded."""
        if self.theoretical_per_s is None or self.measured_per_s is None:
            return None
        return 1 - self.measured_per_s / self.theoretical_per_s

    @property
    def per_s(self) -> float:
        """The plotted rate: measured peak, else theoretical."""
        return self.measured_per_s or self.theoretical_per_s or 0.0

    def text(self, per_s: float | None) -> str:
        return format_flop_per_s(per_s) if self.what == "compute" else format_bytes_per_s(per_s)


def layers_of(
    roof: MachineRoof, units: Sequence[ComputeRoof], paper: HardwareProfile | None = None
) -> tuple[Layer, ...]:
    """Return both peaks of `units`, then of the memory levels, nearest first.

    ``paper`` is another profile of this machine with the theoretical peaks (None: its own). Raise
    InputError if it has none for these ceilings, or if nothing was measured.
    """
    lines = (*units, *roof.levels)
    own = [_own(roof, line) for line in lines]
    if paper is None:
        return tuple(own)
    name = roof.profile.name
    if paper.device != roof.profile.device:
        raise InputError(
            f"paper '{paper.name}' is a {paper.device} device, but '{name}' is a"
            f" {roof.profile.device} device; name a profile of the same machine"
        )
    found: list[Layer] = []
    for layer, line in zip(own, lines, strict=True):
        theory = _theory_of(paper, roof.threads, line)
        per_s, how = theory or (None, "")
        # A ceiling without a measurement keeps its own theoretical peak.
        if theory is None and layer.measured_per_s is None:
            per_s = layer.theoretical_per_s
        found.append(replace(layer, theoretical_per_s=per_s, how=how))
    if not any(each.how for each in found):
        threads = describe_threads(roof.profile, roof.threads)
        raise InputError(
            f"paper '{paper.name}' has no theoretical peaks for '{name}' ({threads};"
            f" {', '.join(each.subject for each in found)}); name a profile from a data sheet of"
            " the same machine"
        )
    if all(each.measured_per_s is None for each in found):
        raise InputError(
            f"no measured peaks in '{name}' to compare with paper '{paper.name}'; leave"
            f" {argument('paper')} out, or name a measured profile (`roofline measure` makes one)"
        )
    return tuple(found)


_Figure = ComputeCeiling | Bandwidth
_Line = ComputeRoof | LevelRoof


def _own(roof: MachineRoof, line: _Line) -> Layer:
    """Return a ceiling with its own figures; theory only from the same number of threads."""
    is_unit = isinstance(line, ComputeRoof)
    same: Sequence[_Figure] = (
        _of_unit(roof.profile, line) if is_unit else _of_kernel(line.level, line.kernel)
    )
    exact = next((each for each in same if each.threads == roof.threads), None)
    source = (exact or same[0]).provenance
    is_measured = source.source == "measured"
    theory = exact.theoretical if exact and is_measured else None
    how = source if not is_measured else theory.provenance if theory else None
    return Layer(
        what="compute" if is_unit else "memory",
        subject=line_name(line.subject),
        label=line_name(ceiling_text(line.label)),
        theoretical_per_s=line.per_s if not is_measured else theory.per_s if theory else None,
        measured_per_s=line.per_s if is_measured else None,
        how=_how(how) if how else "",
    )


def _how(source: Provenance) -> str:
    return printable(source.note or source.reference)


def _of_unit(
    profile: HardwareProfile, unit: ComputeRoof, threads: int | None = None
) -> list[ComputeCeiling]:
    return [
        each
        for each in profile.compute
        if each.kind == "hardware"
        and (each.dtype, each.unit, each.kernel) == (unit.dtype, unit.unit, unit.kernel)
        and threads in (None, each.threads)
    ]


def _of_kernel(level: MemoryLevel, kernel: str) -> list[Bandwidth]:
    return [each for each in level.bandwidth if each.kind == "hardware" and each.kernel == kernel]


def _theory_of(paper: HardwareProfile, threads: int, line: _Line) -> tuple[float, str] | None:
    """Return the theoretical peak in `paper`.

    For a unit that of its kernel, else the highest of its type; for a level that of the same or of
    an unspecified kernel.
    """
    if isinstance(line, ComputeRoof):
        same = _of_unit(paper, line, threads)
        if not same and threads <= paper.threads:
            best = MachineRoof(paper, threads).mac_ceilings.get(line.dtype)
            same = _of_unit(paper, best, threads) if best else []
        return _theoretical(same)
    for level in paper.memory:
        if level.name != line.level.name:
            continue
        kernels = [line.kernel, "unspecified"]
        if line.kernel == "unspecified":
            kernels = list(dict.fromkeys(each.kernel for each in level.bandwidth))
        for kernel in kernels:
            same = [each for each in _of_kernel(level, kernel) if each.threads == threads]
            if found := _theoretical(same):
                return found
    return None


def _theoretical(figures: Iterable[_Figure]) -> tuple[float, str] | None:
    """Return a theoretical peak and its derivation; None if measured or missing."""
    for each in figures:
        if each.theoretical is not None:
            return each.theoretical.per_s, _how(each.theoretical.provenance)
        if each.provenance.source != "measured":
            is_unit = isinstance(each, ComputeCeiling)
            peak = each.peak_flop_per_s if is_unit else each.peak_bytes_per_s
            return peak, _how(each.provenance)
    return None


def format_loss(loss: float) -> str:
    """Return a loss with its sign: ``"-37.9 %"``, ``"no loss"``, ``"+2.1 %, above theory"``."""
    if abs(loss) < _NOTHING_LOST:
        return "no loss"
    percent = format_percent(abs(loss))
    return f"-{percent}" if loss > 0 else f"+{percent}, above theory"


def loss_notes(layers: Sequence[Layer]) -> Iterable[str]:
    """Return a line for each loss; unknown losses are named, never shown as 0."""
    for each in layers:
        if each.loss is not None:
            theory, measured = each.text(each.theoretical_per_s), each.text(each.measured_per_s)
            how = f" ({each.how})" if each.how else ""
            yield (
                f"{each.label}: theoretical {theory}, measured {measured}:"
                f" {format_loss(each.loss)}{how}"
            )
    unknown = [
        f"{each.label} (measured {each.text(each.measured_per_s)})"
        for each in layers
        if each.theoretical_per_s is None
    ]
    if unknown:
        yield f"Theoretical peak unknown: {', '.join(unknown)}"
    unmeasured = [each.label for each in layers if each.measured_per_s is None]
    if unmeasured:
        yield f"Not measured, hardware loss unknown: {', '.join(unmeasured)}"
