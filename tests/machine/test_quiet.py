"""Whether the machine is quiet, from counters that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.errors import MeasurementError
from roofline.machine.system.activity import Activity, check_quiet, memory_pressure
from roofline.machine.system.topology import Topology


def topology() -> Topology:
    return Topology(
        available_cpus=2,
        cores=(0, 1),
        hidden_siblings=0,
        quota_cpus=None,
        caches=(),
        allowed_cpus=(0, 1),
    )


def look(
    others_s: float | None, *, elapsed_s: float = 0.25, watched: int = 2, force: bool = False
) -> tuple[str, ...]:
    """Two readings `elapsed_s` apart, in which others computed for so long."""

    def at(busy_s: float | None, own_s: float) -> Activity:
        return Activity(
            steal_s=0.0, throttled=0, load=None, busy_s=busy_s, own_s=own_s, watched=watched
        )

    after = None if others_s is None else 50.0 + others_s + 0.01
    readings = iter([at(None if others_s is None else 50.0, 3.0), at(after, 3.01)])
    times = iter([10.0, 10.0 + elapsed_s])
    slept: list[float] = []
    found = check_quiet(
        topology(),
        force=force,
        read_now=lambda: next(readings),
        clock=lambda: next(times),
        sleep=slept.append,
    )
    assert len(slept) == 1 and 0 < slept[0] <= 1
    return found


def test_quiet() -> None:
    assert look(0.0) == ()
    # A fifth of both CPUs is allowed, and no more.
    assert look(0.2 * 2 * 0.25 - 0.001) == ()


def test_busy_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(MeasurementError) as caught:
        look(0.25)
    text = str(caught.value)
    assert "busy" in text and "50" in text and "--force" in text
    assert "\n" not in text
    with pytest.raises(MeasurementError):
        look(0.2 * 2 * 0.25 + 0.001)


def test_force_measures_and_says_so() -> None:
    (said,) = look(0.25, force=True)
    assert "busy" in said and "50" in said
    assert look(0.0, force=True) == ()


def test_what_cannot_be_read_is_quiet() -> None:
    assert look(None) == ()
    assert look(None, force=True) == ()
    # A clock that does not go on.
    assert look(0.5, elapsed_s=0.0) == ()


def pressure(root: Path, text: str | bytes) -> tuple[str, ...]:
    folder = root / "proc/pressure"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory").write_bytes(text.encode() if isinstance(text, str) else text)
    return memory_pressure(root)


FULL = "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"


def test_memory_pressure_of_some_tasks_counts(tmp_path: Path) -> None:
    low = "some avg10=4.99 avg60=80.00 avg300=80.00 total=12345\n"
    assert pressure(tmp_path, low + FULL) == ()
    (said,) = pressure(tmp_path, low.replace("4.99", "17.20") + FULL)
    assert "17 %" in said and "memory" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "some\n",
        "some avg10\n",
        "some avg10=\n",
        "some avg10=many total=1\n",
        "some avg60=99.0\n",
        "some avg10=nan total=1\n",
        "x" * 1000,
        b"\xff\xfe\x00some avg10=9",
        "full avg10=99.00\n",
    ],
)
def test_damaged_text_says_nothing(text: str | bytes, tmp_path: Path) -> None:
    assert pressure(tmp_path, text) == ()


def test_nobody_tells(tmp_path: Path) -> None:
    assert memory_pressure(tmp_path) == ()
