"""What the report on an optimization says: the verdict, figures, rewrites, timings and proofs."""

from __future__ import annotations

from datetime import date

from roofline.analysis import fit_warnings
from roofline.analysis.facts import model_fact, run_fact
from roofline.analysis.words import hardware_fact
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_s
from roofline.presentation.reports.optimization_rewrites import (
    groups_of_applied,
    groups_of_rejected,
    rejected_line,
    why_lines,
)
from roofline.presentation.reports.optimization_tables import (
    figures_grid,
    proofs_grid,
    rewrites_grid,
    rounds_grid,
)
from roofline.render.pages import report_html
from roofline.substitution.costs.launches import launches_on
from roofline.substitution.result import Optimization
from roofline.substitution.rules.rule import Rule
from roofline.substitution.verdict import bounds_words

DEFAULT_TOP = 10

_COST = {
    "bound": "{bounds}",
    "predicted": "predictions",
    "measured": "operators' measured times",
}


def optimization_report(
    optimization: Optimization, *, top: int | None = None, today: date | None = None
) -> Report:
    """The report on an optimization.

    Args:
        optimization: what a search came to.
        top: how many rewrites, and reasons against others, are shown; None: 10.
        today: for the hardware's age; None gives dates alone.
    """
    most = top or DEFAULT_TOP
    analysis = optimization.before
    facts = (model_fact(analysis), *run_fact(analysis), hardware_fact(analysis, today))
    blocks: list[Block] = [Facts(lines=facts)]
    blocks.append(figures_grid(optimization))
    groups = groups_of_applied(optimization.substitutions)
    if groups:
        blocks.append(rewrites_grid(optimization, groups, most))
        blocks.append(Notes(title="Why", lines=why_lines(groups[:most]), urgent=False))
    blocks += _rejected(optimization, most)
    if optimization.rounds:
        blocks.append(rounds_grid(optimization))
    if optimization.proofs:
        blocks.append(proofs_grid(optimization))
    blocks.append(Facts(lines=tuple(_search_facts(optimization))))
    warnings = _warnings(optimization)
    if warnings:
        blocks.append(Notes(title="Warnings", lines=warnings))
    return Report(headline=optimization.summary, blocks=tuple(blocks))


def _rejected(optimization: Optimization, most: int) -> list[Block]:
    groups = groups_of_rejected(optimization.rejected)
    if not groups:
        return []
    whole = optimization.figures_before.cost_s
    lines = [rejected_line(each, whole) for each in groups[:most]]
    rest = sum(len(each.members) for each in groups[most:])
    if rest:
        lines.append(f"and {rest} more (--top {len(groups)}; all of them in .csv and .json)")
    return [Notes(title="Not made, the nearest to paying first", lines=tuple(lines), urgent=False)]


def _search_facts(optimization: Optimization) -> list[tuple[str, str]]:
    found = optimization.statistics
    pieces = f" in {found.pieces} pieces" if found.pieces > 1 else ""
    ended = {
        "exhausted": "nothing was left to try",
        "budget": f"the budget of {optimization.budget:,} was used up (--budget)",
        "time": "the time was up (--time-limit)",
    }[found.ended]
    counts = (
        f"{found.expanded:,} graphs looked through{pieces}",
        f"{found.evaluated:,} given a cost",
        f"{found.duplicates:,} met again",
        f"{found.pruned:,} dropped for their cost",
        format_s(found.seconds, 2),
        f"ended: {ended}",
    )
    by = _COST[optimization.cost].format(bounds=bounds_words(optimization))
    fused = " · activations counted inside their operators (--fused)" * optimization.is_fused
    rules = len(optimization.rules)
    how = (
        f"cost: {by} · α {optimization.alpha:g} · budget {optimization.budget:,}"
        f" · {counted(rules, 'rule')}"
        f" · captured by {printable(optimization.captured_by)}{fused}"
    )
    facts = [("Search", " · ".join(counts)), ("Settings", how)]
    if launches := _launches(optimization):
        facts.append(("Launches", printable(launches)))
    return facts


def _warnings(optimization: Optimization) -> tuple[str, ...]:
    failed = [
        f"the proof in {each.dtype} on {each.inputs} fails: its error of"
        f" {each.largest_error:.1e} is above {each.limit:.0e}"
        for each in optimization.proofs
        if not each.holds
    ]
    # The result has most warnings of the original: it is the same model on the same machine.
    said = (
        *failed,
        *optimization.warnings,
        *(
            line
            for each in (optimization.before, optimization.after)
            for line in (*fit_warnings(each), *each.warnings)
        ),
    )
    # What launches cost stands with the search.
    launches = _launches(optimization)
    return tuple(dict.fromkeys(printable(each) for each in said if each != launches))


def _launches(optimization: Optimization) -> str:
    """What a launch was taken to cost, and whence; ``""``: not known, or no part of costs."""
    launches = launches_on(optimization.before.hardware)
    return launches.said if optimization.cost == "bound" and launches.usual_s else ""


def optimization_html(optimization: Optimization) -> str:
    """The report as one HTML element for notebooks; everything is escaped."""
    return report_html(optimization_report(optimization))


def rules_report(rules: tuple[Rule, ...]) -> Report:
    """What `roofline optimize --list-rules` says: every rule, what it may cost and does."""
    columns = (
        Column(heading="rule"),
        Column(heading="is"),
        Column(heading="does", least=24),
    )
    rows = tuple((printable(each.name), each.safety, printable(each.summary)) for each in rules)
    safe = sum(each.safety == "safe" for each in rules)
    headline = (
        f"{counted(len(rules), 'rule')}, {safe} of them safe: those never add work nor"
        " change layouts"
    )
    return Report(headline=headline, blocks=(Grid(title="", columns=columns, rows=rows),))
