"""What a crosscheck prints and writes: from values made by hand, and by the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.core.dtypes import dtype
from roofline.counters import peers as known
from roofline.counters.conventions import FVCORE
from roofline.counters.result import CountedBy, Crosscheck, Difference
from roofline.errors import InputError
from roofline.result import read_result
from roofline.workload.tensors import InputSpec


def counted(number: int, *differences: Difference, per_unit: int = 1) -> CountedBy:
    return CountedBy(
        counter="fvcore",
        version="0.1",
        outcome="counted",
        number_name="flop",
        meaning="1 a multiply-add",
        measure="macs",
        per_unit=per_unit,
        number=number,
        in_our_unit=number // per_unit,
        differences=differences,
        no_rule_for={"lstm": 2},
    )


def difference(amount: int, *, explained: bool = True) -> Difference:
    return Difference(
        kind="batch norm",
        reason="counts batch norm",
        calls=1,
        amount=amount,
        source="rule" if explained else "none",
    )


def crosscheck(*counters: CountedBy, unknown: int = 0) -> Crosscheck:
    return Crosscheck(
        model="net",
        inputs=(InputSpec(shape=(1, 3), dtype=dtype("float32")),),
        macs=1_000_000,
        flop=2_000_000,
        unknown_operators=unknown,
        counters=counters,
    )


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [
        ((), "no number of other counters"),
        ((counted(1_000_000),), "the only other number agrees"),
        (
            (counted(1_000_000), counted(1_000_005, difference(5))),
            "1 of 2 numbers of other counters differs, all differences explained",
        ),
        (
            (counted(1_000_005, difference(5, explained=False)),),
            "the only other number differs, that of fvcore (flop) not fully explained",
        ),
    ],
)
def test_the_verdict_comes_first(counters: tuple[CountedBy, ...], verdict: str) -> None:
    headline = crosscheck(*counters).summary
    assert headline == f"net: 1,000,000 MACs (1.000 M); {verdict}"


def test_every_reason_has_its_amount() -> None:
    text = str(crosscheck(counted(1_000_005, difference(5))))
    assert "1.0000" in text
    assert "+5  counts batch norm" in text
    assert "its 'flop' is one MAC, not two operations" in text


def test_what_is_not_explained_names_what_the_counter_left_out() -> None:
    open_one = crosscheck(counted(999_990, difference(-10, explained=False)))
    assert open_one.counters[0].not_explained == 10
    assert "fvcore reports operators without a rule: lstm (2)" in str(open_one)
    closed = crosscheck(counted(999_990, difference(-10)))
    assert "operators without a rule" not in str(closed)


def test_our_own_number_says_when_it_is_not_complete() -> None:
    text = str(crosscheck(counted(1_000_000), unknown=1))
    assert text.startswith("net: ≥ 1,000,000 MACs")
    assert "≥ 1,000,000" in text


def test_a_number_and_its_outcome_belong_together() -> None:
    with pytest.raises(ValueError, match="contradict"):
        replace(counted(5), outcome="failed")
    with pytest.raises(ValueError, match="contradict"):
        replace(counted(5), number=None)


def test_files_have_all_of_it(tmp_path: Path) -> None:
    value = crosscheck(counted(1_000_000), counted(1_000_005, difference(5)))
    value.save(tmp_path / "a.json")
    assert read_result(tmp_path / "a.json") == value
    data = json.loads((tmp_path / "a.json").read_text())
    for each in data["counters"]:
        amounts = sum(one["amount"] for one in each["differences"])
        assert data["macs"] + amounts == each["in_our_unit"]
    with pytest.raises(InputError, match=r"a\.png: unknown suffix '\.png'"):
        value.save(tmp_path / "a.png")


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def only_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = known.PeerCounter(
        name="other",
        package="no_such_counter",
        install="pip install other",
        conventions=(FVCORE,),
        count=known.count_fvcore,
    )
    monkeypatch.setattr(known, "PEERS", (known.PEERS[0], missing))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        "        print('from the model')\n"
        "        return self.layer(x)\n"
    )
    return f"{path}:Own"


@pytest.mark.usefixtures("only_torch")
def test_the_command_prints_and_writes(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, page = tmp_path / "a.json", tmp_path / "a.md"
    asked = ["crosscheck", file, "--input", "2x4", "-o", str(saved), "-o", str(page)]
    assert run(asked) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{file}: 24 MACs (24); the only other number agrees")
    assert "not installed (pip install other)" in captured.out
    assert "from the model" not in captured.out
    assert captured.err.splitlines()[-2:] == [f"Wrote {saved}", f"Wrote {page}"]
    assert json.loads(saved.read_text())["macs"] == 24
    assert page.read_text().startswith("# ")
    assert run(asked) == 2
    assert "exists" in capsys.readouterr().err
    assert run([*asked, "--force"]) == 0


@pytest.mark.usefixtures("only_torch")
def test_a_format_on_stdout(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crosscheck", file, "--input", "2x4", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counters"][0]["number"] == 48
    assert run(["crosscheck", file, "--input", "2x4", "--format", "md", "--dtype", "bfloat16"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# ") and "bfloat16" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such_model",), "unknown model 'no_such_model'"),
        (("resnet18", "-o", "a.png"), "are written as .json, .csv, .md, .html"),
        (("resnet18", "-o", "-"), "add the format of stdout"),
        (("resnet18", "--dtype", "int8"), "must be a floating type"),
        (("resnet18", "--batch", "0"), "--batch 0: must be a whole number from 1"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["crosscheck", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("roofline: error: ") and said in line


def test_a_counter_without_a_number_says_why() -> None:
    failed = replace(
        counted(5), outcome="failed", note="failed: ValueError: no", number=None, in_our_unit=None
    )
    text = str(crosscheck(counted(1_000_000), failed))
    assert "Without a number\n  fvcore: failed: ValueError: no\n" in text
