"""The words and sums of the reports."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import get_args

import pytest

from roofline.analysis import known_work
from roofline.core.blocks import By, View
from roofline.core.text import printable
from roofline.design.comparison.result import Comparison
from roofline.machine.hardware import HardwareProfile, MemoryKernel
from roofline.machine.kernels.compute import COMPUTE_KERNELS
from roofline.machine.quantities import age, origin
from roofline.machine.roof import KERNELS
from roofline.render.console import plain_text
from tests.analysis.blocks import column, grid_of
from tests.analysis.examples import (
    DATASHEET,
    ceiling,
    dram_profile,
    full_profile,
    measured,
    resnet,
    small,
)

GOLDEN = """\
small: minimum 157 ns per forward pass (eager, all operands from DRAM), memory-bound (DRAM) for 100 %

Model     small · float32 1x32 · 330 parameters (1.32 kB)
Machine   sheet · 4 threads · warm caches · data sheet, not measured: Example Corp. data sheet 7
Minimum   eager 157 ns
Compute   660 FLOP (320 MAC)
Traffic   1.57 kB operands · DRAM 1.57 kB (AI 0.421 FLOP/B; DRAM ridge 10.0)
Operands  parameters 1.32 kB + inputs 168 B + outputs 80 B · AI 0.421 FLOP/B
Memory    1.49 kB peak, in fc: parameters 1.32 kB + inputs 128 B + activations 40 B · sum of all tensors 1.49 kB · memory capacity not known: sheet
Limits    DRAM 100 %
Coverage  FLOP known for 100 % of calls · 100 % of bytes · 2 operator calls · 0 free (views, allocations)

Top operators by minimum time (totals over equal calls)
Module  Op     Calls  Output      FLOP    Bytes  Limiting traffic  Limiting AI  Limiter  Min time   Share
fc      addmm      1  1x10    650 FLOP  1.49 kB      DRAM 1.49 kB        0.437  DRAM       149 ns  94.9 %
act     relu_      1  1x10     10 FLOP     80 B         DRAM 80 B        0.125  DRAM      8.00 ns   5.1 %
total              2          660 FLOP  1.57 kB                                            157 ns   100 %

Terms
  minimum eager: every operator reads and writes its operands

Notes
  hardware 'sheet' has ceilings for DRAM only: all operands are read from and written to DRAM (classic roofline model)
"""  # noqa: E501

BRIEF = """\
small: minimum 157 ns per forward pass (eager, all operands from DRAM), memory-bound (DRAM) for 100 %

Model    small · float32 1x32 · 330 parameters (1.32 kB)
Machine  sheet · 4 threads · warm caches · data sheet, not measured
Minimum  eager 157 ns
Compute  660 FLOP (320 MAC)
Traffic  1.57 kB operands · DRAM 1.57 kB (AI 0.421 FLOP/B; DRAM ridge 10.0)
Memory   1.49 kB peak, in fc
Limits   DRAM 100 %

Top operators by minimum time (totals over equal calls)
Module  Op     Calls  Output      FLOP    Bytes  Limiting traffic  Limiting AI  Limiter  Min time   Share
fc      addmm      1  1x10    650 FLOP  1.49 kB      DRAM 1.49 kB        0.437  DRAM       149 ns  94.9 %
act     relu_      1  1x10     10 FLOP     80 B         DRAM 80 B        0.125  DRAM      8.00 ns   5.1 %
total              2          660 FLOP  1.57 kB                                            157 ns   100 %

