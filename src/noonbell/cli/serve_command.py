"""`noonbell serve`: the service, until a signal stops it.

SIGTERM or Ctrl-C stops it: no new run starts, open event streams end, pending requests are answered, and runs have
until the shutdown timeout of the settings; the next start restarts the runs that have not ended by then. A second
signal skips all waiting.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from noonbell.cli.cli_errors import CliError
from noonbell.config import LOG_FORMATS, LOG_LEVELS, load
from noonbell.errors import NoonbellError

if TYPE_CHECKING:
    from noonbell.server.serving import Announcement

_EXAMPLES: Final = """\b
noonbell serve --demo
noonbell serve --store sqlite:////var/lib/noonbell/noonbell.db --port 8765
noonbell serve --store postgresql://db/noonbell --host 0.0.0.0 --public-url https://bell.example.org
noonbell serve --tasks myapp.tasks
noonbell serve --store postgresql://db/noonbell --no-engine
"""


def slot_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `serve` and `worker` that limit how much runs at a time."""
    for option, what in (
        ("--threads", "How many plain functions run at a time. Default: 128."),
        ("--http-slots-per-host", "How many HTTP requests go to one host at a time. Default: 16."),
        ("--http-slots", "How many HTTP requests are under way at a time. Default: 256."),
    ):
        command = click.option(option, type=int, metavar="NUMBER", help=what)(command)
    return command


@click.command("serve", epilog=_EXAMPLES)
@click.option("--config", "file", type=click.Path(path_type=Path), help="The settings' file. Default: noonbell.toml.")
@click.option("--store", "--db", metavar="ADDRESS", help="The database, such as sqlite:///noonbell.db.")
@click.option("--timeline", metavar="ADDRESS", help="A Redis server as an index of due schedules: redis://HOST:6379/0.")
@click.option("--host", metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1, for this machine alone.")
@click.option("--port", type=int, metavar="PORT", help="Where to listen; 0 takes a free port. Default: 8765.")
@click.option("--lane", metavar="NAME", help="Which schedules this process runs. Default: default.")
@click.option("--public-url", metavar="URL", help="Where people reach the service, for links.")
@click.option("--tasks", metavar="MODULE", help="A Python module that declares tasks, as package.module.")
@click.option(
    "--engine/--no-engine", default=None, help="Without an engine: only the API and the dashboard. Default: with one."
)
@click.option("--watchdog-url", metavar="URL", help="Request this after completed polls, every 20 seconds.")
@click.option("--demo", is_flag=True, default=None, help="Create a few demo schedules, and a key.")
@click.option("--key-file", "master_keys_file", metavar="FILE", help="The file of the master keys.")
@click.option("--allow", "egress_allow", multiple=True, metavar="HOST:PORT", help="Allow egress to this host and port.")
@click.option("--command", "commands", multiple=True, metavar="PROGRAM[:VAR]", help='Let schedules run it; "any": all.')
@slot_options
@click.option("--retention-days", type=int, metavar="DAYS", help="Prune history that is older than this.")
@click.option("--shutdown-seconds", type=float, metavar="SECONDS", help="How long a stop waits for runs. Default: 20.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="For people, or for programs.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS))
@click.option("--json", "as_json", is_flag=True, help="Print where it listens as one line of JSON.")
def command(file: Path | None, *, as_json: bool, **flags: Any) -> None:
    """Run the service: the REST API, the login, and an engine that runs schedules.

    Any number of services and workers may share a database, on PostgreSQL from any number of machines. With --no-engine
    it runs no schedules: "noonbell worker" does, and this process notifies when none of them polls.

    Settings come from these flags, from variables such as NOONBELL_STORE, and from noonbell.toml, in this order; see
    "noonbell config show".
    """
    try:
        settings = load(flags, environ=os.environ, file=file)
        run = _program()
        run(settings, lambda announcement: _announce(announcement, as_json=as_json))
    except NoonbellError as error:
        facts = {"kind": type(error).__name__}
        raise CliError(str(error), facts, tuple(getattr(error, "__notes__", ())), as_json=as_json) from None


def _program() -> Any:
    try:
        from noonbell.server import serving  # noqa: PLC0415 - heavy, and an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("noonbell"):
            raise
        message = f'The service needs {error.name}: install "noonbell[server]"'
        raise CliError(message, {"missing": error.name}, as_json=False) from None
    return serving.run


def _announce(announcement: Announcement, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(announcement.facts()))
        return
    click.echo("\n".join(announcement.lines()))
