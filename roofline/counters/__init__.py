"""One model, several counters: what each of them says, and why it differs from what we count."""

from __future__ import annotations

from roofline.counters.result import CountedBy as CountedBy
from roofline.counters.result import Crosscheck as Crosscheck
from roofline.counters.result import Difference as Difference
