"""torch's own counter."""

from __future__ import annotations

from roofline.counters.peers.subject import Subject
from roofline.counters.rules import Reported


def count(subject: Subject) -> tuple[Reported, ...]:
    """What torch.utils.flop_counter counts of a subject."""
    from torch.utils.flop_counter import FlopCounterMode

    with subject.mode, FlopCounterMode(display=False) as counter:
        subject.run()
    counts = counter.get_flop_counts().get("Global", {})
    product = {_name(operator): count for operator, count in counts.items()}
    return (Reported(number=counter.get_total_flops(), product=product),)


def _name(operator: object) -> str:
    return str(operator).removeprefix("aten.")
