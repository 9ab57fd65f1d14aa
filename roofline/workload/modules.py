"""The modules of a model: what they are called, and how often they ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module of a model.

    ``path`` is its qualified name, the first where it has several, ``""`` for the model itself;
    ``kind`` the name of its class. ``calls`` is how often it ran, also when it ran again for the
    backward pass (0: it was not called, as containers are not). ``parameters`` counts the elements
    of its own, without those of modules in it; what several modules share is the first one's.

    Raises:
        ValueError: a negative number.
    """

    path: str
    kind: str
    calls: int
    parameters: int

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("parameters", self.parameters)):
            if value < 0:
                raise ValueError(f"{name} must be a whole number from 0, got {value}")