1 minor note: verbose=True
"""  # noqa: E501


def test_the_report_on_a_small_model_reads_so():
    analysis = small()
    assert plain_text(analysis.report(View(verbose=True))) == GOLDEN
    assert plain_text(analysis.report()) == BRIEF
    # By hand: 320 multiply-adds and 10 biases in the layer, 10 comparisons in the ReLU.
    assert analysis.totals.flop == 2 * 320 + 10 + 10
    assert analysis.totals.traffic_bytes == 4 * (32 + 320 + 10 + 10) + 4 * (10 + 10)
    work = known_work(analysis.operators)
    assert work.flop == analysis.totals.flop
    assert work.traffic_bytes == analysis.totals.traffic_bytes
    assert (
        sum(row.eager_min_time_s or 0 for row in analysis.operators)
        == analysis.totals.eager_min_time_s
    )


@pytest.mark.parametrize("by", ["operator", "type"])
@pytest.mark.parametrize("top", [0, 1, 5, 1000])
def test_shown_and_left_out_rows_add_up(by: By, top: int):
    analysis = resnet()
    report = analysis.report(View(by=by, top=top))
    grid = grid_of(report, {"operator": "Top operators by", "type": "Operator types"}[by])
    assert len(grid.rows) <= top
    if by == "type":
        # One view: it is told beside the total, not in it.
        assert grid.sums[-1][:2] == ("free (views, allocations)", "1")
        grid = replace(grid, sums=grid.sums[:-1])
    assert grid.sums[-1][0] == "total"
    assert grid.sums[-1][-1] == "100 %"
    everything = len([row for row in analysis.operators if row.state != "free"])
    if by == "operator":
        calls = [int(row[2]) for row in (*grid.rows, *grid.sums[:-1])]
        assert sum(calls) == everything == int(grid.sums[-1][2])
    else:
        calls = [int(row[1]) for row in (*grid.rows, *grid.sums[:-1])]
        assert sum(calls) == everything == int(grid.sums[-1][1])


def test_operators_are_sorted_by_the_time_that_is_shown():
    analysis = measured(small())
    slow_relu = replace(
        analysis.operators[1],
        measured_s=1.0,
        eager_min_time_s=analysis.operators[1].eager_min_time_s,
    )
    analysis = replace(analysis, operators=(analysis.operators[0], slow_relu))
    grid = grid_of(analysis.report(), "Top operators by measured time")
    assert [row[1] for row in grid.rows] == ["relu_", "addmm"]


def test_a_run_faster_than_its_bound_is_a_warning():
    text = plain_text(measured(small(), 0.5).report())
    said = "aten.addmm in 'fc' (operator 0): measured 74.4 ns, below its minimum time 149 ns; "
    assert said in text


def test_predictions_and_measurements_are_shown_where_they_are():
    analysis = measured(small(), 2.0)
    totals = replace(analysis.totals, predicted_s=3e-7, predicted_low_s=2e-7, predicted_high_s=4e-7)
    rows = tuple(replace(row, predicted_s=1.5e-7) for row in analysis.operators)
    full = replace(analysis, totals=totals, operators=rows).report(View(verbose=True))
    text = plain_text(full)
    assert "  300 ns (200 ns–400 ns), sum of operators" in text
    assert "  314 ns, sum of operators · efficiency 50.0 % (minimum ÷ measured)" in text
    assert "Predicted  Measured" in text
    assert " · 100 % of measured time" in text


@pytest.mark.parametrize(
    ("day", "words"),
    [
        ("2026-03-07", "today (2026-03-07)"),
        ("2026-03-06", "1 day ago (2026-03-06)"),
        ("2026-03-04T12:00:00Z", "3 days ago (2026-03-04)"),
        ("2025-03-07", "12 months ago (2025-03-07)"),
        ("2026-03-09", "on 2026-03-09"),
        ("last\tyear", "last\\tyear"),
    ],
)
def test_ages_are_said_in_words(day: str, words: str):
    assert age(day, date(2026, 3, 7)) == words


def test_files_that_last_give_dates_not_ages():
    assert age("2026-03-04", None) == "on 2026-03-04"
    assert "days ago" not in plain_text(resnet().report())


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (full_profile(), "measured on 2026-03-04"),
        (dram_profile(), "data sheet, not measured: Example Corp. data sheet 7"),
        (HardwareProfile(name="none", device="cpu", threads=1), "no ceilings"),
        (
            replace(
                dram_profile(),
                compute=(ceiling(1e9, provenance=replace(DATASHEET, source="derived")),),
            ),
            "data sheet, not measured: Example Corp. data sheet 7",
        ),
        (
            replace(full_profile(), compute=(ceiling(1e9, provenance=DATASHEET),)),
            "partly measured, partly from data sheets on 2026-03-04",
        ),
    ],
)
def test_provenance_is_said_in_words(profile: HardwareProfile, words: str):
    assert origin(profile, None) == words


def test_control_characters_are_shown_not_sent():
    assert printable("a\x1b[31mb\nc\u202ed") == "a\\x1b[31mb\\nc\\u202ed"
    assert printable("größe 模型") == "größe 模型"


def test_frame_and_report_differ_by_the_free_calls_in_the_title() -> None:
    analysis = resnet()
    frame = analysis.to_frame()
    free = int((frame["state"] == "free").sum())
    grid = grid_of(analysis.report(), "Top operators")
    calls = column(grid, "Calls")[-1]
    assert free == 1 and f"; {free} free call left out)" in grid.title
    assert len(frame) == int(calls) + free


def test_ceilings_have_one_spelling_in_all_output() -> None:
    analysis = resnet()
    comparison = Comparison.of([analysis, replace(analysis, model="other")], names=["a", "b"])
    texts = [
        *(plain_text(analysis.report(View(by=by, verbose=True))) for by in ("operator", "type")),
        plain_text(comparison.report(View(verbose=True))),
        plain_text(analysis.hardware.report(View(verbose=True))),
        analysis.render("html"),
        analysis.render("svg"),
    ]
    for text in texts:
        assert isinstance(text, str)
        assert re.search(r"AVX-512 +FMA", text) and not re.search(r"avx512 +|AVX-512 +fma", text)
    # Saved keys stay.
    assert "float32 avx512 fma" in {row.ceiling for row in analysis.operators}


def test_kernels_and_minimum_times_are_explained_in_the_verbose_report() -> None:
    totals = replace(resnet().totals, fused_min_time_s=1e-6, model_min_time_s=1e-6)
    text = plain_text(replace(resnet(), totals=totals).report(View(verbose=True)))
    terms = text[text.index("\nTerms\n") :]
    assert "  minimum model: weights, inputs and outputs cross memory once" in terms
    assert "  FMA: independent multiply-accumulates (2 FLOP each)" in terms
    assert "  copy: one load per store, to another array" in terms
    assert "tile-dot" not in terms and "\nTerms\n" not in plain_text(resnet().report())
    used = {*get_args(MemoryKernel), *(each.name for each in COMPUTE_KERNELS)}
    assert used - KERNELS.keys() == {"add", "unspecified"}
