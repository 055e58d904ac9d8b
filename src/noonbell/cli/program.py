"""The command group: which commands there are, and the one place where the program reads the clock.

A command's module is imported when the command is called. Tests pass the time of their choice as `obj`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from typing import Final

import click

from noonbell import __version__

# name -> (module, the line shown in --help). The line stands here so that --help loads no command.
_COMMANDS: Final = {
    "apply": ("noonbell.cli.apply_command", "Bring the schedules of a store to what a file says."),
    "channels": ("noonbell.cli.channels_command", "Say where notices can go."),
    "explain": ("noonbell.cli.explain_command", "Say in English when a cron expression fires."),
    "keys": ("noonbell.cli.keys_command", "Make the master keys that secrets are sealed with."),
    "import": ("noonbell.cli.import_command", "Translate a crontab into a file of schedules."),
    "monitors": ("noonbell.cli.monitors_command", "Watch over jobs that run elsewhere."),
    "next": ("noonbell.cli.next_command", "List the coming occurrences of a cron expression."),
    "plan": ("noonbell.cli.plan_command", "Show what a file of schedules would change, and what that means."),
    "prune": ("noonbell.cli.prune_command", "Forget old days of a ledger, and keep their counts."),
    "rules": ("noonbell.cli.rules_command", "Say who is told of what."),
    "secrets": ("noonbell.cli.secrets_command", "Put in the secrets that requests name."),
    "signing": ("noonbell.cli.signing_command", "Show or replace the keys that sign a schedule's requests."),
    "verify": ("noonbell.cli.verify_command", "Prove that a ledger is whole, or tell what is wrong with it."),
    "why": ("noonbell.cli.why_command", "Say why a task did, or did not, run at a time."),
}

_EPILOG: Final = """\b
Shell completion (bash; zsh_source and fish_source likewise):
  eval "$(_NOONBELL_COMPLETE=bash_source noonbell)"
"""


class _LazyGroup(click.Group):
    """A group whose commands live in modules of their own, each with a `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _COMMANDS:
            return None
        found = import_module(_COMMANDS[cmd_name][0]).command
        if not isinstance(found, click.Command):
            raise TypeError(f"{_COMMANDS[cmd_name][0]}.command is not a click command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(_COMMANDS.items())])


@click.group(cls=_LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="noonbell", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Schedules that can account for every minute.

    Expressions are POSIX cron: minute, hour, day, month and weekday, in quotes. Steps, names, macros such as @daily and
    Quartz forms are translated, and the translation is shown.
    """
    if ctx.obj is None:
        ctx.obj = datetime.now(UTC)
