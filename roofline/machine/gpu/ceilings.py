"""From the rates of kernels and products to compute ceilings.

A hardware ceiling must be one that nothing beats. So where torch's product is faster than our own
kernel of the same unit, it is the ceiling, named ``gemm``; its provenance says what ours reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from roofline.foundation.units import format_flop_per_s
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.conditions import doubt_of
from roofline.machine.gpu.datasheet import DataSheet, hardware_unit
from roofline.machine.gpu.device import DeviceFacts
from roofline.machine.gpu.matrix_shapes import MMA
from roofline.machine.gpu.rated import Rated, bursts_of, measured, method_of, reservations_of
from roofline.machine.gpu.trials import SizedProduct
from roofline.machine.hardware import ComputeCeiling


def compute_ceilings(found: Sequence[Rated], sheet: DataSheet) -> list[ComputeCeiling]:
    """The hardware's ceilings, then the library's."""
    capability = sheet.facts.capability
    products: dict[tuple[str, str], Rated] = {}
    for each in found:
        if isinstance(each.subject, SizedProduct):
            product = each.subject.product
            products[str(product.dtype), hardware_unit(product, capability)] = each
    ceilings: list[ComputeCeiling] = []
    covered: set[tuple[str, str]] = set()
    for each in found:
        kernel = each.subject
        if not isinstance(kernel, ArithmeticKernel):
            continue
        rival = None
        if kernel.name in (MMA, "fma"):
            key = str(kernel.dtype), kernel.unit
            covered.add(key)
            rival = products.get(key)
        ceilings.append(_hardware(each, kernel, rival, sheet))
    for key, each in products.items():
        if key not in covered:
            ceilings.append(_uncontested(each, key[1], sheet))
    ceilings += [_library(each, sheet) for each in products.values()]
    return ceilings


def _hardware(
    own: Rated, kernel: ArithmeticKernel, rival: Rated | None, sheet: DataSheet
) -> ComputeCeiling:
    best, name, note = own, kernel.name, kernel.note
    if rival is not None and rival.rate.peak > own.rate.peak:
        best, name = rival, "gemm"
        note = (
            f"torch's product of {_size(rival)}, the fastest known here; our own kernel"
            f" ({kernel.instruction}) reached {format_flop_per_s(own.rate.peak)}"
        )
    theoretical = sheet.compute(str(kernel.dtype), kernel.unit, kernel.name)
    return ComputeCeiling(
        kind="hardware",
        kernel=name,
        dtype=kernel.dtype,
        unit=kernel.unit,
        threads=1,
        peak_flop_per_s=best.rate.peak,
        sustained_flop_per_s=best.rate.sustained,
        spread=best.rate.spread,
        theoretical=theoretical,
        doubt=reservations_of(best, theoretical),
        provenance=measured(f"{method_of(best)}; {note}", bursts_of(best)),
    )


def _uncontested(each: Rated, unit: str, sheet: DataSheet) -> ComputeCeiling:
    """A unit for which there is no kernel of our own: torch's product, with a doubt."""
    assert isinstance(each.subject, SizedProduct)
    product = each.subject.product
    theoretical = sheet.product(product)
    reservations = (
        f"no kernel of our own drives this unit on {sheet.facts.name}: other programs may be faster"
        " than torch's product",
        reservations_of(each, theoretical),
    )
    return ComputeCeiling(
        kind="hardware",
        kernel="gemm",
        dtype=product.dtype,
        unit=unit,
        threads=1,
        peak_flop_per_s=each.rate.peak,
        sustained_flop_per_s=each.rate.sustained,
        spread=each.rate.spread,
        theoretical=theoretical,
        doubt="; ".join(filter(None, reservations)),
        provenance=measured(
            f"{method_of(each)}; torch's product of {_size(each)}", bursts_of(each)
        ),
    )


def _library(each: Rated, sheet: DataSheet) -> ComputeCeiling:
    assert isinstance(each.subject, SizedProduct)
    product = each.subject.product
    return ComputeCeiling(
        kind="library",
        kernel="gemm",
        dtype=product.dtype,
        unit=product.unit,
        threads=1,
        peak_flop_per_s=each.rate.peak,
        sustained_flop_per_s=each.rate.sustained,
        spread=each.rate.spread,
        theoretical=sheet.product(product),
        doubt=doubt_of(each.trial),
        provenance=measured(
            f"{method_of(each)}; {sheet.facts.library}", f"{_size(each)}; {bursts_of(each)}"
        ),
    )


def _size(each: Rated) -> str:
    assert isinstance(each.subject, SizedProduct)
    n = each.subject.size
    return f"{n}x{n}x{n}"


def describe(facts: DeviceFacts) -> str:
    """A device in a line: name, size, what runs it."""
    major, minor = facts.capability
    return (
        f"{facts.name}, {facts.multiprocessors} SMs, {facts.memory_bytes / (1 << 30):.0f} GiB,"
        f" compute capability {major}.{minor}, driver {facts.driver}"
    )
