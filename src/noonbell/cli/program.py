"""The command group: the list of commands, and the one place where the program reads the clock.

The module of a command is imported when the command is called. Tests pass a time as `obj`.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import click

from noonbell import __version__

# The descriptions are here so that --help imports no command.
_GROUPS: Final = {
    "Schedules": {
        "schedules": "Create, show, edit and run schedules.",
        "runs": "List, show and follow runs.",
        "quiet": "Manage quiet hours, in which schedules do not run.",
        "next": "List the next occurrences of a cron expression.",
        "explain": "Explain in English when a cron expression fires.",
        "top": "Watch due schedules, runs and failures live.",
    },
    "History": {
        "why": "Explain why a schedule ran or did not run at a time.",
        "verify": "Check that a ledger is complete and consistent.",
        "prune": "Delete old days of a ledger, and keep their counts.",
    },
    "Files": {
        "plan": "Show the changes that a file of schedules would make.",
        "apply": "Apply a file of schedules to a store.",
        "import": "Translate a crontab into a file of schedules.",
    },
    "Notices": {
        "channels": "Manage the destinations of notices.",
        "rules": "Manage which events are sent to which channels.",
        "monitors": "Monitor jobs that run elsewhere.",
    },
    "Keys and users": {
        "secrets": "Manage the secrets that requests name.",
        "signing": "Show or replace the keys that sign a schedule's requests.",
        "keys": "Create the master keys that encrypt secrets.",
        "api-keys": "Create and revoke the keys of the REST API.",
        "admin": "Manage the users and teams of a service.",
    },
    "Service": {
        "serve": "Run the service: REST API, login and engine.",
        "worker": "Run only an engine, without the API.",
        "config": "Show the settings of the service, with the source of each.",
        "doctor": "Check the installation, and suggest remedies.",
        "completion": "Print the shell completion for bash, zsh or fish.",
    },
}
_INTERRUPTED: Final = 130
_COMMANDS: Final = {name: line for group in _GROUPS.values() for name, line in group.items()}

_EPILOG: Final = """\b
Most commands work on a database (--store, NOONBELL_STORE) or on a service
(--server, NOONBELL_URL, with a key in NOONBELL_API_KEY). All know --json.

\b
  noonbell schedules add "every weekday at 9am" --name bell --command true
  noonbell why bell 09:00
  eval "$(noonbell completion bash)"

\b
Exit status: 0 done; 1 a check failed; 2 bad input or refused;
3 the server cannot be reached; 4 the key is not accepted; 130 Ctrl-C.
"""


class _LazyGroup(click.Group):
    """A group whose commands are in separate modules, each with a `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in _COMMANDS:
            return None
        module = f"noonbell.cli.{cmd_name.replace('-', '_')}_command"
        found = import_module(module).command
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}.command is not a click command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _COMMANDS and not ctx.resilient_parsing:
            from noonbell.cli.cli_errors import CliError  # noqa: PLC0415 - only where something is wrong

            near = difflib.get_close_matches(name, _COMMANDS, n=3, cutoff=0.5)
            hint = f"Did you mean: {', '.join(near)}" if near else "noonbell --help lists them"
            facts = {"value": name, "suggestions": near, "known": sorted(_COMMANDS)}
            raise CliError(f'Unknown command "{name}"', facts, (hint,), as_json="--json" in args)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        width = max(map(len, _COMMANDS))
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in group.items()])


@click.group(cls=_LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="noonbell", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """A durable scheduler that can account for every minute.

    Expressions are POSIX cron: minute, hour, day, month and weekday, in quotes. Steps, names, macros such as @daily,
    Quartz forms and English are translated, and the translation is shown.
    """
    if ctx.obj is None:
        ctx.obj = datetime.now(UTC)
