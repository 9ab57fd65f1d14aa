"""What a model costs, held against what it cost before: baselines, conditions, and the verdict."""

from __future__ import annotations

from roofline.design.gate.conditions import Condition as Condition
from roofline.design.gate.conditions import parse_conditions as parse_conditions
from roofline.design.gate.cost import Cost as Cost
from roofline.design.gate.cost import Machine as Machine
from roofline.design.gate.cost import Part as Part
from roofline.design.gate.cost import cost_of as cost_of
from roofline.design.gate.cost import read_baseline as read_baseline
from roofline.design.gate.cost import write_baseline as write_baseline
from roofline.design.gate.result import Check as Check
from roofline.design.gate.result import Judgement as Judgement
