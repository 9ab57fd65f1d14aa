"""``roofline compile MODEL``: for real on small designs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cli.main import run

DESIGN = "conv2d(3,8,3)+relu()@1x3x10x10"
ON = ("--hardware", "10980xe")


def compiled(*more: str, design: str = DESIGN) -> int:
    return run(["compile", design, *ON, *more])


def test_it_shows_eager_torch_and_inductor_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "c.json"
    assert compiled("-o", str(saved)) == 0
    out, err = capsys.readouterr()
    assert "under torch.compile: 3 launches, " in out
    assert "eager torch" in out and "convolution" in out
    assert f"Wrote {saved}" in err
    data = json.loads(saved.read_text(encoding="utf-8"))
    image, weights, bias, output = 3 * 10 * 10 * 4, 8 * 3 * 3 * 3 * 4, 8 * 4, 8 * 8 * 8 * 4
    # Image and weights are laid out with their channels last, then comes the convolution, and the
    # ReLU works in its result.
    reordered = 2 * (image + weights)
    assert data["sides"]["inductor"] == {
        "launches": 3,
        "traffic_bytes": reordered + image + weights + bias + output + 2 * output,
        "unknown": 0,
    }
    assert data["sides"]["eager"]["launches"] == 2
    assert run(["show", str(saved)]) == 0
    assert "under torch.compile: 3 launches, " in capsys.readouterr().out


def test_training_shows_its_phases(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled("--train", "--format", "md") == 0
    out = capsys.readouterr().out
    assert "without loss and optimizer step" in out
    assert "| forward | Inductor" in out and "| backward | Inductor" in out


def test_csv_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled("--format", "csv") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("graph,phase,calls,launch,kernel,kind,loops")
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--by", "module"), "No such option '--by'"),
        (("--hardware", "v100"), "`roofline compile` takes one machine"),
        (("-o", "a.png"), "are written as .json, .csv, .md, .html"),
        (("--format", "svg"), "'svg' is not one of"),
    ],
)
def test_what_is_refused(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(*more) == 2
    out, err = capsys.readouterr()
    assert said in err and not out
    assert err.count("\n") == 1


def test_a_device_whose_kernels_are_not_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled("--device", "cuda", design="relu()@1x8") == 0
    out = capsys.readouterr().out
    assert "under torch.compile: unknown" in out
    assert "times CUDA kernels on the device" in out.replace("\n", " ")
