"""Comparison of models on machines: quantities, ratios, fastest model, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, fit_of, groups, unknown_capacity
from roofline.analysis.words import why_not_predicted
from roofline.core.sampling import quantile
from roofline.core.text import counted
from roofline.core.units import (
    format_bytes,
    format_flop,
    format_intensity,
    format_s,
    format_shape,
    format_si,
)
from roofline.design.comparison.axes import join_words
from roofline.design.comparison.cells import DIGITS, GROWING, TIMES, Cell, cell_of
from roofline.design.comparison.differences import Design, measured_ratio, predicted_ratio, sentence
from roofline.design.comparison.ratios import MeasuredRounds, Ratio
from roofline.errors import InputError
from roofline.latency.prediction import BOUND_ONLY

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison


def check(comparison: Comparison) -> None:
    """Raise an error unless models are on one machine in one cache state."""
    count, rounds = len(comparison.designs), comparison.rounds
    if len(comparison.analyses) % count:
        raise InputError(
            f"{len(comparison.analyses)} analyses for {count} models; give one per model and"
            " machine"
        )
    if rounds is not None and rounds.models != count:
        raise InputError(f"{rounds.models} measured models for {count} analyses; measure all")
    for number, other in enumerate(comparison.analyses):
        first = comparison.analyses[number - number % count]
        if (other.hardware.name, other.cache) != (first.hardware.name, first.cache):
            settings = [f"{e.hardware.name} ({e.cache} caches)" for e in (first, other)]
            raise InputError(
                f"'{first.model}' was analyzed for {settings[0]}, '{other.model}' for"
                f" {settings[1]}; use one machine and cache state"
            )


def cells(comparison: Comparison) -> tuple[tuple[Cell, ...], ...]:
    """Return the cells by machine; interleaved measurements precede all others."""
    count, found = len(comparison.designs), list(map(cell_of, comparison.analyses))
    for number, cell in enumerate(found):
        if comparison.rounds is not None:
            sample = comparison.rounds.sample(number % count)
            times = list(sample.times_s)
            low, high = (quantile(times, q) if len(times) > 1 else None for q in (0.1, 0.9))
            middle = sample.median_s
            cell = replace(cell, measured_s=middle, measured_low_s=low, measured_high_s=high)
        if comparison.samples is not None:
            cell = cell.of_one(comparison.samples[number % count])
        found[number] = cell
    return tuple(tuple(found[i : i + count]) for i in range(0, len(found), count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Quantity by model: ``values`` in the unit of its name; None if unknown.

    ``of`` is the name without ``_per_sample``.
    """

    name: str
    title: str
    values: tuple[float | None, ...]
    text: tuple[str, ...]
    of: str


_count, _time = partial(format_si, unit=""), partial(format_s, digits=DIGITS)
_QUANTITIES: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "flop": ("FLOP", format_flop),
    "macs": ("MACs", _count),
    "parameters": ("parameters", _count),
    "parameter_size_bytes": ("parameter size", format_bytes),
    "traffic_bytes": ("traffic", format_bytes),
    "peak_memory_bytes": ("peak memory", format_bytes),
    "intensity_flop_per_byte": ("operand AI (FLOP/B)", format_intensity),
    "eager_min_time_s": ("minimum time, eager", format_s),
    "fused_min_time_s": ("minimum time, fused", format_s),
    "model_min_time_s": ("minimum time, model", format_s),
    "predicted_s": ("predicted", _time),
    "measured_s": ("measured", _time),
}

UNCERTAIN = ("predicted_s", "measured_s")  # Quantities whose ratios have intervals


def quantities(comparison: Comparison, only: str | None = None) -> tuple[Quantity, ...]:
    """Return the quantities on the first machine, or the one whose ``of`` is `only`."""
    samples = comparison.samples or (1,) * len(comparison.designs)
    found: list[Quantity] = []
    for name, (title, form) in _QUANTITIES.items():
        if only not in (None, name):
            continue
        is_of_sample = comparison.per_sample and name in GROWING
        text: list[str] = []
        for cell, analysis, count in zip(
            comparison.cells[0], comparison.analyses, samples, strict=False
        ):
            if name in ("flop", "macs") and analysis.totals.unknown_operators:
                # Incomplete sums are lower limits, and have no ratio.
                text.append(f"≥ {form(getattr(analysis.totals, name) / count)}")
            else:
                text.append(form(getattr(cell, name)))
        found.append(
            Quantity(
                name=f"{name}_per_sample" if is_of_sample else name,
                title=f"{title} per sample" if is_of_sample else title,
                values=tuple(getattr(each, name) for each in comparison.cells[0]),
                text=tuple(text),
                of=name,
            )
        )
    return tuple(found)


