"""``roofline llm`` on the stages of a language model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cli.main import run
from tests.cli.stand_ins import StandIn, stand_in
from tests.llm.languages import language


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    return stand_in(monkeypatch, "language", "analyze_language", language())


def test_the_verdict_is_the_first_line_and_talk_goes_to_stderr(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["llm", "hf:llama", "--context", "512"]) == 0
    said = capsys.readouterr()
    assert " ".join(said.out.split()).startswith(" ".join(asked.answer.summary.split())[:60])
    assert "what the model says" in said.err
    assert "what the model says" not in said.out


def test_options_reach_the_analysis(asked: StandIn) -> None:
    command = (
        "llm hf:llama --config hidden_size=64,num_hidden_layers=2 --stage decode --context 4k,8k"
        " --batch 1..8 --dtype bfloat16 --weights w8a16,fp8 --kv fp8 --tensor-parallel 1,2"
        " --link-bandwidth nvlink4 --link-latency 5us --prefix 50% --speculate 4 --acceptance 70%"
        " --pipeline-parallel 2 --engine transformers --quantized-head"
        " --memory 80GiB --threads 2 --cold --hardware h100 --hardware a100"
    )
    assert run([*command.split()]) == 0
    assert asked.given == {
        "model": "hf:llama",
        "config": "hidden_size=64,num_hidden_layers=2",
        "stage": "decode",
        "context": "4k,8k",
        "batch": "1..8",
        "dtype": "bfloat16",
        "weights": "w8a16,fp8",
        "kv": "fp8",
        "tensor_parallel": "1,2",
        "link_bandwidth": "nvlink4",
        "link_latency": "5us",
        "prefix": "50%",
        "speculate": 4,
        "acceptance": "70%",
        "pipeline_parallel": 2,
        "engine": "transformers",
        "quantized_head": True,
        "memory": "80GiB",
        "threads": 2,
        "cold": True,
        "hardware": ["h100", "a100"],
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train"], "No such option '--train'"),
        (["--engine", "vllm"], "--engine vllm: must be paged or transformers"),
        (["--top", "5"], "--top: has no effect on a paged engine; add --engine transformers"),
        (["--min-coverage", "90%"], "--min-coverage: has no effect on a paged engine"),
        (["-o", "model.trace"], "kind 'language model' are written as"),
    ],
)
def test_what_has_no_effect_is_refused_in_one_line(
    asked: StandIn, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert run(["llm", "hf:llama", "--context", "8", *options]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert asked.given == {}


def test_files_and_formats(asked: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["model.json", "model.csv", "model.md", "model.html", "model.svg"]
    outputs = [word for each in files for word in ("-o", each)]
    assert run(["llm", "hf:llama", "--context", "8", "--format", "json", *outputs]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["kind"] == "language model"
    assert said.err.count("Wrote model.") == 5
    assert all(Path(each).stat().st_size for each in files)
    assert run(["llm", "hf:llama", "--context", "8", "-o", "model.json"]) == 2


def test_coverage_is_that_of_the_stages(asked: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llm", "hf:llama", "--engine", "transformers", "--min-coverage", "100%"]) == 0
    assert "coverage" not in capsys.readouterr().err
