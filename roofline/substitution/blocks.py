"""Report on an optimization: forward pass before and after, rewrites, timings, proofs, search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from roofline.analysis import fit_warnings, working
from roofline.analysis.words import MODEL_ITSELF, machine_fact, model_fact, run_fact, saving_or_loss
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.sampling import rounds_title
from roofline.core.text import counted
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_flop_per_s,
    format_percent,
    format_s,
    sum_known,
)
from roofline.errors import argument
from roofline.substitution.costs import launch_times

if TYPE_CHECKING:
    from roofline.substitution.result import Optimization, Part, Proof, Rounds, Substitution

_SINGLE = 3
"""Largest number of rewrites by one rule that have a row each."""

_WHERE_CHARACTERS = 48
_ONE_OF_TWO_CHARACTERS = 36

_COUNT = "{:,}".format
_RUN = {"eager": "eager torch", "compile": "torch.compile"}

Rewrites = Sequence["Substitution"]
"""Rewrites by one rule, in their order; rejected ones of one reason."""

_Line = tuple[str, str, str, str]
"""Name, before, after, and their ratio."""


def optimization_blocks(found: Optimization, view: View) -> Iterable[Block]:
    """Return the blocks below the verdict; ``view.top`` limits the rewrites shown."""
    analysis, most = found.before, view.rows()
    facts = (model_fact(analysis), *run_fact(analysis), machine_fact(analysis, view))
    yield KeyValueBlock(lines=facts)
    yield _figures(found)
    for title, is_searched in (
        ("Modules searched; the model as a whole cannot be captured", True),
        ("Kept as they are", False),
    ):
        yield from notes(title, _parts([p for p in found.parts if bool(p.searched) == is_searched]))
    if groups := applied_groups(found.substitutions):
        yield _rewrites(found, groups, most)
        yield from notes("Effects of the rewrites", _why(groups[:most]))
    rejected = rejected_groups(found.rejected)
    lines = [rejected_line(each, found.figures_before.cost_s) for each in rejected[:most]]
    if rest := sum(map(len, rejected[most:])):
        lines.append(
            f"{rest} more ({argument('top', len(rejected))}; complete list in .csv and .json)"
        )
    yield from notes("Rejected rewrites, closest to break-even first", lines)
    if found.rounds:
        yield _timings(found.rounds)
    if found.proofs:
        yield _proofs(found.proofs)
    yield KeyValueBlock(lines=tuple(_search(found)))
    warnings = [
        f"outputs differ in {each.dtype} on {each.inputs}: error {each.largest_error:.1e}, limit"
        f" {each.limit:.0e}"
        for each in found.proofs
        if not each.holds
    ]
    warnings += found.warnings
    # Both sides share most warnings: same model, same machine.
    for side in (found.before, found.after):
        warnings += (*fit_warnings(side), *side.warnings)
    launches = _launches(found)
    unique = dict.fromkeys(each for each in warnings if each != launches)
    yield from warning_notes(unique, view)


def _parts(parts: Sequence[Part]) -> Iterable[str]:
    """Return a line for the modules of one class with the same calls and reason."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for each in parts:
        calls = f"{each.searched} of {counted(each.calls, 'call')}" if each.calls > 1 else ""
        alike.setdefault((each.kind, each.why or calls), []).append(each.path)
    for (kind, words), (first, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        name = f"{first}{more} ({kind})" if first else MODEL_ITSELF
        yield f"{name}: {words}" if words else name


def _figures(found: Optimization) -> Grid:
    """Return the before/after table (table 2 of MetaFlow); one column if both sides are equal."""
    before, after = found.figures_before, found.figures_after

    def line(name: str, of: str, form: Callable[[Any], str]) -> _Line:
        return _line(name, getattr(before, of), getattr(after, of), form)

    lines = [
        _line(found.cost_name, before.cost_s, after.cost_s, format_s),
        *_measured_times(found),
        line("memory traffic", "traffic_bytes", format_bytes),
        line("kernel launches", "launches", _COUNT),
        line("FLOP", "flop", format_flop),
        line("FLOP/s achieved", "flop_per_s", format_flop_per_s),
        line("share of roofline", "share_of_roof", format_percent),
        line("weights", "weight_bytes", format_bytes),
    ]
    if found.is_fused:
        was, now = found.before, found.after
        traffic = was.totals.traffic_bytes, now.totals.traffic_bytes
        launches = len(working(was.operators)), len(working(now.operators))
        lines.append(_line("memory traffic, unfused", *traffic, format_bytes))
        lines.append(_line("kernel launches, unfused", *launches, _COUNT))
    headings = ("", "before", "candidate" if found.is_kept else "after", "after / before")
    if before == after:
        headings = ("", "original")
    columns = {each: itemgetter(place) for place, each in enumerate(headings)}
    return table("", lines, columns, left=("",), narrow=headings[3:])


def _measured_times(found: Optimization) -> Iterable[_Line]:
    before, after, decisive = found.figures_before, found.figures_after, found.decisive
    if before.measured_s is None and after.measured_s is None:
        return
    _, was, now, ratio = _line("", before.measured_s, after.measured_s, format_s)
    timed = [each for each in found.rounds if each.after_s == after.measured_s]
    ratio, interval = timed[0].slowdown_text if timed else (ratio, "")
    compiled = decisive if decisive and decisive.baseline == "compile" else None
    yield "measured time" + ", eager torch" * bool(compiled), was, now, ratio
    low, high = (
        f"{format_s(each.measured_low_s)} to {format_s(each.measured_high_s)}"
        for each in (before, after)
    )
    yield "10 to 90 % of rounds", low, high, interval
    if compiled:
        times = format_s(compiled.before_s), format_s(compiled.after_s)
        yield "measured time, torch.compile", *times, _with_interval(*compiled.slowdown_text)


def _line(
    name: str, before: float | None, after: float | None, form: Callable[[Any], str]
) -> _Line:
    ratio = MISSING
    if before is not None and after is not None and before > 0:
        ratio = f"{float(f'{after / before:.3g}'):g}"
    return name, form(before), form(after), ratio


def _with_interval(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


# -- rewrites --------------------------------------------------------------------------------------


def applied_groups(substitutions: Sequence[Substitution]) -> list[Rewrites]:
    """Return applied rewrites in order; frequent rules form one group at their first rewrite."""
    counts = Counter(each.rule for each in substitutions)
    groups: dict[object, list[Substitution]] = {}
    for number, each in enumerate(substitutions):
        key = number if counts[each.rule] <= _SINGLE else each.rule
        groups.setdefault(key, []).append(each)
    return [*groups.values()]


def rejected_groups(rejected: Sequence[Substitution]) -> list[Rewrites]:
    """Return rejected rewrites by rule and reason, closest to break-even first.

    Groups without a cost come last, the most frequent first.
    """
    groups: dict[object, list[Substitution]] = {}
    for each in rejected:
        groups.setdefault((each.rule, each.why, each.saving_s is None), []).append(each)

    def urgency(group: Rewrites) -> tuple[bool, float, str]:
        best_s = _best_s(group)
        return best_s is None, -len(group) if best_s is None else -best_s, group[0].rule

    return sorted(groups.values(), key=urgency)


def name_of(group: Rewrites) -> str:
    """Return rule and count: ``"fold-batch-norm"``, or ``"fold-batch-norm: 53 ×"``."""
    return group[0].rule + (f": {len(group)} ×" if len(group) > 1 else "")


def place_of(group: Rewrites) -> str:
    """Return the location of the group, or those of its first and last rewrite."""
    places = list(dict.fromkeys(each.where for each in group))
    if len(places) == 1:
        return _shortened(places[0], _WHERE_CHARACTERS)
    return " … ".join(_shortened(places[i], _ONE_OF_TWO_CHARACTERS) for i in (0, -1))


def _shortened(where: str, most: int) -> str:
    words = where or MODEL_ITSELF
    half = most // 2
    return words if len(words) <= most else f"{words[:half]}…{words[1 - half :]}"


def saving_of(group: Rewrites) -> float | None:
    """Return the cost saved by the group, in seconds; None: unknown for one of them."""
    return sum_known(each.saving_s for each in group)


def _best_s(group: Rewrites) -> float | None:
    return max((each.saving_s for each in group if each.saving_s is not None), default=None)


def _operator_times(group: Rewrites) -> str:
    before = sum_known(each.measured_before_s for each in group)
    after = sum_known(each.measured_after_s for each in group)
    if before is None or after is None:
        return MISSING
    return f"{format_s(before)} → {format_s(after)}"


def _rewrites(found: Optimization, groups: Sequence[Rewrites], top: int) -> Grid:
    whole_s, shown = found.figures_before.cost_s, groups[:top]
    timed, numbers = "measured operator time", count(1)
    columns: dict[str, Callable[[Rewrites], str]] = {
        "#": lambda _: str(next(numbers)),
        "rule": name_of,
        "saving": lambda each: saving_or_loss(saving_of(each), format_s),
        "share of total": lambda each: _share(saving_of(each), whole_s),
        timed: _operator_times,
        "where": place_of,
    }
    if all(_operator_times(each) == MISSING for each in shown):
        del columns[timed]

    def total(words: str, saving_s: float | None) -> tuple[str, ...]:
        cells = ("", words, saving_or_loss(saving_s, format_s), _share(saving_s, whole_s))
        return (*cells, *("",) * (len(columns) - len(cells)))

    sums: list[tuple[str, ...]] = []
    if rest := [each for group in groups[top:] for each in group]:
        sums.append(total(f"{len(rest)} more ({argument('top', len(groups))})", saving_of(rest)))
    if (number := len(found.substitutions)) > 1:
        sums.append(total(f"all {number}", whole_s - found.figures_after.cost_s))
    title = "Rewrites of the candidate, not applied" if found.is_kept else "Applied rewrites"
    grid = table(
        f"{title}, in order of application",
        shown,
        columns,
        left=("rule", "where"),
        narrow=(timed, "share of total", "where"),
        sums=sums,
    )
    least = {"rule": 28, "where": 14}
    cut = (replace(each, least=least.get(each.heading, 0)) for each in grid.columns)
    return replace(grid, columns=tuple(cut))


def _share(saving_s: float | None, whole_s: float) -> str:
    """Return a saving as a share of the whole cost; negative: an increase."""
    if saving_s is None or whole_s <= 0:
        return MISSING
    share = saving_s / whole_s
    return format_percent(share) if share >= 0 else f"-{format_percent(-share)}"


def _why(groups: Sequence[Rewrites]) -> Iterable[str]:
    """Return the effects of rewrites with their numbers, grouped by rule and effect."""
    numbers: dict[str, list[str]] = {}
    for number, group in enumerate(groups, 1):
        reasons = list(dict.fromkeys(each.why for each in group if each.why))
        words = "; ".join(reasons[:2]) or "no reason given"
        if len(reasons) > 2:
            words += f"; {len(reasons) - 2} similar"
        numbers.setdefault(f"{group[0].rule}: {words}", []).append(str(number))
    return (f"{', '.join(alike)} · {words}" for words, alike in numbers.items())


def rejected_line(group: Rewrites, whole_s: float) -> str:
    """Return rule, location, reason and saving of rejected rewrites."""
    line = f"{name_of(group)} ({place_of(group)}): {group[0].why or 'no reason given'}"
    saving_s = _best_s(group)
    if saving_s is None:
        return line
    if not saving_s:
        return f"{line}; cost unchanged"
    adds = f"{'saves' if saving_s > 0 else 'adds'} {format_s(abs(saving_s))}"
    at_best = "at best " if len(group) > 1 else ""
    return f"{line}; {at_best}{adds} ({_share(abs(saving_s), whole_s)} of total)"


# -- timings, proofs, search -----------------------------------------------------------------------


def _timings(rounds: Sequence[Rounds]) -> Grid:
    return table(
        rounds_title("End-to-end times, interleaved", (each.allocator for each in rounds)),
        rounds,
        {
            "runtime": lambda each: _RUN[each.baseline],
            "candidate": "candidate",
            "original time": "before_s",
            "candidate time": "after_s",
            "speedup": lambda each: _with_interval(*each.speedup_text),
            "rounds": "rounds",
        },
        left=("runtime", "candidate"),
        narrow=("rounds",),
    )


def _proofs(proofs: Sequence[Proof]) -> Grid:
    """Return the largest errors; inputs of one data type and the same weights share a row."""
    alike: dict[tuple[object, ...], list[Proof]] = {}
    for number, each in enumerate(proofs):
        failure = None if each.holds else number
        alike.setdefault((each.dtype, each.weights, each.limit, failure), []).append(each)

    def error(group: Sequence[Proof]) -> str:
        largest = max(each.largest_error for each in group)
        return f"{largest:.1e}" if largest else "0"

    def argmax(group: Sequence[Proof]) -> str:
        known = (each.same_argmax for each in group if each.same_argmax is not None)
        return format_percent(min(known, default=None))

    return table(
        "Equivalence: largest output error relative to the largest output",
        alike.values(),
        {
            "data type": lambda group: group[0].dtype,
            "inputs": lambda group: ", ".join(each.inputs for each in group),
            "weights": lambda group: group[0].weights,
            "error": error,
            "limit": lambda group: f"{group[0].limit:.0e}",
            "same argmax": argmax,
            "within limit": lambda group: "yes" if group[0].holds else "NO",
        },
        left=("data type", "inputs", "weights", "within limit"),
        narrow=("weights", "same argmax"),
    )


def _search(found: Optimization) -> Iterable[tuple[str, str]]:
    search = found.statistics
    pieces = f" in {search.pieces} pieces" if search.pieces > 1 else ""
    ended = {
        "exhausted": "search space exhausted",
        "budget": f"budget exhausted ({argument('budget', found.budget)})",
        "time": f"time limit ({argument('time_limit_s')})",
    }[search.ended]
    yield (
        "Search",
        f"{counted(search.expanded, 'graph')} expanded{pieces} · {search.evaluated:,} evaluated ·"
        f" {search.duplicates:,} duplicates · {search.pruned:,} pruned by cost ·"
        f" {format_s(search.seconds, 2)} · ended: {ended}",
    )
    fused = f" · operator fusion ({argument('fused', True)})" * found.is_fused
    yield (
        "Settings",
        f"cost: {found.cost_name} · α {found.alpha:g} · budget {found.budget:,} ·"
        f" {counted(len(found.rules), 'rule')} · captured by {found.captured_by}{fused}",
    )
    if launches := _launches(found):
        yield "Launches", launches


def _launches(found: Optimization) -> str:
    """Return the launch overhead with its source; ``""``: unknown, or not part of the cost."""
    launches = launch_times(found.before.hardware)
    return launches.source if found.cost == "bound" and launches.default_s else ""
