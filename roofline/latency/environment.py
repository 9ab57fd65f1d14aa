"""Where and with what something was measured: elsewhere, it says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.latency.samples import FACTS_VERSION
from roofline.machine.hardware import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What samples depend on and do not say themselves.

    ``torch`` is its version with its build (``"2.13.0+cpu"``), ``facts_version`` says what the
    numbers of their facts mean. Of the ``host``, its fingerprint counts.
    """

    host: Host
    torch: str
    facts_version: int = FACTS_VERSION

    @classmethod
    def of(cls, host: Host, torch: str) -> Environment:
        """The environment of what is measured now on `host` with that version of torch."""
        return cls(host=host, torch=torch)

    def difference(self, other: Environment) -> str:
        """What makes samples of the one useless in the other, in words; ``""`` if nothing does."""
        parts = [self.host.difference(other.host)]
        if self.torch != other.torch:
            parts.append(f"torch {self.torch} became {other.torch}")
        if self.facts_version != other.facts_version:
            parts.append(
                "what is told of an operator changed"
                f" (version {self.facts_version} became {other.facts_version})"
            )
        return "; ".join(part for part in parts if part)
