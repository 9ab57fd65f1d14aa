"""The pages of docs, README and CONTRIBUTING: their links, their order, and their size."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from roofline import result

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_CODE = re.compile(r"```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors that code-hosting sites make of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken: list[str] = []
    for path, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert not broken


_FILE = re.compile(r"(?<![\w/.])(?:benchmarks|hwprofiles|roofline|scripts|tests)/[\w/.*-]*\w")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_named_files_exist(page: Path) -> None:
    names = set(_FILE.findall(page.read_text(encoding="utf-8")))
    named_later = {name for name in names if "NAME" in name}
    assert [each for each in sorted(names - named_later) if not list(ROOT.glob(each))] == []


def test_every_picture_is_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [each.name for each in sorted((ROOT / "docs" / "images").iterdir())]
    assert [each for each in pictures if each not in text] == []


def test_the_architecture_is_one_short_page_whose_names_exist() -> None:
    page = ROOT / "docs" / "architecture.md"
    assert page.stat().st_size <= 6000
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"`((?!tests/|benchmarks/)[\w/]+/[\w*]+\.py)`", text))
    assert [each for each in sorted(files) if not (ROOT / "roofline" / each).exists()] == []
    code = "".join(each.read_text("utf-8") for each in (ROOT / "roofline").rglob("*.py"))
    types = set(re.findall(r"`([A-Z]\w+)`", text))
    assert [each for each in sorted(types) if f"class {each}" not in code] == []


@pytest.mark.parametrize(
    "record", sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")), ids=named
)
def test_a_decision_has_its_four_parts(record: Path) -> None:
    headings = re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Decision", "Evidence", "Consequences"]


def test_generated_parts_have_every_operator_machine_and_kind() -> None:
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
    assert spec is not None and spec.loader is not None
    generated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    assert "`aten.addmm`" in generated.operators()
    machines = generated.machines()
    names = [each.stem for each in (ROOT / "hwprofiles").glob("*.toml")]
    assert all(machines.count(f"| `{name}` |") == 1 for name in names)
    assert ".. autofunction:: roofline.analyze\n" in generated.api()
    keys = generated.keys()
    assert set(re.findall('`kind = "(.*?)"`', keys)) == set(result.HOMES)
    assert "| `eager_min_time_s` |" in keys
