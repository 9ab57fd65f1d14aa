"""Plots of `llm`: stages under the roofline, and a heat map of serving runs."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.analysis.points import lines_of
from roofline.analysis.words import place_text, provenance_text
from roofline.llm.formats import WeightFormat
from roofline.llm.parts import Stage
from roofline.llm.result import Language
from roofline.llm.serving import ServingCell
from roofline.llm.stages import StageResult, rate_text
from roofline.machine.roof import line_name
from roofline.placement import Bound, Roof
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roof import Point
from roofline.plots.roofline import draw_roofline
from roofline.plots.style import BLUE, GREY, INK, SMALL_PT, VERMILION, Style

_MOST_ROWS = 64
"""Rows of a heat map with legible names."""

_LOOK = {"prefill": Style(VERMILION, "s"), "decode": Style(BLUE, "o")}


def draw_stages(figure: Figure, language: Language, labels: int) -> None:
    """Draw the architecture's parts of all stages under one roofline."""
    profile, run = language.hardware, language.cells[0].run
    roof = Roof(profile, language.threads)
    types = WeightFormat.parse(run.weights).types(language.dtype, None, roof)
    used = dict.fromkeys((types.compute, types.floats))
    main = [unit.dtype for of in used if (unit := roof.compute(of)) is not None]
    points = [point for each in language.stages for point in points_of(each)]
    handles = draw_roofline(
        figure.subplots(),
        lines_of(roof, main, "in use"),
        sorted(points, key=lambda point: -point.share),
        look=_LOOK,
        labels=labels,
        rate="FLOP/s (FLOP / time at ceiling)",
    )
    rates = ", ".join(
        f"{each.stage} ≤ {each.asked_rate.words}" for each in language.stages if each.asked_rate
    )
    title_figure(
        figure,
        line_name(language.model) + (f": {rates} tokens/s" if rates else ""),
        place_text(
            profile,
            language.threads,
            f"batch {language.batch}, {language.context:,} tokens",
            f"{run.weights} weights, {run.cache} KV cache",
            "parts of the architecture" + f" on one of {run.ranks} ranks" * (run.ranks > 1),
        ),
    )
    foot_figure(figure, handles, [provenance_text(language.hardware)])


def points_of(stage: StageResult) -> list[Point]:
    """Return the parts of a stage with FLOP, bytes and time, sized by their time share."""
    whole_s = stage.asked.parts_s
    return [
        Point(
            name=f"{stage.stage}: {part.name}",
            op=part.name,
            type=stage.stage,
            phase="forward",
            count=part.count,
            flop_per_byte=part.intensity_flop_per_byte,
            flop_per_s=part.attainable_flop_per_s,
            share=(part.min_time_s or 0.0) / whole_s if whole_s else 0.0,
            above=False,
        )
        for part in stage.asked.parts
        if part.flop
        and part.intensity_flop_per_byte
        and part.attainable_flop_per_s
        and part.bound is not Bound.UNKNOWN
    ]


def draw_map(figure: Figure, language: Language) -> None:
    """Draw the tokens/s of all runs: a row per run, a column per batch (or context)."""
    cells = language.cells
    name: Stage = "decode" if cells[0].stage("decode") else "prefill"
    by_batch = len({each.run.batch for each in cells}) > 1
    axis, other = ("batch", "context") if by_batch else ("context", "batch")
    fixed = ("machine", "ranks", "weights", "cache", other)
    columns = sorted({getattr(each.run, axis) for each in cells})
    groups: dict[tuple[object, ...], list[ServingCell]] = {}
    for each in cells:
        groups.setdefault(tuple(getattr(each.run, of) for of in fixed), []).append(each)
    rows = list(groups)[:_MOST_ROWS]
    varied = [place for place in range(len(fixed)) if len({row[place] for row in rows}) > 1]
    rates = np.full((len(rows), len(columns)), math.nan)
    found: dict[tuple[int, int], ServingCell] = {}
    for place, each in ((place, each) for place, row in enumerate(rows) for each in groups[row]):
        spot = place, columns.index(getattr(each.run, axis))
        stage = each.stage(name)
        found[spot] = each
        rates[spot] = stage.tokens_per_s if stage and stage.tokens_per_s else math.nan
    axes = figure.subplots()
    norm = LogNorm(vmin=float(np.nanmin(rates)), vmax=float(np.nanmax(rates)) * 1.0001)
    axes.imshow(rates, norm=norm, cmap="viridis", aspect="auto")
    small = SMALL_PT * min(1.0, 28 / max(len(rows), 2 * len(columns)))
    for (row, column), cell in found.items():
        stage = cell.stage(name)
        mark = "*" * (stage is not None and stage.bound is Bound.COMPUTE)
        is_dark = norm(rates[row, column]) < 0.6
        if cell.fit == "does not fit":
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=GREY, hatch="//", alpha=0.75)
            )
        text = f"{rate_text(float(rates[row, column]))}{mark}"
        style = words(color="white" if is_dark else INK, fontsize=max(4.0, small))
        axes.text(column, row, text, ha="center", va="center", **style)
    prepare_axes(axes, x=f"{axis} ({'sequences' if by_batch else 'tokens'})", grid=False)
    axes.set_xticks(range(len(columns)), [f"{each:,}" for each in columns])
    labels = [", ".join(_label(fixed[place], row[place]) for place in varied) for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=max(4.0, small))
    same = [
        _label(fixed[place], rows[0][place]) for place in range(len(fixed)) if place not in varied
    ]
    title_figure(
        figure,
        f"{line_name(language.model)}: max {name} tokens/s of all sequences",
        " · ".join((*same, f"paged engine, minimum times{language.routing}")),
    )
    legend = [
        Rectangle((0, 0), 1, 1, facecolor=GREY, hatch="//", label="does not fit into memory")
    ] * any(each.fit == "does not fit" for each in found.values())
    marked = ((of := each.stage(name)) and of.bound is Bound.COMPUTE for each in found.values())
    note = "* compute-bound, else memory- or link-bound; " if any(marked) else ""
    if len(groups) > len(rows):
        note += f"first {len(rows)} of {len(groups):,} rows; "
    foot_figure(figure, legend, [f"{note}{provenance_text(language.hardware)}"])


def _label(name: str, value: object) -> str:
    match name:
        case "ranks":
            return f"{value} rank{'s' * (value != 1)}"
        case "cache":
            return f"{value} KV"
        case "context":
            return f"{value:,} tokens"
        case "batch":
            return f"batch {value:,}"
        case _:
            return str(value)
