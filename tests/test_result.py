"""A kind of result costs one file: what follows from rows, blocks and a drawing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from roofline.core.blocks import Block, KeyValueBlock, View, notes, table
from roofline.errors import FileFormatError, InputError
from roofline.result import HOMES, Result, read_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    ALSO_WRITTEN: ClassVar = ("m_per_s",)

    name: str
    length_m: float
    lap_s: float | None

    @property
    def m_per_s(self) -> float | None:
        return self.length_m / self.lap_s if self.lap_s else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Race(Result):
    """A small kind, all of it in one file."""

    kind: ClassVar = "race"
    made_by: ClassVar = "race --again"
    columns: ClassVar = {"name": "string", "lap_s": "Float64"}
    ALSO_WRITTEN: ClassVar = ("summary",)

    laps: tuple[Lap, ...]

    @property
    def summary(self) -> str:
        return f"race: {len(self.laps)} laps"

    def rows(self) -> Iterable[list[Any]]:
        return ([each.name, each.lap_s] for each in self.laps)

    def blocks(self, view: View) -> Iterable[Block]:
        yield KeyValueBlock(lines=(("Laps", str(len(self.laps))),))
        columns = {"driver": "name", "lap": "lap_s"}
        yield table("Laps", self.laps[: view.rows()], columns, left=("driver",))
        yield from notes("Notes", (each.name for each in self.laps if each.lap_s is None))

    def draw(self, figure: Figure) -> None:
        axes = figure.subplots()
        axes.bar([each.name for each in self.laps], [each.lap_s or 0.0 for each in self.laps])

    def contradictions(self) -> Iterable[str]:
        return (f"{each.name} took no time" for each in self.laps if each.lap_s == 0)


RACE = Race(
    laps=(
        Lap(name="<b>one</b>\x1b", length_m=10.0, lap_s=2.0),
        Lap(name="=two", length_m=10.0, lap_s=None),
    )
)


def test_all_files_follow_and_all_of_it_is_read_back(tmp_path: Path) -> None:
    paths = [tmp_path / f"race{suffix}" for suffix in Race.suffixes]
    RACE.save(*paths)
    assert all(each.stat().st_size for each in paths)
    assert read_result(paths[0]) == RACE
    data = json.loads(paths[0].read_text())
    assert (data["schema_version"], data["kind"], data["summary"]) == (1, "race", "race: 2 laps")
    assert data["laps"][0]["m_per_s"] == 5.0
    assert paths[1].read_text().splitlines() == ["name,lap_s", "<b>one</b>\x1b,2.0", "'=two,"]
    page = paths[3].read_text()
    assert "<b>one" not in page and "<svg" in page


def test_frames_reports_and_names_follow() -> None:
    frame = RACE.to_frame()
    assert list(frame["lap_s"].isna()) == [False, True]
    assert repr(RACE) == "<Race: race: 2 laps>"
    text = str(RACE)
    assert text.startswith("race: 2 laps\n") and "\x1b" not in text
    assert "2.00 s" in text and "–" in text
    assert "=two" not in str(RACE.report(View(top=1)).blocks[1])
    assert "<b>one" not in RACE._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert RACE.to_csv() == RACE.render("csv")


def test_show_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from roofline.cli.main import run

    RACE.save(tmp_path / "race.json")
    assert run(["show", str(tmp_path / "race.json"), "-o", str(tmp_path / "race.md")]) == 0
    assert capsys.readouterr().out.startswith("race: 2 laps")
    assert (tmp_path / "race.md").read_text().startswith("# race: 2 laps")


def refusal(path: Path, data: object) -> str:
    path.write_text(json.dumps(data))
    with pytest.raises(FileFormatError) as caught:
        read_result(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_with_the_summary_of_another_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**RACE.to_data(), "summary": "two laps were run"}))
    assert read_result(path) == RACE


def test_files_that_are_wrong_get_one_line(tmp_path: Path) -> None:
    data, path = RACE.to_data(), tmp_path / "r.json"
    assert "has no 'kind'" in refusal(path, {})
    assert "has no 'kind'" in refusal(path, [1])
    assert "kind 'rase' is not known; did you mean 'race'" in refusal(
        path, {**data, "kind": "rase"}
    )
    assert "laps" in refusal(path, {**data, "laps": 3})
    assert "make it again with `race --again`" in refusal(path, {**data, "more": 3})
    assert "schema_version" in refusal(path, {**data, "schema_version": 0})
    wrong = replace(RACE, laps=(Lap(name="a", length_m=1.0, lap_s=0.0),)).to_data()
    assert "a took no time: the file was changed or cut" in refusal(path, wrong)


def test_wrong_targets_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown suffix '.jpg'; results of kind 'race'.*\.json"):
        RACE.save(tmp_path / "a.json", tmp_path / "a.jpg")
    with pytest.raises(InputError, match="duplicate file; give it once"):
        RACE.save(tmp_path / "a.json", tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    RACE.save(tmp_path / "a.json")
    with pytest.raises(InputError, match="exists"):
        RACE.save(tmp_path / "a.json")
    RACE.save(tmp_path / "a.json", overwrite=True)
    with pytest.raises(InputError, match="format='trace': results of kind 'race'"):
        RACE.render("trace")


@pytest.mark.parametrize("home", sorted(set(HOMES.values())))
def test_printing_any_kind_gives_its_report_and_repr_stays_short(home: str) -> None:
    for kind in vars(importlib.import_module(home)).values():
        if isinstance(kind, type) and issubclass(kind, Result):
            assert kind.__str__ is Result.__str__
            assert kind.__repr__ is Result.__repr__


def test_every_kind_is_opened_without_torch() -> None:
    code = (
        "import importlib, sys\n"
        "for name in ('torch', 'pandas', 'matplotlib'): sys.modules[name] = None\n"
        "from roofline import result\n"
        "for home in result.HOMES.values(): importlib.import_module(home)\n"
        "assert result.HOMES.keys() <= result._KINDS.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
