"""What reports say of optimizations, in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from roofline.analysis import analysis_from_data
from roofline.errors import InputError, ModelError
from roofline.foundation.blocks import Facts, Grid, Notes
from roofline.presentation.optimization_output import (
    check_optimization_targets,
    module_words,
    render_optimization,
    write_optimization,
)
from roofline.presentation.reports.optimization_report import optimization_report
from roofline.presentation.reports.optimization_rewrites import (
    groups_of_applied,
    groups_of_rejected,
    rejected_line,
    saving_cell,
)
from roofline.render.console import print_report
from roofline.substitution.costs.launches import launches_on
from roofline.substitution.data import COLUMNS
from roofline.substitution.result import Figures, Optimization, Substitution
from roofline.substitution.verdict import decisive
from tests.presentation.optimizations import (
    hostile,
    many_folds,
    measured,
    nothing,
    optimizations,
    predicted,
    refused,
    rounds,
    statistics,
)


def shown(optimization: Optimization, width: int = 80) -> str:
    """What a terminal of that width shows."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    print_report(optimization_report(optimization), console)
    return text.getvalue()


def grid_of(optimization: Optimization, title: str) -> Grid:
    blocks = optimization_report(optimization).blocks
    return next(each for each in blocks if isinstance(each, Grid) and each.title.startswith(title))


@pytest.mark.parametrize(
    ("optimization", "sentence"),
    [
        (
            predicted(),
            "squeezed: 1.69 × faster, predicted under bounds on v100-like (8.0 µs a launch):"
            " 5 rewrites; not timed: another machine",
        ),
        (
            measured(),
            "squeezed: measured 1.80 × faster in eager torch (5 rounds: 1.70 to 1.90): 5 rewrites",
        ),
        (
            replace(measured(), rounds=(rounds(1.8, 1.7, 1.9, baseline="compile"),)),
            "squeezed: measured 1.80 × faster under torch.compile (5 rounds: 1.70 to 1.90):"
            " 5 rewrites",
        ),
        (
            refused(),
            "squeezed: the original is kept: what was found loses when it is timed:"
            " 0.93 × as fast in eager torch (5 rounds: 0.91 to 0.95)",
        ),
        (
            refused(1.01, 0.98, 1.04),
            "squeezed: the original is kept: what was found gains nothing that the clock can tell"
            " from noise: 1.01 × as fast in eager torch (5 rounds: 0.98 to 1.04)",
        ),
        (
            nothing(),
            "kept: the original is kept: nothing found costs less by bounds on example-2core",
        ),
        (
            replace(nothing(), cost="predicted", statistics=statistics(ended="budget")),
            "kept: the original is kept: nothing found costs less by prediction on example-2core"
            " among 2,041 graphs, where the budget ended",
        ),
        (
            replace(nothing(), cost="measured", statistics=statistics(ended="time", seconds=5.0)),
            "kept: the original is kept: nothing found costs less by operators' measured times on"
            " example-2core in the 5.0 s that the search had",
        ),
    ],
)
def test_the_verdict_is_a_sentence(optimization: Optimization, sentence: str) -> None:
    assert optimization.summary == sentence
    assert repr(optimization) == f"<Optimization: {sentence}>"
    assert optimization_report(optimization).headline == sentence


@pytest.mark.parametrize("basis", ["bound", "predicted", "measured"])
def test_what_is_only_predicted_is_called_so(basis: str) -> None:
    said = replace(predicted(), cost=basis).summary
    assert "predicted" in said and "not timed" in said
    assert "measured" not in said


def test_the_decision_rests_on_the_timing_of_what_was_chosen() -> None:
    both = measured()
    quicker = rounds(2.5, 2.4, 2.6, candidate="another")
    found = decisive(replace(both, rounds=(*both.rounds, quicker)))
    assert found is both.rounds[0]
    assert decisive(predicted()) is None


def test_under_torch_compile_its_own_timing_decides() -> None:
    both = measured()
    compiled = rounds(1.3, 1.2, 1.4, baseline="compile", after_s=5e-3)
    other = rounds(1.5, 1.4, 1.6, baseline="compile", candidate="2 rewrites", after_s=4e-3)
    found = replace(both, rounds=(*both.rounds, compiled, other))
    assert decisive(found) is compiled
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["time, eager torch"] == ("17.2 ms", "9.56 ms", "0.56")
    assert rows["time, torch.compile"] == ("17.2 ms", "5.00 ms", "0.77 (0.71 to 0.83)")


