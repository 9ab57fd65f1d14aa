"""Pytest plugin: a fixture that checks the cost of a model against a baseline.

pytest loads it where roofline is installed::

    def test_cost(roofline_check):
        roofline_check(MyModel(), (1, 3, 224, 224), fail_if=["flop>+1%", "launches>+0"])

``pytest --roofline-update`` writes the baselines, next to the tests in ``roofline-baselines/``.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from roofline.errors import RooflineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofline.design.gate.result import Check

FOLDER = "roofline-baselines"
"""Folder of baselines, next to the test file."""

COUNTS = (
    "flop>+0%",
    "macs>+0%",
    "traffic_bytes>+0%",
    "parameters>+0%",
    "peak_memory_bytes>+0%",
    "launches>+0%",
)
"""Default conditions: no count may rise. Counts are equal on all machines."""

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--roofline-update``."""
    group = parser.getgroup("roofline", "roofline: cost of models")
    group.addoption(
        "--roofline-update",
        action="store_true",
        help="write new baselines for roofline_check instead of checking",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report the update mode in the header."""
    if config.getoption("--roofline-update"):
        return ["roofline: writing baselines, checking nothing (--roofline-update)"]
    return []


class RooflineCheck:
    """Value of the fixture `roofline_check`: a call checks a model and fails the test.

    Args:
        file: file of the test.
        name: name of the test, with its classes and parameters.
        update: write baselines instead of checking.
    """

    def __init__(self, file: Path, name: str, *, update: bool) -> None:
        self._folder = file.parent / FOLDER
        self._stem = f"{_file_name(file.stem)}.{_file_name(name)}"
        self._update = update
        self._calls = 0

    def __call__(
        self,
        model: Any,
        inputs: Any = None,
        *,
        fail_if: Sequence[str] | str = COUNTS,
        against: str | Path | None = None,
        **options: Any,
    ) -> Check:
        """Compare the cost of `model` with its baseline; fail the test if a condition fails.

        Args:
            model: a model as for `roofline.check`, or the result of `roofline.track`.
            inputs: inputs of the model.
            fail_if: failure conditions [default: any count rises].
            against: baseline file [default: ``roofline-baselines/FILE.TEST.json``, for a second
                call ``FILE.TEST-2.json``].
            options: as for `roofline.check`.

        Returns:
            The passed check.
        """
        self._calls += 1
        number = f"-{self._calls}" if self._calls > 1 else ""
        file = Path(against or self._folder / f"{self._stem}{number}.json")
        if self._update:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                _fail(f"{file}: cannot create folder '{file.parent}': {why}; use another: against=")
        elif not os.path.lexists(file):
            _fail(f"{file}: no baseline yet; write it with `pytest --roofline-update`")
        from roofline.pipeline.checking import check
        from roofline.pipeline.tracking import Tracked

        again = f"If intended, run pytest --roofline-update to rewrite {file}."
        subject = model.cost if isinstance(model, Tracked) else model
        try:
            result = check(
                subject, inputs, against=file, fail_if=fail_if, update=self._update, **options
            )
        except RooflineError as error:
            # Errors of a baseline begin with its file name.
            _fail(f"{error}\n{again}" if str(error).startswith(f"{file}: ") else str(error))
        if not result.passes:
            # A new baseline would not help for missing formulas.
            is_beyond = any(each.outcome == "fails" for each in result.judgements)
            _fail(f"{result}{again if is_beyond else ''}")
        return result


@pytest.fixture
def roofline_check(request: pytest.FixtureRequest) -> RooflineCheck:
    """Check the cost of a model: ``roofline_check(model, inputs, fail_if=["flop>+1%"])``."""
    update = bool(request.config.getoption("--roofline-update"))
    node: pytest.Item = request.node
    # Tests of several classes may have the same name.
    classes = [each.name for each in node.listchain() if isinstance(each, pytest.Class)]
    return RooflineCheck(request.path, ".".join((*classes, node.name)), update=update)


def _fail(message: str) -> NoReturn:
    # From None: pytest would print the error twice.
    raise pytest.fail.Exception(message, pytrace=False) from None


def _file_name(test: str) -> str:
    """Return a unique, valid file name for a test."""
    fit = _UNFIT.sub("-", test)[:_LONGEST]
    return fit if fit == test else f"{fit}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
