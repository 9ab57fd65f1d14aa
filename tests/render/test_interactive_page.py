"""The interactive report as a file: what it holds, how large it is, and that it fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import Analysis
from roofline.analysis.page import Strings
from roofline.core.blocks import View
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError
from roofline.machine.roof import ceiling_text
from roofline.plots.style import SERIES
from roofline.render.interactive import SCRIPTS, embedded
from tests.analysis.examples import (
    Network,
    analysis_of,
    examples,
    full_profile,
    hostile,
    measured,
    resnet,
    resnet_like,
    sheet,
)
from tests.analysis.predictions import with_predictions
from tests.design.machine_comparisons import comparisons, eight
from tests.render.chromium import chromium
from tests.render.pages import deep, interactive_page

RESULTS = [(of, name) for of in (examples, comparisons) for name in of()]
FOLDER = Path(__file__).parents[2] / "roofline" / "render" / "page"
PER_OPERATOR_BYTE = 500


class Reader(HTMLParser):
    """The tags of a page, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[str] = []
        self._is_raw = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._is_raw = tag in ("script", "style")
        if self._is_raw:
            self.raw.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_raw = False

    def handle_data(self, data: str) -> None:
        if self._is_raw:
            self.raw[-1] += data


def data_of(page: str) -> dict[str, Any]:
    """The data that stand in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(("of", "name"), RESULTS)
def test_every_result_has_a_page_that_runs_only_its_own_script(
    of: Callable[[], Mapping[str, Analysis | Comparison]], name: str
) -> None:
    page = interactive_page(of()[name])
    reader = Reader(page)
    style, data, script = reader.raw
    assert json.loads(data) == data_of(page)
    (policy,) = [each["content"] for tag, each in reader.tags if each.get("http-equiv")]
    assert policy is not None
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    # The policy forbids them, and none is there that it would have to.
    assert not [each for tag, each in reader.tags if {"style", "src", "href"} & set(each)]
    assert not [name for _, each in reader.tags for name in each if name.startswith("on")]


def test_nothing_in_the_page_can_be_fetched() -> None:
    page = interactive_page(eight())
    addresses = re.findall(r"\w+://[^\s\"'<]+", page)
    # The name space of SVG is a name, not an address.
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page and "@font-face" not in page and "url(#frame)" in page
    assert len(re.findall(r"\burl\(", page)) == page.count("url(#frame)")


def test_data_cannot_end_their_element() -> None:
    text = embedded({"</script><script>alert(1)</script>": ["<!--", "\u2028", "ü"]})
    assert "<" not in text
    assert json.loads(text) == {"</script><script>alert(1)</script>": ["<!--", "\u2028", "ü"]}


def test_columns_hold_every_number_whole() -> None:
    analysis = with_predictions(measured(resnet()), {"conv1": 0.0012345678901234567})
    data = data_of(interactive_page(analysis))
    texts, columns, (machine,) = data["strings"], data["operators"], data["machines"]
    for i, row in enumerate(analysis.operators):
        assert texts[columns["module"][i]] == row.module_path
        assert texts[columns["type"][i]] == row.type
        assert texts[columns["state"][i]] == row.state
        assert columns["flop"][i] == row.flop
        assert columns["traffic_bytes"][i] == row.traffic_bytes
        assert texts[machine["bound"][i]] == row.bound
        assert texts[machine["ceiling"][i]] == ceiling_text(row.ceiling)
        for name in ("eager_min_time_s", "attainable_flop_per_s", "predicted_s", "predicted_low_s"):
            assert machine[name][i] == getattr(row, name)
        assert machine["measured_s"][i] == row.measured_s
        assert machine["measured_iqr_s"][i] == row.measured_iqr_s
        for number, level in enumerate(machine["levels"]):
            assert machine["level_bytes"][number][i] == row.level_bytes.get(level, 0)
        assert machine["level"][i] == (machine["levels"].index(row.level) if row.level else -1)


def test_what_no_operator_has_takes_no_room() -> None:
    (machine,) = data_of(interactive_page(resnet()))["machines"]
    assert machine["measured_s"] is None and machine["source"] is None
    assert machine["kind"] == "bound"


def test_strings_stand_once_and_in_one_line() -> None:
    strings = Strings()
    places = [strings.place(text) for text in ("a", "b\n", "a", "\u202eb")]
    assert places == [0, 1, 0, 2]
    assert list(strings) == ["a", "b\\n", "\\u202eb"]


def test_names_stay_text() -> None:
    for result in (hostile(), comparisons()["hostile names"]):
        page = interactive_page(result)
        assert page.count("<script") == page.count("</script>") == 2
        assert "<img" not in page and "<b>" not in page


def predicted(analysis: Analysis) -> Analysis:
    """Every operator predicted and measured, at times with as many digits as times have."""
    paths = {row.module_path: 1e-4 / (7 + row.index) for row in analysis.operators}
    return with_predictions(measured(analysis, 7 / 3), paths)


MACHINES = [sheet(f"machine-{i}", 1e12 * (i + 1) / 7, 1e11 * (i + 2) / 9) for i in range(7)]


@pytest.mark.parametrize("machines", [1, 8])
@pytest.mark.parametrize("net", [resnet_like(), deep(1000)], ids=["resnet", "1000 operators"])
def test_pages_are_small(net: Network, machines: int) -> None:
    """Beside what an empty model's page has, at most 500 bytes an operator and machine."""

    def page_bytes(of: Network) -> int:
        profiles = [full_profile(), *MACHINES][:machines]
        found = [predicted(analysis_of(of, each)) for each in profiles]
        result = Comparison.of_machines(found) if machines > 1 else found[0]
        return len(interactive_page(result).encode())

    fixed = page_bytes(Network())
    assert page_bytes(net) <= fixed + PER_OPERATOR_BYTE * machines * len(net.records)
    assert fixed < 110_000 + 3000 * machines


