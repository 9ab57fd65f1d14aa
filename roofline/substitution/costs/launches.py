"""What calling a kernel costs on a machine, whatever it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofline.foundation.units import format_s
from roofline.machine.hardware import HardwareProfile
from roofline.workload.operators import OperatorRecord

_OF_DEVICES = ("launch", "launch of an empty kernel", "dispatch of add")
_OF_CPUS = ("dispatch of add", "launch", "launch of an empty kernel")
"""What profiles call the seconds of a call that computes next to nothing, the best known first."""

_OF_KINDS = {
    "convolution": "dispatch of convolution",
    "depthwise convolution": "dispatch of convolution",
    "matrix product": "dispatch of linear",
}
"""Kinds of operators that have their own on a CPU, where a call is the library's, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Seconds of a launch by kind of operator; ``usual_s`` of all others, 0 where none is known.

    ``said`` says in words where they come from.
    """

    usual_s: float
    said: str
    by_kind_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, record: OperatorRecord) -> float:
        """The seconds that calling this operator takes."""
        return self.by_kind_s.get(record.type, self.usual_s)


def launches_on(profile: HardwareProfile) -> Launches:
    """What launches cost on a machine, as far as its profile knows: medians."""
    known = {each.name: each.time.median_s for each in profile.overheads if each.threads == 1}
    is_cpu = profile.device == "cpu"
    name = next((each for each in (_OF_CPUS if is_cpu else _OF_DEVICES) if each in known), None)
    if name is None:
        return Launches(
            usual_s=0.0,
            said=f"hardware '{profile.name}' does not know what a launch costs: launches are"
            " counted, and take no time in the costs",
        )
    by_kind = {kind: known[other] for kind, other in _OF_KINDS.items() if is_cpu and other in known}
    used = {
        name: known[name],
        **{each: known[each] for each in _OF_KINDS.values() if is_cpu and each in known},
    }
    words = ", ".join(f"{format_s(time_s, 2)} ({each})" for each, time_s in used.items())
    return Launches(
        usual_s=known[name],
        said=f"every launch costs {words}, as hardware '{profile.name}' has it",
        by_kind_s=by_kind,
    )
