"""Reports and files of optimizations; all values made up."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from roofline.core.blocks import Grid, KeyValueBlock, Notes, View
from roofline.errors import FileFormatError, InputError, ModelError
from roofline.render.console import print_report
from roofline.result import read_result
from roofline.substitution.blocks import (
    applied_groups,
    name_of,
    place_of,
    rejected_groups,
    rejected_line,
    saving_of,
)
from roofline.substitution.costs import launch_times
from roofline.substitution.result import Figures, Optimization, Substitution
from tests.substitution.optimizations import (
    many_folds,
    measured,
    nothing,
    optimizations,
    predicted,
    refused,
    rounds,
    statistics,
)
from tests.substitution.rewriting import Model


def shown(optimization: Optimization, width: int = 80) -> str:
    """What a terminal of that width shows."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    print_report(optimization.report(), console)
    return text.getvalue()


def grid_of(optimization: Optimization, title: str, view: View | None = None) -> Grid:
    blocks = optimization.report(view).blocks
    return next(each for each in blocks if isinstance(each, Grid) and each.title.startswith(title))


@pytest.mark.parametrize(
    ("optimization", "verdict"),
    [
        (
            predicted(),
            "squeezed: 1.69× faster, predicted from minimum times (8.0 µs per launch) on v100-like,"
            " 5 rewrites; not timed: another machine",
        ),
        (
            measured(),
            "squeezed: 1.80× faster, measured in eager torch (5 rounds: 1.70 to 1.90), 5 rewrites",
        ),
        (
            replace(measured(), rounds=(rounds(1.8, 1.7, 1.9, baseline="compile"),)),
            "squeezed: 1.80× faster, measured under torch.compile (5 rounds: 1.70 to 1.90),"
            " 5 rewrites",
        ),
        (
            refused(),
            "squeezed: original kept: the candidate is slower: 0.93× as fast, measured in eager"
            " torch (5 rounds: 0.91 to 0.95)",
        ),
        (
            refused(1.01, 0.98, 1.04),
            "squeezed: original kept: no significant speedup: 1.01× as fast, measured in eager"
            " torch (5 rounds: 0.98 to 1.04)",
        ),
        (
            nothing(),
            "kept: original kept: no graph of lower minimum time found on example-2core",
        ),
        (
            replace(nothing(), cost="predicted", statistics=statistics(ended="budget")),
            "kept: original kept: no graph of lower predicted time found on example-2core; search"
            " budget exhausted after 2,041 graphs",
        ),
        (
            replace(nothing(), cost="measured", statistics=statistics(ended="time", seconds=5.0)),
            "kept: original kept: no graph of lower sum of measured operator times found on"
            " example-2core; search time limit reached after 5.0 s",
        ),
    ],
)
def test_the_verdict_is_a_sentence(optimization: Optimization, verdict: str) -> None:
    assert optimization.summary == verdict
    assert repr(optimization) == f"<Optimization: {verdict}>"
    assert optimization.report().headline == verdict


def test_under_torch_compile_its_own_timing_decides() -> None:
    both = measured()
    compiled = rounds(1.3, 1.2, 1.4, baseline="compile", after_s=5e-3)
    other = rounds(1.5, 1.4, 1.6, baseline="compile", candidate="2 rewrites", after_s=4e-3)
    found = replace(both, rounds=(*both.rounds, compiled, other))
    assert found.decisive is compiled
    # Of one way to run it the timing of what was chosen decides, and of none none.
    quicker = rounds(2.5, 2.4, 2.6, candidate="another")
    assert replace(both, rounds=(*both.rounds, quicker)).decisive is both.rounds[0]
    assert predicted().decisive is None
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["measured time, eager torch"] == ("17.2 ms", "9.56 ms", "0.56")
    assert rows["measured time, torch.compile"] == ("17.2 ms", "5.00 ms", "0.77 (0.71 to 0.83)")


