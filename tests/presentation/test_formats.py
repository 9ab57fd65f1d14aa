"""What all results share where they are written, on a result that is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from roofline.errors import InputError
from roofline.foundation.blocks import Facts, Report
from roofline.presentation.formats import check_files, check_suffix_among, rendered


class Result:
    """Its data and an empty picture."""

    def to_json(self) -> str:
        return "{}\n"

    def plot(self) -> Any:
        return Figure(figsize=(1, 1))


def shown(format: str) -> str | bytes:
    return rendered(
        Result(),
        format,
        what="a thing",
        report=lambda: Report(headline="It is", blocks=(Facts(lines=(("So", "much"),)),)),
        csv=lambda: "so\nmuch\n",
    )


def test_each_format_takes_what_it_needs() -> None:
    assert shown("json") == "{}\n"
    assert shown("csv") == "so\nmuch\n"
    assert shown("md") == "# It is\n\n- **So:** much\n"
    png = shown("png")
    assert isinstance(png, bytes) and png.startswith(b"\x89PNG")
    svg, page = str(shown("svg")), str(shown("html"))
    assert svg.startswith("<?xml") and "</svg>" in svg
    assert page.startswith("<!doctype html>") and "<svg" in page and "much" in page
    with pytest.raises(InputError, match=r"^a thing is not written as pt2$"):
        shown("pt2")


def test_another_suffix_is_refused_with_the_nearest() -> None:
    check_suffix_among(Path("A.JSON"), (".json", ".md"), "a thing")
    for name, message in (
        ("a.jsn", r"^a\.jsn: a thing is written as \.json, \.md; did you mean '\.json'\?$"),
        ("a", r"^a: a thing is written as \.json, \.md$"),
        ("a.trace.json", r"^a\.trace\.json: a thing is written as \.json, \.md"),
    ):
        with pytest.raises(InputError, match=message):
            check_suffix_among(Path(name), (".json", ".md"), "a thing")


def test_files_are_refused_in_their_order(tmp_path: Path) -> None:
    checked: list[Path] = []
    here, there = tmp_path / "a.md", tmp_path / "b.md"
    there.write_text("mine")
    check_files([here, there], checked.append, overwrite=True)
    assert checked == [here, there]
    with pytest.raises(InputError, match=r"b\.md: exists; add --force"):
        check_files([here, there], checked.append, overwrite=False)
    linked = tmp_path / "c.md"
    linked.symlink_to(there)
    with pytest.raises(InputError, match=r"c\.md: is named twice; give each file once"):
        check_files([there, linked], checked.append, overwrite=True)
