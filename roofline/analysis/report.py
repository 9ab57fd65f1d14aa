"""What the report on an analysis says, the verdict first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date

from roofline.analysis import (
    Analysis,
    OperatorRow,
    fit_of,
    fit_warnings,
    groups,
    unknown_capacity,
    working,
)
from roofline.analysis.tables import (
    group_grid,
    groups_of_unknown,
    operator_grid,
    source_word,
    unknown_grid,
)
from roofline.analysis.words import (
    above_roof,
    advice_notes,
    hardware_fact,
    headline_subject,
    minimum_words,
    model_fact,
    rounded_share,
    run_fact,
    short_op,
    sum_of_flop,
    work_facts,
)
from roofline.core.blocks import Block, KeyValueBlock, View, warning_notes
from roofline.core.sampling import (
    Sample,
    digits_of,
    digits_of_sample,
    in_its_unit,
    interval_words,
    median_cell,
    median_text,
)
from roofline.core.text import counted, printable
from roofline.core.units import format_bytes, format_percent, format_s, format_si
from roofline.latency.prediction import BOUND_ONLY, FAULTS_MATTER, RunPrediction
from roofline.latency.samples import EarlierRun, RunMeasurement
from roofline.machine.quantities import age
from roofline.placement import Bound, Roof, ceiling_types
from roofline.workload.formulas.convolution_algorithms import is_convolution

_NAMED = 4

_ALONE = "measured alone"
"""The source of an operator whose time is not learned (`roofline.latency.prediction`)."""


def _real_time(analysis: Analysis, limit: str) -> str:
    model, prediction = headline_subject(analysis), analysis.prediction
    words = None
    if prediction is not None:
        words = interval_words(prediction.predicted_s, prediction.low_s, prediction.high_s)
    if analysis.measurement is not None:
        sample = analysis.measurement.end_to_end
        count = len(sample.times_s)
        passes = f"median of {count} passes" if count > 1 else "one pass"
        predicted = f"{words[1]} predicted, " if words else ""
        return f"{model} took {median_text(sample)} (end to end, {passes}); {predicted}{limit}"
    before = _earlier_time(analysis.earlier) if analysis.earlier else ""
    if words is None:
        return f"{model} took {before} when it was measured before; {limit}" if before else ""
    known = f"{words[1]} predicted{f', {before} measured before' if before else ''}"
    return f"{model} takes about {words[0]} ({known}; {limit})"


def _latency_facts(analysis: Analysis, today: date | None) -> Iterable[tuple[str, str]]:
    """The lines on predictions and measurements, as far as there are any."""
    totals, measurement = analysis.totals, analysis.measurement
    if analysis.prediction is not None:
        yield "Predicted", _predicted(analysis, analysis.prediction)
    elif totals.predicted_s is not None:
        low, high = totals.predicted_low_s, totals.predicted_high_s
        between = f" ({format_s(low)} to {format_s(high)})" if low and high else ""
        yield "Predicted", f"{format_s(totals.predicted_s)}{between}"
    rows = working(analysis.operators)
    if any(row.predicted_s is not None for row in rows):
        yield "Sources", _sources(rows)
    if measurement is not None:
        yield "Measured", _measured(analysis, measurement, today)
        if measurement.compiled is not None:
            yield "Compiled", _compiled(measurement.end_to_end, measurement.compiled)
    elif analysis.earlier is not None:
        yield "Measured", _earlier(analysis, analysis.earlier, today)
    elif totals.measured_s:
        share = _bound_share(analysis, totals.measured_s)
        yield "Measured", f"{format_s(totals.measured_s)}{share}"


def _predicted(analysis: Analysis, prediction: RunPrediction) -> str:
    middle, between = interval_words(prediction.predicted_s, prediction.low_s, prediction.high_s)
    parts = [f"{middle} end to end ({between} in 8 of 10 cases)"]
    if analysis.measurement is not None:
        off = _off(prediction.predicted_s, analysis.measurement.measured_s)
        parts.append(f"{off} than measured")
    elif analysis.earlier is not None:
        off = _off(prediction.predicted_s, analysis.earlier.measured_s)
        # Nearness to what one was taught is no proof.
        is_learned = all(source_word(row) != _ALONE for row in analysis.operators)
        from_it = ", which it was learned from too" * is_learned
        parts.append(f"{off} than was measured before{from_it}")
    spread = prediction.high_s - prediction.low_s
    if prediction.predicted_s:
        digits = digits_of(spread / prediction.predicted_s)
        (_, operators, overhead), unit = in_its_unit(
            prediction.predicted_s, (prediction.operators_s, prediction.overhead_s or 0.0), digits
        )
        known = prediction.overhead_s is not None
        added = f" + overhead {overhead} {unit}" if known else ", overhead unknown"
        faults_s = prediction.predicted_s - prediction.settled_s
        if prediction.page_faults and faults_s > FAULTS_MATTER * prediction.settled_s:
            # The rest is the time of a settled allocator.
            added += (
                f" + {prediction.page_faults:,} page faults {format_s(faults_s, 2)} (allocator:"
                f" {prediction.allocator}; settled, without page faults:"
                f" {format_s(prediction.settled_s, 3)})"
            )
        parts.append(f"operators {operators} {unit}{added}")
    if prediction.calibration:
        parts.append(f"learned from {prediction.calibration}")
    if prediction.held_out_error is not None:
        off = _percent(prediction.held_out_error)
        parts.append(f"{off} off on the average for models of families that were left out")
    return " · ".join(parts)


def _off(predicted_s: float, measured_s: float) -> str:
    error = predicted_s / measured_s - 1
    return f"{_percent(abs(error))} {'more' if error > 0 else 'less'}"


def _percent(fraction: float) -> str:
    return f"{format_si(100 * fraction, '', 2)} %"


def _sources(rows: list[OperatorRow]) -> str:
    """How many predictions come from where, and which operators have no near neighbour."""
    counts, parts = Counter(map(source_word, rows)), list[str]()
    for word in sorted(counts, key=lambda word: (word == BOUND_ONLY, -counts[word])):
        which = ""
        if word in (BOUND_ONLY, "extrapolated"):
            # These are worse than most.
            names = Counter(short_op(row) for row in rows if source_word(row) == word)
            shown = ", ".join(name for name, _ in names.most_common(_NAMED))
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            which = f" ({shown}{more})"
        parts.append(f"{counts[word]:,} {word}{which}")
    return " · ".join(parts)


def _measured(analysis: Analysis, measurement: RunMeasurement, today: date | None) -> str:
    sample = measurement.end_to_end
    digits = digits_of_sample(sample)
    (whole, operators, gap), unit = in_its_unit(
        sample.median_s, (measurement.operators_s, abs(measurement.overhead_s)), digits
    )
    named = "framework overhead" if measurement.overhead_s >= 0 else "timing cost"
    # What views and allocations take, which tables leave out.
    at_work_s = analysis.totals.measured_s
    free_s = measurement.operators_s - at_work_s if at_work_s is not None else 0.0
    free = f" (views and allocations {format_s(free_s, 2)} of it)" if free_s > 0 else ""
    parts = [
        f"{whole} {unit} end to end ({_passes(sample)})",
        f"operators {operators} {unit}{free}",
        f"{named} {gap} {unit}",
    ]
    if analysis.totals.eager_min_time_s:
        parts.append(_bound_share(analysis, measurement.measured_s).removeprefix(" · "))
    # Unknown where the system does not count them; a few are always there.
    page_faults = f"{counted(measurement.page_faults, 'page fault')} a pass"
    of_faults = [f"allocator: {measurement.allocator}"] if measurement.allocator else []
    if _faults_matter(measurement) and measurement.settled_s is not None:
        faults_s = measurement.measured_s - measurement.settled_s
        share = format_percent(faults_s / measurement.measured_s)
        settled = f"settled, without page faults: about {format_s(measurement.settled_s, 2)}"
        of_faults = [f"{format_s(faults_s, 2)} of the pass, {share}", *of_faults, settled]
    parts.append(f"{page_faults} ({'; '.join(of_faults)})" if of_faults else page_faults)
    if measurement.discarded:
        discarded, rounds = measurement.discarded, measurement.rounds + measurement.discarded
        parts.append(f"{discarded} of {rounds} rounds thrown away (others had the cores)")
    if measurement.date:
        parts.append(age(measurement.date, today))
    return " · ".join(parts)


def _faults_matter(measurement: RunMeasurement) -> bool:
    """Whether page faults take a share of the pass that is worth a word."""
    if measurement.page_fault_s is None or measurement.settled_s is None:
        return False
    return (
        measurement.page_faults * measurement.page_fault_s >= FAULTS_MATTER * measurement.settled_s
    )


def _earlier(analysis: Analysis, earlier: EarlierRun, today: date | None) -> str:
    spread = f" (IQR {format_s(earlier.iqr_s, 2)})" if earlier.iqr_s else ""
    when = f"{age(earlier.date, today)} " if earlier.date else ""
    named = f", as {earlier.model}" if earlier.model != analysis.model else ""
    return (
        f"{_earlier_time(earlier)} end to end{spread}"
        f" · {when}by {earlier.origin}{named}{_bound_share(analysis, earlier.measured_s)}"
    )


def _earlier_time(earlier: EarlierRun) -> str:
    return median_cell(earlier.measured_s, earlier.iqr_s or None)


def _passes(sample: Sample) -> str:
    count = len(sample.times_s)
    if count == 1:
        return "one pass"
    return f"median of {count} passes, IQR {format_s(sample.iqr_s, 2)}"


def _bound_share(analysis: Analysis, time_s: float) -> str:
    least_s = analysis.totals.eager_min_time_s
    return f" · the bound is {format_percent(least_s / time_s)} of it" if least_s else ""


def _compiled(eager: Sample, compiled: Sample) -> str:
    digits = min(3, digits_of_sample(eager), digits_of_sample(compiled))
    ratio = format_si(eager.median_s / compiled.median_s, "", digits)
    return (
        f"{median_text(compiled)} end to end under torch.compile ({_passes(compiled)})"
        f" · {ratio}× as fast as eager"
    )


def measurement_warnings(analysis: Analysis) -> tuple[str, ...]:
    """What makes a measurement worth less, and what to do about it."""
    measurement = analysis.measurement
    if measurement is None:
        return ()
    lines: list[str] = []
    if measurement.are_disturbed:
        lines.append(
            "no round had its cores to itself: others computed meanwhile, and the times are too"
            " long; stop what else runs, or take fewer --threads"
        )
    sample = measurement.end_to_end
    if sample.verdict == "unusable":
        lines.append(
            f"the passes differ too much ({format_percent(sample.spread)} between the quartiles):"
            " measure again on a quieter machine"
        )
    if _faults_matter(measurement):
        faults = [(row.measured_page_faults or 0, row) for row in working(analysis.operators)]
        most, row = max(faults, key=lambda each: each[0], default=(0, None))
        largest = f" (most in {short_op(row)} of '{row.module_path}')" if row and most else ""
        tunables = analysis.prediction.tunables if analysis.prediction else ""
        remedy = f"; GLIBC_TUNABLES={tunables} keeps it" if tunables else ""
        lines.append(
            f"{measurement.page_faults:,} page faults a pass{largest}: memory comes fresh from the"
            f" system each time, and is cleared{remedy}"
        )
    return (*lines, *measurement.conditions)


def analysis_blocks(analysis: Analysis, view: View) -> Iterable[Block]:
    """Return facts, tables of operators or groups, findings, coverage and warnings."""
    yield KeyValueBlock(lines=tuple(_facts(analysis, view)))
    if analysis.run.train and view.by != "phase" and analysis.operators:
        yield group_grid(analysis, "phase", view)
    if analysis.operators:
        yield (
            operator_grid(analysis, view)
            if view.by == "operator"
            else group_grid(analysis, view.by, view)
        )
    if unknown := groups_of_unknown(analysis):
        yield unknown_grid(unknown)
    yield from advice_notes(analysis)
    yield KeyValueBlock(lines=(("Coverage", coverage_text(analysis)),))
    said = (*fit_warnings(analysis), *analysis.warnings, *measurement_warnings(analysis))
    yield from warning_notes((*said, *above_roof(analysis)), view)


def headline(analysis: Analysis) -> str:
    """Return the verdict in one sentence."""
    model, totals = headline_subject(analysis), analysis.totals
    if not analysis.operators:
        return f"{model}: no operators"
    if totals.eager_min_time_s is None:
        limit = "no bound on time, the hardware's ceilings are unknown"
        flop = sum_of_flop(totals.flop, totals.unknown_operators)
        work = f"{flop} and {format_bytes(totals.traffic_bytes)}"
        return _real_time(analysis, limit) or f"{model}: {work}; {limit}"
    shares: list[str] = []
    for bound, words in (
        (Bound.COMPUTE, "bound by compute"),
        (Bound.MEMORY, "bound by memory"),
        (Bound.UNKNOWN, "of unknown FLOP"),
    ):
        part = sum(row.eager_min_time_s or 0.0 for row in analysis.operators if row.bound is bound)
        if part:
            shares.append(f"{format_percent(part / totals.eager_min_time_s)} {words}")
    limits = f": {', '.join(shares)}" if shares else ""
    roof = Roof(analysis.hardware, analysis.threads)
    rows = [row for row in analysis.operators if row.min_flop]
    used = {each for row in rows for each in ceiling_types(row.inputs, row.outputs, row.macs)}
    if lacking := ", ".join(sorted(str(each) for each in used if roof.compute(each) is None)):
        limits += f" (no compute ceiling for {lacking}: by its memory traffic alone)"
    limit, classic = f"at least {format_s(totals.eager_min_time_s)} eager", ""
    if analysis.hardware.knows_only_dram:
        # Caches, of which the profile says nothing, may well let a run be faster.
        memory = printable(analysis.hardware.memory[0].name)
        limit = f"{format_s(totals.eager_min_time_s)} with every operand from {memory}"
        classic = " (classic roofline)"
    return (_real_time(analysis, limit) or f"{model} takes {limit}{classic}") + limits


def model_facts(analysis: Analysis, view: View) -> tuple[tuple[str, str], ...]:
    """What holds of the model on any machine: its input, run, work, traffic and memory."""
    work = work_facts(analysis, fused=view.fused)
    return (model_fact(analysis), *run_fact(analysis), *work)


def _facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    totals = analysis.totals
    yield model_fact(analysis)
    yield from run_fact(analysis)
    caches = "steady state" if analysis.cache == "steady" else "cold caches"
    yield hardware_fact(analysis, view.today, caches=caches)
    *work, (memory, peak) = work_facts(analysis, fused=view.fused)
    yield from work
    fit = fit_of(analysis) or printable("".join(unknown_capacity([analysis.hardware])))
    yield memory, f"{peak} · {fit}"
    yield "Minimum", minimum_text(analysis)
    if totals.eager_min_time_s is not None:
        limiters = [
            f"{each.name} {format_percent(rounded_share(each.share))}"
            for each in groups(analysis, lambda row: printable(row.ceiling))
            if each.share
        ]
        if limiters:
            yield "Limiters", " · ".join(limiters)
        if any(is_convolution(row.record) for row in analysis.operators):
            roof = Roof(analysis.hardware, analysis.threads)
            yield "Convolutions", roof.convolution_algorithms
    yield from _latency_facts(analysis, view.today)


def minimum_text(analysis: Analysis) -> str:
    """The minimum times of a pass by name: ``"eager 3.1 ms · fused 2.0 ms (DRAM read) · …"``."""
    totals = analysis.totals
    if totals.eager_min_time_s is None:
        return "none: the hardware's ceilings are unknown"
    least = "≥ " if totals.unknown_operators else ""
    eager = f"eager {least}{format_s(totals.eager_min_time_s)}"
    return " · ".join([eager, *minimum_words(totals)])


def coverage_text(analysis: Analysis) -> str:
    """How much of the calls, bytes and time has known FLOP, in words."""
    coverage = analysis.coverage
    parts = [
        f"FLOP known for {format_percent(coverage.calls)} of the calls",
        f"{format_percent(coverage.traffic)} of the bytes",
    ]
    if coverage.time is not None:
        parts.append(f"{format_percent(coverage.time)} of the measured time")
    at_work = len(working(analysis.operators))
    free = len(analysis.operators) - at_work
    calls = counted(at_work, "operator call")
    are = "is" if free == 1 else "are"
    return " · ".join([*parts, calls, f"{free} more {are} free (views, allocations)"])
