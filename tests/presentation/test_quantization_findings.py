"""What the tables on a proposal say of modules, which a policy names."""

from __future__ import annotations

from dataclasses import replace

from roofline.presentation.reports.quantization_findings import proposal_grid
from roofline.quantization.policy import LayerBits, Policy
from tests.presentation.quantizations import layer, sensitive


def test_a_module_that_runs_twice_has_its_own_bits_in_a_proposal_and_is_named_once() -> None:
    found = sensitive()
    assert found.sensitivity is not None and found.sensitivity.proposal is not None
    own = LayerBits(weights=3, activations=5)
    proposal = replace(found.sensitivity.proposal, policy=Policy(layers={"again": own}))
    layers = (layer("again", own), layer("again#2", own), layer("other"))
    grid = proposal_grid(proposal, layers)
    assert grid.rows == (("w2a2", "1", "other"), ("w3a5", "1", "again"))
