"""What a measurement noticed about itself, in words, for the profile's conditions."""

from __future__ import annotations

from roofline.foundation.units import format_capacity
from roofline.machine.measuring.ceilings import UNSTEADY, Found, percent
from roofline.machine.measuring.estimation import BUSY

_NOTABLE = 0.01
"""Fraction of all bursts from which a disturbance is worth a line; each ceiling notes its own."""


def kernel_conditions(found: Found) -> list[str]:
    """What the bursts say about how undisturbed they were; empty: nothing to say."""
    rates = [rate for each in found for rate in (each.rate, each.other) if rate is not None]
    bursts = sum(rate.bursts for rate in rates)
    disturbed = sum(rate.disturbed for rate in rates)
    hopeless = [each.trial.label for each in found if each.rate.only_disturbed]
    page_faults = sum(each.trial.page_faults for each in found)
    conditions: list[str] = []
    if disturbed > _NOTABLE * bursts:
        conditions.append(
            f"contention: in {disturbed} of {bursts} bursts a thread had its CPU for less than"
            f" {percent(BUSY)} of the time; they are left out"
        )
    if hopeless:
        conditions.append(
            f"too low, because every burst was disturbed: {', '.join(hopeless)};"
            " stop what else runs and measure again"
        )
    unsteady = dict.fromkeys(each.trial.place for each in found if each.rate.spread > UNSTEADY)
    if unsteady:
        conditions.append(
            f"unsteady: bursts of {', '.join(unsteady)} differ by more than {percent(UNSTEADY)};"
            " the host has faster and slower phases, and another measurement may meet others"
        )
    if page_faults > _NOTABLE * bursts:
        conditions.append(f"page faults: {page_faults} happened inside timed calls")
    return conditions


def page_conditions(wanted_bytes: int, huge_bytes: int | None) -> list[str]:
    """That the buffers are not in huge pages; empty if most are, or it is not known."""
    if huge_bytes is None or huge_bytes >= wanted_bytes / 2:
        return []
    return [
        f"small pages: {format_capacity(huge_bytes)} of {format_capacity(wanted_bytes)} are in huge"
        " pages; scattered small ones can lower the bandwidth of L2 and beyond"
    ]
