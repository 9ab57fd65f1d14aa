"""``roofline completion SHELL``."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print what makes SHELL complete commands, options, models and machines.

    \b
    bash: in ~/.bashrc:  eval "$(roofline completion bash)"
    zsh:  in ~/.zshrc, after compinit:  eval "$(roofline completion zsh)"
    fish: roofline completion fish > ~/.config/fish/completions/roofline.fish
    """
    from roofline.cli.main import COMPLETE, cli

    # click finds the shells' classes by name.
    importlib.import_module("roofline.cli.shells")
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(cli, {}, "roofline", COMPLETE).source(), nl=False)