def designs_of(comparison: Comparison) -> tuple[Design, ...]:
    """Return the models on the first machine, with analysis and cell."""
    count = len(comparison.designs)
    samples = comparison.samples or (1,) * count
    parts = (comparison.designs, comparison.analyses, comparison.cells[0], range(count), samples)
    return tuple(Design(*each) for each in zip(*parts, strict=False))


def ratios(comparison: Comparison, quantity: Quantity, to: int) -> tuple[Ratio | None, ...]:
    """Return a quantity by model over that of model number `to`."""
    designs = designs_of(comparison)
    if quantity.of == "predicted_s":
        return tuple(predicted_ratio(designs[to], each) for each in designs)
    if quantity.of == "measured_s":
        return tuple(measured_ratio(designs[to], each, comparison.rounds) for each in designs)
    base = quantity.values[to]
    return tuple(
        Ratio(value=value / base) if value is not None and base else None
        for value in quantity.values
    )


def ceilings(analysis: Analysis) -> dict[str, float]:
    """Return the limiting ceilings with their shares of the minimum time, largest first."""
    found = groups(analysis, lambda row: row.ceiling or row.bound)
    return {each.name: each.share for each in found if each.share}


# -- sentences -------------------------------------------------------------------------------------


def title(comparison: Comparison) -> str:
    """Return the names, that of the reference last; of many models their number."""
    names = list(comparison.designs)
    if len(names) > 3:
        return f"{len(names)} models"
    reference = names.pop(comparison.reference)
    return f"{', '.join(names)} vs {reference}"


def summary(comparison: Comparison) -> str:
    """Return the verdict: the fastest model by machine; of two models, their difference."""
    if len(comparison.each_machine) > 1:
        return f"{title(comparison)}: {'; '.join(verdict(comparison)) or 'no times (no ceilings)'}"
    found = list(sentences(comparison))
    if len(found) == 1:
        return found[0]
    return f"{title(comparison)} on {comparison.machine_names[0]}: {_fastest(comparison)}"


def _fastest(comparison: Comparison) -> str:
    best = comparison.verdicts[0]
    if best.winner is None:
        return "no times (no ceilings)"
    of = comparison.quantity(TIMES[best.basis])
    kind = "minimum" if best.basis == "bound" else best.basis
    close = ", not significant" if best.is_close else ""
    per = " per sample" if comparison.per_sample else ""
    time = f"{of.text[best.winner]}{per} ({kind}{close})"
    return f"{comparison.designs[best.winner]} is fastest, {time}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the fastest model by machine if there are several, then a sentence per model."""
    if len(comparison.each_machine) == 1:
        yield from _sentences(comparison, f"on {comparison.analyses[0].hardware.name}")
        return
    yield from verdict(comparison)
    for name, each in zip(comparison.machine_names, comparison.each_machine, strict=True):
        yield from _sentences(each, f"on {name}")


