"""Report of an analysis: verdict, facts, tables, warnings, next steps."""

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
    above_roofline,
    advice_notes,
    headline_subject,
    machine_fact,
    minimum_text,
    model_fact,
    pass_noun,
    rounded_share,
    run_fact,
    savings_fact,
    short_op,
    sum_of_flop,
    why_not_predicted,
    work_facts,
)
from roofline.core.blocks import Block, KeyValueBlock, View, next_steps, notes, warning_notes
from roofline.core.sampling import (
    Sample,
    digits_of,
    digits_of_sample,
    in_common_unit,
    interval_text,
    median_cell,
    median_text,
)
from roofline.core.text import counted, printable
from roofline.core.units import format_bytes, format_percent, format_s, format_si
from roofline.errors import InputError, argument
from roofline.latency.calibrated import calibrate_command
from roofline.latency.prediction import BOUND_ONLY, FAULTS_MATTER, RunPrediction
from roofline.latency.samples import EarlierRun, RunMeasurement
from roofline.machine.quantities import age
from roofline.machine.roof import ceiling_text, kernel_lines, ridge_flop_per_byte
from roofline.placement import Bound, Roof, ceiling_types
from roofline.workload.formulas.convolution_algorithms import is_convolution

_NAMED = 4
_SMALL_SHARE = 0.0005  # Shares below it print as "< 0.1 %"
_LAUNCH_BOUND = 0.5  # Share of dispatch in a pass

_ALONE = "measured alone"
"""Source of a prediction that is not learned (`roofline.latency.prediction`)."""


_SOURCES = {
    "calibrated": "from calibration data",
    _ALONE: "timed alone",
    BOUND_ONLY: "minimum time only",
}


def headline(analysis: Analysis) -> str:
    """Return the verdict: subject, measured, predicted and minimum time, limiter with its share."""
    subject, totals = printable(analysis.model), analysis.totals
    if not analysis.operators:
        return f"{subject}: no operators"
    times = list(_times_of_pass(analysis))
    if totals.eager_min_time_s is None:
        subject = headline_subject(analysis)
        if times:
            return f"{subject}: {', '.join(times)}, minimum unknown (no ceilings)"
        flop = sum_of_flop(totals.flop, totals.unknown_operators)
        return (
            f"{subject}: {flop} and {format_bytes(totals.traffic_bytes)} per"
            f" {pass_noun(analysis.run)}, minimum unknown (no ceilings)"
        )
    source = "eager"
    if analysis.hardware.has_single_memory_level:
        # Caches, missing in the profile, can make a run faster.
        source += f", all operands from {printable(analysis.hardware.memory[0].name)}"
    minimum, limits = f"minimum {format_s(totals.eager_min_time_s)}", list(_limits(analysis))
    if not times:
        minimum += f" per {pass_noun(analysis.run)} ({source})"
        return f"{subject}: {', '.join([minimum, *limits])}"
    # Limits are those of the minimum time, not of the measured or predicted one.
    times.append(f"{minimum} ({'; '.join([source, *limits])})")
    return f"{headline_subject(analysis)}: {', '.join(times)}"


def _times_of_pass(analysis: Analysis) -> Iterable[str]:
    if analysis.measurement is not None:
        sample = analysis.measurement.end_to_end
        yield f"measured {median_text(sample)} ({_spread(sample)})"
    elif analysis.earlier is not None:
        without = " without page faults" * _is_settled(analysis)
        yield f"measured {_earlier_time(analysis.earlier)} earlier{without}"
    if (prediction := analysis.prediction) is not None:
        middle, between = interval_text(prediction.predicted_s, prediction.low_s, prediction.high_s)
        launches, overhead_s = "", prediction.overhead_s or 0.0
        if overhead_s > _LAUNCH_BOUND * prediction.predicted_s:
            share = format_percent(overhead_s / prediction.predicted_s)
            launches = f"; launch-bound, {share} dispatch overhead"
        yield f"predicted {middle} (80 % interval {between}{launches})"
    elif analysis.not_predicted:
        yield f"no predicted time ({printable(analysis.not_predicted)})"


