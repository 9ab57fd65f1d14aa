"""The result of a calibration: counts, errors of held-out families, and its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roofline.core.blocks import Grid, KeyValueBlock
from roofline.errors import FileFormatError
from roofline.latency.calibrated import Calibrated, HeldOutError
from roofline.result import read_result


def held_out(threads: int, dtype: str, mape: float | None, runs: int = 30) -> HeldOutError:
    known = mape is not None
    return HeldOutError(
        threads=threads,
        dtype=dtype,
        runs=runs,
        mape=mape,
        median_error=0.06 if known else None,
        within_10_percent=0.7 if known else None,
        interval_coverage=0.8 if known else None,
    )


LEARNED = Calibrated(
    runs=92,
    operators=12_345,
    models=30,
    families=14,
    new_runs=61,
    seconds=243.4,
    held_out=(held_out(1, "float32", 0.06), held_out(2, "float32", 0.1, 10)),
    skipped=("huge: ran out of memory",),
    file="/home/me/host.latency",
)


def test_a_calibration_has_its_error_on_families_that_were_left_out() -> None:
    # (10 x 10 % + 30 x 6 %) / 40
    said = "Calibrated on 12,345 operators of 30 models: leave-one-family-out MAPE 7.0 %"
    assert LEARNED.summary == said and repr(LEARNED) == f"<Calibrated: {said}>"
    facts, grid, *_ = LEARNED.report().blocks
    assert isinstance(facts, KeyValueBlock) and isinstance(grid, Grid)
    assert facts.lines == (
        ("Data", "92 runs of 30 models of 14 families"),
        ("New", "61 runs in 4 min 3 s"),
        ("File", "/home/me/host.latency"),
    )
    assert grid.rows == (
        ("1", "float32", "30", "6.0 %", "6.0 %", "70.0 %", "80.0 %"),
        ("2", "float32", "10", "10.0 %", "6.0 %", "70.0 %", "80.0 %"),
    )
    assert "Skipped\n  huge: ran out of memory\n" in str(LEARNED)
    assert "Warnings" not in str(LEARNED)


def test_too_few_families_are_not_judged() -> None:
    few = replace(LEARNED, families=1, models=1, held_out=(held_out(1, "float32", None, 0),))
    assert few.summary == (
        "Calibrated on 12,345 operators of 1 model; too few families to validate predictions;"
        " `roofline calibrate` measures more models"
    )
    assert "of 1 model of 1 family\n" in str(few)
    (grid,) = [each for each in few.report().blocks if isinstance(each, Grid)]
    assert grid.rows == (("1", "float32", "0", "–", "–", "–", "–"),)


def test_errors_above_a_quarter_are_said_to_be_unusable() -> None:
    poor = replace(LEARNED, held_out=(held_out(1, "float32", 0.2), held_out(2, "float32", 0.6)))
    assert poor.mape == pytest.approx(0.4)
    assert poor.summary.endswith(
        ": leave-one-family-out MAPE 40.0 %, above 25.0 %: predictions are not usable;"
        " `roofline calibrate` measures more models"
    )
    assert "float32 on 2 threads: MAPE 60.0 %, above 25.0 %" in str(poor)
    assert "float32 on 1 thread: MAPE" not in str(poor)


def test_nothing_learned_and_interrupted() -> None:
    nothing = Calibrated(runs=0, operators=0, models=0, families=0, new_runs=0, seconds=2)
    text = str(replace(nothing, interrupted=True, warnings=("a\tb",)))
    assert text.startswith(
        "No calibration data: other processes disturbed all runs; stop other programs, then"
        " `roofline calibrate` continues"
    )
    assert "all runs failed" in replace(nothing, skipped=("net: out of memory",)).summary
    layers = replace(nothing, runs=3, operators=9).summary
    assert "9 operators of single layers, of no model" in layers and "calibrate" in layers
    assert "0 runs in 2 s" in text
    assert "  a\\tb\n  interrupted: measured runs are kept" in text


def test_files_are_read_back(tmp_path: Path) -> None:
    files = [tmp_path / f"c{suffix}" for suffix in (".json", ".csv", ".md", ".html")]
    LEARNED.save(*files)
    assert read_result(files[0]) == LEARNED
    assert files[1].read_text().splitlines()[2] == "2,float32,10,0.1,0.06,0.7,0.8"
    assert list(LEARNED.to_frame()["mape"]) == [0.06, 0.1]
    files[0].write_text(files[0].read_text().replace('"runs": 92', '"runs": -1'))
    with pytest.raises(FileFormatError, match="must be at least 0, got -1"):
        read_result(files[0])


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        replace(LEARNED, seconds=-1.0)
    with pytest.raises(ValueError, match="at least 0"):
        held_out(1, "float32", -0.1)
