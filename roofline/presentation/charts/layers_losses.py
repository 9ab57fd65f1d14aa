"""What a machine could do on paper beside what it was measured to do: a pair for every line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.analysis.roof import line_name
from roofline.errors import InputError
from roofline.foundation.dtypes import DType
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte_per_s, format_flop_per_s, format_percent
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    HardwareProfile,
    MemoryLevel,
    describe_threads,
)
from roofline.placement import ComputeRoof, LevelRoof, Roof

_NOTHING_LOST = 0.001
"""A smaller loss is none: no ceiling is measured as well as that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One line of a roof in its two layers, in FLOP/s or byte/s.

    ``subject`` is a data type or a memory level. ``paper_per_s`` is what documents or arithmetic
    give, and ``how`` says which; ``measured_per_s`` is the measured peak. Either is None where it
    is not known, never both.
    """

    what: Literal["compute", "memory"]
    subject: str
    label: str
    paper_per_s: float | None
    measured_per_s: float | None
    how: str = ""

    @property
    def loss(self) -> float | None:
        """The part of the paper rate that the peak lacks, negative if above; None: not known."""
        if self.paper_per_s is None or self.measured_per_s is None:
            return None
        return 1 - self.measured_per_s / self.paper_per_s

    @property
    def per_s(self) -> float:
        """The rate of its line in the roof: measured, else on paper."""
        return self.measured_per_s or self.paper_per_s or 0.0


def layers_of(
    roof: Roof, units: Sequence[ComputeRoof], paper: HardwareProfile | None = None
) -> tuple[Layer, ...]:
    """The lines of `roof` in their two layers: `units`, then the memory levels, nearest first.

    Args:
        roof: the machine and how many threads of it compute.
        units: which of its compute ceilings.
        paper: another profile of this machine, whose figures are those on paper; None: what the
            machine's own profile says.

    Raises:
        InputError: `paper` is of another sort of device, or has no figure on paper for these lines,
            or none of them was measured.
    """
    if paper is None:
        return (
            *(_own_compute(roof, unit) for unit in units),
            *(_own_memory(roof, level) for level in roof.levels),
        )
    _check_paper(roof, paper)
    found = (
        *(_with_paper(_own_compute(roof, unit), _compute_of(paper, roof, unit)) for unit in units),
        *(
            _with_paper(_own_memory(roof, level), _memory_of(paper, roof, level))
            for level in roof.levels
        ),
    )
    if not any(each.how for each in found):
        threads = describe_threads(roof.profile, roof.threads)
        raise InputError(
            f"paper '{paper.name}' has no figures on paper for what '{roof.profile.name}' is drawn"
            f" with ({threads}; {', '.join(each.subject for each in found)}); name a profile from a"
            " data sheet of the same machine"
        )
    if all(each.measured_per_s is None for each in found):
        raise InputError(
            f"nothing of '{roof.profile.name}' was measured that paper '{paper.name}' could be held"
            " against; leave it out, or name a measured profile (`roofline measure` makes one)"
        )
    return found


def loss_words(loss: float) -> str:
    """A loss with its sign: ``"-37.9 %"``, ``"as on paper"``, ``"+2.1 %, above paper"``."""
    if abs(loss) < _NOTHING_LOST:
        return "as on paper"
    percent = format_percent(abs(loss))
    return f"-{percent}" if loss > 0 else f"+{percent}, above paper"


def rate_words(layer: Layer, per_s: float | None) -> str:
    """A rate of the layer in its unit."""
    return format_flop_per_s(per_s) if layer.what == "compute" else format_byte_per_s(per_s)


def layer_notes(layers: Sequence[Layer]) -> tuple[str, ...]:
    """What is lost from paper to measurement, a line each; and what is not known, never as 0."""
    lines = [
        f"{each.label}: {rate_words(each, each.paper_per_s)} on paper →"
        f" {rate_words(each, each.measured_per_s)} measured: {loss_words(each.loss)}"
        f"{f' ({each.how})' if each.how else ''}"
        for each in layers
        if each.loss is not None
    ]
    if unknown := [
        f"{each.label} ({rate_words(each, each.measured_per_s)} measured)"
        for each in layers
        if each.paper_per_s is None
    ]:
        them = "it" if len(unknown) == 1 else "them"
        lines.append(f"Not known on paper: {', '.join(unknown)}; no paper line is drawn for {them}")
    if unmeasured := [each.label for each in layers if each.measured_per_s is None]:
        lines.append(
            f"On paper only, not measured: {', '.join(unmeasured)}; what the hardware loses there"
            " is not known"
        )
    return tuple(lines)


def _own_compute(roof: Roof, unit: ComputeRoof) -> Layer:
    same = [
        each
        for each in roof.profile.compute
        if each.kind == "hardware"
        and (each.dtype, each.unit, each.kernel) == (unit.dtype, unit.unit, unit.kernel)
    ]
    return _own("compute", str(unit.dtype), unit.label, unit.flop_per_s, same, roof.threads)


def _own_memory(roof: Roof, level: LevelRoof) -> Layer:
    same = _of_kernel(level.level, level.kernel)
    return _own("memory", level.level.name, level.label, level.byte_per_s, same, roof.threads)


def _own(
    what: Literal["compute", "memory"],
    subject: str,
    label: str,
    per_s: float,
    figures: Iterable[ComputeCeiling | Bandwidth],
    threads: int,
) -> Layer:
    """A line by its own figures; those of another number of threads say nothing on paper."""
    figures = tuple(figures)
    exact = next((each for each in figures if each.threads == threads), None)
    source = exact or figures[0]
    label, subject = line_name(label), line_name(subject)
    if source.provenance.source != "measured":
        return Layer(
            what=what,
            subject=subject,
            label=label,
            paper_per_s=per_s,
            measured_per_s=None,
            how=_how(source.provenance.note, source.provenance.reference),
        )
    theory = exact.theoretical if exact else None
    return Layer(
        what=what,
        subject=subject,
        label=label,
        paper_per_s=theory.per_s if theory else None,
        measured_per_s=per_s,
        how=_how(theory.provenance.note, theory.provenance.reference) if theory else "",
    )


def _how(note: str, reference: str) -> str:
    return printable(note or reference)


def _with_paper(layer: Layer, paper: tuple[float, str] | None) -> Layer:
    """The measured line of `layer`, with the figure of another profile on paper."""
    if paper is None and layer.measured_per_s is None:
        # Its own figure stays what it is: on paper, and not measured.
        return replace(layer, how="")
    per_s, how = paper or (None, "")
    return replace(layer, paper_per_s=per_s, how=how)


def _check_paper(roof: Roof, paper: HardwareProfile) -> None:
    if paper.device != roof.profile.device:
        raise InputError(
            f"paper '{paper.name}' is a {paper.device} device, but '{roof.profile.name}' is a"
            f" {roof.profile.device} device; name a profile of the same machine"
        )


def _compute_of(paper: HardwareProfile, roof: Roof, unit: ComputeRoof) -> tuple[float, str] | None:
    """The paper's figure for products in the type of `unit`: of its kernel, else the highest."""
    figures = [
        each
        for each in paper.compute
        if each.kind == "hardware" and each.dtype == unit.dtype and each.threads == roof.threads
    ]
    same = [each for each in figures if (each.unit, each.kernel) == (unit.unit, unit.kernel)]
    if not same:
        multiplying = _type_ceiling(paper, unit.dtype, roof.threads)
        same = [each for each in figures if multiplying and _is(each, multiplying)]
    return _on_paper(same)