def _sentences(comparison: Comparison, where: str) -> Iterator[str]:
    designs = designs_of(comparison)
    base = designs[comparison.reference]
    if base.analysis.fits is False:
        yield f"reference {base.name} {where}: {fit_of(base.analysis)}"
    for each in designs:
        if each is not base:
            said = sentence(base, each, comparison.rounds, where=where)
            but = f"; {each.name} {fit_of(each.analysis)}"
            yield f"{each.name} vs {base.name}: {said}{but * (each.analysis.fits is False)}"


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """Return the fastest model that fits by machine, for each kind of time."""
    by_kind: dict[str, dict[str, list[str]]] = {}
    alone: list[str] = []
    for machine, each in zip(comparison.machine_names, comparison.each_machine, strict=True):
        names, at = each.designs, each.cells[0]
        fitting = [i for i, cell in enumerate(at) if cell.can_run]
        if len(fitting) < 2:
            who = f"only {names[fitting[0]]}" if fitting else "no model"
            alone.append(f"{who} fits into memory on {machine}")
        best, kind = each.verdicts[0].winner, each.verdicts[0].basis
        if best is None:
            continue
        of = each.quantity(TIMES[kind])
        second = min((i for i in fitting if i != best), key=lambda i: (of.values[i] or 0.0, i))
        ratio = ratios(each, of, best)[second]
        assert ratio is not None, "both times are known"
        either = ", not significant" if ratio.may_be_either else ""
        margin = f"{ratio.words[0]}× speedup over {names[second]}{either}"
        if ratio.value < 1.005:
            margin = f"equal to {names[second]}"
        won = by_kind.setdefault(kind, {}).setdefault(names[best], [])
        won.append(f"{machine} ({margin})")
    said: list[str] = []
    for kind, won in by_kind.items():
        fastest = [f"{model} on {join_words(places)}" for model, places in won.items()]
        basis = "minimum time" if kind == "bound" else f"{kind} time"
        said.append(f"lowest {basis}: {', '.join(fastest)}")
    return (*said, *alone)


def provenance(comparison: Comparison) -> Iterator[str]:
    """Yield missing predictions with reasons, sources of measurements, unknown capacities."""
    several = len(comparison.each_machine) > 1
    for machine, each in zip(comparison.machine_names, comparison.each_machine, strict=True):
        for line in time_sources(each.designs, each.analyses, each.rounds, place="for"):
            yield f"{machine}: {line}" if several else line
    yield from unknown_capacity(each.analyses[0].hardware for each in comparison.each_machine)


