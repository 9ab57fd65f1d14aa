"""Rewrites in words: many of a kind taken together, those that were rejected with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis.words import MODEL_ITSELF, saved_words
from roofline.foundation.rows import sum_known
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_percent, format_s
from roofline.substitution.result import Substitution

_SINGLE = 3
"""Up to so many rewrites by one rule have a row each."""

_WHERE_CHARACTERS = 48
_ONE_OF_TWO_CHARACTERS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroup:
    """Rewrites by one rule, in their order; those that were rejected for one reason."""

    rule: str
    members: tuple[Substitution, ...]

    @property
    def name(self) -> str:
        """``"fold-batch-norm"``, or ``"fold-batch-norm: 53 ×"``."""
        count = len(self.members)
        return printable(self.rule) + (f": {count} ×" if count > 1 else "")

    @property
    def where(self) -> str:
        """Where it is, or the first and the last place."""
        places = list(dict.fromkeys(each.where for each in self.members))
        if len(places) == 1:
            return place_words(places[0])
        first, last = (place_words(places[i], _ONE_OF_TWO_CHARACTERS) for i in (0, -1))
        return f"{first} … {last}"

    @property
    def saving_s(self) -> float | None:
        """What they save together by the search's cost; None where that is not known of one."""
        return sum_known(each.saving_s for each in self.members)

    @property
    def measured_s(self) -> tuple[float, float] | None:
        """What their operators took before and after; None where one of them was not timed."""
        before = sum_known(each.measured_before_s for each in self.members)
        after = sum_known(each.measured_after_s for each in self.members)
        return None if before is None or after is None else (before, after)

    @property
    def nearest(self) -> Substitution:
        """The one that is nearest to paying; the first where no cost is known."""
        return max(
            self.members,
            key=lambda each: float("-inf") if each.saving_s is None else each.saving_s,
        )


def place_words(where: str, most: int = _WHERE_CHARACTERS) -> str:
    """A place on one line, the middle of a long one left out; the model's own is said."""
    words = printable(where) or MODEL_ITSELF
    if len(words) <= most:
        return words
    half = most // 2
    return f"{words[:half]}…{words[1 - half :]}"


def groups_of_applied(substitutions: Sequence[Substitution]) -> tuple[RewriteGroup, ...]:
    """Those that were made, in their order; many by one rule stand where its first does."""
    by_rule: dict[str, list[Substitution]] = {}
    for each in substitutions:
        by_rule.setdefault(each.rule, []).append(each)
    found: list[RewriteGroup] = []
    for each in substitutions:
        alike = by_rule[each.rule]
        if len(alike) <= _SINGLE:
            found.append(RewriteGroup(rule=each.rule, members=(each,)))
        elif each is alike[0]:
            found.append(RewriteGroup(rule=each.rule, members=tuple(alike)))
    return tuple(found)


def groups_of_rejected(rejected: Sequence[Substitution]) -> tuple[RewriteGroup, ...]:
    """Those that were not made, by rule and reason; the nearest to paying first.

    Those whose cost is known come before those that were refused without one, which come by number.
    """
    by_reason: dict[tuple[str, str, bool], list[Substitution]] = {}
    for each in rejected:
        by_reason.setdefault((each.rule, each.why, each.saving_s is None), []).append(each)
    groups = [
        RewriteGroup(rule=rule, members=tuple(members))
        for (rule, _, _), members in by_reason.items()
    ]

    def urgency(group: RewriteGroup) -> tuple[bool, float, str]:
        saving = group.nearest.saving_s
        return (saving is None, -len(group.members) if saving is None else -saving, group.rule)

    return tuple(sorted(groups, key=urgency))


def saving_cell(saving_s: float | None) -> str:
    """What is saved; what adds to the cost is said to."""
    return saved_words(saving_s, format_s)


def share_cell(saving_s: float | None, whole_s: float) -> str:
    """A saving as a share of the whole; below 0 where it adds."""
    if saving_s is None or whole_s <= 0:
        return MISSING
    share = saving_s / whole_s
    return format_percent(share) if share >= 0 else f"-{format_percent(-share)}"


def measured_cell(group: RewriteGroup) -> str:
    """What the operators took before and after: ``"1.3 ms → 0.9 ms"``."""
    both = group.measured_s
    return MISSING if both is None else f"{format_s(both[0])} → {format_s(both[1])}"


def why_lines(groups: Sequence[RewriteGroup]) -> tuple[str, ...]:
    """Why rewrites were made, by their numbers from 1; those of one rule and reason together."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, group in enumerate(groups, 1):
        numbers.setdefault((printable(group.rule), _reasons(group)), []).append(number)
    return tuple(
        f"{', '.join(map(str, alike))} · {rule}: {why}" for (rule, why), alike in numbers.items()
    )


def _reasons(group: RewriteGroup) -> str:
    """The reasons that there are in a group, and how many more."""
    reasons = list(dict.fromkeys(printable(each.why) for each in group.members if each.why))
    left = len(reasons) - 2
    shown = "; ".join(reasons[:2]) or "no reason is given"
    return shown + f"; and {left} more like these" * (left > 0)


def rejected_line(group: RewriteGroup, whole_s: float) -> str:
    """Which rule was not applied where, why, and what it would have cost."""
    reason = printable(group.members[0].why) or "no reason is given"
    line = f"{group.name} ({group.where}): {reason}"
    saving = group.nearest.saving_s
    if saving is None:
        return line
    if not saving:
        return f"{line}; by this cost it changes nothing"
    word = "saves" if saving >= 0 else "adds"
    amount = f"{format_s(abs(saving))}, {share_cell(abs(saving), whole_s)} of a pass"
    nearest = "the nearest of them " if len(group.members) > 1 else ""
    return f"{line}; {nearest}{word} {amount}"