def _type_ceiling(paper: HardwareProfile, of: DType, threads: int) -> ComputeRoof | None:
    if threads > paper.threads:
        return None
    return Roof(paper, threads).of_products.get(of)


def _is(each: ComputeCeiling, unit: ComputeRoof) -> bool:
    return (each.unit, each.kernel) == (unit.unit, unit.kernel)


def _memory_of(paper: HardwareProfile, roof: Roof, level: LevelRoof) -> tuple[float, str] | None:
    """The paper's figure for a level: of the same kernel, or where one of both names none."""
    for other in paper.memory:
        if other.name != level.level.name:
            continue
        kernels = [level.kernel, "unspecified"]
        if level.kernel == "unspecified":
            kernels = list(dict.fromkeys(each.kernel for each in other.bandwidth))
        for kernel in kernels:
            same = _of_kernel(other, kernel)
            found = _on_paper([each for each in same if each.threads == roof.threads])
            if found:
                return found
    return None


def _of_kernel(level: MemoryLevel, kernel: str) -> list[Bandwidth]:
    return [each for each in level.bandwidth if each.kind == "hardware" and each.kernel == kernel]


def _on_paper(figures: Sequence[ComputeCeiling | Bandwidth]) -> tuple[float, str] | None:
    """What a figure is on paper and how that follows; None: it was measured, or there is none."""
    for each in figures:
        if each.theoretical is not None:
            source = each.theoretical.provenance
            return each.theoretical.per_s, _how(source.note, source.reference)
        if each.provenance.source != "measured":
            peak = (
                each.peak_flop_per_s if isinstance(each, ComputeCeiling) else each.peak_byte_per_s
            )
            return peak, _how(each.provenance.note, each.provenance.reference)
    return None
