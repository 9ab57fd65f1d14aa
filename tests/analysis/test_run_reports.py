"""What reports say of how a model was run: training, phases, memory, parts, fused kernels."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from roofline.analysis import Analysis, Run
from roofline.analysis.drawing import title_of
from roofline.analysis.points import points_of
from roofline.analysis.words import run_text
from roofline.core.blocks import Grid, View
from roofline.placement import Roof, other_device_note, roof_notes
from roofline.plots.figures import new_figure
from roofline.render.console import plain_text, print_report
from roofline.render.markdown import report_markdown
from roofline.render.pages import report_html
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from tests.analysis.blocks import facts_of, grid_of
from tests.analysis.examples import Network, analysis_of, dram_profile, resnet, small, trained


def facts(analysis: Analysis, *, fused: bool = False) -> dict[str, str]:
    return facts_of(analysis.report(View(fused=fused, verbose=True)))


def grid_called(analysis: Analysis, title: str, **view: object) -> Grid:
    return grid_of(analysis.report(View(**view)), title)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (Run(), "inference"),
        (Run(device="cuda", channels_last=True), "inference · channels last · device cuda"),
        (Run(dtype="bfloat16"), "inference · parameters, buffers and inputs in bfloat16"),
        (Run(train=True), "training step (no optimizer step)"),
        (
            Run(train=True, optimizer="adamw", loss="its own", autocast="float16"),
            "training step (adamw) · loss: its own · autocast float16",
        ),
    ],
)
def test_how_a_model_was_run_is_said_in_words(run: Run, words: str) -> None:
    assert run_text(run) == words


def test_a_training_step_is_called_so_and_told_by_phase() -> None:
    """By hand: 650 FLOP, then 640 and 640; bytes 4 * (10 + 32 + 320 + 10) and so on."""
    analysis = trained()
    assert analysis.report().headline.startswith("lesson: minimum ")
    assert " per training step (eager" in analysis.report().headline
    assert facts(analysis)["Run"] == "training step (sgd) · loss: the output · autocast bfloat16"
    phases = grid_called(analysis, "Phases")
    assert [row[:4] for row in phases.rows] == [
        ("forward", "1", "650 FLOP", "1.49 kB"),
        ("backward", "1", "640 FLOP", "1.45 kB"),
        ("optimizer", "1", "640 FLOP", "5.12 kB"),
    ]
    assert not phases.sums
    assert grid_called(analysis, "Phases", by="phase").sums[0][:3] == ("total", "3", "1.93 kFLOP")
    assert "Phase" in [each.heading for each in grid_called(analysis, "Top operators").columns]
    assert title_of(analysis).startswith("Roofline of lesson, training step")


def legend_of(analysis: Analysis) -> set[str]:
    figure = new_figure(10, 6.5)
    analysis.draw(figure)
    return {each.get_text() for each in figure.legends[0].get_texts()}


def test_inference_says_nothing_of_phases() -> None:
    assert "Run" not in facts(small())
    text = plain_text(small().report())
    assert "phase" not in text.lower()
    assert not legend_of(small()) & {"forward", "backward"}


def test_phases_have_looks_of_their_own_in_the_picture() -> None:
    phases = {"forward", "backward", "optimizer"}
    assert {each.phase for each in points_of(trained())} == phases
    assert phases <= legend_of(trained())


def test_memory_says_what_is_held_and_when() -> None:
    """By hand: 330 parameters, 32 inputs, 320 of state, 10 of output, 320 of gradient."""
    text = facts(trained())["Memory"]
    assert text.startswith("4.05 kB peak, in body.fc (backward): ")
    assert (
        "parameters 1.32 kB + inputs 128 B + activations 40 B + gradients 1.28 kB"
        " + optimizer 1.28 kB" in text
    )
    old = facts(replace(small(), peak=None))["Memory"]
    assert old == ("1.49 kB peak · memory capacity not known: sheet")


def with_parts(byte: int | None) -> Analysis:
    """`small`, whose linear layer hands so much from part to part."""
    analysis = small()
    first, *others = analysis.operators
    return replace(
        analysis,
        operators=(replace(first, internal_bytes=byte), *others),
        totals=replace(analysis.totals, internal_bytes=byte or 0),
    )


def test_traffic_is_a_range_where_operators_are_made_of_parts() -> None:
    text = facts(with_parts(1000))["Traffic"]
    assert text.startswith(
        "1.57 kB operands (up to 2.57 kB with data inside fused operators) · DRAM 1.57 kB"
    )
    assert "(more inside 1 fused operator: bytes unknown)" in facts(with_parts(None))["Traffic"]
    assert facts(with_parts(1000))["Operands"] == facts(small())["Operands"]


def test_fused_traffic_stands_beside_the_eager_one_and_only_when_asked() -> None:
    analysis = small()
    assert "Fused" not in facts(analysis)
    assert "Fused" not in plain_text(analysis.report())
    # The ReLU joins the layer: its reading and writing of 10 elements is no more.
    assert facts(analysis, fused=True)["Fused"] == (
        "1.49 kB in 1 kernel (eager: 1.57 kB in 2), with operator fusion as in Inductor or TensorRT"
    )
    assert facts(analysis, fused=True)["Traffic"] == facts(analysis)["Traffic"]
    rows = tuple(replace(row, chain=None, fused_bytes=None) for row in analysis.operators)
    old = replace(analysis, operators=rows, totals=replace(analysis.totals, fused_bytes=None))
    assert facts(old, fused=True)["Fused"] == "unknown: analyze the model again"


@pytest.mark.parametrize("by", ["operator", "module", "type", "phase"])
def test_every_table_has_a_column_of_fused_bytes_when_asked(by: str) -> None:
    blocks = resnet().report(View(by=by, fused=True)).blocks  # pyright: ignore[reportArgumentType]
    headings = [each.heading for grid in blocks if isinstance(grid, Grid) for each in grid.columns]
    assert "Fused bytes" in headings
    assert "FLOP" in headings


def test_the_tree_is_indented_in_every_layout() -> None:
    analysis = trained()
    grid = grid_called(analysis, "Modules", by="module")
    assert [row[:4] for row in grid.rows] == [
        ("(model)", "Net", "1", "330"),
        ("  body", "Sequential", "1", "330"),
        ("    fc", "Linear", "1", "330"),
    ]
    assert "\n    fc " in plain_text(analysis.report(View(by="module")))
    assert "| &nbsp;&nbsp;&nbsp;&nbsp;fc |" in report_markdown(analysis.report(View(by="module")))
    html = report_html(analysis.report(View(by="module", depth=1)))
    assert '<td class="left">  body</td>' in html
    assert ">    fc<" not in html
    assert "white-space: pre" in html
    lines = analysis.to_csv(by="module").splitlines()
    assert lines[0].startswith("module,depth,part,class,module_calls,parameters,is_open,calls,flop")
    assert lines[3].startswith("body.fc,2,whole,Linear,1,330,false,3,1930")


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("by", ["operator", "module", "type", "phase"])
def test_training_fits_the_terminal(by: str, width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    print_report(trained().report(View(by=by, fused=True)), console)  # pyright: ignore[reportArgumentType]
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "Fused bytes" in text
    if by == "operator":
        assert "body.fc" in text


def test_free_operators_are_told_beside_the_types() -> None:
    grid = grid_called(resnet(), "Operator types", by="type")
    free = sum(row.state is State.FREE for row in resnet().operators)
    assert grid.sums[-1][:2] == ("free (views, allocations)", str(free))
    assert len(grid_called(small(), "Operator types", by="type").sums) == 1


def test_the_device_is_noted_where_it_is_not_that_of_the_hardware() -> None:
    sheet = dram_profile()
    gpu = replace(sheet, device="cuda", threads=1, compute=(), memory=())

    def notes(profile: object, run_on: str) -> str:
        at_hand = replace(gpu, memory=sheet_memory()) if profile is gpu else sheet
        return " ".join(roof_notes((), Roof(at_hand, at_hand.threads), run_on))  # pyright: ignore[reportArgumentType]

    assert "captured for" not in notes(sheet, "cpu")
    assert "captured for" not in notes(gpu, "cuda")
    assert "is a cuda device, but operators were captured for a CPU" in notes(gpu, "cpu")
    assert "'sheet' is a CPU, but operators were captured for cuda" in notes(sheet, "cuda")
    assert "for the meta device: torch can call others" in notes(sheet, "meta")
    note = other_device_note(replace(gpu, device="mps"))
    assert note.endswith("torch can call others, with shorter minimum times, on mps")


def sheet_memory():
    (level,) = dram_profile().memory
    return (replace(level, bandwidth=tuple(replace(each, threads=1) for each in level.bandwidth)),)


def test_equal_numbered_blocks_share_a_row_with_their_sums() -> None:
    """Three layers of 32 x 32 and one of 32 x 16: 2 * 1024 + 32 FLOP each, and 2 * 512 + 16."""
    net = Network()
    x = net.tensor(1, 32, role=Role.INPUT)
    for number, width in enumerate((32, 32, 32, 16)):
        x = net.linear(x, width, f"h.{number}.fc")
    analysis = analysis_of(net, dram_profile())
    grid = grid_called(analysis, "Modules", by="module", depth=3)
    assert [row[:3] for row in grid.rows] == [
        ("(model)", "4", "7.28 kFLOP"),
        ("  h", "4", "7.28 kFLOP"),
        ("    blocks 0–2 ×3", "3", "6.24 kFLOP"),
        ("      fc", "3", "6.24 kFLOP"),
        ("    3", "1", "1.04 kFLOP"),
        ("      fc", "1", "1.04 kFLOP"),
    ]
    expanded = grid_called(analysis, "Modules", by="module", verbose=True)
    assert [row[0].strip() for row in expanded.rows] == ["(model)", "h", "0", "1", "2", "3"]