def time_sources(
    names: Sequence[str],
    analyses: Sequence[Analysis],
    rounds: MeasuredRounds | None = None,
    *,
    place: str,
) -> Iterator[str]:
    """Yield missing predictions with reasons, and sources of measurements."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, each in zip(names, analyses, strict=True):
        if each.prediction is None:
            has_bound = each.totals.eager_min_time_s is not None
            known = BOUND_ONLY if has_bound else "no ceilings and no prediction"
            by_reason.setdefault((known, why_not_predicted(each)), []).append(name)
    for (known, reason), found in by_reason.items():
        yield f"{known} {place} {', '.join(found)}: {reason}"
    if rounds is not None:
        passes = min(len(each.times_s) for one in rounds.rounds for each in one)
        where = ", each in a fresh process" if rounds.own_processes else ""
        where += f" (allocator: {rounds.allocator})" if rounds.allocator else ""
        yield (
            f"measured interleaved{f' on {rounds.date}' if rounds.date else ''}:"
            f" {counted(len(rounds.rounds), 'round')}{where}, at least {passes} passes per round"
        )
        return
    earlier = [
        f"{name} ({each.earlier.date[:10] or 'no date'} by {each.earlier.origin})"
        for name, each in zip(names, analyses, strict=True)
        if each.earlier and not each.measurement
    ]
    if earlier:
        yield f"measured earlier: {', '.join(earlier)}"


# -- notes on different inputs and runs ------------------------------------------------------------


def samples_of(analyses: Sequence[Analysis]) -> tuple[int, ...] | None:
    """Return the batch sizes, from the first shapes; None if one has no shape."""
    firsts = [next(iter(_shapes(each)), (0,))[0] for each in analyses]
    return tuple(firsts) if all(firsts) else None


def differs_only_in_batch(analyses: Sequence[Analysis]) -> bool:
    """Return True if inputs differ in dimension 0 only."""
    return len({_shapes(each) for each in analyses}) > 1 and len(set(map(_tails, analyses))) == 1


def _shapes(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    return tuple(each.shape for each in analysis.inputs if each.shape)


def _tails(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    return tuple(shape[1:] for shape in _shapes(analysis))


def notes(comparison: Comparison) -> tuple[str, ...]:
    """Return distinct notes on differences between runs, most important first."""
    found = (line for each in comparison.each_machine for line in _notes(each))
    return tuple(dict.fromkeys(found))


def _notes(comparison: Comparison) -> Iterator[str]:
    named = list(zip(comparison.designs, comparison.analyses, strict=True))
    trained = [name for name, each in named if each.run.train]
    inferred = [name for name, each in named if not each.run.train]
    if trained and inferred:
        yield (
            f"training ({', '.join(trained)}) is compared with inference ({', '.join(inferred)})"
        )
    if len({each.run.device for _, each in named}) > 1:
        each_on = ", ".join(f"{name} on {each.run.device}" for name, each in named)
        yield f"operators of different devices: {each_on}"
    predictions = [(name, each.prediction) for name, each in named if each.prediction]
    partial = [name for name, each in predictions if each.overhead_s is None]
    if partial and len(partial) < len(predictions):
        yield (f"predictions of {', '.join(partial)} have no overhead between operators, others do")
    if samples := comparison.samples:
        yield (
            "batches differ: FLOP, traffic and times are per sample; samples per pass:"
            f" {_by_count(comparison, samples)}"
        )
    analyses = comparison.analyses
    are_samples_alike = samples and len(set(map(_tails, analyses))) == 1
    if not are_samples_alike and len(set(map(_shapes, analyses))) > 1:
        # At most two inputs per model.
        texts = [
            f"{name} {', '.join(map(format_shape, _shapes(each)[:2])) or 'nothing'}"
            for name, each in named
        ]
        yield f"inputs differ: {', '.join(texts)}"
    threads, first = [each.threads for each in analyses], analyses[0]
    if len(set(threads)) > 1:
        yield f"threads differ: {_by_count(comparison, threads)}"
    other = next((name for name, each in named if each.hardware != first.hardware), None)
    if other is not None:
        yield (
            f"{named[0][0]} and {other} use different profiles of {first.hardware.name}; analyze"
            " both with one"
        )
    seen: list[tuple[str, object]] = []
    for name, each in named:
        identity = (
            *(each.model, each.inputs, each.run, each.threads, each.hardware),
            *(each.prediction, each.measurement),
            tuple((row.op, row.module_path, row.work) for row in each.operators),
        )
        twin = next((before for before, other in seen if other == identity), None)
        if twin is not None:
            yield f"{twin} and {name} are identical: same model and run"
        seen.append((name, identity))
    yield from comparison.rounds.conditions if comparison.rounds else ()


def _by_count(comparison: Comparison, counts: Sequence[int]) -> str:
    found: dict[int, list[str]] = {}
    for name, count in zip(comparison.designs, counts, strict=True):
        found.setdefault(count, []).append(name)
    return ", ".join(f"{count} ({', '.join(names)})" for count, names in found.items())


# -- rows ------------------------------------------------------------------------------------------


def columns(comparison: Comparison) -> dict[str, str]:
    """Return column names with pandas' types."""
    types = {**dict.fromkeys(("hardware", "model", "ceiling"), "string"), "fits": "boolean"}
    return {name: types.get(name, "Float64") for name in records(comparison)[0]}


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per machine and model: quantities and ratios with intervals."""
    rows: list[dict[str, Any]] = []
    several = len(comparison.each_machine) > 1
    for machine, each in zip(comparison.machine_names, comparison.each_machine, strict=True):
        known = [(of, each.uncertain_ratios(of)) for of in each.quantities]
        for number, (name, cell) in enumerate(zip(each.designs, each.cells[0], strict=True)):
            row: dict[str, Any] = {"hardware": machine, "model": name}
            if not several:
                del row["hardware"]
            if each.samples:
                row["samples"] = each.samples[number]
            for of, found in known:
                ratio = found[number]
                row[of.name] = of.values[number]
                row[f"{of.name}_ratio"] = ratio.value if ratio else None
                if of.of in UNCERTAIN:
                    row[f"{of.name}_ratio_low"] = ratio.low if ratio else None
                    row[f"{of.name}_ratio_high"] = ratio.high if ratio else None
            per = "_per_sample" if each.per_sample else ""
            row[f"predicted_low_s{per}"] = cell.predicted_low_s
            row[f"predicted_high_s{per}"] = cell.predicted_high_s
            row["ceiling"] = next(iter(ceilings(each.analyses[number])), None)
            row["memory_capacity_bytes"] = cell.memory_capacity_bytes
            row["fits"] = cell.fits
            rows.append(row)
    return rows


def rows_of_files(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows, with run options and the shares of all limiting ceilings."""
    return [
        {**row, "run": asdict(each.run), "threads": each.threads, "ceilings": ceilings(each)}
        for row, each in zip(records(comparison), comparison.analyses, strict=True)
    ]
