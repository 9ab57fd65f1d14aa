"""What training on several ranks comes to: the value that `roofline.scale` gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis, fits
from roofline.foundation.rows import json_text
from roofline.scaling.buckets import Bucket
from roofline.scaling.links import Wire
from roofline.scaling.memory import RankMemory
from roofline.scaling.overlap import Timeline
from roofline.scaling.settings import Settings
from roofline.workload.gradients import Gradient

if TYPE_CHECKING:
    import pandas

TimeKind = Literal["measured", "bound"]
"""What the times of operators are: measured if every one of them is, else bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """A step on so many ranks; times in seconds, None where operators have none.

    ``flop`` is what a rank computes (None: some of it is not known); ``link_byte`` what the busiest
    rank sends; ``sending_s`` what all buckets take on their way, ``least_sending_s`` what no
    algorithm can beat. ``step_s`` is a step with sending beside the backward pass, from
    ``step_low_s`` (sending takes nothing from computing) to ``step_high_s`` (nothing is computed
    meanwhile). Efficiencies are time of a step alone over time of one among others: ``efficiency``
    of ``step_s``, ``efficiency_most`` what is left whatever the buckets and the algorithm are. They
    are of ranks that compute as fast as the times of operators say: where those are bounds, a
    slower rank hides more and keeps more, but no rank has more samples a second. Above 1 they are
    only where states are shared out: a rank alone updates all of them.
    """

    ranks: int
    flop: float | None
    link_byte: float
    sending_s: float
    least_sending_s: float
    step_s: float | None
    step_low_s: float | None
    step_high_s: float | None
    efficiency: float | None
    efficiency_most: float | None
    timeline: Timeline | None
    memory: RankMemory

    @property
    def speedup(self) -> float | None:
        """How many times as much data a second as on one rank."""
        return None if self.efficiency is None else self.ranks * self.efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChoice:
    """What one rank would keep in memory if something were done otherwise."""

    what: str
    memory: RankMemory


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scaling:
    """A training step of a model, with copies of it on several ranks.

    ``analysis`` is of the step on one rank, ``time_kind`` which of its times are used; ``wire`` is
    the link (None: there is one rank alone, and no link was named or known). ``buckets``
    are in the order in which they are sent, ``gradients`` in that in which they are done;
    ``alone_s`` is a step of one rank that sends nothing (of all its passes), ``slowdown`` how many
    times as long computing takes beside the other ranks (None: taken to be as long). ``points`` are
    for rising numbers of ranks, that which was asked for among them. ``batch`` is the first size of
    the first input, of one pass on one rank; None: it has none.
    """

    model: str
    analysis: Analysis
    settings: Settings
    wire: Wire | None
    time_kind: TimeKind
    alone_s: float | None
    slowdown: float | None
    gradients: tuple[Gradient, ...]
    buckets: tuple[Bucket, ...]
    broadcast_byte: int
    points: tuple[ScalePoint, ...]
    memory_choices: tuple[MemoryChoice, ...] = ()
    batch: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Scaling: {self.summary}>"

    @property
    def point(self) -> ScalePoint:
        """The one that was asked for."""
        return next(each for each in self.points if each.ranks == self.settings.ranks)

    @property
    def gradient_byte(self) -> int:
        """Bytes of all gradients, which every rank has and all add up."""
        return sum(each.byte for each in self.buckets)

    @property
    def link_words(self) -> str:
        """The link, with where its figures are from; ``""``: there is none."""
        return self.wire.told if self.wire else ""

    @property
    def memory_capacity_byte(self) -> int | None:
        """What the memory of a rank's machine holds in bytes; None: not known."""
        return self.analysis.hardware.memory_capacity_byte

    def fits(self, memory: RankMemory) -> bool | None:
        """Whether a rank that keeps this fits into the memory of its machine; None: not known."""
        return fits(memory.byte, self.memory_capacity_byte)

    def samples_per_s(self, point: ScalePoint) -> float | None:
        """Samples a second on all ranks together; None: no batch, or no time."""
        if self.batch is None or not point.step_s:
            return None
        return self.batch * self.settings.accumulate * point.ranks / point.step_s

    @property
    def summary(self) -> str:
        """The verdict, in a sentence."""
        from roofline.scaling.verdict import verdict

        return verdict(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a number of ranks; what is unknown is missing, never 0."""
        from roofline.scaling.data import points_frame

        return points_frame(self)

    def to_json(self) -> str:
        """All of it as JSON text, the analysis whole."""
        from roofline.scaling.data import data_of

        return json_text(data_of(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.scaling_output import write_scaling

        write_scaling(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """The link as one more roof, and efficiency over ranks, in a matplotlib Figure.

        The options are those of `scaling_figure.plot_scaling`.
        """
        from roofline.presentation.scaling_figure import plot_scaling

        return plot_scaling(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.scaling_report import scaling_html

        return scaling_html(self)
