"""Every call of roofline in the blocks of README and docs is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from roofline.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(?:console|bash|sh|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CALL = re.compile(r"^(?:\$ )?(?:\./scripts/)?roofline +(.+)$", re.MULTILINE)


def calls(page: Path) -> list[list[str]]:
    """The words of each call on a page, without comments and redirections."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for block in _BLOCK.findall(text) for line in _CALL.findall(block)]
    known = cli.list_commands(click.Context(cli))
    # Among what a command printed there are lines that begin with its name, too.
    return [
        shlex.split(line.partition(" > ")[0], comments=True)
        for line in lines
        if line.split()[0] in known
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_calls_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    for words in calls(page):
        command: click.Command = cli
        context = click.Context(cli, info_name="roofline")
        while isinstance(command, click.Group):
            context = click.Context(command, parent=context)
            _, found, words = command.resolve_command(context, words)
            assert found is not None
            command = found
        command.make_context(None, words, parent=context)


def test_there_are_such_calls():
    assert sum(len(calls(page)) for page in PAGES) > 60
