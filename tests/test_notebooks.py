"""The notebooks as files: a course in order, whose links lead somewhere, stored without outputs."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def cells_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(path.read_text())["cells"] if each["cell_type"] == kind]


def text_of(path: Path) -> str:
    return "\n\n".join("".join(each["source"]) for each in cells_of(path, "markdown"))


def test_they_are_numbered_from_one_without_gaps():
    numbers = [int(path.name[:2]) for path in NOTEBOOKS]
    assert numbers == list(range(1, len(NOTEBOOKS) + 1))


def test_readme_lists_all_of_them_in_order():
    listed = re.findall(r"\(notebooks/([^)]+)\)", (ROOT / "README.md").read_text())
    assert list(dict.fromkeys(listed)) == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_that_was_computed_is_stored(path: Path):
    for cell in cells_of(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path: Path):
    targets = _LINK.findall(text_of(path))
    assert [each for each in targets if not (path.parent / each).exists()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_has_a_question_and_a_picture_and_ends_with_exercises(path: Path):
    text = text_of(path)
    assert re.match(r"# [^\n?]+\?\n", text)
    code = "\n".join("".join(each["source"]) for each in cells_of(path, "code"))
    assert len(re.findall(r"\bplot\(", code)) == 1
    exercises = text.rpartition("## Exercises")[2]
    assert re.findall(r"^(\d)\. ", exercises, flags=re.MULTILINE) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("path", "following"), list(itertools.pairwise(NOTEBOOKS)), ids=lambda path: path.stem
)
def test_each_leads_to_the_next(path: Path, following: Path):
    assert following.name in _LINK.findall(text_of(path))
