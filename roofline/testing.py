"""The pytest plugin: a fixture that pins what a model costs, and an option that writes baselines.

pytest finds it by itself where roofline is installed::

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
"""Where baselines are, next to the file of their test."""

COUNTS = (
    "flop>+0%",
    "macs>+0%",
    "traffic_bytes>+0%",
    "parameters>+0%",
    "peak_memory_bytes>+0%",
    "launches>+0%",
)
"""The conditions where a test names none: no count may rise. All are the same on every machine."""

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--roofline-update``."""
    group = parser.getgroup("roofline", "roofline: what models cost")
    group.addoption(
        "--roofline-update",
        action="store_true",
        help="write what roofline_check finds as new baselines, instead of judging it",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says where nothing is judged, because baselines are written."""
    if config.getoption("--roofline-update"):
        return ["roofline: baselines are written, and nothing is judged (--roofline-update)"]
    return []


class RooflineCheck:
    """What the fixture `roofline_check` gives: called with a model, it fails the test or passes.

    Args:
        file: the test's.
        name: the test's, with its classes and parameters.
        update: whether baselines are written.
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
        """Compare the cost of `model` with its baseline; fail the test where a condition fails.

        Args:
            model: what `roofline.check` takes, or what `roofline.track` gave.
            inputs: what it is called with.
            fail_if: when it fails; by default where any count rises.
            against: the baseline; None: ``roofline-baselines/FILE.TEST.json``, of a
                second call ``FILE.TEST-2.json``.
            options: as for `roofline.check`.

        Returns:
            The check, which passed.
        """
        self._calls += 1
        number = f"-{self._calls}" if self._calls > 1 else ""
        file = Path(against or self._folder / f"{self._stem}{number}.json")
        if self._update:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                said = getattr(error, "strerror", None) or error
                what = f"{file}: the folder '{file.parent}' cannot be made: {said}"
                _fail(f"{what}; name another: against=")
        elif not os.path.lexists(file):
            _fail(f"{file}: there is no baseline yet; write it with `pytest --roofline-update`")
        from roofline.pipeline.checking import check
        from roofline.pipeline.tracking import Tracked

        again = f"If that is meant: pytest --roofline-update writes {file} again."
        subject = model.cost if isinstance(model, Tracked) else model
        try:
            result = check(
                subject, inputs, against=file, fail_if=fail_if, update=self._update, **options
            )
        except RooflineError as error:
            # What is wrong with a baseline begins with its name.
            _fail(f"{error}\n{again}" if str(error).startswith(f"{file}: ") else str(error))
        if not result.passes:
            # What has no formula now will have none in a new baseline.
            is_beyond = any(each.outcome == "fails" for each in result.judgements)
            _fail(f"{result}{again if is_beyond else ''}")
        return result


@pytest.fixture
def roofline_check(request: pytest.FixtureRequest) -> RooflineCheck:
    """Pins what a model costs: ``roofline_check(model, inputs, fail_if=["flop>+1%"])``."""
    update = bool(request.config.getoption("--roofline-update"))
    node: pytest.Item = request.node
    # Tests of several classes may have the same name.
    classes = [each.name for each in node.listchain() if isinstance(each, pytest.Class)]
    return RooflineCheck(request.path, ".".join((*classes, node.name)), update=update)


def _fail(said: str) -> NoReturn:
    # From none: pytest would print what was wrong twice.
    raise pytest.fail.Exception(said, pytrace=False) from None


def _file_name(test: str) -> str:
    """The name of a test as a file may have it; another one for each test."""
    fit = _UNFIT.sub("-", test)[:_LONGEST]
    return fit if fit == test else f"{fit}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