def test_table_2_has_before_after_and_their_ratio() -> None:
    before = Figures(
        cost_s=4e-3,
        traffic_bytes=66_600_000,
        launches=37,
        flop=1_640_000_000,
        weight_bytes=5_000_000,
        flop_per_s=3.7e12,
        share_of_roof=0.2357,
    )
    after = replace(before, cost_s=3e-3, traffic_bytes=45_600_000, launches=21, flop=None)
    found = replace(predicted(), figures_before=before, figures_after=after)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["minimum time and launches"] == ("4.00 ms", "3.00 ms", "0.75")
    assert rows["memory traffic"] == ("66.6 MB", "45.6 MB", "0.685")
    assert rows["kernel launches"] == ("37", "21", "0.568")
    # Unknown is never zero.
    assert rows["FLOP"] == ("1.64 GFLOP", "–", "–")
    assert rows["share of roofline"] == ("23.6 %", "23.6 %", "1")
    assert "measured time" not in rows


def test_measured_times_have_their_interval_and_the_ratio_that_of_the_rounds() -> None:
    rows = {row[0]: row[1:] for row in grid_of(measured(), "").rows}
    assert rows["measured time"] == ("17.2 ms", "9.56 ms", "0.56")
    assert rows["10 to 90 % of rounds"] == (
        *("16.9 ms to 17.6 ms", "9.36 ms to 9.84 ms"),
        "0.53 to 0.59",
    )
    # One round has no interval.
    alone = replace(measured(), decision="not faster", rounds=(rounds(1.8, 0.0, 1.8, rounds=1),))
    assert alone.summary.endswith("1.80× as fast, measured in eager torch (1 round)")
    rows = {row[0]: row[1:] for row in grid_of(alone, "").rows}
    assert rows["measured time"][2] == "0.56"
    assert grid_of(alone, "End-to-end").rows[0][4] == "1.80"


def test_intervals_that_a_busy_machine_made_wide_stay_readable() -> None:
    found = measured(1.07, 0.0039, 1.19)
    wide = replace(found.figures_after, measured_low_s=542e-6, measured_high_s=152e-3)
    found = replace(found, figures_after=wide)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["10 to 90 % of rounds"][1:] == ("542 µs to 152 ms", "0.84 to 256")
    assert grid_of(found, "End-to-end").rows[0][4] == "1.07 (0.0039 to 1.19)"


def test_what_was_given_up_is_shown_as_such() -> None:
    headings = [column.heading for column in grid_of(refused(), "").columns]
    assert headings == ["", "before", "candidate", "after / before"]
    assert [column.heading for column in grid_of(nothing(), "").columns] == ["", "original"]
    assert grid_of(refused(), "Rewrites of the candidate, not applied").rows
    assert not refused().to_frame()["is_applied"].any()


def test_fused_counts_stand_beside_those_of_eager_torch() -> None:
    fewer = replace(predicted().figures_before, traffic_bytes=1_000_000, launches=3)
    found = replace(predicted(), is_fused=True, figures_before=fewer)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["memory traffic"][0] == "1.00 MB" and rows["kernel launches"][0] == "3"
    assert rows["memory traffic, unfused"][0] == "30.6 MB"
    assert rows["kernel launches, unfused"][:2] == ("35", "20")


def test_many_rewrites_by_one_rule_are_one_row() -> None:
    substitutions = many_folds().substitutions
    (group,) = applied_groups(substitutions)
    assert name_of(group) == "fold-batch-norm: 53 ×"
    assert place_of(group) == "layer0.0.conv, layer0.0.bn … layer5.2.conv, layer5.2.bn"
    assert saving_of(group) == pytest.approx(53e-5)
    assert saving_of((*substitutions, replace(substitutions[-1], cost_after_s=None))) is None
    grid = grid_of(many_folds(), "Applied rewrites")
    assert grid.rows[0][2:4] == ("530 µs", "50.0 %")
    assert grid.sums[-1][1] == "all 53"
    # Few have a row each, in their order.
    first, second, third, *_ = predicted().substitutions
    mixed = (first, replace(second, rule="fold-batch-norm"), third)
    assert [each[0].rule for each in applied_groups(mixed)] == [each.rule for each in mixed]


def test_rows_that_are_left_out_are_counted() -> None:
    found = replace(
        predicted(),
        substitutions=tuple(
            replace(each, rule=f"rule-{number}")
            for number, each in enumerate(predicted().substitutions)
        ),
    )
    grid = grid_of(found, "Applied", View(top=2))
    assert len(grid.rows) == 2
    assert [row[1] for row in grid.sums] == ["3 more (top=5)", "all 5"]


