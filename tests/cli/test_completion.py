"""Shells complete commands, options, models and machines; they are asked as their users ask."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.cli.main import run

OWN = "class Net: ...\ndef make(): ...\ndef _hidden(): ...\nsize = 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to stand in, and a folder of commands with roofline in it."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "roofline"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m roofline "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    (work / "nets").mkdir(parents=True)
    (work / "mine.py").write_text(OWN)
    (work / "broken.py").write_text("def (:\n")
    (work / "two words.py").write_text(OWN)
    (work / "nets" / "deep.py").write_text(OWN)
    (work / "saved.json").write_text("{}")
    (work / "lab.toml").touch()
    return work


def shell(name: str, folder: Path, program: str) -> list[str]:
    """What a shell says that stands in the folder and finds roofline."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    done = subprocess.run(
        [found, *options, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(folder.parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# bash itself cuts the line into words, and allows compopt only while it completes.
BASH = """
compopt() { echo "compopt $1 $2"; }
COMP_WORDS=(%s)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_roofline_completion roofline && printf '%%s\\n' "${COMPREPLY[@]}"
echo "$COMP_WORDBREAKS" > wordbreaks
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What bash evaluates, said once: it is the same for every line."""
    path = tmp_path_factory.mktemp("script") / "completion.bash"
    command = [sys.executable, "-m", "roofline", "completion", "bash"]
    path.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    return path


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("roofline anal", ["analyze"]),
        ("roofline hardware sh", ["show"]),
        ("roofline analyze resnet50 --dt", ["--dtype"]),
        ("roofline analyze x --dtype b", ["bfloat16"]),
        ("roofline analyze x --by m", ["module"]),
        ("roofline completion ", ["bash", "zsh", "fish"]),
        ("roofline analyze timm:resnet10", ["timm:resnet101", "timm:resnet101_clip"]),
        ("roofline analyze hf:distilb", ["hf:distilbert"]),
        ("roofline analyze torchvision:alex", ["torchvision:alexnet"]),
        ("roofline analyze hf:DistilBertForM", ["hf:DistilBertForMaskedLM"]),
        ("roofline compare resnet18 timm:tf_mixn", ["timm:tf_mixnet_l", "timm:tf_mixnet_m"]),
        ("roofline analyze hardsw", ["hardswish"]),
        ("roofline analyze relu+maxpool3", ["relu+maxpool3d"]),
        ("roofline compare relu hardt", ["hardtanh"]),
        ("roofline analyze torchv", ["torchvision:alexnet", "torchvision:convnext_base"]),
        ("roofline analyze alex", ["alexnet"]),
        ("roofline analyze mine", ["mine.py:Net", "mine.py:make"]),
        ("roofline analyze mine.py:", ["mine.py:Net", "mine.py:make"]),
        ("roofline analyze mine.py:m", ["mine.py:make"]),
        ("roofline analyze broken.py:", []),
        ("roofline analyze nowhere.py:", []),
        ("roofline analyze two", ["two words.py:Net"]),
        ("roofline analyze nets/d", ["nets/deep.py:Net"]),
        ("roofline analyze net", ["nets/"]),
        ("roofline analyze saved", []),
        ("roofline compare saved", ["saved.json"]),
        ("roofline compare resnet18 alexnet --reference al", ["alexnet"]),
        ("roofline analyze x --hardware 10980", ["10980xe", "10980xe-measured"]),
        ("roofline analyze x --hardware la", ["lab.toml"]),
        ("roofline hardware show hos", ["host"]),
        ("roofline show sav", ["compopt -o default"]),
        ("roofline analyze alexnet -o ", ["compopt -o default"]),
        ("roofline nonsense ", []),
    ],
)
def test_bash(folder: Path, script: Path, line: str, replies: list[str]) -> None:
    words = " ".join(map(shlex.quote, line.split(" ")))
    program = f"source {shlex.quote(str(script))}\n{BASH % words}"
    said = [each for each in shell("bash", folder, program) if each]
    assert said[: len(replies)] == replies
    assert bool(said) == bool(replies)
    assert ":" not in (folder / "wordbreaks").read_text()


@pytest.mark.parametrize(
    ("words", "replies"),
    [
        ("roofline analyze timm:resnet10", ["timm:resnet101", "timm:resnet101_clip"]),
        ("roofline analyze hf:distilb", ["hf:distilbert"]),
        ("roofline analyze mine", ["mine.py:Net"]),
        ("roofline anal", ["analyze"]),
    ],
)
@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_what_the_other_shells_are_told(
    name: str, words: str, replies: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They replace the whole word."""
    count = len(words.split()) - 1
    word = str(count) if name == "zsh" else words.split()[-1]
    environment = {
        "COMP_WORDS": words,
        "COMP_CWORD": word,
        "_ROOFLINE_COMPLETE": f"{name}_complete",
    }
    done = subprocess.run(
        [sys.executable, "-m", "roofline"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )
    said = done.stdout.splitlines()
    if name == "zsh":
        values = said[1::3]
    else:
        values = [each.partition(",")[2].partition("\t")[0] for each in said]
    assert values[: len(replies)] == replies


@pytest.mark.parametrize(
    ("name", "program", "start"),
    [
        (
            "zsh",
            'autoload -U compinit && compinit -u -D; eval "$(roofline completion zsh)";'
            " echo $_comps[roofline]",
            "_roofline_completion",
        ),
        ("fish", "roofline completion fish | source; complete -C 'roofline anal'", "analyze\t"),
    ],
)
def test_scripts_of_other_shells_are_read(
    name: str, program: str, start: str, folder: Path
) -> None:
    (said,) = shell(name, folder, program)
    assert said.startswith(start)


def test_completing_needs_no_heavy_library(folder: Path) -> None:
    """Whatever is completed; each is some tenth of a second."""
    code = (
        "import atexit, sys; sys.argv = ['roofline'];"
        "heavy = ('torch', 'numpy', 'pandas', 'matplotlib', 'timm', 'transformers', 'rich');"
        "atexit.register(lambda: print([each for each in heavy if each in sys.modules]));"
        "from roofline.cli.main import main; main()"
    )
    for line in ("roofline ", "roofline analyze timm:", "roofline analyze x --hardware "):
        environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, **environment, "_ROOFLINE_COMPLETE": "bash_complete"},
        )
        assert ast.literal_eval(done.stdout.splitlines()[-1]) == [], done.stderr
        assert len(done.stdout.splitlines()) > 5


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_without_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """click's own message has its choices on lines of their own."""
    assert run(["completion"]) == 2
    assert capsys.readouterr().err == (
        "roofline: error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish"
        " (see `roofline completion --help`)\n"
    )


def test_a_request_that_is_empty_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ROOFLINE_COMPLETE", "")
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("roofline ")
