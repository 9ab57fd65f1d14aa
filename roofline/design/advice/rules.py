"""The rules that look at single operators: a row more is a rule more (docs/advice.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roofline.analysis import Analysis, Finding
from roofline.design.advice.branches import fragmented_branches
from roofline.design.advice.channels import channel_padding, unusual_kernels
from roofline.design.advice.copies import (
    needless_copies,
    rearranging_copies,
    types_back_and_forth,
)
from roofline.design.advice.depthwise import depthwise_below_ridge, standard_instead
from roofline.design.advice.dispatch import ruled_by_dispatch
from roofline.design.advice.normalizations import foldable_norms, norms_behind_activations
from roofline.design.advice.pooling import pooling_of_contiguous_images
from roofline.design.advice.proposals import Proposal
from roofline.design.advice.subject import Subject
from roofline.design.advice.what_if import OnMachine
from roofline.latency.predicted import Predicts

Rule = Callable[[Subject], list[Proposal]]

RULES: Sequence[Rule] = (
    channel_padding,
    unusual_kernels,
    foldable_norms,
    norms_behind_activations,
    depthwise_below_ridge,
    standard_instead,
    pooling_of_contiguous_images,
    ruled_by_dispatch,
    needless_copies,
    rearranging_copies,
    types_back_and_forth,
    fragmented_branches,
)


def proposals_of(analysis: Analysis, predictor: Predicts | None = None) -> tuple[Proposal, ...]:
    """What the rules find in an analysis, that which saves most first.

    Args:
        analysis: of a model on a machine.
        predictor: what was learned on that machine; None: alternatives have bounds only.
    """
    subject = Subject(analysis, OnMachine(analysis, predictor))
    found = [each for rule in RULES for each in rule(subject)]
    return tuple(sorted(found, key=lambda each: -(each.finding.saving_s or 0.0)))


def findings_of(analysis: Analysis, predictor: Predicts | None = None) -> tuple[Finding, ...]:
    """The findings of `proposals_of`."""
    return tuple(each.finding for each in proposals_of(analysis, predictor))