def test_how_often_a_rule_was_applied_is_never_cut_off() -> None:
    folds = many_folds()
    named = replace(
        folds,
        substitutions=tuple(
            replace(each, rule="eliminate-split-concat", where=f"{'a.long.path.' * 9}{each.where}")
            for each in folds.substitutions
        ),
    )
    for width in (60, 80):
        assert "eliminate-split-concat: 53 ×" in shown(named, width)


def test_rejected_rewrites_stand_by_reason_the_nearest_to_paying_first() -> None:
    groups = rejected_groups(predicted().rejected)
    assert [each[0].rule for each in groups] == ["enlarge-kernel", "merge-convolutions"]
    line = rejected_line(groups[0], 100e-6)
    assert line.startswith("enlarge-kernel: 3 × (features.3.squeeze … features.5.squeeze): ")
    assert line.endswith("at best adds 1.00 µs (1.0 % of total)")
    assert rejected_line(groups[1], 1.0).endswith("their kernels differ: 1x1 and 3x3")
    # Of one reason they are counted, the most first; those that were applied give reasons once.
    refusal = Substitution(rule="y", where="a", why="two", is_applied=False)
    others = (replace(refusal, rule="x", why="one"), replace(refusal, why="three"))
    found = rejected_groups([others[0], refusal, refusal, others[1]])
    assert [(each[0].rule, len(each)) for each in found] == [("y", 2), ("x", 1), ("y", 1)]
    first, second, third, *_ = predicted().substitutions
    mixed = (first, replace(second, rule="other", why="because"), third)
    blocks = replace(predicted(), substitutions=mixed).report().blocks
    why = next(
        each
        for each in blocks
        if isinstance(each, Notes) and each.title == "Effects of the rewrites"
    )
    assert [line.partition(":")[0] for line in why.lines] == [
        "1, 3 · enlarge-and-merge",
        "2 · other",
    ]


def test_outputs_that_differ_are_warned_of() -> None:
    wrong = replace(predicted().proofs[0], largest_error=0.5)
    found = replace(predicted(), proofs=(wrong,))
    assert grid_of(found, "Equivalence").rows[0][-1] == "NO"
    notes = next(
        each for each in found.report().blocks[::-1] if isinstance(each, Notes) and each.lines
    )
    assert notes.urgent and "error 5.0e-01, limit 1e-10" in notes.lines[0]


def test_launches_of_unknown_cost_are_warned_of_and_known_ones_are_a_fact() -> None:
    for found, place in ((predicted(), KeyValueBlock), (nothing(), Notes)):
        said = launch_times(found.before.hardware).source
        warned = replace(found, warnings=(said,))
        blocks = warned.report().blocks
        facts = [line for each in blocks if isinstance(each, KeyValueBlock) for line in each.lines]
        notes = [line for each in blocks if isinstance(each, Notes) for line in each.lines]
        assert (("Launches", said) in facts) is (place is KeyValueBlock)
        assert (said in notes) is (place is Notes)


def test_inputs_that_go_well_are_one_row_with_the_largest_error() -> None:
    first = replace(predicted().proofs[0], same_argmax=1.0)
    others = (
        replace(first, inputs="zeros", largest_error=5e-12, same_argmax=0.5),
        replace(first, inputs="ones", same_argmax=None),
        replace(first, inputs="huge", largest_error=0.3),
        replace(first, weights="random"),
    )
    rows = grid_of(replace(predicted(), proofs=(first, *others)), "Equivalence").rows
    assert rows[0] == (
        *("float64", "random, zeros, ones", "the model's"),
        *("5.0e-12", "1e-10", "50.0 %", "yes"),
    )
    assert [(row[1], row[2], row[-1]) for row in rows[1:]] == [
        ("huge", "the model's", "NO"),
        ("random", "random", "yes"),
    ]


