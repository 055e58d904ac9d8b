"""`noonbell completion`: the script for shell completion of commands, options and names of schedules."""

from __future__ import annotations

import json
from typing import Final

import click
from click.shell_completion import get_completion_class

from noonbell.cli.cli_errors import HintingCommand

_EXAMPLES: Final = """\b
eval "$(noonbell completion bash)"                                   # in ~/.bashrc
eval "$(noonbell completion zsh)"                                    # in ~/.zshrc
noonbell completion fish > ~/.config/fish/completions/noonbell.fish
"""
_VARIABLE: Final = "_NOONBELL_COMPLETE"


@click.command("completion", cls=HintingCommand, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included.")
@click.pass_context
def command(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print the completion script of SHELL: commands, options and the names of schedules.

    Names come from the database or the service that NOONBELL_STORE, NOONBELL_URL or the options on the line name.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows these three
    made = kind(ctx.find_root().command, {}, "noonbell", _VARIABLE)
    # not source(), which starts a bash to ask for its version
    script = made.source_template % made.source_vars()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
