"""Why a counter's number is not ours: its rules, applied to the operators that we saw.

Every amount is what the counter counts for some operators less what we count for them, so ours
plus all amounts is its number, exactly. What its rules do not give is one more amount, with the
words "not explained".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from roofline.counters.result import Difference
from roofline.counters.rules import (
    Convention,
    Portion,
    Reported,
    Rule,
    functional,
    plain_name,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.work import FLOP_PER_FMA

_PORTIONS: tuple[Portion, ...] = ("product", "rest")


@dataclass(slots=True)
class _Share:
    """The operators that one rule, or none, is about."""

    records: list[OperatorRecord] = field(default_factory=list[OperatorRecord])
    ours: int = 0

    def add(self, record: OperatorRecord, ours: int) -> None:
        self.records.append(record)
        self.ours += ours


def differences(
    records: Iterable[OperatorRecord], reported: Reported, convention: Convention
) -> tuple[Difference, ...]:
    """The reasons for the difference between a counter's number and our total, largest first.

    Args:
        records: the operators that we saw.
        reported: the counter's number and its breakdown, in its own unit.
        convention: what that number means.
    """
    working = [record for record in records if record.state is not State.FREE]
    found: list[Difference] = []
    if convention.forward_only:
        unseen = [record for record in working if record.phase != "forward"]
        working = [record for record in working if record.phase == "forward"]
        found.append(_unseen(unseen, convention))
    in_breakdown = 0
    for portion in _PORTIONS:
        breakdown = reported.product if portion == "product" else reported.rest
        in_breakdown += sum(breakdown.values())
        found += _of_portion(working, portion, breakdown, reported, convention)
    outside = reported.number - in_breakdown
    if outside:
        found.append(
            Difference(
                kind="its total",
                reason="not explained: its number is not the sum of its own breakdown",
                calls=0,
                amount=_per(outside, convention.per_unit),
                source="none",
            )
        )
    return tuple(sorted(_merged(found), key=lambda each: -abs(each.amount)))


def in_our_unit(reported: Reported, convention: Convention) -> int | float:
    """A counter's number in multiply-adds or FLOP as ours."""
    return _per(reported.number, convention.per_unit)


def _unseen(records: Sequence[OperatorRecord], convention: Convention) -> Difference:
    counts = (_ours(record, portion, convention) for record in records for portion in _PORTIONS)
    return Difference(
        kind="backward pass",
        reason="counts the forward pass only",
        calls=len(records),
        amount=_per(-sum(counts), convention.per_unit),
        source="rule",
    )


def _ours(record: OperatorRecord, portion: Portion, convention: Convention) -> int:
    """What we count for a call, in the counter's unit; 0 where it is unknown."""
    work = record.work
    if work.flop is None or work.macs is None:
        return 0
    if convention.measure == "macs":
        return work.macs * convention.per_unit if portion == "product" else 0
    product = FLOP_PER_FMA * work.macs
    return (product if portion == "product" else work.flop - product) * convention.per_unit


def _of_portion(
    records: Sequence[OperatorRecord],
    portion: Portion,
    breakdown: Mapping[str, int],
    reported: Reported,
    convention: Convention,
) -> Iterable[Difference]:
    rules = [rule for rule in convention.rules if rule.portion == portion]
    shares: dict[int, _Share] = {number: _Share() for number in range(len(rules))}
    without: dict[str, _Share] = {}
    for record in records:
        ours = _ours(record, portion, convention)
        for number, rule in enumerate(rules):
            if rule.matches(record):
                shares[number].add(record, ours)
                break
        else:
            without.setdefault(_name(record, convention), _Share()).add(record, ours)
    leftover = _Leftover(rules, shares, breakdown)
    for number, rule in enumerate(rules):
        if rule.count is not None:
            expected = sum(map(rule.count, shares[number].records))
            if expected != shares[number].ours:
                yield _difference(rule, shares[number], expected, "rule", convention)
            labels = rule.labels & reported.left_out.keys() if portion == "product" else ()
            for label in sorted(labels):
                expected -= reported.left_out[label]
                yield Difference(
                    kind=label,
                    reason=f"leaves {label} out of this number, though it counts it in another",
                    calls=0,
                    amount=_per(-reported.left_out[label], convention.per_unit),
                    source="breakdown",
                )
            yield from leftover.of(rule, shares[number], expected, reported, convention)
    for number, rule in enumerate(rules):
        if rule.count is None:
            counted = leftover.counted_by(number)
            yield _difference(rule, shares[number], counted, "breakdown", convention)
    ruled = {label for rule in rules for label in rule.labels}
    others = {label: count for label, count in breakdown.items() if label not in ruled}
    yield from _without_rule(without, others, convention)


