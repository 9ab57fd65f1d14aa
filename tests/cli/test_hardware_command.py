"""The machines on the command line: diff, and devices that have no threads to choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cli.main import run
from tests.cli.stand_ins import error_of


def test_diff_holds_the_measured_article_machine_against_its_paper(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """2.86 / 4.608 = 0.621; 74 / 96 = 0.771; ridges 48 and 38.6."""
    files = [tmp_path / f"d{suffix}" for suffix in (".json", ".csv", ".md")]
    asked = [part for file in files for part in ("-o", str(file))]
    assert run(["hardware", "diff", "10980xe", "10980xe-measured", *asked]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("10980xe-measured / 10980xe: float32 peak 0.621×")
    assert "48.0              38.6" in captured.out
    assert captured.err.splitlines() == [f"Wrote {file}" for file in files]
    (memory,) = [
        each for each in json.loads(files[0].read_text())["figures"] if each["what"] == "bandwidth"
    ]
    assert memory["peak_ratio"] == pytest.approx(74 / 96)


def test_diff_takes_files_and_tells_two_of_one_name_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["hardware", "diff", "v100", "v100"]) == 0
    assert capsys.readouterr().out.startswith("v100 (1) and v100 (2): no difference\n")
    from roofline.machine.catalog import bundled_folder

    text = (bundled_folder() / "v100.toml").read_text(encoding="utf-8")
    assert "peak_bytes_per_s = 9.0e11" in text
    half = text.replace("_bytes_per_s = 9.0e11", "_bytes_per_s = 4.5e11")
    path = tmp_path / "half.toml"
    path.write_text(half, encoding="utf-8")
    assert run(["hardware", "diff", "v100", str(path)]) == 0
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line == "v100 (2) / v100 (1): float32 peak 1×, memory bandwidth 0.5×"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["v100", "10980x"], "unknown hardware '10980x'; did you mean '10980xe'?"),
        (["gravitn4", "h100"], "did you mean 'graviton-4'?"),
        (["v100", "TMP/none.toml"], "no such file"),
        (["v100", "host"], "run `roofline measure`"),
        (["v100"], "Missing argument 'B'"),
        (["v100", "h100", "-o", "TMP/d.png"], ".json, .csv, .md"),
        (["v100", "h100", "-o", "TMP/old.md"], "add --force"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.md"
    old.write_text("precious")
    given = [each.replace("TMP", str(tmp_path)) for each in arguments]
    assert expected in error_of(capsys, "hardware", "diff", *given)
    assert old.read_text() == "precious"


def test_a_device_is_analysed_as_a_whole_and_the_reader_is_told_whose_operators_these_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["analyze", "squeezenet1_1", "--hardware", "h100"]) == 0
    said = capsys.readouterr().out
    assert "thread" not in said
    assert "h100 · cuda device" in said
    assert "https://" not in said, "addresses stand with hardware show"
    assert "operators were captured" not in said, "they are those of the device"
    assert run(["analyze", "squeezenet1_1", "--hardware", "h100", "--device", "cpu"]) == 0
    assert "operators were captured for a CPU" in capsys.readouterr().out
    refused = error_of(capsys, "analyze", "squeezenet1_1", "--hardware", "h100", "--threads", "4")
    assert "--threads 4 has no effect on 'h100', a cuda device" in refused


def test_list_and_show_speak_of_no_threads_of_a_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["hardware", "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[3:] if line}

    def words(name: str) -> str:
        return " ".join(rows[name].split())

    assert words("h100").endswith("80 GB cuda – 495 TFLOP/s HBM 3.35 TB/s – 2023 bundled")
    assert words("v100-article").endswith("cuda – – HBM 720 GB/s – – bundled")
    assert words("snapdragon-8-gen-3").endswith("cpu 8 435 GFLOP/s DRAM 76.8 GB/s – – bundled")
    assert run(["hardware", "show", "h100", "-v"]) == 0
    said = capsys.readouterr().out
    assert "thread" not in said
    assert "https://" in said
    assert "bfloat16 tensor-core MMA, float16 tensor-core MMA – dense: half of the 1978.9" in said
