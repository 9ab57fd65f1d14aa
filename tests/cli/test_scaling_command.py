"""``roofline scale --data-parallel N`` and ``roofline measure --links``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.cli.main import run

DESIGN = "linear(32,64)+relu()+linear(64,8)@4x32"
LINK = ("--link-bandwidth", "25GB/s", "--link-latency", "5us")
STEP = ("scale", DESIGN, "--hardware", "10980xe")


def test_a_step_on_several_ranks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "told.json"
    code = run([*STEP, "--data-parallel", "8", *LINK, "-o", str(file)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "on 8 ranks: scaling efficiency" in said.out and "Scaling by number of ranks" in said.out
    assert f"Wrote {file}" in said.err
    data = json.loads(file.read_text())
    assert data["gradient_bytes"] == 4 * (32 * 64 + 64 + 64 * 8 + 8)
    assert data["link"]["latency_s"] == pytest.approx(5e-6)
    assert data["link"]["bytes_per_s"] == 25e9


def test_options_reach_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data-parallel", "4", *LINK, "--all-reduce", "tree", "--accumulate", "2"]
    more = ["--bucket", "1kB", "--sharded-optimizer", "--optimizer", "adam", "--format", "json"]
    assert run([*STEP, *options, *more]) == 0
    data = json.loads(capsys.readouterr().out)
    settings = data["settings"]
    assert (settings["ranks"], settings["algorithm"], settings["accumulate"]) == (4, "tree", 2)
    assert settings["bucket_bytes"] == 1000 and settings["sharded"] is True
    assert len(data["buckets"]) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*STEP, "--accumulate", "2"], "Missing option '--data-parallel'"),
        ([*STEP, "--data-parallel", "2"], "measure --links"),
        ([*STEP, "--data-parallel", "0", *LINK], "--data-parallel 0"),
        ([*STEP, "--data-parallel", "-3", *LINK], "--data-parallel -3"),
        ([*STEP, "--data-parallel", "two", *LINK], "two"),
        ([*STEP, "--data-parallel", "1000000000", *LINK], "from 1 to 1048576"),
        (
            [*STEP, "--data-parallel", "2", "--link-bandwidth", "25Gb/s"],
            "--link-bandwidth 25Gb/s: must be a rate",
        ),
        ([*STEP, "--data-parallel", "2", "--link-latency", "5us"], "without --link-bandwidth"),
        (["scale", DESIGN, "--data-parallel", "2"], "no hardware profile of this machine"),
        ([*STEP, "--data-parallel", "2", *LINK, "--measured"], "leave --hardware out"),
        ([*STEP, "--data-parallel", "2", *LINK, "--all-reduce", "rings"], "did you mean 'ring'"),
        (
            [*STEP, "--data-parallel", "2", "--link-bandwidth", "fast"],
            "must be a rate such as 25GB/s",
        ),
        ([*STEP, "--data-parallel", "2", *LINK, "-o", "told.toml"], "are written as .json"),
        (
            [*STEP, "--hardware", "a100", "--data-parallel", "2", *LINK],
            "takes one machine",
        ),
        (["measure", "--links", "--quick"], "--quick: has no effect with --links"),
        (["measure", "--links"], "run `roofline measure` first"),
        (["measure", "--explain", "--links"], "--links: has no effect with --explain"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err and not told.out
    assert told.err.count("\n") == 1


def test_links_are_kept_in_the_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roofline.machine import catalog
    from roofline.machine import links as measured
    from roofline.machine.hardware import Link, profile_to_toml
    from tests.builders import SOURCE

    def links(**_: Any) -> tuple[Link, ...]:
        return (
            Link(
                source="process",
                target="process",
                kernel="gloo all-reduce",
                threads=1,
                peak_bytes_per_s=3e9,
                sustained_bytes_per_s=2e9,
                provenance=SOURCE,
            ),
        )

    monkeypatch.setattr(measured, "measure_links", links)
    file = catalog.host_file()
    file.parent.mkdir(parents=True)
    file.write_text(profile_to_toml(catalog.load_hardware("10980xe")))
    assert run(["measure", "--links"]) == 0
    assert "gloo all-reduce" in capsys.readouterr().out
    (kept,) = catalog.load_hardware("host").links
    assert kept.sustained_bytes_per_s == 2e9
    told = ["scale", DESIGN, "--data-parallel", "2", "--hardware", str(file)]
    assert run(told) == 0
    assert "3.00 GB/s per direction" in capsys.readouterr().out
