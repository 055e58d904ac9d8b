"""`noonbell worker`: an engine without the API. It runs the due schedules of one lane until a signal stops it.

SIGTERM or Ctrl-C stops it: no new run starts, and runs have until the shutdown timeout of the settings; runs that have
not ended by then are cancelled and queued again, for another engine of the lane or the next start. A second signal does
that at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from noonbell.cli.cli_errors import CliError, HintingCommand
from noonbell.cli.connection_target import shown_address
from noonbell.cli.serve_command import slot_options
from noonbell.config import LOG_FORMATS, LOG_LEVELS, Settings, load
from noonbell.errors import NoonbellError
from noonbell.server.forced_exit import leave
from noonbell.server.watchdog import watchdog

if TYPE_CHECKING:
    from noonbell.bootstrap import Service

logger = logging.getLogger("noonbell.service")

_EXAMPLES: Final = """\b
noonbell worker --store postgresql://db/noonbell
noonbell worker --store sqlite:///app.db --lane reports --command any
"""


@click.command("worker", cls=HintingCommand, epilog=_EXAMPLES)
@click.option("--config", "file", type=click.Path(path_type=Path), help="The settings' file. Default: noonbell.toml.")
@click.option("--store", "--db", metavar="ADDRESS", help="The database, such as sqlite:///noonbell.db.")
@click.option("--timeline", metavar="ADDRESS", help="A Redis server as an index of due schedules: redis://HOST:6379/0.")
@click.option("--lane", metavar="NAME", help="Which schedules this process runs. Default: default.")
@click.option("--watchdog-url", metavar="URL", help="Request this after completed polls, every 20 seconds.")
@click.option("--tasks", metavar="MODULE", help="A Python module that declares tasks, as package.module.")
@click.option("--key-file", "master_keys_file", metavar="FILE", help="The file of the master keys.")
@click.option("--allow", "egress_allow", multiple=True, metavar="HOST:PORT", help="Allow egress to this host and port.")
@click.option("--command", "commands", multiple=True, metavar="PROGRAM[:VAR]", help='Let schedules run it; "any": all.')
@slot_options
@click.option("--retention-days", type=int, metavar="DAYS", help="Prune history that is older than this.")
@click.option("--shutdown-seconds", type=float, metavar="SECONDS", help="How long a stop waits for runs. Default: 20.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="For people, or for programs.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS))
@click.option("--json", "as_json", is_flag=True, help="Print JSON when it is up, and of errors.")
def command(file: Path | None, *, as_json: bool, **flags: Any) -> None:
    """Run only an engine of one lane: no API, no login, no port.

    Any number of workers and services may share a lane, on PostgreSQL from any number of machines: each occurrence is
    started once, and when an engine dies, the others restart its runs. Settings come from flags, environment and
    noonbell.toml, as for "noonbell serve".
    """
    try:
        given = {name: value for name, value in flags.items() if value not in (None, ())}
        settings = load(given | {"engine": True}, environ=os.environ, file=file)
        _configure_logs(settings)
        asyncio.run(_life(settings, as_json=as_json))
    except NoonbellError as error:
        hints = tuple(getattr(error, "__notes__", ()))
        raise CliError(str(error), {"kind": type(error).__name__}, hints, as_json=as_json) from None


def _configure_logs(settings: Settings) -> None:
    try:
        from noonbell.server import service_logs  # noqa: PLC0415 - its library comes with an extra
    except ModuleNotFoundError:
        logging.basicConfig(stream=sys.stderr, level=settings.log_level.upper())
    else:
        service_logs.configure(settings)


async def _life(settings: Settings, *, as_json: bool) -> None:
    from noonbell.bootstrap import build  # noqa: PLC0415 - not for --help

    asked, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        (hurry if asked.is_set() else asked).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    service = build(settings)
    await service.start()
    facts = {"lane": settings.lane, "store": shown_address(settings.store), "pid": os.getpid()}
    message = f"An engine of the lane {settings.lane} runs on {facts['store']}. Ctrl-C stops it."
    click.echo(json.dumps(facts) if as_json else message)
    sys.stdout.flush()
    async with watchdog(service):
        await asked.wait()
    logger.info("stopping shutdown_seconds=%g", settings.shutdown_seconds)
    await _stop(service, settings, hurry)


async def _stop(service: Service, settings: Settings, hurry: asyncio.Event) -> None:
    work = asyncio.ensure_future(service.stop_work(settings.shutdown_seconds))
    pressed = asyncio.ensure_future(hurry.wait())
    await asyncio.wait([work, pressed], return_when=asyncio.FIRST_COMPLETED)
    pressed.cancel()
    if not work.done():
        logger.warning("stopping at once: second signal")
        await service.stop_work(0)  # runs are cancelled and queued again
    in_time = await work
    await service.close()
    logger.info("stopped")
    if not in_time:
        await leave(service)
