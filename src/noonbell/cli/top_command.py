"""`noonbell top`: due schedules, runs, failures and lateness, live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import click

from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import CliError, HintingCommand
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.overview import Look, drawn, look
from noonbell.errors import StoreError

_EXAMPLES: Final = """\b
noonbell top --store sqlite:///app.db
noonbell top --server https://bell.example.org --every 5
noonbell top --once --json
"""


@click.command("top", cls=HintingCommand, epilog=_EXAMPLES)
@click.option("--every", type=click.FloatRange(0.5, 3_600), default=2.0, show_default=True, metavar="SECONDS")
@click.option("--once", is_flag=True, help="Print once and exit, as with --json or without a terminal.")
@click.option("--team", metavar="NAME", help="Only this team.")
@with_backend
def command(*, every: float, once: bool, team: str | None, place: ConnectionTarget) -> None:
    """Watch due schedules, runs, failures and lateness. q quits."""
    if once or place.as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        seen = place.ask(lambda backend: look(backend, team, place.now), read_only=True)
        _show_once(seen, place)
        return
    place.ask(lambda backend: _watch(backend, team, place, every), read_only=True, live=True)


def _show_once(seen: Look, place: ConnectionTarget) -> None:
    if place.as_json:
        click.echo(json.dumps(seen.data(), ensure_ascii=False))
        return
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn

    out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    out.print(drawn(seen, place.shown, out.width, 60, note=" "))


async def _watch(backend: Backend, team: str | None, place: ConnectionTarget, every: float) -> None:
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.live import Live  # noqa: PLC0415 - as above

    out = Console(highlight=False)
    leaving = asyncio.Event()
    seen = await look(backend, team, datetime.now(UTC))
    with _keys(leaving), Live(console=out, screen=True, auto_refresh=False) as live:
        note = ""
        while not leaving.is_set():
            live.update(drawn(seen, place.shown, out.width, out.height, note=note), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), every)
            if leaving.is_set():
                return
            try:
                seen, note = await look(backend, team, datetime.now(UTC)), ""
            except CliError as error:
                note = f"{error.message} - trying again; q quits"
            except StoreError as error:
                note = f"{error} - trying again; q quits"


@contextlib.contextmanager
def _keys(leaving: asyncio.Event) -> Iterator[None]:
    """Set the event on q or the end of input; restore the terminal afterwards."""
    import termios  # noqa: PLC0415 - not on every system
    import tty  # noqa: PLC0415 - as above

    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed() -> None:
        typed = sys.stdin.buffer.raw.read(64) if hasattr(sys.stdin.buffer, "raw") else b"q"
        if not typed or b"q" in typed.lower() or b"\x04" in typed:
            leaving.set()

    tty.setcbreak(number)
    loop.add_reader(number, pressed)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