def test_the_view_is_that_of_the_report() -> None:
    page = interactive_page(resnet(), View(by="module", depth=1))
    assert '<td class="left">  layer1</td>' in page
    assert ">    0</td>" not in page
    assert page == resnet().render("html", View(by="module", depth=1))
    with pytest.raises(InputError, match="depth=3 has no effect"):
        interactive_page(resnet(), View(by="type", depth=3))


def test_the_table_that_is_live_is_left_to_those_without_scripts() -> None:
    assert '<div class="wide static">' in interactive_page(resnet())
    assert '<div class="wide static">' not in interactive_page(resnet(), View(by="type"))
    assert "<noscript>" in interactive_page(resnet())


def test_warnings_stand_before_the_picture() -> None:
    page = interactive_page(replace(resnet(), warnings=("mind the step",)))
    assert page.index("mind the step") < page.index('id="picture"')


def test_every_part_of_the_script_is_in_the_page_and_strict() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in (FOLDER / "script").glob("*.js"))
    page = interactive_page(resnet())
    assert page.count('(() => {\n"use strict";') == 1
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert unsafe not in page


def test_the_colours_are_those_of_all_pictures() -> None:
    page = interactive_page(resnet())
    for number, colour in enumerate(SERIES):
        assert f"--series-{number}: {colour};" in page
        assert f".series-{number} {{ fill: var(--series-{number}); }}" in page


def test_what_is_said_of_all_machines_is_not_said_again_of_each() -> None:
    page = interactive_page(eight())
    assert page.count("<dt>Compute</dt>") == 1
    assert page.count("<dt>Machine</dt>") == 8


@pytest.mark.parametrize("is_required", [False, True])
def test_without_a_browser_tests_are_skipped_or_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tests.render.chromium.CHROMIUM", ("chromium",))
    monkeypatch.setenv("ROOFLINE_BROWSER", "required" if is_required else "")
    outcome = pytest.fail.Exception if is_required else pytest.skip.Exception
    with pytest.raises(outcome, match="no chromium"), chromium(tmp_path):
        raise AssertionError("there is a browser")
