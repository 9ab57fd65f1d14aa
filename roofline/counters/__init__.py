"""FLOP of one model by other counters, with the reasons for differences."""

from __future__ import annotations

from roofline.counters.result import CountedBy as CountedBy
from roofline.counters.result import Crosscheck as Crosscheck
from roofline.counters.result import Difference as Difference
