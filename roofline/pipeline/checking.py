"""Entry point `check`: cost of a model against a baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis
from roofline.core.conditions import Condition, parse_conditions
from roofline.core.progress import Progress
from roofline.design.gate.cost import (
    QUANTITIES,
    Cost,
    check_baseline_target,
    check_repeated,
    cost_of,
    read_baseline,
    write_baseline,
)
from roofline.design.gate.result import Check, check_same_task, time_mismatch
from roofline.errors import InputError, argument
from roofline.machine import catalog
from roofline.machine.catalog import is_about_host
from roofline.machine.hardware import HardwareProfile
from roofline.machine.system.host import package_version
from roofline.pipeline.analyses import ResolvedMachine, place_on, resolve_machines
from roofline.pipeline.runs import capture_pass
from roofline.run import RunKeywords, RunOptions, takes

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model

NO_MACHINE = HardwareProfile(name="no machine", device="cpu", threads=1)
"""Machine without ceilings, for counts only."""


@takes(RunKeywords)
def check(
    model: Model | Analysis | Cost,
    inputs: Any = None,
    *,
    against: str | Path | None = None,
    fail_if: Sequence[str] | str = (),
    update: bool = False,
    progress: Progress | None = None,
    **run: Unpack[RunKeywords],
) -> Check:
    """Compare the cost of a model with a baseline: FLOP, bytes, memory, launches, times.

    Failed conditions raise no error: see `Check.passes` and `Check.raise_if_failed`.

    Args:
        model: as for `analyze`, or an `Analysis` or `Cost`, without options below ``update``.
        against: baseline, or a saved analysis; a missing baseline is written, with its folder, and
            nothing is compared. None: conditions have absolute limits.
        fail_if: conditions, such as ``"flop>+1%"`` (of the baseline), ``"launches>+3"`` and
            ``"predicted_s>5ms"``; on flop, macs, traffic_bytes, parameters, peak_memory_bytes,
            launches, unknown_operators, eager_min_time_s, fused_min_time_s, model_min_time_s and
            predicted_s. None: any rise of FLOP, bytes or minimum time fails.
        update: write the cost to ``against``, a new file or a baseline, without judging
            conditions. Without ``hardware``, times are included if this machine was measured or
            a condition requires them.
        inputs, progress: as for `analyze`.

    Raises:
        InputError: invalid condition, missing or different baseline, a file that is no baseline,
            or an option of a given analysis.
        ModelError, HardwareError: as `analyze`.
    """
    conditions = parse_conditions(fail_if, QUANTITIES)
    baseline = _baseline(against, conditions, update=update)
    if isinstance(model, (Cost, Analysis)):
        now, notes = _known(model, {"inputs": inputs, **run})
    else:
        options = RunOptions.of(inputs, **run)
        options.run()
        now, notes = _counted(model, inputs, options, conditions=conditions, progress=progress)
    file = str(against) if against is not None else ""
    if against is not None and (update or not os.path.lexists(against)):
        write_baseline(now, against, overwrite=True)
        if baseline is not None:
            try:
                check_same_task(baseline, now, file=file)
            except InputError:
                baseline = None
        judged = tuple(each.text for each in conditions if not (update or each.is_relative))
        return Check(
            now=now, baseline=baseline, file=file, conditions=judged, is_new=True, notes=notes
        )
    texts = tuple(each.text for each in conditions)
    if baseline is not None:
        check_same_task(baseline, now, file=file)
        texts = texts or tuple(_no_rise(baseline, now))
    return Check(now=now, baseline=baseline, file=file, conditions=texts, notes=notes)


def _no_rise(baseline: Cost, now: Cost) -> Iterator[str]:
    """Yield the default conditions, on what the baseline has; times under the same ceilings."""
    before, after = baseline.machine, now.machine
    for name in ("flop", "traffic_bytes", "eager_min_time_s"):
        is_comparable = not QUANTITIES[name].is_time or (
            not time_mismatch(baseline, now) and before and after and before.date == after.date
        )
        if is_comparable and getattr(baseline, name) is not None:
            yield f"{name}>+0"


def _known(counted: Cost | Analysis, given: Mapping[str, Any]) -> tuple[Cost, tuple[str, ...]]:
    """Return the cost and notes of a given analysis or cost; options raise an error."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise InputError(f"{name} has no effect on a given analysis or cost; leave it out")
    if isinstance(counted, Cost):
        return counted, ()
    check_repeated(counted, what=counted.model)
    return cost_of(counted, versions=versions(), date=today()), counted.warnings


def versions() -> dict[str, str]:
    """Return the versions of roofline and torch."""
    return {name: package_version(name) for name in ("roofline", "torch")}


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


def _baseline(
    against: str | Path | None, conditions: Sequence[Condition], *, update: bool
) -> Cost | None:
    """Return the baseline; errors are raised before any work."""
    if against is not None and not isinstance(against, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"against={against!r}: must be the path of a .json file")
    if against is None:
        if update:
            raise InputError(
                f"{argument('update', True)} requires a file; add {argument('against')} FILE.json"
            )
        for each in conditions:
            if each.is_relative:
                raise InputError(
                    f"{argument('fail_if')} '{each.text}' requires a baseline; add"
                    f" {argument('against')} FILE.json, or give a limit without + or -"
                )
        return None
    file = Path(against)
    if not update and os.path.lexists(file):
        return read_baseline(file)
    if file.parent.is_dir():
        check_baseline_target(file, overwrite=True)
    if not file.exists():
        return None
    try:
        # Shown in the table before it is replaced; a damaged one is replaced too.
        return read_baseline(file)
    except InputError:
        return None


def _counted(
    model: Model,
    inputs: Any,
    options: RunOptions,
    *,
    conditions: Sequence[Condition],
    progress: Progress | None,
) -> tuple[Cost, tuple[str, ...]]:
    """Return the cost of the model, and notes."""
    asks_for_time = any(each.quantity.is_time for each in conditions)
    counts_only = (
        options.hardware is None and not asks_for_time and not catalog.host_file().exists()
    )
    known = ResolvedMachine(requested=NO_MACHINE, loaded=(NO_MACHINE, ()))
    if counts_only:
        options = replace(options, threads=None)
    else:
        (known,) = resolve_machines([options.hardware], options.threads)
    captured = capture_pass(model, inputs, options, on=known.device)
    analysis = place_on(captured, known, options, progress)
    cost = cost_of(analysis, versions=versions(), date=today())
    if counts_only:
        unmeasured = (
            "counts only, no times: run `roofline measure` on this machine, or add"
            f" {argument('hardware')}"
        )
        return cost, (*captured.notes, unmeasured)
    # Warnings on ceilings affect both sides of the comparison equally.
    return cost, (*captured.notes, *filter(is_about_host, analysis.warnings))
