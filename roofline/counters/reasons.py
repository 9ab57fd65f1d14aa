"""Reasons for differences: a counter's rules applied to our operators.

Every amount is the counter's count of some operators minus ours, so that our total plus all amounts
is exactly its number. The rest is an amount "not explained".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofline.counters.conventions import (
    Convention,
    Portion,
    Reported,
    Rule,
    base_name,
    canonical_label,
)
from roofline.counters.result import Difference, Source
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.work import FLOP_PER_MAC

_PORTIONS: tuple[Portion, ...] = ("product", "rest")


def differences(
    records: Iterable[OperatorRecord], reported: Reported, convention: Convention
) -> tuple[Difference, ...]:
    """Return the differences between a counter's number and our total, largest first."""
    working = [record for record in records if record.state is not State.FREE]
    reasons = _Reasons(reported, convention)
    if convention.forward_only:
        unseen = [record for record in working if record.phase != "forward"]
        working = [record for record in working if record.phase == "forward"]
        ours = sum(_ours(record, of, convention) for record in unseen for of in _PORTIONS)
        reasons.add("backward pass", "counts the forward pass only", len(unseen), -ours, "rule")
    for portion in _PORTIONS:
        reasons.explain(working, portion)
    in_breakdown = sum(reported.product.values()) + sum(reported.rest.values())
    unexplained = "not explained: the number is not the sum of its breakdown"
    reasons.add("its total", unexplained, 0, reported.number - in_breakdown, "none")
    found = [each for each in reasons.found.values() if each.amount]
    return tuple(sorted(found, key=lambda each: -abs(each.amount)))


def in_our_unit(reported: Reported, convention: Convention) -> int | float:
    """Return a counter's number in MACs or FLOP."""
    return _per(reported.number, convention.per_unit)


def _per(count: int, unit: int) -> int | float:
    """Return `count` over `unit`, as an int if exact."""
    return count // unit if count % unit == 0 else count / unit


def _ours(record: OperatorRecord, portion: Portion, convention: Convention) -> int:
    """Return our count of a call in the counter's unit; 0 if unknown."""
    work = record.work
    if work.flop is None or work.macs is None:
        return 0
    if convention.measure == "macs":
        return work.macs * convention.per_unit if portion == "product" else 0
    product = FLOP_PER_MAC * work.macs
    return (product if portion == "product" else work.flop - product) * convention.per_unit


@dataclass(slots=True)
class _Share:
    """Operators of one rule, or of none, with our count."""

    records: list[OperatorRecord] = field(default_factory=list[OperatorRecord])
    ours: int = 0


class _Reasons:
    """Differences by kind and reason."""

    def __init__(self, reported: Reported, convention: Convention) -> None:
        self._reported = reported
        self._convention = convention
        self.found: dict[tuple[str, str], Difference] = {}

    def add(self, kind: str, reason: str, calls: int, amount: int, source: Source) -> None:
        """Add an amount in the counter's unit."""
        amount_in_ours = _per(amount, self._convention.per_unit)
        before = self.found.get((kind, reason))
        self.found[kind, reason] = Difference(
            kind=kind,
            reason=reason,
            calls=max(calls, before.calls if before else 0),
            amount=amount_in_ours + (before.amount if before else 0),
            source=source,
        )

    def explain(self, records: Sequence[OperatorRecord], portion: Portion) -> None:
        """Add the differences of one portion."""
        reported, convention = self._reported, self._convention
        breakdown = reported.product if portion == "product" else reported.rest
        rules = [rule for rule in convention.rules if rule.portion == portion]
        shares = [_Share() for _ in rules]
        without: dict[str, _Share] = {}
        for record in records:
            number = next((i for i, rule in enumerate(rules) if rule.matches(record)), None)
            name = base_name(record.op)
            name = canonical_label(name) if convention.by_name else name
            of = without.setdefault(name, _Share()) if number is None else shares[number]
            of.records.append(record)
            of.ours += _ours(record, portion, convention)
        owned = {label for rule in rules if rule.count is not None for label in rule.labels}
        # Breakdown of rules without a count.
        by_breakdown = {
            number: sum(breakdown.get(label, 0) for label in rule.labels - owned)
            for number, rule in enumerate(rules)
            if rule.count is None
        }
        for rule, share in zip(rules, shares, strict=True):
            if rule.count is None:
                continue
            calls, expected = len(share.records), sum(map(rule.count, share.records))
            if expected != share.ours:
                self.add(rule.kind, rule.description, calls, expected - share.ours, "rule")
            for label in sorted(rule.labels & reported.left_out.keys()):
                if portion == "product":
                    left_out = reported.left_out[label]
                    expected -= left_out
                    description = f"leaves {label} out of this number, counts it in another"
                    self.add(label, description, 0, -left_out, "breakdown")
            amount = sum(breakdown.get(label, 0) for label in rule.labels) - expected
            # Rules without labels have no breakdown.
            if not amount or not rule.labels:
                continue
            # The amount belongs to a rule without a count that shares labels.
            sharing = (
                i for i in by_breakdown if shares[i].records and rules[i].labels & rule.labels
            )
            if (other := next(sharing, None)) is not None:
                by_breakdown[other] += amount
            else:
                self._add_leftover(rule, calls, amount, breakdown)
        for number, counted in by_breakdown.items():
            rule, share = rules[number], shares[number]
            self.add(
                rule.kind, rule.description, len(share.records), counted - share.ours, "breakdown"
            )
        ruled = {label for rule in rules for label in rule.labels}
        self._add_without_rule(
            without, {label: count for label, count in breakdown.items() if label not in ruled}
        )

    def _add_leftover(
        self, rule: Rule, calls: int, amount: int, breakdown: Mapping[str, int]
    ) -> None:
        """Add the part of the breakdown that a rule does not give.

        It is explained if the counter reports that it could not count, else not.
        """
        no_rule_for = self._reported.no_rule_for
        refused = sorted(rule.labels & no_rule_for.keys())
        if refused and amount < 0:
            names = ", ".join(f"{label} ({no_rule_for[label]})" for label in refused)
            reason = f"reports calls without a rule: {names}"
            self.add(rule.kind, reason, calls, amount, "breakdown")
            return
        names = ", ".join(sorted(rule.labels & breakdown.keys())) or "nothing"
        reason = f"not explained: its breakdown ({names}) contradicts its rule"
        self.add(rule.kind, f"{reason} ({rule.description})", calls, amount, "none")

    def _add_without_rule(self, without: Mapping[str, _Share], others: Mapping[str, int]) -> None:
        """Add operators that the counter misses, and labels that only it has."""
        by_name: dict[str, int] = {}
        for label, count in others.items():
            name = canonical_label(label) if self._convention.by_name else label
            by_name[name] = by_name.get(name, 0) + count
        for name, share in without.items():
            counted = by_name.pop(name, None) if self._convention.by_name else None
            reason = f"counts {name} by its own rule"
            if counted is None:
                first = share.records[0]
                kind = "recurrent layers" if first.type == "recurrent" else first.type
                what = kind if first.work.macs else name
                reason = f"misses {what}: no rule for {name if what != name else 'it'}"
            source = "rule" if counted is None else "breakdown"
            self.add(name, reason, len(share.records), (counted or 0) - share.ours, source)
        for name, count in by_name.items():
            reason = f"not explained: its breakdown has '{name}', the pass has no such operator"
            self.add(name, reason, 0, count, "none")
