"""Quantisations as files: every format, all of them or none, and bad targets in one line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from roofline.analysis import analysis_from_data
from roofline.errors import InputError
from roofline.presentation.quantization_output import (
    check_quantization_targets,
    render_quantization,
    write_quantization,
)
from roofline.quantization.policy import Policy
from tests.presentation.quantizations import (
    bandwidth_only,
    quantizations,
    sensitive,
    swept,
    unknown,
    with_kernels,
)


@pytest.mark.parametrize("name", quantizations())
@pytest.mark.parametrize("format", ["json", "csv", "md", "html"])
def test_every_format_has_it(name: str, format: str) -> None:
    text = render_quantization(quantizations()[name], format)
    assert isinstance(text, str) and text
    assert "<script>alert" not in text or format in ("json", "csv")
    if format == "html":
        assert text.startswith("<!doctype html>") and "<svg" in text


def test_pictures_are_png_and_svg() -> None:
    assert render_quantization(bandwidth_only(), "png")[:4] == b"\x89PNG"
    assert str(render_quantization(bandwidth_only(), "svg")).startswith("<?xml")
    with pytest.raises(InputError, match="not written as pt2"):
        render_quantization(bandwidth_only(), "pt2")


def test_json_holds_the_analysis_whole_and_policies_that_can_be_read_again() -> None:
    found = sensitive()
    data = json.loads(str(render_quantization(found, "json")))
    assert data["kind"] == "quantization"
    assert data["summary"] == found.summary
    assert analysis_from_data(data["analysis"], file="x") == found.analysis
    assert Policy.from_data(data["what_ifs"][0]["policy"]) == found.what_if.policy
    assert found.sensitivity is not None and found.sensitivity.proposal is not None
    proposed = data["sensitivity"]["proposal"]["policy"]
    assert Policy.from_data(proposed) == found.sensitivity.proposal.policy


def test_csv_has_every_layer_of_every_width_whatever_is_shown() -> None:
    found = swept()
    text = str(render_quantization(found, "csv", top=1))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == sum(len(each.layers) for each in found.what_ifs)
    (row,) = csv.DictReader(io.StringIO(str(render_quantization(unknown(), "csv"))))
    # Unknown is empty, never 0.
    bounds = [value for name, value in row.items() if "bound" in name and name.endswith("_s")]
    assert bounds and not any(bounds)


def test_top_is_how_many_layers_a_page_shows() -> None:
    for format in ("md", "html"):
        page = str(render_quantization(with_kernels(), format, top=2))
        assert "2 of 22 (--top 22)" in page


def test_a_page_has_the_picture_and_all_tables() -> None:
    page = str(render_quantization(sensitive(), "html"))
    for words in ("The pass in parts", "Layers, before and after", "Passes", "Sensitivity"):
        assert words in page


def test_files_are_written_in_the_format_of_their_suffix(tmp_path: Path) -> None:
    suffixes = (".json", ".csv", ".md", ".html", ".png", ".svg")
    paths = [tmp_path / f"out{suffix}" for suffix in suffixes]
    write_quantization(with_kernels(), paths)
    assert (tmp_path / "out.md").read_text(encoding="utf-8").startswith("# resnet-cifar")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out.svg").read_text(encoding="utf-8").startswith("<?xml")
    with pytest.raises(InputError, match="--force"):
        with_kernels().save(paths[0])
    with_kernels().save(paths[0], overwrite=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xyz", "a quantisation is written as .json, .csv, .md, .html, .png, .svg"),
        ("a.jsn", "did you mean '.json'"),
        ("there.json", "exists; add --force"),
        ("nowhere/a.json", "the folder"),
    ],
)
def test_files_are_checked_before_anything_is_done(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(InputError, match=message):
        check_quantization_targets([tmp_path / name], overwrite=False)
    with pytest.raises(InputError, match="named twice"):
        check_quantization_targets([tmp_path / "a.md", tmp_path / "a.md"], overwrite=False)


def test_nothing_is_written_if_one_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        write_quantization(bandwidth_only(), [tmp_path / "a.md", tmp_path / "there.json"])
    assert [each.name for each in tmp_path.iterdir()] == ["there.json"]
