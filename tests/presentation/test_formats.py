"""What all results share where they are written, on a result that is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.errors import InputError
from roofline.presentation.formats import check_files, check_suffix_among


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