def _limits(analysis: Analysis) -> Iterable[str]:
    """Yield the shares of the minimum time that are compute-bound, memory-bound, and unknown."""
    whole_s = analysis.totals.eager_min_time_s or 0.0
    shares = {
        bound: sum(row.eager_min_time_s or 0.0 for row in analysis.operators if row.bound is bound)
        for bound in (Bound.COMPUTE, Bound.MEMORY, Bound.UNKNOWN)
    }
    compute_s, memory_s, unknown_s = shares.values()
    if compute_s and compute_s >= memory_s:
        yield f"compute-bound for {format_percent(compute_s / whole_s)}"
    elif memory_s:
        rows = [row for row in analysis.operators if row.bound is Bound.MEMORY]
        by_level: Counter[str] = Counter()
        for row in rows:
            by_level[row.level] += row.eager_min_time_s or 0.0  # pyright: ignore[reportArgumentType]
        levels = ", ".join(printable(name) for name, _ in by_level.most_common(_NAMED))
        yield f"memory-bound ({levels}) for {format_percent(memory_s / whole_s)}"
    if unknown_s:
        yield f"unknown FLOP for {format_percent(unknown_s / whole_s)}"
    roof = Roof(analysis.hardware, analysis.threads)
    counted_rows = [row for row in analysis.operators if row.min_flop]
    used = {t for row in counted_rows for t in ceiling_types(row.inputs, row.outputs, row.macs)}
    if lacking := ", ".join(sorted(str(each) for each in used if roof.compute(each) is None)):
        yield f"no compute ceiling for {lacking}"


def analysis_blocks(analysis: Analysis, view: View) -> Iterable[Block]:
    """Yield facts, tables, findings, warnings and next steps."""
    by = view.by
    if by == "kernel":
        raise InputError(f"{argument('by', by)}: kernels are known of traces alone")
    yield KeyValueBlock(lines=tuple(_facts(analysis, view)))
    if analysis.run.train and by != "phase" and analysis.operators:
        yield group_grid(analysis, "phase", view)
    if analysis.operators:
        yield operator_grid(analysis, view) if by == "operator" else group_grid(analysis, by, view)
    if unknown := groups_of_unknown(analysis):
        yield unknown_grid(unknown)
    if view.verbose:
        yield from advice_notes(analysis, view.arguments)
        yield from notes("Terms", _terms(analysis))
    warnings = (*fit_warnings(analysis), *analysis.warnings, *measurement_warnings(analysis))
    yield from warning_notes((*warnings, *above_roofline(analysis)), view)
    yield from next_steps(view, *_commands(analysis))


_MINIMUM_TIMES = (
    "minimum eager: every operator reads and writes its operands",
    "minimum fused: intermediate results of fusible chains stay in registers and caches",
    "minimum model: weights, inputs and outputs cross memory once; products after folding and"
    " merging of layers, no other arithmetic",
)


def _terms(analysis: Analysis) -> Iterable[str]:
    """Yield the definitions of minimum times, and of the kernels of limiting ceilings."""
    totals = analysis.totals
    if totals.eager_min_time_s is not None:
        yield from _MINIMUM_TIMES[: 1 if totals.model_min_time_s is None else None]
    limiters = (totals.fused_limiter, totals.model_limiter)
    yield from kernel_lines((*(row.ceiling for row in analysis.operators), *limiters))


def _commands(analysis: Analysis) -> Iterable[str]:
    of_host, command = analysis.hardware.host is not None, calibrate_command(analysis.run.dtype)
    reason = analysis.not_predicted or why_not_predicted(analysis)
    if analysis.prediction is None and f"run `roofline {command}`" in reason:
        yield command
    yield "advise MODEL"
    if of_host and analysis.measurement is None:
        yield "profile MODEL"


def model_facts(analysis: Analysis, view: View) -> tuple[tuple[str, str], ...]:
    """Return the facts that hold on any machine: model, run, compute, traffic and memory."""
    work = work_facts(analysis, view, machine=False)
    return (model_fact(analysis), *run_fact(analysis), *work)


def _facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield machine_fact(analysis, view)
    launches = " · without kernel launches" * (analysis.hardware.device != "cpu")
    yield "Minimum", minimum_text(analysis.totals, verbose=view.verbose) + launches
    yield from _latency_facts(analysis, view)
    *work, (memory, peak) = work_facts(analysis, view)
    yield from work
    fit = fit_of(analysis) or printable("".join(unknown_capacity([analysis.hardware])))
    yield memory, f"{peak} · {fit}" if view.verbose or analysis.fits is False else peak
    yield from _limits_fact(analysis, view)
    is_known = analysis.totals.eager_min_time_s is not None
    if is_known:
        yield from _convolutions_fact(analysis, view)
    if not view.verbose:
        yield from savings_fact(analysis)
    yield from coverage_fact(analysis, view)


