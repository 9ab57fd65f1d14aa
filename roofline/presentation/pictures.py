"""How the picture of a result is drawn, where more than one way is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis
from roofline.errors import InputError
from roofline.machine.hardware import HardwareProfile

if TYPE_CHECKING:
    from roofline.design.machine_comparison import MachineComparison

_PICTURES = (".png", ".svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """How a picture is drawn: with `layers`, on paper and measured; `paper` has the former.

    Raises:
        InputError: a paper without layers.
    """

    layers: bool = False
    paper: HardwareProfile | None = None

    def __post_init__(self) -> None:
        if self.paper is not None and not self.layers:
            raise InputError(f"--paper {self.paper.name} has no effect without --layers; add it")

    def check(self, paths: Sequence[Path], stdout_format: str | None) -> None:
        """Refuses layers where no picture is made.

        Raises:
            InputError: none of `paths` is a picture, nor is what goes to stdout.
        """
        drawn = stdout_format == "svg" or any(path.suffix.lower() in _PICTURES for path in paths)
        if self.layers and not drawn:
            raise InputError(
                "--layers has no effect without a picture; add -o FILE.png or -o FILE.svg"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Options of `Result.plot`."""
        return {"layers": True, "paper": self.paper} if self.layers else {}

    def figure(self, result: Analysis | MachineComparison) -> Any:
        """The picture of a result as a matplotlib Figure.

        Raises:
            InputError: layers of several machines, or as `roofline.plot`.
        """
        if not self.layers:
            return result.plot()
        if not isinstance(result, Analysis):
            raise InputError(
                "--layers draws one machine on paper and measured, and this result has"
                f" {len(result.analyses)}; give one --hardware"
            )
        return result.plot(layers=True, paper=self.paper)