def test_the_end_of_the_search_is_shown() -> None:
    def facts(optimization: Optimization) -> dict[str, str]:
        blocks = optimization.report().blocks
        return dict(
            line for each in blocks if isinstance(each, KeyValueBlock) for line in each.lines
        )

    found = facts(predicted())
    assert found["Search"] == (
        "733 graphs expanded · 2,041 evaluated · 1,310 duplicates · 12 pruned by cost ·"
        " 360 ms · ended: search space exhausted"
    )
    assert "launch overhead 8.0 µs (launch)" in found["Launches"]
    assert "α 1.05 · budget 300 · 3 rules · captured by torch.export" in found["Settings"]
    pieces = replace(predicted(), statistics=statistics(pieces=4, ended="budget"))
    assert "expanded in 4 pieces" in facts(pieces)["Search"]
    assert facts(pieces)["Search"].endswith("budget exhausted (budget=300)")


@pytest.mark.parametrize("name", optimizations())
def test_every_format_has_it_and_what_is_saved_is_read_back(name: str, tmp_path: Path) -> None:
    found = replace(optimizations()[name], module=torch.nn.Identity(), arguments=((), {}))
    paths = [tmp_path / f"found{suffix}" for suffix in (".json", ".csv", ".md", ".html", ".svg")]
    found.save(*paths)
    read = read_result(paths[0])
    assert read == found and str(read) == str(found)
    assert isinstance(read, Optimization) and read.module is read.arguments is None
    for path in paths[2:]:
        text = path.read_text(encoding="utf-8")
        assert "<script>alert" not in text
        if path.suffix == ".html":
            assert text.startswith("<!doctype html>") and "<svg" in text
    assert "<script>alert" not in found._repr_html_()  # pyright: ignore[reportPrivateUsage]
    for width in (40, 80, 200):
        text = shown(found, width)
        assert "\x1b" not in text
        assert width < 80 or max(map(len, text.splitlines())) <= width


def test_json_has_the_verdict_and_what_follows_from_the_rest() -> None:
    found = measured()
    data = json.loads(found.to_json())
    assert (data["schema_version"], data["kind"]) == (1, "optimization")
    assert data["summary"] == found.summary
    assert data["substitutions"][0]["saving_s"] == found.substitutions[0].saving_s
    assert data["figures_before"]["measured_s"] == 17.2e-3
    assert data["proofs"][0]["holds"] is True
    assert not {"module", "arguments"} & set(data)


def test_operators_that_are_not_there_are_refused(tmp_path: Path) -> None:
    first, *rest = predicted().substitutions
    wrong = replace(first, after_operators=(*first.after_operators, 20))
    replace(predicted(), substitutions=(wrong, *rest)).save(tmp_path / "wrong.json")
    with pytest.raises(FileFormatError, match="an operator beyond the 20 of a graph"):
        read_result(tmp_path / "wrong.json")


def test_frames_and_csv_have_a_row_for_each_rewrite() -> None:
    found = predicted()
    frame = found.to_frame()
    assert list(frame.columns) == list(Optimization.columns)
    assert list(frame["is_applied"]) == [True] * 5 + [False] * 4
    assert frame["saving_s"].isna().sum() == 1
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(lines) == 9
    assert lines[0]["is_applied"] == "true" and lines[0]["before_operators"] == "2 3 4 5 6"
    assert lines[8]["cost_after_s"] == "" and lines[8]["after_operators"] == ""
    empty = replace(found, substitutions=(), rejected=())
    assert list(empty.to_frame().columns) == list(Optimization.columns)


def test_without_a_module_none_is_saved_nor_anything_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no module to save"):
        predicted().save(tmp_path / "a.md", tmp_path / "a.pt2")
    with pytest.raises(InputError, match=r"did you mean '\.pt2'"):
        predicted().save(tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


def test_modules_are_saved_for_torch_export(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.linear(x) * scale, x + 1

    module = Scaled()
    x, scale = torch.randn(2, 4), torch.randn(3)
    found = replace(measured(), module=module, arguments=((x,), {"scale": scale}))
    path = tmp_path / "faster.pt2"
    found.save(path)
    loaded = torch.export.load(path).module()
    for one, other in zip(loaded(x, scale=scale), module(x, scale=scale), strict=True):
        assert torch.equal(one, other)
    # No graph holds it.
    chaotic = Model(lambda m, x: x if x.sum() > 0 else -x)
    with pytest.raises(ModelError, match=r"torch\.export failed") as caught:
        replace(found, module=chaotic, arguments=((x,), {})).save(tmp_path / "a.pt2")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == [path]
