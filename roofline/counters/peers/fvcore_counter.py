"""fvcore's counter, which traces the module."""

from __future__ import annotations

from typing import Any

from roofline.counters.conventions import fvcore as convention
from roofline.counters.peers.subject import Subject
from roofline.counters.rules import Reported


def count(subject: Subject) -> tuple[Reported, ...]:
    """What fvcore counts of a subject."""
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(subject.model, subject.inputs)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.tracer_warnings("none")
    counts = {label: whole(count) for label, count in analysis.by_operator().items()}
    labels = {
        label for rule in convention.FLOPS.rules if rule.portion == "rest" for label in rule.labels
    }
    return (
        Reported(
            number=whole(analysis.total()),
            product={label: count for label, count in counts.items() if label not in labels},
            rest={label: count for label, count in counts.items() if label in labels},
            no_rule_for={
                label.removeprefix("aten::"): calls
                for label, calls in analysis.unsupported_ops().items()
            },
        ),
    )


def whole(count: Any) -> int:
    """A count that may be a float (of numpy) as the whole number it is."""
    return round(float(count)) if not isinstance(count, int) else count