def _convolutions_fact(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    """Yield the algorithms of convolutions, with their share of the counted FLOP.

    Always, if FFT or Winograd is why a convolution above the ridge point is memory-bound.
    """
    roof = Roof(analysis.hardware, analysis.threads)
    rows = [row for row in analysis.operators if is_convolution(row.record) and row.flop]
    by_name = {level.level.name: level for level in roof.levels}

    def is_above_ridge(row: OperatorRow) -> bool:
        unit, _ = roof.ceilings_of(row.record)
        intensity, level = row.intensity_flop_per_byte, by_name.get(row.level or "")
        if row.bound is not Bound.MEMORY or not (unit and level and intensity):
            return False
        return intensity > ridge_flop_per_byte(unit, level)

    if rows and (view.verbose or any(map(is_above_ridge, rows))):
        share = sum(roof.min_flop(row.record) or 0 for row in rows) / sum(
            row.flop or 0 for row in rows
        )
        yield (
            "Convolutions",
            f"{roof.convolution_algorithms}: minimum FLOP {share:.2g}× the counted FLOP",
        )


def _limits_fact(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    """Yield the shares of the minimum time by limiter; verbose, by kernel of the ceiling."""

    def limiter(row: OperatorRow) -> str:
        is_compute = row.bound is Bound.COMPUTE or not row.level
        return ceiling_text(row.ceiling) if view.verbose or is_compute else printable(row.level)

    if analysis.totals.eager_min_time_s is not None:
        shares = [
            f"{each.name} {format_percent(rounded_share(each.share))}"
            for each in groups(analysis, limiter)
            if each.share and (view.verbose or each.share >= _SMALL_SHARE)
        ]
        if shares:
            yield "Limits", " · ".join(shares)


def coverage_fact(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    """Yield the shares of calls, bytes and time with known FLOP, if below 100 % or verbose."""
    coverage = analysis.coverage
    known = [(coverage.calls, "calls"), (coverage.traffic, "bytes")]
    if coverage.time is not None:
        known.append((coverage.time, "measured time"))
    if not view.verbose and min(share for share, _ in known) >= 1:
        return
    shares = " · ".join(f"{format_percent(share)} of {what}" for share, what in known)
    text = f"FLOP known for {shares}"
    if view.verbose:
        at_work = len(working(analysis.operators))
        free = len(analysis.operators) - at_work
        text += f" · {counted(at_work, 'operator call')} · {free:,} free (views, allocations)"
    yield "Coverage", text


def _latency_facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    """Yield the facts on predicted and measured times."""
    totals, measurement = analysis.totals, analysis.measurement
    if analysis.prediction is not None:
        yield "Predicted", _predicted(analysis, analysis.prediction, view)
    elif totals.predicted_s is not None:
        low, high = totals.predicted_low_s, totals.predicted_high_s
        between = f" ({format_s(low)}–{format_s(high)})" if low and high else ""
        yield "Predicted", f"{format_s(totals.predicted_s)}{between}, sum of operators"
    rows = working(analysis.operators)
    if view.verbose and any(row.predicted_s is not None for row in rows):
        yield "Sources", _sources(rows)
    if measurement is not None:
        yield "Measured", _measured(analysis, measurement, view)
        if measurement.compiled is not None:
            yield "Compiled", _compiled(measurement.end_to_end, measurement.compiled)
    elif analysis.earlier is not None:
        yield "Measured", _earlier(analysis, analysis.earlier, view.today)
    elif totals.measured_s:
        share = _efficiency(analysis, totals.measured_s)
        yield "Measured", " · ".join([f"{format_s(totals.measured_s)}, sum of operators", *share])


def _predicted(analysis: Analysis, prediction: RunPrediction, view: View) -> str:
    middle, between = interval_text(prediction.predicted_s, prediction.low_s, prediction.high_s)
    parts = [f"{middle} (80 % prediction interval {between})"]
    if (compiled := analysis.compiled_prediction) is not None:
        middle, between = interval_text(compiled.predicted_s, compiled.low_s, compiled.high_s)
        parts.append(f"torch.compile {middle} ({between})")
    if prediction.held_out_error is not None:
        how = "leave-one-family-out" + ", without page faults" * _has_faults(prediction)
        parts.append(f"MAPE {_percent(prediction.held_out_error)} ({how})")
    if analysis.measurement is not None:
        parts.append(_error(prediction.predicted_s, analysis.measurement.measured_s))
    elif analysis.earlier is not None:
        # Agreement with a run of the calibration set proves nothing.
        is_learned = all(source_word(row) != _ALONE for row in analysis.operators)
        of_it = " (in the calibration set)" * is_learned
        predicted_s = prediction.predicted_s
        if _is_settled(analysis):
            predicted_s = prediction.settled_s
            parts.append(f"without page faults {format_s(predicted_s, 3)}")
        parts.append(f"{_error(predicted_s, analysis.earlier.measured_s)}{of_it}")
    if not view.verbose:
        return " · ".join(parts)
    spread = prediction.high_s - prediction.low_s
    if prediction.predicted_s:
        digits = digits_of(spread / prediction.predicted_s)
        (_, operators, overhead), unit = in_common_unit(
            prediction.predicted_s, (prediction.operators_s, prediction.overhead_s or 0.0), digits
        )
        known = prediction.overhead_s is not None
        added = f" + overhead {overhead} {unit}" if known else ", overhead unknown"
        faults_s = prediction.predicted_s - prediction.settled_s
        if _has_faults(prediction):
            added += (
                f" + {prediction.page_faults:,} page faults {format_s(faults_s, 2)} (allocator:"
                f" {prediction.allocator}; without page faults:"
                f" {format_s(prediction.settled_s, 3)})"
            )
        parts.append(f"operators {operators} {unit}{added}")
    if prediction.calibration:
        parts.append(f"calibration: {prediction.calibration}")
    return " · ".join(parts)


def _error(predicted_s: float, measured_s: float) -> str:
    error = predicted_s / measured_s - 1
    return f"{_percent(abs(error))} {'above' if error > 0 else 'below'} measured"


def _percent(fraction: float) -> str:
    return f"{format_si(100 * fraction, '', 2)} %"


def _sources(rows: list[OperatorRow]) -> str:
    """Return the number of predictions by source, with the operators of the least accurate."""
    counts, parts = Counter(map(source_word, rows)), list[str]()
    for word in sorted(counts, key=lambda word: (word == BOUND_ONLY, -counts[word])):
        which = ""
        if word in (BOUND_ONLY, "extrapolated"):
            names = Counter(short_op(row) for row in rows if source_word(row) == word)
            shown = ", ".join(name for name, _ in names.most_common(_NAMED))
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            which = f" ({shown}{more})"
        parts.append(f"{counts[word]:,} {_SOURCES.get(word, word)}{which}")
    return " · ".join(parts)


def _measured(analysis: Analysis, measurement: RunMeasurement, view: View) -> str:
    sample = measurement.end_to_end
    share = _efficiency(analysis, measurement.measured_s)
    if not view.verbose:
        return " · ".join([f"{median_text(sample)} ({_spread(sample)})", *share])
    digits = digits_of_sample(sample)
    (whole, operators, gap), unit = in_common_unit(
        sample.median_s, (measurement.operators_s, abs(measurement.overhead_s)), digits
    )
    named = "framework overhead" if measurement.overhead_s >= 0 else "timing overhead"
    # Views and allocations, which tables leave out.
    at_work_s = analysis.totals.measured_s
    free_s = measurement.operators_s - at_work_s if at_work_s is not None else 0.0
    free = f" (views and allocations {format_s(free_s, 2)})" if free_s > 0 else ""
    parts = [
        f"{whole} {unit} ({_spread(sample)})",
        *share,
        f"operators {operators} {unit}{free}",
        f"{named} {gap} {unit}",
    ]
    # Unknown where the system does not count them; a few are always there.
    page_faults = f"{counted(measurement.page_faults, 'page fault')} per pass"
    of_faults = [f"allocator: {measurement.allocator}"] if measurement.allocator else []
    if _faults_matter(measurement) and measurement.settled_s is not None:
        faults_s = measurement.measured_s - measurement.settled_s
        of_pass = format_percent(faults_s / measurement.measured_s)
        settled = f"without page faults: about {format_s(measurement.settled_s, 2)}"
        of_faults = [f"{format_s(faults_s, 2)}, {of_pass} of the pass", *of_faults, settled]
    parts.append(f"{page_faults} ({'; '.join(of_faults)})" if of_faults else page_faults)
    if measurement.discarded:
        discarded, rounds = measurement.discarded, measurement.rounds + measurement.discarded
        parts.append(f"{discarded} of {rounds} rounds discarded (disturbed by other processes)")
    if measurement.date:
        parts.append(age(measurement.date, view.today))
    return " · ".join(parts)


def _has_faults(prediction: RunPrediction) -> bool:
    """Return whether page faults are a share of the prediction above `FAULTS_MATTER`."""
    faults_s = prediction.predicted_s - prediction.settled_s
    return bool(prediction.page_faults) and faults_s > FAULTS_MATTER * prediction.settled_s


def _is_settled(analysis: Analysis) -> bool:
    """Return whether the earlier measurement has none of the page faults of the prediction."""
    earlier, prediction = analysis.earlier, analysis.prediction
    return (
        earlier is not None
        and earlier.page_faults == 0
        and (prediction is not None and _has_faults(prediction))
    )


def _faults_matter(measurement: RunMeasurement) -> bool:
    """Return whether page faults take a share of the pass above `FAULTS_MATTER`."""
    if measurement.page_fault_s is None or measurement.settled_s is None:
        return False
    return (
        measurement.page_faults * measurement.page_fault_s >= FAULTS_MATTER * measurement.settled_s
    )


def _earlier(analysis: Analysis, earlier: EarlierRun, today: date | None) -> str:
    spread = f" (IQR {format_s(earlier.iqr_s, 2)})" if earlier.iqr_s else ""
    when = f"{age(earlier.date, today)} " if earlier.date else ""
    named = f", as {earlier.model}" if earlier.model != analysis.model else ""
    share = _efficiency(analysis, earlier.measured_s)
    text = f"{_earlier_time(earlier)}{spread}"
    return " · ".join([text, f"{when}by roofline {earlier.origin}{named}", *share])


def _earlier_time(earlier: EarlierRun) -> str:
    return median_cell(earlier.measured_s, earlier.iqr_s or None)


def _spread(sample: Sample) -> str:
    count = len(sample.times_s)
    if count == 1:
        return "one pass"
    return f"median of {count} passes, IQR {format_s(sample.iqr_s, 2)}"


def _efficiency(analysis: Analysis, time_s: float) -> Iterable[str]:
    minimum_s = analysis.totals.eager_min_time_s
    if minimum_s:
        yield f"efficiency {format_percent(minimum_s / time_s)} (minimum ÷ measured)"


def _compiled(eager: Sample, compiled: Sample) -> str:
    digits = min(3, digits_of_sample(eager), digits_of_sample(compiled))
    ratio = format_si(eager.median_s / compiled.median_s, "", digits)
    spread = _spread(compiled)
    return f"{median_text(compiled)} with torch.compile ({spread}) · speedup {ratio}×"


def measurement_warnings(analysis: Analysis) -> tuple[str, ...]:
    """Return disturbances of a measurement, each with its remedy."""
    measurement = analysis.measurement
    if measurement is None:
        return ()
    lines: list[str] = []
    if measurement.are_disturbed:
        lines.append(
            "measured times are too long: other processes disturbed every round; stop them, or use"
            f" fewer {argument('threads')}"
        )
    sample = measurement.end_to_end
    if sample.verdict == "unusable":
        lines.append(
            f"pass times vary: IQR is {format_percent(sample.spread)} of the median; measure again"
            " on a quieter machine"
        )
    if _faults_matter(measurement):
        faults = [(row.measured_page_faults or 0, row) for row in working(analysis.operators)]
        most, row = max(faults, key=lambda each: each[0], default=(0, None))
        largest = f" (most in {short_op(row)} of '{row.module_path}')" if row and most else ""
        tunables = analysis.prediction.tunables if analysis.prediction else ""
        remedy = f"; GLIBC_TUNABLES={tunables} avoids them" if tunables else ""
        lines.append(
            f"{measurement.page_faults:,} page faults per pass{largest}: the allocator returns"
            f" memory to the system after each use{remedy}"
        )
    return (*lines, *measurement.conditions)
