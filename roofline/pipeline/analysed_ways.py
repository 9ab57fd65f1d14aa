"""Every model in every way that is compared, on every machine; each pass is captured once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roofline.analysis import Analysis
from roofline.foundation.progress import Progress
from roofline.pipeline.analyses import (
    CapturedPass,
    KnownMachine,
    captured_pass,
    known_machines,
    placed_on_each,
)
from roofline.pipeline.machines import Hardware
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.variants import Variant
from roofline.pipeline.workloads import check_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWays:
    """Models, the ways that they are run in, and what holds for all of them.

    ``models`` are what `analyze` takes, or analyses; ``options`` are how they are run, but for what
    a way changes.

    Raises:
        InputError: a way that there is not; HardwareError: a machine without so many threads.
    """

    models: Sequence[Any]
    ways: Sequence[Variant]
    machines: Sequence[Hardware | None]
    options: RunOptions
    inputs: Any
    seq: int | None
    cold: bool
    progress: Progress | None
    _known: dict[int | None, tuple[KnownMachine, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Whatever is wrong with any of them is found before the first is analysed.
        for way in self.ways:
            self._options(way).run()
            check_counts(batch=way.batch, seq=self.seq, threads=way.threads, inputs=self.inputs)
        teams = {
            way.threads: None
            for way in self.ways
            if not isinstance(self.models[way.model], Analysis)
        }
        known = {threads: known_machines(self.machines, threads) for threads in teams}
        object.__setattr__(self, "_known", known)

    def analyses(self) -> list[list[Analysis]]:
        """The analysis of each way on each machine; saved ones are what they are."""
        captured: dict[object, CapturedPass] = {}
        return [self._analysed(way, captured) for way in self.ways]

    def candidates(
        self, names: Sequence[str], analyses: Sequence[Sequence[Analysis]]
    ) -> list[Candidate]:
        """The ways as what is measured; their threads are those that were analysed."""
        return [
            Candidate(
                name=name,
                model=self.models[way.model],
                inputs=self.inputs,
                batch=way.batch,
                seq=self.seq,
                run=self._options(way).run(),
                threads=found[0].threads,
            )
            for way, name, found in zip(self.ways, names, analyses, strict=True)
        ]

    def _options(self, way: Variant) -> RunOptions:
        return replace(self.options, dtype=way.dtype, channels_last=way.channels_last)

    def _analysed(self, way: Variant, captured: dict[object, CapturedPass]) -> list[Analysis]:
        model = self.models[way.model]
        if isinstance(model, Analysis):
            return [model]
        options = self._options(way)

        def passed(device: str) -> CapturedPass:
            run = options.run(device)
            # Threads change where a pass is placed, not what it is.
            key = (way.model, way.batch, run)
            if key not in captured:
                captured[key] = captured_pass(
                    model, self.inputs, options, run=run, batch=way.batch, seq=self.seq
                )
            return captured[key]

        return placed_on_each(
            passed,
            self._known[way.threads],
            threads=way.threads,
            cold=self.cold,
            progress=self.progress,
        )