def test_one_round_has_no_interval() -> None:
    alone = rounds(1.8, 0.0, 1.8, rounds=1)
    found = replace(measured(), decision="not faster", rounds=(alone,))
    assert found.summary.endswith("1.80 × as fast in eager torch (1 round)")
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["time, measured"][2] == "0.56"
    assert grid_of(found, "Timed").rows[0][4] == "1.80"


def test_table_2_has_before_after_and_their_ratio() -> None:
    before = Figures(
        cost_s=4e-3,
        traffic_byte=66_600_000,
        launches=37,
        flop=1_640_000_000,
        weight_byte=5_000_000,
        flop_per_s=3.7e12,
        share_of_roof=0.2357,
    )
    after = replace(before, cost_s=3e-3, traffic_byte=45_600_000, launches=21, flop=None)
    found = replace(predicted(), figures_before=before, figures_after=after)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["time, bounds and launches"] == ("4.00 ms", "3.00 ms", "0.75")
    assert rows["memory traffic"] == ("66.6 MB", "45.6 MB", "0.685")
    assert rows["kernel launches"] == ("37", "21", "0.568")
    # Unknown is never zero.
    assert rows["FLOP"] == ("1.64 GFLOP", "–", "–")
    assert rows["share of the roof"] == ("23.6 %", "23.6 %", "1")
    assert "time, measured" not in rows


def test_measured_times_have_their_interval_and_the_ratio_that_of_the_rounds() -> None:
    rows = {row[0]: row[1:] for row in grid_of(measured(), "").rows}
    assert rows["time, measured"] == ("17.2 ms", "9.56 ms", "0.56")
    assert rows["10 to 90 % of rounds"] == ("16.9 to 17.6 ms", "9.36 to 9.84 ms", "0.53 to 0.59")


def test_intervals_that_a_busy_machine_made_wide_stay_readable() -> None:
    found = measured(1.07, 0.0039, 1.19)
    wide = replace(found.figures_after, measured_low_s=542e-6, measured_high_s=152e-3)
    found = replace(found, figures_after=wide)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["10 to 90 % of rounds"][1:] == ("542 µs to 152 ms", "0.84 to 256")
    assert grid_of(found, "Timed").rows[0][4] == "1.07 (0.0039 to 1.19)"


def test_a_model_that_is_kept_has_one_column() -> None:
    grid = grid_of(nothing(), "")
    assert [column.heading for column in grid.columns] == ["", "original"]


def test_what_was_given_up_is_shown_as_such() -> None:
    headings = [column.heading for column in grid_of(refused(), "").columns]
    assert headings == ["", "before", "given up", "after / before"]
    assert grid_of(refused(), "Rewrites that were found, and given up").rows
    assert not refused().to_frame()["is_applied"].any()


def test_fused_counts_stand_beside_those_of_eager_torch() -> None:
    fewer = replace(predicted().figures_before, traffic_byte=1_000_000, launches=3)
    found = replace(predicted(), is_fused=True, figures_before=fewer)
    rows = {row[0]: row[1:] for row in grid_of(found, "").rows}
    assert rows["memory traffic"][0] == "1.00 MB" and rows["kernel launches"][0] == "3"
    assert rows["traffic, unfused"][0] == "30.6 MB"
    assert rows["launches, unfused"][:2] == ("35", "20")


def test_many_rewrites_by_one_rule_are_one_row() -> None:
    (group,) = groups_of_applied(many_folds().substitutions)
    assert group.name == "fold-batch-norm: 53 ×"
    assert group.where == "layer0.0.conv, layer0.0.bn … layer5.2.conv, layer5.2.bn"
    assert group.saving_s == pytest.approx(53e-5)
    grid = grid_of(many_folds(), "Rewrites")
    assert grid.rows[0][2:4] == ("530 µs", "50.0 %")
    assert grid.sums[-1][1] == "all 53"


def test_few_rewrites_have_a_row_each_in_their_order() -> None:
    first, second, third, *_ = predicted().substitutions
    mixed = (first, replace(second, rule="fold-batch-norm"), third)
    groups = groups_of_applied(mixed)
    assert [each.rule for each in groups] == [each.rule for each in mixed]


def test_rows_that_are_left_out_are_counted() -> None:
    found = replace(
        predicted(),
        substitutions=tuple(
            replace(each, rule=f"rule-{number}")
            for number, each in enumerate(predicted().substitutions)
        ),
    )
    report = optimization_report(found, top=2)
    grid = next(
        each
        for each in report.blocks
        if isinstance(each, Grid) and each.title.startswith("Rewrites")
    )
    assert len(grid.rows) == 2
    assert [row[1] for row in grid.sums] == ["3 more (--top 5)", "all 5"]


