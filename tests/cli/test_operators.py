"""``roofline operators``: what is counted, in words, and what of a model is not."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from roofline.cli.main import run
from roofline.render.console import print_report
from roofline.result import read_result
from roofline.workload.formulas import known
from roofline.workload.formulas.catalog import Operators, catalog, filter_by_name, shared_rules

MODELS = """
import torch
import roofline

@torch.library.custom_op("roofline_listed::spread", mutates_args=())
def spread(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.repeat(times, 1)

@spread.register_fake
def _(x, times):
    return x.new_empty(times * x.shape[0], x.shape[1])

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        print("the model speaks")
        return spread(self.inner(x), 3)

class Nothing(torch.nn.Module):
    def forward(self, x):
        return x.view(-1)
"""


pytestmark = pytest.mark.usefixtures("a_registry_of_its_own")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "listed.py"
    path.write_text(MODELS)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a call that succeeds says on stdout."""
    assert run(["operators", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a call with wrong arguments says on stderr."""
    assert run(["operators", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    return line


# -- operators that have a formula -----------------------------------------------------------------


def test_every_operator_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe: its name, kind, rules, file and line."""
    lines = said(capsys).splitlines()
    assert lines[0].startswith(f"{len(known())} operators with a formula: ")
    assert lines[2].split() == ["Operator", "Type", "FLOP", "Bytes", "Source"]
    rows = lines[3 : 3 + len(known())]
    assert [row.split()[0] for row in rows] == sorted(known())
    (embedding,) = [row for row in rows if row.startswith("aten.embedding ")]
    assert "the rows looked up, not the table" in embedding
    assert "roofline/workload/formulas/indexing.py:" in embedding
    (product,) = [row for row in rows if row.startswith("aten.mm ")]
    assert "  matrix product  " in product
    assert "  each operand once  " in product


def test_patterns_and_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "conv*", "--type", "convolution")
    assert "aten.convolution " in text
    assert "aten.mm" not in text
    assert "data movement" not in text
    assert said(capsys, "aten.mm").startswith(f"1 of {len(known())} operators with")


def test_one_formula_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """What a table has no room for: all of its docstring, and whether it holds for complex."""
    text = said(capsys, "aten.grid_sampler_2d")
    assert "A coordinate takes 4 operations to become a position" in text
    assert "Complex numbers" in text
    assert "Details " not in said(capsys, "pool")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["aten.convolutoin"], "no formula for 'aten.convolutoin'; the nearest are aten.convol"),
        (["mm", "--type", "polling"], "--type polling: expected "),
        (["--type", "softmax", "aten.mm"], "no formula for 'aten.mm'"),
        (["--batch", "3"], "--batch has no effect without --missing MODEL"),
        (["--train"], "--train has no effect without --missing MODEL"),
        (["mm", "--missing", "resnet18"], "PATTERN has no effect with --missing"),
        (["--type", "softmax", "--missing", "resnet18"], "--type has no effect with --missing"),
        (
            ["-o", "a.html"],
            "a.html: unknown suffix '.html'; results of kind 'operators' are written as",
        ),
        (["-o", "-"], "-o -: add the format of stdout"),
        (["--missing", "resnt18"], "unknown model 'resnt18'; did you mean 'resnet18'?"),
        (["--missing", "resnet18", "--batch", "0"], "--batch 0: must be a whole number from 1"),
        (
            ["--missing", "resnet18", "--optimizer", "sgd"],
            "--optimizer sgd has no effect in inference",
        ),
        (["--missing", "hf:bert", "--seq", "9", "--input", "1x9:int64"], "--seq 9 has no effect"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert refused(capsys, *arguments).startswith(f"roofline: error: {message}")


def in_csv(value: object) -> str:
    """Text that a spreadsheet would compute, as "-log(u)", has an apostrophe before it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


def test_json_and_csv_have_an_entry_an_operator(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All formats say the same; files and stdout are the same bytes."""
    data = json.loads(said(capsys, "--format", "json"))
    assert data["known"] == len(known())
    assert (data["schema_version"], data["kind"]) == (1, "operators")
    assert [each["key"] for each in data["operators"]] == sorted(known())
    rows = list(csv.DictReader(io.StringIO(said(capsys, "--format", "csv"))))
    for entry, row in zip(data["operators"], rows, strict=True):
        assert {name: in_csv(value) for name, value in entry.items()} == row
    for format in ("json", "csv", "md"):
        file = tmp_path / f"operators.{format}"
        assert run(["operators", "pool", "-o", str(file)]) == 0
        assert capsys.readouterr().err.strip() == f"Wrote {file}"
        assert file.read_text() == said(capsys, "pool", "--format", format)
    assert "exists" in refused(capsys, "-o", str(tmp_path / "operators.md"))


def test_markdown_has_a_row_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split(" | ") for line in said(capsys, "*max_pool*", "--format", "md").splitlines()]
    (row,) = [row for row in rows if row[0].startswith("| aten.max\\_pool1d")]
    assert row[1] == "pooling"
    assert len(row) == 5


def test_what_is_saved_is_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "operators.json"
    shown = said(capsys, "pool", "-o", str(file))
    assert str(read_result(file)) == shown
    assert run(["show", str(file)]) == 0
    assert capsys.readouterr().out == shown


def on_terminal(width: int, pattern: str = "*") -> str:
    entries = filter_by_name(catalog(), pattern)
    console = Console(
        file=io.StringIO(), width=width, force_terminal=True, highlight=False, color_system=None
    )
    print_report(Operators(known=len(known()), operators=entries).report(), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 119, 120, 140, 200])
