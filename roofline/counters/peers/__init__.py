"""The counters themselves, each asked through a module of its own and imported only then."""

from __future__ import annotations