def test_what_adds_is_said_to() -> None:
    assert saving_cell(-2.8e-6) == "adds 2.80 µs"
    assert saving_cell(2.8e-6) == "2.80 µs"
    assert saving_cell(None) == "–"


def test_a_saving_that_is_not_known_of_one_is_not_known_of_all() -> None:
    substitutions = many_folds().substitutions
    partly = (*substitutions[:-1], replace(substitutions[-1], cost_after_s=None))
    (group,) = groups_of_applied(partly)
    assert group.saving_s is None and group.measured_s is None


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
    groups = groups_of_rejected(predicted().rejected)
    assert [each.rule for each in groups] == ["enlarge-kernel", "merge-convolutions"]
    line = rejected_line(groups[0], 100e-6)
    assert line.startswith("enlarge-kernel: 3 × (features.3.squeeze … features.5.squeeze): ")
    assert line.endswith("the nearest of them adds 1.00 µs, 1.0 % of a pass")
    assert rejected_line(groups[1], 1.0).endswith("their kernels differ: 1x1 and 3x3")


def test_refusals_of_one_reason_are_counted_the_most_first() -> None:
    def refusal(rule: str, why: str) -> Substitution:
        return Substitution(rule=rule, where="a", why=why, is_applied=False)

    found = groups_of_rejected(
        [refusal("x", "one"), refusal("y", "two"), refusal("y", "two"), refusal("y", "three")]
    )
    assert [(each.rule, len(each.members)) for each in found] == [("y", 2), ("x", 1), ("y", 1)]


def test_proofs_that_fail_are_warned_of() -> None:
    wrong = replace(predicted().proofs[0], largest_error=float("nan"))
    found = replace(predicted(), proofs=(wrong,))
    assert grid_of(found, "Proof").rows[0][-1] == "NO"
    notes = next(
        each for each in optimization_report(found).blocks[::-1] if isinstance(each, Notes)
    )
    assert notes.urgent and "fails: its error of nan is above 1e-10" in notes.lines[0]
    assert json.loads(found.to_json())["proofs"][0]["largest_error"] is None


def test_launches_of_unknown_cost_are_warned_of_and_known_ones_are_a_fact() -> None:
    for found, place in ((predicted(), Facts), (nothing(), Notes)):
        said = launches_on(found.before.hardware).said
        warned = replace(found, warnings=(said,))
        blocks = optimization_report(warned).blocks
        facts = [line for each in blocks if isinstance(each, Facts) for line in each.lines]
        notes = [line for each in blocks if isinstance(each, Notes) for line in each.lines]
        assert (("Launches", said) in facts) is (place is Facts)
        assert (said in notes) is (place is Notes)


def test_inputs_that_go_well_are_one_row_with_the_largest_error() -> None:
    first = replace(predicted().proofs[0], same_argmax=1.0)
    others = (
        replace(first, inputs="zeros", largest_error=5e-12, same_argmax=0.5),
        replace(first, inputs="ones", same_argmax=None),
        replace(first, inputs="huge", largest_error=0.3),
        replace(first, weights="random"),
    )
    rows = grid_of(replace(predicted(), proofs=(first, *others)), "Proof").rows
    assert rows[0] == (
        *("float64", "random, zeros, ones", "the model's"),
        *("5.0e-12", "1e-10", "50.0 %", "yes"),
    )
    assert [(row[1], row[2], row[-1]) for row in rows[1:]] == [
        ("huge", "the model's", "NO"),
        ("random", "random", "yes"),
    ]


def test_reasons_of_one_rule_are_told_once() -> None:
    first, second, third, *_ = predicted().substitutions
    mixed = (first, replace(second, rule="other", why="because"), third)
    found = replace(predicted(), substitutions=mixed)
    why = next(
        each
        for each in optimization_report(found).blocks
        if isinstance(each, Notes) and each.title == "Why"
    )
    assert [line.partition(":")[0] for line in why.lines] == [
        "1, 3 · enlarge-and-merge",
        "2 · other",
    ]


def test_the_search_says_how_it_ended() -> None:
    def facts(optimization: Optimization) -> dict[str, str]:
        blocks = optimization_report(optimization).blocks
        return dict(line for each in blocks if isinstance(each, Facts) for line in each.lines)

    found = facts(predicted())
    assert found["Search"] == (
        "733 graphs looked through · 2,041 given a cost · 1,310 met again · 12 dropped for their"
        " cost · 360 ms · ended: nothing was left to try"
    )
    assert "every launch costs 8.0 µs (launch)" in found["Launches"]
    assert "α 1.05 · budget 300 · 3 rules · captured by torch.export" in found["Settings"]
    pieces = replace(predicted(), statistics=statistics(pieces=4, ended="budget"))
    assert "looked through in 4 pieces" in facts(pieces)["Search"]
    assert facts(pieces)["Search"].endswith("the budget of 300 was used up (--budget)")


