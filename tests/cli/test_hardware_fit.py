"""``hardware fit``: flags or answers make a file that the other commands take."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.machine.hardware import read_profile

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "how-to" / "machines.md"
FLAGS = {
    "--cores": "16",
    "--clock": "4.5GHz",
    "--units": "avx512:2",
    "--channels": "4",
    "--transfer-rate": "3000MT/s",
}


def arguments(path: Path, **changes: str | None) -> list[str]:
    """The call for the article's machine, with flags changed, added, or left out (None)."""
    flags: dict[str, str | None] = {**FLAGS}
    flags.update({f"--{name.replace('_', '-')}": value for name, value in changes.items()})
    given = [part for flag, value in flags.items() if value is not None for part in (flag, value)]
    return ["hardware", "fit", str(path), *given]


def test_the_machine_of_the_article(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert run(arguments(path, reference="The article, https://example.org", date="2026-01")) == 0
    captured = capsys.readouterr()
    assert (
        "float32 AVX-512 FMA: 16 cores x 4.5 GHz x 2 pipes x 16 lanes x 2 FLOP = 4.61 TFLOP/s"
        in captured.out
    )
    assert "DRAM: 4 channels x 3000 MT/s x 8 byte = 96.0 GB/s" in captured.out
    # 4608 GFLOP/s over 96 GB/s.
    assert "float32 AVX-512 FMA: 48.0" in captured.out
    assert captured.err == f"Wrote {path}\n"
    profile = read_profile(path)
    assert profile.name == "mine"
    assert profile.date == "2026-01"


def test_the_documented_call_prints_what_is_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = DOCUMENT.read_text(encoding="utf-8")
    call, _, said = text.split("$ roofline hardware fit ")[1].split("```")[0].partition("\n")
    assert run(["hardware", "fit", *call.split()]) == 0
    captured = capsys.readouterr()
    assert captured.out + captured.err == said


def test_what_is_written_is_a_machine_like_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert run(arguments(path)) == 0
    assert run(["hardware", "show", str(path)]) == 0
    assert run(["hardware", "diff", "10980xe", str(path)]) == 0
    assert "float32 peak 1×, memory bandwidth 1×" in capsys.readouterr().out


def test_a_core_takes_the_place_of_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "epyc.toml"
    changes = {"cores": "96", "clock": "3.7GHz", "channels": "12", "transfer_rate": "4800MT/s"}
    assert run(arguments(path, units=None, core="zen 4", name="EPYC 9654", **changes)) == 0
    out = capsys.readouterr().out
    assert "EPYC 9654: AMD Zen 4, 96 cores at 3.7 GHz" in out
    assert "= 11.4 TFLOP/s (1 core: 118 GFLOP/s)" in out
    assert "461 GB/s" in out


def test_caches_warn_of_what_they_leave_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert run([*arguments(path), "--cache", "L1=32KiB/core", "--cache", "L2=1MiB/core:64"]) == 0
    assert "caches omitted: unknown bandwidth of L1" in capsys.readouterr().err
    caches = ["--cache", "L1=32KiB/core:192", "--cache", "L2=1MiB/core:64"]
    assert run([*arguments(path), *caches, "--force"]) == 0
    assert "valid only if every cache is given" in capsys.readouterr().err
    assert [level.name for level in read_profile(path).memory] == ["L1", "L2", "DRAM"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cores": "0"}, "--cores must be a whole number from 1 to 100000, got '0'"),
        ({"cores": "²"}, "--cores must be a whole number"),
        ({"clock": "450GHz"}, "clock '450GHz': must be from 100MHz"),
        ({"clock": "fast"}, "must be a frequency"),
        ({"units": "avx51:2"}, "did you mean 'avx512'?"),
        ({"units": "avx512:2,neon:4"}, "units 'avx512' (x86) and 'neon' (Arm)"),
        ({"core": "80486", "units": None}, "unknown core '80486'; known are "),
        ({"channels": "-1"}, "--channels must be a whole number from 1 to 1024"),
        ({"transfer_rate": "3000000MT/s"}, "must be from 100MT/s"),
        ({"bus_bytes": "0"}, "--bus-bytes must be a whole number from 1 to 1024"),
        ({"core": "zen 4"}, "--core --units: exclude each other"),
        ({"core": "zen 44", "units": None}, "unknown core 'zen 44'; did you mean 'zen 4"),
        ({"cache": "L1"}, "invalid cache 'L1'; use the form L1=32KiB/core"),
        ({"date": "soon"}, "date must be a date such as 2026-01-31"),
        ({"name": "\n"}, "name must be a one-line name"),
        (
            {"clock": None, "channels": None},
            "missing --clock, --channels; on a terminal, hardware fit prompts",
        ),
        ({"units": None}, "missing --units (or --core in place of --units)"),
        ({"bus": "8"}, "No such option"),
    ],
)
def test_bad_input_gets_one_line_and_no_file(
    changes: dict[str, str | None],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "mine.toml"
    assert run(arguments(path, **changes)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("roofline: error: ") and expected in line
    assert not path.exists()


def test_files_are_not_overwritten_by_accident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    assert run(arguments(path)) == 2
    assert "add --force" in capsys.readouterr().err
    assert path.read_text() == "precious"
    assert run([*arguments(path), "--force"]) == 0
    assert run(arguments(tmp_path / "mine.json")) == 2
    assert "must be a .toml file" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A terminal on which a person answers."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_asks_and_asks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["many", "16", "4.5GHz", "avx51:2", "avx512:2", "4", "3000", "3000MT/s", "", "", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{each}\n" for each in answers)))
    path = tmp_path / "mine.toml"
    assert run(["hardware", "fit", str(path)]) == 0
    captured = capsys.readouterr()
    assert "4.61 TFLOP/s" in captured.out and "96.0 GB/s" in captured.out
    assert "did you mean 'avx512'?" in captured.err
    assert "whole number from 1 to 100000, got 'many'" in captured.err
    assert captured.err.splitlines()[-1].endswith(f"Wrote {path}")
    assert read_profile(path).threads == 16


def test_on_a_terminal_only_what_is_missing_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("3.0GHz\n4\nA sheet\n2026\n"))
    path = tmp_path / "mine.toml"
    assert run(arguments(path, clock=None)) == 0
    asked = capsys.readouterr().err
    assert "Clock" in asked and "Cores" not in asked
    profile = read_profile(path)
    assert profile.compute[0].provenance.reference == "A sheet"
    (memory,) = profile.memory[0].bandwidth
    assert memory.peak_bytes_per_s == pytest.approx(4 * 3e9 * 4)


def test_no_answer_is_an_interrupt_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("16\n"))
    path = tmp_path / "mine.toml"
    assert run(["hardware", "fit", str(path)]) == 130
    assert not path.exists()
