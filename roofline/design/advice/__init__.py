"""What could be changed of a model, found by rules that each have numbers to show for it."""

from __future__ import annotations

from roofline.design.advice.result import Advice as Advice
from roofline.design.advice.result import read_advice as read_advice
from roofline.design.advice.rules import RULES as RULES
from roofline.design.advice.rules import findings_of as findings_of
from roofline.design.advice.rules import proposals_of as proposals_of