@pytest.mark.parametrize("name", optimizations())
@pytest.mark.parametrize("width", [40, 80, 200])
def test_terminals_of_any_width_show_it(name: str, width: int) -> None:
    text = shown(optimizations()[name], width)
    assert "\x1b" not in text
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("name", optimizations())
@pytest.mark.parametrize("format", ["json", "csv", "md", "html", "svg"])
def test_every_format_has_it(name: str, format: str) -> None:
    text = render_optimization(optimizations()[name], format)
    assert isinstance(text, str)
    assert "<script>alert" not in text or format in ("json", "csv")
    if format == "html":
        assert text.startswith("<!doctype html>") and "<svg" in text


def test_pictures_are_png() -> None:
    assert render_optimization(predicted(), "png")[:4] == b"\x89PNG"
    with pytest.raises(InputError, match="not written as trace"):
        render_optimization(predicted(), "trace")


def test_json_holds_all_of_it_and_the_analyses_whole() -> None:
    found = measured()
    data = json.loads(found.to_json())
    assert (data["schema_version"], data["kind"]) == (1, "optimization")
    assert data["summary"] == found.summary
    assert analysis_from_data(data["analyses"]["before"], file="x") == found.before
    assert analysis_from_data(data["analyses"]["after"], file="x") == found.after
    assert len(data["substitutions"]) == 5 and len(data["rejected"]) == 4
    assert data["substitutions"][0]["saving_s"] == found.substitutions[0].saving_s
    assert data["figures"]["before"]["measured_s"] == 17.2e-3
    assert "module" not in data


def test_frames_and_csv_have_a_row_for_each_rewrite() -> None:
    found = predicted()
    frame = found.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert list(frame["is_applied"]) == [True] * 5 + [False] * 4
    assert frame["saving_s"].isna().sum() == 1
    lines = list(csv.DictReader(io.StringIO(str(render_optimization(found, "csv")))))
    assert len(lines) == 9
    assert lines[0]["is_applied"] == "true" and lines[0]["before_operators"] == "2 3 4 5 6"
    assert lines[8]["cost_after_s"] == "" and lines[8]["after_operators"] == ""
    assert list(replace(found, substitutions=(), rejected=()).to_frame().columns) == list(COLUMNS)


def test_notebooks_show_it_escaped() -> None:
    html = hostile()._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script>alert" not in html and "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xyz", "an optimization is written as .json, .csv, .md, .html, .png, .svg, .pt2"),
        ("a.pt", "did you mean '.pt2'"),
        ("there.json", "exists; add --force"),
        ("nowhere/a.json", "the folder"),
    ],
)
def test_files_are_checked_before_anything_is_done(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(InputError, match=message):
        check_optimization_targets([tmp_path / name], overwrite=False)
    with pytest.raises(InputError, match="named twice"):
        check_optimization_targets([tmp_path / "a.md", tmp_path / "a.md"], overwrite=False)


def test_without_a_module_none_is_saved_nor_anything_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no module"):
        write_optimization(predicted(), [tmp_path / "a.md", tmp_path / "a.pt2"])
    assert not list(tmp_path.iterdir())


class Scaled(torch.nn.Module):
    """Takes a keyword, and gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(x) * scale, x + 1


def test_modules_are_saved_for_torch_export(tmp_path: Path) -> None:
    module = Scaled().eval()
    x, scale = torch.randn(2, 4), torch.randn(3)
    found = replace(measured(), module=module, arguments=((x,), {"scale": scale}))
    path = tmp_path / "faster.pt2"
    found.save(path)
    loaded = torch.export.load(path).module()
    for one, other in zip(loaded(x, scale=scale), module(x, scale=scale), strict=True):
        assert torch.equal(one, other)
    assert module_words(found, path).endswith(f"torch.export.load('{path}').module()")
    assert "holds the result" in module_words(found, path)
    kept = replace(nothing(), module=module)
    assert "holds the original, for nothing faster was found" in module_words(kept, path)


class Chaotic(torch.nn.Module):
    """No graph holds it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_a_module_that_cannot_be_exported_is_a_line(tmp_path: Path) -> None:
    found = replace(measured(), module=Chaotic(), arguments=((torch.randn(2),), {}))
    with pytest.raises(ModelError, match=r"torch\.export cannot save it") as caught:
        found.save(tmp_path / "a.pt2")
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())
