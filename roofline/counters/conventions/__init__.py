"""The conventions of the counters that are known here, one module a counter; read from their code.

They hold for the versions that `docs/crosscheck.md` names. Where a version counts otherwise, its
number no longer follows from them, and the crosscheck says so.
"""

from __future__ import annotations
