"""Findings that tests of advice share; all numbers are made up."""

from __future__ import annotations

from dataclasses import replace

from roofline.analysis import Analysis, Finding
from roofline.design.advice.result import Advice
from tests.analysis.examples import resnet

FOLD = Finding(
    rule="foldable batch norm",
    operators=(1, 5),
    evidence="2 batch norms directly behind a convolution",
    change="fold them",
    basis="prediction",
    predicted_before_s=1.2e-3,
    predicted_after_s=0.0,
    saving_low_s=1.0e-3,
    saving_high_s=1.2e-3,
)
MOST = replace(FOLD, rule="layout copy", basis="at most", saving_low_s=None, saving_high_s=None)
TRIED = replace(
    FOLD,
    measured_before_s=9e-3,
    measured_after_s=8e-3,
    measured_low_s=0.5e-3,
    measured_high_s=1.5e-3,
    verdict="confirmed",
)
LOST = replace(
    TRIED,
    rule="channels-last layout",
    operators=(),
    measured_after_s=10e-3,
    measured_low_s=-2e-3,
    measured_high_s=0.1e-3,
    verdict="not confirmed",
)


def add_findings(*findings: Finding, analysis: Analysis | None = None) -> Analysis:
    """An analysis, `resnet` unless another is given, in which these were found."""
    return replace(analysis or resnet(), findings=findings)


def advice(*findings: Finding, tried: tuple[str, ...] = ()) -> Advice:
    """Advice on `resnet`."""
    return Advice(analysis=add_findings(*findings), tried=tried)