def test_a_terminal_shows_everything_in_its_width(width: int) -> None:
    """No line is too long, none is wrapped by the terminal, no column or word is dropped."""
    text = on_terminal(width)
    assert max(map(len, text.splitlines())) <= width
    assert "not shown" not in text
    rules = [each for rule in shared_rules(catalog()) for each in rule[:1]]
    own = "".join(each.flop_rule + each.byte_rule for each in rules)
    assert text.count("…") == own.count("…")
    together = "".join(text.split())
    for each in catalog():
        if len(each.key) < width // 5:
            assert each.key.removeprefix("aten.") in together


def test_a_terminal_shows_operators_of_a_formula_together() -> None:
    narrow = " ".join(on_terminal(80, "aten.embedding").split())
    assert "Operator Type, FLOP, bytes, source" in narrow
    assert "embedding embedding: The rows that are looked up are read, not the" in narrow
    assert "Bytes: the rows looked up, not the table;" in narrow and "(indexing.py:" in narrow
    wide = on_terminal(140, "aten.max_pool?d").splitlines()
    (row,) = [line for line in wide if line.startswith("max_pool1d, max_pool2d, max_pool3d ")]
    assert "k - 1 comparisons per window of k elements" in row


def test_it_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'pandas', 'matplotlib'): sys.modules[name] = None\n"
        "from roofline.cli.main import run\n"
        "sys.exit(run(['operators']) or run(['operators', '--format', 'json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- operators that lack one -----------------------------------------------------------------------


def test_nothing_is_missing(capsys: pytest.CaptureFixture[str], models: Path) -> None:
    """ResNet-18: 20 convolutions, as many normalizations, 17 relus, 8 sums and three more."""
    assert said(capsys, "--missing", "torchvision:resnet18").splitlines() == [
        "resnet18: no missing operators: 68 calls of 7 operators have formulas"
    ]
    nothing = said(capsys, "--missing", f"{models}:Nothing", "--input", "2x3")
    assert "no missing operators: no operator computes or moves anything" in nothing


def test_what_is_missing_is_listed_with_a_stub(
    capsys: pytest.CaptureFixture[str], models: Path, tmp_path: Path
) -> None:
    """It reads 4 x 8 elements and writes 12 x 8, of 4 bytes; what the model prints is not it."""
    model = f"{models}:Model"
    file = tmp_path / "missing.json"
    assert run(["operators", "--missing", model, "--input", "4x8", "-o", str(file)]) == 0
    captured = capsys.readouterr()
    assert "the model speaks" in captured.err
    lines = captured.out.splitlines()
    assert lines[0] == f"{model}: unknown FLOP in 1 of 2 calls, 1 of 2 operators"
    (row,) = [line for line in lines if line.startswith("roofline_listed.spread ")]
    assert " ".join(row.split()) == (
        "roofline_listed.spread 1 512 B 4x8 -> 12x8 (model) no formula"
    )
    stub = captured.out[captured.out.index("import roofline\n") :]
    assert '@roofline.formula("roofline_listed.spread")\ndef spread(x, times, output, **_):' in stub
    compile(stub, "<stub>", "exec")

    data = json.loads(file.read_text())
    assert (data["kind"], data["calls"], data["operators"]) == ("missing operators", 2, 2)
    assert data["missing"][0]["traffic_bytes"] == 512
    assert str(read_result(file)) == captured.out
    rows = list(
        csv.DictReader(
            io.StringIO(said(capsys, "--missing", model, "--input", "4x8", "--format", "csv"))
        )
    )
    assert [(each["op"], each["calls"], each["examples"]) for each in rows] == [
        ("roofline_listed.spread", "1", "4x8 -> 12x8")
    ]
    markdown = said(capsys, "--missing", model, "--input", "4x8", "--format", "md")
    assert f"```python\n{stub}```\n" in markdown


def test_the_files_formula_ends_it(capsys: pytest.CaptureFixture[str], models: Path) -> None:
    """As in analyze, whose coverage was half and is whole."""
    model = f"{models}:Model"
    analyze = ["analyze", model, "--input", "4x8", "--hardware", "10980xe", "--min-coverage", "100"]
    assert run(analyze) == 3
    assert "coverage: 50.0% of operator calls" in capsys.readouterr().err
    models.write_text(
        f"{MODELS}\n@roofline.formula('roofline_listed.spread')\n"
        "def spread_flop(**_):\n    return roofline.Flop()\n"
    )
    assert "no missing operators" in said(capsys, "--missing", model, "--input", "4x8")
    assert run(analyze) == 0


def test_a_wrong_formula_is_one_line(capsys: pytest.CaptureFixture[str], models: Path) -> None:
    """Exit code 1: the formula failed, and the model is not to blame."""
    models.write_text(
        f"{MODELS}\n@roofline.formula('roofline_listed.spread')\n"
        "def spread_flop(**_):\n    return roofline.Flop(other=-1)\n"
    )
    assert run(["operators", "--missing", f"{models}:Model", "--input", "4x8"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    line = len(models.read_text().splitlines())
    assert captured.err.strip().splitlines()[-1] == (
        "roofline: error: the formula for roofline_listed.spread"
        " (roofline_model_listed.spread_flop) failed: ValueError: other must be a whole number from"
        f" 0, got -1 (listed.py, line {line})"
    )


def test_in_training(capsys: pytest.CaptureFixture[str], models: Path) -> None:
    """An operator without a derivative cannot be trained, and that is one line."""
    arguments = ["--missing", "torchvision:resnet18", "--train", "--autocast", "bfloat16"]
    assert "no missing operators" in said(capsys, *arguments)
    line = refused_after_speech(capsys, "--missing", f"{models}:Model", "--input", "4x8", "--train")
    assert "Traceback" not in line


def refused_after_speech(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["operators", *arguments]) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]
