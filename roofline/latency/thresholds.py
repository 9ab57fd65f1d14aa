"""Conditions on the figures of a validation, as ``--fail-if`` takes them: ``mape>15%``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from roofline.errors import InputError, ThresholdError, nearest
from roofline.foundation.text import printable
from roofline.latency.accuracy import FIGURES, ValidationTotals

_FORM = re.compile(r"\s*([a-z0-9_]+)\s*([<>])\s*([+-]?[0-9.]+)\s*(%?)\s*", re.IGNORECASE)

_NOTHING_TO_JUDGE = {
    "operator_error": "no operators were predicted",
    "close_pairs_right": "no two models that were predicted take 1.05 to 1.5 times as long as each"
    " other",
    "bound_validity": "no operator has a bound",
    "ratio_error": "no pair of designs was predicted; --designs has them",
    "interval_coverage": "no prediction has an interval",
    "noise_floor": "nothing was measured twice",
    "measured_operators_mape": "no operators were timed one by one; --operators measured does it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a figure must not be: above or below a limit, which is a fraction."""

    figure: str
    sign: Literal["<", ">"]
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition written as ``mape>15%`` or ``within_10_percent<0.55``.

        Raises:
            InputError: not of that form, a figure that there is not, or a limit that is none.
        """
        shown = f"--fail-if '{printable(text)}'"
        found = _FORM.fullmatch(text)
        if not found:
            raise InputError(
                f"{shown}: is not of the form 'mape>15%' (in quotes, or the shell takes > for its"
                " own)"
            )
        figure, sign, number, percent = found.groups()
        if figure.lower() not in FIGURES:
            raise InputError(
                f"{shown}: no figure '{figure}'{nearest(figure.lower(), FIGURES)} (there are"
                f" {', '.join(FIGURES)})"
            )
        try:
            limit = float(number)
        except ValueError:
            raise InputError(f"{shown}: '{number}' is not a number") from None
        if not percent and abs(limit) > 1:
            # Whoever writes 15 means percent, and a limit of 1500 % would never fail.
            raise InputError(f"{shown}: {number} is neither a fraction nor a percentage; add %")
        return cls(
            figure=figure.lower(),
            sign="<" if sign == "<" else ">",
            limit=limit / 100 if percent else limit,
        )

    def failure(self, totals: ValidationTotals) -> str:
        """Why the condition fails, in words; ``""`` if it does not.

        A figure that is not known fails: nobody shall take it for a good one.
        """
        value: float | None = getattr(totals, self.figure)
        if value is None:
            why = _NOTHING_TO_JUDGE.get(self.figure, "nothing was predicted")
            return f"{self.figure} cannot be judged: {why}"
        fails = value > self.limit if self.sign == ">" else value < self.limit
        if not fails:
            return ""
        beyond = "above" if self.sign == ">" else "below"
        return f"{self.figure} is {_apart(value, self.limit)}, {beyond} {100 * self.limit:.4g} %"


def _apart(value: float, limit: float) -> str:
    """`value` in percent, with as many digits as tell it from `limit`."""
    texts = ((f"{100 * value:.{n}f} %", f"{100 * limit:.{n}f} %") for n in range(1, 12))
    return next((text for text, other in texts if text != other), f"{100 * value} %")


def check_thresholds(conditions: Iterable[Condition], totals: ValidationTotals) -> None:
    """Fails where one of the conditions does.

    Raises:
        ThresholdError: naming all that fail.
    """
    failures = [said for each in conditions if (said := each.failure(totals))]
    if failures:
        raise ThresholdError(f"--fail-if: {'; '.join(failures)}")
