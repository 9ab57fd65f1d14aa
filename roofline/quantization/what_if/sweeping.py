"""One what-if after the other: the policy that was asked for, then one for each width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofline.analysis import Analysis
from roofline.latency.predicted import Predicts
from roofline.quantization.policy import Policy, check_bits
from roofline.quantization.result import WhatIf
from roofline.quantization.what_if.asking import what_if


def policies_of(policy: Policy, widths: Sequence[int]) -> tuple[Policy, ...]:
    """The policy, then for each width one with weights and activations of so many bits.

    Everything else stays as it is asked; a width that is named twice is taken once.

    Args:
        policy: what is asked for.
        widths: bits from 1 to 16, or 32.

    Raises:
        InputError: other widths.
    """
    for width in widths:
        check_bits("sweep", width)
    others = (replace(policy, weights=width, activations=width) for width in dict.fromkeys(widths))
    return (policy, *others)


def what_ifs(
    analysis: Analysis,
    policy: Policy,
    widths: Sequence[int] = (),
    predictor: Predicts | None = None,
) -> tuple[WhatIf, ...]:
    """The what-if of a policy, then those of a sweep over widths.

    Args:
        analysis: of a forward pass of the model as it is.
        policy: what is asked for.
        widths: those of the sweep, as in `policies_of`.
        predictor: what was learned on that machine; None: nothing.

    Raises:
        InputError: as `what_if`, or widths that nothing can have.
    """
    return tuple(what_if(analysis, each, predictor) for each in policies_of(policy, widths))