class _Leftover:
    """What the breakdown has for operators beyond what the counted rules give.

    It goes to a rule without a count that has operators and shares labels; where there is none,
    the counter may say itself that it could not count; else it is not explained.
    """

    def __init__(
        self, rules: Sequence[Rule], shares: Mapping[int, _Share], breakdown: Mapping[str, int]
    ) -> None:
        self._breakdown = breakdown
        owned = {label for rule in rules if rule.count is not None for label in rule.labels}
        self._rules = {number: rule for number, rule in enumerate(rules) if rule.count is None}
        self._counted = {
            number: sum(breakdown.get(label, 0) for label in rule.labels - owned)
            for number, rule in self._rules.items()
        }
        self._with_operators = [number for number in self._rules if shares[number].records]

    def counted_by(self, number: int) -> int:
        """What the counter counted by a rule without a count."""
        return self._counted[number]

    def of(
        self,
        rule: Rule,
        share: _Share,
        expected: int,
        reported: Reported,
        convention: Convention,
    ) -> Iterable[Difference]:
        """The difference between what a rule gives and what the breakdown has, if there is one."""
        amount = sum(self._breakdown.get(label, 0) for label in rule.labels) - expected
        # Rules without labels are about what its breakdown does not have.
        if not amount or not rule.labels:
            return
        for number in self._with_operators:
            if self._rules[number].labels & rule.labels:
                self._counted[number] += amount
                return
        refused = {
            label: calls for label, calls in reported.no_rule_for.items() if label in rule.labels
        }
        if refused and amount < 0:
            calls = ", ".join(f"{label} ({calls})" for label, calls in sorted(refused.items()))
            reason, source = f"says itself that it could not count some calls: {calls}", "breakdown"
        else:
            names = ", ".join(sorted(rule.labels & self._breakdown.keys())) or "nothing"
            reason, source = (
                f"not explained: its breakdown has {names} for these, which is not what its rule"
                f" gives ({rule.says})",
                "none",
            )
        yield Difference(
            kind=rule.kind,
            reason=reason,
            calls=len(share.records),
            amount=_per(amount, convention.per_unit),
            source=source,
        )


def _difference(
    rule: Rule, share: _Share, counted: int, source: Literal["rule", "breakdown"], to: Convention
) -> Difference:
    return Difference(
        kind=rule.kind,
        reason=rule.says,
        calls=len(share.records),
        amount=_per(counted - share.ours, to.per_unit),
        source=source,
    )


def _without_rule(
    without: Mapping[str, _Share], others: Mapping[str, int], convention: Convention
) -> Iterable[Difference]:
    """What no rule is about: operators that the counter misses, and labels that it alone has."""
    by_name: dict[str, int] = {}
    for label, count in others.items():
        name = plain_name(label) if convention.by_name else label
        by_name[name] = by_name.get(name, 0) + count
    for name, share in without.items():
        counted = by_name.pop(name, None) if convention.by_name else None
        yield Difference(
            kind=name,
            reason=_missed(name, share.records[0])
            if counted is None
            else f"counts {name} in its own way",
            calls=len(share.records),
            amount=_per((counted or 0) - share.ours, convention.per_unit),
            source="rule" if counted is None else "breakdown",
        )
    for name, count in by_name.items():
        yield Difference(
            kind=name,
            reason=f"not explained: its breakdown has '{name}', and we saw no such operator",
            calls=0,
            amount=_per(count, convention.per_unit),
            source="none",
        )


def _missed(name: str, record: OperatorRecord) -> str:
    kind = "recurrent layers" if record.type == "recurrent" else record.type
    what = kind if record.work.macs else name
    return f"misses {what}: it has no rule for {name if what != name else 'it'}"


def _name(record: OperatorRecord, convention: Convention) -> str:
    name = functional(record.op)
    return plain_name(name) if convention.by_name else name


def _merged(found: Iterable[Difference]) -> Iterable[Difference]:
    """One for each reason, without those that change nothing."""
    together: dict[tuple[str, str], Difference] = {}
    for each in found:
        key = each.kind, each.reason
        before = together.get(key)
        if before is None:
            together[key] = each
            continue
        together[key] = Difference(
            kind=each.kind,
            reason=each.reason,
            calls=max(before.calls, each.calls),
            amount=before.amount + each.amount,
            source=each.source,
        )
    return [each for each in together.values() if each.amount]


def _per(count: int, unit: int) -> int | float:
    """`count` in units of `unit`; a whole number wherever it is one."""
    return count // unit if count % unit == 0 else count / unit
