"""What could be changed of a model, found by rules that each have numbers to show for it.

The rules are in `rules`: they take the formulas and numpy, which who shows advice does not need.
"""

from __future__ import annotations

from roofline.design.advice.result import Advice as Advice
from roofline.design.advice.result import read_advice as read_advice
