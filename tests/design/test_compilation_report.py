"""Reports and files of compilations: sums by hand, and what is unknown said."""

from __future__ import annotations

import json

import pytest

from roofline.core.blocks import Grid, KeyValueBlock, Report, View, fullest
from roofline.design.compilation import Compilation
from roofline.workload.operators import State
from tests.design.compilations import broken, compilations, plain, unavailable

EXAMPLES = compilations()


def grids(report: Report) -> list[Grid]:
    return [each for each in map(fullest, report.blocks) if isinstance(each, Grid)]


def facts(compilation: Compilation) -> dict[str, str]:
    (block,) = [each for each in compilation.report().blocks if isinstance(each, KeyValueBlock)]
    return dict(block.lines)


def test_the_sides_are_the_sums_of_their_rows() -> None:
    compilation = plain()
    rows = [row for row in compilation.analysis.operators if row.state is not State.FREE]
    eager, inductor, fused = compilation.eager(), compilation.inductor(), compilation.fused()
    assert (eager.launches, eager.traffic_bytes) == (
        len(rows),
        sum(row.traffic_bytes for row in rows),
    )
    assert inductor is not None and fused is not None
    assert (inductor.launches, inductor.traffic_bytes, inductor.unknown) == (3, 16_004_000, 0)
    assert fused.traffic_bytes == compilation.analysis.totals.fused_bytes
    table, kernels = grids(compilation.report())
    assert [row[0] for row in table.rows] == [
        "eager torch",
        "fused minimum",
        "Inductor",
    ]
    assert table.rows[2][1:3] == ("3", "16.0 MB")
    # Two that no table can tell apart share a row; the one that moves most is first.
    assert [row[0] for row in kernels.rows] == ["extern_kernels.addmm", "cpp_fused_relu_0"]
    assert [row[1] for row in kernels.rows] == ["1", "2"]
    assert kernels.sums == (("total", "3", "", "", "", "", "16.0 MB"),)


def test_what_is_unknown_makes_sums_at_least_so_much() -> None:
    inductor = broken().inductor()
    assert inductor is not None
    # Three calls of the packed product, and two operators between the graphs.
    assert (inductor.launches, inductor.unknown) == (3 + 3 + 2, 5)
    assert "≥ 16.0 MB" in broken().summary
    said = facts(broken())
    assert said["Graphs"] == "2 graphs, 4 calls per pass"
    assert said["Outside"] == "between graphs: 2 operators (nonzero)"
    assert "unknown bytes of 3 launches" in said["Launches"]
    text = str(broken())
    assert "Data-dependent branching" in text and "compiled on real tensors" in text


def test_where_there_is_no_schedule_nothing_is_guessed() -> None:
    compilation = unavailable()
    assert compilation.inductor() is None
    assert "unknown: torch.compile failed: no such thing" in compilation.summary
    (table,) = grids(compilation.report())
    assert table.rows[-1] == ("Inductor", "–", "–", "–")
    assert json.loads(compilation.to_json())["sides"]["inductor"] is None
    assert compilation.to_csv().count("\n") == 1


def test_rows_that_are_left_out_are_summed() -> None:
    grid = grids(plain().report(View(top=1)))[1]
    assert grid.sums[0] == ("(1 more row)", "2", "", "", "", "", "8.00 MB")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kernel_has_a_row(name: str) -> None:
    graphs = EXAMPLES[name].compiled.graphs
    kernels = [each.traffic_bytes for graph in graphs for each in graph.kernels]
    assert [row[-1] for row in EXAMPLES[name].rows()] == kernels
